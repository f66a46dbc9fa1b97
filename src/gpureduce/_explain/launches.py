"""Records of a kernel's run: launches, their columns in time, and counts.

This module runs, prints and draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .. import _core

__all__ = [
    "Atomics",
    "BlockMap",
    "Column",
    "Count",
    "Figures",
    "KernelRun",
    "Launch",
    "Line",
    "add_up",
]


WARP_LANES = 32
(
    LOAD_GLOBAL,
    STORE_GLOBAL,
    LOAD_SHARED,
    STORE_SHARED,
    ATOMIC_SHARED,
    ATOMIC_GLOBAL,
    EXCHANGE,
    BEGIN_COPY,
) = (1 << i for i in range(8))
"""Bits of :attr:`BlockMap.did`."""


@dataclass(frozen=True, slots=True)
class Count:
    """Counts of one operation; those that do not apply to the operation are 0.

    Attributes
    ----------
    requests, threads
        Instructions that warps executed, and lanes that took part in them.
    bytes
        Bytes that they moved.
    wavefronts, ideal
        Of shared memory: passes over the 32 banks, and passes without bank conflicts.
    sectors, ideal_sectors
        Of global memory: pieces of 32 bytes that were touched, and the fewest that the bytes could
        occupy.
    """

    requests: int
    threads: int
    bytes: int = 0
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    ideal_sectors: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of a column, of a launch or of all launches.

    Attributes
    ----------
    launches
        Kernels started.
    barriers
        Block barriers (``__syncthreads``) that a block passes.
    active_threads, active_warps
        Threads that access memory or exchange registers, and warps with at least one such thread.
        Arithmetic in registers does not make a thread active. Over several columns: sums.
    slots
        Threads of the warps that have not exited: they are active in this column or later, or reach
        a block barrier. Over several columns: a sum.
    shared_loads, shared_stores
        Requests to shared memory. A *request* is one instruction of one warp, however many of its
        lanes take part.
    bank_conflicts
        Passes over the 32 banks of shared memory beyond those needed without conflicts: words of
        one bank are accessed one after the other.
    wavefronts, ideal_wavefronts
        All passes, and those needed without conflicts, as a GPU's counters have them: of a load as
        many as its words fill, of a store one per group of neighbouring lanes that could fill the
        banks.
    shuffles
        Requests in which the lanes of a warp exchange registers: shuffles, votes, warp-wide
        reductions.
    copies
        Requests that begin asynchronous copies from global to shared memory.
    atomics
        Atomic operations, in shared and global memory, one per lane.
    most_on_one_address
        Most atomic operations on one address, which serializes them; ``None`` for a single column.
    global_requests
        Loads, stores and atomics of global memory, and asynchronous copies from there.
    sectors, ideal_sectors
        Pieces of 32 bytes that these touch, and the fewest that their bytes could occupy.
    requests, request_lanes
        Requests to memory of any kind, and lanes that took part in them.
    """

    launches: int
    barriers: int
    active_threads: int
    active_warps: int
    slots: int
    shared_loads: int
    shared_stores: int
    bank_conflicts: int
    wavefronts: int
    ideal_wavefronts: int
    shuffles: int
    copies: int
    atomics: int
    most_on_one_address: int | None
    global_requests: int
    sectors: int
    ideal_sectors: int
    requests: int
    request_lanes: int

    @property
    def lanes_per_warp(self) -> float | None:
        """Active threads per active warp, of 32: the fewer, the more the warps diverge."""
        return _ratio(self.active_threads, self.active_warps)

    @property
    def lanes_per_request(self) -> float | None:
        """Lanes per request to memory, of 32."""
        return _ratio(self.request_lanes, self.requests)

    @property
    def idle(self) -> float | None:
        """Share of the slots whose thread is not active: :attr:`diverged` and :attr:`waiting`."""
        return _ratio(self.slots - self.active_threads, self.slots)

    @property
    def diverged(self) -> float | None:
        """Share of the slots whose thread idles while others of its warp are active: divergence."""
        return _ratio(self.active_warps * WARP_LANES - self.active_threads, self.slots)

    @property
    def waiting(self) -> float | None:
        """Share of the slots whose whole warp idles, at a barrier."""
        return _ratio(self.slots - self.active_warps * WARP_LANES, self.slots)

    @property
    def ways(self) -> float | None:
        """Passes over the banks per pass needed: 1 without conflicts, up to 32."""
        return _ratio(self.wavefronts, self.ideal_wavefronts)

    @property
    def sectors_per_request(self) -> float | None:
        """Sectors per request to global memory."""
        return _ratio(self.sectors, self.global_requests)

    @property
    def coalescing(self) -> float | None:
        """Ideal sectors over sectors: 1 if every byte that is fetched was requested."""
        return _ratio(self.ideal_sectors, self.sectors)

    def to_dict(self) -> dict[str, Any]:
        """All figures and ratios; a ratio is ``None`` if its divisor is 0.

        Returns
        -------
        dict
        """
        return {name: getattr(self, name) for name in (*self.__slots__, *RATIOS)}


