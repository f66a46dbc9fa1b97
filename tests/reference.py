"""Independent references for reductions, and the error bounds floats are held to.

Integers are compared bit for bit with NumPy. Float sums are compared with the exact sum
(``math.fsum``), float products with an extended-precision product, within a bound that follows from
the longest chain of roundings the kernel can have:

    |error| <= (chain + 2) * eps * sum(|x|)      for a sum,
    |error| <= (chain + 2) * eps * |product|     for a product,

plus half a unit in the last place of the result's own type, or its smallest number. ``eps`` is the accumulator's.
"""

from __future__ import annotations

import math
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

OPERATORS = ("sum", "prod", "min", "max", "mean", "any", "all")

# Unit roundoff times two of the type a float is accumulated in, and of the type it is returned in.
_ACCUMULATOR_EPS = {"float16": 2**-23, "bfloat16": 2**-23, "float32": 2**-23, "float64": 2**-52}
_SMALLEST = {"float16": 2**-24, "bfloat16": 2**-133, "float32": 2**-149, "float64": 2**-1074}
_RESULT_EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float, bfloat16 included."""
    return dtype.kind == "f" or dtype == BFLOAT16


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], n: int, op: str) -> np.ndarray:
    """Values that make ``op`` worth testing: full range for integers, both signs for floats.

    Products of floats stay near one, so that they neither overflow nor vanish; ``any`` and ``all``
    get arrays in which one element decides about half of the time.
    """
    if op in ("any", "all"):
        values = np.full(n, op == "all", dtype=bool)
        if n and rng.random() < 0.5:
            values[rng.integers(n)] = op == "any"
        return values.astype(dtype)
    if dtype == np.bool_:
        return rng.random(n) < rng.random()
    if is_float(dtype):
        if op == "prod":
            # A few elements make up the product; the others are signs. Many factors near one would be
            # rounded to their own type to one side, and their product would vanish.
            values = rng.choice([-1.0, 1.0], n)
            picked = rng.integers(0, max(n, 1), min(n, 30))
            values[picked] *= np.exp(rng.normal(0, 0.3, len(picked)))
        else:
            # A long float16 sum around one would overflow, here as in NumPy.
            center = 0.0 if dtype == np.float16 and n > 10_000 else rng.choice([0.0, 1.0])
            values = rng.normal(center, 1, n)
        return values.astype(np.float32).astype(dtype) if dtype == BFLOAT16 else values.astype(dtype)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    if op == "prod":
        values |= dtype.type(1)  # odd: a product of many would otherwise be zero
    return values


def assert_reduction(result: Any, values: np.ndarray, op: str, chain: float, context: str = "") -> None:
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
    expected_dtype = _result_dtype(op, dtype)
    assert result.dtype == expected_dtype, f"{context}: {result.dtype} is not {expected_dtype}"
    if op in ("any", "all"):
        expected = getattr(np, op)(values.astype(bool))
        assert bool(result) == bool(expected), f"{context}: {result} is not {expected}"
        return
    if op in ("min", "max"):
        wide = values.astype(np.float64) if dtype == BFLOAT16 else values
        expected = getattr(np, op)(wide)
        same = np.float64(result) == np.float64(expected) if is_float(dtype) else result == expected
        assert same or (np.isnan(np.float64(result)) and np.isnan(np.float64(expected))), (
            f"{context}: {result} is not {expected}"
        )
        return
    if not is_float(dtype) and op != "mean":
        expected = getattr(np, op)(values)
        assert result == expected, f"{context}: {result} is not {expected}"
        return
    error, bound = _float_error(result, values, op, chain)
    assert error <= bound, f"{context}: {result} is off by {error:.3g}, more than {bound:.3g}"


def _result_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if op in ("any", "all"):
        return np.dtype(bool)
    if is_float(dtype) or op in ("min", "max"):
        return dtype
    if op == "mean":
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


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
