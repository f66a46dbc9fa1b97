"""Checking a result: NumPy's in extended precision, and a bound of the rounding error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._functions import reduce
from .._yours.operator_laws import agree, tolerance_of
from .._yours.own_operator import Operator
from .baselines import numpy_function

__all__ = ["Right", "Verdict", "check", "check_own", "loosened", "own_reference", "reference"]


_ROUNDED_ALWAYS = ("mean", "var", "std")
_PIECE = 1 << 22
_HALF_BYTES = 2
SPREAD_OF_SUMS = 4.0
"""Standard deviations that a sum of rounded additions may be off; see :func:`reference`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result is right, and its largest error in ulps of the right result."""

    right: bool
    ulps: float


def reference(
    op: str, array: np.ndarray[Any, Any], axis: Any
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """NumPy's result in extended precision, and the error that rounded operations may have.

    The result is exact for integers and for operators that do not round. The sum of n additions in
    any order, each with unit roundoff u, is off by less than 4 sqrt(n) u times the sum of
    magnitudes, except with vanishing probability; a product likewise, by its own magnitude. Errors
    that do not cancel, as of many small numbers added to a large sum, exceed the bound: such a
    result is wrong.
    """
    function = numpy_function(op)
    is_float = array.dtype.kind in "fcV"
    name = op.removeprefix("nan")
    if name not in (_ROUNDED_ALWAYS if not is_float else (*_ROUNDED_ALWAYS, "sum", "prod")):
        exact = np.asarray(function(array, axis=axis))
        return exact, np.zeros(exact.shape)
    wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
    source = array.astype(np.float32) if array.dtype.kind == "V" else array  # V: bfloat16
    with np.errstate(all="ignore"):
        exact = np.asarray(function(source, axis=axis, dtype=wide))
        count = max(array.size // max(exact.size, 1), 1)
        is_double = not is_float or array.dtype in (np.float64, np.complex128)
        unit = 2.0**-53 if is_double else 2.0**-24
        adds = name in ("sum", "mean")
        magnitude = _magnitude(op, source, axis) if adds else np.abs(exact).astype(np.float64)
        return exact, SPREAD_OF_SUMS * math.sqrt(count) * unit * magnitude


Right = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Result of :func:`reference`: the right result, and the bound of another's error."""


def own_reference(op: Operator, array: np.ndarray[Any, Any], axis: Any) -> Right:
    """The CPU backend's result of an operator of the user's own.

    Of floats, others may differ by rounding in another order, of which nothing is known: by as much
    as single precision keeps.
    """
    found = np.asarray(reduce(array, op, axis, device="cpu"))
    if found.dtype.kind not in "fcV" or found.dtype.names is not None:
        return found, np.zeros(found.shape)
    return found, tolerance_of(found.dtype) * np.abs(found.astype(np.complex128))


def check_own(result: Any, right: Right) -> Verdict:
    """Compare a result with :func:`own_reference`."""
    if right[0].dtype.names is None:
        return check(result, right, right[0].dtype)
    found = np.asarray(result)
    is_right = found.dtype == right[0].dtype and agree(found, right[0])
    return Verdict(is_right, 0.0 if is_right else math.inf)


def loosened(right: Right, dtype: np.dtype[Any]) -> Right:
    """Loosen the bound for libraries that add 16-bit floats in their own type, as NumPy may."""
    exact, slack = right
    if dtype.itemsize != _HALF_BYTES or dtype.kind not in "fV":
        return right
    return exact, slack * (2.0**13 if dtype.kind == "f" else 2.0**16)  # to 11 and to 8 bits from 24


def _magnitude(op: str, source: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    """Sum or mean of magnitudes, in pieces if possible: without a second array of that size."""
    function = numpy_function(op)
    if axis is not None or not source.flags.c_contiguous:
        return np.asarray(function(np.abs(source), axis=axis, dtype=np.float64))
    add: Callable[..., Any] = np.nansum if op.startswith("nan") else np.sum
    flat, total = source.reshape(-1), 0.0
    for first in range(0, flat.size, _PIECE):
        total += float(add(np.abs(flat[first : first + _PIECE]), dtype=np.float64))
    return np.asarray(total / flat.size if op.endswith("mean") else total)


def check(
    result: Any, right: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], like: np.dtype[Any]
) -> Verdict:
    """Compare a result with :func:`reference`.

    Parameters
    ----------
    result : array_like
        On the host.
    right : tuple
        What :func:`reference` gave.
    like : dtype
        Of NumPy's own result: its ulps are counted.
    """
    exact, slack = right
    found = np.asarray(result)
    if found.shape != exact.shape:
        return Verdict(False, math.inf)
    if like.kind not in "fcV":
        wrong = found.astype(like, casting="unsafe") != exact
        if not np.any(wrong):
            return Verdict(True, 0.0)
        pairs = zip(found[wrong].flat, exact[wrong].flat, strict=True)
        return Verdict(False, float(max(abs(int(a) - int(b)) for a, b in pairs)))
    if like.kind == "c" or exact.dtype.kind == "c":
        parts = [
            check(part(found), (part(exact), slack), part(np.ones(1, like)).dtype)
            for part in (np.real, np.imag)
        ]
        return Verdict(all(part.right for part in parts), max(part.ulps for part in parts))
    wide, narrow = exact.astype(np.longdouble), np.finfo(like) if like.kind == "f" else None
    with np.errstate(all="ignore"):
        rounded = wide.astype(like).astype(np.longdouble)
        mine = (
            found.astype(like).astype(np.longdouble)
            if like.kind == "f"
            else found.astype(np.longdouble)
        )
        bits, least = (narrow.nmant, narrow.minexp) if narrow is not None else (7, -126)
        exponent = np.frexp(np.where(np.isfinite(rounded), rounded, 0))[1] - 1
        ulp = np.ldexp(np.ones_like(wide), np.maximum(exponent, least) - bits)
        same = (mine == rounded) | (np.isnan(mine) & np.isnan(rounded))
        off = np.where(same, 0, np.abs(mine - wide))
        right_there = same | (off <= slack + ulp)
        ulps = np.where(same, 0, np.where(np.isfinite(off), off / ulp, np.inf))
    return Verdict(bool(np.all(right_there)), float(np.max(ulps)) if ulps.size else 0.0)