RATIOS = (
    "lanes_per_warp",
    "lanes_per_request",
    "idle",
    "diverged",
    "waiting",
    "ways",
    "sectors_per_request",
    "coalescing",
)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def add_up(
    figures: Iterable[Figures], *, launches: int | None = None, most: int | None = None
) -> Figures:
    """Sum of figures; of ``most_on_one_address`` the largest."""
    those = list(figures)
    total: dict[str, Any] = {
        name: sum(getattr(each, name) or 0 for each in those)
        for name in Figures.__slots__
        if name != "most_on_one_address"
    }
    known = [each.most_on_one_address for each in those if each.most_on_one_address is not None]
    total["most_on_one_address"] = max(known, default=None) if most is None else most
    if launches is not None:
        total["launches"] = launches
    return Figures(**total)


@dataclass(frozen=True, slots=True)
class Column:
    """One step of a phase: a row of the printed table, a column of the picture.

    A *phase* is the part between two block barriers; a *step* is the part of a phase between two
    collective operations of a warp: a warp barrier, a shuffle, a vote; a wait for asynchronous
    copies ends a step, too. A kernel without those has one step per phase.

    Attributes
    ----------
    phase, step
        Counted from 0.
    ends
        The operation that ends it: ``"barrier"``, ``"warp_barrier"``, ``"shuffle"``, ``"vote"``,
        ``"reduce"``, ``"copy_wait"`` or ``"exit"``.
    file, line
        Place of that operation, in the kernel's own file if it is called from there; ``""`` and 0
        for the kernel's end.
    op_file, op_line
        Where the operation itself is: of a helper that the kernel calls, in the helper's file.
    blocks
        Blocks that reached the step.
    ops
        :class:`Count` of each kind of operation that occurs.
    figures
        :class:`Figures` of these operations.
    """

    phase: int
    step: int
    ends: str
    file: str
    line: int
    op_file: str
    op_line: int
    blocks: int
    ops: dict[str, Count]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Line:
    """An operation of one source line in a launch, and its :class:`Count`.

    `file` and `line` are the line itself, `from_file` and `from_line` the line of the kernel that
    it was called from.
    """

    file: str
    line: int
    from_file: str
    from_line: int
    op: str
    count: Count


