"""Kernels of the course with an operator of the user's own.

They are templates over kernel traits, which ``csrc/kernels/custom/custom_traits.cuh`` makes of an
operator. They reduce rows that follow each other in memory to accumulators; the kernel that merges
partials makes states or results of these.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from typing import Any

import numpy as np

from .. import _core
from .._exceptions import CompileError, KernelUnavailableError
from .._first_made import first_made
from .._kernel_names import KernelName
from .._records import DeviceInfo
from .operator_device_program import (
    MOST_BLOCK,
    Launch,
    Launches,
    OperatorProgram,
    device_text,
    store,
)
from .operator_layout import Axis, Layout
from .operator_text import OperatorText, OperatorTypes
from .targets import is_emulated

__all__ = [
    "ONLY_RUNS",
    "PLANNED",
    "NamedProgram",
    "check_kernel",
    "check_rows",
    "check_state",
    "facts_of_kernel",
    "named_program",
    "named_text",
]

PLANNED = ("auto", "fast")
"""Kernels that have programs for operators of their own (csrc/kernels/custom)."""
_WITHOUT = {
    "exact": "sums numbers",
    "cub": "is NVIDIA's library, compiled with its own headers",
}
"""Kernels that take no operators of users' own."""
ONLY_RUNS = (
    "kernel '{kernel}' reads device arrays whose rows follow each other in memory, without a mask; "
    "kernel 'auto' reads any"
)
_KERNEL, _SECOND = range(2)
"""Kernels of a program, before those of every operator's program: the named one, and what it needs
beside it (:data:`_BESIDE`)."""
_BESIDE = {
    "passes": "gpr::{name}<Next, {block}u>",
    "atomic": "gpr::fill_identity<First>",
    "ticket": "gpr::custom_clear<unsigned>",
}
_SWAPPED = (4, 8)
"""Bytes that atomics swap."""
_SHARED_BYTES = 48 << 10
_WARP = 32
_PARTIALS = re.compile(r"__shared__[^;]*\bpartial((?:\[[^\]]*\])+)")
_FILL_BLOCK, _MOST_FILL_BLOCKS = 256, 1024
_ALIGNMENT = 256
"""Of parts of scratch."""


# ---------------------------------------------------------------- what kernels take --------------


def check_kernel(
    operator: OperatorText, kernel: object, block_size: int | None, grid_size: int | None
) -> KernelName:
    """The name of a kernel, if it takes the operator, the block size and the grid size.

    Raises
    ------
    TypeError
        `kernel` is no name.
    ValueError
        There is no such kernel, it does not take the block or grid size, or it reorders operands
        and the operator is not commutative.
    KernelUnavailableError
        It takes no operators of users' own.
    """
    if not isinstance(kernel, str):
        raise TypeError(f"kernels by name take operators of your own, not {kernel!r}")
    name = _core.find_kernel(kernel)
    if name in _WITHOUT:
        raise KernelUnavailableError(
            f"kernel '{name}' {_WITHOUT[name]}: it takes no operators of your own; 'auto' does, "
            "and so do the kernels of the course"
        )
    if (
        not operator.commutative
        and name not in PLANNED
        and facts_of_kernel(name)["commutative_only"]
    ):
        raise ValueError(
            f"kernel '{name}' reorders operands, and operator '{operator.name}' is not commutative:"
            f" {_listed(_ordered())} keep the order"
        )
    if name in PLANNED:
        block_size = None  # operators' own kernels have other sizes
    options = (name, "cpu", block_size, grid_size, None)
    one = np.zeros(1, np.uint8)  # errors of sizes are those of every reduction
    _core.reduce(_core.OPERATORS["sum"], one, None, None, False, None, *options, False, 0.0)
    return name


@functools.cache
def facts_of_kernel(name: str) -> dict[str, Any]:
    """A kernel's row of the registry, which no call changes."""
    return next(row for row in _core.kernels() if row["name"] == name)


def _ordered() -> list[str]:
    """Kernels that keep the order of operands, with an operator of a user's own."""
    return [row["name"] for row in _core.kernels() if not row["commutative_only"]] + [*PLANNED]


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def check_state(operator: OperatorText, kernel: str, facts: dict[str, int]) -> None:
    """Refuse states that a kernel's atomics do not swap; `facts` are the program's."""
    # A kernel's results vary from run to run where, and only where, it finishes by atomics.
    if kernel in PLANNED or facts_of_kernel(kernel)["deterministic"]:
        return
    size, state = facts.get("swapped_bytes", facts["partial_bytes"]), facts["state_bytes"]
    if size in _SWAPPED:
        return
    counted = size > state + 4
    raise ValueError(
        f"kernel '{kernel}' folds by atomics, which swap 4 or 8 bytes: a state of operator "
        f"'{operator.name}' has {state}"
        + (", and a count of its elements of 8, as there is no identity()" * counted)
        + ". Kernels that write partials take it, as 'shfl_two_pass', 'last_block' and 'auto' do"
    )


