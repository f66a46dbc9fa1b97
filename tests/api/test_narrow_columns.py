"""Positions, sums and variances of narrow columns, whose rows are reduced side by side, beside
NumPy.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import gpureduce as gr

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64",
)  # fmt: skip
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 40, 200)
LENGTHS = (1, 2, 15, 63, 64, 65, 129, 1000, 5003)


def draw(rng: np.random.Generator, name: str) -> Any:
    """Few different elements, so that many are equal; some floats are NaN, or nearly all."""
    shape = (int(rng.integers(1, 4)), int(rng.choice(LENGTHS)), int(rng.choice(WIDTHS)))
    x = rng.integers(0, rng.choice([2, 3, 50, 120]), shape).astype(name)
    if x.dtype.kind == "f" and rng.random() < 0.5:
        x[rng.random(shape) < rng.choice([1e-3, 0.9])] = np.nan
    match rng.integers(5):
        case 0:
            return x[:, ::-1]
        case 1:
            return np.repeat(x, 2, axis=2)[:, :, ::2]
        case 2:
            return x.astype(x.dtype.newbyteorder())
        case 3:
            return np.repeat(x, 2, axis=1)[:, ::2]
    return x


@pytest.mark.parametrize("name", DTYPES)
def test_positions_in_narrow_columns_are_the_first(name: str, rng: np.random.Generator) -> None:
    for _ in range(150):
        x = draw(rng, name)
        for function in ("argmax", "argmin", "nanargmax", "nanargmin"):
            if function.startswith("nan") and np.isnan(x.astype(np.float64)).all(axis=1).any():
                continue
            got = getattr(gr, function)(x, axis=1, device="cpu")
            assert np.array_equal(got, getattr(np, function)(x, axis=1)), (function, x.shape)


def draw_blocks(rng: np.random.Generator, name: str) -> Any:
    """Many blocks of few columns: side by side, apart, or in another order."""
    shape = (
        int(rng.choice([1, 2, 3, 40, 300])),
        int(rng.integers(1, 140)),
        int(rng.integers(1, 9)),
    )
    x = rng.integers(0, rng.choice([2, 50, 120]), (*shape[:2], shape[2] + 3)).astype(name)
    if x.dtype.kind == "f" and rng.random() < 0.5:
        x[rng.random(x.shape) < rng.choice([1e-3, 0.9])] = np.nan
    match rng.integers(6):
        case 0:
            return x[:, ::-1, : shape[2]]
        case 1:
            return x[..., : shape[2]]
        case 2:
            return np.ascontiguousarray(x[..., : shape[2]]).astype(x.dtype.newbyteorder())
        case 3:
            return np.repeat(np.ascontiguousarray(x[..., : shape[2]]), 2, axis=0)[::-2]
        case 4:
            return np.broadcast_to(np.ascontiguousarray(x[:1, :, : shape[2]]), shape)
    return np.ascontiguousarray(x[..., : shape[2]])


@pytest.mark.parametrize("name", [*DTYPES, "float16"])
def test_positions_in_blocks_of_few_columns_are_numpys(name: str, rng: np.random.Generator) -> None:
    for _ in range(60):
        x = draw_blocks(rng, name)
        for function in ("argmax", "argmin", "nanargmax", "nanargmin"):
            if function.startswith("nan") and np.isnan(x.astype(np.float64)).all(axis=1).any():
                continue
            got = getattr(gr, function)(x, axis=1, device="cpu")
            assert np.array_equal(got, getattr(np, function)(x, axis=1)), (function, x.shape)
            out = np.zeros(8 * got.size + 1, np.uint8)[1:].view(np.int64).reshape(got.shape)
            getattr(gr, function)(x, axis=1, device="cpu", out=out)
            assert np.array_equal(got, out), (function, x.shape)


@pytest.mark.parametrize("name", ["float32", "float64", "complex64"])
def test_sums_and_variances_of_few_rows_are_numpys(name: str, rng: np.random.Generator) -> None:
    for _ in range(60):
        x = rng.normal(size=(int(rng.integers(2, 9)), int(rng.integers(1, 3000)))).astype(name)
        x[0, ::97] = -0.0
        x[1:, ::97] = -0.0
        wide = x.astype(np.complex128 if name.startswith("c") else np.float64)
        total = gr.sum(x, axis=0, kernel="fast", device="cpu")
        assert np.allclose(total, wide.sum(axis=0), rtol=1e-5, atol=1e-5)
        assert not np.signbit(total.real[::97]).any()  # a sum starts at +0
        mean = gr.mean(x, axis=0, kernel="fast", device="cpu")
        assert np.allclose(mean, wide.mean(axis=0), rtol=1e-5, atol=1e-5)
        variance = gr.var(x, axis=0, device="cpu")
        assert np.allclose(variance, wide.var(axis=0), rtol=1e-5, atol=1e-6)
        assert (gr.var(np.broadcast_to(x[:1], x.shape), axis=0, device="cpu") == 0).all()


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64"])
def test_sums_and_products_of_small_blocks_are_numpys(name: str, rng: np.random.Generator) -> None:
    """Columns of a few elements, of which many blocks are packed side by side."""
    for _ in range(40):
        n, width = int(rng.integers(1, 13)), int(rng.integers(1, 20))
        x = rng.integers(-3, 4, (int(rng.integers(1, 4)), int(rng.integers(1, 900)), n, width))
        x = np.where(rng.random(x.shape) < 0.2, -0.0, x).astype(name)  # sums and products exact
        for function in ("sum", "prod"):
            x = np.sign(x) * 2 if function == "prod" else x
            options = {"kernel": "fast"} if function == "sum" else {}
            got = getattr(gr, function)(x, axis=2, device="cpu", **options)
            expected = getattr(np, function)(x.astype(np.result_type(name, np.float64)), axis=2)
            assert got.dtype == x.dtype
            assert np.array_equal(got, expected), (function, x.shape)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_truths_of_complex_columns_are_numpys(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    """Zeros of either sign are false; NaN and the smallest numbers, in either part, are true."""
    real = np.zeros(1, name).real.dtype
    nothing = np.array([0.0, -0.0], real)
    something = np.array([1, -1, np.nan, np.inf, np.finfo(real).smallest_subnormal], real)
    for _ in range(60):
        shape = (int(rng.integers(1, 30)), int(rng.integers(1, 140)))
        parts = rng.choice(nothing, (shape[0], 2 * shape[1]))
        is_something = rng.random(parts.shape) < rng.choice([0.0, 0.02, 0.5, 0.98])
        parts[is_something] = rng.choice(something, int(is_something.sum()))
        values = parts.view(name)
        for function in ("any", "all"):
            got = getattr(gr, function)(values, axis=0, device="cpu")
            wanted = getattr(np, function)(values, axis=0)
            assert np.array_equal(got, wanted), (function, name, isa, shape)


def test_positions_of_bools_are_the_first_in_rows_of_any_length(rng: np.random.Generator) -> None:
    lengths = (1, 4, 7, 8, 9, 15, 16, 17, 33, 64, 513, 2500, 300_000)
    for _ in range(150):
        shape = (int(rng.integers(1, 20)), int(rng.choice(lengths)))
        x = rng.random(shape, np.float32) < rng.choice([0, 1e-5, 0.01, 0.5, 0.99, 1])
        if rng.random() < 0.3:  # any byte but 0 is true
            x = (x * rng.integers(1, 255, shape, np.uint8)).view(np.bool_)
        match rng.integers(4):
            case 0:
                x = np.asfortranarray(x)
            case 1:
                x = x[:, ::-1]
        for name in ("argmax", "argmin"):
            wanted = getattr(np, name)(x.view(np.uint8) != 0, axis=1)
            assert np.array_equal(getattr(gr, name)(x, axis=1, device="cpu"), wanted), name


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_truths_of_float_columns_are_numpys(name: str, rng: np.random.Generator) -> None:
    dtype = pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)
    for _ in range(40):
        shape = int(rng.integers(1, 40)), int(rng.integers(1, 300))
        numbers = rng.choice([0.0, -0.0, 1e-7, -3.0, np.nan, np.inf], shape)
        x = np.where(rng.random(shape) < rng.choice([0.0, 0.1, 0.9, 1.0]), numbers, 0.0)
        x = np.where(rng.random(shape) < rng.choice([0.0, 0.95]), 1.0, x).astype(dtype)
        for axis in 0, 1, None:
            assert np.array_equal(gr.any(x, axis, device="cpu"), np.any(x != 0, axis))
            assert np.array_equal(gr.all(x, axis, device="cpu"), np.all(x != 0, axis))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_truths_of_complex_numbers_are_numpys(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for _ in range(40):
        shape = int(rng.choice([1, 2, 7, 20])), int(rng.integers(1, 300))
        parts = rng.choice([0.0, -0.0, 1e-42, -3.0, np.nan, np.inf], (2, *shape))
        shares = rng.choice([0.0, 0.01, 0.5, 0.99, 1.0], (2, 1, 1))
        parts = np.where(rng.random((2, *shape)) < shares, parts, 0.0)
        x = np.stack(parts, axis=-1).view(np.complex128)[..., 0].astype(name)
        x = np.where(rng.random(shape) < rng.choice([0.0, 0.95]), 1.0, x).astype(name)
        for axis in 0, 1, None:
            assert np.array_equal(gr.any(x, axis, device="cpu"), np.any(x, axis)), (axis, shape)
            assert np.array_equal(gr.all(x, axis, device="cpu"), np.all(x, axis)), (axis, shape)


def test_positions_of_bools_in_few_columns_are_the_first(rng: np.random.Generator) -> None:
    for _ in range(150):
        rows = int(rng.integers(2, rng.choice([40, 200])))
        shape = int(rng.integers(1, 40)), rows, int(rng.integers(1, 12))
        x = (rng.random(shape) < rng.choice([0.003, 0.5, 0.997])).view(np.uint8)
        x = (x * rng.choice([1, 2, 255])).astype(np.uint8).view(np.bool_)
        x = x[tuple(slice(None, None, int(step)) for step in rng.choice([1, -1], 3))]
        for function in ("argmax", "argmin"):
            got = getattr(gr, function)(x, axis=1, device="cpu")
            assert np.array_equal(got, getattr(np, function)(x != 0, axis=1)), (function, shape)


def test_extremes_of_bfloat16_are_elements(isa: str, rng: np.random.Generator) -> None:
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    for rows in 2, 5:
        x = rng.integers(0, 1 << 16, (rows, 300), np.uint16).view(dtype)
        x[:, 0] = np.array(rng.choice([0xFFC1, 0x7F81], rows), np.uint16).view(dtype)
        wide = x.astype(np.float32)
        # NumPy's fmax takes signalling NaN for numbers.
        wide[np.isnan(wide)] = np.nan
        for name, function in {"min": np.min, "max": np.max, "nanmax": np.fmax.reduce}.items():
            for axis in 0, 1:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = getattr(gr, name)(x, axis=axis, device="cpu")
                wanted = function(wide, axis=axis)
                assert np.array_equal(got.astype(np.float32), wanted, equal_nan=True), name
                is_nan = np.isnan(wanted)
                assert np.isin(got[is_nan].view(np.uint16), [0x7FC0, 0xFFC0]).all(), name


@pytest.mark.parametrize("name", ["bool", "int8", "int16", "float32", "float64"])
def test_positions_are_the_first_where_a_part_is_narrower_or_shorter_than_a_vector(
    name: str, rng: np.random.Generator
) -> None:
    """The last columns of many, and the last rows of few: what is left makes a task of its own."""
    size, segment, piece = np.dtype(name).itemsize, 256, 256 << 10

    def expect(shape: tuple[int, ...]) -> None:
        x = rng.integers(0, 5 if name == "bool" else 50, shape).astype(name.replace("bool", "u1"))
        x[-3:] = rng.integers(0, 60)
        x = x.view(np.bool_) if name == "bool" else x
        for function in ("argmin", "argmax"):
            wanted = getattr(np, function)(x != 0 if name == "bool" else x, axis=0)
            got = getattr(gr, function)(x, axis=0, device="cpu")
            assert np.array_equal(got, wanted), (function, shape)

    for rows in (2, 30, 700):
        expect((rows, 16 * segment + 1))
    for width in (1, 3, 14):
        most = -(-(piece // (size * width)) // segment) * segment
        for more in (1, 2, 5):
            expect((most + more, width))


def test_extremes_of_one_16_bit_element_are_its_bits(rng: np.random.Generator) -> None:
    x = rng.integers(0, 1 << 16, (5, 1, 41), np.uint16)
    for dtype in np.float16, pytest.importorskip("ml_dtypes").bfloat16:
        for function in "min", "max", "nanmin":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = getattr(gr, function)(x.view(dtype), axis=1, device="cpu")
            same = got.view(np.uint16) == x[:, 0]
            if function == "nanmin":  # a row of NaN alone gives some NaN
                with np.errstate(invalid="ignore"):  # NaN that signal
                    same |= np.isnan(got) & np.isnan(x.view(dtype)[:, 0])
            assert same.all(), (dtype, function)


@pytest.mark.parametrize("threads", [1, 4])
def test_positions_in_several_long_rows_are_those_of_what_ends_them(
    threads: int, rng: np.random.Generator
) -> None:
    """Pieces of a row behind a NaN, or behind the first truth, are not searched."""
    before = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=threads)
    try:
        for name in ("float64", "float32", "float16", "complex64", "bool"):
            x = rng.standard_normal((4, 400_000)).astype(name)
            if name == "bool":
                x[:] = False
            for row in rng.permutation(4)[:3]:
                places = rng.integers(0, x.shape[1], 3)
                x[row, places] = True if name == "bool" else np.nan
            for a, axis in ((x, 1), (x[:, ::-1], 1), (x.T, 0), (np.ascontiguousarray(x.T), 0)):
                for function in ("argmax", "argmin"):
                    got = getattr(gr, function)(a, axis=axis, device="cpu")
                    assert np.array_equal(got, getattr(np, function)(a, axis=axis)), (
                        name,
                        function,
                    )
    finally:
        gr.set_limits(cpu_threads=before)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "complex64", "bool"])
def test_positions_in_rows_that_end_near_their_beginnings_are_numpys(
    name: str, threads: int, rng: np.random.Generator
) -> None:
    """First in all rows but one, which is read whole, then in all."""
    before = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=threads)
    try:
        for rows, length in ((3, 300_000), (70, 70_000), (600, 4_500), (90, 700), (40, 100)):
            x = rng.integers(-90, 90, (rows, length)).astype(name)
            if name == "bool":
                x[:] = False
            order = rng.permutation(rows)
            for ending in (order[1:], order[:1]):
                for row in ending:  # places of each size as often
                    place = int(min(length, 9000) ** rng.random()) - 1
                    x[row, place] = True if name == "bool" else np.nan
                for a in (x, x[:, ::-1], x[:, 1:]):
                    for function in ("argmax", "argmin"):
                        got = getattr(gr, function)(a, axis=1, device="cpu")
                        wanted = getattr(np, function)(a, axis=1)
                        assert np.array_equal(got, wanted), (function, rows, length)
    finally:
        gr.set_limits(cpu_threads=before)
