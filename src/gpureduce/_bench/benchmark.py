"""Time one reduction: :func:`gpureduce.benchmark`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, _functions
from .._kernel_names import KernelName
from .._memory import empty_pinned
from .._records import DeviceInfo, last_run, limits
from .._yours.kernel import Kernel
from .._yours.own_operator import Operator
from .benchmark_array import BenchmarkArray, as_benchmark_array
from .clocks import moved
from .environment import environment
from .profile import check_possible, profile_kernel
from .roofline import SECONDS as CEILING_SECONDS
from .roofline import ceiling_or_why
from .sampling import NOISY, Phases, Spread, Turn, progress_bar, take_turns
from .session import REFUSED, BenchmarkSession, check_operator, expect_kernel
from .timing import STAGES, Timing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["benchmark"]


SECONDS, PRECISION = 1.0, 0.01
"""Defaults: time for wall samples and for device samples, and the median's uncertainty that ends
sampling."""
_DEFAULT_OP = "sum"
MISSING: Any = None
"""Stands for an array that was not given: the error names both arguments and their order."""
UPLOAD_PIECE_BYTES = 32 << 20
UPLOAD_REPEATS, RETURN_REPEATS = 3, 20
RETURN_SECONDS = 0.2
"""Time after which no more returns are measured."""


def benchmark(
    func_or_kernel: KernelName | Kernel | Callable[..., Any],
    arr: ArrayLike = MISSING,
    *,
    op: str | Operator | tuple[str | Operator, ...] = _DEFAULT_OP,
    kernel: KernelName | Kernel | None = None,
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
    """Time a reduction: the whole call, its kernels alone, and its stages.

    Parameters
    ----------
    func_or_kernel : str, Kernel or callable
        Name or alias of a kernel; or a :class:`Kernel` of your own; or one of this package's
        functions (``gr.sum``), timed in the same way; or any callable that takes the array and
        returns when its work is done, for wall time only.
    arr : array_like
        Host array of any layout; or a contiguous array in device memory with
        ``__cuda_array_interface__``, which is reduced in place to a result on the host.
    op : str, Operator or tuple, optional
        Operator, if a kernel is named; a kernel of your own computes its own. An :class:`Operator`
        of your own, or a tuple of operators as :func:`reduce` takes it, is timed over an array in
        host memory. Device times of a tuple are those of the pass over memory that its operators
        share; if some take calls of their own there, it has none.
    kernel, axis, dtype, device, block_size, grid_size, stream : optional
        As in the reductions.
    cache : {"hot", "cold", "rotated"}, optional
        What the caches contain when a sample starts. ``"hot"``: what the last run left there.
        ``"cold"``: no part of the array; between samples, four times the size of the L2 cache is
        written, for wall times twice the size of the CPU's last-level cache. ``"rotated"``: other
        copies of the array, which together are larger than the cache.
    seconds : float, optional
        Time for samples of the call, and the same for samples of the kernels.
    precision : float, optional
        Relative precision at which sampling ends early: the 95 % confidence interval of the median
        is this narrow, after at least ten samples.
    ceiling : bool, optional
        Whether to measure the read bandwidth of the memory, once per process.
    profile : bool, optional
        Whether to run the kernel under Nsight Compute, too.
    progress : bool, optional
        Whether to show a bar, by tqdm; by default on a terminal and in a notebook.

    Returns
    -------
    Timing

    Raises
    ------
    ValueError
        An empty array, an unknown kernel, operator, device or cache, a block or grid size that the
        kernel does not support.
    TypeError
        Neither a kernel nor a callable; any ``TypeError`` of the reduction.
    DeviceUnavailableError
        A CUDA device was requested and there is none; or a profile was requested, and Nsight
        Compute is missing or not allowed to read the counters.
    KernelUnavailableError
        The kernel is your own, and there is no GPU.

    Notes
    -----
    Without a GPU the CPU backend is timed, whichever kernel is named, with a warning.

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
    if arr is MISSING:
        is_work = isinstance(func_or_kernel, (str, Kernel)) or callable(func_or_kernel)
        what = "the array" if is_work else "the kernel or function"
        raise TypeError(
            f"{what} to measure is missing: write benchmark(kernel, array), as "
            "benchmark('auto', a), or benchmark(function, array)"
        )
    it = as_benchmark_array(arr)
    if not isinstance(op, str):
        given = _of_operators(func_or_kernel, op, kernel, it)
        if dtype is not None or profile:
            raise ValueError("several operators, and those of your own, take no dtype or profile")
        sizes = {"kernel": given[1], "block_size": block_size, "grid_size": grid_size}
        with (
            progress_bar(given[0], progress) as bar,
            BenchmarkSession(it, axis, device, cache) as session,
        ):
            return _time_operators(
                given[0], op, sizes | {"stream": stream}, it, session, (seconds, precision),
                ceiling, bar,
            )  # fmt: skip
    name, op, kernel, function = _target(func_or_kernel, op, kernel)
    options = {
        "kernel": kernel,
        "block_size": block_size,
        "grid_size": grid_size,
        "stream": stream,
        "dtype": None if dtype is None else np.dtype(dtype),
    }
    with (
        progress_bar(name, progress) as bar,
        BenchmarkSession(it, axis, device, cache, function is None) as session,
    ):
        if function is not None:
            return _time_callable(name, function, it, session, seconds, precision, bar)
        return _time_kernel(
            name, op, options, it, session, (seconds, precision), ceiling, profile, bar
        )


