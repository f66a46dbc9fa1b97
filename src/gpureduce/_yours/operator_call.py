"""Calls of ``reduce`` with an operator of the user's own: NumPy's arguments, and where they run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from .. import _core
from .._arguments import as_mask, check_shape
from .._calls import NoValue, OwnCall, warn
from .._dtypes import name_of, native_dtype
from .._exceptions import KernelUnavailableError, NoDeviceWarning
from .._interop.inputs import as_array, check_plain, wrapper_of
from .._interop.libraries import device_library, from_host
from .operator_cpu import CpuProgram
from .operator_layout import ENDS, INITIAL_BYTES, STARTS, Layout
from .operator_text import OperatorText, OperatorTypes, result_dtype

__all__ = ["Programs", "reduce_by"]

Programs = dict[tuple[str, int, OperatorTypes], Any]
"""Loaded programs by place and types; the number is a device's ordinal."""
_CPU_KERNELS = ("auto", "fast")


def reduce_by(operator: OperatorText, programs: Programs, call: OwnCall) -> Any:
    """Run a call with an operator."""
    for name in ("where", "initial", "out"):
        value = getattr(call, name)
        if value is not True:
            check_plain(value, name)
    if device_library(call.array) is not None:
        raise TypeError(
            f"operator '{operator.name}' takes arrays of the host, not of a device: copy it to the "
            "host first, as with cupy.asnumpy(a) or a.cpu().numpy()"
        )
    wrapper = wrapper_of(call.array)
    given = call.array if wrapper is None else from_host(call.array)
    result = _reduce_on_host(operator, programs, call, as_array(given, "a.data"))
    if wrapper is None or call.out is not None:
        return result
    made = wrapper(result, operator.name)
    if made is NotImplemented:
        raise TypeError(
            f"a is a {type(call.array).__name__}, which takes no result of {operator.name}: pass "
            "numpy.asarray(a)"
        )
    return made


# ---------------------------------------------------------------- dtypes -------------------------


def element_dtype(operator: OperatorText, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """An element's dtype in native byte order; ``TypeError`` if the operator does not take it."""
    name = operator.name
    if dtype.name not in _core.DTYPES:
        raise TypeError(f"operator '{name}' takes no elements of dtype {dtype}: numbers and bools")
    if operator.dtypes is not None and native_dtype(dtype) not in operator.dtypes:
        known = ", ".join(str(each) for each in operator.dtypes)
        raise TypeError(f"operator '{name}' takes elements of {known}, not of {dtype}")
    return native_dtype(dtype)


def compute_dtype(operator: OperatorText, element: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """What elements are converted to: `dtype`, or their own."""
    if dtype is None:
        return element_dtype(operator, element)
    if name_of(element) not in _core.DTYPES:
        raise TypeError(f"elements of dtype {element} are not converted: pass no dtype")
    compute = element_dtype(operator, native_dtype(dtype))
    if element.kind == "c" and compute.kind not in "cb":
        raise TypeError(f"operator '{operator.name}' does not convert complex elements to {dtype}")
    return compute


# ---------------------------------------------------------------- host arrays --------------------


def check_has_value(operator: OperatorText, n: int, call: OwnCall, has_identity: int) -> None:
    """Refuse rows without elements, where there is nothing that they reduce to."""
    if has_identity or has_initial(call):
        return
    if n == 0:
        raise ValueError(
            f"zero-size array to reduction operation {operator.name} which has no identity"
        )
    if call.where is not True:
        raise ValueError(
            f"reduction operation '{operator.name}' does not have an identity, so to use a where "
            "mask one has to specify 'initial'"
        )


def has_initial(call: OwnCall) -> bool:
    """Whether an element is given that comes before the first one."""
    return call.initial is not NoValue and call.initial is not None


def initial_bytes(operator: OperatorText, call: OwnCall, element: np.dtype[Any]) -> bytes:
    """The bytes of ``initial`` as an element."""
    if element.itemsize > INITIAL_BYTES:
        raise ValueError(
            f"operator '{operator.name}' takes an initial of up to {INITIAL_BYTES} bytes, and an "
            f"element has {element.itemsize}"
        )
    start = np.empty((), element)
    start[()] = call.initial
    return start.tobytes().ljust(INITIAL_BYTES, b"\0")


def _chosen_place(operator: OperatorText, call: OwnCall) -> str:
    """``"cpu"``, or why not."""
    place = call.device
    if call.block_size is not None or call.grid_size is not None or call.stream is not None:
        raise ValueError(
            f"operator '{operator.name}' runs on the CPU here: it takes no block_size, grid_size "
            "or stream"
        )
    if place not in (None, "auto", "cpu"):
        raise KernelUnavailableError(
            f"operator '{operator.name}' runs on the CPU only: pass device='cpu'"
        )
    if call.kernel not in _CPU_KERNELS:
        known = _core.find_kernel(call.kernel)
        if place == "cpu":
            raise KernelUnavailableError(f"kernel '{known}' runs on GPUs: device is 'cpu'")
        warn("a GPU kernel was named, but the CPU backend answers", NoDeviceWarning)
    return "cpu"


def _reduce_on_host(
    operator: OperatorText, programs: Programs, call: OwnCall, array: np.ndarray[Any, Any]
) -> Any:
    array = np.asarray(array)
    axes = (
        tuple(range(array.ndim))
        if call.axis is None
        else normalize_axis_tuple(call.axis, array.ndim, "axis")
    )
    element = element_dtype(operator, array.dtype) if call.dtype is None else array.dtype
    compute = compute_dtype(operator, element, call.dtype)
    array = array.astype(native_dtype(array.dtype), copy=False)
    mask = as_mask(call.where, array.shape)
    _chosen_place(operator, call)
    types = OperatorTypes(array.dtype, compute, mask is not None)
    key = ("cpu", 0, types)
    if key not in programs:
        programs[key] = CpuProgram(operator, types)
    program = programs[key]
    dtype = result_dtype(operator, program.facts, compute)
    layout = Layout.of(
        array.shape,
        array.strides,
        None if mask is None else mask.strides,
        axes,
        dtype.itemsize,
        reorder=operator.commutative,
        keep_positions=bool(program.facts["takes_index"]),
    )
    check_has_value(operator, layout.n, call, program.facts["has_identity"])
    kept = tuple(n for i, n in enumerate(array.shape) if i not in axes)
    result = np.empty(kept, dtype)
    values: dict[str, Any] = {"flags": ENDS}
    if mask is not None:
        values["mask"] = mask.ctypes.data
    if has_initial(call):
        values["flags"] |= STARTS
        values["initial"] = initial_bytes(operator, call, array.dtype)
    program.reduce(layout, array, result, **values)
    if call.keepdims:
        result = result.reshape([1 if i in axes else n for i, n in enumerate(array.shape)])
    return finished(operator, call, result)


def finished(operator: OperatorText, call: OwnCall, result: np.ndarray[Any, Any]) -> Any:
    """A result as NumPy returns it, or stored to ``out``."""
    if call.out is None:
        return result[()] if result.ndim == 0 else result
    out = call.out
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out= of an array of the host is an array, not {type(out).__name__}")
    check_shape(out.shape, result.shape, operator.name)
    np.copyto(out, result, casting="same_kind")
    return out
