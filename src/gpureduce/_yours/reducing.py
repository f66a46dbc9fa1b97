"""Calls of the reductions whose ``kernel`` is the user's own: arrays of the host and of devices."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import numpy as np

from .. import _core
from .._calls import Call, NoValue
from .._core import DeviceArray
from .._dtypes import item_bytes, name_of
from .._interop.device_reduction import Reduction, Room
from .._interop.inputs import as_array
from .._interop.libraries import DeviceBuffer, Library, device_library
from .._ufuncs import UFUNCS
from .kernel_form import KernelForm
from .launching import LoadedKernel, Programs, device_of, lost_context, types_of
from .program_text import identity

__all__ = ["reduce_call"]

_VECTOR = re.compile(
    r"\b(?:u?(?:char|short|int|long|longlong)|float|double)[234]\b|\breinterpret_cast\b"
)
_VECTOR_BYTES = 16


def reduce_call(form: KernelForm, programs: Programs, trial: float, call: Call) -> Any:
    """Run a call of a reduction by a kernel of the user's own; see :class:`gpureduce.Kernel`."""
    if call.name != form.op:
        raise ValueError(f"kernel '{form.name}' computes {form.op}, not {call.name}")
    if call.where is not True and call.where is not NoValue:
        raise ValueError(f"kernel '{form.name}' takes no where")
    library = device_library(call.array)
    if library is not None:
        return _reduce_on_device(form, programs, trial, library, call)
    return _reduce_on_host(form, programs, trial, call)


