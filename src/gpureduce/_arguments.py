"""NumPy's rules for the arguments of a reduction: masks, starts, results in ``out``.

Each rule is that of NumPy's ``ufunc.reduce``. Where NumPy's result depends on dtypes alone, NumPy's
own ufunc is called with an array of one element or of none: it raises and warns as it would for the
whole array.
"""

from __future__ import annotations

import cmath
import functools
import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from ._calls import ON_CPU, Array, Call, NoValue, bools_like, map_once, run_core, warn
from ._dates import run_dates
from ._dtypes import REAL_KINDS, is_numpys, name_of


def run(call: Call, op: str | None = None, mask: Array | None = None) -> Any:
    """Run a call, or the same call with another operator."""
    run_kind = run_dates if call.array.dtype.kind in "mM" else run_core
    return run_kind(call, op or call.op, mask)


# ---------------------------------------------------------------- dtypes


def check_inexact(name: str, dtype: str) -> None:
    """Refuse integers and times as the type, or ``out``, of a reduction that leaves out NaN."""
    if dtype.startswith(("bool", "int", "uint", "datetime", "timedelta")):
        raise TypeError(f"If a is inexact, then {name} must be inexact")


def check_takes_positions(dtype: str) -> None:
    """Refuse an `out` of positions that NumPy does not safely convert to int64."""
    if dtype not in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"):
        raise TypeError(
            f"Cannot cast from dtype('{dtype}') to {np.dtype(np.intp)!r} according to the rule "
            "'safe'"
        )


def check_variance_dtype(name: str, element: str, dtype: str) -> None:
    """Refuse a real type for squares of complex distances."""
    if element.startswith("complex") and not dtype.startswith("complex"):
        raise TypeError(
            f"{name} of complex elements is computed in a complex dtype, not in {dtype}"
        )


# ---------------------------------------------------------------- inputs


def as_mask(where: Any, shape: tuple[int, ...]) -> Array | None:
    """``where`` as a bool array of the array's shape, None for all elements.

    Broadcast, not copied.
    """
    if where is True:
        return None
    if type(where) is np.ndarray and where.dtype.char == "?" and where.shape == shape:
        return where  # a view by broadcast_to takes microseconds
    mask = where if isinstance(where, np.ndarray) else np.asarray(where, dtype=np.bool_)
    return np.broadcast_to(mask.astype(np.bool_, casting="safe", copy=False), shape)


def count_reduced(shape: tuple[int, ...], axis: Any) -> int:
    """Number of elements that make one result."""
    if axis is None or (shape == () and axis in (0, -1)):
        return math.prod(shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[normalize_axis_index(i, len(shape))] for i in axes)


def count_kept(call: Call, mask: Array | None) -> Any:
    """Number of elements that make each result: an int, or int64 of the result's shape.

    NaN are found by a bool array of as many elements. Rules call this function only if a result
    suggests that too few elements are left.
    """
    ones = map_once(lambda a: ~np.isnan(a), call.array) if call.skip_nan else mask
    if ones is None:
        return count_reduced(call.array.shape, call.axis)
    ours = call._replace(
        array=np.asarray(ones), dtype=None, options=ON_CPU, skip_nan=False, ddof=0.0
    )
    return run_core(ours, "sum", mask if call.skip_nan else None)


def as_ddof(ddof: Any) -> float:
    """``ddof`` as the float that the core takes."""
    if isinstance(ddof, str | bytes) or ddof is None:
        raise TypeError(f"ddof must be a number, not {type(ddof).__name__}")
    return float(ddof)


