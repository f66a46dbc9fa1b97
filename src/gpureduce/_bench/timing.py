"""How long one reduction takes, and where the time goes: :func:`gpureduce.benchmark`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, _functions
from .._display.tables import Exported, lay_out, markdown, show_bandwidth, show_bytes, show_time
from .._memory import empty_pinned
from .._records import last_run, limits
from .benchmark_array import Operand, operand
from .clocks import moved
from .environment import environment
from .profile import check_possible, counter_table, profile_kernel
from .roofline import ceiling_or_why
from .sampling import NOISY, Spread, progress_bar, take_turns
from .session import REFUSED, Bed, check_operator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["STAGES", "Timing", "benchmark"]

STAGES = {
    "compile": "NVRTC, or reading the disk cache: in the first call only",
    "stage": "packing into pinned memory",
    "upload": "copying pinned memory to the device, by itself",
    "kernel": "all launches, by events around them",
    "return": "launching, copying the result back, waiting: a call on device memory less its kernels",
}
"""Stages of a call from host memory. Packing, copying and kernels of an array of several chunks overlap."""

SECONDS, PRECISION = 1.0, 0.01
"""Defaults: time for each of wall and device samples, and the median's uncertainty at which sampling ends."""
UPLOAD_PIECE_BYTES = 32 << 20
UPLOAD_REPEATS, RETURN_REPEATS = 3, 20
RETURN_SECONDS = 0.2
"""After which there are enough of those."""
_BARE = (
    *("function", "op", "dtype", "shape", "axis", "device", "kernel", "variant", "block_size", "grid_size"),
    *("cache", "bytes", "first_call", "peak", "ceiling"),
)


