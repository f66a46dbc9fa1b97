"""Time kernels and libraries on one array, in turns: :func:`gpureduce.compare`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._display.kernel_list import kernels as catalogue
from .._dtypes import native_dtype
from .._kernel_names import KernelName
from .._records import last_run, limits
from .._yours.kernel import Kernel
from .._yours.own_operator import Operator
from .baselines import BASELINES, NumPy, available, numpy_function
from .benchmark_array import BenchmarkArray, as_benchmark_array, on_host
from .clocks import moved
from .comparison import Comparison
from .contenders import BreakEven, Contender, find_break_even
from .correctness import Verdict, check, check_own, loosened, own_reference, reference
from .environment import environment
from .profile import check_possible, profile_kernel
from .roofline import SECONDS as CEILING_SECONDS
from .roofline import ceiling_or_why
from .sampling import NOISY, Phases, Turn, progress_bar, ratio_interval, take_turns
from .session import REFUSED, BenchmarkSession, check_operator, expect_kernel, ignoring_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["compare"]


DEFAULT_BASELINES = tuple(BASELINES)
SECONDS, PRECISION = 0.5, 0.02
BREAK_EVEN_FIRST, BREAK_EVEN_FACTOR = 256, 8
"""Elements of the smallest array on which the break-even is looked for, and how much longer each
next one is."""
BREAK_EVEN_SECONDS = 0.05
TYPICAL_SECONDS = 0.05
"""About what it takes to check a contender, and to sample it: most are known well before their time
is used up."""
_MOST_NAMES = 6
IN_PLACE = "fast"
"""What the CPU backend computes by where a kernel is named that runs on GPUs only."""


@dataclass(slots=True)
class _Entry:
    """A contender while it is measured."""

    row: Contender
    host: Turn | None = None
    device: Turn | None = None

    def finish(self) -> Contender:
        return replace(
            self.row,
            host=self.host.spread if self.host is not None else None,
            on_device=self.device.spread if self.device is not None else None,
        )


def compare(
    arr: ArrayLike,
    kernels: Iterable[KernelName | Kernel] | KernelName | Kernel | None = None,
    op: str | Operator = "sum",
    *,
    axis: int | tuple[int, ...] | None = None,
    block_size: int | Iterable[int | None] | None = None,
    baselines: Iterable[str] = DEFAULT_BASELINES,
    device: str | None = None,
    sizes: Iterable[int] | None = None,
    dtypes: Iterable[DTypeLike] | None = None,
    cache: str = "hot",
    seconds: float = SECONDS,
    precision: float = PRECISION,
    break_even: bool = True,
    ceiling: bool = True,
    profile: bool = False,
    progress: bool | None = None,
) -> Comparison:
    """Time kernels and libraries on the same array, in turns, after checking their results.

    Parameters
    ----------
    arr : array_like
        Host array of any layout, or a contiguous one in device memory with
        ``__cuda_array_interface__``.
    kernels : str, Kernel, or iterable of them, optional
        Names or aliases, and kernels of your own; by default all of the catalogue, or ``"auto"``
        alone on the CPU, which has no such kernels.
    op : str or Operator, optional
        The operator. With an :class:`Operator` of your own the array is in host memory, results are
        compared with the CPU backend's, and there are no baselines and profiles.
    axis : optional
        As in the reductions. Device times need the last axes.
    block_size : int or iterable of int, optional
        Threads per block; several values are each measured with each kernel. Each kernel has a
        default.
    baselines : iterable of {"numpy", "cub", "cupy", "torch"}, optional
        Libraries to compare with; one that is not installed is listed with the reason.
    device : str, optional
        As in the reductions.
    sizes : iterable of int, optional
        Numbers of elements; for each number, the comparison takes the first elements of the
        flattened array.
    dtypes : iterable of dtype, optional
        Dtypes to convert the array to, by its method ``astype``; each is compared.
    cache : {"hot", "cold", "rotated"}, optional
        As in :func:`benchmark`. Libraries are timed hot or cold.
    seconds, precision : float, optional
        As in :func:`benchmark`, for each contender and kind of time.
    break_even : bool, optional
        Whether to find the size at which the fastest kernel and NumPy take the same time, from host
        memory to a result. Not with several dtypes.
    ceiling, profile, progress : bool, optional
        As in :func:`benchmark`.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An unknown kernel, operator, baseline, device or cache; a size that the array does not have.
    TypeError
        A dtype that is not supported, or to which the array cannot be converted.
    DeviceUnavailableError
        A CUDA device was requested and there is none; or a profile was requested, and Nsight
        Compute is missing or not allowed to read the counters.

    Notes
    -----
    Where nothing is rounded, a result is right if it equals NumPy's. A sum, mean or product of n
    floats may be off by one ulp plus four times sqrt(n) units of roundoff of the accumulator,
    relative to the sum of magnitudes. Additions in any order stay within this bound, unless all
    errors have the same sign. Libraries may add 16-bit floats in their own type.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> found = gr.compare(
    ...     np.ones(10_000), device="cpu", baselines=["numpy"], seconds=0.01,
    ...     break_even=False, ceiling=False,
    ... )
    >>> [row.name for row in found], found["auto"].right
    (['auto', 'numpy'], True)

    Compare two runs (``found.save("before")`` stores a run for later):

    >>> again = gr.compare(
    ...     np.ones(10_000), device="cpu", baselines=["numpy"], seconds=0.01,
    ...     break_even=False, ceiling=False,
    ... )
    >>> [change.label for change in again.against(found)]
    ['auto (CPU backend)', 'numpy']
    """
    if seconds <= 0 or precision < 0:
        raise ValueError("seconds must be above 0, and precision not below")
    if isinstance(op, tuple):
        raise ValueError("compare takes one operator; benchmark times several together")
    name = op.name if isinstance(op, Operator) else check_operator(op)
    if isinstance(op, Operator):
        if profile:
            raise ValueError("profile is for the package's operators, and op is your own")
        baselines, break_even = _without_baselines(baselines), False
    elif not hasattr(np, op):
        raise ValueError(f"NumPy has no {op} to check results with")
    makers = list(_makers(arr, dtypes))
    if not makers:
        raise ValueError("dtypes must name one dtype at least")
    whole, others = makers[0](), makers[1:]
    if isinstance(op, Operator) and whole.pointer is not None:
        raise ValueError("operators of your own are compared on arrays in host memory")
    break_even = break_even and axis is None and not others
    blocks = (
        [block_size]
        if block_size is None or isinstance(block_size, (int, np.integer))
        else list(block_size)
    )
    wanted = list(dict.fromkeys(baselines))
    present, missing = available(wanted)
    lengths = _lengths(whole, sizes, axis)
    count = (1 + len(others)) * len(lengths)
    with progress_bar(f"compare {name}", progress) as bar:
        where = BenchmarkSession(whole, axis, device, cache)
        listed, own = _listed(kernels)
        names, only_on_gpus = _kernel_names(listed, own, where)
        blocks = blocks if where.place != "cpu" else [None]
        counted = len(names) * len(blocks) + len(present)
        phases = Phases(
            bar,
            {
                "start": (count, TYPICAL_SECONDS * counted),
                "device": (count * (not where.why_no_device), TYPICAL_SECONDS * counted),
                "host": (count, TYPICAL_SECONDS * counted),
                "break-even": (int(break_even), BREAK_EVEN_SECONDS),
                "ceiling": (int(ceiling), CEILING_SECONDS),
            },
        )
        rows: list[Contender] = []
        warnings: list[str] = []
        for part in _parts(whole, others, lengths):
            with BenchmarkSession(part, axis, device, cache) as session:
                if profile:
                    check_possible(session.why_no_device)
                with phases.phase("start"):
                    entries = _enter(
                        op, part, session, names, own, blocks, wanted, present, missing, profile
                    )
                entries += [
                    _Entry(
                        replace(_row(part, name, True), bytes=0, absent=_why_not(name, names, own))
                    )
                    for name in only_on_gpus
                ]
                for kind in ("device", "host"):
                    turns = [
                        turn for entry in entries if (turn := getattr(entry, kind)) is not None
                    ]
                    if turns:
                        with phases.phase(kind) as moving:
                            take_turns(turns, seconds, precision, moving)
                rows += [entry.finish() for entry in entries]
                where_it_was = [part.dtype.name] * bool(others)
                where_it_was += [f"{part.elements:,} elements"] * (len(lengths) > 1)
                warnings += _warnings(session, entries, precision, ", ".join(where_it_was))
                info = session.info
        even = None
        if break_even:
            assert isinstance(op, str)
            with phases.phase("break-even") as moving:
                known = rows if cache == "hot" else []
                even = _look_for_break_even(rows, known, whole, op, own, device, present, moving)
        on_gpu = any(row.ran_on.startswith("cuda") for row in rows)
        rate, trouble = (None, "")
        if ceiling:
            with phases.phase("ceiling"):
                rate, trouble = ceiling_or_why(info if on_gpu else None, limits().cpu_threads)
            spreads = [(row.bytes, row.on_device if on_gpu else row.host) for row in rows]
            reached = [bytes_ / each.quartiles[0] for bytes_, each in spreads if each is not None]
            rate = None if rate is None else max(rate, *reached)
    setting = environment(info.ordinal if info is not None else 0)
    return Comparison(
        op=name,
        dtype=", ".join(dict.fromkeys(row.dtype for row in rows)),
        shape=whole.shape,
        axis=axis,
        cache=cache,
        rows=tuple(rows),
        break_even=even,
        peak=session.peak if on_gpu else None,
        ceiling=rate,
        device_name=setting["device"]["name"] if on_gpu else setting["cpu"],
        warnings=tuple(dict.fromkeys([*warnings, *filter(None, [trouble])])),
        environment=setting,
    )


def _without_baselines(baselines: Iterable[str]) -> tuple[str, ...]:
    """No baselines; ``ValueError`` if others than the default ones are asked for."""
    wanted = tuple(baselines)
    if wanted and wanted != DEFAULT_BASELINES:
        raise ValueError(
            f"baselines have no operators of your own: {', '.join(wanted)} cannot be compared with"
        )
    return ()


def _makers(arr: Any, dtypes: Iterable[DTypeLike] | None) -> Iterator[Callable[[], BenchmarkArray]]:
    """What makes the array in each dtype: they need not be in memory together."""
    if dtypes is None:
        yield partial(as_benchmark_array, arr)
        return
    convert = getattr(arr, "astype", None)
    if convert is None:
        found = as_benchmark_array(arr)
        if found.pointer is not None:
            raise TypeError(f"dtypes need an array with astype, not {type(arr).__name__}")
        convert = found.array.astype
    for dtype in dict.fromkeys(map(native_dtype, dtypes)):
        yield partial(lambda each: as_benchmark_array(convert(each)), dtype)


def _parts(
    whole: BenchmarkArray,
    others: Iterable[Callable[[], BenchmarkArray]],
    lengths: Sequence[int | None],
) -> Iterator[BenchmarkArray]:
    """The arrays that are compared on, each made when its turn comes."""
    for make in (lambda: whole, *others):
        here = make()
        for n in lengths:
            yield here if n is None else replace(here, array=_first(here, n), shape=(n,))


def _row(part: BenchmarkArray, name: str, is_kernel: bool, results_bytes: int = 0) -> Contender:
    return Contender(
        name, is_kernel, part.elements, part.nbytes + results_bytes, dtype=part.dtype.name
    )


def _lengths(whole: BenchmarkArray, sizes: Iterable[int] | None, axis: Any) -> list[int | None]:
    if sizes is None:
        return [None]
    lengths = sorted({int(n) for n in sizes})
    if axis is not None:
        raise ValueError("a sweep over sizes reduces the flattened array: it takes no axis")
    if not lengths or lengths[0] < 1 or lengths[-1] > whole.elements:
        raise ValueError(f"sizes must be from 1 to the array's {whole.elements:,} elements")
    return list(lengths)


def _first(whole: BenchmarkArray, n: int) -> Any:
    """The first n elements; a device array is cut by its number of elements alone."""
    return whole.array if whole.pointer is not None else whole.array.reshape(-1)[:n]


_Own = dict[str, Kernel]
"""Kernels of the user's own by the names of their rows."""


