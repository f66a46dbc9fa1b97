"""Calls of ``reduce`` with an operator of the user's own: NumPy's arguments, and where they run."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from .. import _core
from .._arguments import as_mask, check_host_out, check_is_numeric, check_shape
from .._calls import NoValue, OwnCall
from .._dtypes import name_of, native_dtype
from .._exceptions import DeviceUnavailableError
from .._first_made import first_made
from .._interop.inputs import as_array, check_plain, rewrap, wrapper_of
from .._interop.libraries import Library, device_library, from_host
from .._records import forget_run
from .operator_device import OperatorReduction, block_of, reduce_chunks, steps_of
from .operator_device_program import Launch
from .operator_gpu import GpuProgram, compile_gpu_program, gpu_program
from .operator_layout import ENDS, INITIAL_BYTES, STARTS, Layout
from .operator_named import (
    ONLY_RUNS,
    PLANNED,
    NamedProgram,
    check_kernel,
    check_state,
    named_program,
)
from .operator_on_cpu import cpu_program
from .operator_text import OperatorText, OperatorTypes, result_dtype
from .targets import find_device

__all__ = ["DeviceRows", "Programs", "compile_by", "measure_by", "place_of", "reduce_by"]


class DeviceRows(NamedTuple):
    """A C-contiguous array in device memory, whose last axes are reduced."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reduced: int
    ordinal: int
    stream: Any


Programs = dict[tuple[str, int, OperatorTypes], Any]
"""Loaded programs by place and types; the number is a device's ordinal."""


def reduce_by(operator: OperatorText, programs: Programs, call: OwnCall) -> Any:
    """Run a call with an operator."""
    kernel = check_kernel(operator, call.kernel, call.block_size, call.grid_size)
    call = call._replace(kernel=kernel)
    wrapper = wrapper_of(call.array)
    try:
        for name in ("where", "initial", "out"):
            value = getattr(call, name)
            if value is not True:
                check_plain(value, name)
        library = device_library(call.array)
        if library is not None:
            if wrapper is None:
                check_plain(call.array, "a")
            result = _reduce_on_device(operator, library, call)
        else:
            given = call.array if wrapper is None else from_host(call.array)
            result = _reduce_on_host(operator, programs, call, as_array(given, "a.data"))
    finally:  # neither what checks reduced nor an earlier call is this one
        forget_run()
    if wrapper is None or call.out is not None:
        return result
    return rewrap(call.array, wrapper, result, operator.name)


# ---------------------------------------------------------------- dtypes -------------------------