@dataclass(frozen=True, slots=True)
class Timing(Exported):
    """How long a reduction takes; :func:`benchmark` makes it. Times are in seconds, rates in bytes per second.

    Prints as a table, shows as one in a notebook, and draws its stages with matplotlib. As CSV it has a row for each
    sample, with what it is a sample of and the environment.

    Attributes
    ----------
    function
        What was called: an operator's function, or the callable that was given.
    op, dtype, shape, axis
        Operator (``""`` of a callable that is none of ours), the elements' dtype, the array's shape, reduced axes.
    device, kernel, variant, block_size, grid_size
        As :class:`LastRun` has them; ``""`` and 0 of a callable that is none of ours.
    cache
        What the caches held when a sample started: ``"hot"``, ``"cold"`` or ``"rotated"``.
    bytes
        That had to move: the elements once, the results once.
    host
        :class:`Spread` of the wall time of the whole synchronous call, from the array where it is to the result.
    on_device
        :class:`Spread` of the device time of the kernels alone, over the array in device memory; ``None`` if
        there is none, for the reason in `why_no_device`.
    why_no_device
        That reason, or ``""``.
    first_call
        Wall time of the very first call, which compiles.
    stages
        Seconds of what a call from host memory is made of, as far as it can be timed by itself: ``"compile"``,
        ``"stage"``, ``"upload"``, ``"kernel"``, ``"return"``.
    peak
        Bandwidth that the memory's clock and bus come to; ``None`` on the CPU.
    ceiling
        Bandwidth that was measured: ``auto`` over a long array, once per process. ``None`` if it was not.
    warnings
        What casts doubt on the times, in words.
    counters
        Of each launch by Nsight Compute, if it was asked for.
    environment
        Device, driver, versions, date.
    """

    function: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    axis: tuple[int, ...] | int | None
    device: str
    kernel: str
    variant: str
    block_size: int
    grid_size: int
    cache: str
    bytes: int
    host: Spread
    on_device: Spread | None
    why_no_device: str
    first_call: float
    stages: dict[str, float]
    peak: float | None
    ceiling: float | None
    warnings: tuple[str, ...] = ()
    counters: tuple[dict[str, Any], ...] = ()
    environment: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the whole call, at the median."""
        return self.bytes / self.host.median

    @property
    def device_bandwidth(self) -> float | None:
        """Bytes per second of the kernels, at the median."""
        return None if self.on_device is None else self.bytes / self.on_device.median

    @property
    def of_peak(self) -> float | None:
        """:attr:`device_bandwidth` over the theoretical peak."""
        return _share(self.device_bandwidth, self.peak)

    @property
    def of_ceiling(self) -> float | None:
        """Bandwidth over the measured read ceiling: of the kernels on a device, of the call on the CPU."""
        return _share(self.bandwidth if self.device == "cpu" else self.device_bandwidth, self.ceiling)

    @property
    def title(self) -> str:
        """One line that says what was timed."""
        what = self.kernel or self.function
        shape = " x ".join(f"{extent:,}" for extent in self.shape) or "1"
        of = f"{self.op} of {shape} {self.dtype}" if self.op else f"{shape} {self.dtype}"
        where = f" on {self.device}" if self.device else ""
        block = f", blocks of {self.block_size:,}" if self.block_size and self.device != "cpu" else ""
        return f"{what}: {of}{where}{block}, {self.cache} cache"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        headings = ["", "median", "lower quartile", "upper quartile", "min", "max", "noise", "samples", "GB/s"]
        rows = []
        for words, spread in (("host to result", self.host), ("kernels on the device", self.on_device)):
            if spread is not None:
                times = (spread.median, *spread.quartiles, spread.minimum, spread.maximum)
                rate = show_bandwidth(self.bytes / spread.median)
                rows.append([words, *map(show_time, times), f"{spread.noise:.1%}", f"{len(spread.samples)}", rate])
        return headings, rows

    def _facts(self) -> list[str]:
        facts = [f"moves {show_bytes(self.bytes)}; the first call took {show_time(self.first_call)}"]
        rate = self.bandwidth if self.device == "cpu" else self.device_bandwidth
        if rate is not None:
            if self.peak is not None:
                facts.append(f"{rate / self.peak:.1%} of the theoretical {show_bandwidth(self.peak)} GB/s")
            if self.ceiling is not None:
                facts.append(f"{rate / self.ceiling:.1%} of the {show_bandwidth(self.ceiling)} GB/s read here at most")
        elif self.why_no_device:
            facts.append(f"no device time: {self.why_no_device}")
        return facts

    def _stage_table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[name, show_time(self.stages[name]), STAGES[name]] for name in STAGES if name in self.stages]
        return ["stage", "time", "what it is"], rows

    def _stage_lines(self) -> str:
        _, rows = self._stage_table()
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        return "\n".join(f"{name:<{widths[0]}}  {spent:>{widths[1]}}  {words}" for name, spent, words in rows)

    def __str__(self) -> str:
        parts = [self.title, lay_out(*self._table(), left=1), "\n".join(self._facts())]
        if self.stages:
            parts.append(f"stages of a call from host memory\n{self._stage_lines()}")
        if self.counters:
            parts.append(lay_out(*counter_table(self.counters), left=1))
        if self.warnings:
            parts.append("\n".join(f"warning: {each}" for each in self.warnings))
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """The table and what is said of it, as Markdown.

        Returns
        -------
        str
        """
        parts = [f"**{self.title}**", markdown(*self._table()), "; ".join(self._facts()) + "."]
        if self.stages:
            parts.append(markdown(*self._stage_table()))
        parts += [f"*Warning: {each}.*" for each in self.warnings]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        from .._explain.page import element, table

        tables = [table(*self._table(), left=1)]
        if self.stages:
            tables.append(table(*self._stage_table(), left=3))
        if self.counters:
            tables.append(table(*counter_table(self.counters), left=1))
        return element(self.title, tables, self._facts(), self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
        """
        bare: dict[str, Any] = {name: getattr(self, name) for name in _BARE}
        bare["shape"] = list(self.shape)
        bare["axis"] = list(self.axis) if isinstance(self.axis, tuple) else self.axis
        rates = {name: getattr(self, name) for name in ("bandwidth", "device_bandwidth", "of_peak", "of_ceiling")}
        return {
            **bare,
            **rates,
            "host": self.host.to_dict(),
            "on_device": None if self.on_device is None else self.on_device.to_dict(),
            "why_no_device": self.why_no_device,
            "stages": dict(self.stages),
            "warnings": list(self.warnings),
            "counters": [dict(each) for each in self.counters],
            "environment": self.environment,
        }

    def _rows(self) -> list[list[Any]]:
        setting = flat_environment(self.environment)
        bare = [name for name in _BARE if name not in ("peak", "ceiling", "first_call")]
        rows: list[list[Any]] = [["time", "number", "seconds", *bare, *setting]]
        for words, spread in (("host", self.host), ("on_device", self.on_device)):
            for i, seconds in enumerate(() if spread is None else spread.samples):
                rows.append([words, i, seconds, *(getattr(self, name) for name in bare), *setting.values()])
        return rows

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what the call is made of: a bar for each stage, beside the whole.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        from .charts import plot_stages

        return plot_stages(self, ax)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def flat_environment(setting: dict[str, Any]) -> dict[str, Any]:
    """The environment as columns of a table."""
    flat: dict[str, Any] = {}
    for name, value in setting.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    return flat


