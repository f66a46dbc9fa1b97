"""Exact sums by Python's integers, and arrays that are hard to sum.

The reference turns every element into an integer of the dtype's smallest unit, adds those, and
rounds fractions of them; a state's expected bytes are put together from docs/exact-format.md.
Nothing of it computes with floats.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from reference import DTYPES, is_float

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(name for name in DTYPES if name not in FLOATS)

# name: (stored bits of the fraction, bits of the exponent)
FORMATS = {"float16": (10, 5), "bfloat16": (7, 8), "float32": (23, 8), "float64": (52, 11)}
CODES = {name: i for i, name in enumerate(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
     "float16", "bfloat16", "float32", "float64"))}  # fmt: skip
WORDS = {"float16": 4, "bfloat16": 11, "float32": 11, "float64": 68, "int64": 5, "uint64": 5}
INF, MINUS_INF, NAN, NOT_MINUS_ZERO = 1, 2, 4, 8
WORDS_AT = 28


def name_of(dtype: np.dtype[Any]) -> str:
    return next(name for name, each in DTYPES.items() if each == dtype)


def unit_of(name: str) -> int:
    """Exponent of the smallest number of a dtype."""
    if name not in FORMATS:
        return 0
    fraction, exponent = FORMATS[name]
    return 2 - 2 ** (exponent - 1) - fraction


def fields(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sign, exponent field and fraction of floats."""
    fraction, exponent = FORMATS[name_of(values.dtype)]
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64).ravel()
    e = (bits >> np.uint64(fraction)) & np.uint64(2**exponent - 1)
    return bits >> np.uint64(fraction + exponent), e.astype(int), bits & np.uint64(2**fraction - 1)


def exact_sum(values: np.ndarray) -> int:
    """The sum of the finite elements, in the dtype's smallest units."""
    if not is_float(values.dtype):
        return sum(int(x) for x in values.ravel().tolist())
    fraction, exponent = FORMATS[name_of(values.dtype)]
    sign, e, low = fields(values)
    total = 0
    for field in np.unique(e).tolist():
        if field == 2**exponent - 1:
            continue
        here = e == field
        significands = low[here].astype(np.int64) + ((field > 0) << fraction)
        significands[sign[here] == 1] *= -1
        # In halves of 26 bits, whose sums NumPy's int64 holds.
        halves = int((significands >> 26).sum()) << 26, int((significands & (2**26 - 1)).sum())
        total += sum(halves) << max(field - 1, 0)
    return total


def is_finite(values: np.ndarray) -> np.ndarray:
    return fields(values)[1] != 2 ** FORMATS[name_of(values.dtype)][1] - 1


def flags_of(values: np.ndarray) -> int:
    if not is_float(values.dtype):
        return NOT_MINUS_ZERO if values.size else 0
    sign, e, low = fields(values)
    special = e == 2 ** FORMATS[name_of(values.dtype)][1] - 1
    flags = INF if (special & (low == 0) & (sign == 0)).any() else 0
    flags |= MINUS_INF if (special & (low == 0) & (sign == 1)).any() else 0
    flags |= NAN if (special & (low != 0)).any() else 0
    return flags | (NOT_MINUS_ZERO if ((sign == 0) | (e != 0) | (low != 0)).any() else 0)


def encode(name: str, total: int, count: int, flags: int) -> bytes:
    words = WORDS.get(name, 4)
    body = b"\x93GPRSUM\n" + struct.pack("<HHIQI", 1, CODES[name], flags, count, words)
    body += (total % 2 ** (32 * words)).to_bytes(4 * words, "little")
    return body + struct.pack("<I", zlib.crc32(body))


def expected_bytes(values: np.ndarray) -> bytes:
    return encode(name_of(values.dtype), exact_sum(values), values.size, flags_of(values))


