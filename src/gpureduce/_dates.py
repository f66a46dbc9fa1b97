"""Dates and times: NumPy's rules for what the core does not reduce by one operator.

NaT is the smallest int64. The core's extremes and positions of dates are NumPy's: NaT, wherever it
stands, except for ``nanmin`` and ``nanmax``, which leave it out. It counts as true.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._calls import Array, Call, NoValue, run_core

_NAT, _LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

_OF_CORE = ("any", "all", "count_nonzero", "logical_xor", "argmin", "argmax", "min", "max")


def run_dates(call: Call, op: str, mask: Array | None = None) -> Any:
    """Run a call on datetime64 or timedelta64, as ``run_core`` does on numbers."""
    dtype = call.array.dtype
    if op == "sum" and dtype.kind == "m":
        return _sum(call, mask)
    call = call._replace(dtype=None)
    if op in _OF_CORE:
        return run_core(call, op, mask)
    if op in ("minmax", "ptp"):
        low, high = run_core(call, "min", mask), run_core(call, "max", mask)
        return (low, high) if op == "minmax" else np.subtract(high, low)
    raise TypeError(
        f"{op} is not defined for dtype {dtype}; of numbers bool, integers, ..., float32, float64 "
        "are taken"
    )


def _sum(call: Call, mask: Array | None) -> Any:
    """Sum of timedelta64, from ``initial`` on.

    Where a partial sum may be beyond 64 bits, NumPy adds: what it makes of that depends on the
    order of additions, and newer versions raise OverflowError.
    """
    array = call.array
    start = np.zeros((), array.dtype.newbyteorder("="))[()]
    if call.initial is not NoValue and call.initial is not None:
        start = np.add.reduce(np.empty(0, array.dtype), initial=call.initial)
    call = call._replace(dtype=None, skip_nan=False)
    numbers = call._replace(array=array.view(array.dtype.str[0] + "i8"))
    total = np.asarray(run_core(numbers, "sum", mask))
    if array.size > 0:
        low, high = run_core(numbers, "minmax", mask)
        is_nat = np.equal(low, _NAT)
        if np.any(is_nat):
            times = run_core(call._replace(skip_nan=True), "min", mask)
            low = np.where(np.isnat(times), 0, np.asarray(times).view(np.int64))
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
    return np.add(total.view(start.dtype)[()], start)
