"""An operator of the user's own on a GPU, in arrays of any layout: launches over parts of rows by
the kernels that keep order, and chunks of arrays of the host.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._first_made import first_made
from .._records import DeviceInfo
from .operator_device_program import (
    Launch,
    Launches,
    OperatorProgram,
    compile_program,
    device_text,
    store,
)
from .operator_layout import Layout
from .operator_text import OperatorText, OperatorTypes
from .targets import RESIDENT_THREADS, is_emulated

__all__ = [
    "GpuProgram",
    "chunks",
    "compile_gpu_program",
    "gpu_program",
    "gpu_text",
]

_ROWS, _STRIDED = range(2)
"""Kernels, in the order of a program's entries."""
_WARP = 32
_VECTOR = 16
_KERNELS = _core.sources()["custom_kernels.cuh"]
_TILE = _WARP * _VECTOR * int(_KERNELS.partition("custom_vectors = ")[2].partition(";")[0])
"""Bytes of a tile of ``custom_rows``: vectors of each lane of a warp."""
_RESIDENT_BLOCKS = 6
"""Blocks of 256 threads that a multiprocessor holds, by their shared memory."""
_LEAST_SHARE = 16
"""Elements of a row of any layout that are worth a thread more."""


def gpu_text(
    operator: OperatorText, types: OperatorTypes, block: int, *, emulated: bool
) -> tuple[str, tuple[str, ...]]:
    """A program for NVRTC, or for the emulator's, and the names of its kernels."""
    text = device_text(operator, types, '#include "custom_kernels.cuh"', emulated=emulated)
    kernels = ("custom_rows", "custom_strided", "custom_merge")
    entries = tuple(f"gpr::{kernel}<{block}u>" for kernel in kernels)
    return text, (*entries, "gpr::custom_facts<gpr_custom_facts>")


class GpuProgram(OperatorProgram):
    """An operator's program that keeps the order of arrays of any layout, loaded on a device.

    Parameters
    ----------
    operator : OperatorText
    types : OperatorTypes
    device : DeviceInfo
    block : int
        Threads per block.

    Raises
    ------
    CompileError
        The operator does not compile.
    """

    def __init__(
        self, operator: OperatorText, types: OperatorTypes, device: DeviceInfo, block: int
    ) -> None:
        self._types = types
        text, entries = gpu_text(operator, types, block, emulated=is_emulated())
        super().__init__(operator, types.compute, device, text, entries, block)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of a chunk, and of its mask."""
        return self._types.element.itemsize + int(self._types.masked)

    def pack(
        self,
        staged: np.ndarray[Any, Any],
        part: np.ndarray[Any, Any],
        mask: np.ndarray[Any, Any] | None,
    ) -> tuple[int, int]:
        """Pack a chunk: the number of its bytes, and where its mask begins; 0: it has none."""
        store(staged, part, 0)
        if mask is None:
            return part.nbytes, 0
        at = -(-part.nbytes // _VECTOR) * _VECTOR
        store(staged, mask, at)
        return at + part.size, at

    def launches(self, layout: Layout, launch: Launch) -> Launches:
        """What reduces an array."""
        kernel, lanes, wanted = self._plan(layout, launch)
        parts, share = layout.cut(wanted)
        given = self._given(layout, launch, parts=parts, share=share)
        launches = [self._launch(kernel, given, layout.rows * parts, lanes)]
        scratch = 0
        if parts > 1:
            scratch = layout.rows * parts * self.facts["partial_bytes"]
            launches.append(self._merge(given, layout.rows, parts))
        partials = tuple((arguments[1], 0, 0) for *_, arguments in launches) if scratch else ()
        return Launches(tuple(launches), scratch, partials)

    def _plan(self, layout: Layout, launch: Launch) -> tuple[int, int, int]:
        """Kernel, threads per part of a row, and parts per row at most."""
        size = self._types.element.itemsize
        inner = layout.reduced[-1]
        multiprocessors, block = self._device.multiprocessors, self._block
        rows, n = layout.rows, max(1, layout.n)
        is_run = (
            not self._types.masked
            and len(layout.reduced) == 1
            and (inner.step == size or n == 1)
            and size in (1, 2, 4, 8, 16)
            and launch.array % size == 0
            and all(axis.step % size == 0 for axis in layout.kept)
        )
        if is_run and n * size >= _TILE // 4:
            if rows >= multiprocessors * _RESIDENT_BLOCKS * block // _WARP and launch.grid is None:
                return _ROWS, _WARP, 1
            most = -(-n * size // (_TILE * (block // _WARP)))
            wanted = launch.grid or -(-multiprocessors * _RESIDENT_BLOCKS // rows)
            return _ROWS, block, max(1, min(most if launch.grid is None else n, wanted))
        threads = multiprocessors * RESIDENT_THREADS
        lanes = 1
        if not layout.is_across:
            while lanes < block and 2 * lanes * _LEAST_SHARE <= n:
                lanes *= 2
        most = max(1, n // (lanes * _LEAST_SHARE))
        if launch.grid is not None:
            return _STRIDED, lanes, min(n, launch.grid)
        return _STRIDED, lanes, max(1, min(most, threads // (rows * lanes)))


_programs: dict[tuple[int, int, OperatorText, OperatorTypes], GpuProgram] = {}
"""Programs stay loaded: a graph may hold their kernels."""


def gpu_program(
    operator: OperatorText, types: OperatorTypes, device: DeviceInfo, block: int
) -> GpuProgram:
    """An operator's program on a device, loaded once per process."""
    key = (device.ordinal, block, operator, types)
    return first_made(_programs, key, lambda: GpuProgram(operator, types, device, block))


