"""A program of an operator of the user's own on a GPU: compiled by NVRTC, loaded, asked for its
facts. What it launches is in :mod:`operator_gpu` and :mod:`operator_named`.

Nothing here waits for the device but the first use of a program.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._exceptions import CudaError
from .._records import DeviceInfo
from .numba_device import addresses, device_code, device_compilers, link
from .operator_layout import CONTINUES, ENDS, FACTS, Axis, Layout, facts_of, parameters
from .operator_text import OperatorText, OperatorTypes, compile_error, headers, operator_program
from .python_text import PythonText
from .targets import MOST_BLOCKS, is_emulated

__all__ = [
    "LINKED",
    "MOST_BLOCK",
    "OPTIONS",
    "Launch",
    "Launches",
    "OperatorProgram",
    "compile_program",
    "device_text",
    "store",
]

OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
LINKED = "-dlto"
"""Option of a program that is linked with functions of another compiler."""
MOST_BLOCK = 256
"""Threads per block of kernels of operators: of more, tiles would not fit shared memory."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"[^\n]*\n', re.MULTILINE)
_MERGE, _FACTS = 2, 3
"""Kernels of every program, behind the two that are its own."""


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


def device_text(operator: OperatorText, types: OperatorTypes, after: str, *, emulated: bool) -> str:
    """A program for NVRTC, or for the emulator's; `after` is what the kernels need."""
    before = "#define GPR_CUSTOM_ALIGNED(bytes) alignas(bytes)\n"
    if emulated:
        before += '#include "plain_cuda.h"'
    functions = None
    if emulated and isinstance(operator, PythonText):
        functions = addresses(operator, types.compute)
    return _with_headers(operator_program(operator, types, before, after, functions))


