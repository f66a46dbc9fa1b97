"""Elements with gaps between them, and columns of arrays that no cache holds, beside NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gpureduce as gr

BEYOND_CACHES = 42 << 20
"""Bytes of an array that the CPU backend reads row by row."""

DTYPES = ("float32", "float64", "complex64", "complex128", "int32", "int64", "uint64", "uint8")


@pytest.mark.parametrize("name", DTYPES)
def test_every_second_element_is_reduced_as_a_copy_is(name: str, rng: np.random.Generator) -> None:
    for _ in range(40):
        n, before = int(rng.integers(1, 5000)), int(rng.integers(0, 3))
        x = np.rint(rng.standard_normal(before + 2 * n - 1) * 50).astype(name)
        every_second = x[before::2]
        count = int(rng.choice([3, 9]))
        rows = np.rint(rng.standard_normal((count, 2 * n)) * 50).astype(name)[:, ::2]
        for function in ("sum", "max", "argmin", "var", "any", "prod"):
            reduce = getattr(gr, function)
            copied = reduce(every_second.copy(), device="cpu")
            # Sums of integers are exact in any order.
            same = np.allclose if function in ("var", "prod") else np.array_equal
            with np.errstate(all="ignore"):
                assert same(reduce(every_second, device="cpu"), copied, equal_nan=True), function
                for axis in 0, 1:
                    assert same(
                        reduce(rows, axis=axis, device="cpu"),
                        reduce(rows.copy(), axis=axis, device="cpu"),
                        equal_nan=True,
                    ), (function, axis)


@pytest.mark.parametrize("name", ["int8", "uint16", "int32", "int64", "float32", "float64"])
def test_positions_in_rows_of_runs_are_numpys(name: str, rng: np.random.Generator) -> None:
    for _ in range(25):
        run, gap = int(rng.choice([63, 64, 65, 200, 513, 5000])), int(rng.integers(1, 70))
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 5)), int(rng.integers(2, 150)))
        x = rng.integers(0, rng.choice([2, 60, 120]), (*shape, run + gap)).astype(name)
        if x.dtype.kind == "f" and rng.random() < 0.6:
            x[rng.random(x.shape) < rng.choice([1e-6, 1e-3, 0.9])] = np.nan
        x = x[..., :run]
        if rng.random() < 0.5:
            x = x[:, ::-1]
        flat, first = x.reshape(shape[0], -1), x[:, 0, 0]
        for function in ("argmax", "argmin", "nanargmax", "nanargmin"):
            if function.startswith("nan") and any(np.isnan(one).all() for one in (*flat, first)):
                continue
            reduce = getattr(gr, function)
            assert reduce(x, device="cpu") == getattr(np, function)(x), (function, x.shape)
            assert reduce(first, device="cpu") == getattr(np, function)(first), function


@pytest.mark.parametrize("name", ["float16", "int8", "int32", "int64", "uint64"])
def test_columns_that_are_widened_are_reduced_as_rows_are(
    name: str, rng: np.random.Generator
) -> None:
    for _ in range(40):
        width = int(rng.choice([31, 32, 33, 65, 500, 1500]))
        shape = (int(rng.integers(1, 4)), int(rng.integers(1, 200)), width + 3)
        x = np.rint(rng.standard_normal(shape) * 20).astype(name)[..., :width]
        if rng.random() < 0.5:
            x = x[:, ::-1]
        if rng.random() < 0.5:
            x = np.repeat(x, 2, axis=1)[:, ::2]
        rows = np.ascontiguousarray(np.moveaxis(x, 2, 0))
        for function in ("mean", "max", "nanmean"):
            for axis, of_rows in ((1, 2), ((0, 1), (1, 2))):
                got = getattr(gr, function)(x, axis=axis, kernel="fast", device="cpu")
                wanted = getattr(gr, function)(rows, axis=of_rows, kernel="fast", device="cpu")
                assert np.allclose(got, wanted.T, rtol=1e-3, atol=1e-9), (function, axis, shape)


@pytest.mark.parametrize("name", ["int64", "uint8", "float32", "complex64"])
def test_columns_that_no_cache_holds_are_numpys(name: str, rng: np.random.Generator) -> None:
    rows, width = int(rng.integers(2, 60)), int(rng.choice([64, 65, 127, 900, 3001]))
    blocks = BEYOND_CACHES // (rows * width * np.dtype(name).itemsize) + 1
    numbers = (rng.standard_normal(1 << 16) * 50).astype(name)
    if name == "complex64":
        numbers = numbers / abs(numbers)  # whose products stay in range
    x = np.resize(numbers, (blocks, rows, width))
    for function in ("prod",) if name == "complex64" else ("sum", "max", "any"):
        got = getattr(gr, function)(x, axis=1, kernel="fast", device="cpu")
        wanted = getattr(np, function)(x, axis=1)
        if function in ("sum", "prod") and name[0] in "fc":
            assert np.allclose(got, wanted, rtol=1e-3, atol=1e-3), function
        else:
            assert np.array_equal(got, wanted), function


def test_kept_axes_are_reduced_in_any_order_and_direction(rng: np.random.Generator) -> None:
    for _ in range(120):
        count = int(rng.integers(2, 5))
        shape = [int(extent) for extent in rng.choice([1, 2, 3, 5, 8, 17, 40], count)]
        name = rng.choice(["float32", "int8", "uint16", "int64", "complex64"])
        x = np.rint(rng.standard_normal(shape) * 20).astype(name).transpose(rng.permutation(count))
        x = x[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, -1], count))]
        axis = int(rng.integers(count))
        for function in ("argmax", "min", "sum", "any", "mean"):
            got = getattr(gr, function)(x, axis=axis, device="cpu")
            wanted = getattr(np, function)(x, axis=axis)
            same = np.allclose if function == "mean" else np.array_equal
            assert got.shape == wanted.shape, (function, x.shape, x.strides)
            assert same(got, wanted), (function, x.shape, x.strides)
        mask = rng.random(x.shape) < 0.7
        least, most = gr.minmax(x, axis=axis, initial=3, where=mask, device="cpu")
        assert np.array_equal(least, np.min(x, axis=axis, initial=3, where=mask))
        assert np.array_equal(most, np.max(x, axis=axis, initial=3, where=mask))
        out = np.empty_like(np.max(x, axis=axis))[..., ::-1]
        assert np.array_equal(gr.max(x, axis=axis, out=out, device="cpu"), np.max(x, axis=axis))


def test_positions_in_whole_arrays_of_any_order_are_the_first(rng: np.random.Generator) -> None:
    for _ in range(150):
        count = int(rng.integers(1, 5))
        shape = [int(extent) for extent in rng.choice([2, 3, 7, 16, 33, 64], count)]
        name = rng.choice(["float32", "float64", "int8", "uint16", "int32", "int64", "bool"])
        x = np.rint(rng.standard_normal(shape) * rng.choice([0.4, 2, 1e4])).astype(name)
        if name.startswith("float") and rng.random() < 0.4:
            x[rng.random(shape) < rng.choice([1e-3, 0.5])] = np.nan
        if rng.random() < 0.3:  # where equals are last in the order of positions
            x = np.sort(x.ravel())[:: int(rng.choice([-1, 1]))].reshape(shape)
        x = x.transpose(rng.permutation(count))
        x = x[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, -1], count))]
        for function in ("argmax", "argmin", "nanargmin", "nanargmax"):
            if function.startswith("nan") and np.isnan(x.astype(np.float64)).all():
                continue
            got, wanted = (getattr(module, function)(x) for module in (gr, np))
            assert got == wanted, (function, name, x.shape, x.strides)


def test_positions_and_variances_of_rows_made_of_runs_are_numpys(rng: np.random.Generator) -> None:
    for _ in range(60):
        shape = (int(rng.integers(1, 4)), int(rng.integers(2, 30)), int(rng.integers(500, 6000)))
        name = rng.choice(["float32", "float64", "complex128", "int8", "int64", "bool"])
        numbers = rng.standard_normal(shape) * 30 > 90 if name == "bool" else None
        x = np.rint(rng.standard_normal(shape) * 30).astype(name) if numbers is None else numbers
        if name[0] in "fc":
            x.flat[rng.integers(0, x.size, int(rng.integers(0, 3)))] = np.nan
        x = x[..., : int(rng.integers(400, shape[2]))]
        for function in ("argmin", "argmax"):
            wanted = getattr(np, function)(x)
            assert getattr(gr, function)(x, device="cpu") == wanted, (function, name, x.shape)
        for axis in None, (1, 2):
            got, wanted = (module.var(x, axis) for module in (gr, np))
            assert np.allclose(got, wanted, 1e-4, equal_nan=True), (name, x.shape, axis)


def test_extremes_of_rows_of_64_bit_integers_are_numpys(isa: str, rng: np.random.Generator) -> None:
    for n in (*range(31, 37), 100, 255, 500, 511, 512, 513, int(rng.integers(30, 600))):
        for name in ("int64", "uint64"):
            bits = rng.integers(0, 1 << 64, (n, 3, 9), np.uint64)
            x = np.asfortranarray(bits.view(name))
            for axes in (0, (0, 2)):
                for function in ("min", "max"):
                    got = getattr(gr, function)(x, axis=axes, device="cpu")
                    wanted = getattr(np, function)(x, axis=axes)
                    assert np.array_equal(got, wanted), (function, name, n, axes, isa)


@pytest.mark.parametrize("name", ["int8", "uint32", "float16", "float32", "float64", "complex64"])
def test_starts_of_so_many_results_that_threads_share_them(
    name: str, rng: np.random.Generator
) -> None:
    x = rng.integers(0, 4, (2, 150_001)).astype(name)
    if x.dtype.kind in "fc":
        x[:, rng.integers(x.shape[1], size=9)] = np.nan
        x[0, rng.integers(x.shape[1], size=9)] = np.nan
        x[0, rng.integers(x.shape[1], size=9)] = np.inf
    for function in ("sum", "prod", "min", "max", "nansum", "nanprod", "nanmin", "nanmax"):
        start = int(rng.integers(1, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = getattr(gr, function)(x, axis=0, initial=start, device="cpu")
            wanted = getattr(np, function)(x, axis=0, initial=start)
        assert got.dtype == wanted.dtype
        equal = (got == wanted) | ((got != got) & (wanted != wanted))
        assert equal.all(), (function, start, np.flatnonzero(~equal)[:5])
