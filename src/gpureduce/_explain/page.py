"""Explanations as HTML: pictures as SVG, tables, annotated sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .._display.html_page import STYLE, table, whole_page
from .figure_tables import MOST_ROWS, column_table, comparison_table, shorten, totals_table
from .launches import WARP_LANES, KernelRun
from .timeline import CONFLICT, DIVERGED, GONE, KINDS, WAITING, Run, strips, with_heights

__all__ = ["fragment", "page"]

COLUMN_WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 42, 256, 56, 4, 50
"""Sizes of the picture, in pixels; it is higher where a thread needs more."""
LEAST_OF_THREAD = 3
"""Pixels of a thread: stripes of one pixel would look like one grey."""
MOST_COLUMNS = 2 * MOST_ROWS
"""Columns of the picture; later columns of a longer launch are not drawn."""


def fragment(explanations: Sequence[KernelRun]) -> str:
    """One element with pictures, tables and sources.

    Parameters
    ----------
    explanations : sequence of KernelRun

    Returns
    -------
    str
    """
    parts = [
        f'<div class="gpr-side">{"".join(_picture(each) for each in explanations)}</div>',
        _legend(explanations),
    ]
    if len(explanations) > 1:
        parts.append(table(*comparison_table(explanations), left=1))
    parts += [_details(each, is_open=len(explanations) == 1) for each in explanations]
    return f'<div class="gpr-explain"><style>{STYLE}</style>{"".join(parts)}</div>'


def page(explanations: Iterable[KernelRun]) -> str:
    """A whole page, for light and dark themes.

    Parameters
    ----------
    explanations : iterable of KernelRun

    Returns
    -------
    str
    """
    several = list(explanations)
    return whole_page(", ".join(each.kernel for each in several), fragment(several))


# ---------------------------------------------------------------- tables and source


def _details(explanation: KernelRun, is_open: bool) -> str:
    headings, rows = column_table(explanation.main, explanation.file)
    number = explanation.launches.index(explanation.main) + 1
    attribute = " open" if is_open else ""
    return (
        f"<details{attribute}><summary>{escape(explanation.title)}</summary>"
        f"<h4>Launch {number}, step by step</h4>{table(headings, shorten(rows), left=2)}"
        f"<h4>Launches</h4>{table(*totals_table(explanation), left=2)}"
        f"<h4>{escape(explanation.file)}</h4>{_source(explanation)}</details>"
    )


def _source(explanation: KernelRun) -> str:
    counts = explanation.line_counts()
    rows = []
    for number, text in enumerate(explanation.source().splitlines(), 1):
        style, margin = "", [""] * 4
        if number in counts:
            requests, threads, conflicts, sectors = counts[number]
            style = ' class="gpr-conflict"' if conflicts else ' class="gpr-busy"'
            margin = [f"{requests:,}", f"{threads / requests:.1f}"]
            margin += [f"{conflicts:,}" if conflicts else "", f"{sectors:,}" if sectors else ""]
        cells = "".join(f"<td>{cell}</td>" for cell in (*margin, str(number)))
        rows.append(f'<tr{style}>{cells}<td class="gpr-code">{escape(text)}</td></tr>')
    words = ("requests", "lanes", "conflicts", "sectors", "line")
    head = "".join(f"<th>{word}</th>" for word in words)
    table = f"<thead><tr>{head}<th></th></tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="gpr-scroll"><table class="gpr-source">{table}</table></div>'


# ---------------------------------------------------------------- the picture


_FILLS = {WAITING: 'fill="#888" fill-opacity=".16"', DIVERGED: 'fill="#888" fill-opacity=".6"'}


def _fill(kind: int) -> str:
    return _FILLS.get(kind, f'fill="{KINDS[kind].colour}"')


def _legend(explanations: Sequence[KernelRun]) -> str:
    seen = {run.kind for each in explanations for strip in strips(each.main) for run in strip.runs}
    idle = {
        DIVERGED: "background:rgba(136,136,136,.6)",
        WAITING: "background:rgba(136,136,136,.16)",
        GONE: "box-shadow:inset 0 0 0 1px rgba(136,136,136,.6)",
    }
    order = [*sorted(seen - set(idle)), *(kind for kind in idle if kind in seen)]
    keys = [
        f'<span class="gpr-key"><i style="{idle.get(kind, f"background:{KINDS[kind].colour}")}">'
        f"</i>{escape(KINDS[kind].words)}</span>"
        for kind in order
    ]
    return f"<p>{''.join(keys)}</p>"


def _picture(explanation: KernelRun) -> str:
    launch = explanation.main
    threads = launch.map.threads
    columns = strips(launch)[:MOST_COLUMNS]
    high = max(HEIGHT, LEAST_OF_THREAD * threads)
    width, scale = COLUMN_WIDTH * len(columns), high / threads
    paths: dict[int, list[str]] = {}
    texts, lines = [], []
    for x, strip in enumerate(columns):
        left, middle = LEFT + COLUMN_WIDTH * x, LEFT + COLUMN_WIDTH * (x + 0.5)
        for run, height in with_heights(strip.runs, threads):
            paths.setdefault(run.kind, []).append(_path(run, height, left, scale))
        foot = [strip.label.split(" ")[0], str(strip.threads), str(strip.warps)]
        texts += [
            f'<text x="{middle:g}" y="{TOP + high + 14 * (row + 1)}" '
            f'text-anchor="middle">{escape(word)}</text>'
            for row, word in enumerate(foot)
        ]
        conflicts = [run for run in strip.runs if run.kind == CONFLICT and run.ways == strip.ways]
        if conflicts:
            y = TOP + scale * (conflicts[-1].last + 1) + 11
            texts.append(
                f'<text x="{middle:g}" y="{y:.1f}" text-anchor="middle" '
                f'font-weight="bold">{strip.ways}-way</text>'
            )
        if strip.ends == "barrier":
            right = left + COLUMN_WIDTH
            lines.append(
                f'<path d="M{right} {TOP}v{high}" stroke="currentColor" stroke-width="1.5"/>'
            )
    warps = threads // WARP_LANES
    for warp in range(warps):
        y = TOP + scale * WARP_LANES * warp
        if warp:
            lines.append(
                f'<path d="M{LEFT} {y:g}h{width}" stroke="currentColor" stroke-width=".6" '
                'stroke-dasharray="4 3"/>'
            )
        if warp % -(-warps // 16) == 0:
            texts.append(
                f'<text x="{LEFT - 4}" y="{y + 11:g}" text-anchor="end">warp {warp}</text>'
            )
    for row, word in enumerate(("threads", "warps"), 2):
        texts.append(
            f'<text x="{LEFT - 4}" y="{TOP + high + 14 * row}" text-anchor="end">{word}</text>'
        )
    cells = [
        f'<path {_fill(kind)} d="{"".join(paths[kind])}"/>'
        for kind in sorted(paths)
        if kind != GONE
    ]
    size = f'width="{LEFT + width + 2}" height="{TOP + high + BOTTOM}"'
    view = f'viewBox="0 0 {LEFT + width + 2} {TOP + high + BOTTOM}"'
    label = f'role="img" aria-label="{escape(explanation.title)}"'
    more = len(launch.columns) - 1 - columns[-1].column
    note = f"<p>and {more:,} more columns</p>" if more else ""
    return (
        f'<div class="gpr-scroll"><h4>{escape(explanation.kernel)}</h4>'
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {label}>'
        f"{''.join(cells)}{''.join(lines)}"
        '<g fill="currentColor" font-family="sans-serif" font-size="10">'
        f"{''.join(texts)}</g></svg>{note}</div>"
    )


def _path(run: Run, height: float, left: float, scale: float) -> str:
    start = f"M{left + 1:g} {TOP + scale * run.first:.2f}"
    return f"{start}h{COLUMN_WIDTH - 2}v{scale * height:.2f}h{2 - COLUMN_WIDTH}z"
