"""Calls of an operator of the user's own on a GPU: arrays of the host in chunks, device arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _core
from .._calls import Options, OwnCall
from .._dtypes import item_bytes, name_of
from .._interop.device_reduction import Out, Reduction
from .._interop.libraries import DeviceBuffer, Library
from .operator_device_program import MOST_BLOCK, Launch
from .operator_gpu import GpuProgram, chunks
from .operator_layout import CONTINUES, ENDS, Layout
from .operator_named import NamedProgram, check_rows
from .operator_text import OperatorText

__all__ = ["OperatorReduction", "block_of", "reduce_chunks", "steps_of"]

_SLOTS = 2
"""Chunks under way: one is packed while the other one is reduced."""
_MOST_CHUNK = 64 << 20
_WARP = 32


def block_of(operator: OperatorText, call: OwnCall) -> int:
    """Threads per block."""
    block = call.block_size
    if block is None:
        return MOST_BLOCK
    if block not in [_WARP << i for i in range(4)]:
        raise ValueError(
            f"operator '{operator.name}' takes blocks of 32, 64, 128 or 256 threads, not {block}"
        )
    return int(block)


def steps_of(shape: tuple[int, ...], itemsize: int) -> list[int]:
    """Steps in bytes of a C-contiguous array."""
    steps = [itemsize] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        steps[i] = steps[i + 1] * shape[i + 1]
    return steps


# ---------------------------------------------------------------- host arrays --------------------


class _Slot:
    """Room for a chunk: pinned where it can be, and on the device."""

    def __init__(self, ordinal: int, stream: int, bytes_: int) -> None:
        pinned = _core.pinned_bytes(bytes_)
        self.staged = np.empty(bytes_, np.uint8) if pinned is None else pinned
        self.room = DeviceBuffer((bytes_,), "uint8", ordinal, stream)
        self.memory = self.room.memory
        self.mark: Any = None


def reduce_chunks(
    operator: OperatorText,
    call: OwnCall,
    program: GpuProgram | NamedProgram,
    ordinal: int,
    array: np.ndarray[Any, Any],
    mask: np.ndarray[Any, Any] | None,
    axes: tuple[int, ...],
    result: np.ndarray[Any, Any],
    flags: int,
    initial: bytes,
) -> None:
    """Reduce an array of the host on a device, chunk by chunk, into `result`.

    Chunks follow each other in C order, so each one's elements of a row come after those of the
    chunks before. Rows that several chunks have part of are states on the device meanwhile.
    """
    if program.is_row_major:
        order = [i for i in range(array.ndim) if i not in axes] + list(axes)
        array = array.transpose(order)
        mask = None if mask is None else mask.transpose(order)
        axes = tuple(range(array.ndim - len(axes), array.ndim))
    limits = _core.limits()
    room = min(_MOST_CHUNK, limits["device_bytes"] // (2 * _SLOTS))
    room = max(
        4096, min(room, limits["pinned_bytes"] // _SLOTS) if limits["pinned_bytes"] else room
    )
    per_element, total = program.element_bytes, math.prod(array.shape[i] for i in axes)
    most = max(1, min(array.size, (room - 64) // per_element))
    if program.takes_whole_rows:
        most = max(most, total)
    plan = list(chunks(array.shape, axes, most))
    continues = any(not chunk.begins for chunk in plan)
    kept_after = [i for i in range(array.ndim) if i not in axes]
    stream = _core.device_stream(ordinal)
    rows = math.prod(array.shape[i] for i in kept_after)
    slots = [_Slot(ordinal, stream, most * per_element + 64) for _ in range(min(_SLOTS, len(plan)))]
    partial, size = program.facts["partial_bytes"], result.dtype.itemsize
    output = DeviceBuffer((max(1, rows * size),), "uint8", ordinal, stream)
    states = DeviceBuffer((rows * partial if continues else 0,), "uint8", ordinal, stream)
    for number, chunk in enumerate(plan):
        slot = slots[number % len(slots)]
        if slot.mark is not None:
            _core.mark_wait(slot.mark)
        part = array[chunk.where]
        kept = None if mask is None else mask[chunk.where]
        bytes_, at = program.pack(slot.staged, part, kept)
        target = _core.device_array(
            slot.memory.pointer, (bytes_,), None, "uint8", ordinal, stream, slot.room
        )
        _core.queue_upload(target, slot.staged[:bytes_], stream)
        layout = Layout.of(
            part.shape,
            steps_of(part.shape, part.itemsize),
            None if mask is None else steps_of(part.shape, 1),
            axes,
            size,
            reorder=operator.commutative,
            keep_positions=bool(program.facts["takes_index"]),
            positions=array.shape,
        )
        launch = Launch(
            array=slot.memory.pointer,
            mask=slot.memory.pointer + at if at > 0 else 0,
            out=output.memory.pointer + chunk.row * size,
            states=states.memory.pointer + chunk.row * partial if continues else 0,
            stream=stream,
            total=total,
            first=chunk.first,
            flags=(0 if chunk.begins else CONTINUES) if continues else flags | ENDS,
            initial=initial,
            grid=call.grid_size,
        )
        program.queue(layout, launch)
        slot.mark = _core.mark_stream(ordinal, stream)
    if continues:
        launch = Launch(
            0, 0, output.memory.pointer, states.memory.pointer, stream, total, 0, flags, initial,
            None,
        )  # fmt: skip
        program.end(rows, size, launch)
    if rows > 0:
        host = np.empty(rows * size, np.uint8)
        _core.download(ordinal, output.memory.pointer, host, stream)
        result[...] = host.view(result.dtype).reshape(result.shape)


# ---------------------------------------------------------------- device arrays ------------------


class OperatorReduction(Reduction):
    """A reduction of a device array by an operator: memory and streams as other reductions have."""

    def __init__(self, library: Library, a: Any, options: Options) -> None:
        super().__init__(library, "sum", a, library.read(a), options, False, 0)

    def reduce_by(
        self,
        operator: OperatorText,
        call: OwnCall,
        axes: tuple[int, ...],
        program: GpuProgram | NamedProgram,
        dtype: np.dtype[Any],
        flags: int,
        initial: bytes,
    ) -> Any:
        """Queue the reduction, and return the result as the array's library has it."""
        source = self.source
        kept = tuple(
            1 if i in axes else n
            for i, n in enumerate(source.shape)
            if call.keepdims or i not in axes
        )
        self.join(self.home)
        target = None if call.out is None else Out(self, operator.name, call.out)
        try:
            mask = self.mask(call.where)
            room = self.empty if target is None else target.room
            made, memory = room(kept, name_of(dtype))
            host = None
            if isinstance(memory, np.ndarray):
                host = memory
                buffer = DeviceBuffer(kept, name_of(dtype), source.device, self.stream)
                self.lent.append(buffer)
                memory = buffer.memory
            elif memory.strides != tuple(steps_of(kept, dtype.itemsize)) and math.prod(kept) > 1:
                raise ValueError(f"out= of operator '{operator.name}' must be C-contiguous")
            layout = Layout.of(
                source.shape,
                source.strides,
                None if mask is None else _broadcast_steps(mask, source.shape),
                axes,
                dtype.itemsize,
                reorder=operator.commutative,
                keep_positions=bool(program.facts["takes_index"]),
            )
            if isinstance(program, NamedProgram):
                check_rows(call.kernel, layout, item_bytes(source.dtype), source.pointer)
            launch = Launch(
                source.pointer, 0 if mask is None else mask.pointer, memory.pointer, 0,
                self.stream, layout.n, 0, flags | ENDS, initial, call.grid_size,
            )  # fmt: skip
            program.queue(layout, launch)
            if host is not None and host.size > 0:
                packed = np.empty(host.shape, host.dtype)
                _core.download(source.device, memory.pointer, packed, self.stream)
                host[...] = packed
        finally:
            self.part()
        return self.library.finish(self.a, made) if target is None else target.finish(made)


def _broadcast_steps(mask: Any, shape: tuple[int, ...]) -> list[int]:
    """Steps of a mask along the axes of an array that it broadcasts to."""
    more = len(shape) - mask.ndim
    if more < 0 or any(m not in (1, n) for m, n in zip(mask.shape, shape[more:], strict=True)):
        raise ValueError("the mask cannot be broadcast to the shape of the array")
    own = zip(mask.shape, mask.strides, strict=True)
    return [0] * more + [0 if extent == 1 else step for extent, step in own]
