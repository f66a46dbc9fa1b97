"""`norm`, `average` and `vdot` beside NumPy and beside fractions.

NumPy gives shapes, dtypes and errors, and values within its own rounding. Fractions give the bits:
a 2-norm or 1-norm of real numbers is rounded once, and so are both sums of a weighted mean.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")

from exact_reference import FORMATS, root_to, round_to
from reference import DTYPES, random_array

import gpureduce as gr

ORDERS = (None, 2, 1, 0, math.inf, -math.inf, 3, 0.5, -1, "fro", "f")
NUMPYS = [name for name in DTYPES if name != "bfloat16"]
SHAPES = ((7,), (3, 5), (2, 3, 4), (0,), (0, 3), (3, 0), (), (1, 1))
AXES = (None, 0, -1, 1, 7, (0, 1), (1, 0), (0, -1), (0, 1, 2), (0, 0))
CLOSE = {"float16": 2e-2, "float32": 2e-5, "complex64": 2e-5}


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    return random_array(rng, DTYPES[name], math.prod(shape), "sum").reshape(shape)


def outcome(call: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return error


def assert_alike(got: Any, wanted: Any, context: str) -> None:
    """Like NumPy's: shape, dtype, the class of an error, or a value within NumPy's rounding."""
    if isinstance(got, Exception) or isinstance(wanted, Exception):
        assert type(got) is type(wanted), f"{context}: {got!r} {wanted!r}"
        return
    assert type(got) is type(wanted), f"{context}: {type(got)} {type(wanted)}"
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), context
    close = CLOSE.get(wanted.dtype.name, 1e-12)
    assert np.allclose(got, wanted, rtol=close, atol=close, equal_nan=True), (
        f"{context}: {got} {wanted}"
    )


@pytest.mark.parametrize("name", NUMPYS)
def test_norms_are_numpys(name: str, rng: np.random.Generator) -> None:
    for shape in SHAPES:
        x = draw(rng, name, shape)
        x = x if DTYPES[name].kind in "biu" else (x / 16).astype(x.dtype)
        for order in ORDERS:
            for axis in AXES:
                keepdims = bool(rng.random() < 0.5)
                context = f"{name} {shape} {order} {axis} {keepdims}"
                given: dict[str, Any] = {"ord": order, "axis": axis, "keepdims": keepdims}
                got = outcome(lambda x=x, g=given: gr.norm(x, device="cpu", **g))
                wanted = outcome(lambda x=x, g=given: np.linalg.norm(x, **g))
                if isinstance(got, ValueError) and "singular values" in str(got):
                    assert order == 2
                    assert len(shape) > 1
                    continue
                assert_alike(got, wanted, context)


@pytest.mark.parametrize("name", list(FORMATS))
def test_norms_are_rounded_once(name: str, rng: np.random.Generator) -> None:
    largest = FORMATS[name][1]
    for _ in range(30):
        shape = tuple(rng.integers(1, 9, 2))
        exponents = rng.integers(-(1 << (largest - 1)) + 4, (1 << (largest - 1)) - 8, shape)
        with np.errstate(all="ignore"):
            near = rng.integers(0, 4, shape)
            wide = np.ldexp(rng.normal(size=shape), np.where(rng.random() < 0.5, near, exponents))
            x = wide.astype(DTYPES[name])
        x[~np.isfinite(x.astype(np.float64))] = 0
        twos = gr.norm(x, axis=1, device="cpu")
        ones = gr.norm(x, 1, axis=1, device="cpu")
        for row, two, one in zip(x.astype(np.float64), twos, ones, strict=True):
            numbers = [Fraction(float(number)) for number in row]
            square = sum(number * number for number in numbers)
            assert two == root_to(square, name), (row, two)
            assert one == round_to(sum(map(abs, numbers), Fraction(0)), name), (row, one)


@pytest.mark.parametrize("name", [name for name in DTYPES if DTYPES[name].kind in "iu"])
def test_norms_of_integers_are_rounded_once(name: str, rng: np.random.Generator) -> None:
    info = np.iinfo(name)
    for n in (3, 100, 5000):
        for low, high in ((info.min, info.max), (max(info.min, -3), 3), (info.max - 1, info.max)):
            x = rng.integers(low, high, (2, n), dtype=name, endpoint=True)
            twos = gr.norm(x, axis=1, device="cpu")
            ones = gr.norm(x, 1, axis=1, device="cpu")
            for row, two, one in zip(x.tolist(), twos, ones, strict=True):
                square = sum(number * number for number in row)
                assert two == root_to(Fraction(square), "float64"), (n, low, high)
                assert one == round_to(Fraction(sum(map(abs, row))), "float64"), (n, low, high)


def test_norms_of_long_rows_are_rounded_once(rng: np.random.Generator) -> None:
    """Rows of many tiles, whose interval decides the result; and ties, where none does."""
    for name in ("float16", "float32", "float64"):
        for n in (8191, 8193, 100_003):
            rows = 1 if n > 100_000 else 3
            x = (rng.normal(size=(rows, n)) * 2.0 ** rng.integers(-9, 2, (rows, n))).astype(name)
            for order, exact in ((2, root_to), (1, round_to)):
                made = gr.norm(x, order, axis=1, device="cpu")
                for row, one in zip(x, made, strict=True):
                    parts = np.abs(row.astype(np.float64)).tolist()
                    total = sum((Fraction(part) ** order for part in parts), Fraction(0))
                    assert one == exact(total, name), (name, n, order)
    ties = {"float16": (1024, 3), "float32": (2.0**24, 1), "float64": (2.0**53, 1)}
    for name, (large, small) in ties.items():
        x = np.zeros(100_003, name)
        x[[5, 70_000]] = large, small
        if name == "float16":
            x[5:7] = large
        assert gr.norm(x, 1, device="cpu") == round_to(
            sum((Fraction(float(one)) for one in x[x != 0]), Fraction(0)), name
        )


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_columns_have_the_bits_of_their_copies(
    name: str, rng: np.random.Generator, isa: str
) -> None:
    """Columns side by side, of all widths about a vector's and of more rows than are added at once;
    some of them are left to the exact way.
    """
    for n in (1, 2, 16, 1023, 1025, 2100):
        width = int(rng.integers(7, 40))
        x = (rng.normal(size=(2, n, width)) * 10.0 ** rng.integers(-5, 5, (2, n, width))).astype(
            name
        )
        kind = rng.integers(4)
        if kind == 0:
            x = np.round(x)
        elif kind == 1:
            x[rng.random(x.shape) < 0.05] = rng.choice([np.inf, np.nan, 0, -0.0, 1e-30])
        weights = np.abs(rng.normal(size=n)).astype(name) + np.ones((), name)
        for given in (x, x[..., ::-1, :], x[..., ::2]):
            copies = [np.ascontiguousarray(one) for one in np.moveaxis(given, 1, 2).reshape(-1, n)]
            for order in (1, 2):
                made = gr.norm(given, order, axis=1, device="cpu").ravel()
                wanted = np.array([gr.norm(one, order, device="cpu") for one in copies])
                assert made.tobytes() == wanted.tobytes() or np.array_equal(made, wanted, True), isa
            with np.errstate(all="ignore"):
                made = gr.average(given, axis=1, weights=weights, device="cpu").ravel()
                own = [gr.average(one, weights=weights, device="cpu") for one in copies]
            assert np.array_equal(made, np.array(own), True), (n, width, isa)


def short_rows(rng: np.random.Generator, name: str) -> Any:
    """An array of three axes with rows of a few to some hundred numbers, in a random layout."""
    shape = [int(n) for n in rng.integers(1, 6, 3)]
    shape[rng.integers(3)] = int(
        rng.choice([1, 2, 3, 17, 100, 300, 1100], p=[1 / 5] * 4 + [1 / 15] * 3)
    )
    dtype = np.dtype(DTYPES.get(name, name))
    kind = rng.choice(["plain", "wide", "zeros"])
    values = rng.normal(size=shape) * 20
    if kind == "wide" and dtype.kind in "fc":
        values = values * 2.0 ** rng.integers(-9, 9, shape)
    if kind == "zeros":
        values[rng.random(shape) < 0.7] = 0
    if dtype.kind == "u":
        values = np.abs(values)
    x = (values + 1j * values[::-1] if dtype.kind == "c" else values).astype(dtype)
    layout = rng.choice(["C", "F", "permuted", "reversed", "strided", "swapped", "unaligned"])
    if layout == "F":
        return np.asfortranarray(x)
    if layout == "permuted":
        order = rng.permutation(3)
        return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    if layout == "reversed":
        return x[::-1, :, ::-1]
    if layout == "strided":
        return np.repeat(x, 2, axis=1)[:, ::2]
    if layout == "swapped":
        return x.astype(dtype.newbyteorder())
    if layout == "unaligned":
        memory = np.empty(x.nbytes + 1, np.uint8)[1:].view(dtype).reshape(x.shape)
        memory[...] = x
        return memory
    return x


def parts_of(number: Any) -> tuple[Fraction, Fraction]:
    value = complex(number)
    return Fraction(value.real), Fraction(value.imag)


@pytest.mark.parametrize("name", [*NUMPYS, "complex64", "complex128"])
def test_rows_side_by_side_are_rounded_once(name: str, rng: np.random.Generator, isa: str) -> None:
    """Of every type, layout and axis; of integers, some sums are halfway between two doubles."""
    for _ in range(6):
        x = short_rows(rng, name)
        axis: Any = (0, 1, 2, (0, 2), (2, 1))[rng.integers(5)]
        axes = (axis,) if isinstance(axis, int) else axis
        made = np.asarray(gr.norm(x, axis=axis, device="cpu"))
        rows = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(made.size, -1)
        to = made.dtype.name
        exact = [[parts_of(number) for number in row] for row in rows]
        for numbers, one in zip(exact, made.ravel(), strict=True):
            square = sum((re * re + im * im for re, im in numbers), Fraction(0))
            assert one == root_to(square, to), (name, x.shape, x.strides, axis, isa)
        weights = rng.uniform(0.1, 2, rows.shape[1]).astype(rng.choice(["float32", "float64"]))
        shaped = weights.reshape([x.shape[i] for i in axes])
        made = np.asarray(gr.average(x, axis=axis, weights=shaped, device="cpu"))
        ratios = [Fraction(float(weight)) for weight in weights]
        total = float(sum(ratios))
        for numbers, one in zip(exact, made.ravel(), strict=True):
            sums = [
                float(sum((parts[i] * w for parts, w in zip(numbers, ratios, strict=True))))
                for i in range(2)
            ]
            wanted = (
                np.complex128(complex(*sums)) / np.complex128(total)
                if made.dtype.kind == "c"
                else np.float64(sums[0]) / total
            )
            assert one == wanted.astype(made.dtype), (name, x.shape, x.strides, axis, isa)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_few_products_at_midpoints_are_rounded_once(
    name: str, rng: np.random.Generator, isa: str
) -> None:
    """Means of few numbers with weights of few bits, and roots of equal squares, are often halfway
    between two results, where no bound on an error decides.
    """
    for n in (1, 2, 3, 4, 9, 16, 25, 31, 32, 33, 36):
        columns = rng.normal(size=(n, 21)).astype(name)
        kind = rng.integers(3)
        weights = np.ones(n, name) if kind == 0 else np.full(n, rng.random(), name)
        if kind == 2:
            weights = rng.integers(1, 9, n).astype(name)
        total = sum(map(Fraction, weights.tolist()))
        for x, axis in ((columns, 0), (columns.T, 1), (np.ascontiguousarray(columns.T), 1)):
            made = gr.average(x, axis=axis, weights=weights, device="cpu")
            for row, one in zip(columns.T.tolist(), made, strict=True):
                products = [
                    Fraction(a) * Fraction(b) for a, b in zip(row, weights.tolist(), strict=True)
                ]
                wanted = np.float64(float(sum(products))) / float(total)
                assert one == wanted.astype(name), (n, kind, axis, row, isa)
        equal = np.broadcast_to(columns[:1], columns.shape)
        for x, axis in ((equal, 0), (equal.copy(), 0), (equal.T.copy(), 1)):
            made = gr.norm(x, axis=axis, device="cpu")
            for number, one in zip(columns[0].tolist(), made, strict=True):
                assert one == root_to(n * Fraction(number) ** 2, name), (n, axis, number, isa)


def test_products_at_midpoints_are_rounded_once(rng: np.random.Generator, isa: str) -> None:
    """Sums of more products than few, halfway between two doubles, of any layout."""
    for name in ("bool", "int16", "int64", "float32", "float64", "complex64", "complex128"):
        n, rows = 2 * int(rng.integers(17, 120)), int(rng.integers(3, 90))
        x = rng.integers(0, 2, (rows, n)).astype(name)
        x[0] = 1
        if x.dtype.kind == "c":
            x.imag = x.real[::-1]
        # of 53 bits, so that about half of their multiples are between two doubles
        weight = float(rng.integers(2**52, 2**53) | 1) * 2.0**-40
        for weights in (np.full(n, weight), np.full((rows, n), weight)):
            made = gr.average(x, axis=1, weights=weights, device="cpu")
            split = x.reshape(rows, 2, n // 2)[:, ::-1]
            own = np.broadcast_to(weights, x.shape).reshape(split.shape)
            total = float(Fraction(weight) * n)
            for part in ("real", "imag") if x.dtype.kind == "c" else ("real",):
                for row, one in zip(getattr(x, part), getattr(made, part), strict=True):
                    wanted = np.float64(float(Fraction(weight) * int(row.sum())))
                    wanted = wanted * (1 / total) if x.dtype.kind == "c" else wanted / total
                    assert one == wanted, (name, n, rows, weight, isa)
            swapped = split.astype(split.dtype.newbyteorder())
            for other in (split, np.asfortranarray(split), swapped):
                again = gr.average(other, axis=(1, 2), weights=own, device="cpu")
                assert np.array_equal(again, made), (name, n, rows, weight, isa)


def laid_out(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same elements in memory in another order of axes, and perhaps of bytes."""
    order = rng.permutation(x.ndim)
    made = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    return made.astype(x.dtype.newbyteorder()) if rng.random() < 0.2 else made


