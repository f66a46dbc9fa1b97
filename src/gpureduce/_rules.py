"""NumPy's fine print: what the C core does not do itself.

The functions of the package call the core at once for an exact ``ndarray`` and default ``out``,
``initial`` and ``where``. Everything else comes here: other inputs are made arrays, ``where`` a
mask of the array's shape, ``initial`` is folded in at the end, ``out`` receives the result by
NumPy's casting rule. Each rule follows NumPy's ``ufunc.reduce`` and ``_methods._mean``.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from . import _core

NoValue: Any = np._NoValue

Options = tuple[str, "str | None", "int | None", "int | None", Any]
"""kernel, device, block_size, grid_size, stream"""

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "any": np.logical_or,
    "all": np.logical_and,
}

_CUDA_DLPACK_TYPES = (2, 13)  # kDLCUDA, kDLCUDAManaged


def reduce_any(
    op: str,
    a: Any,
    axis: Any,
    dtype: Any,
    out: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
    options: Options,
) -> Any:
    """Reduce whatever NumPy takes, with every argument NumPy has."""
    array = as_array(a, "a.data with where=~numpy.ma.getmaskarray(a)")
    is_matrix = isinstance(array, np.matrix)
    if is_matrix and axis is not None:
        keepdims = True
    if op == "mean" and (out is not None or where is not True or array.size == 0):
        result = _mean(array, axis, dtype, out, keepdims, where, options)
    else:
        result = _fold(op, array, axis, dtype, out, keepdims, initial, where, options)
    if out is not None or type(array) is np.ndarray or (is_matrix and axis is None):
        return result
    value = np.asarray(result)
    return array.__array_wrap__(value, None, value.ndim == 0)


# ---------------------------------------------------------------- inputs


def as_array(a: Any, instead_of_masked: str) -> np.ndarray[Any, Any]:
    """Make what NumPy takes an array; a ``TypeError`` says what to pass instead of what we do not take."""
    if isinstance(a, np.ndarray):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(a, masked.MaskedArray):
            raise TypeError(f"masked arrays are not supported: pass {instead_of_masked}")
        return a
    if _is_on_device(a):
        raise TypeError(
            f"device arrays are not supported yet: {type(a).__name__} is in GPU memory. Copy it to "
            "the host first, as with cupy.asnumpy(a) or a.cpu().numpy()"
        )
    return np.asarray(a)


def _is_on_device(a: Any) -> bool:
    if hasattr(a, "__cuda_array_interface__"):
        return True
    where = getattr(a, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in _CUDA_DLPACK_TYPES


def _as_mask(where: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    if where is True:
        return None
    mask = where if isinstance(where, np.ndarray) else np.asarray(where, dtype=np.bool_)
    return np.broadcast_to(mask.astype(np.bool_, casting="safe", copy=False), shape)


def _count_reduced(array: np.ndarray[Any, Any], axis: Any) -> int:
    """Number of elements that make one result."""
    if axis is None:
        return array.size
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(array.shape[normalize_axis_index(i, array.ndim)] for i in axes)


def _check_out(out: Any) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError("return arrays must be of ArrayType")
    if not out.flags.writeable:
        raise ValueError("output array is read-only")


def _store(out: np.ndarray[Any, Any], result: Any, name: str) -> np.ndarray[Any, Any]:
    shape = np.shape(result)
    if out.ndim != len(shape):
        raise ValueError(
            f"output parameter for reduction operation {name} has the wrong number of dimensions: "
            f"Found {out.ndim} but expected {len(shape)}"
        )
    if out.shape != shape:
        raise ValueError(f"output array has shape {out.shape}, the result has shape {shape}")
    np.copyto(out, result, casting="unsafe")
    return out


# ---------------------------------------------------------------- reductions


def _fold(
    op: str,
    array: np.ndarray[Any, Any],
    axis: Any,
    dtype: Any,
    out: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
    options: Options,
) -> Any:
    ufunc = _UFUNCS[op] if op != "mean" else np.add
    has_initial = initial is not NoValue and initial is not None
    has_identity = initial is NoValue and ufunc.identity is not None
    mask = _as_mask(where, array.shape)
    if mask is not None and not has_initial and not has_identity:
        raise ValueError(
            f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where "
            "mask one has to specify 'initial'"
        )
    if out is not None:
        _check_out(out)
        operands = (out.dtype, array.dtype, None)
        resolved = ufunc.resolve_dtypes(operands, casting="unsafe", reduction=True)[0]
        if dtype is None and op in ("sum", "prod"):
            dtype = resolved
    if has_initial and array.size == 0 and ufunc.identity is None:
        result = _start_only(array, axis, keepdims, initial, options)
    else:
        if initial is None and array.size == 0 and _count_reduced(array, axis) == 0:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        number = _core.OPERATORS[op]
        result = _core.reduce(number, array, axis, dtype, keepdims, mask, *options, False, 0.0)
        if has_initial:
            result = _fold_in(ufunc, result, initial)
    return result if out is None else _store(out, result, ufunc.__name__)


def _as_start(initial: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """``initial`` as an element of the result's type; NumPy's error if it is none."""
    start = np.empty((), dtype)
    start[()] = initial
    return start


def _fold_in(ufunc: np.ufunc, result: Any, initial: Any) -> Any:
    start = _as_start(initial, result.dtype)
    if isinstance(result, np.ndarray):
        return ufunc(result, start, out=result)
    return ufunc(result, start)


def _start_only(array: np.ndarray[Any, Any], axis: Any, keepdims: Any, initial: Any, options: Options) -> Any:
    """A reduction of nothing that has a start but no identity: the start, in the result's shape."""
    shaped = _core.reduce(_core.OPERATORS["any"], array, axis, None, keepdims, None, *options, False, 0.0)
    start = _as_start(initial, array.dtype.newbyteorder("="))
    return np.full(np.shape(shaped), start)[()]


def _mean(
    array: np.ndarray[Any, Any],
    axis: Any,
    dtype: Any,
    out: Any,
    keepdims: Any,
    where: Any,
    options: Options,
) -> Any:
    mask = _as_mask(where, array.shape)
    count: Any = _count_reduced(array, axis)
    if mask is not None:
        here = ("auto", "cpu", None, None, None)
        count = _core.reduce(_core.OPERATORS["sum"], mask, axis, None, keepdims, None, *here, False, 0.0)
    if np.any(np.equal(count, 0)):
        warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=4)
    is_half = False
    if dtype is None:
        if array.dtype.kind in "biu":
            dtype = np.float64
        elif array.dtype.type is np.float16:
            dtype = np.float32
            is_half = True
    kept: Any = True if mask is None else mask
    total = _fold("sum", array, axis, dtype, out, keepdims, NoValue, kept, options)
    total = np.asarray(total) if out is None else out
    np.true_divide(total, count, out=total, casting="unsafe", subok=False)
    if out is not None:
        return out
    return (total.astype(np.float16) if is_half else total)[()]