def finished(things: Any, name: str = "gpureduce") -> None:
    """Give classes the package's own name, under which users find them."""
    for thing in things:
        thing.__module__ = name


# ---------------------------------------------------------------- measuring


def benchmark(
    func_or_kernel: str | Callable[..., Any],
    arr: ArrayLike,
    *,
    op: str = "sum",
    kernel: str | None = None,
    axis: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
    cache: str = "hot",
    seconds: float = SECONDS,
    precision: float = PRECISION,
    ceiling: bool = True,
    profile: bool = False,
    progress: bool | None = None,
) -> Timing:
    """Time a reduction: the whole call, its kernels alone, and the stages between.

    Parameters
    ----------
    func_or_kernel : str or callable
        Name or alias of a kernel; or one of this package's functions (``gr.sum``), which are timed in the same way;
        or any callable that takes the array and returns when its work is done, of which there is wall time only.
    arr : array_like
        Host array of any layout; or an array in device memory with ``__cuda_array_interface__``, contiguous, which is
        reduced where it lies to a result on the host.
    op : str, optional
        Operator, if a kernel is named.
    kernel, axis, dtype, device, block_size, grid_size, stream : optional
        As the reductions take them.
    cache : {"hot", "cold", "rotated"}, optional
        What the caches hold when a sample starts: ``"hot"``, what the last run left there; ``"cold"``, none of the
        array (four times the size of the L2 cache, for wall times twice that of the CPU's last one, is written
        between samples); ``"rotated"``, other copies of the array, which together do not fit.
    seconds : float, optional
        Time for samples, of the call and of the kernels each.
    precision : float, optional
        Sampling ends earlier, but not before ten samples, when the median is known to this share (95 % confidence).
    ceiling : bool, optional
        Whether to measure, once in the process, how fast memory can be read here.
    profile : bool, optional
        Whether to run the kernel under Nsight Compute too.
    progress : bool, optional
        Whether to show a bar, by tqdm; by default on a terminal and in a notebook.

    Returns
    -------
    Timing

    Raises
    ------
    ValueError
        An empty array, an unknown kernel, operator, device or cache, a block or grid size that the kernel does not
        take.
    TypeError
        What is no kernel and cannot be called; whatever the reduction itself raises.
    DeviceUnavailableError
        A CUDA device was asked for and there is none; or a profile was, and Nsight Compute is missing or not allowed.

    Notes
    -----
    Without a GPU the CPU backend is timed, whatever the kernel's name, and a warning says so.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> timing = gr.benchmark(gr.sum, np.ones(100_000), device="cpu", seconds=0.01, ceiling=False)
    >>> timing.device, timing.bytes, timing.host.median > 0
    ('cpu', 800008, True)
    """
    if seconds <= 0 or precision < 0:
        raise ValueError("seconds must be above 0, and precision not below")
    it = operand(arr)
    name, op, kernel, function = _target(func_or_kernel, op, kernel)
    options = {
        "kernel": kernel,
        "block_size": block_size,
        "grid_size": grid_size,
        "stream": stream,
        "dtype": None if dtype is None else np.dtype(dtype),
    }
    with progress_bar(name, progress) as bar, Bed(it, axis, device, cache, function is None) as bed:
        if function is not None:
            return _time_callable(name, function, it, bed, seconds, precision, bar)
        return _time_kernel(name, op, options, it, bed, (seconds, precision), ceiling, profile, bar)


