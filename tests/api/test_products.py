"""Products whose factors leave the range of doubles on the way: compared with exact ones.

Factors have exponents over the whole range of their type, so that partial products overflow and
underflow in nearly every call, while the whole product is in range in many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from differential import EPS, LARGEST, LAYOUTS, SMALLEST, lay_out, name_of
from reference import BFLOAT16

import gpureduce as gr

REAL = [
    np.dtype(name)
    for name in ("float16", "float32", "float64", *([BFLOAT16] if BFLOAT16 is not None else []))
]
COMPLEX = [np.dtype(name) for name in ("complex64", "complex128")]
WIDE = np.finfo(np.float64)


def exponents_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Of the smallest number that is not 0, and of the largest."""
    name = name_of(dtype)
    return math.frexp(SMALLEST[name])[1] - 1, math.frexp(LARGEST[name])[1] - 1


def factors(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> Any:
    """Numbers that nearly cancel: each is followed, anywhere, by about its reciprocal.

    Or none of them is larger than 1, or none smaller.
    """
    low, high = exponents_of(dtype)
    most = min(-low, high) - 1
    if rng.random() < 0.3:
        mean = -WIDE.minexp * rng.uniform(0.3, 2) / count
        exponents = np.minimum(rng.integers(0, 2 * math.ceil(mean), count), most)
        values = np.ldexp(rng.uniform(1, 1.9, count), exponents)
        values[rng.random(count) < 0.2] = 1
        values = 1 / values if rng.random() < 0.7 else values
        if rng.random() < 0.1:
            values[rng.integers(count)] = rng.choice([0.0, np.inf, np.nan])
        with np.errstate(all="ignore"):
            return (values * rng.choice([-1.0, 1.0], count)).astype(dtype)
    half = rng.integers(-most, most + 1, (count + 1) // 2)
    exponents = rng.permutation(np.concatenate([half, -half]))[:count]
    values = np.ldexp(rng.uniform(1, 1.9, count), exponents) * rng.choice([-1.0, 1.0], count)
    kind = rng.random()
    if kind < 0.1:
        values[rng.integers(count)] = rng.choice([0.0, -0.0])
    elif kind < 0.2:
        values[rng.integers(count)] = rng.choice([np.inf, -np.inf])
    elif kind < 0.25:
        values[rng.integers(count, size=2)] = 0.0, np.inf
    elif kind < 0.35:
        with np.errstate(all="ignore"):
            values = values * rng.choice([2.0**-9, 2.0**9])  # out of range, if there are many
    if rng.random() < 0.2:
        values[rng.random(count) < 0.1] = np.nan
    with np.errstate(all="ignore"):
        return values.astype(dtype)


MOST_BITS, FAR = 300, 5000


def as_fraction(mantissa: int, exponent: int) -> Fraction:
    """mantissa * 2^exponent; exponents far out of any range become smaller, but stay out of it."""
    cut = max(mantissa.bit_length() - MOST_BITS, 0)
    exponent = max(min(exponent + cut, FAR), -FAR)
    return Fraction(mantissa >> cut) * Fraction(2) ** exponent


def exact_product(numbers: Iterable[float]) -> Fraction | float:
    """The product, or where it is no finite number but 0, what IEEE 754 makes of the numbers."""
    numbers = [float(x) for x in numbers]
    negative = sum(math.copysign(1, x) < 0 for x in numbers) % 2 == 1
    is_infinite, is_zero = any(map(math.isinf, numbers)), 0.0 in numbers
    if any(map(math.isnan, numbers)) or (is_infinite and is_zero):
        return math.nan
    if is_infinite or is_zero:
        return math.copysign(math.inf if is_infinite else 0.0, -1 if negative else 1)
    parts = [math.frexp(x) for x in numbers]
    mantissa = math.prod(int(part * 2**53) for part, _ in parts)
    return as_fraction(mantissa, sum(power - 53 for _, power in parts))


def assert_is_product(got: float, numbers: list[float], dtype: np.dtype[Any]) -> None:
    """Hold a result to the accuracy of multiplications one by one in double, rounded once."""
    exact, name = exact_product(numbers), name_of(dtype)
    if isinstance(exact, float):
        assert (got == exact and math.copysign(1, got) == math.copysign(1, exact)) or (
            math.isnan(exact) and math.isnan(got)
        ), f"{got} is not {exact}"
        return
    error = abs(exact) * Fraction((len(numbers) + 4) * EPS["float64"] + EPS[name] / 2)
    bound = error + Fraction(SMALLEST[name]) + Fraction(WIDE.smallest_subnormal)
    # All that is more than half the last place beyond the largest number is infinite.
    if math.isinf(got):
        assert abs(exact) + bound > Fraction(LARGEST[name]), f"{got} is finite"
        assert (got > 0) == (exact > 0)
        return
    assert math.isfinite(got), f"{got} is {float(exact)}"
    assert abs(Fraction(got) - exact) <= bound, f"{got} is {float(exact)}"
    assert math.copysign(1, got) == (1 if exact > 0 else -1), f"{got} is {float(exact)}"


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    return [
        (int(rng.integers(1, 70)),),
        (int(rng.integers(1000, 1200)),),
        tuple(rng.integers(1, 20, 2)),
        (int(rng.integers(100, 300)), int(rng.integers(1, 5))),
        (int(rng.integers(1, 5)), int(rng.integers(100, 300))),
        tuple(rng.integers(1, 7, 3)),
    ][rng.integers(6)]


@pytest.mark.parametrize("dtype", REAL, ids=name_of)
def test_a_product_leaves_the_range_only_as_a_whole(
    rng: np.random.Generator, dtype: np.dtype[Any], isa: str
) -> None:
    for _ in range(60):
        shape = random_shape(rng)
        values = factors(rng, dtype, math.prod(shape)).reshape(shape)
        array = lay_out(values, str(rng.choice([one for one in LAYOUTS if one != "overlapping"])))
        axis = None if rng.random() < 0.3 else int(rng.integers(array.ndim))
        mask = rng.random(shape) < 0.8 if rng.random() < 0.3 else np.True_
        name = str(rng.choice(["prod", "nanprod"]))
        options: dict[str, Any] = {} if mask is np.True_ else {"where": mask}
        start = float(np.ldexp(1.5, rng.integers(*exponents_of(dtype)) // 2))
        if rng.random() < 0.3:
            options["initial"] = rng.choice([start, 0.0, np.inf])
        result = getattr(gr, name)(array, axis=axis, device="cpu", **options)
        assert result.dtype == dtype
        kept = np.broadcast_to(mask, shape) & (
            (array == array) if name == "nanprod" else np.ones(shape, bool)
        )
        last = range(array.ndim) if axis is None else [axis]
        moved = [
            np.moveaxis(one, last, range(-len(last), 0)).reshape(*result.shape, -1)
            for one in (array.astype(np.float64), kept)
        ]
        begin = [float(dtype.type(options["initial"]))] if "initial" in options else []
        for index in np.ndindex(result.shape):
            row, left = (one[index] for one in moved)
            assert_is_product(float(result[index]), begin + row[left].tolist(), dtype)


def complex_product(numbers: Any) -> tuple[Fraction, Fraction]:
    """Both parts, to MOST_BITS bits of the larger one."""
    re, im, exponent = 1, 0, 0
    for x in numbers:
        power = math.frexp(max(abs(float(x.real)), abs(float(x.imag))))[1] - MOST_BITS
        a, b = (int(Fraction(float(part)) / Fraction(2) ** power) for part in (x.real, x.imag))
        re, im = re * a - im * b, re * b + im * a
        cut = max(re.bit_length(), im.bit_length(), MOST_BITS) - MOST_BITS  # they may cancel
        re, im, exponent = re >> cut, im >> cut, exponent + power + cut
    return as_fraction(re, exponent), as_fraction(im, exponent)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_products_of_complex_numbers_leave_the_range_only_as_a_whole(
    rng: np.random.Generator, dtype: np.dtype[Any], isa: str
) -> None:
    real = np.dtype(name_of(dtype))
    for _ in range(30):
        shape = random_shape(rng)
        count = math.prod(shape)
        parts = [np.nan_to_num(factors(rng, real, count), nan=1, posinf=2, neginf=2) for _ in "ab"]
        most = np.maximum(*map(np.abs, parts))
        parts[1] = (most * rng.uniform(0.1, 1, count)).astype(real)  # of like size in most
        values = (parts[0] + 1j * parts[1].astype(dtype)).astype(dtype).reshape(shape)
        array = lay_out(values, str(rng.choice(["c", "fortran", "strided", "negative"])))
        axis = None if rng.random() < 0.3 else int(rng.integers(array.ndim))
        result = gr.prod(array, axis=axis, device="cpu")
        last = range(array.ndim) if axis is None else [axis]
        rows = np.moveaxis(array, last, range(-len(last), 0)).reshape(*result.shape, -1)
        for index in np.ndindex(result.shape):
            exact = complex_product(rows[index])
            size = sum(map(abs, exact))
            n, name = rows.shape[-1], name_of(dtype)
            bound = size * Fraction(4 * (n + 4) * EPS["float64"] + EPS[name])
            bound += Fraction(SMALLEST[name])
            for got, part in zip((result[index].real, result[index].imag), exact, strict=True):
                if abs(part) + bound > Fraction(LARGEST[name]):
                    assert not math.isnan(got)
                    continue
                assert math.isfinite(got), f"{got} is {float(part)}"
                assert abs(Fraction(float(got)) - part) <= bound, f"{got} is {float(part)}"


def test_long_products_leave_the_range_only_as_a_whole(rng: np.random.Generator) -> None:
    """Pieces of rows and of columns, and their products, by several threads."""
    exponents = rng.integers(-1000, 1000, 200_000)
    values = np.ldexp(1.0, rng.permutation(np.concatenate([exponents, -exponents])))
    assert gr.prod(values, device="cpu") == 1
    assert gr.prod(values[::-1], initial=-4.0, device="cpu") == -4
    assert np.all(gr.prod(np.stack([values, -values], axis=1), axis=0, device="cpu") == 1)
    assert np.all(gr.prod(np.stack([values, -values]), axis=1, device="cpu") == 1)
    assert gr.prod(values * 1j, device="cpu") == 1
    few = np.ldexp(1.0, rng.permutation(np.concatenate([exponents[:9000], -exponents[:9000]])))
    wide = np.broadcast_to(few[:, None], (few.size, 1500))
    assert np.array_equal(gr.prod(wide, axis=0, device="cpu"), np.ones(1500))
    swapped = values.astype(values.dtype.newbyteorder())
    assert gr.prod(swapped, device="cpu") == 1
    # None is larger than 1: all but the last of the rows are 0, and that one is so small that it
    # has few bits.
    small = np.ldexp(1.0, -rng.integers(0, 3, (2, 300_000)))
    small[-1] = 1
    small[-1, rng.integers(0, 300_000, 500)] *= 0.5
    least = 1.5 * np.ldexp(1.0, -1060)
    small[-1, 77] *= least / np.prod(small[-1])
    for array in (small, np.ascontiguousarray(small.T).T, small[:, ::-1], small[::-1][::-1]):
        assert gr.prod(array, axis=1, device="cpu").tolist() == [0, least]
    assert gr.prod(1 / small[:1], device="cpu") == np.inf


def test_a_lane_that_loses_bits_is_noticed() -> None:
    """One lane becomes a subnormal number and another one so large that the product is normal."""
    values = np.ones(64)
    values[[0, 32]] = 1e-160, 1.1e-155  # in one lane: 1.1e-315 has few bits
    values[[1, 33]] = 1e150
    assert gr.prod(values, device="cpu") == pytest.approx(1.1e-15, rel=1e-14)
    columns = np.repeat(values[:, None], 40, axis=1)
    np.testing.assert_allclose(gr.prod(columns, axis=0, device="cpu"), 1.1e-15, rtol=1e-14)


def test_products_have_an_environment_of_their_own() -> None:
    """A product is the same after NumPy has left flags raised."""
    with np.errstate(all="ignore"):
        np.array([1e300]) * np.array([1e300])
    assert gr.prod(np.array([1e200, 1e200, 1e-200, 1e-200]), device="cpu") == pytest.approx(1)
    assert gr.prod(np.array([3.0, 5.0]), device="cpu") == 15