def element_dtype(operator: OperatorText, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """An element's dtype in native byte order; ``TypeError`` if the operator does not take it."""
    name = operator.name
    if dtype.names is not None:
        _check_fields(operator, dtype)
    elif dtype.name not in _core.DTYPES:
        raise TypeError(
            f"operator '{name}' takes no elements of dtype {dtype}: it takes numbers, bools and "
            "structures of them"
        )
    if operator.dtypes is not None and native_dtype(dtype) not in operator.dtypes:
        known = ", ".join(str(each) for each in operator.dtypes)
        raise TypeError(f"operator '{name}' takes elements of {known}, not of {dtype}")
    return native_dtype(dtype)


def _check_fields(operator: OperatorText, dtype: np.dtype[Any]) -> None:
    """Refuse structures of which there is none in C++."""
    for name, (field, *_) in (dtype.fields or {}).items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise TypeError(
                f"operator '{operator.name}' takes structures whose fields have names of C++, and "
                f"not {name!r}"
            )
        if field.name not in _core.DTYPES:
            hint = (
                "; give it a field per number, in a dtype dt of as many bytes, and pass a.view(dt)"
                if field.subdtype is not None
                else ""
            )
            raise TypeError(
                f"operator '{operator.name}' takes structures of numbers and bools, and field "
                f"{name!r} is of dtype {field}{hint}"
            )


def compute_dtype(operator: OperatorText, element: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """What elements are converted to: `dtype`, or their own."""
    if dtype is None:
        return element_dtype(operator, element)
    if element.names is not None:
        raise TypeError("elements that are structures are not converted: pass no dtype")
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
    return start.tobytes()


def place_of(call: OwnCall) -> int | None:
    """Ordinal of the device that a call of an array of the host runs on; None: the CPU."""
    place = call.device
    ordinal, why = _core.read_ordinal(place), _core.why_no_cuda()
    if ordinal is None or (place in (None, "auto") and why is not None):
        if call.stream is not None:
            raise ValueError("a stream is a GPU's, and the array is reduced on the CPU")
        return None
    if why is not None:
        raise DeviceUnavailableError(f"device is {place!r}: {why}")
    if call.stream is not None:
        raise ValueError("a stream is for device arrays: arrays of the host are waited for")
    return ordinal


def _program(
    operator: OperatorText, call: OwnCall, types: OperatorTypes, ordinal: int
) -> GpuProgram | NamedProgram:
    """The program of a call's kernel on a device."""
    device = find_device(ordinal)
    if call.kernel in PLANNED:
        return gpu_program(operator, types, device, block_of(operator, call))
    return named_program(operator, types, device, call.kernel, int(call.block_size or 0))


def _start(operator: OperatorText, call: OwnCall, element: np.dtype[Any]) -> tuple[int, bytes]:
    """The flag and the bytes of ``initial``."""
    return (STARTS, initial_bytes(operator, call, element)) if has_initial(call) else (0, b"")


def _axes(call: OwnCall, ndim: int) -> tuple[int, ...]:
    if call.axis is None:
        return tuple(range(ndim))
    return tuple(normalize_axis_tuple(call.axis, ndim, "axis"))


def _reduce_on_host(
    operator: OperatorText, programs: Programs, call: OwnCall, array: np.ndarray[Any, Any]
) -> Any:
    array = np.asarray(array)
    axes = _axes(call, array.ndim)
    compute = compute_dtype(operator, array.dtype, call.dtype)
    array = array.astype(native_dtype(array.dtype), copy=False)
    mask = as_mask(call.where, array.shape)
    ordinal = place_of(call)
    types = OperatorTypes(array.dtype, compute, mask is not None)
    program: Any
    if ordinal is None:
        key = ("cpu", 0, types)
        program = first_made(programs, key, lambda: cpu_program(operator, types))
        if array.dtype != program.element:
            array = array.astype(program.element)
    else:
        program = _program(operator, call, types, ordinal)
    check_state(operator, call.kernel, program.facts)
    dtype = result_dtype(operator, program.facts, compute)
    n = math.prod(array.shape[i] for i in axes)
    check_has_value(operator, n, call, program.facts["has_identity"])
    result = np.empty([n for i, n in enumerate(array.shape) if i not in axes], dtype)
    flags, initial = _start(operator, call, array.dtype)
    if ordinal is None:
        layout = Layout.of(
            array.shape,
            array.strides,
            None if mask is None else mask.strides,
            axes,
            dtype.itemsize,
            reorder=operator.commutative,
            keep_positions=bool(program.facts["takes_index"]),
        )
        address = 0 if mask is None else mask.ctypes.data
        program.reduce(layout, array, result, flags=flags | ENDS, initial=initial, mask=address)
    else:
        reduce_chunks(operator, call, program, ordinal, array, mask, axes, result, flags, initial)
    if call.keepdims:
        result = result.reshape([1 if i in axes else n for i, n in enumerate(array.shape)])
    return finished(operator, call, result)


# ---------------------------------------------------------------- device arrays ------------------


def _reduce_on_device(operator: OperatorText, library: Library, call: OwnCall) -> Any:
    options = ("auto", call.device, call.block_size, call.grid_size, call.stream)
    work = OperatorReduction(library, call.array, options)
    source = work.source
    place = place_of(call._replace(stream=None))
    if place is None or (call.device not in (None, "auto", "cuda") and place != source.device):
        raise ValueError(
            f'the array is in the memory of device "cuda:{source.device}", and device is '
            f"{call.device!r}: copy it first, or leave device= out"
        )
    element = native_dtype(source.dtype)
    axes = _axes(call, source.ndim)
    given = None if call.dtype is None else name_of(library.dtype(call.dtype))
    compute = compute_dtype(operator, element, given)
    types = OperatorTypes(element, compute, call.where is not True)
    if call.kernel not in PLANNED and call.where is not True:
        raise ValueError(ONLY_RUNS.format(kernel=call.kernel))
    program = _program(operator, call, types, source.device)
    check_state(operator, call.kernel, program.facts)
    dtype = result_dtype(operator, program.facts, compute)
    n = math.prod(source.shape[i] for i in axes)
    check_has_value(operator, n, call, program.facts["has_identity"])
    flags, initial = _start(operator, call, element)
    if dtype.name not in _core.DTYPES:
        raise TypeError(f"device arrays have no dtype {dtype}: pass an array of the host")
    return work.reduce_by(operator, call, axes, program, dtype, flags, initial)


def measure_by(
    operator: OperatorText, call: OwnCall, given: DeviceRows, count: int, flush_bytes: int
) -> list[float]:
    """Device times, in seconds, of a call's kernel over rows in device memory; see
    :meth:`OperatorProgram.measure`. `call` has the kernel and its sizes.
    """
    kernel = check_kernel(operator, call.kernel, call.block_size, call.grid_size)
    element = element_dtype(operator, given.dtype)
    types = OperatorTypes(element, element, False)
    program = _program(operator, call._replace(kernel=kernel), types, given.ordinal)
    check_state(operator, kernel, program.facts)
    size = result_dtype(operator, program.facts, element).itemsize
    layout = Layout.of(
        given.shape,
        steps_of(given.shape, element.itemsize),
        None,
        range(len(given.shape) - given.reduced, len(given.shape)),
        size,
        reorder=operator.commutative,
        keep_positions=bool(program.facts["takes_index"]),
    )
    out = _core.alloc_device(given.ordinal, max(1, layout.rows * size))
    try:
        launch = Launch(
            given.pointer, 0, out, 0, given.stream, layout.n, 0, ENDS, b"", call.grid_size
        )
        return program.measure(layout, launch, count, flush_bytes)
    finally:
        _core.free_device(given.ordinal, out)


def compile_by(
    operator: OperatorText, call: OwnCall, dtype: np.dtype[Any], capability: tuple[int, int]
) -> bool:
    """Have the program of calls like `call` in the cache on disk: of elements of a dtype, for a GPU
    that need not be there. Whether it was compiled now.
    """
    kernel = check_kernel(operator, call.kernel, call.block_size, call.grid_size)
    if kernel not in PLANNED:
        raise ValueError(
            f"kernel '{kernel}' with operator '{operator.name}' is compiled when it is called: "
            "programs of auto and fast are compiled before"
        )
    element = element_dtype(operator, dtype)
    types = OperatorTypes(element, element, call.where is not True)
    return compile_gpu_program(operator, types, capability, block_of(operator, call))


def finished(operator: OperatorText, call: OwnCall, result: np.ndarray[Any, Any]) -> Any:
    """A result as NumPy returns it, or stored to ``out``."""
    if call.out is None:
        return result[()] if result.ndim == 0 else result
    out = call.out
    check_host_out(out)
    check_shape(out.shape, result.shape, operator.name)
    if out.dtype.names is None or result.dtype.names is None:
        check_is_numeric(out.dtype)
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise TypeError(
            f"Cannot cast results of operator '{operator.name}' from {result.dtype} to out of "
            f"dtype {out.dtype}"
        )
    np.copyto(out, result, casting="same_kind")
    return out