def _target(
    func_or_kernel: Any, op: str, kernel: KernelName | Kernel | None
) -> tuple[str, str, KernelName | Kernel | None, Callable[[Any], Any] | None]:
    """Its name, operator and kernel, and the callable if it is not a function of this package."""
    if isinstance(func_or_kernel, (str, Kernel)):
        if kernel is not None:
            raise ValueError(f"the kernel is named twice: {func_or_kernel!r} and {kernel!r}")
        if isinstance(func_or_kernel, Kernel):
            own = func_or_kernel
            if op not in (_DEFAULT_OP, own.op):
                raise ValueError(f"kernel '{own.name}' computes {own.op}, not {op}")
            return own.op, own.op, own, None
        expect_kernel(func_or_kernel)
        return op, check_operator(op), _core.find_kernel(func_or_kernel), None
    for name in _functions.__all__:
        if func_or_kernel is getattr(_functions, name):
            name = op if name == "reduce" else str(func_or_kernel.__name__)  # amax is max
            found = kernel if isinstance(kernel, Kernel) else _core.find_kernel(kernel or "auto")
            return name, name, found, None
    if not callable(func_or_kernel):
        raise TypeError(
            f"a kernel's name or a callable is timed, not {type(func_or_kernel).__name__}"
        )
    if kernel is not None:
        raise ValueError(
            "a kernel is named for gpureduce's own functions, not for another callable"
        )
    partial = getattr(func_or_kernel, "func", func_or_kernel)
    module = getattr(partial, "__module__", None) or ""
    words = getattr(partial, "__qualname__", None) or getattr(partial, "__name__", repr(partial))
    return f"{module}.{words}".lstrip("."), "", None, func_or_kernel


def _of_operators(
    func_or_kernel: Any, op: Any, kernel: Any, it: BenchmarkArray
) -> tuple[str, KernelName]:
    """The name of operators that are no single name, and the kernel they are reduced by."""
    if not isinstance(op, Operator | tuple) or op == ():
        raise TypeError(f"op is a name, an Operator or a tuple of these, not {op!r}")
    if isinstance(op, tuple):
        for each in op:
            if not isinstance(each, Operator):
                if not isinstance(each, str):
                    raise TypeError(f"an operator is a name or an Operator, not {each!r}")
                check_operator(each)
    is_reduce = func_or_kernel is _functions.reduce
    if not is_reduce and not isinstance(func_or_kernel, str):
        raise ValueError("several operators, and those of your own, take a kernel by its name")
    if not is_reduce and kernel is not None:
        raise ValueError(f"the kernel is named twice: {func_or_kernel!r} and {kernel!r}")
    if isinstance(kernel, Kernel):
        raise ValueError("several operators, and those of your own, take a kernel by its name")
    if it.pointer is not None:
        raise ValueError("several operators, and those of your own, take an array in host memory")
    found = _core.find_kernel((kernel or "auto") if is_reduce else func_or_kernel)
    names = [each if isinstance(each, str) else each.name for each in _as_tuple(op)]
    return ", ".join(names), found


def _as_tuple(op: Any) -> tuple[Any, ...]:
    return op if isinstance(op, tuple) else (op,)