def _listed(
    kernels: Iterable[KernelName | Kernel] | KernelName | Kernel | None,
) -> tuple[list[str] | None, _Own]:
    """Names of rows: the catalogue's, and one of its own for each of the user's kernels."""
    if kernels is None:
        return None, {}
    given = [kernels] if isinstance(kernels, (str, Kernel)) else list(kernels)
    taken: set[str] = {info.name for info in catalogue()} | set(BASELINES)
    found: list[str] = []
    own: _Own = {}
    for each in dict.fromkeys(given):
        if not isinstance(each, Kernel):
            expect_kernel(each)
            found.append(_core.find_kernel(each))
            continue
        name = each.name
        if name in taken:  # versions of one kernel differ by their files, or are counted
            name = f"{each.name} in {each.file}"
        number = 2
        while name in taken:
            name, number = f"{each.name} {number}", number + 1
        taken.add(name)
        own[name] = each
        found.append(name)
    return list(dict.fromkeys(found)), own


def _kernel_names(
    listed: list[str] | None, own: _Own, session: BenchmarkSession
) -> tuple[list[str], list[str]]:
    """Kernels that run there, and those that were named and only run on GPUs.

    On the CPU one loop stands in for all kernels of GPUs: its time would be under each of their
    names.
    """
    on_cpu = session.place == "cpu"
    if listed is None:
        return (["auto"] if on_cpu else [info.name for info in catalogue()]), []
    if not on_cpu:
        return listed, []
    here = [name for name in listed if name in _core.KERNELS_ON_CPU and name not in own]
    instead = IN_PLACE if any(name not in own for name in listed) else "auto"
    return here or [instead], [name for name in listed if name not in here]