def with_parts(rng: np.random.Generator, make: Any, name: str) -> np.ndarray:
    x = np.asarray(make())
    if np.dtype(name).kind == "c":
        wide = np.empty(x.shape, "complex128")
        wide.real, wide.imag = x, make()
        x = wide
    return laid_out(rng, x.astype(name))


FACTORS = ("bool", "int8", "uint16", "int16", "float16", "float32", "float64", "complex64",
           "complex128")  # fmt: skip


@pytest.mark.parametrize("weights_name", ["float16", "float32", "complex64", "complex128"])
def test_averages_of_short_rows_are_of_sums_rounded_once(
    weights_name: str, rng: np.random.Generator, isa: str
) -> None:
    """Both factors in any order of memory; half of the sums have few bits, and may be midpoints."""
    for _ in range(8):
        name, shape = str(rng.choice(FACTORS)), (int(rng.integers(3, 40)), int(rng.integers(2, 30)))
        axis, bits = int(rng.integers(2)), int(rng.choice([3, 9]))

        def numbers(shape: Any = shape, bits: int = bits) -> np.ndarray:
            return rng.integers(1, 2**bits, shape) * 2.0 ** rng.integers(-4, 1)

        x = with_parts(rng, numbers, name)
        x = np.where(rng.random(shape) < 0.5, x, -x) if x.dtype.kind in "fc" else x

        def weights(shape: Any = shape) -> np.ndarray:
            return rng.uniform(0.5, 9, shape)

        w = with_parts(rng, weights, weights_name)
        made = gr.average(x, axis=axis, weights=w, device="cpu")
        sums, totals = [], []
        for row, own in zip(np.moveaxis(x, axis, 1), np.moveaxis(w, axis, 1), strict=True):
            a = [(Fraction(float(v.real)), Fraction(float(v.imag))) for v in row]
            b = [(Fraction(float(v.real)), Fraction(float(v.imag))) for v in own]
            re = sum(p * r - q * s for (p, q), (r, s) in zip(a, b, strict=True))
            im = sum(p * s + q * r for (p, q), (r, s) in zip(a, b, strict=True))
            sums.append(complex(float(re), float(im)))
            totals.append(complex(*(float(sum(part)) for part in zip(*b, strict=True))))
        if np.dtype(weights_name).kind == "c":
            wanted = (np.array(sums) / np.array(totals)).astype(made.dtype)
        elif x.dtype.kind == "c":
            wanted = np.array(sums) / np.array(totals).real
        else:
            wanted = np.array(sums).real / np.array(totals).real
        assert np.array_equal(made, wanted.astype(made.dtype)), (name, shape, axis, isa)


