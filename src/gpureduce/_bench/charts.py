"""Charts of measurements, by matplotlib: bandwidth per contender, over size, a roofline; the stages
of one call.

Colours are those of Okabe and Ito, which the colour-blind tell apart; a place, a marker or a
word tells what a colour tells.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .._display.figures import (
    INK,
    LEGEND_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    expect_axes,
    matplotlib_or_why,
)
from .._display.tables import show_bandwidth, show_bytes, show_time
from .contenders import ComparisonRecord, Contender
from .sampling import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["KINDS", "check_kind", "draw_bars", "plot_comparison", "plot_stages"]

KERNEL, LIBRARY, CEILING, PEAK, PALE = "#0072B2", "#E69F00", "#333333", "#7A7A7A", "#BDBDBD"
_LINES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#A6761D")
_MARKERS = "os^DvPX*"
_STAGE_COLOURS = {
    "stage": "#56B4E9",
    "upload": "#0072B2",
    "kernel": "#009E73",
    "return": "#E69F00",
}
BAR_INCHES, LEAST_INCHES, WIDTH = 0.29, 2.6, 10.0
FIGURES_POINTS = 62
"""Width of a column of figures beside bars, in points."""
VERY_SHORT_AXIS, SHORT_AXIS = 8, 200
"""Ratio of the ends of a logarithmic axis below which there is room for more labels."""
LABEL_INCHES = 0.17
"""Height of a line of text beside a point."""
GIGA = 1e9


# ---------------------------------------------------------------- what they share


def _axes(place: Axes | Figure | None, height: float) -> Axes:
    """The given axes, or new axes in a given figure, or in a new figure of pyplot's."""
    expect_axes(place)
    matplotlib_or_why()
    from matplotlib.figure import Figure

    if place is None:
        from matplotlib import pyplot

        place = pyplot.figure(layout="constrained", facecolor="white")
    if not isinstance(place, Figure):
        return place
    place.set_size_inches(WIDTH, height)
    return place.subplots()


def _plain(ax: Axes, title: str, subtitle: str) -> None:
    ax.set_title(f"{title}\n", fontsize=TITLE_SIZE, fontweight="bold", color=INK, loc="left", pad=4)
    ax.annotate(
        subtitle,
        (0, 1),
        (0, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=TEXT_SIZE,
        color=INK,
    )
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=TEXT_SIZE)