def _why_not(name: str, timed: Sequence[str], own: _Own) -> str:
    """Why a kernel is not timed on the CPU, and what is instead."""
    is_replaced = name not in own and IN_PLACE in timed
    instead = f", and {IN_PLACE} of the CPU backend is timed in its place" * is_replaced
    return f"it runs on GPUs only{instead}; gpureduce.explain shows what it does on any machine"


def _enter(
    op: str | Operator,
    it: BenchmarkArray,
    session: BenchmarkSession,
    names: Sequence[str],
    own: _Own,
    blocks: Sequence[int | None],
    baselines: Sequence[str],
    present: dict[str, Any],
    missing: dict[str, str],
    profile: bool,
) -> list[_Entry]:
    """Check every contender's result, and warm up those whose result is right."""
    if isinstance(op, Operator):
        right = own_reference(op, on_host(it), session.axis)
        like = right[0].dtype
    else:
        right = reference(op, on_host(it), session.axis)
        like = np.asarray(numpy_function(op)(np.ones(1, it.dtype))).dtype
    results_bytes = right[0].size * like.itemsize
    entries = []
    for name in names:
        for block in blocks:
            row = replace(_row(it, name, True, results_bytes), block_size=int(block or 0))
            kernel = own.get(name, name)
            entries.append(_enter_kernel(op, it, session, row, kernel, block, right, like, profile))
    for name in baselines:
        assert isinstance(op, str)
        row = _row(it, name, False, results_bytes)
        if name in present:
            entries.append(_enter_baseline(op, it, session, row, present[name], right, like))
        else:
            entries.append(_Entry(replace(row, absent=missing[name])))
    return entries


