"""Pictures of a block's timeline, by matplotlib."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .._display.figures import (
    INK,
    LEGEND_SIZE,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    expect_axes,
    matplotlib_or_why,
    save_figure,
)
from .figure_tables import names_of
from .launches import WARP_LANES, KernelRun
from .picture_parts import (
    BARRIER,
    BOUNDARY,
    CONFLICT_EDGE,
    GONE_EDGE,
    HATCHED,
    STEP,
    STEP_COLOUR,
    drawn_strips,
    facts,
    legend,
    row_names,
    row_texts,
    warp_names,
    ways_label,
    words,
)
from .timeline import CONFLICT, GONE, KINDS, Strip, with_heights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot", "save"]

HEIGHT = 7.0
"""Inches of a figure: with two or three kernels it fills a slide."""
MARGIN_WIDTH, GAP_WIDTH, COLUMN_WIDTH, LETTER_WIDTH, LEGEND_WIDTH = 1.5, 0.5, 0.36, 0.095, 3.45
FACT_WIDTH = 0.078
"""Inches of a letter under a kernel's name."""
_TITLE_PAD, _LINE_HEIGHT = 12, 1.25
"""Points between a kernel's name and the lines under it; height of these, in letters."""
LEAST_WIDTH, MOST_WIDTH = 3.0, 14.0
"""Inches: the margins, the gap between two kernels, a column, a letter of a column's label, a
legend's entry; bounds of one kernel's picture."""
_GAP = 0.2
"""Of a white line in the legend, in units of its letters."""
_HATCH = "////"
_PLAIN: dict[str, Any] = {"hatch": None, "edgecolor": "none"}
_EDGES = {CONFLICT: CONFLICT_EDGE, HATCHED: CONFLICT_EDGE, GONE: GONE_EDGE}
_LINES: dict[int, dict[str, Any]] = {
    BARRIER: {"linewidth": 1.5},
    BOUNDARY: {"linewidth": 0.7, "linestyle": (0, (4, 3))},
}
MOST_LABELS, MOST_WAYS = 24, 60
"""Most columns that are labelled, and most columns in which the ways of bank conflicts are
written."""


def _width(explanation: KernelRun) -> float:
    """Width in inches, with room for each word above the columns that share it.

    Columns are narrow, because pages scale a picture to their own width: a wide picture has small
    letters there.
    """
    columns = drawn_strips(explanation)
    own = words(columns)
    # The last word may end in the margin.
    needed = [len(own[x]) * LETTER_WIDTH / (end - x) for x, end in pairwise(own)]
    column_width = max([COLUMN_WIDTH, *needed])
    of_facts = max(map(len, facts(explanation))) * FACT_WIDTH
    return min(max(column_width * len(columns), LEAST_WIDTH, of_facts), MOST_WIDTH)


def _layout(figure: Figure, explanations: Sequence[KernelRun]) -> list[Axes]:
    widths = [_width(each) for each in explanations]
    together = sum(widths) + MARGIN_WIDTH + GAP_WIDTH * (len(widths) - 1)
    figure.set_size_inches(max(together, 2 * LEGEND_WIDTH), HEIGHT)
    figure.set_layout_engine("constrained")
    figure.set_facecolor("white")
    axes = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)
    return list(axes[0])


