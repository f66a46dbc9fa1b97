"""NumPy's rules that the C core does not implement.

The functions of the package call the core directly for an exact ``ndarray`` of numbers and default
``out``, ``initial`` and ``where``. This module runs every other :class:`Call`: it converts inputs
to arrays and ``where`` to a mask of the array's shape, combines ``initial`` with the result, and
stores into ``out`` by NumPy's casting rule.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _moments
from ._arguments import (
    are_finite,
    as_mask,
    check_identity,
    check_out,
    check_shape,
    check_takes_positions,
    check_where,
    convert_for,
    count_kept,
    count_reduced,
    fold_in,
    has_initial,
    only_start,
    real_part,
    run,
    set_nan,
    start_of,
    store,
    type_of_fold_into,
    wrap,
)
from ._calls import ON_CPU, Array, Call, NoValue, run_core, warn
from ._fields import reduce_fields
from ._interop.device_reduction import reduce_on_device
from ._interop.inputs import as_array, check_plain, rewrap, wrapper_of
from ._interop.libraries import device_library, from_host
from ._ufuncs import UFUNCS

_COMPLEX128, _FLOAT64 = np.dtype(np.complex128), np.dtype(np.float64)
_PLAIN_ARRAYS = (np.ndarray, np.memmap)
"""What ``nanmin`` and ``nanmax`` hand to a ufunc at once."""


def reduce_any(call: Call) -> Any:
    """Reduce any array that NumPy takes, with every argument of NumPy."""
    if not isinstance(call.options[0], str):
        # A Kernel of the user's own, which is above the reductions.
        reduce_by_own: Callable[[Call], Any] | None = getattr(call.options[0], "reduce_call", None)
        if reduce_by_own is not None:
            return reduce_by_own(call)
    keepdims = call.keepdims if type(call.keepdims) is bool else _as_keepdims(call)
    # A copy of a call takes a microsecond, here and below: it is made where something changes.
    if keepdims is not call.keepdims or call.where is NoValue or call.center is None:
        call = call._replace(
            keepdims=keepdims,
            where=True if call.where is NoValue else call.where,
            center=NoValue if call.center is None else call.center,
        )
    if call.out is not None and _takes_outs(call):
        return _reduce_into_outs(call)
    return _reduce(call)


def _as_keepdims(call: Call) -> bool:
    """``keepdims`` as a bool: what NumPy takes the truth of, or a number."""
    given = call.keepdims
    if given is NoValue:
        return False
    if call.op in ("argmin", "argmax") or (
        call.op == "count_nonzero" and call.axis is None and not given
    ):
        return bool(given)
    return bool(operator.index(given))


def _takes_outs(call: Call) -> bool:
    """Whether NumPy hands ``out`` to a ufunc, which takes ``...`` and a tuple of one array."""
    if call.op in ("min", "max"):
        is_own = type(call.array) in _PLAIN_ARRAYS or device_library(call.array) is not None
        return call.skip_nan and (is_own or wrapper_of(call.array) is not None)
    return call.op in UFUNCS and UFUNCS[call.op].__name__ == call.op  # a ufunc's reduce by its name


def _reduce_into_outs(call: Call) -> Any:
    """Reduce into the array of a tuple; by ``...`` to an array, also of no axes."""
    out = call.out
    if isinstance(out, tuple) and len(out) != 1:
        raise ValueError("The 'out' tuple must have exactly one entry per ufunc output")
    if isinstance(out, tuple) and out[0] is not None and out[0] is not ...:
        return _reduce(call._replace(out=out[0]))
    if out is not ...:
        return _reduce(call)
    if device_library(call.array) is None and wrapper_of(call.array) is None:
        check_plain(call.array, "a")
    UFUNCS[call.name].reduce(np.zeros(1, np.bool_), out=...)  # a TypeError before NumPy 2.3
    return _reduce(call._replace(out=None), always_array=True)


def _reduce(call: Call, always_array: bool = False) -> Any:
    if call.where is not True:
        check_plain(call.where, "where")
    if call.initial is not NoValue:
        check_plain(call.initial, "initial")
    if call.center is not NoValue:
        check_plain(call.center, "mean")
    if call.out is not None:
        for out in call.out if isinstance(call.out, tuple) else (call.out,):
            check_plain(out, "out")
    library, wrapper = device_library(call.array), wrapper_of(call.array)
    if library is not None:
        if wrapper is None:
            check_plain(call.array, "a")
        result = reduce_on_device(library, call)
    else:
        given = call.array if wrapper is None else from_host(call.array)
        result = _reduce_on_host(call, given)
        if always_array and isinstance(result, np.generic):
            result = np.asarray(result)
    if wrapper is None or call.out is not None:
        return result
    if call.op == "minmax":
        return tuple(
            rewrap(call.array, wrapper, *one) for one in zip(result, ("min", "max"), strict=True)
        )
    return rewrap(call.array, wrapper, result, call.name)


def _reduce_on_host(call: Call, given: Any) -> Any:
    array = as_array(given, "a.data with where=~numpy.ma.getmaskarray(a)")
    if array.dtype.names is not None:
        return reduce_fields(call, array, _reduce_on_host)
    is_exact = type(given) in _PLAIN_ARRAYS
    is_matrix = isinstance(array, np.matrix)
    if is_matrix and call.axis is not None:
        call = call._replace(keepdims=True)
    if call.skip_nan and (
        array.dtype.kind in "biu"
        or (array.dtype.kind in "mM" and not (is_exact and call.op in ("min", "max")))
    ):
        call = call._replace(skip_nan=False)  # NumPy leaves NaT out there only
    if array is not call.array or is_exact is not call.is_exact:
        call = call._replace(array=array, is_exact=is_exact)
    result = _RULES.get(call.op, _fold)(call)
    if (
        call.out is not None
        or type(array) is np.ndarray
        or (is_matrix and call.axis is None and not call.keepdims)
    ):
        return result
    if _is_plain(call, result):
        return result
    return tuple(wrap(array, one) for one in result) if call.op == "minmax" else wrap(array, result)


def _is_plain(call: Call, result: Any) -> bool:
    """Whether NumPy's result is not of the array's class, because no ufunc returns it."""
    if call.op in ("argmin", "argmax"):
        return np.ndim(result) == 0
    if call.op == "mean":
        is_half = call.array.dtype.type is np.float16 and call.dtype is None and not call.skip_nan
        return is_half and np.ndim(result) == 0
    return call.op == "count_nonzero" and call.axis is None and not call.keepdims


# ---------------------------------------------------------------- folds


def _fold(call: Call) -> Any:
    """Sums, products, extremes, truths and bits, which NumPy reduces by a ufunc's ``reduce``."""
    ufunc = UFUNCS[call.name]
    # Before real_part changes the mask.
    check_where(call, ufunc, as_mask(call.where, call.array.shape))
    call = real_part(call)
    array, out = call.array, call.out
    if array.dtype.kind in "mM":
        ufunc.reduce(np.zeros(1, array.dtype), 0, call.dtype)  # dates do not add: NumPy's TypeError
    mask = as_mask(call.where, array.shape)
    if out is not None:
        check_out(out, ufunc, array, np.bool_ if call.op in ("any", "all") else call.dtype)
        if call.dtype is None and call.op in ("sum", "prod") and array.dtype.kind not in "mM":
            call = call._replace(dtype=type_of_fold_into(ufunc, out.dtype, array.dtype))
        call = convert_for(call, ufunc, out)
        array = call.array
    if array.size == 0 and has_initial(call) and ufunc.identity is None:
        result = only_start(call, ufunc, mask)
    else:
        check_identity(call, ufunc)
        dtype = call.dtype
        if has_initial(call):
            dtype = _type_before_start(call.op, array.dtype, dtype, call.options[0])
        result = run(call if dtype is call.dtype else call._replace(dtype=dtype), mask=mask)
    if (
        call.op == "sum" and out is not None and out.dtype.kind == "M"
    ):  # a copy would convert the number to a date
        result = np.asarray(result).astype(out.dtype.str.replace("M8", "m8", 1))
    finish = finish_extreme if ufunc in (np.fmin, np.fmax) else _finish_fold
    result = finish(call, mask, result)
    return result if out is None else store(out, result, ufunc.__name__)


