"""Device arrays of random layouts over the emulator, beside NumPy.

An array is a view of memory in any order of axes, with gaps, reversals and repeats, perhaps with a
mask that is another such view, and its results go to memory with gaps too. Memory ends where the
view does, so that a read past it is found.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from reference import ALL_DTYPES, WITHOUT_IDENTITY, assert_reduction, is_float

import gpureduce as gr
from emu.cases import SCHEDULES, exact_values, set_option
from gpureduce import _core

ORDERLESS = (
    "sum",
    "prod",
    "min",
    "max",
    "any",
    "all",
    "mean",
    "count_nonzero",
    "bitwise_xor",
    "minmax",
    "ptp",
    "std",
)
POSITIONS = ("argmin", "argmax")
GIVEN_MEAN = "given mean"
"""Not an operator's name: a variance about given means, which lie in memory of their own."""
LARGEST = 100  # of elements and means of such
LARGE = 1.7e308  # whose square, and sum of two, are infinite


@dataclass
class Strided:
    """A view of memory of its own: ``memory`` is contiguous, ``view`` lies in it."""

    memory: np.ndarray
    view: np.ndarray

    @property
    def offset(self) -> int:
        """Bytes from the memory's start to the view's first element."""
        return int(
            self.view.__array_interface__["data"][0] - self.memory.__array_interface__["data"][0]
        )


def draw_shape(rng: np.random.Generator) -> tuple[int, ...]:
    """One large axis, if any, anywhere among small ones."""
    shape = [int(rng.choice([1, 2, 3, 5, 8, 17])) for _ in range(rng.integers(1, 5))]
    room = 6000 // int(np.prod(shape))
    if room > 1:
        shape[rng.integers(len(shape))] *= int(rng.integers(1, room))
    return tuple(shape)


def lay_out(rng: np.random.Generator, shape: tuple[int, ...], plain: bool) -> tuple[list[int], int]:
    """Strides in elements, some backwards, some 0, from 0 on; and how many elements they span."""
    strides, step = [0] * len(shape), 1
    order = list(range(len(shape)))[::-1]
    if not plain and rng.random() < 0.6:
        rng.shuffle(order)
    for axis in order:
        if not plain and rng.random() < 0.08:
            continue  # repeats
        if not plain and rng.random() < 0.2:
            step += int(rng.integers(1, 4)) * (1 if rng.random() < 0.5 else step)  # a gap
        sign = -1 if not plain and rng.random() < 0.2 else 1
        strides[axis] = sign * step
        step *= shape[axis]
    return strides, 1 + sum(abs(s) * (n - 1) for s, n in zip(strides, shape, strict=True))