def _plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers; a short axis at its twos and fives, too, and a
    very short one at all of its ticks.
    """
    from matplotlib.ticker import FuncFormatter

    low, high = sorted(axis.get_view_interval())
    span = high / low if low > 0 else math.inf
    labelled = "23456789" if span < VERY_SHORT_AXIS else "25" if span < SHORT_AXIS else ""

    def between(value: float, _: object) -> str:
        return f"{value:,g}" if f"{value:e}"[0] in labelled else ""

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(FuncFormatter(between))
    axis.set_tick_params(which="minor", labelsize=TEXT_SIZE)


def _roofs(ceiling: float | None, peak: float | None) -> list[tuple[float, str, Any, str]]:
    """Value, colour, style and label of the lines of peak and ceiling."""
    lines: list[tuple[float, str, Any, str]] = []
    if ceiling is not None:
        lines.append((ceiling, CEILING, "-", f"highest measured: {show_bandwidth(ceiling)} GB/s"))
    if peak is not None:
        lines.append((peak, PEAK, (0, (5, 3)), f"theoretical peak: {show_bandwidth(peak)} GB/s"))
    return lines


def _column(comparison: ComparisonRecord, column: str | None) -> tuple[str, str]:
    """The kind of times to draw, and its description."""
    has_device = any(row.on_device is not None for row in comparison.rows)
    chosen = column or ("on_device" if has_device else "host")
    if chosen not in ("host", "on_device"):
        raise ValueError(f"column must be 'host' or 'on_device', not {column!r}")
    return (
        chosen,
        "kernels alone, on the device"
        if chosen == "on_device"
        else "from host memory to the result",
    )


def _timed(comparison: ComparisonRecord, column: str) -> list[Contender]:
    rows = [row for row in comparison.rows if getattr(row, column) is not None]
    if not rows:
        raise ValueError(
            f"nothing was timed {'on the device' if column == 'on_device' else 'from host memory'}"
        )
    return rows


# ---------------------------------------------------------------- charts


def draw_bars(
    ax: Axes,
    labels: Sequence[str],
    rates: Sequence[float],
    are_kernels: Sequence[bool],
    ceiling: float | None = None,
    peak: float | None = None,
    steps: bool = False,
    quartiles: Sequence[tuple[float, float]] = (),
) -> None:
    """Draw a bar of bandwidth per label, from top to bottom, and the lines of peak and ceiling.

    Bars start at zero: a bar that is twice as long is twice as fast. Figures are written beside the
    axes, where no line crosses them.

    Parameters
    ----------
    ax : Axes
    labels : sequence of str
    rates : sequence of float
        Bytes per second.
    are_kernels : sequence of bool
        Libraries have another colour and a hatch.
    ceiling, peak : float or None, optional
        Bytes per second.
    steps : bool, optional
        Also write how many times as fast each is as the one above it.
    quartiles : sequence of (float, float), optional
        Lower and upper quartile of each rate, in bytes per second: a line over each bar.
    """
    from matplotlib.patches import Patch

    values = [rate / GIGA for rate in rates]
    columns = [["GB/s", *map(show_bandwidth, rates)]]
    if steps:
        factors = [f"{each / before:,.2f}" for before, each in pairwise(values)]
        columns.append(["times the\none above", "", *factors])
    for place, column in enumerate(columns, 1):
        for row, words in enumerate(column, -1):
            ax.annotate(
                words,
                (1, row if row >= 0 else -0.6),
                (FIGURES_POINTS * place, 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="center" if row >= 0 else "bottom",
                fontsize=TEXT_SIZE - 1,
                color=INK if row >= 0 else "#555555",
                annotation_clip=False,
            )
    for i, (value, is_kernel) in enumerate(zip(values, are_kernels, strict=True)):
        colour, hatch = (KERNEL, None) if is_kernel else (LIBRARY, "///")
        ax.barh(i, value, height=0.74, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
    handles: list[Any] = [Patch(facecolor=KERNEL, label="gpureduce")]
    if not all(are_kernels):
        handles.append(
            Patch(facecolor=LIBRARY, hatch="///", edgecolor="white", linewidth=0, label="library")
        )
    if quartiles:
        ends = [(low / GIGA, high / GIGA) for low, high in quartiles]
        reach = [
            (max(value - low, 0.0), max(high - value, 0.0))
            for value, (low, high) in zip(values, ends, strict=True)
        ]
        handles.append(
            ax.errorbar(
                values, range(len(values)), xerr=list(zip(*reach, strict=True)), fmt="none",
                ecolor="#444444", elinewidth=1.4, capsize=4, label="quartiles",
            )
        )  # fmt: skip
    roofs = _roofs(ceiling, peak)
    for value, colour, style, words in roofs:
        handles.append(
            ax.axvline(value / GIGA, color=colour, linestyle=style, linewidth=1.6, label=words)
        )
    reached = [high / GIGA for _, high in quartiles]
    ax.set_xlim(0, max(*values, *reached, *(value / GIGA for value, *_ in roofs), 0) * 1.02)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_xlabel("bandwidth, GB/s", fontsize=TEXT_SIZE, color=INK)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.tick_params(axis="y", length=0)
    below = "outside lower center"
    if ax.figure.get_layout_engine() is not None and len(ax.figure.axes) == 1:
        ax.figure.legend(
            handles=handles,
            loc=below,  # type: ignore[call-overload]
            ncols=len(handles),
            fontsize=LEGEND_SIZE,
            frameon=False,
        )
    else:
        ax.legend(handles=handles, fontsize=LEGEND_SIZE, frameon=False, loc="best")


def _plot_bars(comparison: ComparisonRecord, column: str | None, ax: Axes | Figure | None) -> Axes:
    chosen, words = _column(comparison, column)
    rows = [row for row in _timed(comparison, chosen) if row.elements == comparison.sizes[-1]]
    if not rows:
        raise ValueError("nothing was timed at the largest size")
    drawn = _axes(ax, max(BAR_INCHES * len(rows) + 1.7, LEAST_INCHES))
    rates = [row.bytes / getattr(row, chosen).median for row in rows]
    roofs = (
        (comparison.ceiling, comparison.peak)
        if chosen == "on_device" or comparison.peak is None
        else (None, None)
    )
    labels = [comparison.label(row) for row in rows]
    spreads = [getattr(row, chosen).quartiles for row in rows]
    ends = [
        (row.bytes / high, row.bytes / low) for row, (low, high) in zip(rows, spreads, strict=True)
    ]
    draw_bars(drawn, labels, rates, [row.is_kernel for row in rows], *roofs, quartiles=ends)
    size = f"{rows[0].elements:,} {comparison.dtype}"
    if len(comparison.dtypes) == 1:
        size += f", {show_bytes(rows[0].bytes)}"
    _plain(
        drawn,
        f"{comparison.op} of {size}",
        f"{words}, {comparison.cache} cache; {comparison.device_name}",
    )
    return drawn


def _plot_sizes(comparison: ComparisonRecord, column: str | None, ax: Axes | Figure | None) -> Axes:
    chosen, words = _column(comparison, column)
    rows = _timed(comparison, chosen)
    drawn = _axes(ax, 6.0)
    several = len(comparison.dtypes) > 1

    def named(row: Contender) -> str:
        return f"{row.name}, {row.dtype}" if several else row.name

    labels = list(dict.fromkeys((named(row), row.is_kernel) for row in rows))
    # Libraries, and the kernels that are fastest at the largest size, have a colour; other lines
    # are pale.
    last = {
        named(row): row.bytes / getattr(row, chosen).median
        for row in rows
        if row.elements == rows[-1].elements
    }
    ranked = sorted(
        (name for name, is_kernel in labels if is_kernel), key=lambda name: -last.get(name, 0.0)
    )
    libraries = [name for name, is_kernel in labels if not is_kernel]
    coloured = [*ranked[: max(len(_LINES) - len(libraries), 1)], *libraries]
    handles = []
    for name, is_kernel in labels:
        points: dict[int, float] = {}
        for row in rows:
            if named(row) == name:
                rate = row.bytes / getattr(row, chosen).median / GIGA
                points[row.bytes] = max(points.get(row.bytes, 0.0), rate)
        order = sorted(points)
        values = [points[size] for size in order]
        if name not in coloured:
            drawn.plot(order, values, color=PALE, linewidth=1, zorder=1)
            continue
        i = coloured.index(name) % len(_LINES)
        style = "-" if is_kernel else (0, (6, 2))
        line = drawn.plot(
            order,
            values,
            color=_LINES[i],
            marker=_MARKERS[i],
            markersize=6,
            linewidth=2,
            linestyle=style,
            label=name,
        )
        handles.append(line[0])
    if len(coloured) < len(labels):
        handles += drawn.plot([], [], color=PALE, linewidth=1, label="other kernels")
    if chosen == "on_device" or comparison.peak is None:
        for value, colour, style_, text in _roofs(comparison.ceiling, comparison.peak):
            handles.append(
                drawn.axhline(
                    value / GIGA, color=colour, linestyle=style_, linewidth=1.6, label=text
                )
            )
    drawn.set_xscale("log", base=2)
    drawn.set_yscale("log")
    from matplotlib.ticker import FuncFormatter

    drawn.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show_bytes(value)))
    _plain_numbers(drawn.yaxis)
    drawn.set_xlabel("size of the array (logarithmic)", fontsize=TEXT_SIZE, color=INK)
    drawn.set_ylabel("bandwidth, GB/s (logarithmic)", fontsize=TEXT_SIZE, color=INK)
    drawn.grid(True, which="major", color="#E5E5E5", linewidth=0.8)
    drawn.legend(
        handles=handles,
        fontsize=LEGEND_SIZE,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
    )
    _plain(
        drawn,
        f"{comparison.op} of {comparison.dtype} over size",
        f"{words}, {comparison.cache} cache; {comparison.device_name}",
    )
    return drawn


def _plot_roofline(
    comparison: ComparisonRecord, column: str | None, ax: Axes | Figure | None
) -> Axes:
    chosen, words = _column(comparison, column)
    rows = [row for row in _timed(comparison, chosen) if row.elements == comparison.sizes[-1]]
    if not rows:
        raise ValueError("nothing was timed at the largest size")
    inches = max(6.5, LABEL_INCHES * len(rows) * 1.4)
    drawn = _axes(ax, inches)
    intensities = [row.elements / row.bytes for row in rows]
    span = (min(intensities) / 8, max(intensities) * 8)
    handles: list[Any] = []
    for value, colour, style, text in _roofs(comparison.ceiling, comparison.peak):
        line = drawn.plot(
            span,
            [each * value / GIGA for each in span],
            color=colour,
            linestyle=style,
            linewidth=2,
            label=text,
        )
        handles.append(line[0])
    speeds = sorted(
        ((row.elements / getattr(row, chosen).median / GIGA, row) for row in rows),
        key=lambda pair: pair[0],
    )
    seen: set[bool] = set()
    drawn.set_yscale("log")
    heights = [
        line[0] * max(intensities) / GIGA for line in _roofs(comparison.ceiling, comparison.peak)
    ]
    low, high = speeds[0][0] / 3, max(*heights, speeds[-1][0]) * 8
    drawn.set_ylim(low, high)
    places = spread_out(
        [math.log(speed / low) / math.log(high / low) for speed, _ in speeds], LABEL_INCHES / inches
    )
    for (speed, row), place in zip(speeds, places, strict=True):
        colour, marker = (KERNEL, "o") if row.is_kernel else (LIBRARY, "s")
        words_there = (
            None if row.is_kernel in seen else ("gpureduce" if row.is_kernel else "library")
        )
        seen.add(row.is_kernel)
        intensity = row.elements / row.bytes
        dots = drawn.plot(
            [intensity], [speed], marker, color=colour, markersize=8, label=words_there, zorder=3
        )
        handles += dots if words_there else []
        rate = show_bandwidth(row.bytes * speed * GIGA / row.elements)
        drawn.annotate(
            f"{comparison.label(row)}  {rate} GB/s",
            (intensity, speed),
            (max(intensities) * 1.6, low * (high / low) ** place),
            fontsize=TEXT_SIZE - 2,
            color=INK,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": PALE,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 0,
            },
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
    drawn.set_xscale("log", base=2)
    drawn.set_xlim(*span)
    from matplotlib.ticker import FuncFormatter

    drawn.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    _plain_numbers(drawn.yaxis)
    drawn.set_xlabel("intensity, operations per byte (logarithmic)", fontsize=TEXT_SIZE, color=INK)
    drawn.set_ylabel(
        "speed, 10⁹ operations per second (logarithmic)", fontsize=TEXT_SIZE, color=INK
    )
    drawn.grid(True, which="major", color="#E5E5E5", linewidth=0.8)
    drawn.legend(handles=handles, fontsize=LEGEND_SIZE, frameon=False, loc="upper left")
    _plain(
        drawn,
        f"{comparison.op} of {rows[0].elements:,} {comparison.dtype} under the memory's roof",
        f"one operation per element; {words}, {comparison.cache} cache; {comparison.device_name}",
    )
    return drawn


def spread_out(places: Sequence[float], apart: float) -> list[float]:
    """Move rising places between 0 and 1 just enough to keep a distance between neighbours.

    Without room for that distance, they are spread evenly.
    """
    apart = min(apart, 1 / max(len(places), 1))
    moved = list(places)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + apart)
    limit = 1 - apart / 2
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], limit)
        limit = moved[i] - apart
    return moved


KINDS = {"bars": _plot_bars, "sizes": _plot_sizes, "roofline": _plot_roofline}


def check_kind(kind: str) -> None:
    """Raise a ``ValueError`` for an unknown kind of chart."""
    if kind not in KINDS:
        if os.path.splitext(kind)[1]:
            expect_axes(kind)
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, not {kind!r}")


def plot_comparison(
    comparison: ComparisonRecord, kind: str, column: str | None, ax: Axes | Figure | None
) -> Axes:
    """Draw a comparison, as :meth:`Comparison.plot` describes.

    Parameters
    ----------
    comparison : ComparisonRecordRecord
    kind : str
    column : str or None
    ax : Axes or Figure or None

    Returns
    -------
    Axes
    """
    check_kind(kind)
    return KINDS[kind](comparison, column, ax)


def plot_stages(
    title: str, stages: Mapping[str, float], whole: Spread, ax: Axes | Figure | None
) -> Axes:
    """Draw the stages of a call as bars, the whole call below them.

    Parameters
    ----------
    title : str
    stages : mapping
        Seconds of each, in the order of the bars.
    whole : Spread
        Of the whole call.
    ax : Axes or Figure or None

    Returns
    -------
    Axes
    """
    bars = [(name, spent, _STAGE_COLOURS[name]) for name, spent in stages.items()]
    bars.append(("whole call", whole.median, INK))
    drawn = _axes(ax, 0.62 * len(bars) + 1.5)
    for i, (name, spent, colour) in enumerate(bars):
        drawn.barh(i, spent * 1e3, height=0.66, color=colour)
        end = spent * 1e3
        if name == "whole call":
            low, high = (1e3 * each for each in whole.quartiles)
            drawn.plot([low, high], [i, i], color=PALE, linewidth=4, solid_capstyle="butt")
            end = high
        drawn.text(
            end, i, f"  {show_time(spent)}", va="center", ha="left", fontsize=TEXT_SIZE, color=INK
        )
    drawn.set_yticks(range(len(bars)), [name for name, *_ in bars])
    drawn.set_ylim(len(bars) - 0.4, -0.6)
    drawn.set_xlim(0, 1e3 * max(whole.quartiles[1], *(spent for _, spent, _ in bars)) * 1.18)
    drawn.set_xlabel(
        "time, ms (median; the pale line joins the quartiles)", fontsize=TEXT_SIZE, color=INK
    )
    drawn.tick_params(axis="y", length=0)
    overlap = (
        "stages are timed by themselves; packing, copying and kernels overlap in a call of several "
        "chunks"
    )
    _plain(drawn, title, overlap if stages else "there are no stages but the work itself")
    return drawn