def check_rows(kernel: str, layout: Layout, itemsize: int, address: int) -> None:
    """Refuse device arrays that only kernel ``fast`` reads."""
    (*more, row), (*further, column) = layout.reduced, layout.kept
    follow = (
        not more
        and not further
        and (row.step == itemsize or row.extent == 1)
        and (column.step == row.extent * itemsize or column.extent == 1)
    )
    if layout.rows > 0 and layout.n > 0 and (not follow or address % itemsize != 0):
        raise ValueError(ONLY_RUNS.format(kernel=kernel))


# ---------------------------------------------------------------- programs -----------------------


def _packed_dtype(element: np.dtype[Any]) -> np.dtype[Any]:
    """An element with a byte that says whether it counts (``CustomIn`` of the traits)."""
    alignment = math.gcd(element.itemsize, 16)
    size = -(-(element.itemsize + 1) // alignment) * alignment
    return np.dtype(
        {
            "names": ["element", "counts"],
            "formats": [element, np.bool_],
            "offsets": [0, element.itemsize],
            "itemsize": size,
        }
    )


def named_text(
    operator: OperatorText, types: OperatorTypes, kernel: str, plan: dict[str, Any], *,
    emulated: bool,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """A program of a kernel for NVRTC, or for the emulator's, and the names of its kernels.

    `plan` is any plan of the kernel (``_core.plan_kernel``) with the block size.
    """
    block, beside = plan["block"], _BESIDE[plan["finish"]]
    packed = ""
    if types.masked:
        size = _packed_dtype(types.element).itemsize
        packed = f"#define GPR_CUSTOM_MASKED_BYTES {size}\n"
        packed += f"#define GPR_CUSTOM_MASKED_ALIGNMENT {math.gcd(types.element.itemsize, 16)}\n"
    after = f"""{packed}namespace gpr {{
constexpr unsigned per_thread = {plan["per_thread"]};
constexpr unsigned lanes = 32;
}}
#include "custom_traits.cuh"
#include "{_core.KERNEL_FILES[kernel]}"
#include "custom_kernels.cuh"
"""
    return device_text(operator, types, after, emulated=emulated), (
        f"gpr::{kernel}<First, {block}u>",
        beside.format(name=kernel, block=block),
        f"gpr::custom_merge<{MOST_BLOCK}u>",
        "gpr::custom_facts<gpr_custom_facts>",
    )


def _shared_states(kernel: str, block: int) -> int:
    """States that a block of a kernel has in shared memory, by its declaration of ``partial``; of
    kernels without, at most one per warp.
    """
    found = _PARTIALS.search(_core.sources()[_core.KERNEL_FILES[kernel]])
    if found is None:
        return -(-block // _WARP)
    if "BLOCK" in found[1]:
        return max(block, 2 * _WARP)
    return 3 * _WARP // 2 * (block // _WARP if "warps" in found[1] else 1)  # padded


class NamedProgram(OperatorProgram):
    """A kernel of the course with an operator, loaded on a device.

    Parameters
    ----------
    operator : OperatorText
    types : OperatorTypes
    device : DeviceInfo
    kernel : str
    block : int
        Threads per block; 0 for the kernel's own number.

    Raises
    ------
    CompileError
        The operator does not compile.
    ValueError
        The states of a block do not fit its shared memory.
    """

    is_row_major = True

    def __init__(
        self, operator: OperatorText, types: OperatorTypes, device: DeviceInfo, kernel: str,
        block: int,
    ) -> None:  # fmt: skip
        self._kernel, self._types = kernel, types
        plan = _core.plan_kernel(kernel, device.ordinal, 1, 1, block, 0)
        self._named_block: int = plan["block"]
        text, entries = named_text(operator, types, kernel, plan, emulated=is_emulated())
        no_room = ValueError(
            f"kernel '{kernel}' has no room for the states of operator '{operator.name}': in blocks"
            f" of {self._named_block} threads they take more than the {_SHARED_BYTES:,} bytes of "
            "shared memory that a block has. Take a smaller block_size, or kernel 'auto'"
        )
        try:
            super().__init__(operator, types.compute, device, text, entries, MOST_BLOCK)
        except CompileError as error:
            if "too much shared data" not in error.log:
                raise
            raise no_room from error
        states = _shared_states(kernel, self._named_block)
        if states * self.facts["partial_bytes"] > _SHARED_BYTES:  # the emulator compiles it
            raise no_room

        self.takes_whole_rows = bool(self.facts["takes_index"])  # the kernels count from 0

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of a chunk."""
        element = self._types.element
        return _packed_dtype(element).itemsize if self._types.masked else element.itemsize

    def pack(
        self,
        staged: np.ndarray[Any, Any],
        part: np.ndarray[Any, Any],
        mask: np.ndarray[Any, Any] | None,
    ) -> tuple[int, int]:
        """Pack a chunk: the number of its bytes, and 0: what counts is beside each element."""
        if mask is None:
            store(staged, part, 0)
            return part.nbytes, 0
        dtype = _packed_dtype(part.dtype)
        bytes_ = part.size * dtype.itemsize
        packed = staged[:bytes_].view(dtype).reshape(part.shape)
        packed["element"], packed["counts"] = part, mask
        return bytes_, 0

    def launches(self, layout: Layout, launch: Launch) -> Launches:
        """What reduces rows that follow each other."""
        rows, n = layout.rows, layout.n
        results = Layout(layout.kept, (Axis(1, 0, 0, 0),), rows, n)
        given = self._given(results, launch, parts=int(n > 0))
        last = self._merge(given, rows, 1)
        if n == 0:
            return Launches((last,), 0, ())
        plan = _core.plan_kernel(
            self._kernel, self._device.ordinal, rows, n, self._named_block, launch.grid or 0
        )
        work = _Scratch()
        size = self.facts["partial_bytes"]
        accumulators = work.part(rows * size)
        halves = work.part(plan["partials"] * size), work.part(plan["more_partials"] * size)
        tickets = work.part(plan["tickets"] * np.dtype(np.uint32).itemsize)
        launches: list[Any] = []
        most, kind = plan["launch_blocks"], (plan["cooperative"], plan["cluster"])
        if plan["finish"] == "atomic":
            launches.append(_over(work.pointer(accumulators), rows))
        elif plan["tickets"] > 0:
            launches.append(_over(work.pointer(tickets), plan["tickets"]))
        for i, (elements, grid, blocks) in enumerate(plan["passes"]):
            is_last = i + 1 == len(plan["passes"])
            symbol = _KERNEL if i == 0 else _SECOND
            into = work.pointer(accumulators if is_last else halves[i % 2])
            source: bytes | bytearray = launch.array.to_bytes(8, "little")
            if i > 0:
                source = work.pointer(halves[(i - 1) % 2])
            scratch = work.pointers(halves[0], tickets)
            for first in range(0, grid, most):
                range_ = struct.pack("<QQQI4x", elements, rows, first, blocks)
                launches.append(
                    (symbol, min(grid - first, most), self._named_block, 0,
                     (source, into, range_, scratch), *kind)
                )  # fmt: skip
        work.point(last[-1][1], 0, accumulators)
        return Launches((*launches, last), work.bytes, tuple(work.places))


def _over(address: bytearray, count: int) -> tuple[int, int, int, int, tuple[Any, ...]]:
    """The launch that sets `count` values: identities, or counters to zero."""
    blocks = min(-(-count // _FILL_BLOCK), _MOST_FILL_BLOCKS)
    return _SECOND, blocks, _FILL_BLOCK, 0, (address, count.to_bytes(8, "little"))


class _Scratch:
    """Parts of the memory of a call, and the places of arguments that receive their addresses."""

    def __init__(self) -> None:
        self.bytes = 0
        self.places: list[tuple[bytearray, int, int]] = []

    def part(self, bytes_: int) -> int:
        """A part; its offset."""
        offset = self.bytes
        self.bytes += -(-max(bytes_, 1) // _ALIGNMENT) * _ALIGNMENT
        return offset

    def point(self, argument: bytearray, place: int, offset: int) -> None:
        """Let a place of an argument receive the address of a part."""
        self.places.append((argument, place, offset))

    def pointer(self, offset: int) -> bytearray:
        """An argument: the address of a part."""
        return self.pointers(offset)

    def pointers(self, *offsets: int) -> bytearray:
        """An argument: the addresses of parts."""
        made = bytearray(8 * len(offsets))
        for i, offset in enumerate(offsets):
            self.point(made, 8 * i, offset)
        return made


_programs: dict[tuple[Any, ...], NamedProgram] = {}
"""Programs stay loaded: a graph may hold their kernels."""


def named_program(
    operator: OperatorText, types: OperatorTypes, device: DeviceInfo, kernel: str, block: int
) -> NamedProgram:
    """A kernel's program for an operator on a device, loaded once per process."""
    key = (device.ordinal, kernel, block, operator, types)
    return first_made(_programs, key, lambda: NamedProgram(operator, types, device, kernel, block))