def _target(
    func_or_kernel: Any, op: str, kernel: str | None
) -> tuple[str, str, str | None, Callable[[Any], Any] | None]:
    """What to call it, its operator and kernel, and the callable if it is none of ours."""
    if isinstance(func_or_kernel, str):
        if kernel is not None:
            raise ValueError(f"the kernel is named twice: {func_or_kernel!r} and {kernel!r}")
        return op, check_operator(op), _core.find_kernel(func_or_kernel), None
    for name in _functions.__all__:
        if func_or_kernel is getattr(_functions, name):
            own = op if name == "reduce" else str(func_or_kernel.__name__)  # amax is max
            return own, own, _core.find_kernel(kernel or "auto"), None
    if not callable(func_or_kernel):
        raise TypeError(f"a kernel's name or a callable is timed, not {type(func_or_kernel).__name__}")
    if kernel is not None:
        raise ValueError("a kernel is named for gpureduce's own functions, not for another callable")
    partial = getattr(func_or_kernel, "func", func_or_kernel)
    module = getattr(partial, "__module__", None) or ""
    words = getattr(partial, "__qualname__", None) or getattr(partial, "__name__", repr(partial))
    return f"{module}.{words}".lstrip("."), "", None, func_or_kernel


def _time_callable(
    name: str, function: Callable[[Any], Any], it: Operand, bed: Bed, seconds: float, precision: float, bar: Any
) -> Timing:
    start = time.perf_counter()
    result = function(it.array)
    first = time.perf_counter() - start
    turn = bed.host_turn(function)
    take_turns([turn], seconds, precision, bar)
    spread = turn.spread
    warnings = [*bed.cache_troubles(), *spread.troubles("the call's time", max(precision, NOISY))]
    return Timing(
        function=name, op="", dtype=it.dtype.name, shape=it.shape, axis=None, device="", kernel="", variant="",
        block_size=0, grid_size=0, cache=bed.cache, bytes=it.nbytes + int(getattr(result, "nbytes", 0)), host=spread,
        on_device=None, why_no_device="there is none of a callable that is not gpureduce's", first_call=first,
        stages={}, peak=None, ceiling=None, warnings=tuple(warnings), environment=environment(),
    )  # fmt: skip


