"""Means, variances and standard deviations: NumPy's warnings, divisors and rules for ``out``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arguments import (
    are_finite,
    as_ddof,
    as_mask,
    check_inexact,
    check_is_array,
    check_is_writeable,
    check_mean,
    check_moment_out_dtype,
    check_takes_mean,
    check_variance_dtype,
    convert_for,
    count_kept,
    real_of,
    real_part,
    run,
    set_nan,
    store,
    type_of_fold_into,
    type_of_mean,
    type_of_moment_into,
    type_of_variance,
    warn_of_imaginary_parts,
)
from ._calls import ON_CPU, Array, Call, NoValue, map_once, run_core, warn
from ._interop.libraries import is_on_device

# ---------------------------------------------------------------- means


def mean(call: Call) -> Any:
    """Follow ``numpy.mean`` and ``nanmean``."""
    if call.skip_nan:
        _check_inexact(call)
    _check_where(call)
    call = real_part(call)
    mask = as_mask(call.where, call.array.shape)
    leaves_out = call.skip_nan and call.array.dtype.kind in "fcV"  # V: bfloat16
    # Where it is, nothing is counted unless a result is NaN. Arrays without elements may have no
    # results, of which NumPy warns, too.
    shows_nan = call.out is None and call.dtype is None and call.array.dtype.kind not in "mM"
    shows_nan = shows_nan and (call.array.size > 0 or mask is not None)
    if not leaves_out and (call.array.size == 0 or mask is not None):
        call = call._replace(skip_nan=False)
        if not shows_nan and _are_any(count_kept(call, mask) == 0):
            warn("Mean of empty slice")
    if call.array.dtype.kind in "mM":
        return _mean_of_times(call, mask)
    if call.out is not None:
        check_is_array(call.out)
    if call.out is not None and _divides_integers(call):
        return _mean_into_integers(call, mask)
    if call.out is not None:
        _check_out(call, call.dtype)
        call = _rounded_for(call)
    result = run(call, mask=mask)
    if leaves_out or (shows_nan and mask is not None):
        warn_if_nothing_is_left(call, mask, result)
    return result if call.out is None else store(call.out, result, np.add.__name__)


def _check_out(call: Call, dtype: Any) -> None:
    """Refuse an ``out`` that is not for means or variances."""
    check_is_writeable(call.out)
    check_moment_out_dtype(call.op, call.out.dtype, call.array.dtype, dtype, call.skip_nan)


def _rounded_for(call: Call) -> Call:
    """The call with the type that its result is rounded to for its ``out``."""
    dtype = call.dtype or type_of_moment_into(call.out.dtype, call.array.dtype)
    return call if dtype is call.dtype else call._replace(dtype=dtype)


def _are_any(truths: Any) -> bool:
    return bool(truths.any() if isinstance(truths, np.ndarray) else truths)


def warn_if_nothing_is_left(call: Call, mask: Array | None, result: Any) -> None:
    """Warn if a mean has no elements."""
    if (result != result).any() and np.equal(count_kept(call, mask), 0).any():
        warn("Mean of empty slice")


def _check_inexact(call: Call) -> None:
    """Refuse integer ``dtype`` and ``out`` if elements may be NaN, as NumPy's functions do."""
    if call.array.dtype.kind not in "fc":
        return
    for name, dtype in (("dtype", call.dtype), ("out", getattr(call.out, "dtype", None))):
        if dtype is not None:
            check_inexact(name, np.dtype(dtype).name)


def _check_where(call: Call) -> None:
    """Refuse elements that NumPy cannot count here; its nan functions count in another way."""
    if not call.skip_nan and (call.where is None or isinstance(call.where, str | bytes)):
        raise TypeError(f"where must be bools, not {type(call.where).__name__}")


def _divides_integers(call: Call) -> bool:
    return call.out.dtype.kind in "biu" or (
        call.dtype is not None and np.dtype(call.dtype).kind in "biu"
    )


def _mean_into_integers(call: Call, mask: Array | None) -> Array:
    _check_out(call, call.dtype)
    dtype = call.dtype or type_of_mean(call.array.dtype, call.skip_nan)
    if dtype is None:
        dtype = type_of_fold_into(np.add, call.out.dtype, call.array.dtype)
    return _divide_into(call, run(call._replace(dtype=dtype), "sum", mask), mask)


def _divide_into(call: Call, total: Any, mask: Array | None) -> Array:
    """NumPy's two steps, unlike one step for integers: sum into ``out``, then divide."""
    out = store(call.out, total, np.add.__name__)
    with np.errstate(all="ignore"):
        np.true_divide(out, count_kept(call, mask), out=out, casting="unsafe", subok=False)
    return out


def _mean_of_times(call: Call, mask: Array | None) -> Any:
    # Dates do not add: NumPy's TypeError.
    np.add.reduce(np.zeros(1, call.array.dtype), 0, call.dtype)
    if call.out is not None:
        _check_out(call, call.dtype)
        call = convert_for(call, np.add, call.out)
    total = run(call, "sum", mask)
    if call.out is not None:
        return _divide_into(call, total, mask)
    with np.errstate(all="ignore"):
        target = total if isinstance(total, np.ndarray) else None  # keeps its order
        return np.true_divide(total, count_kept(call, mask), out=target, casting="unsafe")


