"""An operator of the user's own on a GPU: compiled by NVRTC, launched over parts of rows.

Nothing here waits for the device but the first use of a program, and results on the host.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._exceptions import CudaError
from .._records import DeviceInfo
from .operator_layout import CONTINUES, ENDS, FACTS, Axis, Layout, facts_of, parameters
from .operator_text import OperatorText, OperatorTypes, compile_error, headers, operator_program
from .targets import MOST_BLOCKS, RESIDENT_THREADS, is_emulated

__all__ = [
    "MOST_BLOCK",
    "OPTIONS",
    "GpuProgram",
    "Launch",
    "chunks",
    "gpu_program",
    "gpu_text",
]

OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*\n', re.MULTILINE)
_ROWS, _STRIDED, _MERGE, _FACTS = range(4)
"""Kernels, in the order of a program's entries."""
MOST_BLOCK = 256
"""Threads per block: of more, tiles would not fit a block's shared memory."""
_WARP = 32
_VECTOR = 16
_TILE = 4096
"""Bytes of a tile of ``custom_rows`` (csrc/kernels/custom/custom_kernels.cuh)."""
_RESIDENT_BLOCKS = 6
"""Blocks of MOST_BLOCK threads that a multiprocessor holds, by their shared memory."""
_LEAST_SHARE = 16
"""Elements of a row of any layout that are worth a thread more."""


def _with_headers(text: str) -> str:
    """A program in one text: NVRTC receives no files here."""
    files = headers()
    seen: set[str] = set()

    def inlined(name: str, content: str) -> str:
        content = content.replace("#pragma once", "")
        parts, end = [], 0
        for found in _INCLUDE.finditer(content):
            file = found[1].rsplit("/", 1)[-1]
            parts.append(content[end : found.start()])
            end = found.end()
            if file in files and file not in seen:
                if not file.endswith(".def"):
                    seen.add(file)
                line = content.count("\n", 0, end) + 1
                parts.append(
                    f'#line 1 "{file}"\n{inlined(file, files[file])}\n#line {line} "{name}"\n'
                )
            elif file not in files:
                parts.append(found[0])
        return "".join(parts) + content[end:]

    return inlined("operator", text)


def gpu_text(
    operator: OperatorText, types: OperatorTypes, block: int, *, emulated: bool
) -> tuple[str, tuple[str, ...]]:
    """A program for NVRTC, or for the emulator's, and the names of its kernels."""
    before = "#define GPR_CUSTOM_ALIGNED(bytes) alignas(bytes)\n"
    if emulated:
        before += '#include "plain_cuda.h"'
    text = operator_program(operator, types, before, '#include "custom_kernels.cuh"')
    kernels = ("custom_rows", "custom_strided", "custom_merge")
    entries = tuple(f"gpr::{kernel}<{block}u>" for kernel in kernels)
    return _with_headers(text), (*entries, "gpr::custom_facts<gpr_custom_facts>")


class Launch(NamedTuple):
    """What a call of :meth:`GpuProgram.queue` works on: addresses on the device."""

    array: int
    mask: int
    out: int
    states: int
    stream: int
    total: int
    first: int
    flags: int
    initial: bytes
    grid: int | None


class GpuProgram:
    """An operator's program that is loaded on a device.

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

    Attributes
    ----------
    facts
        ``gpr_custom_facts``, by name.
    """

    def __init__(
        self, operator: OperatorText, types: OperatorTypes, device: DeviceInfo, block: int
    ) -> None:
        self._device, self._types, self._block = device, types, block
        self._commutative = operator.commutative
        image, symbols = self._compile(operator)
        self._loaded = _core.load_image(device.ordinal, image, symbols)
        self.facts = self._ask()

    def _compile(self, operator: OperatorText) -> tuple[bytes, tuple[str, ...]]:
        version = _core.cuda_versions()[1]
        text, entries = gpu_text(operator, self._types, self._block, emulated=is_emulated())
        major, minor = self._device.compute_capability
        key = "\n".join(
            [f"gpureduce {_core.__version__} operator", f"nvrtc {version}", f"{major}.{minor}"]
            + [*OPTIONS, *entries, text]
        )
        cached = _core.find_cached_image(key)
        if cached is not None:
            return cached
        try:
            image, symbols = _core.compile_text(
                "operator", text, entries, OPTIONS, 10 * major + minor
            )
        except CudaError as error:
            if error.call != "nvrtcCompileProgram" or not error.log:
                raise
            raise compile_error(operator, error.log) from None
        _core.cache_image(key, image, symbols)
        return image, symbols

    def _ask(self) -> dict[str, int]:
        """Run the kernel that tells of the operator."""
        told = np.zeros((), FACTS)
        ordinal = self._device.ordinal
        pointer = _core.alloc_device(ordinal, told.nbytes)
        try:
            arguments = (pointer.to_bytes(8, "little"),)
            _core.run_launches(self._loaded, ((_FACTS, 1, 1, 0, arguments),))
            _core.download(ordinal, pointer, told)
        finally:
            _core.free_device(ordinal, pointer)
        return facts_of(told)

    # ---- launches

    def queue(self, layout: Layout, launch: Launch) -> None:
        """Queue the reduction of an array on ``launch.stream``."""
        if layout.rows == 0:
            return
        kernel, lanes, wanted = self._plan(layout, launch)
        parts, share = layout.cut(wanted)
        given = parameters(
            layout,
            mask=launch.mask,
            out=launch.out,
            states=launch.states,
            total=launch.total,
            first=launch.first,
            flags=launch.flags,
            initial=launch.initial,
            parts=parts,
            share=share,
        )
        given["in"] = launch.array
        launches = [self._launch(kernel, given, layout.rows * parts, lanes)]
        scratch = 0
        if parts > 1:
            scratch = layout.rows * parts * self.facts["partial_bytes"]
            launches.append(self._merge(given, layout.rows, parts))
        partials = tuple((arguments[1], 0, 0) for *_, arguments in launches) if scratch else ()
        _core.queue_launches(self._loaded, tuple(launches), launch.stream, scratch, partials)

    def end(self, rows: int, itemsize: int, launch: Launch) -> None:
        """Queue what makes results of states that several calls of :meth:`queue` left."""
        if rows == 0:
            return
        layout = Layout((Axis(rows, 0, 0, itemsize),), (Axis(1, 0, 0, 0),), rows, 0)
        given = parameters(
            layout,
            out=launch.out,
            states=launch.states,
            total=launch.total,
            flags=launch.flags | CONTINUES | ENDS,
            initial=launch.initial,
            parts=0,
        )
        _core.queue_launches(self._loaded, (self._merge(given, rows, 1),), launch.stream, 0)

    def _merge(self, given: np.ndarray[Any, Any], rows: int, parts: int) -> tuple[Any, ...]:
        lanes = min(self._block, 1 << (parts - 1).bit_length())
        return self._launch(_MERGE, given.copy(), rows, lanes)

    def _launch(
        self, kernel: int, given: np.ndarray[Any, Any], units: int, lanes: int
    ) -> tuple[Any, ...]:
        blocks = -(-units // (self._block // lanes))
        given["lanes"], given["units"] = lanes, blocks
        # The second argument: the address of partials.
        return (kernel, min(blocks, MOST_BLOCKS), self._block, 0, (given.tobytes(), bytearray(8)))

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
    if key not in _programs:
        _programs[key] = GpuProgram(operator, types, device, block)
    return _programs[key]


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