def _time_kernel(
    name: str,
    op: str,
    options: dict[str, Any],
    it: Operand,
    bed: Bed,
    until: tuple[float, float],
    with_ceiling: bool,
    profile: bool,
    bar: progress_bar,
) -> Timing:
    if profile:
        check_possible(bed.why_no_device)
    call = bed.reduction(op, options)
    start = time.perf_counter()
    result = call(it.array)
    first = time.perf_counter() - start
    run = last_run()
    assert run is not None
    stages = {"compile": run.stages["compile"]} if "compile" in run.stages else {}
    staged: list[float] = []

    def noting_stages(array: Any) -> None:
        call(array)
        row = _core.last_run()
        if row is not None and "stage" in row["stages"]:
            staged.append(row["stages"]["stage"])

    device_turn, why = None, bed.why_no_device
    if run.device != "cpu" and not why:
        device_turn, why = _device_turn(bed, op, options)
    elif not why:
        why = f"the call ran on the {run.device.upper()}"
    host_turn = bed.host_turn(call)
    turns = [turn for turn in (device_turn, host_turn) if turn is not None]
    for i, turn in enumerate(turns):  # one after the other: a call streams the array through the cache
        take_turns([turn], *until, bar.part(i / len(turns), (i + 1) / len(turns)))
    noting_stages(it.array)
    if staged:
        stages["stage"] = _median_stage(noting_stages, it.array, staged)
    on_gpu = run.device != "cpu"
    if on_gpu and it.pointer is None and bed.info is not None:
        stages |= _upload_stage(it, bed.info.ordinal)
    on_device = device_turn.spread if device_turn is not None else None
    if on_device is not None:
        stages["kernel"] = on_device.median
        rest = _median_of(lambda: bed.reduce_there(op, options)) - on_device.median
        if rest > 0:  # else it is lost in the noise of the kernels
            stages["return"] = rest
    rate, trouble = ceiling_or_why(bed.info if on_gpu else None, limits().cpu_threads) if with_ceiling else (None, "")
    warnings = [*bed.cache_troubles(), *moved(bed.readings), *filter(None, [trouble])]
    tolerated = max(until[1], NOISY)
    warnings += host_turn.spread.troubles("the call's time", tolerated)
    warnings += on_device.troubles("the kernels' time", tolerated) if on_device is not None else []
    if not on_gpu and options["kernel"] not in _core.KERNELS_ON_CPU:
        warnings.append(f"the CPU backend answered for kernel '{options['kernel']}': its time is not the kernel's")
    counters: tuple[dict[str, Any], ...] = ()
    if profile and bed.reduced is not None:
        counters = profile_kernel(op, options, it, bed.reduced)
    return Timing(
        function=name, op=op, dtype=it.dtype.name, shape=it.shape, axis=bed.axis, device=run.device, kernel=run.kernel,
        variant=run.variant, block_size=run.block_size, grid_size=run.grid_size, cache=bed.cache,
        bytes=it.nbytes + np.asarray(result).nbytes, host=host_turn.spread, on_device=on_device,
        why_no_device="" if on_device is not None else why, first_call=first,
        stages={stage: stages[stage] for stage in STAGES if stage in stages}, peak=bed.peak if on_gpu else None,
        ceiling=rate, warnings=tuple(warnings), counters=counters,
        environment=environment(bed.info.ordinal if bed.info is not None else 0),
    )  # fmt: skip


def _device_turn(bed: Bed, op: str, options: dict[str, Any]) -> Any:
    """The turn, or nothing and the reason: an operator that the package makes of others has no kernel of its own."""
    if op not in _core.OPERATORS:
        return None, f"{op} is made of other reductions"
    try:
        return bed.device_turn(op, options), bed.why_no_device
    except REFUSED as error:
        return None, str(error)


def _median_of(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(RETURN_REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        if sum(times) > RETURN_SECONDS:
            break
    return float(np.median(times))


def _median_stage(call: Callable[[Any], None], array: Any, staged: list[float]) -> float:
    for _ in range(UPLOAD_REPEATS):
        call(array)
    return float(np.median(staged))


def _upload_stage(it: Operand, device: int) -> dict[str, float]:
    """How long the whole array takes from pinned memory to the device, in pieces; nothing if there is no room."""
    piece = min(it.nbytes, UPLOAD_PIECE_BYTES)
    try:
        pointer = _core.alloc_device(device, piece)
    except (MemoryError, RuntimeError):
        return {}
    try:
        pinned = empty_pinned(piece, np.uint8)
        pinned[...] = np.resize(np.random.default_rng(0).integers(0, 256, min(piece, 1 << 20), np.uint8), piece)
        times = []
        for _ in range(UPLOAD_REPEATS):
            spent = 0.0
            for first in range(0, it.nbytes, piece):
                part = pinned[: it.nbytes - first]
                start = time.perf_counter()
                _core.upload(device, pointer, part)
                spent += time.perf_counter() - start
            times.append(spent)
        return {"upload": float(np.median(times))}
    except MemoryError:
        return {}
    finally:
        _core.free_device(device, pointer)


finished((Timing,))