@pytest.mark.parametrize("weights_name", ["float32", "float64", "complex64", "complex128"])
def test_averages_side_by_side_are_those_of_each_row_alone(
    weights_name: str, rng: np.random.Generator, isa: str
) -> None:
    """With zeros, infinities and NaN, in short rows and in long ones: the same bits."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    for _ in range(8):
        name = str(rng.choice(FACTORS))
        shape = (int(rng.integers(3, 70)), int(rng.choice([2, 3, 17, 90, 300, 700])))
        share = float(rng.choice([0, 0.5, 3])) / shape[1]

        def numbers(shape: Any = shape, share: float = share, name: str = name) -> np.ndarray:
            x = np.round(rng.normal(size=shape) * 9, int(rng.integers(0, 4)))
            drawn = np.where(rng.random(shape) < share, rng.choice(special, shape), x)
            return drawn if np.dtype(name).kind in "fc" else np.abs(x) % 100

        def weights(shape: Any = shape) -> np.ndarray:
            return np.where(rng.random(shape) < 0.5, 0.0, rng.uniform(-3, 9, shape))

        x, w = with_parts(rng, numbers, name), with_parts(rng, weights, weights_name)
        w[:, 0] = 1000  # sums are not 0
        with np.errstate(all="ignore"):
            made = gr.average(x, axis=1, weights=w, device="cpu")
            alone = [gr.average(x[i], weights=w[i], device="cpu") for i in range(len(x))]
        for part in ("real", "imag"):
            one, other = getattr(made, part), getattr(np.array(alone), part)
            context = (name, shape, share, isa)
            assert np.array_equal(one, other, equal_nan=True), context
            there = ~np.isnan(one)
            assert np.array_equal(np.signbit(one)[there], np.signbit(other)[there]), context


def test_products_of_rows_that_come_again_are_those_of_copies(rng: np.random.Generator) -> None:
    for _ in range(100):
        shape = [int(extent) for extent in rng.choice([1, 2, 5, 17, 40, 90], rng.integers(2, 5))]
        small = [1 if rng.random() < 0.5 else extent for extent in shape]
        dtype = rng.choice(["float32", "float64", "complex64", "int8", "int64", "bool"])
        x = np.broadcast_to((rng.standard_normal(small) * 50).astype(dtype), shape)
        x = x.transpose(rng.permutation(len(shape)))
        axis = int(rng.integers(x.ndim))
        along = rng.random(x.shape[axis]) + 0.1
        steps = zip(x.shape, x.strides, strict=True)
        own = np.broadcast_to(rng.random([e if s else 1 for e, s in steps]), x.shape)
        for weights in (along, own + 0.5, rng.random(x.shape) + 0.5):
            made = gr.average(x, axis=axis, weights=weights, device="cpu")
            wanted = gr.average(x.copy(), axis=axis, weights=weights.copy(), device="cpu")
            assert np.array_equal(made, wanted), (dtype, small, x.shape, x.strides, axis)
        for order in (None, 1):
            made = gr.norm(x, order, axis=axis, device="cpu")
            wanted = gr.norm(x.copy(), order, axis=axis, device="cpu")
            assert np.array_equal(made, wanted), (dtype, small, x.shape, x.strides, axis, order)


def test_averages_over_each_rows_own_weights(rng: np.random.Generator) -> None:
    """Results are in memory in the order of the array, and totals in that of the weights."""
    for name in ("float32", "float64", "complex64", "complex128", "int16"):
        for _ in range(6):
            x = short_rows(rng, name)
            weights = np.asfortranarray(rng.uniform(0.1, 2, x.shape))
            axis = int(rng.integers(3))
            made, totals = gr.average(x, axis=axis, weights=weights, returned=True, device="cpu")
            rows = np.moveaxis(x, axis, -1).reshape(made.size, -1)
            theirs = np.moveaxis(weights, axis, -1).reshape(made.size, -1)
            for row, own, one, total in zip(rows, theirs, made.flat, totals.flat, strict=True):
                assert (one, total) == gr.average(row, weights=own, returned=True, device="cpu")


def test_zeros_of_averages_have_the_signs_of_their_products() -> None:
    zeros = np.zeros((2, 40))
    for x in (zeros, -zeros, zeros.astype(np.float32), zeros.astype(np.int8), zeros > 0):
        for weights in ([1.0, 2.0], [-1.0, -2.0], [-1.0, 3.0], [-0.0, -7.0]):
            own = [gr.vdot(x[:, i], np.array(weights), device="cpu") for i in range(40)]
            wanted = np.array(own) / sum(weights)
            made = gr.average(x, axis=0, weights=weights, device="cpu")
            assert np.array_equal(np.signbit(made), np.signbit(wanted)), (x.dtype, weights)
            assert not made.any()


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "int32"])
def test_long_rows_of_which_some_are_undecided_are_as_on_one_thread(
    name: str, rng: np.random.Generator, isa: str
) -> None:
    """Rows in pieces and in runs, some of which cancel: these alone are added exactly."""
    runs, run = int(rng.choice([1, 3, 60])), int(rng.choice([700, 1100]))
    runs *= 66_000 // (runs * run)
    rows = int(rng.choice([2, 5, 40])) if runs * run < 70_000 else 2
    x = draw(rng, "float64", (runs, rows, run))
    x = (x * 1000).astype(name) if name == "int32" else x.astype(name)
    weights = np.ones(x.shape, "float32" if name == "float32" else "float64")
    for row in rng.permutation(rows)[: max(1, rows // 3)]:  # pairs that cancel but for one
        half = x[:, row].reshape(-1)[: runs * run // 2]
        x[:, row] = np.resize(np.concatenate([half, -half]), (runs, run))
        x[-1, row, -1] = 3
        if rng.random() < 0.3:
            x[0, row, 0] = np.nan if name != "int32" else 1
    before = gr.limits().cpu_threads
    results = {}
    try:
        for threads in (1, 2):
            gr.set_limits(cpu_threads=threads)
            with np.errstate(all="ignore"):
                results[threads] = [
                    gr.average(x, (0, 2), weights, device="cpu"),
                    gr.norm(x, axis=(0, 2), device="cpu"),
                    gr.average(
                        np.moveaxis(x, 1, 0).copy(), (1, 2), np.moveaxis(weights, 1, 0),
                        device="cpu",
                    ),
                ]  # fmt: skip
    finally:
        gr.set_limits(cpu_threads=before)
    for one, two in zip(*results.values(), strict=True):
        assert np.array_equal(one, two, equal_nan=True), f"{name} {x.shape} {isa}"
    assert np.array_equal(results[2][0], results[2][2], equal_nan=True), f"{name} {x.shape} {isa}"


@pytest.mark.parametrize("name", ["complex64", "complex128", ">c8", ">c16"])
def test_infinities_and_nan_of_complex_averages_are_numpys(
    name: str, rng: np.random.Generator
) -> None:
    """Both parts of a number are where one of them is infinite or NaN."""
    for _ in range(60):
        rows, n = int(rng.integers(1, 80)), int(rng.choice([1, 3, 20, 60, 700]))
        x = (rng.normal(size=(rows, n)) + 1j * rng.normal(size=(rows, n))).astype(name)
        part = x.real if rng.random() < 0.5 else x.imag
        for number, share in ((np.inf, 0.3), (np.nan, rng.choice([0, 0.3]))):
            part[rng.random((rows, n)) < share / n] = number
        weights = rng.integers(0, 9, n) + 0.125
        weights[rng.random(n) < 1 / n] = 0
        weights[0] = 1
        x = np.asfortranarray(x) if rng.random() < 0.3 else x
        got = outcome(lambda x=x, w=weights: gr.average(x, axis=1, weights=w, device="cpu"))
        wanted = outcome(lambda x=x, w=weights: np.average(x, axis=1, weights=w))
        for a, b in ((got.real, wanted.real), (got.imag, wanted.imag)):
            assert np.allclose(a, b, rtol=2e-5, atol=2e-5, equal_nan=True), (rows, n)


def test_results_are_in_memory_in_the_order_of_numpys(rng: np.random.Generator) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        x = rng.normal(size=(4, 5, 6)).transpose(order)
        for axis in range(3):
            weights = rng.uniform(1, 2, x.shape[axis])
            integers = (x * 9).astype("int16")
            for made, numpys in (
                (gr.norm(x, axis=axis, device="cpu"), np.linalg.norm(x, axis=axis)),
                *(
                    (
                        gr.norm(y, order, axis=axis, device="cpu"),
                        np.linalg.norm(y, order, axis=axis),
                    )
                    for y in (x, integers, x + 1j)
                    for order in (0, 1, 3, np.inf, -np.inf)
                ),
                (
                    gr.average(x, axis=axis, weights=weights, device="cpu"),
                    np.average(x, axis=axis, weights=weights),
                ),
            ):
                assert made.strides == numpys.strides, (order, axis)


@pytest.mark.parametrize("name", [*NUMPYS, "complex64", "complex128"])
def test_orders_of_all_layouts_are_numpys(name: str, rng: np.random.Generator, isa: str) -> None:
    """Extremes and counts are NumPy's, and sums of magnitudes of real numbers are rounded once."""
    for _ in range(8):
        x = short_rows(rng, name)
        plain = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
        # of which float16 would overflow
        powers = plain.astype("float32") if name == "float16" else plain
        keepdims = bool(rng.random() < 0.3)
        for axis in range(-3, 3):
            context = f"{name} {x.shape} {x.strides} {x.dtype} {axis} {keepdims} {isa}"
            for order in (np.inf, -np.inf, 0):
                made = gr.norm(x, order, axis, keepdims, device="cpu")
                wanted = np.linalg.norm(plain, order, axis, keepdims)
                if x.dtype.kind == "c" and order != 0:  # magnitudes depend on the layout
                    assert_alike(made, wanted, f"{context} {order}")
                    continue
                assert made.dtype == wanted.dtype, context
                assert np.array_equal(made, wanted), f"{context} {order}: {made} {wanted}"
            for order in (1, 3, -0.5):
                with np.errstate(all="ignore"):
                    made = gr.norm(x, order, axis, keepdims, device="cpu")
                    wanted = np.linalg.norm(powers, order, axis, keepdims).astype(made.dtype)
                assert_alike(made, wanted, f"{context} {order}")
            if x.dtype.kind == "c":
                continue
            made = gr.norm(x, 1, axis, device="cpu")
            rows = np.moveaxis(plain, axis, -1).reshape(made.size, -1).tolist()
            for row, one in zip(rows, made.ravel(), strict=True):
                total = sum((abs(Fraction(number)) for number in row), Fraction(0))
                assert one == round_to(total, made.dtype.name), context