def _finish_fold(call: Call, mask: Array | None, result: Any) -> Any:
    ufunc = UFUNCS[call.name]
    if call.array.dtype.kind == "m" and call.op == "sum":
        return result  # begins with the start
    if call.op == "prod" and has_initial(call):
        return _product_after(call, mask, start_of(call, ufunc), result)
    if call.op == "sum" and call.initial is not NoValue and result.dtype.kind in "fcV":
        if call.initial is None:
            return _sum_without_start(call, mask, result)
        return _sum_after(call, mask, start_of(call, ufunc), result)
    return fold_in(call, ufunc, result)


def _scaled(numbers: Any, dtype: np.dtype[Any], factor: float) -> Array:
    """A copy times a power of two, part by part: infinities are not multiplied by 0j."""
    copy = np.array(numbers, dtype)
    for part in _parts(copy):
        np.multiply(part, factor, out=part)
    return copy


def _type_of_result(element: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Type of a sum or product of floats or complex numbers."""
    result: np.dtype[Any] = element if dtype is None else np.dtype(dtype)
    return result if result.isnative else result.newbyteorder("=")


def _type_before_start(op: str, element: np.dtype[Any], dtype: Any, kernel: Any) -> Any:
    """Type in which a start is added to an exact sum, or multiplied by a product: the result is
    rounded after that.

    Kernels other than these compute in the result's type, as their names promise.
    """
    if element.kind not in "fV":
        return dtype
    result = _type_of_result(element, dtype)
    is_exact = op == "sum" and kernel in ("auto", "exact") and result.kind in "fV"
    own = _type_of_result(element, None)
    is_planned = op == "prod" and kernel in ("auto", "fast") and result == own
    return np.float64 if is_exact or is_planned else dtype


def _sum_after(call: Call, mask: Array | None, start: Any, result: Any) -> Any:
    """Sum from a start on, in which no part overflows if the whole does not."""
    element = call.array.dtype
    dtype = _type_of_result(element, call.dtype) if element.kind in "fcV" else result.dtype
    wide = _wide(dtype)
    if start == 0:
        if _is_minus_zero(start):
            result = _sum_without_start(call, mask, result)
    elif not are_finite(result) and np.isfinite(start):
        with np.errstate(all="ignore"):
            if result.dtype != wide:
                result = run(call._replace(dtype=wide), mask=mask)
            if not are_finite(result):  # halves are exact but for the smallest numbers
                half = run(
                    call._replace(array=_scaled(call.array, wide, 0.5), dtype=wide), mask=mask
                )
                whole = _scaled(half + _scaled(start, wide, 0.5), wide, 2)
                return np.where(np.isfinite(result), result + start, whole).astype(dtype)[()]
    with np.errstate(all="ignore"):
        if result.dtype == dtype:
            return np.add(result, start)
        return (result + start.astype(wide)).astype(dtype)


def _parts(array: Any) -> tuple[Array, ...]:
    """The real numbers of an array: its elements, or their two parts."""
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


def _is_minus_zero(start: Any) -> bool:
    """Whether a number is -0.0 in some part."""
    return start == 0 and any(bool(np.signbit(one)) for one in _parts(np.asarray(start)))


def _sum_without_start(call: Call, mask: Array | None, result: Any) -> Any:
    """The core's sum, which starts at 0.0, as one without a start: -0.0 of nothing but -0.0."""
    found = np.array(result)
    if not any(np.any(one == 0) for one in _parts(found)):
        return result
    array = call.array
    sources = _parts(array) if array.dtype.kind in "fcV" else (None,)
    for part, source in zip(_parts(found), sources * 2, strict=False):
        if source is None or array.size == 0:  # no integer is -0
            is_negative = np.equal(count_kept(call, mask), 0)
        else:  # -0.0 has the bits of the smallest integer
            bits = np.dtype(f"i{source.itemsize}").newbyteorder(source.dtype.byteorder)
            integers = call._replace(
                array=source.view(bits), dtype=None, options=ON_CPU, skip_nan=False
            )
            is_negative = np.equal(run_core(integers, "max", mask), np.iinfo(bits).min)
        np.negative(part, out=part, where=is_negative & (part == 0))
    return found[()]


def _product_after(call: Call, mask: Array | None, start: Any, result: Any) -> Any:
    """Product from a start on."""
    is_number = start == start  # as an element, NaN would be left out by nanprod
    leave = None
    if start.dtype.kind in "fcV" and is_number:
        leave = _leave_range(result)
    with np.errstate(all="ignore"):
        if result.dtype == start.dtype:
            made = np.multiply(result, start)
        else:
            made = (result * np.asarray(start).astype(result.dtype)).astype(start.dtype)[()]
    return made if leave is None else _products_with(call, mask, start, made, leave)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type that has the sums and products of floats or complex numbers on the CPU."""
    return _COMPLEX128 if dtype.kind == "c" else _FLOAT64


def _leave_range(products: Any) -> Array | None:
    """Which of them are infinite or have lost bits; None where none is. NaN stays NaN."""
    least, most = sys.float_info.min, sys.float_info.max
    if not isinstance(products, np.ndarray):
        number = complex(products)
        size = math.hypot(number.real, number.imag)
        return np.array(True) if size < least or size > most else None
    wide = products.astype(_wide(products.dtype), copy=False)
    with np.errstate(all="ignore"):
        if wide.dtype.kind == "c":  # mostly their squares do not leave it
            squares = np.square(wide.real)
            squares += np.square(wide.imag)
            lowest = np.fmin.reduce(squares, axis=None, initial=np.inf)
            if lowest >= least and np.fmax.reduce(squares, axis=None, initial=0.0) <= most:
                return None
        sizes = np.abs(wide)
        leave: Array = (sizes < least) | (sizes > most)
    return leave if leave.any() else None


def _products_with(call: Call, mask: Array | None, start: Any, made: Any, which: Array) -> Any:
    """Replaces those products by ones of which the start is one more element.

    Those of the elements leave the range of doubles where the start may lead back into it.
    """
    array, wide = np.asarray(call.array), _wide(start.dtype)
    reduced = range(array.ndim) if call.axis is None else call.axis
    axes = normalize_axis_tuple(reduced, array.ndim)
    last = tuple(range(array.ndim - len(axes), array.ndim))
    count = count_reduced(array.shape, call.axis)
    kept = tuple(extent for i, extent in enumerate(array.shape) if i not in axes)
    which = which.reshape(kept)

    def rows(of: Any, dtype: Any, first: Any) -> Array:
        chosen = np.moveaxis(of, axes, last)[which]
        made = np.empty((len(chosen), count + 1), dtype)
        made[:, 0] = first
        made[:, 1:] = chosen.reshape(len(chosen), count)
        return made

    with np.errstate(all="ignore"):
        elements = rows(array, start.dtype, start).astype(wide, copy=False)
        marks = None if mask is None else rows(np.broadcast_to(mask, array.shape), np.bool_, True)
        ours = call._replace(array=elements, axis=-1, dtype=None, keepdims=False, options=ON_CPU)
        found = np.array(made)
        found.reshape(kept)[which] = run_core(ours, "prod", marks)
    return found[()]


def finish_extreme(call: Call, mask: Array | None, found: Any) -> Any:
    """Combine ``initial`` with a ``nanmin`` or ``nanmax``, and warn if all elements of a row are
    NaN.

    NumPy has two ways. An exact ndarray's rows start from ``initial``, so that there is a number.
    Other inputs get NaN where elements were all NaN, whatever the start.
    """
    found = _mark_nan(call, mask, found)
    bad: Any = found != found
    if has_initial(call) and not call.is_exact and call.array.size == 0:
        bad = np.equal(count_kept(call, mask), 0)
    result = fold_in(call, UFUNCS[call.name], found)
    if call.is_exact:  # NumPy looks for NaN in what out holds then
        bad = result != result if call.out is None or call.out.dtype.kind not in "biu" else False
    elif np.any(bad):
        result = set_nan(result, bad)
    if np.any(bad):
        warn(f"All-NaN {'slice' if call.is_exact else 'axis'} encountered")
    return result


def _mark_nan(call: Call, mask: Array | None, result: Any) -> Any:
    """Store NaN for rows of NaN alone: the core returns the identity for them, an infinity."""
    if call.array.dtype.kind not in "fcV" or call.array.size == 0 or not np.any(np.isinf(result)):
        return result
    if mask is None:  # named kernels need not take positions
        anywhere = call._replace(options=("auto", call.options[1], None, None, call.options[-1]))
        bad = np.less(run(anywhere, "arg" + call.op), 0)
    else:
        bad = np.equal(count_kept(call, mask), 0)
    return set_nan(result, bad) if np.any(bad) else result


# ---------------------------------------------------------------- positions and ranges


def _position(call: Call) -> Any:
    """``argmin`` and ``argmax``, along one axis or all.

    ``out`` must convert to int64 safely, as in NumPy.
    """
    array, out = call.array, call.out
    if call.axis is not None:
        operator.index(call.axis)  # a tuple is a TypeError
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise TypeError("output must be an array")
        check_takes_positions(out.dtype.name)
        if not out.flags.writeable:
            raise ValueError("output array is read-only")
    if array.size == 0 and count_reduced(array.shape, call.axis) == 0:
        raise ValueError(f"attempt to get {call.op} of an empty sequence")
    result = run(call)
    if call.skip_nan:
        check_found(result)
    if out is not None and out.shape != np.shape(result):
        raise ValueError(f"output array does not match result of np.{call.op}.")
    return result if out is None else store(out, result, call.op)


def check_found(positions: Any) -> None:
    """Refuse rows in which ``nanargmin`` or ``nanargmax`` found only NaN."""
    is_many = isinstance(positions, np.ndarray)
    if (positions < 0).any() if is_many else positions < 0:
        raise ValueError("All-NaN slice encountered")


def _ptp(call: Call) -> Any:
    """Largest less smallest.

    With ``out`` the largest is stored there first, converted, as in NumPy.
    """
    if call.out is None:
        return run(call)
    check_out(call.out, np.maximum, call.array)
    low, high = run(call, "minmax")
    out = store(call.out, high, np.maximum.__name__)
    with np.errstate(all="ignore"):
        return np.subtract(out, low, out)


def _minmax(call: Call) -> tuple[Any, Any]:
    """Both extremes in one pass: ``min`` and ``max`` of the same arguments; ``out`` is a pair."""
    ufuncs = (np.minimum, np.maximum)
    mask = as_mask(call.where, call.array.shape)
    if call.out is not None and not (isinstance(call.out, tuple) and len(call.out) == len(ufuncs)):
        raise TypeError("out must be a pair of arrays, for the minimum and the maximum")
    outs = call.out or (None, None)
    for ufunc, out in zip(ufuncs, outs, strict=True):
        check_where(call, ufunc, mask)
        if out is not None:
            check_out(out, ufunc, call.array)
    calls = [
        call if out is None else convert_for(call._replace(out=out), ufunc, out)
        for ufunc, out in zip(ufuncs, outs, strict=True)
    ]
    if call.array.size == 0 and has_initial(call):
        results = [only_start(one, ufunc, mask) for ufunc, one in zip(ufuncs, calls, strict=True)]
    else:
        check_identity(call, np.minimum)
        if all(one is call for one in calls):
            both = run(call, "minmax", mask)
        else:
            both = [run(one, name, mask) for name, one in zip(("min", "max"), calls, strict=True)]
        results = [
            fold_in(one, ufunc, extreme)
            for ufunc, one, extreme in zip(ufuncs, calls, both, strict=True)
        ]
    for ufunc, out, one in zip(ufuncs, outs, results, strict=True):  # before either is written
        if out is not None:
            check_shape(out.shape, np.shape(one), ufunc.__name__)
    low, high = (
        one if out is None else store(out, one, ufunc.__name__)
        for ufunc, out, one in zip(ufuncs, outs, results, strict=True)
    )
    return low, high


_RULES: dict[str, Callable[[Call], Any]] = {
    "mean": _moments.mean,
    "var": _moments.variance,
    "std": _moments.variance,
    "argmin": _position,
    "argmax": _position,
    "count_nonzero": run,
    "ptp": _ptp,
    "minmax": _minmax,
}