def strided(
    rng: np.random.Generator, shape: tuple[int, ...], memory_of: Any, plain: bool
) -> Strided:
    """A view of fresh memory, which ``memory_of`` makes of a number of elements."""
    strides, span = lay_out(rng, shape, plain)
    head = int(rng.integers(8))
    memory = memory_of(head + span)
    first = head + sum(-s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    size = memory.itemsize
    return Strided(memory, as_strided(memory[first:], shape, [s * size for s in strides]))


def expected(op: str, rows: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """NumPy's result for the last axis, in 64 bits where NumPy would round in between."""
    wide = rows.astype(np.float64) if is_float(rows.dtype) else rows
    where = {} if mask is None else {"where": mask}
    if op in POSITIONS:
        return getattr(np, op)(wide, axis=-1)
    if op == "count_nonzero":
        return np.count_nonzero(wide if mask is None else wide * mask, axis=-1)
    if op == "bitwise_xor":
        return np.bitwise_xor.reduce(rows, axis=-1, **where)
    if op in ("min", "max", "ptp", "minmax"):
        low, high = (
            fold(wide, axis=-1, **where, **({} if mask is None else {"initial": end}))
            for fold, end in ((np.min, _end(rows, 1)), (np.max, _end(rows, 0)))
        )
        return (
            high - low if op == "ptp" else {"min": low, "max": high}.get(op, np.stack([low, high]))
        )
    return getattr(np, op)(wide, axis=-1, **where)


def _end(rows: np.ndarray, largest: int) -> Any:
    if is_float(rows.dtype):
        return np.inf if largest else -np.inf
    if rows.dtype == bool:
        return bool(largest)
    return np.iinfo(rows.dtype).max if largest else np.iinfo(rows.dtype).min


@dataclass
class Case:
    """The operands of a call: an array, whose last ``reduced`` axes are reduced, and a mask."""

    array: Strided
    mask: Strided | None
    reduced: int
    grid: int
    kernel: str = "fast"
    skip_nan: bool = False
    ddof: float = 0
    mean: Strided | None = None
    start: np.ndarray | None = None
    """An element that rows of extremes have beside their own."""


def small_integers(rng: np.random.Generator, dtype: np.dtype[Any], n: int) -> np.ndarray:
    """Numbers that squares of distances between are exact of."""
    values = rng.integers(0 if dtype.kind in "bu" else -LARGEST, LARGEST, n)
    if dtype.kind == "c":
        values = values + 1j * rng.integers(-LARGEST, LARGEST, n)
    return values.astype(np.float32).astype(dtype) if dtype.kind == "V" else values.astype(dtype)


def strew_specials(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Infinities of one sign or of both, or NaN, or all, in half of the arrays of floats; or
    numbers that are too large to be squared, and for sums of two.
    """
    if values.dtype.kind not in "fcV" or rng.random() < 0.5:
        return values
    kinds = [[np.inf], [-np.inf], [np.inf, -np.inf], [np.nan], [np.inf, -np.inf, np.nan]]
    if values.real.dtype == np.float64:
        kinds += [[LARGE, -LARGE], [LARGE, -np.inf], [LARGE, -LARGE, np.inf]]
    special = np.array(kinds[rng.integers(len(kinds))])
    for part in (values.real, values.imag) if values.dtype.kind == "c" else (values,):
        places = rng.random(values.shape) < rng.choice([0.002, 0.05, 0.3])
        part[places] = rng.choice(special, int(places.sum())).astype(part.dtype)
    return values


def draw_means(rng: np.random.Generator, kept: tuple[int, ...], dtype: np.dtype[Any]) -> Strided:
    """Means of any type and layout, some of them of several rows."""
    kinds = [name for name, kind in ALL_DTYPES.items() if kind.kind != "c" or dtype.kind == "c"]
    kind = ALL_DTYPES[str(rng.choice(kinds))]
    return strided(
        rng,
        kept,
        lambda n: strew_specials(rng, small_integers(rng, kind, n)),
        bool(rng.random() < 0.3),
    )


def elements_of(rng: np.random.Generator, op: str, dtype: np.dtype[Any]) -> Any:
    """A function that fills memory with elements for which the operator has one right result."""
    if op == GIVEN_MEAN:
        return lambda n: strew_specials(rng, small_integers(rng, dtype, n))
    return lambda n: exact_values(rng, dtype, n, "sum" if op in ORDERLESS[6:] else op)


def draw_case(rng: np.random.Generator, op: str, dtype: np.dtype[Any]) -> Case:
    shape, plain = draw_shape(rng), bool(rng.random() < 0.3)
    reduced = int(rng.integers(1, len(shape) + 1))
    array = strided(rng, shape, elements_of(rng, op, dtype), plain)
    if (
        op == "prod" and is_float(dtype) and 0 in array.view.strides
    ):  # repeated powers of two overflow in between: signs
        array.memory[...] = np.where(np.signbit(array.memory.astype(np.float32)), -1, 1)
    masked = op not in POSITIONS and rng.random() < 0.3
    mask = (
        strided(rng, shape, lambda n: rng.random(n) < 0.7, bool(rng.random() < 0.5))
        if masked
        else None
    )
    case = Case(array, mask, reduced, int(rng.choice([0, 0, 1, 3])))
    if op == GIVEN_MEAN:
        case.mean = draw_means(rng, shape[: len(shape) - reduced], dtype)
    return case


def call(
    case: Case, op: str, dtype: np.dtype[Any], block: int, rng: np.random.Generator, where: str
) -> None:
    """Reduce, and compare."""
    array, mask = case.array, case.mask
    kept = array.view.shape[: array.view.ndim - case.reduced]
    flat = array.view.reshape(*kept, -1)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows without elements left by the mask
        keep = None if mask is None else mask.view.reshape(*kept, -1)
        if case.start is not None:
            own = np.full((*kept, 1), case.start)
            flat = np.concatenate([flat, own], axis=-1)
            if keep is not None:
                keep = np.concatenate([keep, np.ones(own.shape, bool)], axis=-1)
        if case.mean is None:
            want = np.asarray(expected(op, flat, keep))
        else:
            want = np.asarray(expected_with_given_mean(flat, keep, case.mean.view))
    sample = _core_result_dtype(op, dtype)
    result = strided(rng, want.shape, lambda n: unwritten(n, sample), bool(rng.random() < 0.6))
    if 0 in result.view.strides:  # results that overlap in memory have no expected value
        result = strided(rng, want.shape, lambda n: unwritten(n, sample), True)
    where += (
        f" shape={array.view.shape} reduced={case.reduced} strides={array.view.strides} "
        f"offset={array.offset} mask={mask and mask.view.strides} result={result.view.strides} "
        f"mean={case.mean and (case.mean.view.dtype, case.mean.view.strides)} start={case.start}"
    )
    try:
        run(op, case, result, block)
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    got = result.view
    around = Strided(unwritten(result.memory.size, sample), got)
    as_strided(around.memory[result.offset // sample.itemsize :], got.shape, got.strides)[...] = got
    assert around.memory.tobytes() == result.memory.tobytes(), (
        f"{where}: written beside the results"
    )
    if op == GIVEN_MEAN:  # right to rounding: any other mean would be off by more
        rounded = want.astype(sample).astype(np.float64)
        rtol = rounding_of(sample, int(np.prod(array.view.shape)))
        good = np.allclose(got.astype(np.float64), rounded, rtol=rtol, atol=0, equal_nan=True)
    elif op in ("mean", "std"):
        check_moments(op, got, flat, keep, where)
        return
    else:
        with np.errstate(all="ignore"):  # a result beyond its type is infinite in both
            rounded = want.astype(sample).astype(want.dtype)
            # Variances of few short elements often lie between two results, but for the last bits.
            off = 2.0**-48 if op == "var" and sample.itemsize < want.dtype.itemsize else 0
            for beside in (want - off * want, want + off * want) if off else ():
                beside = beside.astype(sample).astype(want.dtype)
                rounded = np.where(got.astype(want.dtype) == beside, beside, rounded)
        good = np.array_equal(got.astype(want.dtype), rounded, equal_nan=want.dtype.kind == "f")
    assert good, f"{where}: {got} is not {want}"


def check_moments(
    op: str, got: np.ndarray, rows: np.ndarray, mask: np.ndarray | None, where: str
) -> None:
    """Compare the last axis's means or deviations with exact ones: NumPy rounds wide integers."""
    for row in np.ndindex(got.shape):
        elements = rows[row] if mask is None else rows[row][mask[row]]
        if elements.size == 0:
            assert np.isnan(got[row]), f"{where} row={row}: {got[row]} for no elements"
        else:
            assert_reduction(got[row], elements, op, elements.size, f"{where} row={row}")


def expected_with_given_mean(
    rows: np.ndarray, mask: np.ndarray | None, means: np.ndarray
) -> np.ndarray:
    """The mean squared distance along the last axis, in 64 bits."""
    wide = np.complex128 if "c" in (rows.dtype.kind, means.dtype.kind) else np.float64
    apart = rows.astype(wide) - means.astype(wide)[..., None]
    squares = apart.real**2 + apart.imag**2  # NaN where one part is, also beside an infinity
    return np.mean(squares, axis=-1, **({} if mask is None else {"where": mask}))


def epsilon_of(dtype: np.dtype[Any]) -> float:
    # bfloat16's, which NumPy does not know.
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 2.0**-7


def rounding_of(dtype: np.dtype[Any], n: int) -> float:
    """How far two sums of `n` squares in 64 bits may differ once rounded, in proportion."""
    return 2 * epsilon_of(dtype) + (n + 16) * epsilon_of(np.dtype(np.float64))


def unwritten(n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Memory for results, of bytes that no result is made of."""
    return np.full(n * dtype.itemsize, 0xA5, np.uint8).view(dtype)


def _core_result_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if op in ("any", "all"):
        return np.dtype(bool)
    if op in (*POSITIONS, "count_nonzero"):
        return np.dtype(np.int64)
    if op == GIVEN_MEAN:
        return (
            np.empty(0, dtype).real.dtype
            if is_float(dtype) or dtype.kind == "c"
            else np.dtype(np.float64)
        )
    if op in ("min", "max", "minmax", "ptp", "bitwise_xor") or is_float(dtype) or dtype.kind == "c":
        return dtype
    if op in ("mean", "std"):
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def run(op: str, case: Case, result: Strided, block: int) -> None:
    """Reduce on the device into the result's memory there, and bring that back."""
    array, mask, pointers = case.array, case.mask, []

    def to_device(memory: np.ndarray) -> int:
        pointers.append(_core.alloc_device(0, memory.nbytes))
        _core.upload(0, pointers[-1], memory)
        return int(pointers[-1])

    try:
        data, out = to_device(array.memory) + array.offset, to_device(result.memory)
        more = {}
        if mask is not None:
            more = {"mask": to_device(mask.memory) + mask.offset, "mask_strides": mask.view.strides}
        if case.mean is not None:
            mean = case.mean
            more |= {"mean": to_device(mean.memory) + mean.offset, "mean_dtype": mean.view.dtype,
                     "mean_strides": mean.view.strides}  # fmt: skip
        if case.start is not None:
            more["start"] = case.start.tobytes()
        _core.reduce_device(
            "var" if op == GIVEN_MEAN else op, data, array.view.shape, array.view.dtype,
            case.reduced, case.kernel, 0, block, case.grid, strides=array.view.strides,
            result=out + result.offset, result_strides=result.view.strides,
            skip_nan=case.skip_nan, ddof=case.ddof, **more,
        )  # fmt: skip
        _core.download(0, out, result.memory)
    finally:
        for pointer in pointers:
            _core.free_device(0, pointer)


def under_a_schedule(
    task: dict[str, Any], number: int, label: str, emulated: bool = True
) -> tuple[np.random.Generator, str]:
    """Set the schedule of case ``number``; its random numbers, and what names the case."""
    rng = np.random.default_rng([task["seed"], number, *f"{label} {task['dtype']}".encode()])
    if not emulated:
        return rng, f"{label} {task['dtype']} case {number}"
    schedule, schedule_seed = (
        SCHEDULES[(task["seed"] + number) % len(SCHEDULES)],
        int(rng.integers(1, 2**31)),
    )
    set_option("schedule", schedule)
    set_option("seed", schedule_seed)
    return rng, f"{label} {task['dtype']} case {number} schedule={schedule},seed={schedule_seed}"


def check_layouts(task: dict[str, Any]) -> None:
    """Run ``count`` random arrays under ``op`` and a schedule; ``block``, ``seed``, ``kernel``."""
    op, dtype = task["op"], ALL_DTYPES[task["dtype"]]
    for number in range(task["count"]):
        rng, where = under_a_schedule(task, number, op)
        case = draw_case(rng, op, dtype)
        case.kernel = task.get("kernel", "fast")
        if op in ("min", "max") and rng.random() < 0.5:
            case.start = elements_of(rng, op, dtype)(1)[0]
        call(case, op, dtype, int(task["block"]), rng, f"{where} {case.kernel}")


READ_AGAIN = 16 << 20
"""Bytes of rows that are the same from which on one of these rows is reduced, and copied."""


def draw_same_rows(
    rng: np.random.Generator, op: str, dtype: np.dtype[Any], copied: bool, n: int
) -> Case:
    """An array of rows of ``n`` elements, most of them the same; just enough for copies of results,
    or not.
    """
    distinct = int(rng.integers(1, 4))
    bound = READ_AGAIN // (n * dtype.itemsize)
    same = 1 + -(-bound // distinct) if copied else max(2, bound // distinct // 8)
    axes = [(same, True), (distinct, False)]
    if rng.random() < 0.5:
        axes.append((2, bool(rng.random() < 0.5)))
    axes = [axes[i] for i in rng.permutation(len(axes))] + [(n, False)]
    shape, strides, step = tuple(extent for extent, _ in axes), [0] * len(axes), 1
    for axis in rng.permutation(len(axes)):
        extent, is_same = axes[axis]
        if not is_same:
            strides[axis] = step
            step *= extent + int(rng.integers(0, 2))
    views = []
    for memory in (elements_of(rng, op, dtype)(step), rng.random(step) < 0.7):
        steps = [stride * memory.itemsize for stride in strides]
        views.append(Strided(memory, as_strided(memory, shape, steps)))
    masked = op not in POSITIONS and rng.random() < 0.3
    return Case(views[0], views[1] if masked else None, 1, 0)


def check_same_rows(task: dict[str, Any]) -> None:
    """Rows that are the same, ``count`` times, every other time too few for copies of results;
    ``op``, ``kernel``, ``block``, ``seed``, and perhaps ``n``.
    """
    op, dtype = task["op"], ALL_DTYPES[task["dtype"]]
    for number in range(task["count"]):
        copied = number % 2 == 0
        rng, where = under_a_schedule(task, number, f"same rows {op}")
        n = task.get("n") or int(np.exp(rng.uniform(np.log(16), np.log(5000))))
        case = draw_same_rows(rng, op, dtype, copied, n)
        case.kernel = task["kernel"]
        call(case, op, dtype, int(task["block"]), rng, f"{where} {case.kernel}")
        launches = _core.last_run()["launches"]
        assert (launches == 2) == copied, f"{where}: {launches} launches"
        check_results_in_host_memory(case, op, where)


def check_results_in_host_memory(case: Case, op: str, where: str) -> None:
    """Reduce what may be rows that are the same, in memory of the device and of the host."""
    array, mask = case.array, case.mask
    want = expected(op, array.view, None if mask is None else mask.view)
    options: dict[str, Any] = {"strides": array.view.strides}
    pointers = [_core.alloc_device(0, array.memory.nbytes)]
    _core.upload(0, pointers[0], array.memory)
    if mask is not None:
        pointers.append(_core.alloc_device(0, mask.memory.nbytes))
        _core.upload(0, pointers[1], mask.memory)
        options |= {
            "mask": int(pointers[1]) + mask.offset,
            "mask_strides": mask.view.strides,
        }
    try:
        there = _core.reduce_device(
            op, int(pointers[0]) + array.offset, array.view.shape, array.view.dtype, case.reduced,
            case.kernel, 0, **options,
        )  # fmt: skip
    finally:
        for pointer in pointers:
            _core.free_device(0, pointer)
    # Extremes would need a start, and NumPy's count_nonzero takes no mask.
    has_no_mask = mask is None or op in ("min", "max", "minmax", "count_nonzero")
    keep = None if has_no_mask else mask.view
    where_kept = {} if keep is None else {"where": keep}
    here = getattr(gr, op)(array.view, axis=-1, kernel=case.kernel, device="cuda", **where_kept)
    want_here = expected(op, array.view, keep)
    for what, got, right in (("device", there, want), ("host", here, want_here)):
        got = np.asarray(got)
        assert np.array_equal(got.astype(right.dtype), right), f"{where}, of the {what}: {got}"


# Arrays that a kernel without a name in the catalogue is for: shape, strides in elements, and how
# many blocks. The last axis is reduced.
MADE_FOR = {
    "fast_stream": [((5, 3000), (3100, 1), 0), ((3, 2100), (2100, 1), 3)],
    "fast_short": [
        ((5, 700), (720, 1), 0),
        ((3, 480), (480, 1), 0),
        ((4, 6, 500), (6000, 1000, 1), 0),
        ((900,), (1,), 0),
    ],
    "fast_rows": [((300, 40), (41, 1), 0), ((9, 30, 7), (700, 7, 1), 0)],
    "fast_columns": [
        ((40, 500), (1, 40), 3),
        ((3, 40, 300), (12000, 1, 40), 2),
        ((8, 1200), (1, 8), 2),
        ((1200, 5), (1, 1200), 0),
        ((12, 733), (1, 12), 1),
        ((256, 300), (1, 256), 7),  # more blocks than a block of 64 threads has rows of threads
        ((2100, 6, 5), (30, 1, 6), 0),  # groups that share a block
        ((41, 2, 8, 90), (1480, 740, 1, 8), 3),
    ],
    "fast_narrow": [
        ((3, 2900), (1, 3), 3),
        ((4, 3, 2900), (8700, 1, 3), 2),
        ((4, 3, 2800), (8400, 1, 3), 1),
        ((5, 1733), (1, 5), 1),
        ((3, 2731), (1, 3), 2),
    ],
    "fast_strided": [
        ((5, 300), (700, 2), 3),
        ((3, 700), (3000, -3), 2),
        ((300, 5), (7, 1000), 1),
        ((2, 9), (10, 1), 1),
    ],
    "fast_counted": [((16387, 3), (3, 1), 0)],  # fewer rows leave an emulated GPU idle
    "fast_few": [
        ((40_000, 3), (1, 40_000), 0),
        ((3, 9000, 2), (18_000, 1, 9000), 0),
        ((9_001, 11), (1, 9_001), 0),
        ((2, 4_002, 21), (84_042, 1, 4_002), 0),
    ],
    "fast_empty": [((70, 0), (1, 1), 0), ((70, 1), (1, 1), 0)],  # the second: positions
    "finalize_rows": [((70, 40), (40, 1), 0)],
    "exact_strided": [((40, 500), (1, 40), 3), ((5, 300), (700, 2), 3), ((300, 130), (1, 300), 2)],
    "exact_rows": [
        ((70, 5), (5, 1), 0),
        ((70, 40), (41, 1), 0),
        ((70, 3), (1, 70), 0),
        ((70, 13), (1, 70), 0),
        ((70, 90), (1, 70), 0),
        ((16387, 3), (3, 1), 0),
    ],
}
# And the kernel to name for it, where that is not fast.
NAMED = {"finalize_rows": "sequential", "exact_strided": "exact", "exact_rows": "exact"}


def check_made_for(task: dict[str, Any]) -> None:
    """Run the arrays made for ``kernel`` under every schedule, or each under one if ``spread``;
    ``block``, ``seed``.
    """
    op, dtype = task["op"], ALL_DTYPES[task["dtype"]]
    reached, made = set(), MADE_FOR[task["kernel"]]
    for number, (shape, strides, grid) in enumerate(made * len(SCHEDULES)):
        turn = sum(divmod(number, len(made))) + task["seed"] // len(SCHEDULES)
        if task.get("spread") and turn % len(SCHEDULES) != 0:
            continue
        rng, where = under_a_schedule(task, number, op)
        lowest = sum(-step * (n - 1) for n, step in zip(shape, strides, strict=True) if step < 0)
        span = 1 + sum(abs(step) * (n - 1) for n, step in zip(shape, strides, strict=True))
        offset = 0 if task["kernel"] in ("fast_counted", "fast_columns") else int(rng.integers(4))
        memory = elements_of(rng, op, dtype)(offset + span)
        view = as_strided(
            memory[offset + lowest :], shape, [step * memory.itemsize for step in strides]
        )
        if 0 in shape and op in (*WITHOUT_IDENTITY, *POSITIONS):
            continue
        if NAMED.get(task["kernel"]) == "exact" and op not in ("sum", "mean"):
            continue
        case = Case(Strided(memory, view), None, 1, grid, NAMED.get(task["kernel"], "fast"))
        if op == GIVEN_MEAN:
            case.mean = draw_means(rng, shape[:-1], dtype)
        call(case, op, dtype, int(task["block"]), rng, where)
        reached.add(_core.last_run()["variant"])
    if task.get("reaches"):
        assert task["kernel"] in reached, f"{op} {task['dtype']} block {task['block']}: {reached}"