def round_to(value: Fraction, name: str) -> Any:
    """A fraction rounded to a float type, to nearest, ties to even."""
    fraction, exponent = FORMATS[name]
    largest = 2 ** (exponent - 1)
    unit = Fraction(2) ** unit_of(name)
    if value != 0:
        top = abs(value.numerator).bit_length() - value.denominator.bit_length()
        top -= abs(value) < Fraction(2) ** top  # exponent of the leading bit
        unit = max(unit, Fraction(2) ** (top - fraction))
    rounded = round(value / unit) * unit  # of a Fraction: half to even
    if abs(rounded) >= Fraction(2) ** largest:
        return DTYPES[name].type(math.inf if value > 0 else -math.inf)
    return DTYPES[name].type(math.copysign(float(rounded), -1 if value < 0 else 1))


def expected(values: np.ndarray, name: str, count: int = 1, *, starts_at_zero: bool = True) -> Any:
    """The sum of floats over `count`, as the type `name`.

    Reductions start at 0.0, as NumPy's do; a state does not, and is -0.0 of nothing but -0.0.
    """
    flags = flags_of(values) if values.size else 0
    if flags & NAN or flags & (INF | MINUS_INF) == INF | MINUS_INF:
        return DTYPES[name].type(math.nan)
    if flags & (INF | MINUS_INF):
        return DTYPES[name].type(math.inf if flags & INF else -math.inf)
    total = exact_sum(values)
    if total == 0:
        is_negative = values.size and not flags and not starts_at_zero
        return DTYPES[name].type(-0.0 if is_negative else 0.0)
    return round_to(Fraction(total) * Fraction(2) ** unit_of(name_of(values.dtype)) / count, name)


# ---------------------------------------------------------------- products and variances


def dot_total(x: np.ndarray, y: np.ndarray) -> Fraction:
    """The sum of products of the finite pairs, by integers in units of the smallest product."""
    factors = as_integers(x), as_integers(y)
    return sum(a * b for a, b in zip(*factors, strict=True)) * Fraction(2) ** (
        unit_of(name_of(x.dtype)) + unit_of(name_of(y.dtype))
    )


def as_integers(values: np.ndarray) -> list[int]:
    """The elements in units of the smallest number of their dtype; infinities and NaN as 0."""
    if not is_float(values.dtype):
        return [int(x) for x in values.ravel().tolist()]
    fraction, exponent = FORMATS[name_of(values.dtype)]
    sign, e, low = (field.tolist() for field in fields(values))
    return [
        0
        if field == 2**exponent - 1
        else (-1) ** s * ((part + ((field > 0) << fraction)) << max(field - 1, 0))
        for s, field, part in zip(sign, e, low, strict=True)
    ]


def expected_dot(pairs: list[tuple[np.ndarray, np.ndarray]], name: str) -> Any:
    """The sum of all products of real arrays, pair by pair, as the type `name`."""
    kind = DTYPES[name].type
    inf = minus_inf = nan = False
    only_minus_zero, count, total = True, 0, Fraction(0)
    for x, y in pairs:
        count += x.size
        total += dot_total(x, y)
        if not is_float(x.dtype):
            only_minus_zero = only_minus_zero and x.size == 0
            continue
        (sign_x, e_x, low_x), (sign_y, e_y, low_y) = fields(x), fields(y)
        special_x, special_y = ~is_finite(x), ~is_finite(y)
        zero = ((e_x == 0) & (low_x == 0)) | ((e_y == 0) & (low_y == 0))
        negative, special = sign_x != sign_y, special_x | special_y
        bad = (special_x & (low_x != 0)) | (special_y & (low_y != 0)) | (special & zero)
        nan |= bool(bad.any())
        inf |= bool((special & ~bad & ~negative).any())
        minus_inf |= bool((special & ~bad & negative).any())
        only_minus_zero &= bool((zero & ~special & negative).all())
    if nan or (inf and minus_inf):
        return kind(math.nan)
    if inf or minus_inf:
        return kind(math.inf if inf else -math.inf)
    if total == 0:
        return kind(-0.0 if count and only_minus_zero else 0.0)
    return round_to(total, name)


