"""What pictures of a timeline say and show, whoever draws them: matplotlib or HTML.

A picture has a title, a strip per column, four rows of text under the strips, the ways of bank
conflicts, and a legend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .figure_tables import show_figure
from .launches import WARP_LANES, Column, KernelRun
from .timeline import CONFLICT, DIVERGED, GONE, KINDS, WAITING, Strip, strips

MOST_STRIPS = 96
"""Strips of a picture; later ones of a longer launch are not drawn."""

__all__ = [
    "BARRIER",
    "BOUNDARY",
    "CONFLICT_EDGE",
    "GONE_EDGE",
    "HATCHED",
    "STEP",
    "STEP_COLOUR",
    "LegendEntry",
    "WaysLabel",
    "drawn_strips",
    "facts",
    "legend",
    "row_names",
    "row_texts",
    "warp_names",
    "ways_label",
    "words",
]

_ROW_NAMES = ("step", "", "active threads", "active warps")
"""Names of the rows of text under the strips; the second one numbers strips of one word."""
_UNDER_WAY = "KiB under way"
"""One more row, where there are asynchronous copies."""
CONFLICT_EDGE, GONE_EDGE = "#7a4f00", "#a9a9a9"
"""Colours of the hatching of bank conflicts, and of the frame of white in the legend."""
STEP_COLOUR = "#777777"
"""Of the two sides of a white line in the legend."""
BARRIER, BOUNDARY, STEP, HATCHED = -1, -2, -3, -4
"""Legend entries that are lines, and one that is hatching, beside the numbers of :data:`KINDS`."""
_MOST_WARPS = 16
"""Most warps that are named."""
_ROOM_OF_WAYS = 0.1
"""Share of the block's threads that a run needs for a label of ways inside it."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A sign of the picture and what it means; `kind` is a number of KINDS, BARRIER,
    BOUNDARY, STEP or HATCHED.
    """

    kind: int
    words: str


@dataclass(frozen=True, slots=True)
class WaysLabel:
    """Text of a strip's worst bank conflict, around thread `at`, or below it where nothing fits."""

    text: str
    at: float
    is_inside: bool


def words(columns: Sequence[Strip]) -> dict[int, str]:
    """The word of each strip's label, at the first of neighbouring strips that share it."""
    each = [column.label.partition(" ")[0] for column in columns]
    return {x: word for x, word in enumerate(each) if x == 0 or word != each[x - 1]}


def row_names(columns: Sequence[Strip]) -> tuple[str, ...]:
    """Names of the rows of text under these strips."""
    has_copies = any(column.under_way is not None for column in columns)
    return (*_ROW_NAMES, _UNDER_WAY) if has_copies else _ROW_NAMES


def row_texts(column: Strip) -> tuple[str, ...]:
    """Number, active threads and active warps of a strip, and KiB of copies under way if any."""
    texts = (column.label.partition(" ")[2], str(column.threads), str(column.warps))
    return texts if column.under_way is None else (*texts, f"{column.under_way / 1024:.3g}")


def warp_names(threads: int) -> list[tuple[float, str]]:
    """The middle thread and the name of each warp that is named."""
    warps = threads // WARP_LANES
    step = max(1, -(-warps // _MOST_WARPS))
    return [(w * WARP_LANES + WARP_LANES / 2, f"warp {w}") for w in range(0, warps, step)]


def drawn_strips(explanation: KernelRun) -> tuple[Strip, ...]:
    """The strips that a picture has."""
    return strips(explanation.main)[:MOST_STRIPS]


def facts(explanation: KernelRun) -> list[str]:
    """Lines under a kernel's name: which block of which launch is drawn, counts of both, and what
    is not drawn.
    """
    launch = explanation.main
    figures, map_ = launch.figures, launch.map
    of_block, of_launch = [], []
    if figures.wavefronts:
        of_block.append(_count(sum(map_.conflicts), "bank conflict"))
        of_launch.append(_count(figures.bank_conflicts, "bank conflict"))
    if figures.atomics:
        of_block.append(_count(sum(map_.atomics), "atomic"))
        of_launch.append(_count(figures.atomics, "atomic"))
    count = len(explanation.launches)
    which = f"launch {explanation.launches.index(launch) + 1} of {count}" if count > 1 else ""
    if launch.grid > 1:
        drawn = f"block {map_.block} of {launch.grid:,}, drawn"
        which = which or (f"all {launch.grid:,} blocks" if of_launch else "")
        whole = len(map_.did) == len(launch.columns)
        lines = [_joined(which, of_launch), _joined(drawn, of_block)]
    else:
        whole = True
        lines = [_joined(which, of_launch)]
    lanes = f"{show_figure(figures, 'lanes_per_warp')} of {WARP_LANES} lanes active per warp"
    lines = [*filter(None, lines), lanes]
    all_strips = strips(launch)
    if len(all_strips) > MOST_STRIPS:
        lines.append(f"the first {MOST_STRIPS} of {len(all_strips):,} steps are drawn")
    if not whole:
        lines.append(_rest(launch.columns[len(map_.did) :], explanation.rows))
    return lines


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"


def _joined(which: str, parts: Sequence[str]) -> str:
    return ": ".join(filter(None, (which, ", ".join(parts))))


def _rest(columns: Sequence[Column], rows: int) -> str:
    """Columns that the drawn block does not reach."""
    steps = _count(len(columns), "more step")
    if all(column.blocks <= rows for column in columns):
        return f"another block finishes, by {steps}"
    return f"other blocks have {steps}"


def ways_label(strip: Strip, threads: int) -> WaysLabel | None:
    """In the strip's longest run with its worst conflict, or below a short run."""
    worst = [run for run in strip.runs if run.ways > 1 and run.ways == strip.ways]
    if not worst:
        return None
    longest = max(worst, key=lambda run: run.last - run.first)
    is_inside = (longest.last - longest.first + 1) / threads > _ROOM_OF_WAYS
    end = longest.last + 1
    at = (longest.first + end) / 2 if is_inside else end
    return WaysLabel(f"{strip.ways}-way", at, is_inside)


def legend(explanations: Sequence[KernelRun]) -> list[LegendEntry]:
    """Every sign that pictures of these kernels show: what threads do, idle ones last, lines."""
    columns = [strip for each in explanations for strip in drawn_strips(each)]
    seen = {run.kind for strip in columns for run in strip.runs}
    idle = (DIVERGED, WAITING, GONE)
    order = [*sorted(seen - set(idle)), *(kind for kind in idle if kind in seen)]
    entries = [LegendEntry(kind, KINDS[kind].words) for kind in order]
    if any(run.ways > 1 and run.kind != CONFLICT for strip in columns for run in strip.runs):
        at = sum(entry.kind not in idle for entry in entries)
        words = "hatched: also a bank conflict in shared memory"
        entries.insert(at, LegendEntry(HATCHED, words))
    if any(column.figures.barriers for each in explanations for column in each.main.columns):
        entries.append(LegendEntry(BARRIER, "block barrier"))
    if any(strip.ends != "barrier" for each in explanations for strip in drawn_strips(each)[:-1]):
        entries.append(LegendEntry(STEP, "next step, no block barrier"))
    return [*entries, LegendEntry(BOUNDARY, "warp boundary")]