def _enter_kernel(
    op: str | Operator,
    it: BenchmarkArray,
    session: BenchmarkSession,
    row: Contender,
    kernel: str | Kernel,
    block: int | None,
    right: Any,
    like: np.dtype[Any],
    profile: bool,
) -> _Entry:
    options = {
        "kernel": kernel,
        "block_size": block,
        "grid_size": None,
        "stream": None,
        "dtype": None,
    }
    call = session.reduction(op, options)
    try:
        result = call(it.array)
    except REFUSED as error:
        return _Entry(replace(row, absent=str(error)))
    if isinstance(op, Operator):  # of which last_run() knows nothing
        verdict = check_own(result, right)
        place = session.place
        if place == "auto":
            place = "cpu" if session.info is None else "cuda:0"
        row = replace(row, block_size=int(block or 0), ran_on=place)
    else:
        verdict = check(result, right, like)
        run = last_run()
        assert run is not None
        row = replace(row, block_size=run.block_size, grid_size=run.grid_size, ran_on=run.device)
    entry = _Entry(replace(row, right=verdict.right, ulps=verdict.ulps))
    if not verdict.right:
        return entry
    if row.ran_on != "cpu":
        try:
            entry.device = session.device_turn(op, options)
        except REFUSED as error:
            entry.row = replace(entry.row, why_no_device=str(error))
    if entry.device is None and not entry.row.why_no_device:
        entry.row = replace(
            entry.row,
            why_no_device=session.why_no_device or f"the call ran on the {row.ran_on.upper()}",
        )
    entry.host = session.host_turn(call)
    if profile and entry.device is not None and session.reduced is not None:
        assert isinstance(op, str)
        entry.row = replace(entry.row, counters=profile_kernel(op, options, it, session.reduced))
    return entry


