"""The timeline of a block, for pictures by matplotlib and in HTML: what each thread does in each
column.

A thread does one of :data:`KINDS` in a column. The colours are those of Okabe and Ito, which
colour-blind readers can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .launches import (
    ATOMIC_GLOBAL,
    ATOMIC_SHARED,
    BEGIN_COPY,
    EXCHANGE,
    LOAD_GLOBAL,
    LOAD_SHARED,
    STORE_GLOBAL,
    STORE_SHARED,
    WARP_LANES,
    BlockMap,
    Launch,
)

__all__ = [
    "CONFLICT",
    "DIVERGED",
    "GONE",
    "KINDS",
    "WAITING",
    "Kind",
    "Run",
    "Strip",
    "strips",
    "with_heights",
]

LEAST_HEIGHT = 0.008
"""Share of the picture's height that one active thread is drawn with, if there is room: a thinner
line is not seen."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a thread does: words for the legend, a short word for a column's label, a colour."""

    words: str
    short: str
    colour: str


KINDS = (
    Kind("its warp has exited", "", "white"),
    Kind("idle with its whole warp", "wait", "#e8e8e8"),
    Kind("idle in an active warp: divergence", "", "#a9a9a9"),
    Kind("loads from global memory", "load", "#56b4e9"),
    Kind("begins an asynchronous copy: global to shared memory", "copy", "#f0e442"),
    Kind("accesses shared memory", "shared", "#009e73"),
    Kind("accesses shared memory, bank conflict", "shared", "#e69f00"),
    Kind("exchanges registers: shuffle", "shuffle", "#cc79a7"),
    Kind("atomic operation", "atomic", "#d55e00"),
    Kind("stores to global memory", "store", "#0072b2"),
)
GONE, WAITING, DIVERGED, LOAD, COPY, SHARED, CONFLICT, SHUFFLE, ATOMIC, STORE = range(len(KINDS))


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring threads ``first`` to ``last`` of one kind, and the ways of their bank conflict;
    0: they have none. Threads of any kind but idle ones may have one.
    """

    first: int
    last: int
    kind: int
    ways: int


@dataclass(frozen=True, slots=True)
class Strip:
    """One column of the timeline, or the part of one before its shuffle or before copies begin.

    Attributes
    ----------
    runs
        Runs of its threads, from thread 0.
    label
        "store" if a thread stores to global memory, else the short word of the most frequent kind
        of its active threads; numbered if several columns have it.
    threads, warps
        Active threads and warps of the block.
    ways
        The worst bank conflict; 1 is none, 0 no shared memory.
    ends
        As :attr:`Column.ends`; ``""`` for the part of a column before another part.
    column
        Its column of the launch.
    under_way
        Bytes of asynchronous copies of a block that have begun and have not arrived, on the average
        of the blocks; ``None`` if the launch has no copies.
    """

    runs: tuple[Run, ...]
    label: str
    threads: int
    warps: int
    ways: int
    ends: str
    column: int
    under_way: int | None


def _kind(did: int, ways: int) -> int:
    """The kind that is shown of an active thread: the most telling one of its operations."""
    if did & (ATOMIC_SHARED | ATOMIC_GLOBAL):
        return ATOMIC
    if did & STORE_GLOBAL:
        return STORE
    if did & LOAD_GLOBAL:
        return LOAD
    if did & BEGIN_COPY:
        return COPY
    if did & EXCHANGE:
        return SHUFFLE
    if did & (LOAD_SHARED | STORE_SHARED):
        return CONFLICT if ways > 1 else SHARED
    return WAITING


def _last_columns(map_: BlockMap) -> list[int]:
    """For each warp of the drawn block, the last column before it exits; -1: it does nothing."""
    return [
        max((i for i, there in enumerate(map_.there) if there[warp]), default=-1)
        for warp in range(-(-map_.threads // WARP_LANES))
    ]


def _parts(ends: str, did: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
    """A column as it is drawn: what comes before a shuffle has a strip of its own, beside it.

    Otherwise the first of five shuffles would be hidden in the column of the loads before it. And
    copies begin after the accesses of their column: a step ends where threads wait for copies, and
    begins with what they have waited for.
    """
    for last in (EXCHANGE, BEGIN_COPY):
        if any(each & last for each in did) and any(each & ~last for each in did):
            before = [each & ~last for each in did]
            return [*_parts("", before), (ends, [each & last for each in did])]
    return [(ends, did)]


def _bytes_under_way(launch: Launch) -> list[tuple[int, int]] | None:
    """For each column, bytes of copies under way before its own begin, and then; per block."""
    if not any("copy" in column.ops for column in launch.columns):
        return None
    found = []
    before = 0
    blocks = max(column.blocks for column in launch.columns)
    for column in launch.columns:
        begun, arrived = (
            column.ops[name].bytes if name in column.ops else 0 for name in ("copy", "copy_wait")
        )
        found.append((before // blocks, (before + begun) // blocks))
        before += begun - arrived
    return found


_IN_SHARED = LOAD_SHARED | STORE_SHARED | ATOMIC_SHARED


def _plain_ways(ways: Sequence[int], did: Sequence[int]) -> int:
    """1 if one of these threads uses shared memory, without a conflict; else 0."""
    return int(any(w and each & _IN_SHARED for w, each in zip(ways, did, strict=True)))


def _thread_kinds(
    done: Sequence[int], degrees: Sequence[int], last: list[int], i: int
) -> list[tuple[int, int]]:
    """Kind and ways of each thread in a strip of column `i`."""
    kinds = []
    for first in range(0, len(done), WARP_LANES):
        did, ways = (each[first : first + WARP_LANES] for each in (done, degrees))
        idle = DIVERGED if any(did) else WAITING if i <= last[first // WARP_LANES] else GONE
        for one, degree in zip(did, ways, strict=True):
            kind = _kind(one, degree) if one else idle
            kinds.append((kind, degree if one & _IN_SHARED and degree > 1 else 0))
    return kinds


def _short(kinds: Sequence[tuple[int, int]]) -> str:
    """The word of a strip whose threads are of these kinds."""
    active = [kind for kind, _ in kinds if kind not in (GONE, WAITING, DIVERGED)]
    if STORE in active:
        return KINDS[STORE].short
    return KINDS[max(set(active), key=active.count) if active else WAITING].short


def _runs(kinds: Sequence[tuple[int, int]]) -> tuple[Run, ...]:
    runs = []
    start = 0
    for i in range(1, len(kinds) + 1):
        if i == len(kinds) or kinds[i] != kinds[start]:
            runs.append(Run(start, i - 1, *kinds[start]))
            start = i
    return tuple(runs)


def with_heights(runs: Sequence[Run], threads: int) -> list[tuple[Run, float]]:
    """Runs and the heights, in threads, that they are drawn with.

    A thin active run extends into the idle run below it, half of that at most: drawn in the order
    of :data:`KINDS`, active runs cover idle ones.
    """
    idle = (GONE, WAITING, DIVERGED)
    heights = []
    for i, run in enumerate(runs):
        own = run.last - run.first + 1
        below = runs[i + 1] if i + 1 < len(runs) else None
        room = (
            (below.last - below.first + 1) / 2 if below is not None and below.kind in idle else 0.0
        )
        height = (
            float(own) if run.kind in idle else max(own, min(LEAST_HEIGHT * threads, own + room))
        )
        heights.append((run, height))
    return heights


def strips(launch: Launch) -> tuple[Strip, ...]:
    """Strips of the timeline of a launch's first block.

    Parameters
    ----------
    launch : Launch

    Returns
    -------
    tuple of Strip
    """
    map_ = launch.map
    last = _last_columns(map_)
    under_way = _bytes_under_way(launch)
    parts = [
        (i, ends, did)
        for i, whole in enumerate(map_.did)
        for ends, did in _parts(launch.columns[i].ends, whole)
    ]
    rows = [_thread_kinds(did, map_.ways[i], last, i) for i, _, did in parts]
    shorts = list(map(_short, rows))
    labels = [
        f"{short} {shorts[: i + 1].count(short)}" if shorts.count(short) > 1 else short
        for i, short in enumerate(shorts)
    ]
    return tuple(
        Strip(
            runs=_runs(row),
            label=label,
            threads=sum(map(bool, did)),
            warps=sum(any(did[t : t + WARP_LANES]) for t in range(0, map_.threads, WARP_LANES)),
            ways=max((ways for _, ways in row), default=0) or _plain_ways(map_.ways[i], did),
            ends=ends,
            column=i,
            under_way=None if under_way is None else under_way[i][bool(ends)],
        )
        for row, label, (i, ends, did) in zip(rows, labels, parts, strict=True)
    )
