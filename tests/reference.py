"""Independent references for reductions, and the error bounds floats are held to.

Integers are compared bit for bit with NumPy. Float sums are compared with the exact sum
(``math.fsum``), float products with an extended-precision product, within a bound that follows from
the longest chain of roundings the kernel can have:

    |error| <= (chain + 2) * eps * sum(|x|)      for a sum,
    |error| <= (chain + 2) * eps * |product|     for a product,

plus half a unit in the last place of the result's own type, or its smallest number. ``eps`` is the
accumulator's. The parts of a complex sum are sums; its product errs by as much in proportion.
Variances are held to the exact one of the elements, computed in extended precision.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import ml_dtypes

    BFLOAT16: Any = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
if BFLOAT16 is not None:
    DTYPES["bfloat16"] = BFLOAT16

ALL_DTYPES = DTYPES | {name: np.dtype(name) for name in ("complex64", "complex128")}

OPERATORS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std",
    "count_nonzero", "ptp", "minmax", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor",
)  # fmt: skip
TRUTHS = ("any", "all", "count_nonzero", "logical_xor")
EXTREMES = ("min", "max", "argmin", "argmax", "ptp", "minmax")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
WITHOUT_IDENTITY = EXTREMES
# What kernels say that do not fold an operator: those that end by atomics, cub, exact.
REFUSALS = ("folds by atomics", "does not track positions", "sums numbers")

# Unit roundoff times two of the type a float is accumulated in, and of the type it is returned in.
_ACCUMULATOR_EPS = {"float16": 2**-23, "bfloat16": 2**-23, "float32": 2**-23, "float64": 2**-52}
_PARTS = {"complex64": "float32", "complex128": "float64"}
_SMALLEST = {"float16": 2**-24, "bfloat16": 2**-133, "float32": 2**-149, "float64": 2**-1074}
_RESULT_EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float, bfloat16 included."""
    return dtype.kind == "f" or dtype == BFLOAT16


def takes(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether NumPy has the operator for the dtype."""
    if op in BITS:
        return dtype.kind in "biu"
    return op != "ptp" or dtype.kind != "b"


def numpy_of(op: str) -> Callable[..., Any]:
    """NumPy's function for an operator, with an ``axis``."""
    if op == "minmax":
        return lambda a, axis=None: (a.min(axis=axis), a.max(axis=axis))
    if op in BITS or op == "logical_xor":
        return getattr(np, op).reduce  # type: ignore[no-any-return]
    return getattr(np, op)  # type: ignore[no-any-return]


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], n: int, op: str) -> np.ndarray:
    """Values that make ``op`` worth testing: full range for integers, both signs for floats.

    Products of floats stay near one, so that they neither overflow nor vanish; ``any`` and ``all``
    get arrays in which one element decides about half of the time.
    """
    if dtype.kind == "c":
        part = np.dtype(_PARTS[dtype.name])
        values = np.empty(n, dtype)
        values.real, values.imag = (random_array(rng, part, n, op) for _ in range(2))
        if op in EXTREMES:  # so that imaginary parts decide, and positions
            values.real = np.round(values.real)
        return values / np.maximum(np.abs(values), 0.5) if op == "prod" else values
    if op in ("any", "all", "count_nonzero", "logical_xor"):
        values = (
            rng.random(n) < rng.random()
            if op in ("count_nonzero", "logical_xor")
            else np.full(n, op == "all")
        )
        if op in ("any", "all") and n and rng.random() < 0.5:
            values[rng.integers(n)] = op == "any"
        if is_float(dtype):  # zeros of both signs are false
            return np.where(values, 1.0, rng.choice([-0.0, 0.0], n)).astype(dtype)
        return values.astype(dtype)
    if dtype == np.bool_:
        return rng.random(n) < rng.random()
    if is_float(dtype):
        if op == "prod":
            # A few elements make up the product; the others are signs. Many factors near one would
            # be rounded to their own type to one side, and their product would vanish.
            values = rng.choice([-1.0, 1.0], n)
            picked = rng.integers(0, max(n, 1), min(n, 30))
            values[picked] *= np.exp(rng.normal(0, 0.3, len(picked)))
        else:
            # A long float16 sum around one would overflow, here as in NumPy.
            center = 0.0 if dtype == np.float16 and n > 10_000 else rng.choice([0.0, 1.0])
            values = rng.normal(center, 1, n)
        if op in ("argmin", "argmax") and rng.random() < 0.5:
            values = np.round(values)  # so that the first of many decides
        return (
            values.astype(np.float32).astype(dtype) if dtype == BFLOAT16 else values.astype(dtype)
        )
    info = np.iinfo(dtype)
    if op in ("argmin", "argmax") and rng.random() < 0.5:
        return rng.integers(max(info.min, -3), 3, n, dtype=dtype, endpoint=True)
    values = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    if op == "prod":
        values |= dtype.type(1)  # odd: a product of many would otherwise be zero
    if (
        op in ("bitwise_and", "bitwise_or") and n > 2
    ):  # a few elements decide: of many every bit would be known
        rest = -1 if op == "bitwise_and" else 0
        values[rng.permutation(n)[2:]] = np.array(rest).astype(dtype)
    return values