def _take_each(
    turns: tuple[Turn | None, ...], until: tuple[float, float], with_ceiling: bool, bar: Any
) -> Phases:
    """Take those turns that there are, one after the other: a call reads the array through the
    cache. What may follow is the ceiling.
    """
    there = [turn for turn in turns if turn is not None]
    parts = {"turn": (len(there), until[0]), "ceiling": (int(with_ceiling), CEILING_SECONDS)}
    phases = Phases(bar, parts)
    for turn in there:
        with phases.phase("turn") as progress:
            take_turns([turn], *until, progress)
    return phases


def _ceiling(
    phases: Phases, info: DeviceInfo | None, moved_bytes: int, fastest: Spread | None
) -> tuple[float | None, str]:
    """The rate that memory can reach, or why it was not measured: no less than what was reached."""
    with phases.phase("ceiling"):
        rate, trouble = ceiling_or_why(info, limits().cpu_threads)
    if rate is not None and fastest is not None:
        rate = max(rate, moved_bytes / fastest.median)
    return rate, trouble


def _troubles(
    session: BenchmarkSession,
    host: Spread,
    on_device: Spread | None,
    trouble: str,
    precision: float,
) -> list[str]:
    """What makes times doubtful."""
    warnings = [*session.cache_troubles(), *moved(session.readings), *filter(None, [trouble])]
    tolerated = max(precision, NOISY)
    warnings += host.troubles("the call's time", tolerated)
    warnings += on_device.troubles("the kernels' time", tolerated) if on_device is not None else []
    return warnings


def _time_operators(
    name: str,
    op: Any,
    options: dict[str, Any],
    it: BenchmarkArray,
    session: BenchmarkSession,
    until: tuple[float, float],
    with_ceiling: bool,
    bar: progress_bar,
) -> Timing:
    """Time a call of ``reduce`` by operators that are no single name."""
    call = session.reduction(op, {**options, "stream": None})
    start = time.perf_counter()
    result = call(it.array)
    first = time.perf_counter() - start
    on_gpu = session.info is not None
    device_turn, why = None, session.why_no_device
    if on_gpu and not why:
        try:
            device_turn = session.device_turn(op, options)
        except REFUSED as error:
            why = str(error)
    host_turn = session.host_turn(call)
    phases = _take_each((device_turn, host_turn), until, with_ceiling, bar)
    on_device = device_turn.spread if device_turn is not None else None
    results = [np.asarray(each) for one in _as_tuple(result) for each in _as_tuple(one)]
    moved_bytes = it.nbytes + sum(each.nbytes for each in results)
    rate, trouble = None, ""
    if with_ceiling:
        fastest = on_device if on_gpu else host_turn.spread
        rate, trouble = _ceiling(phases, session.info, moved_bytes, fastest)
    warnings = _troubles(session, host_turn.spread, on_device, trouble, until[1])
    return Timing(
        function="reduce",
        op=name,
        dtype=it.dtype.name,
        shape=it.shape,
        axis=session.axis,
        device=session.place if session.info is None else f"cuda:{session.info.ordinal}",
        kernel=options["kernel"],
        variant="",
        block_size=options["block_size"] or 0,
        grid_size=options["grid_size"] or 0,
        cache=session.cache,
        bytes=moved_bytes,
        host=host_turn.spread,
        on_device=on_device,
        why_no_device="" if on_device is not None else why,
        first_call=first,
        stages={} if on_device is None else {"kernel": on_device.median},
        peak=session.peak if on_gpu else None,
        ceiling=rate,
        warnings=tuple(warnings),
        environment=environment(session.info.ordinal if session.info is not None else 0),
    )


def _time_callable(
    name: str,
    function: Callable[[Any], Any],
    it: BenchmarkArray,
    session: BenchmarkSession,
    seconds: float,
    precision: float,
    bar: Any,
) -> Timing:
    start = time.perf_counter()
    result = function(it.array)
    first = time.perf_counter() - start
    turn = session.host_turn(function)
    with Phases(bar, {"host": (1, seconds)}).phase("host") as progress:
        take_turns([turn], seconds, precision, progress)
    spread = turn.spread
    warnings = [
        *session.cache_troubles(),
        *spread.troubles("the call's time", max(precision, NOISY)),
    ]
    return Timing(
        function=name,
        op="",
        dtype=it.dtype.name,
        shape=it.shape,
        axis=None,
        device="",
        kernel="",
        variant="",
        block_size=0,
        grid_size=0,
        cache=session.cache,
        bytes=it.nbytes + int(getattr(result, "nbytes", 0)),
        host=spread,
        on_device=None,
        why_no_device="there is none of a callable that is not gpureduce's",
        first_call=first,
        stages={},
        peak=None,
        ceiling=None,
        warnings=tuple(warnings),
        environment=environment(),
    )


