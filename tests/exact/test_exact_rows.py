"""Exact sums of rows on the CPU, row by row against Python's integers.

Rows are summed side by side as two doubles where these hold them, and by themselves elsewhere:
lengths, layouts and data are mixed so that both happen within one call.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")

from draws import EVERYTHING, SEED, some
from exact_reference import (
    FLOATS,
    FORMATS,
    GENERATORS,
    assert_result,
    expected,
    spread,
    unit_of,
)
from reference import DTYPES

import gpureduce as gr

LENGTHS = (1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 66, 100, 127, 200)
LONG = (1023, 1024, 1025, 1040, 4095, 4096)
PARTS = {"complex64": "float32", "complex128": "float64"}
BEYOND = (4097, 8192, 9000, 40_000)  # of rows that lie crosswise: several pairs each


def hard_rows(rng: np.random.Generator, name: str, rows: int, n: int) -> np.ndarray:
    """Rows of n elements: mostly easy ones, and some of each sort that is hard to sum."""
    values = np.empty((rows, n), DTYPES[name])
    for row in values:
        if rng.random() < 0.5:
            row[:] = spread(rng, name, n, 1)
            continue
        generate = GENERATORS[int(rng.integers(len(GENERATORS)))]
        with np.errstate(all="ignore"):
            row[:] = np.resize(generate(rng, name, max(n, 2)), n)
    return values


def laid_out(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """The same rows along axis 1, somewhere else in memory."""
    kind = int(rng.integers(7))
    rows, n = values.shape
    if kind == 0:
        return values
    if kind == 1:
        return np.asfortranarray(values)
    if kind == 2:  # rows with gaps between them
        wide = np.empty((rows, n + 3), values.dtype)
        wide[:, 1 : n + 1] = values
        return wide[:, 1 : n + 1]
    if kind == 3:  # elements with gaps between them
        wide = np.empty((rows, 2 * n), values.dtype)
        wide[:, ::2] = values
        return wide[:, ::2]
    if kind == 4:
        return values[::-1, ::-1].copy()[::-1, ::-1]
    if kind == 5:  # columns with gaps between them
        wide = np.empty((n, rows + 5), values.dtype)
        wide[:, 2 : rows + 2] = values.T
        return wide[:, 2 : rows + 2].T
    raw = np.empty(values.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(np.ascontiguousarray(values.T).tobytes(), np.uint8)
    return raw.view(values.dtype).reshape(n, rows).T


def assert_rows(got: np.ndarray, values: np.ndarray, result: str, count: int, context: Any) -> None:
    for r, row in enumerate(values):
        assert_result(got[r], expected(row, result, count), (r, *context, SEED))


@pytest.mark.parametrize("name", FLOATS)
def test_rows_of_any_length_and_layout_are_rounded_once(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for _ in range(16 if EVERYTHING else 8):
        n = int(rng.choice(LENGTHS if rng.random() < 0.8 else LONG))
        rows = int(rng.choice((2, 3, 31, 63, 64, 65, 130) if n < 1000 else (2, 3, 9)))
        values = hard_rows(rng, name, rows, n)
        view = laid_out(rng, values)
        result = str(rng.choice(FLOATS))
        context = (name, result, isa, values.shape, view.strides)
        total = gr.sum(view, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
        assert_rows(total, values, result, 1, context)
        mean = gr.mean(view, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
        assert_rows(mean, values, result, n, context)


@pytest.mark.parametrize("name", FLOATS)
def test_rows_of_several_runs_are_rounded_once(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for _ in range(12 if EVERYTHING else 6):
        rows, runs = int(rng.choice((1, 2, 5, 40))), int(rng.integers(2, 6))
        run, gap = int(rng.choice((63, 64, 65, 100, 300, 1500))), int(rng.choice((0, 3)))
        values = hard_rows(rng, name, rows, runs * run)
        if rng.random() < 0.7:  # plain sums of these are mostly exact
            values = rng.normal(size=values.shape).astype(DTYPES[name])
        held = np.zeros((runs, rows, run + gap), DTYPES[name])
        view = held[..., :run]
        view[...] = values.reshape(rows, runs, run).swapaxes(0, 1)
        if rng.random() < 0.3:
            view = np.broadcast_to(view[0], view.shape)
            values = np.tile(view[0], runs)
        context = (name, isa, view.shape, view.strides)
        axes = None if rows == 1 else (0, 2)
        total = np.atleast_1d(gr.sum(view, axis=axes, kernel="exact", device="cpu"))
        assert_rows(total, values, name, 1, context)
        mean = np.atleast_1d(gr.mean(view, axis=axes, kernel="exact", device="cpu"))
        assert_rows(mean, values, name, runs * run, context)


@pytest.mark.parametrize("name", [*FLOATS, *PARTS])
def test_rows_of_one_element_are_sums_and_means_of_it(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    dtype = DTYPES.get(name, np.dtype(name))
    real = np.dtype(PARTS.get(name, dtype))
    bits = np.dtype(f"u{real.itemsize}")
    parts = dtype.itemsize // real.itemsize
    rows = int(rng.choice((1, 5, 700, 9000)))
    # numbers of any exponent, infinities, NaN of any bits, and zeros of either sign
    numbers = rng.integers(0, 1 << 8 * real.itemsize, rows * parts, bits).view(real)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, -np.nan], real)
    numbers = np.where(rng.random(rows * parts) < 0.5, numbers, rng.choice(special, rows * parts))
    is_nan = np.isnan(numbers).reshape(rows, parts)
    sums = np.where(is_nan.ravel(), real.type(np.nan), numbers.view(real))
    sums = np.where(sums == 0, real.type(0), sums)
    without = np.repeat(is_nan.any(axis=1), parts)
    wanted = {
        gr.sum: sums,
        gr.mean: sums,
        gr.nansum: np.where(without, real.type(0), sums),
        gr.nanmean: np.where(without, real.type(np.nan), sums),
    }
    view = laid_out(rng, numbers.view(dtype).reshape(rows, 1))
    for function, results in wanted.items():
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = function(view, axis=1, kernel="exact", device="cpu")
        assert got.dtype == dtype
        got_bits = np.ascontiguousarray(got).view(bits)
        assert np.array_equal(got_bits, results.view(bits)), (function, name, isa, rows, SEED)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_rows_of_two_elements_that_lie_crosswise_are_rounded_once(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    rows = int(rng.integers(64, 300))
    values = hard_rows(rng, name, rows, 2)
    most, none = np.finfo(name).max, values.dtype.type(-0.0)
    values[:6] = (none, none), (none, 0), (most, most), (np.inf, -np.inf), (np.nan, 1), (-most, 1)
    total = gr.sum(np.asfortranarray(values), axis=1, kernel="exact", device="cpu")
    assert_rows(total, values, name, 1, (name, isa))
    pairs = np.ascontiguousarray(values.reshape(rows, 2, 1) * np.ones(2, name)).view(
        "complex64" if name == "float32" else "complex128"
    )
    total = gr.sum(np.asfortranarray(pairs[..., 0]), axis=1, kernel="exact", device="cpu")
    assert_rows(total.real, values, name, 1, (name, isa, "real parts"))
    assert_rows(total.imag, values, name, 1, (name, isa, "imaginary parts"))


@pytest.mark.parametrize("name", FLOATS)
def test_short_columns_that_are_apart_are_added_with_those_beside_them(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for _ in range(12 if EVERYTHING else 4):
        columns = int(rng.choice((1, 2, 3, 9, 17, 40, 63)))
        runs = int(rng.choice((1, 1, 2, 3)))  # of a column
        run = int(rng.integers(3, 20 if runs == 1 or rng.random() < 0.9 else 40))
        n = runs * run
        many, groups = int(rng.integers(1, 4)), int(rng.integers(2, 20))  # of columns
        step = int(rng.choice((-1, 2, -3)))
        values = hard_rows(rng, name, many * groups * columns, n)
        if rng.random() < 0.7:  # plain sums of these are mostly exact
            values = rng.normal(size=values.shape).astype(DTYPES[name])
        elif rng.random() < 0.5:  # and those of these are not
            scales = 2.0 ** rng.integers(-9, 5, values.shape) ** 3.0
            with np.errstate(over="ignore"):
                values = (rng.normal(size=values.shape) * scales).astype(DTYPES[name])
        apart = np.zeros((runs, run + 2, many, groups + 1, abs(step) * columns), values.dtype)
        view = apart[:, :run, :, :groups, ::step][..., :columns]
        view[...] = values.T.reshape(view.shape)
        if rng.random() < 0.2:
            view = view.astype(view.dtype.newbyteorder()) if name != "bfloat16" else view
        context = (name, isa, view.shape, view.strides)
        total = gr.sum(view, axis=(0, 1), kernel="exact", device="cpu")
        assert_rows(total.ravel(), values, name, 1, context)
        kept = rng.random(view.shape) < 0.8
        kept[0, 0] = True
        mean = gr.mean(view, axis=(0, 1), where=kept, kernel="exact", device="cpu").ravel()
        for r, (row, of_row) in enumerate(zip(values, kept.reshape(n, -1).T, strict=True)):
            wanted = expected(row[of_row], name, int(of_row.sum()))
            assert_result(mean[r], wanted, (r, *context, SEED))


@pytest.mark.parametrize("name", FLOATS)
def test_long_rows_that_lie_crosswise_are_added_pair_by_pair(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for n in BEYOND:
        rows = int(rng.choice((4, 5)))
        values = hard_rows(rng, name, rows, n)
        values[0] = spread(rng, name, n, 1)
        # One pair of several does not hold.
        values[0, rng.integers(n)] = spread(rng, name, 1, 300)[0]
        values[1] = np.copysign(DTYPES[name].type(0), DTYPES[name].type(-1))
        values[2] = 0
        values[3] = rng.permutation(
            np.resize(np.arange(n // 2), n) * np.where(np.arange(n) < n // 2, 1, -1)
        )
        view = np.asfortranarray(values)
        assert_rows(gr.sum(view, axis=1, kernel="exact", device="cpu"), values, name, 1, (isa, n))
        assert_rows(gr.mean(view, axis=1, kernel="exact", device="cpu"), values, name, n, (isa, n))


@pytest.mark.parametrize("name", ["float32", "float64", "complex64"])
def test_blocks_of_columns_that_are_rounded_are_added_as_pairs_beside_others_that_are_not(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    real = np.float64 if name == "float64" else np.float32
    parts = 2 if name == "complex64" else 1
    sizes = ((1300, 200), (40_000, 9), (900, 530))
    for rows, width in some(sizes, 2 / 3, f"rounded columns {name} {isa}"):
        numbers = (rng.standard_normal((rows, width * parts)) * 50).round(3).astype(real)
        # smaller than any sum's last place: which blocks they are in, and how many, is left open
        for _ in range(int(rng.integers(1, 5))):
            numbers[rng.integers(rows), rng.integers(width * parts)] = 2.0**-90
        view = numbers.view(name)
        totals = gr.sum(view, axis=0, kernel="exact", device="cpu")
        assert totals.dtype == name
        part = np.dtype(real).name
        assert_rows(totals.view(real), numbers.T, part, 1, (name, isa, rows, width))


@pytest.mark.parametrize("name", [*FLOATS, *PARTS])
def test_pieces_of_rows_may_begin_anywhere_within_an_axis(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    units, outer, inner, rows = 2, 60, 300, 2
    part = PARTS.get(name, name)
    parts = [
        hard_rows(rng, part, units * rows, outer * inner) for _ in range(2 if name in PARTS else 1)
    ]
    # Some of its numbers are no elements.
    wide = np.ones((units, outer, inner + 2, rows, len(parts)), DTYPES[part])
    wide[:, :, :inner] = (
        np.stack(parts, axis=-1).reshape(units, rows, outer, inner, -1).transpose(0, 2, 3, 1, 4)
    )
    view = wide.view(name if name in PARTS else DTYPES[name])[:, :, :inner, :, 0]
    total = gr.sum(view, axis=(1, 2), kernel="exact", device="cpu")
    sums = total.reshape(-1, 1).view(DTYPES[part])
    for p, values in enumerate(parts):
        assert_rows(sums[:, p], values, part, 1, (name, isa))


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("n", [3, 16, 63, 64, 65, 1000, 5000])
def test_parts_of_complex_rows_are_rows_of_their_own(
    name: str, n: int, isa: str, rng: np.random.Generator
) -> None:
    real = PARTS[name]
    counts = (2, 33, 65) if n < 1000 else (2, 3)
    for rows in some(counts, 1 / 2, f"complex rows {name} {n} {isa}"):
        parts = [hard_rows(rng, real, rows, n) for _ in range(2)]
        values = np.empty((rows, n), name)
        values.real, values.imag = parts
        for view in (values, np.asfortranarray(values)):
            total = gr.sum(view, axis=1, kernel="exact", device="cpu")
            mean = gr.mean(view, axis=1, kernel="exact", device="cpu")
            for part, sums, means in zip(
                parts, (total.real, total.imag), (mean.real, mean.imag), strict=True
            ):
                assert_rows(sums, part, real, 1, (name, isa, view.strides))
                assert_rows(means, part, real, n, (name, isa, view.strides))


@pytest.mark.parametrize("result", FLOATS)
# Exponents but 0 make quotients that are subnormal, or near infinity.
@pytest.mark.parametrize("exponent", [0, -1015, 1010])
def test_a_hair_beside_a_midpoint_decides(result: str, exponent: int, isa: str) -> None:
    half = exponent - FORMATS[result][0] - 1  # in units of the last place of 2**exponent
    hair = max(half - 38, unit_of("float64"))
    for n in (3, 4, 7, 64, 100, 1024, 3000):
        values = np.zeros((6, n))
        for row, (odd, side) in zip(values, np.ndindex(2, 3), strict=True):
            row[0] = math.ldexp(n, exponent)
            # The even number is below the midpoint, or above it.
            row[1] = math.ldexp(n * (1 + 2 * odd), half)
            row[2] = (side - 1) * math.ldexp(1, hair)
        for signed in (values, -values):
            for view in (signed, np.asfortranarray(signed)):
                total = gr.sum(view / n, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
                assert_rows(total, view / n, result, 1, (result, isa, n, "sum"))
                mean = gr.mean(view, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
                assert_rows(mean, view, result, n, (result, isa, n, "mean"))


@pytest.mark.parametrize("result", FLOATS)
def test_what_two_doubles_hold_may_be_infinite_together(result: str, isa: str) -> None:
    largest = float(np.finfo(np.float64).max)
    values = np.zeros((3, 5))
    # Each is less than half of the largest one's last place.
    values[0] = [largest, *[math.ldexp(7, 967)] * 3, 0]
    values[1] = -values[0]
    values[2] = [largest, *[math.ldexp(1, 967)] * 3, 0]
    for view in (values, np.asfortranarray(values)):
        total = gr.sum(view, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
        assert_rows(total, values, result, 1, (result, isa))
        mean = gr.mean(view, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu")
        assert_rows(mean, values, result, 5, (result, isa))


def test_what_two_doubles_lose_is_seen_where_it_cancels(isa: str) -> None:
    row = np.array([2.0**300, 2.0**200, 2.0**100, 1, -(2.0**100), -(2.0**300), -(2.0**200)])
    for behind in (0, 40):  # elements that are added after others were lost
        n = len(row) + behind
        signs = np.where(np.arange(70) % 2 == 0, 1, -1)  # 70: lanes of vectors, and of none
        values = np.outer(signs, np.pad(row, (0, behind)))
        for view in (values, np.asfortranarray(values)):
            total = gr.sum(view, axis=1, kernel="exact", device="cpu")
            assert_rows(total, values, "float64", 1, (isa, n))


@pytest.mark.parametrize("name", FLOATS)
def test_elements_that_are_left_out_leave_no_trace(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for n in some((3, 40, 64, 300, 3000, 5000), 1 / 2, f"left out {name} {isa}"):
        rows = 70 if n < 1000 else 3
        values = hard_rows(rng, name, rows, n)
        keep = rng.random((rows, n)) < rng.choice([0.2, 0.9])
        keep[0] = False
        keep[1:, 0] = True
        values[1] = np.copysign(DTYPES[name].type(0), DTYPES[name].type(-1))
        with np.errstate(invalid="ignore"):
            nan = np.isnan(values.astype(np.float64))
        for order in ("C", "F"):
            view, mask = np.asarray(values, order=order), np.asarray(keep, order=order)
            masked = gr.sum(view, axis=1, where=mask, kernel="exact", device="cpu")
            skipped = gr.nansum(view, axis=1, kernel="exact", device="cpu")
            masked_means = gr.mean(view[1:], axis=1, where=mask[1:], kernel="exact", device="cpu")
            with np.errstate(invalid="ignore"):  # of NaN that signal
                means = gr.nanmean(view[1:], axis=1, kernel="exact", device="cpu")
            for r in range(rows):
                context, kept = (r, isa, n, order, SEED), values[r][keep[r]]
                assert_result(masked[r], expected(kept, name), context)
                if r > 0:
                    assert_result(masked_means[r - 1], expected(kept, name, kept.size), context)
                assert_result(skipped[r], expected(values[r][~nan[r]], name), context)
                if r > 0 and not nan[r].all():
                    left = values[r][~nan[r]]
                    assert_result(means[r - 1], expected(left, name, left.size), context)


def test_results_go_where_they_belong(rng: np.random.Generator) -> None:
    values = hard_rows(rng, "float64", 6 * 5 * 4, 11).reshape(6, 5, 4, 11)
    for axis, order in (((3,), "C"), ((0,), "C"), ((1,), "F"), ((0, 2), "C"), ((1, 3), "F")):
        view = np.asarray(values, order=order)
        kept = tuple(a for a in range(4) if a not in axis)
        rows = view.transpose(*kept, *axis).reshape(-1, int(np.prod([view.shape[a] for a in axis])))
        out = np.zeros([2 * view.shape[a] for a in kept])[tuple(slice(None, None, 2) for _ in kept)]
        gr.sum(view, axis=axis, kernel="exact", device="cpu", out=out)
        assert_rows(out.ravel(), rows, "float64", 1, (axis, order))
    # 70 rows are a unit and part of one; twice.
    side_by_side = hard_rows(rng, "float64", 2 * 70, 7).reshape(2, 70, 7)
    total = gr.sum(side_by_side.transpose(0, 2, 1).copy(), axis=1, kernel="exact", device="cpu")
    assert_rows(total.ravel(), side_by_side.reshape(-1, 7), "float64", 1, "side by side")


@pytest.mark.parametrize("axis", [0, 1])
def test_number_of_threads_changes_no_bit(axis: int, rng: np.random.Generator) -> None:
    values = spread(rng, "float32", 300_000, 2).reshape(-1, 3)
    values[17, 1] = np.nan
    rows = values if axis == 1 else values.T
    some = range(3) if axis == 0 else [17, *rng.integers(0, len(rows), 500)]
    before, results = gr.limits().cpu_threads, []
    try:
        for threads in (1, 2, 5):
            gr.set_limits(cpu_threads=threads)
            results.append(gr.sum(values, axis=axis, kernel="exact", device="cpu"))
    finally:
        gr.set_limits(cpu_threads=before)
    assert len({got.tobytes() for got in results}) == 1, (axis, SEED)
    for r in some:
        assert_result(results[0][r], expected(rows[r], "float32"), (r, axis, SEED))


def test_rows_that_no_pair_holds_are_exact_on_one_thread(rng: np.random.Generator) -> None:
    """Long rows whose plain sums are rounded again and again: others than pairs add them."""
    values = spread(rng, "float64", 6 * 40_000, 900).reshape(6, -1)
    before = gr.limits().cpu_threads
    try:
        gr.set_limits(cpu_threads=1)
        got = gr.sum(values, axis=1, kernel="exact", device="cpu")
    finally:
        gr.set_limits(cpu_threads=before)
    assert got.tolist() == [math.fsum(row) for row in values], SEED


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_sums_of_pieces_that_no_pair_holds_together_are_added_exactly(
    layout: str, threads: int, rng: np.random.Generator
) -> None:
    """Long rows of which every piece is two doubles, all but one of many: that is read again."""
    n, wide = 2**20 + 40_000, slice(700_000, 705_000)
    values = np.abs(rng.standard_normal((2, n)))
    values[:, n // 3 :] *= -(2.0**-110)
    values[:, 2 * n // 3 :] *= 2.0**190
    values[1, wide] *= 2.0 ** rng.integers(-300, 100, 5000)
    values[1, rng.integers(0, n, 4)] = np.nan
    mask = rng.random(n) < 0.6
    array = {
        "rows": values,
        "columns": np.ascontiguousarray(values.T).T,
        "strided": np.repeat(values, 2, axis=1)[:, ::2],
    }[layout]
    kept = np.where(np.isnan(values), 0.0, values)
    before = gr.limits().cpu_threads
    try:
        gr.set_limits(cpu_threads=threads)
        got = gr.sum(array, axis=1, device="cpu")
        without_nan = gr.nansum(array, axis=1, device="cpu")
        masked = gr.nansum(array, axis=1, where=mask, device="cpu")
    finally:
        gr.set_limits(cpu_threads=before)
    assert got[0] == math.fsum(values[0]), SEED
    assert np.isnan(got[1]), SEED
    assert without_nan.tolist() == [math.fsum(row) for row in kept], SEED
    assert masked.tolist() == [math.fsum(row[mask]) for row in kept], SEED
