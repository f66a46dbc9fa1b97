"""Dates and times: reductions of their int64 values, and NumPy's rules for NaT.

NaT is the smallest int64, so a minimum finds it. It wins wherever it stands, except with ``nanmin``
and ``nanmax``, which leave it out, and it counts as true.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._calls import Array, Call, NoValue, bools_like, run_core

_NAT, _LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

_AS_INTEGERS = ("any", "all", "count_nonzero", "logical_xor", "argmin")
"""Operators without a rule for NaT: NaT is not zero, and the first NaT is the first smallest
number."""


def run_dates(call: Call, op: str, mask: Array | None = None) -> Any:
    """Run a call on datetime64 or timedelta64, as ``run_core`` does on numbers."""
    dtype = call.array.dtype
    if op == "sum" and dtype.kind == "m":
        return _sum(call, mask)
    skip_nat = call.skip_nan
    call = call._replace(array=_numbers(call.array), dtype=None, skip_nan=False)
    if op in _AS_INTEGERS:
        return run_core(call, op, mask)
    if op == "argmax":
        return _argmax(call)
    if op == "min":
        return _as(dtype, (_min_but_nat if skip_nat else run_core)(call, "min", mask))
    if op == "max":
        return _as(dtype, run_core(call, "max", mask) if skip_nat else _minmax(call, mask)[1])
    if op in ("minmax", "ptp"):
        low, high = (_as(dtype, one) for one in _minmax(call, mask))
        return (low, high) if op == "minmax" else np.subtract(high, low)
    raise TypeError(
        f"{op} is not defined for dtype {dtype}; of numbers bool, integers, ..., float32, float64 "
        "are taken"
    )


def _numbers(dates: Array) -> Array:
    """Dates as integers of their byte order."""
    return dates.view(dates.dtype.str[0] + "i8")


def _as(dtype: np.dtype[Any], numbers: Any) -> Any:
    """Integers as dates, in this machine's byte order."""
    return np.asarray(numbers).view(dtype.newbyteorder("="))[()]


def _minmax(call: Call, mask: Array | None) -> tuple[Array, Array]:
    """Extremes, both NaT if one element is.

    If a mask leaves no element: the largest integer and the smallest date.
    """
    low, high = (np.asarray(one) for one in run_core(call, "minmax", mask))
    return low, np.where(low == _NAT, low, np.maximum(high, _NAT + 1))


def _min_but_nat(call: Call, op: str, mask: Array | None) -> Any:
    """The smallest element that is not NaT, or NaT.

    A second pass with a mask runs only if there are NaT. Its results go into those of the first,
    whose memory order is that of the elements.
    """
    low = np.asarray(run_core(call, op, mask))
    if not np.any(low == _NAT):
        return low
    dates = np.not_equal(call.array, _NAT, out=bools_like(call.array))
    if mask is not None:
        dates &= mask
    none_left = np.equal(run_core(call, "max", dates), _NAT)
    low[...] = np.where(none_left, _NAT, run_core(call, op, dates))
    return low


def _argmax(call: Call) -> Any:
    """Position of the first NaT, or of the first largest element."""
    if call.array.size == 0:
        return run_core(call, "argmax")
    has_nat = run_core(call, "min") == _NAT
    found = run_core(call, "argmax")
    return np.where(has_nat, run_core(call, "argmin"), found)[()] if np.any(has_nat) else found


def _sum(call: Call, mask: Array | None) -> Any:
    """Sum of timedelta64, from ``initial`` on.

    Where a partial sum may be beyond 64 bits, NumPy adds: what it makes of that depends on the
    order of additions, and newer versions raise OverflowError.
    """
    array = call.array
    start = np.zeros((), array.dtype.newbyteorder("="))[()]
    if call.initial is not NoValue and call.initial is not None:
        start = np.add.reduce(np.empty(0, array.dtype), initial=call.initial)
    numbers = call._replace(array=_numbers(array), dtype=None, skip_nan=False)
    total = np.asarray(run_core(numbers, "sum", mask))
    if array.size > 0:
        low, high = run_core(numbers, "minmax", mask)
        is_nat = np.equal(low, _NAT)
        if np.any(is_nat):
            dates = np.not_equal(numbers.array, _NAT, out=bools_like(array))
            if mask is not None:
                dates &= mask
            low = run_core(numbers, "min", dates)
        farthest = max(0, int(np.max(high)), -int(np.min(low))) * (array.size // total.size)
        if farthest + abs(int(start.astype(np.int64))) > _LARGEST:
            return np.add.reduce(
                array,
                call.axis,
                keepdims=call.keepdims,
                initial=call.initial,
                where=True if mask is None else mask,
            )
        total = np.where(is_nat, _NAT, total)
    return np.add(_as(array.dtype, total), start)