def plot(explanations: Sequence[KernelRun], axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw explanations beside one another.

    Parameters
    ----------
    explanations : sequence of KernelRun
    axes : sequence of Axes, optional
        One for each; a new figure of pyplot's by default.

    Returns
    -------
    list of Axes
    """
    expect_axes(axes, "plot()[0]")
    matplotlib_or_why()
    if not explanations:
        raise ValueError("there is no explanation to draw")
    if axes is None:
        from matplotlib import pyplot

        figure = pyplot.figure()
        axes = _layout(figure, explanations)
        _draw_all(explanations, axes)
        _legend(figure, explanations)
        return list(axes)
    if len(axes) != len(explanations):
        raise ValueError(
            f"{len(explanations)} explanations are drawn on as many axes, not {len(axes)}"
        )
    _draw_all(explanations, axes)
    return list(axes)


def save(explanations: Iterable[KernelRun], path: str | os.PathLike[str]) -> None:
    """Draw into a file, without a display; its ending names the format.

    Parameters
    ----------
    explanations : iterable of KernelRun
    path : path
    """
    several = list(explanations)

    def draw(figure: Figure) -> None:
        _draw_all(several, _layout(figure, several))
        _legend(figure, several)

    save_figure(path, draw)


def _draw_all(explanations: Sequence[KernelRun], axes: Sequence[Axes]) -> None:
    names = names_of(explanations)
    texts = [facts(each) for each in explanations]
    lines = max(map(len, texts))
    for i, (explanation, ax) in enumerate(zip(explanations, axes, strict=True)):
        # Blocks of one size share the names of their warps.
        is_first = i == 0 or explanation.main.map.threads != explanations[i - 1].main.map.threads
        _draw(explanation, ax, with_names=i == 0, with_warps=is_first)
        _write_title(ax, names[i], texts[i], lines)


# ---------------------------------------------------------------- one kernel


def _draw(explanation: KernelRun, ax: Axes, with_names: bool, with_warps: bool) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    launch = explanation.main
    columns = drawn_strips(explanation)
    for number, kind in enumerate(KINDS):
        if number == GONE:
            continue
        for is_hatched in (False, True):
            cells = [
                Rectangle((x, run.first), 1, height)
                for x, strip in enumerate(columns)
                for run, height in with_heights(strip.runs, launch.map.threads)
                if run.kind == number and (run.ways > 1) == is_hatched
            ]
            style = {"hatch": _HATCH, "edgecolor": CONFLICT_EDGE} if is_hatched else _PLAIN
            ax.add_collection(PatchCollection(cells, facecolor=kind.colour, linewidth=0, **style))
    for y in range(WARP_LANES, launch.map.threads, WARP_LANES):
        ax.axhline(y, color=INK, **_LINES[BOUNDARY])
    for x in range(1, len(columns)):
        is_barrier = columns[x - 1].ends == "barrier"
        ax.axvline(x, color="white", linewidth=3.5 if is_barrier else 1.2)
        if is_barrier:
            ax.axvline(x, color=INK, **_LINES[BARRIER])
    if len(columns) <= MOST_WAYS:
        for x, strip in enumerate(columns):
            _write_ways(ax, x, strip, launch.map.threads)
    _label(explanation, ax, columns, with_names, with_warps)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(launch.map.threads, 0)


def _write_ways(ax: Axes, x: int, strip: Strip, threads: int) -> None:
    label = ways_label(strip, threads)
    if label is None:
        return
    box = {
        "boxstyle": "round,pad=0.18",
        "facecolor": "white",
        "edgecolor": KINDS[CONFLICT].colour,
        "linewidth": 1.2,
    }
    ax.text(
        x + 0.5,
        label.at if label.is_inside else label.at + 0.008 * threads,
        label.text,
        ha="center",
        va="center" if label.is_inside else "top",
        rotation=90,
        fontsize=SMALL_SIZE,
        color=INK,
        bbox=box,
        zorder=5,
    )


def _label(
    explanation: KernelRun, ax: Axes, columns: Sequence[Strip], with_names: bool, with_warps: bool
) -> None:
    launch = explanation.main
    step = -(-len(columns) // MOST_LABELS)
    shown = range(0, len(columns), step)
    ax.set_xticks([x + 0.5 for x in shown])
    texts = []
    for x in shown:
        word = columns[x].label.partition(" ")[0] if step > 1 else ""
        texts.append("\n".join((word, *row_texts(columns[x]))))
    below: dict[str, Any] = {"fontsize": SMALL_SIZE, "linespacing": 1.35}
    ax.set_xticklabels(texts, **below)
    ax.tick_params(axis="both", length=0)
    below |= {"textcoords": "offset points", "va": "top"}
    for x, word in words(columns).items() if step == 1 else ():
        ax.annotate(word, (x, 0), (2, -4.5), ("data", "axes fraction"), **below)
    if with_names:
        names = "\n".join(row_names(columns))
        at = ("axes fraction", "axes fraction")
        ax.annotate(names, (0, 0), (-6, -4.5), at, ha="right", color="#555555", **below)
    ticks = warp_names(launch.map.threads) if with_warps else []
    ax.set_yticks([at for at, _ in ticks])
    ax.set_yticklabels([name for _, name in ticks], fontsize=TEXT_SIZE)
    for side in ax.spines.values():
        side.set_visible(False)


def _write_title(ax: Axes, name: str, texts: Sequence[str], lines: int) -> None:
    """Name and facts, where the picture beside has `lines` lines of facts."""
    ax.set_title(
        name,
        fontsize=TITLE_SIZE,
        fontweight="bold",
        color=INK,
        loc="left",
        pad=_TITLE_PAD + lines * TEXT_SIZE * _LINE_HEIGHT,
    )
    ax.text(
        0,
        1.015,
        "\n".join([*texts, *[""] * (lines - len(texts))]),
        linespacing=_LINE_HEIGHT,
        transform=ax.transAxes,
        fontsize=TEXT_SIZE,
        color=INK,
        va="bottom",
    )


def _legend(figure: Figure, explanations: Sequence[KernelRun]) -> None:
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = legend(explanations)
    handles: list[Any] = []
    for entry in entries:
        if entry.kind in _LINES:
            handles.append(Line2D([], [], color=INK, **_LINES[entry.kind]))
            continue
        if entry.kind == STEP:  # a white line is the gap between two columns
            side = Patch(facecolor=STEP_COLOUR, linewidth=0)
            handles.append((side, side))
            continue
        handles.append(
            Patch(
                facecolor=KINDS[max(entry.kind, GONE)].colour,
                hatch=_HATCH if entry.kind in (CONFLICT, HATCHED) else None,
                edgecolor=_EDGES.get(entry.kind, "none"),
                linewidth=0.8 if entry.kind == GONE else 0,
            )
        )
    across = max(1, int(figure.get_figwidth() / LEGEND_WIDTH))
    figure.legend(
        handles=handles,
        labels=[entry.words for entry in entries],
        handler_map={tuple: HandlerTuple(ndivide=None, pad=_GAP)},
        loc="outside lower center",
        ncols=across,
        fontsize=LEGEND_SIZE,
        frameon=False,
    )