# ---------------------------------------------------------------- variances


def variance(call: Call) -> Any:
    """Follow ``numpy.var`` and ``std``, ``nanvar`` and ``nanstd``."""
    _refuse_times(call)
    if call.skip_nan:
        _check_inexact(call)
    _check_where(call)
    if type(call.ddof) not in (int, float):
        call = call._replace(ddof=as_ddof(call.ddof))
    mask = as_mask(call.where, call.array.shape)
    if not call.skip_nan and _are_any(count_kept(call, mask) <= call.ddof):
        warn("Degrees of freedom <= 0 for slice")
    cast, call = _cast_of(call)
    if call.out is not None:
        _check_out(call, cast or call.dtype)
        call = _rounded_for(call)
    if (
        call.skip_nan
        and cast is not None
        and call.array.dtype.kind != "c"
        and call.center is NoValue
    ):
        warn_of_imaginary_parts()
    result = run(call, mask=mask) if call.center is NoValue else _with_given_mean(call, mask)
    if call.skip_nan:
        result = tell_freedom(call, mask, result)
    if cast is not None:
        result = result.astype(cast)
    return result if call.out is None else store(call.out, result, np.add.__name__)


def tell_freedom(call: Call, mask: Array | None, result: Any) -> Any:
    """Warn of rows with no more than ``ddof`` elements besides NaN.

    Return the result with NaN for them.
    """
    if are_finite(result):
        return result
    bad = np.less_equal(count_kept(call, mask), call.ddof)
    if np.any(bad):
        warn("Degrees of freedom <= 0 for slice.")
        result = set_nan(result, bad)
    return result


def _refuse_times(call: Call) -> None:
    if call.array.dtype.kind in "mM":
        np.var(np.zeros(1, call.array.dtype))  # NumPy's TypeError
        raise TypeError(f"{call.name} is not defined for dtype {call.array.dtype}")


def _cast_of(call: Call) -> tuple[np.dtype[Any] | None, Call]:
    """For a complex ``dtype`` the core computes in its real counterpart; then convert."""
    if call.dtype is None:
        return None, call
    dtype = np.dtype(call.dtype)
    if dtype.kind not in "fcV" or dtype.type is np.void:
        raise TypeError(f"{call.name} computes in a float or complex type, not in {dtype}")
    if dtype.kind == "c":
        return dtype, call if call.array.dtype.kind == "c" else call._replace(dtype=real_of(dtype))
    check_variance_dtype(call.name, call.array.dtype.name, dtype.name)
    return None, call


def _with_given_mean(call: Call, mask: Array | None) -> Any:
    """Mean squared distance from a given mean c: variance + (mean - c)**2, which needs no array of
    distances.

    Costs a pass for each of the two, and one for the counts of what NaN leave.
    """
    check_takes_mean(call)
    if is_on_device(call.center):
        raise TypeError("the array is in host memory and mean= in GPU memory: copy one of them")
    array, center = call.array, np.asarray(call.center)
    is_complex = array.dtype.kind == "c"
    wide = call._replace(dtype=np.complex128 if is_complex else np.float64, keepdims=True, ddof=0.0)
    means, spreads = np.asarray(run(wide, "mean", mask)), np.asarray(run(wide, "var", mask))
    check_mean(center.shape, center.dtype.kind == "c", means.shape, array.dtype.name)
    counts = np.asarray(count_kept(wide, mask))
    with np.errstate(all="ignore"):
        # NumPy's nan functions subtract in a copy of the array, which keeps its order in memory.
        into = means if call.skip_nan else None
        apart = np.subtract(means, center, out=into, casting="unsafe")
        squares = np.asarray(spreads + (apart * np.conjugate(apart)).real)
        bad = np.isnan(squares)
        if np.any(bad):
            np.copyto(squares, np.inf, where=bad & _is_infinite(wide, mask, center))
        share = counts / np.maximum(counts - call.ddof, 0)
        result = squares * share
        if call.op == "std":
            result = np.sqrt(result)
        dtype = type_of_variance(array.dtype, call.dtype)
        if (
            call.dtype is None
            and array.dtype.kind not in "biu"
            and not (call.skip_nan and array.dtype.kind in "fc")
        ):
            weak = isinstance(call.center, int | float | complex)  # a Python number does not widen
            dtype = real_of(np.result_type(array.dtype, call.center if weak else center))
        result = result.astype(dtype)
    return result if call.keepdims else np.squeeze(result, _axes_of(array, call.axis))[()]


def _is_infinite(call: Call, mask: Array | None, center: Array) -> Any:
    """Whether no distance from the given mean is NaN, per row.

    Infinite elements have infinite distances from a number, and none from their own mean.
    """
    array = np.asarray(call.array)

    def is_nan(a: Array, c: Array) -> Array:
        made: Array = np.isnan(np.subtract(a, c))
        return made & (a == a) if call.skip_nan else made

    bad = np.asarray(map_once(is_nan, array, center))
    return np.logical_not(
        run_core(call._replace(array=bad, dtype=None, skip_nan=False, options=ON_CPU), "any", mask)
    )


def _axes_of(array: Array, axis: Any) -> Any:
    return tuple(range(array.ndim)) if axis is None or array.ndim == 0 else axis