@dataclass(frozen=True, slots=True)
class Atomics:
    """Atomics of a launch on one kind of memory: operations, addresses, most on one address."""

    operations: int
    addresses: int
    most: int


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Operations of each thread of one block in each column; at most 512 columns.

    Attributes
    ----------
    block, threads
        Number of the block, and its size.
    did
        For each column, for each thread, the sum of 1 global load, 2 global store, 4 shared load, 8
        shared store, 16 shared atomic, 32 global atomic, 64 shuffle, vote or warp-wide reduction,
        128 begin of an asynchronous copy; 0 is nothing.
    ways
        For each column, for each thread, the worst request to shared memory that it took part in:
        passes per pass needed, rounded up; 0 if it took part in none.
    there
        For each column, for each warp, 1 if one of its threads did any of these, came to a block or
        warp barrier, or executed a fence; else 0.
    conflicts, atomics
        For each column, the block's bank conflicts and atomic operations.
    """

    block: int
    threads: int
    did: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, ...], ...]
    there: tuple[tuple[int, ...], ...]
    conflicts: tuple[int, ...]
    atomics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a kernel.

    Attributes
    ----------
    entry
        The template that ran, as ``"gpr::sequential<First, 256u>"``.
    stage
        ``"first"`` over the array, ``"next"`` over the partials of the launch before, ``"fill"`` to
        store the identity in the outputs of atomics or zero in tickets, ``"finish"`` to turn
        accumulators, or partials of an operator of your own, into results.
    grid, block
        Blocks, and threads of each.
    shared_bytes
        Shared memory of a block.
    columns
        Its columns, in the order of time.
    lines
        Its operations by source line.
    atomics
        :class:`Atomics` on ``"shared"`` and ``"global"`` memory.
    map
        Operations of each thread of the first block.
    figures
        Totals of all columns.
    """

    entry: str
    stage: str
    grid: int
    block: int
    shared_bytes: int
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    atomics: dict[str, Atomics]
    map: BlockMap
    figures: Figures


@dataclass(frozen=True, slots=True, repr=False)
class KernelRun:
    """A reduction by one kernel, launch by launch: the input of tables and pictures.

    The attributes are described in :class:`Explanation`.
    """

    kernel: str
    op: str
    dtype: str
    n: int
    rows: int
    block_size: int
    launches: tuple[Launch, ...]
    own_source: tuple[str, str] | None = None
    chosen_by: str = ""

    @property
    def main(self) -> Launch:
        """The first launch over the array, the one that tables and pictures show."""
        return next(launch for launch in self.launches if launch.stage == "first")

    @property
    def file(self) -> str:
        """Name of the kernel's source file."""
        return self.own_source[0] if self.own_source else _core.KERNEL_FILES[self.kernel]

    @property
    def figures(self) -> Figures:
        """:class:`Figures` of all launches together."""
        return add_up(launch.figures for launch in self.launches)

    @property
    def title(self) -> str:
        """Kernel, operator, dtype and sizes in one line."""
        rows = f"{self.rows:,} rows of " if self.rows > 1 else ""
        chosen = f", chosen by {self.chosen_by}" if self.chosen_by else ""
        return (
            f"{self.kernel}{chosen}: {self.op} of {rows}{self.n:,} {self.dtype}, blocks of "
            f"{self.block_size:,} threads"
        )

    def source(self) -> str:
        """The kernel's CUDA source, as :func:`kernel_source` has it.

        Returns
        -------
        str
        """
        return self.own_source[1] if self.own_source else _core.sources()[self.file]

    def line_counts(self) -> dict[int, tuple[int, int, int, int]]:
        """Requests, lanes in them, bank conflicts and sectors of the kernel's source lines, in
        :attr:`main`.

        Returns
        -------
        dict
            By line number, counted from 1; lines that did nothing are not in it. Requests are all
            of a warp's instructions that are counted at all: memory, shuffles, barriers, fences.
        """
        found: dict[int, tuple[int, int, int, int]] = {}
        for line in self.main.lines:
            if line.from_file == self.file:
                one = line.count
                so_far = found.get(line.from_line, (0, 0, 0, 0))
                more = (one.requests, one.threads, one.wavefronts - one.ideal, one.sectors)
                found[line.from_line] = (
                    so_far[0] + more[0],
                    so_far[1] + more[1],
                    so_far[2] + more[2],
                    so_far[3] + more[3],
                )
        return found