def assert_reduction(
    result: Any, values: np.ndarray, op: str, chain: float, context: str = ""
) -> None:
    """Check one full reduction of a 1-d array.

    Parameters
    ----------
    result
        What gpureduce returned.
    values
        The elements.
    op
        Operator name.
    chain
        Longest chain of roundings, in additions; ignored for integers.
    context
        Put in front of the failure's message.
    """
    dtype = values.dtype
    expected_dtype = result_dtype(op, dtype)
    for one in result if op == "minmax" else (result,):
        assert one.dtype == expected_dtype, f"{context}: {one.dtype} is not {expected_dtype}"
    if op in ("var", "std"):
        error, bound = _moment_error(result, values, op)
    elif op in ("sum", "prod", "mean") and dtype.kind == "c":
        error, bound = _complex_error(result, values, op, chain)
    elif op == "mean" or (op in ("sum", "prod") and is_float(dtype)):
        error, bound = _float_error(result, values, op, chain)
    else:
        # NumPy knows no positions of bfloat16.
        wide = values.astype(np.float32) if dtype == BFLOAT16 else values
        expected = np.asarray(numpy_of(op)(wide)).astype(expected_dtype)
        np.testing.assert_array_equal(_plain(result), _plain(expected), context)
        return
    assert error <= bound, f"{context}: {result} is off by {error:.3g}, more than {bound:.3g}"


def _plain(result: Any) -> Any:
    """A result as NumPy's testing compares it: bfloat16 as float32."""
    values = np.asarray(result)
    return values.astype(np.float32) if values.dtype == BFLOAT16 else values


def result_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What NumPy returns for an operator over a dtype."""
    if op in ("any", "all", "logical_xor"):
        return np.dtype(bool)
    if op in ("argmin", "argmax", "count_nonzero"):
        return np.dtype(np.intp)
    if op in ("var", "std") and dtype.kind == "c":
        return np.dtype(_PARTS[dtype.name])
    if is_float(dtype) or dtype.kind == "c" or op in EXTREMES or op in BITS:
        return dtype
    if op in ("mean", "var", "std"):
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def _moment_error(result: Any, values: np.ndarray, op: str) -> tuple[float, float]:
    """Absolute error of a variance or deviation, and its bound: roundings of double and result.

    Integers beyond 2^53 are rounded when they become doubles, which changes a deviation by no more
    than the largest is.
    """
    parts = [values.real, values.imag] if values.dtype.kind == "c" else [values]
    variance = np.longdouble(0)
    for part in parts:
        wide = part.astype(np.float64 if part.dtype == BFLOAT16 else part.dtype).astype(
            np.longdouble
        )
        variance += np.mean((wide - np.mean(wide)) ** 2)
    expected = float(np.sqrt(variance) if op == "std" else variance)
    name = "bfloat16" if np.asarray(result).dtype == BFLOAT16 else np.asarray(result).dtype.name
    rounded = (
        float(np.max(np.abs(values.astype(np.float64)))) * 2**-53
        if values.dtype.kind in "iu"
        else 0.0
    )
    if op == "var":
        rounded *= 2 * float(np.sqrt(variance)) + rounded
    return abs(float(result) - expected), (64 * 2**-52 + _RESULT_EPS[name]) * expected + _SMALLEST[
        name
    ] + rounded


def _complex_error(result: Any, values: np.ndarray, op: str, chain: float) -> tuple[float, float]:
    part = _PARTS[values.dtype.name]
    if op == "prod":
        exact = complex(np.prod(values.astype(np.clongdouble)))
        return abs(complex(result) - exact), 4 * (len(values) + chain + 2) * _RESULT_EPS[
            part
        ] * abs(exact)
    errors = [
        _float_error(getattr(result, name), getattr(values, name), op, chain)
        for name in ("real", "imag")
    ]
    return max(error - bound for error, bound in errors), 0.0


def _float_error(result: Any, values: np.ndarray, op: str, chain: float) -> tuple[float, float]:
    """Absolute error of a float result and the bound it must keep."""
    name = values.dtype.name if is_float(values.dtype) else "float64"
    wide = values.astype(np.float64)
    if op == "prod":
        exact = float(np.prod(wide.astype(np.longdouble)))
        scale = abs(exact)
    else:
        exact = math.fsum(wide)
        scale = math.fsum(np.abs(wide))
        if op == "mean":
            exact /= len(values)
            scale /= len(values)
    bound = (chain + 2) * _ACCUMULATOR_EPS[name] * scale + _RESULT_EPS[name] * abs(exact)
    return abs(float(result) - exact), bound + _SMALLEST[name]


def covering(cases: list[tuple[str, str]], rng: random.Random) -> list[tuple[str, str]]:
    """Few of the cases, drawn at random, that have all that is on either side of a case."""
    cases = rng.sample(cases, len(cases))
    chosen: list[tuple[str, str]] = []
    seen: set[str] = set()
    for sides_new in (2, 1):  # cases that bring two new things first: fewer are enough
        for case in cases:
            if len(set(case) - seen) >= sides_new:
                chosen.append(case)
                seen |= set(case)
    return chosen
