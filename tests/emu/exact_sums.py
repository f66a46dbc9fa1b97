"""The kernel `exact` beside Python's integers, with the same bits on emulator, GPU and CPU.

Errors that rounding hides are found too: the rounded sum is subtracted from the elements and the
rest is summed again, until the remainder is 0. Then all bits of the sum have been compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from device_buffers import device, host
from exact_reference import (
    FLOATS,
    FORMATS,
    GENERATORS,
    assert_result,
    expected,
    is_finite,
    one_sided,
)
from reference import DTYPES

import gpureduce as gr
from emu.cases import SCHEDULES, set_option
from gpureduce import _core
from gpureduce._interop.libraries import DeviceBuffer

# Around a lane's vectors, a warp's tile and a block's; enough for a bin to be emptied in between
# with one warp.
SIZES = (1, 2, 7, 31, 33, 127, 129, 511, 513, 1025, 2100, 5001)
LONG = 40_000
MANY_ROWS = 16384  # of which an emulated GPU's threads have four each, if they are short
# Additions to a bin before it is full, and of full bins before they go to limbs.
MOST_ADDS, MOST_SPILLS = 1024, 32


def sum_on_device(
    values: np.ndarray,
    op: str,
    offset: int,
    block: int,
    grid: int,
    on_device: bool,
    skip_nan: bool = False,
    dtype: np.dtype[Any] | None = None,
) -> Any:
    """Sum the last axis of a copy on the device, `offset` elements into its memory, rounded to its
    type or to `dtype`; the result stays there or not.
    """
    memory = np.concatenate([np.zeros(offset, values.dtype), values.ravel()])
    result = np.zeros(values.shape[:-1] or (1,), dtype or values.dtype)
    pointer, out = _core.alloc_device(0, memory.nbytes), _core.alloc_device(0, result.nbytes)
    try:
        _core.upload(0, pointer, memory)
        start = pointer + offset * values.itemsize
        arguments = (op, start, values.shape, values.dtype, 1, "exact", 0, block, grid, dtype)
        if not on_device:
            return _core.reduce_device(*arguments, skip_nan=skip_nan)
        _core.reduce_device(*arguments, result=out, skip_nan=skip_nan)
        _core.download(0, out, result)
        return result if values.ndim > 1 else result[0]
    finally:
        _core.free_device(0, pointer)
        _core.free_device(0, out)


def dtype_of(name: str) -> np.dtype[Any]:
    return DTYPES.get(name) or np.dtype(name)


def download(buffer: DeviceBuffer) -> np.ndarray:
    result = np.empty(buffer.shape, dtype_of(buffer.dtype))
    _core.download(0, buffer.memory.pointer, result)
    return result


def draw(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    make = GENERATORS[rng.integers(len(GENERATORS))]
    values = make(rng, name, max(n, 3))
    return np.ascontiguousarray(rng.permutation(values)[:n])


def check_all_bits(reduce: Any, values: np.ndarray, where: str) -> None:
    """Compare sums, subtract them, and go on until the remainder is 0."""
    name = next(name for name in FLOATS if DTYPES[name] == values.dtype)
    for step in range(3):
        wanted = expected(values, name)
        got = values.dtype.type(reduce(values))
        assert_result(got, wanted, f"{where}, after {step} sums were taken away")
        if wanted == 0 or not is_finite(np.asarray([wanted])).all():
            break
        values = np.append(values, -wanted)


def check_exact(task: dict[str, Any]) -> None:
    """Sum ``count`` random arrays of ``dtype``: ``block``, ``seed``; each under one schedule, one
    grid, one start. One warp's first ones, ``fills`` or one, fill its bins.
    """
    name, block = task["dtype"], task["block"]
    for number in range(task["count"]):
        rng = np.random.default_rng([task["seed"], number, *name.encode(), block])
        schedule, schedule_seed = (
            SCHEDULES[(task["seed"] + number) % len(SCHEDULES)],
            int(rng.integers(1, 2**31)),
        )
        set_option("schedule", schedule)
        set_option("seed", schedule_seed)
        fills = number < task.get("fills", 1) and block == 32
        n = LONG if fills else int(rng.choice(SIZES))
        offset, grid = int(rng.integers(8)), 1 if fills else int(rng.choice([0, 1, 2, 5, 40]))
        on_device = bool(rng.random() < 0.5)
        where = (
            f"{name} case {number} n={n} block={block} grid={grid} offset={offset} "
            f"on_device={on_device} schedule={schedule},seed={schedule_seed} "
            f"GPR_TEST_SEED={task['seed']}"
        )
        values = one_sided(rng, name, n) if fills else draw(rng, name, n)
        check_all_bits(
            lambda x: sum_on_device(x, "sum", offset, block, grid, on_device),  # noqa: B023
            values,
            where,
        )
        mean = sum_on_device(values, "mean", offset, block, grid, on_device)
        assert_result(values.dtype.type(mean), expected(values, name, n), f"mean of {where}")
        some = np.where(rng.random(n) < rng.choice([0.001, 0.3]), values.dtype.type(np.nan), values)
        kept = some[some == some]
        if kept.size > 0:
            mean = gr.nanmean(
                some, kernel="exact", device="cuda", block_size=block, grid_size=grid or None
            )
            assert_result(mean, expected(kept, name, kept.size), f"nanmean of {where}")


def check_runs(task: dict[str, Any]) -> None:
    """Sum ``count`` arrays of ``dtype`` whose warps have several tiles, the last ones mostly not
    whole: ``block``, ``seed``.
    """
    name, block = task["dtype"], task["block"]
    per_vector, tile = 16 // DTYPES[name].itemsize, 4 * 32
    for number in range(task["count"]):
        rng = np.random.default_rng([task["seed"], number, *name.encode(), block])
        set_option("schedule", SCHEDULES[(task["seed"] + number) % len(SCHEDULES)])
        set_option("seed", int(rng.integers(1, 2**31)))
        grid, on_device = int(rng.integers(1, 4)), bool(rng.random() < 0.5)
        tiles = grid * block // 32 * int(rng.integers(1, 3)) + int(
            rng.integers(1, grid * block // 32 + 1)
        )
        vectors = tiles * tile - int(rng.choice([0, 1, rng.integers(32), 32, rng.integers(tile)]))
        offset, n = (
            int(rng.integers(per_vector)),
            vectors * per_vector + int(rng.integers(per_vector)),
        )
        where = (
            f"{name} run, case {number} n={n} block={block} grid={grid} offset={offset} "
            f"on_device={on_device} GPR_TEST_SEED={task['seed']}"
        )
        values = draw(rng, name, n)
        check_all_bits(
            lambda x: sum_on_device(x, "sum", offset, block, grid, on_device),  # noqa: B023
            values,
            where,
        )


def check_outliers(task: dict[str, Any]) -> None:
    """Sum arrays of ``dtype`` in which what a few warps have, of one block or of many, lies far
    below the rest, or one element far above; and zeros of both signs: ``seed``. Blocks are of all
    sizes, or every ``share``-th.
    """
    name = task["dtype"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    vector = 16 // DTYPES[name].itemsize
    grids, share = ((256, 1), (256, 3), (64, 40), (32, 80)), task.get("share", 1)
    for block, grid in grids[task["seed"] // 4 % share :: share]:
        set_option("schedule", SCHEDULES[int(rng.integers(len(SCHEDULES)))])
        set_option("seed", int(rng.integers(1, 2**31)))
        # Each block has 4 vectors a thread.
        values = rng.standard_normal((grid, 4, block // 32, 32 * vector))
        for _ in range(int(rng.integers(1, 4))):
            values[rng.integers(grid), :, rng.integers(block // 32)] *= 2.0 ** -rng.integers(10, 50)
        on_device = bool(rng.random() < 0.5)
        where = (
            f"{name} apart block={block} grid={grid} on_device={on_device} "
            f"GPR_TEST_SEED={task['seed']}"
        )
        values = values.ravel()
        if rng.random() < 0.5:
            values[rng.integers(values.size)] *= 2.0**60 if name != "float16" else 2.0**10
        values = values.astype(DTYPES[name])
        check_all_bits(
            lambda x: sum_on_device(x, "sum", 0, block, grid, on_device),  # noqa: B023
            values,
            where,
        )
        zeros = -np.zeros(values.size, values.dtype)
        for op in ("sum", "mean"):  # which start at 0, as NumPy's do
            assert not np.signbit(sum_on_device(zeros, op, 0, block, grid, on_device)), (
                f"{op} of only -0 of {where}"
            )
        plus = int(rng.integers(values.size))
        zeros[plus] = 0
        assert not np.signbit(sum_on_device(zeros, "sum", 0, block, grid, on_device)), (
            f"one +0 of {where}"
        )
        zeros[plus - vector] = math.nan  # of a neighbour, so that each element is examined
        left = sum_on_device(zeros, "sum", 0, block, grid, on_device, skip_nan=True)
        assert not np.signbit(left), f"one +0 beside NaN of {where}"
        # The smallest numbers there are, after NaN that is left out, of each thread or of one.
        tiny = (
            rng.integers(1, 200, 3 * values.size)
            * float(ml_dtypes.finfo(DTYPES[name]).smallest_subnormal)
        ).astype(DTYPES[name])
        tiny[:: int(rng.choice([vector, tiny.size]))] = math.nan
        got = sum_on_device(tiny, "sum", 0, block, grid, on_device, skip_nan=True)
        assert_result(
            tiny.dtype.type(got), expected(tiny[tiny == tiny], name), f"tiny numbers of {where}"
        )


def outlier_rows(rng: np.random.Generator, name: str, count: int, n: int) -> np.ndarray:
    """Rows of ``n`` elements of which one or two are unlike the others, larger or smaller: so that
    all bits of both are seen, or that they only decide which way to round. Often the one, or all of
    the others, are about a midpoint.
    """
    fraction, exponent = FORMATS[name]
    bias = 2 ** (exponent - 1) - 1
    rows = np.zeros((count, n))
    for number, row in enumerate(rows):
        kind, far = number % 7, int(rng.integers(bias // 4, bias // 2))
        e = -far if kind >= 5 else int(rng.integers(-bias // 2, bias // 2))
        # The elements that cancel, and the bins' places; then the remainder.
        half = (
            rng.standard_normal((n - 8) // 2).astype(DTYPES[name])
            if rng.random() < 0.7
            else np.zeros(4)
        )
        half = np.ldexp(half.astype(np.float64), e)
        rest = np.ldexp(rng.integers(-3, 4, 6).astype(np.float64), e - rng.integers(0, fraction, 6))
        odd = float((rng.integers(2**fraction) | 1) + 2**fraction)
        if kind == 0:
            one = np.ldexp(odd, int(rng.integers(-bias - fraction, bias - fraction)))
        elif kind == 1:  # the others together are half of the one's last bit, or nearly
            rest = np.ldexp(
                [1.0, float(rng.integers(-1, 2))], [e, e - int(rng.integers(1, 2 * fraction))]
            )
            one = np.ldexp(odd, e + 1)
        elif kind == 2:  # half of the others' last bit, which bins may still hold
            depth = int(rng.integers(fraction, 135))
            rest, one = np.ldexp([odd, 0.0], e - depth), np.ldexp(1.0, e - depth - 1)
        elif kind in (3, 4):  # the others sum to a midpoint: the single element decides
            rest = np.ldexp([odd, 0.5], e - fraction)
            one = np.ldexp(1.0, e - (far if kind == 4 else int(rng.integers(1, far))))
        else:  # of a float64 the one is a midpoint of float32, or its mean is: the others decide
            one = (1 + 2.0 ** -(1 + FORMATS["float32"][0])) * rng.choice([1, n])
        others = np.concatenate([half, -half, rest * rng.choice([-1, 1])])
        row[: others.size] = rng.permutation(others)
        row[-1] = one * rng.choice([-1, 1])
        if rng.random() < 0.15:
            with np.errstate(over="ignore"):
                row[-2] = one * rng.choice([-1, 1, 2.0**70, 2.0**-70])
            row[[-2, n // 3]] = row[[n // 3, -2]]  # maybe of another block
        row[:] = np.roll(row, rng.integers(n))
    with np.errstate(over="ignore"):
        return rows.astype(DTYPES[name])


def check_lone_outliers(task: dict[str, Any]) -> None:
    """Sum ``count`` rows of ``dtype`` with an element that bins do not hold; ``seed``."""
    name = task["dtype"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    set_option("schedule", SCHEDULES[task["seed"] % len(SCHEDULES)])
    set_option("seed", int(rng.integers(1, 2**31)))
    check_outliers_among(rng, name, task["count"], f"GPR_TEST_SEED={task['seed']}")


def check_outliers_among(rng: np.random.Generator, name: str, count: int, where: str) -> None:
    """The same by one block a row or several: means, sums as float32, complex numbers' parts."""
    many = 128 if name == "float64" else 16  # blocks of a row whose tiles have more bins
    for grid, n in ((1, 100), (1, 300), (3, 300), (many, 2000)):
        rows = outlier_rows(rng, name, count if n < 2000 else max(4, count // 20), n)
        case = f"{name} alone, n={n} grid={grid} {where}"
        sums = [
            sum_on_device(rows, op, 0, 32, grid, on_device=True, dtype=dtype)
            for dtype in (None, np.dtype(np.float32))
            for op in ("sum", "mean")
        ]
        for row, one, mean, other, other_mean in zip(rows, *sums, strict=True):
            assert_result(
                rows.dtype.type(one), expected(row, name), f"{case}: {row[row != 0].tolist()}"
            )
            assert_result(
                rows.dtype.type(mean),
                expected(row, name, n),
                f"mean of {case}: {row[row != 0].tolist()}",
            )
            assert_result(
                other, expected(row, "float32"), f"float32 of {case}: {row[row != 0].tolist()}"
            )
            assert_result(
                other_mean,
                expected(row, "float32", n),
                f"float32 mean of {case}: {row[row != 0].tolist()}",
            )
    if name in ("float32", "float64"):
        parts = [outlier_rows(rng, name, count, 100) for _ in range(2)]
        numbers = np.stack(parts, -1).view(f"c{2 * DTYPES[name].itemsize}")[..., 0]
        sums = sum_on_device(numbers, "sum", 0, 32, 2, on_device=True)
        for got, rows in zip((sums.real, sums.imag), parts, strict=True):
            for one, row in zip(got, rows, strict=True):
                assert_result(
                    one,
                    expected(row, name),
                    f"part of {name} alone {where}: {row[row != 0].tolist()}",
                )


def check_spills(task: dict[str, Any]) -> None:
    """Sum ``count`` arrays of ``dtype`` that fill bins several times: ``block``, ``seed``.

    Some tiles, of those of any warp also several in a row, are not like the others; and numbers
    become larger or smaller for good.
    """
    name, block = task["dtype"], task["block"]
    dtype = DTYPES[name]
    narrow = name == "float16"
    for number in range(task["count"]):
        rng = np.random.default_rng([task["seed"], number, *name.encode(), block])
        set_option("schedule", SCHEDULES[(task["seed"] + number) % len(SCHEDULES)])
        set_option("seed", int(rng.integers(1, 2**31)))
        grid, offset, on_device = (
            int(rng.integers(1, 3)),
            int(rng.integers(4)),
            bool(rng.random() < 0.5),
        )
        full = MOST_ADDS * block * grid
        n = full + int(rng.integers(full * 3 // 2)) + int(rng.choice([0, 1, 255]))
        # Numbers that do not cancel.
        numbers = rng.standard_normal(n) if rng.random() < 0.5 else rng.uniform(1, 2, n)
        numbers = np.ldexp(numbers, rng.integers(-3, 4, n))
        if rng.random() < 0.3:
            numbers = one_sided(rng, name, n).astype(np.float64)
        for _ in range(int(rng.integers(4))):
            some = numbers[int(rng.integers(n // 256)) * 256 :][: 256 * int(rng.integers(1, 5))]
            some *= rng.choice(
                [0.0, -0.0, 2.0**-10, 2.0**10]
                if narrow
                else [0.0, -0.0, 2.0**-45, 2.0**20, 2.0**90]
            )
        if number == 0 and not narrow:  # bins move when some were full
            numbers[full + (n - full) // 4 :] *= 2.0**30
        elif rng.random() < 0.3:
            numbers[int(rng.integers(n)) :] *= (
                2.0 ** rng.integers(-10, 8) if narrow else 2.0 ** rng.integers(-40, 30)
            )
        values = numbers.astype(dtype)
        where = (
            f"{name} kept, case {number} n={n} block={block} grid={grid} offset={offset} "
            f"GPR_TEST_SEED={task['seed']}"
        )

        def summed(x: np.ndarray, op: str = "sum", skip_nan: bool = False) -> Any:
            return sum_on_device(x, op, offset, block, grid, on_device, skip_nan)  # noqa: B023

        check_all_bits(summed, values, where)
        assert_result(
            dtype.type(summed(values, "mean")), expected(values, name, n), f"mean of {where}"
        )
        special, sign = [(math.inf, 1), (-math.inf, 1), (math.nan, 1), (math.inf, -1)][
            int(rng.integers(4))
        ]
        holed = values.copy()
        holed[rng.integers(n, size=int(rng.integers(1, 3)))] = special
        holed[rng.integers(n)] = sign * special
        assert_result(dtype.type(summed(holed)), expected(holed, name), f"{special} in {where}")
        zeros = -np.zeros(n, dtype)
        zeros[rng.choice(n, 3)] = math.nan  # which are left out: their zeros do not count
        assert not np.signbit(summed(zeros, skip_nan=True)), f"-0 and NaN of {where}"
        zeros[rng.integers(n)] = 0
        assert not np.signbit(summed(zeros, skip_nan=True)), f"+0 of {where}"


def check_spills_to_the_end(task: dict[str, Any]) -> None:
    """Sum an array of ``dtype`` so long that one warp cannot keep all that its bins held: ``seed``.
    Their sum, and that of several warps which keep all, needs more than the first bin has room for.
    """
    name = task["dtype"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    largest = float(ml_dtypes.finfo(DTYPES[name]).max) if name == "float16" else 2.0**60
    for block, grid, times in ((32, 1, MOST_SPILLS + 2), (96, 2, 6)):
        n = times * MOST_ADDS * block * grid + int(rng.integers(5000))
        values = (largest * (1 - rng.random(n) / 8)).astype(DTYPES[name]) * DTYPES[name].type(
            rng.choice([-1, 1])
        )
        where = f"{name} to the end, n={n} block={block} grid={grid} GPR_TEST_SEED={task['seed']}"
        mean = sum_on_device(values, "mean", 0, block, grid, on_device=True)
        assert_result(values.dtype.type(mean), expected(values, name, n), f"mean of {where}")
        half = values.copy()
        half[1::2] *= -1
        check_all_bits(lambda x: sum_on_device(x, "sum", 0, block, grid, False), half, where)  # noqa: B023


PAIR_KERNELS = (
    "fast_stream", "fast_short", "fast_rows", "fast_columns", "fast_few", "fast_narrow",
    "fast_strided",
)  # fmt: skip
"""Kernels of ``fast`` that take accumulators of two doubles."""


def check_double_double(task: dict[str, Any]) -> None:
    """Sum rows of one to nine elements of ``dtype``, which threads have alone, along memory and
    across it, of one axis or two, as any float, and take their means: ``rows`` of each kind, of
    which 64 are warps of their own, of ``sizes`` numbers of elements, of the first that is added
    as two floats so ``many`` that threads have several, if not told otherwise; ``seed``.
    """
    name, count = task["dtype"], task["rows"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    set_option("schedule", SCHEDULES[task["seed"] % len(SCHEDULES)])
    set_option("seed", int(rng.integers(1, 2**31)))
    half = 2.0 ** -(FORMATS[name][0] + 1)  # of the last bit of 1
    edges = [1.0, 1 + 2 * half, half, 2 * half, half * half, 2.0**-140, 0.0, math.inf, math.nan]
    edges += [
        float(ml_dtypes.finfo(DTYPES[name]).max),
        float(ml_dtypes.finfo(DTYPES[name]).smallest_subnormal),
    ]
    sizes = rng.permutation(range(1, 10))[: task["sizes"]].tolist()
    few = 4 if name == "float64" else 8  # elements that are added as two floats
    many = next((n for n in sizes if n <= few), None) if task.get("many", True) else None
    for n in sizes:
        rows = np.stack([draw(rng, name, n) for _ in range(count)])
        near = (rng.choice(edges[:5], (count, n)) * rng.choice([-1, 1], (count, n))).astype(
            DTYPES[name]
        )
        apart = (rng.choice(edges, (count, n)) * rng.choice([-1, 1], (count, n))).astype(
            DTYPES[name]
        )
        # A midpoint of some result, or what is beside it by the last bit of what it may be added
        # as, and by less.
        digits = rng.choice([FORMATS[result][0] for result in FLOATS], count).astype(np.float64)
        less = [0.0, 2.0 ** -rng.integers(20, 30), 2.0**-52, 2.0**-60, -(2.0**-60), 2.0**-140]
        less += [
            sign * (2.0**-place - 2.0 ** -(place + 10)) for place in (23, 52) for sign in (-1, 1)
        ]
        less += [2.0**-48, 2.0 ** -rng.integers(40, 56), 2.0**-106, 2.0 ** -rng.integers(96, 112)]
        ties = [
            1 + rng.choice([0, 1], count) * 2.0**-digits,
            2.0 ** -(digits + 1),
            rng.choice(less, count),
        ]
        ties = np.stack([*ties, *np.zeros((6, count))], axis=1)[:, :n]
        ties = rng.permuted(ties, axis=1) * rng.choice([-1, 1], (count, 1))
        # A sum whose mean is such a midpoint, in two elements, and what may be beside.
        means = n * (
            1 + 2.0**-digits * rng.integers(1, 2 ** np.minimum(digits, 8)) + 2.0 ** -(digits + 1)
        )
        means *= 2.0 ** rng.choice(
            [0, 0, 10, -100 if name in ("float32", "float64") else -3], count
        )
        upper = means.astype(DTYPES[name]).astype(np.float64)
        beside = rng.choice(less, count) * np.where(rng.random(count) < 0.5, means, 1)
        means = np.stack([upper, means - upper, beside, *np.zeros((6, count))], axis=1)[:, :n]
        means = rng.permuted(means, axis=1) * rng.choice([-1, 1], (count, 1))
        # Warps whose rows are all alike, and those of which a few are not.
        mixed = np.where(rng.random((count, 1)) < 0.1, apart, near)
        rows = np.concatenate(
            [rows, near, ties.astype(rows.dtype), means.astype(rows.dtype), mixed, apart]
        )
        copies = 1 + MANY_ROWS // len(rows) if n == many else 1
        known = rows
        rows = np.tile(rows, (copies, 1))
        views = [rows, np.asfortranarray(rows)]
        for outer in (outer for outer in (2, 3) if n > outer and n % outer == 0):
            # A gap keeps two axes two.
            pairs = np.zeros((len(rows), outer, n // outer + 1), rows.dtype)
            pairs[..., :-1] = rows.reshape(len(rows), outer, -1)
            views += [pairs[..., :-1], np.asfortranarray(pairs)[..., :-1]]
        for view in views:
            whole = view if view.base is None else view.base
            pointer = _core.alloc_device(0, whole.nbytes)
            _core.upload(0, pointer, whole.ravel(order="K"))
            ops = rng.permutation(["sum", "nansum", "mean"])[:2]
            for op, result in zip(ops, rng.permutation(FLOATS), strict=False):
                skips = op == "nansum"
                got = _core.reduce_device(
                    *(
                        op.removeprefix("nan"),
                        pointer,
                        view.shape,
                        view.dtype,
                        view.ndim - 1,
                        "exact",
                        0,
                        0,
                        0,
                        DTYPES[result],
                    ),
                    strides=view.strides,
                    skip_nan=skips,
                )
                where = (
                    f"{op} of {name} rows of {n} as {result}, {view.shape} {view.strides}, seed "
                    f"{task['seed']}"
                )
                # Longer ones may be summed by kernels that take accumulators of two doubles.
                variant = _core.last_run()["variant"]
                may_run = {"exact_rows"} if n <= few else {"exact_rows", *PAIR_KERNELS}
                assert variant in may_run, f"{variant}: {where}"
                added = [row[row == row] for row in known] if skips else known
                wanted = [expected(row, result, n if op == "mean" else 1) for row in added]
                for i, one in enumerate(np.asarray(got)):
                    assert_result(one, wanted[i % len(known)], f"row {i}, {rows[i]}, {where}")
            _core.free_device(0, pointer)


def check_rows(task: dict[str, Any]) -> None:
    """Sum host and device rows of ``dtype``, complex and with NaN left out, as host arrays too."""
    name = task["dtype"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    set_option("schedule", SCHEDULES[task["seed"] % len(SCHEDULES)])
    set_option("seed", int(rng.integers(1, 2**31)))
    where = f"{name} rows GPR_TEST_SEED={task['seed']}"
    rows = np.stack([draw(rng, name, 257) for _ in range(5)])
    for on_device in (False, True):
        sums = sum_on_device(rows, "sum", 3, 64, 0, on_device)
        for row, got in zip(rows, sums, strict=True):
            assert_result(values_type(rows)(got), expected(row, name), where)
    short = np.ascontiguousarray(rows[:, :256].reshape(-1, 16))
    for row, got in zip(short, gr.sum(short, axis=1, kernel="exact", device="cuda"), strict=True):
        assert_result(got, expected(row, name), f"short {where}")
    check_late_rows(rng, name, where)
    for row, got in zip(rows, gr.nansum(rows, axis=1, kernel="exact", device="cuda"), strict=True):
        assert_result(got, expected(row[row == row], name), f"nansum of {where}")
    kept = rng.random(257) < 0.6
    for row, got in zip(
        rows, gr.mean(rows, axis=1, kernel="exact", device="cuda", where=kept), strict=True
    ):
        assert_result(got, expected(row[kept], name, int(kept.sum())), f"mean of some of {where}")
    if name in ("float32", "float64"):
        pairs = draw(rng, name, 514).view(f"c{2 * rows.itemsize}")
        got = gr.sum(pairs, kernel="exact", device="cuda")
        for part, wanted in ((got.real, pairs.real), (got.imag, pairs.imag)):
            assert_result(part, expected(np.ascontiguousarray(wanted), name), f"complex of {where}")


def check_nothing(rng: np.random.Generator, name: str, device: str, sizes: tuple[int, ...]) -> None:
    """Sum host arrays whose mask, or NaN, leaves nothing, one -0, one +0, or a number."""
    dtype = np.dtype(name) if name.startswith("complex") else DTYPES[name]
    minus_zero, zero, two = -np.zeros((), dtype), np.zeros((), dtype), np.full((), 2, dtype)
    options: dict[str, Any] = {"kernel": "exact", "device": device}
    for n in sizes:
        for one, wanted in ((None, zero), (minus_zero, zero), (zero, zero), (two, two)):
            values, kept = np.full(n, np.nan, dtype), np.zeros(n, np.bool_)
            if one is not None:
                place = int(rng.integers(n))
                values[place], kept[place] = one, True
            numbers = np.where(kept, values, dtype.type(7))
            rows = np.stack([numbers, -numbers])[:, ::-1]
            sums = [
                gr.sum(numbers, where=kept, **options),
                gr.nansum(values, **options),
                gr.nansum(numbers, where=kept, **options),
                gr.sum(rows, 1, where=kept[::-1], **options)[0],
            ]
            for got in sums:
                assert got.tobytes() == wanted.tobytes(), (name, device, n, one, sums)


def check_rows_of_nothing(rng: np.random.Generator, name: str) -> None:
    """Sum device arrays of short rows, and of short columns, of some of which nothing is left."""
    dtype = np.dtype(name) if name.startswith("complex") else DTYPES[name]
    for n in (3, 13, 40, 90, 300):
        for axis in (1, 0):
            counts = rng.integers(0, 3, 37)  # elements that are left
            kept = np.arange(n)[None, :] < counts[:, None]
            sums = (2 * counts).astype(dtype)
            with np.errstate(invalid="ignore"):
                means = np.where(counts > 0, 2.0, np.nan).astype(dtype)
            masked = np.where(kept, dtype.type(2), dtype.type(7))
            with_nan = np.where(kept, dtype.type(2), dtype.type(np.nan))
            if axis == 0:
                masked, with_nan, kept = masked.T, with_nan.T, kept.T
            there = {"axis": axis, "kernel": "exact"}
            where = {**there, "where": device(kept)}
            for got, wanted in (
                (gr.sum(device(masked), **where), sums),
                (gr.mean(device(masked), **where), means),
                (gr.nansum(device(with_nan), **there), sums),
                (gr.nanmean(device(with_nan), **there), means),
            ):
                found, variant = host(got), gr.last_run().variant
                assert np.array_equal(
                    found.astype(complex), wanted.astype(complex), equal_nan=True
                ), (name, n, axis, variant, found, wanted)


def check_nothing_there(task: dict[str, Any]) -> None:
    """The same of ``dtype`` on the device, also in several chunks; ``seed``."""
    rng = np.random.default_rng([task["seed"], *task["dtype"].encode()])
    check_rows_of_nothing(rng, task["dtype"])
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
    check_nothing(rng, task["dtype"], "cuda", (1, 40, 3000))
    n = 500_000 // np.dtype(DTYPES.get(task["dtype"], task["dtype"])).itemsize
    numbers, kept = np.full(n, 7, DTYPES.get(task["dtype"], task["dtype"])), np.zeros(n, np.bool_)
    place = int(rng.integers(n))
    numbers[place] = -np.zeros((), numbers.dtype)
    for one in (False, True):
        kept[place] = one
        got = gr.sum(numbers, kernel="exact", device="cuda", where=kept)
        assert gr.last_run().chunks > 1
        assert got.tobytes() == numbers.dtype.type(0).tobytes(), (task, place, got)


def check_late_rows(rng: np.random.Generator, name: str, where: str) -> None:
    """Rows, also those across memory that a thread has alone: the smallest numbers, after a tile or
    so larger ones that cancel.
    """
    dtype = DTYPES[name]
    smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for n in (16, 32, 61):
        rows = np.zeros((64, n), dtype)
        for row in rows:
            first = int(rng.integers(1, n - 1))
            row[rng.integers(first, size=2)] = smallest * rng.integers(1, 100, 2)
            row[first + rng.permutation(n - first)[:2]] = rng.choice([2.0**-12, 1, 100]) * np.array(
                [1, -1]
            )
        for laid_out in (rows, np.asfortranarray(rows)):
            pointer = _core.alloc_device(0, rows.nbytes)
            _core.upload(0, pointer, laid_out.ravel(order="K"))
            sums = _core.reduce_device(
                *("sum", pointer, rows.shape, dtype, 1, "exact", 0, 0, 0), strides=laid_out.strides
            )
            _core.free_device(0, pointer)
            for row, got in zip(rows, sums, strict=True):
                assert_result(
                    got, expected(row, name), f"late {laid_out.strides} of {where}: {row[row != 0]}"
                )


# Binary orders of magnitude below and above what is drawn, so that no sum over- or underflows.
LOOSE = 60


def all_ones(name: str, exponents: np.ndarray) -> np.ndarray:
    """The largest numbers below these powers of two: a bin cuts off as much as can be."""
    return np.nextafter(np.exp2(exponents).astype(DTYPES[name]), DTYPES[name].type(0))


def edge_rows(rng: np.random.Generator, name: str) -> Iterator[np.ndarray]:
    """Rows for one warp, which meet every edge of every bin: by a large number and others so many
    orders below, by numbers that grow so many orders after the first tile, and by numbers of each
    order in which nothing fits.
    """
    dtype, info = DTYPES[name], ml_dtypes.finfo(DTYPES[name])
    tile = 2048 // dtype.itemsize
    low, high = info.minexp + LOOSE, info.maxexp - LOOSE
    for below in range(min(100, high - low)):
        top = int(rng.integers(low + below, high))
        for further in (np.zeros(tile, int), rng.integers(0, 3, tile)):
            # It is subtracted again: the remainder shows the last digits.
            large = np.exp2([top]).astype(dtype)
            yield np.concatenate([large, all_ones(name, top - below - further), -large])
    for above in range(20):
        first = all_ones(name, np.full(tile, int(rng.integers(low, high - above))))
        yield np.concatenate([first, np.tile(first * dtype.type(2) ** above, 5)])
    yield from growing_rows(rng, name, tile, 6)
    yield from rows_with_last_digits(rng, name, tile, low, high)
    for order in range(info.minexp, high, max(1, (high - info.minexp) // 300)):
        ones = all_ones(name, np.full(2 * tile, order))
        yield np.concatenate([[info.max, info.smallest_subnormal], ones, [-info.max]])


def rows_with_last_digits(
    rng: np.random.Generator, name: str, tile: int, low: int, high: int
) -> Iterator[np.ndarray]:
    """Rows for one warp, of each thread of which one number has digits below all others: as far as
    a double has digits for the sum of the thread's tile, and farther.
    """
    dtype, spare = DTYPES[name], 53 - (FORMATS[name][0] + 1)
    vector = 16 // dtype.itemsize
    for apart in range(max(spare - 8, 1), spare + 3):
        top = int(rng.integers(low + apart, high))
        ones, last = all_ones(name, np.full(tile, top)), np.zeros(tile, dtype)
        places = vector * np.arange(32) + rng.integers(vector, size=32)
        ones[places], last[places] = 0, all_ones(name, np.full(32, top - apart))
        yield np.concatenate([ones + last, -ones])  # the last digits remain


def growing_rows(
    rng: np.random.Generator, name: str, tile: int, tiles: int
) -> Iterator[np.ndarray]:
    """Rows for one warp whose numbers grow after the first tile, some of the next tiles more than
    others: so sums come to the edge of the first bin's range, from anywhere.
    """
    dtype, info = DTYPES[name], ml_dtypes.finfo(DTYPES[name])
    for above in range(4, 16):
        first = all_ones(
            name, np.full(tile, int(rng.integers(info.minexp + LOOSE, info.maxexp - LOOSE - above)))
        )
        first *= dtype.type(rng.choice([-1, 1]))
        factors = np.exp2(above - rng.integers(0, 4, tiles)).astype(dtype)
        yield np.concatenate([first, *(first * factor for factor in factors)])


def check_edges(task: dict[str, Any]) -> None:
    """Sum rows of ``dtype`` at the edges of bins, every ``stride``-th of them."""
    name, stride = task["dtype"], task["stride"]
    rng = np.random.default_rng([task["seed"], *name.encode()])
    set_option("schedule", SCHEDULES[task["seed"] % len(SCHEDULES)])
    set_option("seed", int(rng.integers(1, 2**31)))
    rows = list(edge_rows(rng, name))[int(rng.integers(stride)) :: stride]
    longest = max(row.size for row in rows)
    padded = np.stack(
        [np.append(row, np.zeros(longest - row.size, row.dtype)).astype(row.dtype) for row in rows]
    )
    where = f"{name} edges GPR_TEST_SEED={task['seed']}"
    for row, got in zip(rows, sum_on_device(padded, "sum", 0, 32, 1, False), strict=True):
        assert_result(
            values_type(padded)(got), expected(row, name), f"{where}: {row[:2]} and {row[-3:]}"
        )
    if name == "float32":  # of complex numbers one part grows, the other does not
        growing = np.stack(list(growing_rows(rng, name, 256, 24)))
        parts = [growing, np.tile(growing[:, :256], 25)]
        for real, imaginary in (parts, parts[::-1]):
            sums = sum_on_device(real + 1j * imaginary, "sum", 0, 32, 1, False)
            for got, part in ((sums.real, real), (sums.imag, imaginary)):
                for one, row in zip(got, part, strict=True):
                    assert_result(one, expected(row, name), f"part of {where}: {row[::256]}")


def values_type(values: np.ndarray) -> Any:
    return values.dtype.type