@pytest.mark.parametrize("name", ["float32", "float64", "complex64"])
def test_powers_that_leave_the_range_are_numpys(name: str, rng: np.random.Generator) -> None:
    """Powers of some elements overflow or underflow, with NumPy's warnings."""
    most = np.log2(float(np.finfo(name).max))
    for order in (3, 4.0, 5):
        for _ in range(6):
            x = draw(rng, "float64", (3, int(rng.integers(1, 4000)))).astype(name)
            count = int(rng.integers(0, 4))
            exponents = rng.choice([most - 1, most / order - 0.5, most / order + 0.1, -most], count)
            x[rng.integers(0, 3, count), rng.integers(0, x.shape[1], count)] = 2.0**exponents
            if rng.random() < 0.3:
                x[0, -1] = rng.choice([np.inf, np.nan])
            for axis in (0, 1):
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    wanted = np.linalg.norm(x, order, axis)
                    of_numpy = {str(warning.message) for warning in told}
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    made = gr.norm(x, order, axis, device="cpu")
                assert_alike(made, wanted, f"{name} {x.shape} {exponents} {order} {axis}")
                assert {str(warning.message) for warning in told} <= of_numpy
                assert of_numpy <= {str(one.message) for one in told} | {
                    "overflow encountered in reduce"  # of sums that are not rounded between
                }
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="in power"):
            gr.norm(np.array([1, 2.0 ** (most - 1)], name), order, 0, device="cpu")