def _enter_baseline(
    op: str,
    it: BenchmarkArray,
    session: BenchmarkSession,
    row: Contender,
    baseline: Any,
    right: Any,
    like: np.dtype[Any],
) -> _Entry:
    entry = _Entry(row)
    right = loosened(right, it.dtype)
    verdicts: list[Verdict] = []
    reasons = {"host": "", "device": session.why_no_device}

    def attempt(kind: str, make: Callable[[], tuple[Any, Callable[[], Turn]]]) -> None:
        try:
            result, turn = make()
            verdict = check(result, right, like)
            verdicts.append(verdict)
            if verdict.right:
                setattr(entry, kind, turn())
        except Exception as error:  # a library without this operator or dtype raises in its own way
            reasons[kind] = " ".join(f"{error}".split()) or type(error).__name__

    def on_host() -> tuple[Any, Callable[[], Turn]]:
        if it.pointer is not None:
            raise NotImplementedError("the array is in device memory")
        call = baseline.host_call(op, it.array, session.axis)
        return call(), lambda: session.host_turn(ignoring_array(call))

    def on_device() -> tuple[Any, Callable[[], Turn]]:
        if session.cache == "rotated":
            raise NotImplementedError("libraries are timed hot or cold")
        work = baseline.device_work(op, session.view(), session.axis, session.flush_bytes)
        return work.result(), lambda: Turn(work.take, batch=5)

    attempt("host", on_host)
    if not session.why_no_device:
        attempt("device", on_device)
    if not verdicts:
        why = (
            reasons["host"]
            if reasons["host"] == reasons["device"]
            else "; ".join(filter(None, reasons.values()))
        )
        return _Entry(replace(row, absent=why))
    entry.row = replace(
        row,
        right=all(each.right for each in verdicts),
        ulps=max(each.ulps for each in verdicts),
        ran_on="cpu" if baseline.name == NumPy.name else session.place,
        why_no_host=reasons["host"],
        why_no_device=reasons["device"],
    )
    return entry