def compile_gpu_program(
    operator: OperatorText, types: OperatorTypes, capability: tuple[int, int], block: int
) -> bool:
    """Have an operator's program in the cache on disk; whether it was compiled now."""
    text, entries = gpu_text(operator, types, block, emulated=is_emulated())
    return compile_program(operator, types.compute, capability, text, entries)[2]


# ---------------------------------------------------------------- chunks of host arrays ----------


class Chunk(NamedTuple):
    """A part of an array: leading axes at one place, one axis in a range, the others whole."""

    where: tuple[slice, ...]
    row: int
    """Of the first row that it has elements of, in C order of the kept axes."""
    first: int
    """Index of its first element in its rows."""
    begins: bool
    """Whether it has its rows' first elements."""


def chunks(shape: tuple[int, ...], reduced: tuple[int, ...], most: int) -> Iterator[Chunk]:
    """Cut an array into chunks of up to `most` elements, in C order."""
    if 0 in shape:  # whose rows have results all the same
        yield Chunk((), 0, 0, True)
        return
    cut = 0  # the axis that is cut into ranges
    while cut < len(shape) and math.prod(shape[cut + 1 :]) > most:
        cut += 1
    below = math.prod(shape[cut + 1 :])
    step = 1
    if cut < len(shape):
        step = max(1, most // below if below > 0 else shape[cut])
    rows, positions = [0] * len(shape), [0] * len(shape)
    row = position = 1
    for i in reversed(range(len(shape))):
        if i in reduced:
            positions[i], position = position, position * shape[i]
        else:
            rows[i], row = row, row * shape[i]
    ranges = range(0, shape[cut], step) if cut < len(shape) else (0,)
    for places in itertools.product(*(range(extent) for extent in shape[:cut]), ranges):
        index = tuple(slice(place, place + 1) for place in places[:cut])
        if cut < len(shape):
            index += (slice(places[cut], min(places[cut] + step, shape[cut])),)
        yield Chunk(
            index,
            sum(place * rows[i] for i, place in enumerate(places[: len(shape)])),
            sum(place * positions[i] for i, place in enumerate(places[: len(shape)])),
            all(place == 0 for i, place in enumerate(places) if i in reduced),
        )