def store(staged: np.ndarray[Any, Any], array: np.ndarray[Any, Any], at: int) -> None:
    """Pack an array into bytes from `at` on."""
    view = staged[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(view, array)


def compile_program(
    operator: OperatorText,
    compute: np.dtype[Any],
    capability: tuple[int, int],
    text: str,
    entries: tuple[str, ...],
) -> tuple[bytes, tuple[str, ...], bool]:
    """Machine code of a program and its kernels' symbols, from the cache on disk or compiled, and
    whether it was compiled. Needs no GPU.

    Raises
    ------
    CompileError
        The operator does not compile.
    """
    version = _core.cuda_versions()[1]
    major, minor = capability
    code: list[bytes] = []
    known: list[str] = []
    options: tuple[str, ...] = OPTIONS
    if isinstance(operator, PythonText) and not is_emulated():
        options = (*OPTIONS, LINKED)
        functions = operator.key("device", compute, device_compilers())
        if functions is None:
            code = device_code(operator, compute, capability)
            known = [hashlib.sha256(each).hexdigest() for each in code]
        else:
            known = [functions]
    key = "\n".join(
        [f"gpureduce {_core.__version__} operator", f"nvrtc {version}", f"{major}.{minor}"]
        + known
        + [*options, *entries, text]
    )
    is_kept = not (isinstance(operator, PythonText) and is_emulated())  # it has addresses
    cached = _core.find_cached_image(key) if is_kept else None
    if cached is not None:
        return *cached, False
    if isinstance(operator, PythonText) and LINKED in options and not code:
        code = device_code(operator, compute, capability)
    try:
        image, symbols = _core.compile_text("operator", text, entries, options, 10 * major + minor)
    except CudaError as error:
        if error.call != "nvrtcCompileProgram" or not error.log:
            raise
        raise compile_error(operator, error.log) from None
    if code:
        assert isinstance(operator, PythonText)
        image = link(operator, [image, *code], capability)
    if is_kept:
        _core.cache_image(key, image, symbols)
    return image, symbols, True


class Launch(NamedTuple):
    """What a call of ``queue`` of a program works on: addresses on the device."""

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


class Launches(NamedTuple):
    """Launches of a call, bytes of scratch that they share, and the places of their arguments that
    receive addresses in it (``_core.queue_launches``).
    """

    launches: tuple[tuple[Any, ...], ...]
    scratch: int
    pointers: tuple[tuple[bytearray, int, int], ...]


class OperatorProgram:
    """An operator's program that is loaded on a device.

    Parameters
    ----------
    operator : OperatorText
    compute : dtype
        What elements are computed in.
    device : DeviceInfo
    text : str
    entries : tuple of str
        Two kernels of its own, that which merges partials, that which tells of the operator.
    block : int
        Threads per block of the kernel that merges.

    Raises
    ------
    CompileError
        The operator does not compile.

    Attributes
    ----------
    facts
        ``gpr_custom_facts``, by name.
    """

    takes_whole_rows = False
    """Whether a chunk of a host array must have whole rows, in C order of the kept axes."""
    is_row_major = False
    """Whether a chunk has the elements of a row beside each other."""

    def __init__(
        self, operator: OperatorText, compute: np.dtype[Any], device: DeviceInfo, text: str,
        entries: tuple[str, ...], block: int,
    ) -> None:  # fmt: skip
        self._device, self._block = device, block
        image, symbols, _ = compile_program(
            operator, compute, device.compute_capability, text, entries
        )
        self._loaded = _core.load_image(device.ordinal, image, symbols)
        self.facts = self._ask()

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

    def launches(self, layout: Layout, launch: Launch) -> Launches:
        """What reduces an array of one row or more."""
        raise NotImplementedError

    def queue(self, layout: Layout, launch: Launch) -> None:
        """Queue the reduction of an array on ``launch.stream``."""
        if layout.rows > 0:
            made = self.launches(layout, launch)
            _core.queue_launches(
                self._loaded, made.launches, launch.stream, made.scratch, made.pointers
            )

    def measure(self, layout: Layout, launch: Launch, count: int, flush_bytes: int) -> list[float]:
        """Device times of reductions of an array, in seconds.

        Before each one `flush_bytes` of other memory are written.
        """
        made = self.launches(layout, launch)
        ordinal = self._device.ordinal
        scratch = _core.alloc_device(ordinal, max(made.scratch, 1))
        try:
            for argument, place, offset in made.pointers:
                argument[place : place + 8] = (scratch + offset).to_bytes(8, "little")
            times = _core.run_launches(
                self._loaded, made.launches, launch.stream, flush_bytes, count
            )
            return [1e-3 * time for time in times]
        finally:
            _core.free_device(ordinal, scratch)

    def end(self, rows: int, itemsize: int, launch: Launch) -> None:
        """Queue what makes results of states that several calls of ``queue`` left."""
        if rows == 0:
            return
        layout = Layout((Axis(rows, 0, 0, itemsize),), (Axis(1, 0, 0, 0),), rows, 0)
        launch = launch._replace(flags=launch.flags | CONTINUES | ENDS)
        given = self._given(layout, launch, parts=0)
        _core.queue_launches(self._loaded, (self._merge(given, rows, 1),), launch.stream, 0, ())

    def _given(self, layout: Layout, launch: Launch, **values: Any) -> np.ndarray[Any, Any]:
        """Parameters of a launch; `values` are more of them."""
        given = parameters(
            layout,
            mask=launch.mask,
            out=launch.out,
            states=launch.states,
            total=launch.total,
            first=launch.first,
            flags=launch.flags,
            initial=launch.initial,
            **values,
        )
        given["in"] = launch.array
        return given

    def _merge(self, given: np.ndarray[Any, Any], rows: int, parts: int) -> tuple[Any, ...]:
        """The launch that merges the partials of rows; its second argument is their address."""
        lanes = min(self._block, 1 << (parts - 1).bit_length())
        return self._launch(_MERGE, given.copy(), rows, lanes)

    def _launch(
        self, kernel: int, given: np.ndarray[Any, Any], units: int, lanes: int
    ) -> tuple[Any, ...]:
        blocks = -(-units // (self._block // lanes))
        given["lanes"], given["units"] = lanes, blocks
        # The second argument: the address of partials.
        return (kernel, min(blocks, MOST_BLOCKS), self._block, 0, (given.tobytes(), bytearray(8)))