def _check_axis(form: KernelForm, axis: Any, shape: tuple[int, ...]) -> None:
    """Refuse axes that are not all of them."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if axis is not None and len(axes) != len(shape):
        raise ValueError(f"kernel '{form.name}' reduces whole arrays: axis must be None")
    if axis is not None:
        np.add.reduce(np.empty(shape, np.bool_), axis=axis)  # bad axes


# ---------------------------------------------------------------- arrays of the host -------------


def _reduce_on_host(form: KernelForm, programs: Programs, trial: float, call: Call) -> Any:
    _, place, block_size, grid_size, stream = call.options
    if stream is not None:
        raise ValueError(f"kernel '{form.name}' takes a stream with arrays of devices alone")
    array = as_array(call.array, "a.data")
    _check_axis(form, call.axis, array.shape)
    if array.size == 0:
        result = getattr(np, form.op)(array)  # NumPy's own error for extremes
        result = result.astype(types_of(form, array.dtype.name)[1])
    else:
        result = _reduce_array(form, programs, trial, place, array, block_size, grid_size)
    if call.dtype is not None and np.dtype(call.dtype) != result.dtype:
        raise TypeError(f"kernel '{form.name}' computes {result.dtype}: dtype must be that or None")
    if call.initial is not NoValue and call.initial is not None:
        result = result.dtype.type(UFUNCS[form.op](result, call.initial))
    if call.out is not None:
        call.out[...] = result
        return call.out
    return np.full((1,) * array.ndim, result) if call.keepdims is True else result


def _reduce_array(
    form: KernelForm,
    programs: Programs,
    trial: float,
    place: str | None,
    array: np.ndarray[Any, Any],
    block_size: int | None,
    grid_size: int | None,
) -> Any:
    start = time.perf_counter()
    device, n = device_of(form, place), math.prod(array.shape)
    sizes = n, block_size, grid_size
    loaded = LoadedKernel(form, programs, device, array.dtype.name, *sizes, trial)
    begun = time.perf_counter()
    packed = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    stages = {"stage": time.perf_counter() - begun}
    pointer = _core.alloc_device(device.ordinal, packed.nbytes)
    try:
        begun = time.perf_counter()
        _core.upload(device.ordinal, pointer, packed)
        stages["upload"] = time.perf_counter() - begun
        begun = time.perf_counter()
        with loaded.room() as room:
            launches, output = loaded.launches(pointer, room)
            with lost_context(form):
                _core.run_launches(loaded.image, launches)
            stages["kernel"] = time.perf_counter() - begun
            begun = time.perf_counter()
            values = np.empty(loaded.left, loaded.result)
            _core.download(device.ordinal, output, values)
            stages["download"] = time.perf_counter() - begun
    finally:
        _core.free_device(device.ordinal, pointer)
    loaded.note(start, len(launches), stages)
    return loaded.fold(values)


# ---------------------------------------------------------------- arrays of devices --------------


def _reduce_on_device(
    form: KernelForm, programs: Programs, trial: float, library: Library, call: Call
) -> Any:
    _, place, block_size, grid_size, _ = call.options
    source = library.read(call.array)
    name, here = form.name, f"cuda:{source.device}"
    if place not in (None, "auto", "cuda", here):
        raise ValueError(f'the array is on device "{here}", which device="{place}" is not')
    _check_axis(form, call.axis, source.shape)
    result = types_of(form, source.dtype)[1]
    if call.dtype is not None and name_of(library.dtype(call.dtype)) != result:
        raise TypeError(f"kernel '{name}' computes {result}: dtype must be that or None")
    if not _is_dense(source):
        raise ValueError(
            f"kernel '{name}' reads elements that follow each other: copy the array, whose strides "
            f"are {source.strides}, to a contiguous one"
        )
    if source.pointer % _VECTOR_BYTES != 0 and _VECTOR.search(form.text):
        raise ValueError(
            f"kernel '{name}' reads several elements at once, which must begin at a multiple of "
            f"{_VECTOR_BYTES} bytes, and the array does not: copy it"
        )
    n = math.prod(source.shape)
    loaded = None
    if n > 0:
        device = device_of(form, here)
        sizes = n, block_size, grid_size
        loaded = LoadedKernel(form, programs, device, source.dtype, *sizes, trial)
    work = _OwnReduction(form, loaded, result, library, call, source)
    keepdims = False if call.keepdims is NoValue else bool(call.keepdims)
    return work.run(call._replace(dtype=None, keepdims=keepdims, where=True, center=None))


def _is_dense(array: DeviceArray) -> bool:
    """Whether the elements follow each other, in whatever order of axes."""
    step = item_bytes(array.dtype)
    for stride, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent == 1 or 0 in array.shape:
            continue
        if stride != step:
            return False
        step *= extent
    return True


class _OwnReduction(Reduction):
    """A reduction whose first pass is the user's kernel; what is around it is the library's."""

    def __init__(
        self,
        form: KernelForm,
        loaded: LoadedKernel | None,
        result: str,
        library: Library,
        call: Call,
        source: DeviceArray,
    ) -> None:
        _, device, _, _, stream = call.options
        options = ("fast", device, None, None, stream)
        super().__init__(library, call.op, call.array, source, options, False, 0)
        self._form, self._loaded, self._result = form, loaded, result

    def convert_for(self, call: Call, *_: object) -> Call:
        """Without a conversion: the kernel's type is its own, and only results are converted."""
        return call

    def start_of(self, call: Call, *_: object) -> Any:
        return None if call.initial is NoValue else call.initial

    def gives_rows_starts(self) -> bool:
        return False

    def reduce(
        self,
        array: DeviceArray,
        axis: Any,
        dtype: Any,
        keepdims: Any,
        mask: Any,
        room: Room,
        start: bytes | None = None,
    ) -> Any:
        if array is not self.source:
            return super().reduce(array, axis, dtype, keepdims, mask, room, start)
        shape, _ = self.result_axes(axis, keepdims)
        result, memory = room(shape, self._result)
        if self._loaded is not None:
            self._queue(self._loaded, memory)
        elif self._form.op in ("min", "max"):
            ufunc = UFUNCS[self._form.op].__name__
            raise ValueError(
                f"zero-size array to reduction operation {ufunc} which has no identity"
            )
        elif isinstance(memory, np.ndarray):
            memory[...] = identity(self._form.op, self._result)
        else:
            self.fill(memory, identity(self._form.op, self._result))
        return result

    def _queue(self, loaded: LoadedKernel, memory: DeviceArray | np.ndarray[Any, Any]) -> None:
        """Queue the launches, and what folds the partials that they leave."""
        start, device = time.perf_counter(), self.source.device
        room = DeviceBuffer((loaded.room_bytes,), "uint8", device, self.stream)
        self.lent += [room, loaded.image]
        last = memory.pointer if isinstance(memory, DeviceArray) else None
        launches, output = loaded.launches(self.source.pointer, room.memory.pointer, last)
        _core.queue_launches(loaded.image, launches, self.stream, 0, ())
        if loaded.left > 1:
            where = device, self.stream
            left = _core.device_array(output, (loaded.left,), None, self._result, *where, room)
            target = memory
            if isinstance(memory, DeviceArray):
                target = _core.device_array(memory.pointer, (), None, self._result, *where, memory)
            compute = self._result if self.op in ("sum", "prod") else None
            super().reduce(left, None, compute, False, None, lambda *_: (target, target))
        elif isinstance(memory, np.ndarray):
            _core.download(device, output, memory, self.stream)
        loaded.note(start, len(launches), {})