def warn_of_imaginary_parts() -> None:
    """Warn as NumPy's conversions do."""
    warn("Casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning)


def real_part(call: Call) -> Call:
    """Discard imaginary parts, with NumPy's warning, where the dtype is real.

    Elements are not copied.
    """
    if call.array.dtype.kind != "c" or call.dtype is None or np.dtype(call.dtype).kind in "bc":
        return call
    if np.dtype(call.dtype).kind in REAL_KINDS:
        warn_of_imaginary_parts()
    if call.skip_nan:  # NaN in either part leaves the element out
        numbers = map_once(
            lambda a: np.logical_not(np.isnan(a), out=bools_like(a)), np.asarray(call.array)
        )
        mask = as_mask(call.where, numbers.shape)
        call = call._replace(where=numbers if mask is None else numbers & mask)
    return call._replace(array=call.array.real)


def check_takes_mean(call: Call) -> None:
    """Refuse a given mean for kernels that compute their own."""
    if call.rounds_once:
        raise ValueError(
            "mean= is not taken with kernel='exact': it makes variances about the exact mean; "
            "'auto' does"
        )


def check_mean(
    shape: tuple[int, ...], is_complex: bool, kept: tuple[int, ...], element: str
) -> None:
    """Refuse a mean of the wrong type or shape.

    `kept` is the result's shape with ``keepdims=True``.
    """
    if is_complex and not element.startswith("complex"):
        raise TypeError(f"mean is complex, of elements of dtype {element}")
    if len(shape) > len(kept) or any(
        n not in (1, m) for n, m in zip(shape[::-1], kept[::-1], strict=False)
    ):
        raise ValueError(
            f"mean has shape {shape}: it must broadcast to the result's shape with keepdims=True, "
            f"{kept}"
        )


# ---------------------------------------------------------------- starts

_PLAIN_STARTS = frozenset((int, float))
"""Types of ``initial`` that NumPy converts to the dtype of any numbers."""


_SILENT = frozenset((np.minimum, np.maximum, np.fmin, np.fmax))
"""Ufuncs that warn of no number of NumPy's own dtypes. Changing what NumPy warns of takes longer
than they do."""


def has_initial(call: Call) -> bool:
    """Whether a start was given. None means no start, not even the identity."""
    return call.initial is not NoValue and call.initial is not None


def start_of(call: Call, ufunc: np.ufunc) -> Any:
    """``initial`` as an element of the result's type; NumPy's error if it does not convert.

    It passes through ``out``: NumPy stores it there before it reduces.
    """
    initial = call.initial
    if call.dtype is None and type(initial) in _PLAIN_STARTS:
        sign = math.copysign(1, initial) if initial == 0 else 0
        start = _plain_start(ufunc, call.array.dtype, initial, sign)
    else:
        start = ufunc.reduce(np.empty(0, call.array.dtype), 0, call.dtype, initial=initial)
    if isinstance(call.out, np.ndarray) and call.out.dtype != start.dtype:
        # NumPy's ComplexWarning is of elements. Filters of warnings are all threads'.
        part = start.real if call.out.dtype.kind in REAL_KINDS else start
        with np.errstate(all="ignore"):
            start = part.astype(call.out.dtype).astype(start.dtype)
    return start


@functools.lru_cache(maxsize=64, typed=True)
def _plain_start(ufunc: np.ufunc, dtype: np.dtype[Any], initial: float, sign: float) -> Any:
    """:func:`start_of` for a number, which is often the same; `sign` tells -0.0 from 0.0."""
    return ufunc.reduce(np.empty(0, dtype), axis=0, initial=initial)


def fold_in(call: Call, ufunc: np.ufunc, result: Any) -> Any:
    """Combine a result with ``initial``."""
    if not has_initial(call):
        return result
    start = start_of(call, ufunc)
    out = result if isinstance(result, np.ndarray) else None
    if ufunc in _SILENT and result.dtype.isbuiltin == 1:
        return ufunc(result, start, out=out)
    with np.errstate(all="ignore"):
        return ufunc(result, start, out=out)


def only_start(call: Call, ufunc: np.ufunc, mask: Array | None = None) -> Any:
    """The start in the result's shape and order, for no elements and an operator without
    identity.
    """
    is_time = call.array.dtype.kind in "mM"
    array = call.array.view(np.int64) if is_time else call.array
    bools = run_core(call._replace(array=array, dtype=None, skip_nan=False), "any", mask)
    start = np.asarray(start_of(call, ufunc))
    return np.full_like(np.asarray(bools), start, start.dtype)[()]


def check_where(call: Call, ufunc: np.ufunc, mask: Array | None) -> None:
    """Refuse a mask, which may leave out every element, for operators that have no value then."""
    if (
        mask is None
        or has_initial(call)
        or (call.initial is NoValue and ufunc.identity is not None)
    ):
        return
    raise ValueError(
        f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where mask "
        "one has to specify 'initial'"
    )


def check_identity(call: Call, ufunc: np.ufunc) -> None:
    """Refuse arrays without elements if ``initial=None`` removes the identity."""
    if (
        call.initial is None
        and call.array.size == 0
        and count_reduced(call.array.shape, call.axis) == 0
    ):
        raise ValueError(
            f"zero-size array to reduction operation {ufunc.__name__} which has no identity"
        )


# ---------------------------------------------------------------- results


def check_is_array(out: Any) -> None:
    """Refuse an ``out`` that is no array."""
    if out is ...:
        raise TypeError(
            "out=... is for bitwise_and, bitwise_or, bitwise_xor, logical_xor, nanmin and nanmax; "
            "elsewhere out must be an array"
        )
    if not isinstance(out, np.ndarray):
        raise TypeError("return arrays must be of ArrayType")


def check_out(out: Any, ufunc: np.ufunc, array: Array, dtype: Any = None) -> None:
    """Refuse an ``out`` that ``ufunc.reduce`` would refuse, whatever its shape."""
    check_is_writeable(out)
    check_out_dtype(out.dtype, ufunc, array.dtype, dtype)


def check_is_writeable(out: Any) -> None:
    """Refuse an ``out`` that is no array or cannot be written."""
    check_is_array(out)
    if not out.flags.writeable:
        raise ValueError("output array is read-only")


def check_host_out(out: Any) -> None:
    """Refuse an ``out`` of an operator without a ufunc that is no array or cannot be written."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out= of an array of the host is an array, not {type(out).__name__}")
    check_is_writeable(out)


def check_is_numeric(out: np.dtype[Any]) -> None:
    """Refuse strings, objects and structures as a type of ``out``."""
    if out.kind in "SUTO" or out.type is np.void:
        raise TypeError(f"out of dtype {out} is not supported: it must be of numbers or times")


def check_out_dtype(
    out: np.dtype[Any], ufunc: np.ufunc, elements: np.dtype[Any], dtype: Any = None
) -> None:
    """Refuse a type of ``out`` that ``ufunc.reduce`` would refuse."""
    check_is_numeric(out)
    types = (elements, out, None if dtype is None else np.dtype(dtype))
    if elements.kind not in "mM" and any(one is not None and one.kind == "c" for one in types):
        inner = types[2] or type_of_fold_into(ufunc, out, elements)
        if inner.kind in REAL_KINDS or (inner.kind == "c" and out.kind in REAL_KINDS):
            warn_of_imaginary_parts()
        types = (inner, inner, inner)
    elif types[2] is not None and types[2].kind == "V":
        # NumPy refuses other elements with a dtype that it lacks as dtype and out, until it has
        # reduced some without an out.
        types = (types[2], out, types[2])
    _check_types(ufunc, *types)


def check_moment_out_dtype(
    op: str, out: np.dtype[Any], elements: np.dtype[Any], dtype: Any, skip_nan: bool
) -> None:
    """Refuse a type of ``out`` that holds neither a sum nor a quotient, nor the root of one.

    Nor one of more digits than any result has, unless ``dtype`` asks for fewer.
    """
    if dtype is None and out.type in (np.longdouble, np.clongdouble):
        raise TypeError(
            f"out of dtype {out} is not supported: {op} has no more digits than float64; "
            "dtype=numpy.float64 rounds to that"
        )
    if op == "mean":
        asked, summed = dtype or type_of_mean(elements, skip_nan), elements
    else:
        asked, summed = dtype or float_of(elements), type_of_variance(elements, dtype)
    check_out_dtype(out, np.add, summed, asked)
    if out.kind == "M":
        np.true_divide(np.zeros(1, out), 1)  # dates are not divided: NumPy's TypeError
    if op == "std" and out.kind in "biumM":
        raise TypeError(f"cannot take the square root into out of dtype {out}: it must be inexact")


def float_of(elements: np.dtype[Any]) -> np.dtype[Any] | None:
    """Type in which a mean of integers is computed.

    None for other elements, which keep their type.
    """
    return np.dtype(np.float64) if elements.kind in "biu" else None


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type of the parts of complex numbers; others are their own."""
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype


def type_of_mean(elements: np.dtype[Any], skip_nan: bool) -> np.dtype[Any] | None:
    """Type in which ``numpy.mean`` sums by default; None for elements that keep their type."""
    if elements.type is np.float16 and not skip_nan:
        return np.dtype(np.float32)
    return float_of(elements)


def type_of_variance(elements: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Type of a variance without ``mean=``."""
    if dtype is not None:
        return real_of(np.dtype(dtype))
    return float_of(elements) or real_of(elements.newbyteorder("="))


@functools.lru_cache(maxsize=64)
def _check_types(
    ufunc: np.ufunc, array: np.dtype[Any], out: np.dtype[Any], dtype: np.dtype[Any] | None
) -> None:
    """Refuse types that ``ufunc.reduce`` refuses; those that it takes are asked for once."""
    ufunc.reduce(np.zeros(1, array), 0, dtype, np.zeros((), out))


@functools.lru_cache(maxsize=64)
def type_of_fold_into(
    ufunc: np.ufunc, out: np.dtype[Any], elements: np.dtype[Any]
) -> np.dtype[Any]:
    """Type that ``ufunc.reduce`` computes in where ``out`` is given and ``dtype`` is not."""
    return ufunc.resolve_dtypes((out, elements, None), casting="unsafe", reduction=True)[0]


@functools.lru_cache(maxsize=64)
def type_of_moment_into(
    out: np.dtype[Any] | str, elements: np.dtype[Any] | str
) -> np.dtype[Any] | None:
    """Type that a mean, variance or deviation of floats into a wider ``out`` is rounded to.

    None where it is the elements' own. Dtypes that NumPy lacks may be given as names.
    """
    names = [name_of(one) for one in (out, elements)]
    own, source = (np.dtype(name if is_numpys(name) else "float32") for name in names)
    if names[0] == names[1] or source.kind not in "fc" or own.kind not in "fc":
        return None
    wider = np.result_type(own, source)
    if source.kind == "f":
        wider = np.empty(0, wider).real.dtype
    return None if wider.name == names[1] else wider


def convert_for(call: Call, ufunc: np.ufunc, out: Array) -> Call:
    """Convert the elements to the type that NumPy reduces in for an ``out`` of another dtype.

    Only where the result depends on that type.
    """
    array = call.array
    call = begin_through(call, out.dtype, array.dtype)
    inner = type_for_out(call, ufunc, out.dtype, array.dtype, array.size == 0)
    if inner is None:
        return call
    with np.errstate(all="ignore"):
        return call._replace(array=array.astype(inner, copy=False))


def begin_through(call: Call, out: np.dtype[Any], elements: np.dtype[Any]) -> Call:
    """The call with what its fold begins with as a bool ``out`` holds it: bits are 0 or 1 there."""
    if out != np.bool_ or elements.kind not in "iu" or not call.op.startswith("bitwise"):
        return call
    if has_initial(call):
        start = np.bitwise_or.reduce(np.empty(0, elements), initial=call.initial)
        return call._replace(initial=int(start != 0))
    if call.initial is NoValue and call.op == "bitwise_and":
        return call._replace(initial=1)
    return call


def type_for_out(
    call: Call, ufunc: np.ufunc, out: np.dtype[Any], elements: np.dtype[Any], is_empty: bool
) -> np.dtype[Any] | None:
    """Type that the elements must have for the result to be NumPy's in an ``out`` of this type.

    None if they need no other: only times of another unit do, and extremes and bits with a start,
    or of rows that may have no elements and get the identity.
    """
    is_time = elements.kind == "m" and out.kind == "m" and call.op in ("sum", "mean")
    is_number = call.op in ("min", "max", "minmax") or call.op.startswith("bitwise")
    has_more = has_initial(call) or call.where is not True or is_empty
    if out == elements or not (is_time or (is_number and has_more)):
        return None
    return type_of_fold_into(ufunc, out, elements)


def check_shape(out: tuple[int, ...], result: tuple[int, ...], name: str) -> None:
    """Refuse an ``out`` whose shape is not the result's."""
    if len(out) != len(result):
        raise ValueError(
            f"output parameter for reduction operation {name} has the wrong number of dimensions: "
            f"Found {len(out)} but expected {len(result)}"
        )
    if out != result:
        raise ValueError(f"output array has shape {out}, the result has shape {result}")


def store(out: Array, result: Any, name: str) -> Array:
    """Store a result in ``out``, converted to its dtype, which has been checked."""
    result = np.asarray(result)
    check_shape(out.shape, result.shape, name)
    if result.dtype.kind == "c" and out.dtype.kind in REAL_KINDS:
        result = result.real
    with np.errstate(all="ignore"):
        np.copyto(out, result, casting="unsafe")
    return out


def are_finite(result: Any) -> bool:
    """Whether results are neither infinite nor NaN."""
    if isinstance(result, np.ndarray):
        return bool(np.isfinite(result).all())
    return cmath.isfinite(result)


def set_nan(result: Any, bad: Any) -> Any:
    """Store NaN where `bad` is true."""
    if not isinstance(result, np.ndarray):
        return result.dtype.type("nan")
    np.copyto(result, np.nan, where=bad, casting="unsafe")
    return result


def wrap(array: Array, result: Any) -> Any:
    """Convert a result by the ``__array_wrap__`` of the array, also by one of NumPy 1."""
    value = np.asarray(result)
    try:
        return array.__array_wrap__(value, None, value.ndim == 0)
    except TypeError as refused:
        for arguments in ((value, None), (value,)):
            try:
                made = array.__array_wrap__(*arguments)
            except TypeError:
                continue
            warn(
                "__array_wrap__ must accept context and return_scalar arguments (positionally) in "
                "the future. (Deprecated NumPy 2.0)",
                DeprecationWarning,
            )
            return made
        raise refused from None