def _time_kernel(
    name: str,
    op: str,
    options: dict[str, Any],
    it: BenchmarkArray,
    session: BenchmarkSession,
    until: tuple[float, float],
    with_ceiling: bool,
    profile: bool,
    bar: progress_bar,
) -> Timing:
    if profile:
        check_possible(session.why_no_device)
    call = session.reduction(op, options)
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

    device_turn, why = None, session.why_no_device
    if run.device != "cpu" and not why:
        device_turn, why = _device_turn(session, op, options)
    elif not why:
        why = f"the call ran on the {run.device.upper()}"
    host_turn = session.host_turn(call)
    phases = _take_each((device_turn, host_turn), until, with_ceiling, bar)
    noting_stages(it.array)
    if staged:
        stages["stage"] = _median_stage(noting_stages, it.array, staged)
    on_gpu = run.device != "cpu"
    if on_gpu and it.pointer is None and session.info is not None:
        stages |= _upload_stage(it, session.info.ordinal)
    on_device = device_turn.spread if device_turn is not None else None
    if on_device is not None:
        stages["kernel"] = on_device.median
        rest = _median_of(lambda: session.reduce_there(op, options)) - on_device.median
        if rest > 0:  # otherwise it is below the noise of the kernels
            stages["return"] = rest
    moved_bytes = it.nbytes + np.asarray(result).nbytes
    named = options["kernel"]
    rate, trouble = None, ""
    if with_ceiling:
        fastest = on_device if on_gpu else host_turn.spread
        rate, trouble = _ceiling(phases, session.info if on_gpu else None, moved_bytes, fastest)
    warnings = _troubles(session, host_turn.spread, on_device, trouble, until[1])
    if not on_gpu and named not in _core.KERNELS_ON_CPU:
        warnings.append(
            f"kernel '{named}' needs a GPU, so the CPU backend computes the result: "
            "it is right, but its time is not that kernel's"
        )
    counters: tuple[dict[str, Any], ...] = ()
    if profile and session.reduced is not None:
        counters = profile_kernel(op, options, it, session.reduced)
    return Timing(
        function=name,
        op=op,
        dtype=it.dtype.name,
        shape=it.shape,
        axis=session.axis,
        device=run.device,
        kernel=_core.find_kernel(named) if isinstance(named, str) else run.kernel,
        variant=run.variant,
        block_size=run.block_size,
        grid_size=run.grid_size,
        cache=session.cache,
        bytes=moved_bytes,
        host=host_turn.spread,
        on_device=on_device,
        why_no_device="" if on_device is not None else why,
        first_call=first,
        stages={stage: stages[stage] for stage in STAGES if stage in stages},
        peak=session.peak if on_gpu else None,
        ceiling=rate,
        warnings=tuple(warnings),
        counters=counters,
        environment=environment(session.info.ordinal if session.info is not None else 0),
    )


def _device_turn(session: BenchmarkSession, op: str, options: dict[str, Any]) -> Any:
    """The turn, or ``None`` and the reason: some operators have no kernel of their own."""
    if op not in _core.OPERATORS:
        return None, f"{op} is made of other reductions"
    try:
        return session.device_turn(op, options), session.why_no_device
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


def _upload_stage(it: BenchmarkArray, device: int) -> dict[str, float]:
    """Time of the array's upload from pinned memory, in pieces.

    Empty if there is no room on the device.
    """
    piece = min(it.nbytes, UPLOAD_PIECE_BYTES)
    try:
        pointer = _core.alloc_device(device, piece)
    except (MemoryError, RuntimeError):
        return {}
    try:
        pinned = empty_pinned(piece, np.uint8)
        pinned[...] = np.resize(
            np.random.default_rng(0).integers(0, 256, min(piece, 1 << 20), np.uint8), piece
        )
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