def test_squares_leave_the_range_and_norms_do_not() -> None:
    for scale in (2.0**600, 2.0**-600, 2.0**-1070):
        x = np.array([3.0, -4.0]) * scale
        assert gr.norm(x, device="cpu") == 5 * scale
        assert gr.norm(x[:, None] * [[1, 0]], axis=0, device="cpu").tolist() == [5 * scale, 0]
        z = np.array([3 - 4j]) * scale
        assert gr.norm(z, device="cpu") == 5 * scale
    x = np.float32([3, 4]) * np.float32(2.0**100)
    assert gr.norm(x, device="cpu") == np.float32(5 * 2.0**100)


@pytest.mark.parametrize("name", NUMPYS)
def test_norms_of_one_number_are_its_magnitude(name: str, rng: np.random.Generator) -> None:
    dtype = DTYPES[name]
    for _ in range(20):
        rows = int(rng.choice([1, 7, 600, 5000]))
        x = draw(rng, name, (rows, 2))
        if dtype.kind in "fc":
            x[rng.random(x.shape) < 0.05] = np.nan
            x[rng.random(x.shape) < 0.05] = -np.inf
            x[0] = -0.0
        elif dtype.kind == "i":
            x[0] = np.iinfo(dtype).min
        x = x.astype(dtype.newbyteorder()) if rng.random() < 0.3 else x
        for one in (x[:, :1], x[::-1, 1:], x[: rows // 2 + 1].copy()[:, None, :]):
            for order in (None, 2, 1):
                made = gr.norm(one, order, axis=1, device="cpu")
                if dtype.kind == "c":
                    wanted = outcome(lambda x=one: np.linalg.norm(x, axis=1))
                    assert np.allclose(made, wanted, rtol=2e-6, equal_nan=True)
                    continue
                exact = one.astype(dtype if dtype.kind == "f" else np.float64)
                wanted = np.squeeze(np.abs(exact), 1)
                assert made.dtype == wanted.dtype
                assert np.array_equal(made, wanted, equal_nan=True), (name, order, rows)
                assert not np.signbit(made).any(), (name, order, rows)


def test_orders_that_no_double_holds_are_numpys() -> None:
    x = np.array([3.0, -4.0])
    for order in (10**400, -(10**400), 2**70, np.nan, True, "two", None):
        got = outcome(lambda n=order: gr.norm(x, n, device="cpu"))
        assert_alike(got, outcome(lambda n=order: np.linalg.norm(x, n)), str(order)[:9])


def test_infinities_and_nan_are_numpys() -> None:
    numbers = (1.0, -0.0, np.inf, -np.inf, np.nan)
    for a in numbers:
        for b in numbers:
            for order in (2, 1, 0, np.inf, -np.inf):
                x = np.array([a, b, 2.0])
                got, wanted = gr.norm(x, order, device="cpu"), np.linalg.norm(x, order)
                assert got == wanted or (np.isnan(got) and np.isnan(wanted)), (x, order, got)


def test_layouts_do_not_change_a_bit_of_norms(rng: np.random.Generator) -> None:
    x = rng.normal(size=(6, 7, 8)) * 10.0 ** rng.integers(-200, 200, (6, 7, 8))
    z = x + 1j * x[::-1]
    for values in (x, z):
        plain = [gr.norm(values, axis=axis, device="cpu") for axis in (None, 0, (1, 2))]
        for other in (
            np.asfortranarray(values),
            np.repeat(values, 2, axis=2)[:, :, ::2],
            values[::-1, ::-1],
            values.astype(values.dtype.newbyteorder()),
        ):
            made = [gr.norm(other, axis=axis, device="cpu") for axis in (None, 0, (1, 2))]
            turned = plain if other.strides[0] > 0 else [plain[0], plain[1][::-1], plain[2][::-1]]
            for one, same in zip(made, turned, strict=True):
                assert np.array_equal(one, same)


@pytest.mark.parametrize("name", NUMPYS)
def test_averages_are_numpys(name: str, rng: np.random.Generator) -> None:
    for shape in SHAPES:
        x = draw(rng, name, shape)
        x = x if DTYPES[name].kind in "biu" else (x / 16).astype(x.dtype)
        n = len(shape)
        for axis in (None, 0, -1, (0, 1), (1, 0), 9):
            axes = () if axis is None else axis if isinstance(axis, tuple) else (axis,)
            along = tuple(shape[i] for i in axes if -n <= i < n)
            for wanted_shape in (shape, along, (2,)):
                weights = rng.integers(1, 9, wanted_shape).astype(
                    str(rng.choice(["int32", "float32", "float64", name]))
                )
                options: dict[str, Any] = {"axis": axis, "weights": weights}
                options["returned"] = bool(rng.random() < 0.5)
                if rng.random() < 0.5:
                    options["keepdims"] = bool(rng.random() < 0.5)
                got = outcome(lambda x=x, o=options: gr.average(x, device="cpu", **o))
                wanted = outcome(lambda x=x, o=options: np.average(x, **o))
                context = f"{name} {shape} {options}"
                if options["returned"] and isinstance(wanted, tuple):
                    assert_alike(got[1], wanted[1], context)
                    got, wanted = got[0], wanted[0]
                assert_alike(got, wanted, context)
            got = outcome(lambda x=x, a=axis: gr.average(x, axis=a, device="cpu"))
            wanted = outcome(lambda x=x, a=axis: np.average(x, axis=a))
            if not isinstance(wanted, ZeroDivisionError):  # of results that are none
                assert_alike(got, wanted, f"{name} {shape} {axis}")


def test_averages_of_both_sums_rounded_once(rng: np.random.Generator) -> None:
    for _ in range(40):
        x = rng.normal(size=(4, 9)) * 10.0 ** rng.integers(-5, 5, (4, 9))
        weights = rng.uniform(0.1, 2, 9)
        got = gr.average(x, axis=1, weights=weights, device="cpu")
        total = sum(map(Fraction, weights.tolist()))
        for row, average in zip(x.tolist(), got, strict=True):
            products = sum(
                Fraction(a) * Fraction(w) for a, w in zip(row, weights.tolist(), strict=True)
            )
            assert average == float(products) / float(total)


def test_weights_that_sum_to_zero_are_refused() -> None:
    for weights in ([1.0, -1.0], [0, 0]):
        with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
            gr.average([1.0, 2.0], weights=weights, device="cpu")


@pytest.mark.parametrize("name", NUMPYS)
def test_vdots_are_numpys(name: str, rng: np.random.Generator) -> None:
    for shape in SHAPES:
        x, y = draw(rng, name, shape), draw(rng, name, shape)
        if DTYPES[name].kind in "fc":
            x, y = (x / 16).astype(x.dtype), (y / 16).astype(x.dtype)
        for a, b in ((x, y), (x.T, y.T), (x, y.reshape(-1)), (x[..., ::-1] if x.ndim else x, y)):
            got = outcome(lambda a=a, b=b: gr.vdot(a, b, device="cpu"))
            assert_alike(got, outcome(lambda a=a, b=b: np.vdot(a, b)), f"{name} {shape}")


def test_vdots_of_complex_numbers_round_each_part_once(rng: np.random.Generator) -> None:
    x, y = (
        (rng.normal(size=40) + 1j * rng.normal(size=40)) * 10.0 ** rng.integers(-9, 9, 40)
        for _ in range(2)
    )
    got = gr.vdot(x.reshape(5, 8), y.reshape(5, 8), device="cpu")
    exact = [[Fraction(float(part)) for part in (z.real, z.imag)] for z in (*x, *y)]
    real = sum(a[0] * b[0] + a[1] * b[1] for a, b in zip(exact[:40], exact[40:], strict=True))
    imaginary = sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(exact[:40], exact[40:], strict=True))
    assert got == complex(float(real), float(imaginary))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_a_vdot_of_an_array_with_itself_is_that_with_a_copy(
    name: str, rng: np.random.Generator
) -> None:
    """Imaginary parts of such products cancel each other, unless they are no numbers."""
    special = [0, -0.0, 1e-30, 1e30, complex(np.inf, 0), complex(np.nan, 1), complex(0, -np.inf)]
    for n in (0, 1, 7, 300, 5000, 40_000):
        x = (rng.normal(size=2 * n) + 1j * rng.normal(size=2 * n)).astype(name)
        if n > 0 and rng.random() < 0.5:
            x[rng.integers(2 * n, size=2)] = rng.choice(special, 2)
        for given in (x, x[::2], x[::-1], x.reshape(2, -1), x.astype(x.dtype.newbyteorder("S"))):
            own, other = (gr.vdot(given, y, device="cpu") for y in (given, given.copy()))
            assert own.tobytes() == other.tobytes() or (own != own and other != other), (n, given)
            shifted = gr.vdot(x[1:], x[:-1], device="cpu")  # one memory, but not one array
            wanted = gr.vdot(x[1:].copy(), x[:-1].copy(), device="cpu")
            assert shifted.tobytes() == wanted.tobytes() or shifted != shifted


@pytest.mark.parametrize(
    ("words", "kind", "call"),
    [
        ("singular values", ValueError, lambda: gr.norm(np.eye(2), 2)),
        ("singular values", ValueError, lambda: gr.norm(np.eye(2), "nuc")),
        ("Invalid norm order for matrices", ValueError, lambda: gr.norm(np.eye(2), 3)),
        ("Improper number of dimensions", ValueError, lambda: gr.norm(np.ones((2, 2, 2)), 1)),
        ("Duplicate axes", ValueError, lambda: gr.norm(np.eye(2), "fro", (1, 1))),
        ("must be None, an integer", TypeError, lambda: gr.norm(np.eye(2), 2, "x")),
        ("holds strings", TypeError, lambda: gr.norm(np.array(["a"]))),
        ("on the CPU", ValueError, lambda: gr.norm(np.eye(2), axis=0, device="cuda")),
        ("equal sizes", ValueError, lambda: gr.vdot([1.0, 2.0], [1.0])),
        ("masked", TypeError, lambda: gr.norm(np.ma.array([1.0]))),
        ("shapes of a and weights", TypeError, lambda: gr.average(np.eye(2), weights=[1, 2])),
    ],
)
def test_mistakes_are_named(words: str, kind: type[Exception], call: Any) -> None:
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_average_of_numbers_with_a_part_of_zeros_has_its_sign(
    dtype: str, rng: np.random.Generator
) -> None:
    for number in range(40):
        shape = int(rng.integers(1, 70)), int(rng.integers(1, 90))
        axis = int(rng.integers(2))
        a = np.zeros(shape, dtype)
        a.real = rng.normal(size=shape) if rng.random() < 0.5 else -np.abs(rng.normal(size=shape))
        a.imag = rng.choice([0.0, -0.0], shape if rng.random() < 0.5 else 1)
        if rng.random() < 0.3:
            a.real, a.imag = a.imag.copy(), a.real.copy()
        weights = rng.uniform(1, 2, shape[axis]).astype(a.real.dtype)
        got, wanted = (each.average(a, axis=axis, weights=weights) for each in (gr, np))
        context = f"{number} {shape} {axis}"
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6, err_msg=context)
        for part in ("real", "imag"):
            ours, numpys = getattr(got, part), getattr(wanted, part)
            zeros = numpys == 0
            assert np.array_equal(ours == 0, zeros), context
            assert np.array_equal(np.signbit(ours[zeros]), np.signbit(numpys[zeros])), context


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_with_nan_change_no_bit_of_their_neighbours(
    dtype: str, rng: np.random.Generator
) -> None:
    """Norms of NaN have one pattern of bits, beside rows that are norms of their own."""
    for order in (None, 1):
        shape = int(rng.integers(2, 90)), int(rng.integers(1, 40))
        a = rng.normal(size=shape).astype(dtype)
        marked = rng.random(shape[0]) < 0.3
        a[rng.random(shape[0]) < 0.1, 0] = np.inf
        a[marked, rng.integers(0, shape[1])] = -np.array(np.nan, dtype)
        got = gr.norm(a, order, axis=1, device="cpu")
        alone = np.array([gr.norm(row, order, device="cpu") for row in a])
        weights = rng.uniform(1, 2, shape[1]).astype(dtype)
        averages = gr.average(a, axis=1, weights=weights, device="cpu")
        assert np.array_equal(np.isnan(got), marked), order
        assert np.array_equal(np.isnan(averages), marked), order
        assert np.array_equal(got[~marked], alone[~marked]), order
        nan = np.full(np.count_nonzero(marked), np.nan, dtype)
        assert got[marked].tobytes() == nan.tobytes(), order


@pytest.mark.parametrize("layout", ["F", "permuted"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint8"])
def test_largest_magnitudes_of_any_order_of_memory(
    dtype: str, layout: str, rng: np.random.Generator
) -> None:
    shape = tuple(int(extent) for extent in rng.integers(1, 7, 4))
    a = np.asarray(rng.normal(size=shape) * 50, dtype="float64").astype(dtype)
    a = np.asfortranarray(a) if layout == "F" else a.transpose(rng.permutation(4))
    for axis in range(4):
        got, wanted = gr.norm(a, np.inf, axis, device="cpu"), np.linalg.norm(a, np.inf, axis)
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted), (shape, axis)
        along = [i for i, extent in enumerate(got.shape) if extent > 1]
        assert [got.strides[i] for i in along] == [wanted.strides[i] for i in along], (shape, axis)