def root_to(square: Fraction, name: str) -> Any:
    """The root of a positive fraction rounded to a float type; integers tell a midpoint's side."""
    enough = 2 * FORMATS[name][0] + 140
    shift = enough - (square.numerator.bit_length() - square.denominator.bit_length())
    shift += shift % 2
    scaled = square * Fraction(2) ** shift
    whole = scaled.numerator // scaled.denominator
    root = math.isqrt(whole)
    # A bit below all bits of a midpoint stands for the remainder.
    rest = root * root != whole or whole != scaled
    return round_to(Fraction(4 * root + rest) * Fraction(2) ** (-shift // 2 - 2), name)


def expected_variance(
    parts: list[np.ndarray], name: str, ddof: float = 0, root: bool = False
) -> Any:
    """The variance, or its root, of numbers whose components are `parts`, as type `name`."""
    kind, n = DTYPES[name].type, parts[0].size
    if any(is_float(part.dtype) and not is_finite(part).all() for part in parts):
        return kind(math.nan)
    above = Fraction(0)
    for part in parts:
        integers = as_integers(part)
        number = n * sum(x * x for x in integers) - sum(integers) ** 2
        above += number * Fraction(4) ** unit_of(name_of(part.dtype))
    if ddof == math.inf or (math.isfinite(ddof) and n - Fraction(ddof) <= 0):
        return kind(math.nan if above == 0 else math.inf)
    if above == 0 or ddof == -math.inf:
        return kind(0.0)
    variance = above / (n * (n - Fraction(ddof)))
    return root_to(variance, name) if root else round_to(variance, name)


def bits_of(scalar: Any) -> str:
    return np.asarray(scalar).tobytes().hex()


def assert_result(got: Any, wanted: Any, context: Any = "") -> None:
    assert got.dtype == wanted.dtype, context
    if wanted != wanted:
        fraction, exponent = FORMATS[name_of(wanted.dtype)]
        quiet = (2 ** (exponent + 1) - 1) << (fraction - 1)
        assert np.asarray(got).tobytes() == quiet.to_bytes(got.dtype.itemsize, "little"), (
            got,
            context,
        )
    else:
        assert bits_of(got) == bits_of(wanted), (got, wanted, context)


def from_bits(bits: Any, name: str) -> np.ndarray:
    dtype = DTYPES[name]
    return np.asarray(bits, dtype=f"u{dtype.itemsize}").view(dtype)


# ---------------------------------------------------------------- arrays that are hard to sum


def random_bits(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    return from_bits(rng.integers(0, 2 ** (8 * DTYPES[name].itemsize), n, dtype=np.uint64), name)


def finite_bits(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    values = random_bits(rng, name, n)
    return np.where(is_finite(values), values, DTYPES[name].type(1))


def spread(rng: np.random.Generator, name: str, n: int, decades: float) -> np.ndarray:
    largest = {"float16": 4, "bfloat16": 38, "float32": 38, "float64": 300}[name]
    exponents = rng.uniform(-min(decades, largest), min(decades, largest), n)
    return (rng.normal(size=n) * 10.0**exponents).astype(DTYPES[name])


def telescoping(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    x = spread(rng, name, n, 30)
    with np.errstate(over="ignore", invalid="ignore"):
        y = np.concatenate([x, -x, spread(rng, name, 1, 1)])
    return rng.permutation(y)


def ill_conditioned(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Almost all cancels: the condition is as large as the type allows, to 10^300 for float64."""
    big = spread(rng, name, n, 300)
    return rng.permutation(
        np.concatenate([big, -big[::-1], spread(rng, name, 3, 300) * DTYPES[name].type(2**-10)])
    )


def big_and_tail(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    smallest, largest = from_bits([1], name)[0], np.asarray(finite_max(name), DTYPES[name])
    tail = np.full(n, smallest, DTYPES[name]) * rng.integers(0, 100, n).astype(DTYPES[name])
    return np.concatenate([[largest, largest], tail, [-largest, -largest], -tail[: n // 2]]).astype(
        DTYPES[name]
    )


def subnormals(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    fraction, exponent = FORMATS[name]
    bits = rng.integers(0, 2**fraction, n, dtype=np.uint64)
    return from_bits(
        bits | rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(fraction + exponent), name
    )


def zeros(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    values = np.zeros(n, DTYPES[name])
    return np.where(rng.random(n) < rng.choice([0, 0.5, 1]), -values, values).astype(DTYPES[name])


def specials(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    values = spread(rng, name, n, 3)
    wanted = rng.choice([math.inf, -math.inf, math.nan], int(rng.integers(1, 4)))
    values[rng.integers(0, n, 3)] = rng.choice(wanted, 3).astype(DTYPES[name])
    return values


def mostly_narrow(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Bins hold most tiles; some elements lie far above or below them."""
    values = spread(rng, name, n, 1)
    values[rng.integers(0, n, max(1, n // 5000))] = spread(rng, name, 1, 300)[0]
    return values


def at_the_top(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    values = np.full(n, finite_max(name), DTYPES[name])
    return np.where(rng.random(n) < 0.5, values, -values)


def one_sided(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """The first bin leaves as much as it can of each, of one sign: the next fills soonest."""
    # Of bins placed at an element of 2^top, on the GPU and on the CPU.
    top, headroom = int(rng.integers(-6, 6)), 16
    if (
        rng.random() < 0.6
    ):  # a multiple of what the GPU places several bins at: none is higher than it need be
        top += (1 - top) % 4
    fraction = FORMATS[name][0]
    half_place = top + headroom - 53
    # The largest element of a type with few digits has no places there: smaller ones do.
    exponent = min(top, half_place + fraction - 2)
    rest = 2.0**half_place - 2.0 ** (exponent - fraction)
    values = np.full(n, rng.choice([-1.0, 1.0]) * (2.0**exponent + rest))
    values[0] = 2.0**top
    return values.astype(DTYPES[name])


def midpoints(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """The sum is a midpoint, or the smallest number beside one; the rest cancels."""
    fraction, _ = FORMATS[name]
    number = float(spread(rng, name, 1, 1)[0])
    half = 2.0 ** (math.frexp(number)[1] - 1 - fraction - 1)
    smallest = float(from_bits([1], name)[0]) * int(rng.integers(-1, 2))
    pairs = spread(rng, name, max(n - 2, 0) // 2, 2)
    return rng.permutation(
        np.concatenate([[number, rng.choice([-half, half]), smallest], pairs, -pairs])
    ).astype(DTYPES[name])


def less_their_mean(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Numbers of one size less their rounded mean (Anderson's): only roundings are left."""
    values = rng.random(n) * 2.0 ** int(rng.integers(-10, 10))
    return values.astype(DTYPES[name]) - DTYPES[name].type(values.mean())


def mountains(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Exponents that climb from the smallest to the largest and fall again, once or more."""
    fraction, exponent = FORMATS[name]
    # From 0 to 1 and to 0 again.
    way = 2 * np.abs((np.arange(n) * int(rng.integers(1, 4)) / n + 0.5) % 1 - 0.5)
    field = np.round((1 - way if rng.random() < 0.5 else way) * (2**exponent - 2)).astype(np.uint64)
    sign = rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(fraction + exponent)
    return from_bits(
        field << np.uint64(fraction) | rng.integers(0, 2**fraction, n, dtype=np.uint64) | sign, name
    )


def finite_max(name: str) -> Any:
    return ml_dtypes.finfo(DTYPES[name]).max


GENERATORS: list[Callable[[np.random.Generator, str, int], np.ndarray]] = [
    random_bits, finite_bits, telescoping, ill_conditioned, big_and_tail, subnormals, zeros,
    specials, mostly_narrow, at_the_top, one_sided, midpoints, midpoints, less_their_mean,
    mountains,
    lambda rng, name, n: spread(rng, name, n, 1),
    lambda rng, name, n: spread(rng, name, n, 10),
    lambda rng, name, n: rng.random(n).astype(DTYPES[name]),
    lambda rng, name, n: np.abs(spread(rng, name, n, 20)),
]  # fmt: skip
