"""Whether a result is right: NumPy's in extended precision, and how much rounding may cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .baselines import numpy_function

__all__ = ["Right", "Verdict", "check", "loosened", "reference"]


_ROUNDED_ALWAYS = ("mean", "var", "std")
_PIECE = 1 << 22
_HALF_BYTES = 2
SPREAD_OF_SUMS = 4.0
"""How many standard deviations a sum of rounded additions may be off; see :func:`check`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result is right, and how far off it is at most, in ulps of the right one."""

    right: bool
    ulps: float


def reference(op: str, array: np.ndarray[Any, Any], axis: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """NumPy's result in extended precision, and how much a result of rounded operations may be off.

    The first is exact for integers and for everything that does not round. Whatever the order of n additions, each
    rounded with unit roundoff u, their sum is off by less than 4 sqrt(n) u times the sum of magnitudes but with
    vanishing probability; a product in the same way by its own magnitude. Where errors do not cancel, as where many
    numbers are added to a sum that has outgrown them, it is off by more, and wrong.
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
"""A right result, and how much another may be off: what :func:`reference` gives."""


def loosened(right: Right, dtype: np.dtype[Any]) -> Right:
    """For libraries, which may add 16-bit floats in their own type: NumPy does along all but the last axis."""
    exact, slack = right
    if dtype.itemsize != _HALF_BYTES or dtype.kind not in "fV":
        return right
    return exact, slack * (2.0**13 if dtype.kind == "f" else 2.0**16)  # to 11 and to 8 bits from 24


def _magnitude(op: str, source: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    """Sum or mean of magnitudes, a piece at a time where that is possible: no second array of the first one's size."""
    function = numpy_function(op)
    if axis is not None or not source.flags.c_contiguous:
        return np.asarray(function(np.abs(source), axis=axis, dtype=np.float64))
    add: Callable[..., Any] = np.nansum if op.startswith("nan") else np.sum
    flat, total = source.reshape(-1), 0.0
    for first in range(0, flat.size, _PIECE):
        total += float(add(np.abs(flat[first : first + _PIECE]), dtype=np.float64))
    return np.asarray(total / flat.size if op.endswith("mean") else total)


def check(result: Any, right: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], like: np.dtype[Any]) -> Verdict:
    """Hold a result against :func:`reference`.

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
        parts = [check(part(found), (part(exact), slack), part(np.ones(1, like)).dtype) for part in (np.real, np.imag)]
        return Verdict(all(part.right for part in parts), max(part.ulps for part in parts))
    wide, narrow = exact.astype(np.longdouble), np.finfo(like) if like.kind == "f" else None
    with np.errstate(all="ignore"):
        rounded = wide.astype(like).astype(np.longdouble)
        mine = found.astype(like).astype(np.longdouble) if like.kind == "f" else found.astype(np.longdouble)
        bits, least = (narrow.nmant, narrow.minexp) if narrow is not None else (7, -126)
        exponent = np.frexp(np.where(np.isfinite(rounded), rounded, 0))[1] - 1
        ulp = np.ldexp(np.ones_like(wide), np.maximum(exponent, least) - bits)
        same = (mine == rounded) | (np.isnan(mine) & np.isnan(rounded))
        off = np.where(same, 0, np.abs(mine - wide))
        right_there = same | (off <= slack + ulp)
        ulps = np.where(same, 0, np.where(np.isfinite(off), off / ulp, np.inf))
    return Verdict(bool(np.all(right_there)), float(np.max(ulps)) if ulps.size else 0.0)