def _warnings(
    session: BenchmarkSession, entries: Sequence[_Entry], precision: float, where: str
) -> list[str]:
    """Warnings about one array; those of several contenders share a line."""
    found = [*session.cache_troubles(), *moved(session.readings)]
    noisy = {"device": "device times", "host": "times from host memory"}
    for kind, words in noisy.items():
        timed = [entry for entry in entries if getattr(entry, kind) is not None]
        doubtful = [
            f"{entry.row.label} ({', '.join(doubts)})"
            for entry in timed
            if (doubts := getattr(entry, kind).spread.doubts(max(precision, NOISY)))
        ]
        if doubtful:
            names = ", ".join(doubtful[:_MOST_NAMES]) + (
                " ..." if len(doubtful) > _MOST_NAMES else ""
            )
            found.append(f"uncertain {words}: {names}")
    return [f"{where}: {each}" for each in found] if where else found


def _look_for_break_even(
    rows: Sequence[Contender],
    known: Sequence[Contender],
    whole: BenchmarkArray,
    op: str,
    own: _Own,
    device: str | None,
    present: dict[str, Any],
    progress: Callable[[float], None],
) -> BreakEven | None:
    """Time the fastest kernel and NumPy over sizes, in turns.

    The times of known rows are taken as they are, so that a comparison does not contradict its own
    table. ``None`` if nothing can be compared with NumPy.
    """
    if whole.pointer is not None or NumPy.name not in present:
        return None
    timed = [(row.host.median, row) for row in rows if row.is_kernel and row.host is not None]
    largest = max((row.elements for row in rows), default=0)
    timed = [(spent, row) for spent, row in timed if row.elements == largest]
    if not timed or not any(row.name == NumPy.name and row.host is not None for row in rows):
        return None
    row = min(timed, key=lambda pair: pair[0])[1]
    options: dict[str, Any] = {"kernel": own.get(row.name, row.name)}
    options |= {"block_size": row.block_size or None}
    options |= {"grid_size": None, "stream": None, "dtype": None}
    sizes = [largest]
    while sizes[0] // BREAK_EVEN_FACTOR >= BREAK_EVEN_FIRST:
        sizes.insert(0, sizes[0] // BREAK_EVEN_FACTOR)
    ratios, intervals = [], []
    of_kernel, of_numpy = (
        {each.elements: each.host for each in known if (each.name, each.block_size) == which}
        for which in ((row.name, row.block_size), (NumPy.name, 0))
    )
    start = time.perf_counter()
    for i, n in enumerate(sizes):
        pair = of_numpy.get(n), of_kernel.get(n)
        if pair[0] is not None and pair[1] is not None:
            ratios.append(pair[0].median / pair[1].median)
            intervals.append(ratio_interval(pair[0], pair[1]))
            continue
        part = replace(whole, array=_first(whole, n), shape=(n,))
        with BenchmarkSession(part, None, device, "hot", with_device=False) as session:
            ours = session.host_turn(session.reduction(op, options))
            call = present[NumPy.name].host_call(op, part.array, None)
            theirs = session.host_turn(ignoring_array(call))
            take_turns([ours, theirs], BREAK_EVEN_SECONDS, PRECISION)
        took = time.perf_counter() - start
        progress(took / (i + 1) * (len(sizes) - i - 1))
        ratios.append(theirs.spread.median / ours.spread.median)
        intervals.append(ratio_interval(theirs.spread, ours.spread))
    found = find_break_even(sizes, ratios, intervals)
    measured = (tuple(sizes), tuple(ratios), tuple(intervals))
    if found is None:
        return BreakEven(row.name, row.ran_on, None, None, None, None, *measured)
    meeting, (least, most), wins = found
    elements, between = round(meeting), (round(least), round(most))
    nbytes = elements * whole.dtype.itemsize
    return BreakEven(row.name, row.ran_on, elements, nbytes, between, wins, *measured)
