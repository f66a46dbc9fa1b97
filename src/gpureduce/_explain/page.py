"""Explanations as HTML: pictures as SVG, tables, annotated sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .._display.figures import INK
from .._display.html_page import STYLE, table, whole_page
from .figure_tables import (
    caption,
    column_table,
    comparison_table,
    names_of,
    shorten,
    shuffle_note,
    stages_note,
    totals_table,
)
from .launches import WARP_LANES, KernelRun
from .picture_parts import (
    BARRIER,
    BOUNDARY,
    CONFLICT_EDGE,
    HATCHED,
    STEP,
    STEP_COLOUR,
    WaysLabel,
    drawn_strips,
    facts,
    legend,
    row_names,
    row_texts,
    warp_names,
    ways_label,
    words,
)
from .timeline import CONFLICT, DIVERGED, GONE, KINDS, WAITING, with_heights

__all__ = ["fragment", "page"]

COLUMN_WIDTH, HEIGHT, LEFT, RIGHT, TOP, ROW = 42, 256, 84, 14, 4, 15
"""Sizes of the picture, in pixels; it is higher where a thread needs more. The last word under it
may end in the right margin."""
HATCH_DISTANCE = 12
"""Pixels from a line of the hatching of bank conflicts to the next, along the edges."""
LEAST_OF_THREAD = 3
"""Pixels of a thread: stripes of one pixel would look like one grey."""


def fragment(explanations: Sequence[KernelRun]) -> str:
    """One element with pictures, tables and sources.

    Parameters
    ----------
    explanations : sequence of KernelRun

    Returns
    -------
    str
    """
    pictures = "".join(map(_picture, explanations, names_of(explanations)))
    parts = [
        _legend(explanations),  # above pictures that may be higher than a screen
        f'<div class="gpr-side">{pictures}</div>',
    ]
    if len(explanations) > 1:
        parts.append(table(*comparison_table(explanations), left=1))
        stages = f"launches: {stages_note(explanations)}"
        notes = (stages, caption(explanations))
        parts.append(f"<p>{'<br>'.join(map(escape, notes))}</p>")
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
    return whole_page(", ".join(names_of(several)), fragment(several))


# ---------------------------------------------------------------- tables and source


def _details(explanation: KernelRun, is_open: bool) -> str:
    headings, rows = column_table(explanation.main, explanation.file)
    number = explanation.launches.index(explanation.main) + 1
    attribute = " open" if is_open else ""
    note = shuffle_note(explanation.main)
    return (
        f"<details{attribute}><summary>{escape(explanation.title)}</summary>"
        f"<h4>Launch {number}, step by step</h4>{table(headings, shorten(rows), left=2)}"
        f"{f'<p>{escape(note)}</p>' if note else ''}"
        f"<h4>Launches</h4>{table(*totals_table(explanation), left=2)}"
        f"<p>{escape(stages_note([explanation]))}</p>"
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
_KEYS = {
    DIVERGED: "background:rgba(136,136,136,.6)",
    WAITING: "background:rgba(136,136,136,.16)",
    GONE: "box-shadow:inset 0 0 0 1px rgba(136,136,136,.6)",
    CONFLICT: f"background:repeating-linear-gradient(135deg,{KINDS[CONFLICT].colour} 0 3px,"
    f"{CONFLICT_EDGE} 3px 4px)",
    HATCHED: f"background:repeating-linear-gradient(135deg,transparent 0 3px,"
    f"{CONFLICT_EDGE} 3px 4px);box-shadow:inset 0 0 0 1px {CONFLICT_EDGE}",
    STEP: f"background:linear-gradient(90deg,{STEP_COLOUR} 44%,transparent 44% 56%,"
    f"{STEP_COLOUR} 56%)",
    BARRIER: "height:0;vertical-align:middle;border-top:1.5px solid currentColor",
    BOUNDARY: "height:0;vertical-align:middle;border-top:1px dashed currentColor",
}
"""Styles of legend entries that are no plain colour; grey that shows on light and on dark."""
_LINES = {
    BARRIER: 'stroke="currentColor" stroke-width="1.5"',
    BOUNDARY: 'stroke="currentColor" stroke-width=".6" stroke-dasharray="4 3"',
}


def _fill(kind: int) -> str:
    return _FILLS.get(kind, f'fill="{KINDS[kind].colour}"')


def _legend(explanations: Sequence[KernelRun]) -> str:
    keys = []
    for entry in legend(explanations):
        style = _KEYS.get(entry.kind) or f"background:{KINDS[entry.kind].colour}"
        keys.append(f'<span class="gpr-key"><i style="{style}"></i>{escape(entry.words)}</span>')
    return f"<p>{''.join(keys)}</p>"


def _text(x: float, y: float, words: str, attributes: str = 'text-anchor="middle"') -> str:
    return f'<text x="{x:g}" y="{y:g}" {attributes}>{escape(words)}</text>'


def _picture(explanation: KernelRun, heading: str) -> str:
    launch = explanation.main
    threads = launch.map.threads
    columns = drawn_strips(explanation)
    high = max(HEIGHT, LEAST_OF_THREAD * threads)
    width, scale = COLUMN_WIDTH * len(columns), high / threads
    paths: dict[int, list[str]] = {}
    hatching, lines, texts, ways = [], [], [], []
    for x, strip in enumerate(columns):
        left = LEFT + COLUMN_WIDTH * x
        for run, height in with_heights(strip.runs, threads):
            top, tall = TOP + scale * run.first, scale * height
            paths.setdefault(run.kind, []).append(
                f"M{left + 1:g} {top:.2f}h{COLUMN_WIDTH - 2}v{tall:.2f}h{2 - COLUMN_WIDTH}z"
            )
            if run.ways > 1:
                hatching.append(_hatching(left + 1, top, COLUMN_WIDTH - 2, tall))
        label = ways_label(strip, threads)
        if label is not None:
            ways.append(_ways(label, left + COLUMN_WIDTH / 2, TOP + scale * label.at))
        if strip.ends == "barrier":
            lines.append(f'<path d="M{left + COLUMN_WIDTH} {TOP}v{high}" {_LINES[BARRIER]}/>')
        for row, word in enumerate(row_texts(strip), 1):
            texts.append(_text(left + COLUMN_WIDTH / 2, TOP + high + ROW * (row + 1), word))
    for x, word in words(columns).items():
        left = LEFT + COLUMN_WIDTH * x + 2
        texts.append(_text(left, TOP + high + ROW, word, 'text-anchor="start"'))
    for row, name in enumerate(row_names(columns), 1):
        texts.append(
            _text(LEFT - 6, TOP + high + ROW * row, name, 'text-anchor="end" opacity=".75"')
        )
    lines += [
        f'<path d="M{LEFT} {TOP + scale * thread:g}h{width}" {_LINES[BOUNDARY]}/>'
        for thread in range(WARP_LANES, threads, WARP_LANES)
    ]
    texts += [
        _text(LEFT - 6, TOP + scale * at + 4, name, 'text-anchor="end"')
        for at, name in warp_names(threads)
    ]
    cells = [
        f'<path {_fill(kind)} d="{"".join(paths[kind])}"/>'
        for kind in sorted(paths)
        if kind != GONE
    ]
    if hatching:
        cells.append(f'<path stroke="{CONFLICT_EDGE}" d="{"".join(hatching)}"/>')
    wide, tall = LEFT + width + RIGHT, TOP + high + ROW * len(row_names(columns)) + TOP
    size = f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}"'
    aria = f'role="img" aria-label="{escape(explanation.title)}"'
    under = "<br>".join(map(escape, facts(explanation)))
    return (
        f'<div class="gpr-scroll"><h4>{escape(heading)}</h4><p>{under}</p>'
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {aria}>'
        f"{''.join(cells)}{''.join(lines)}"
        '<g fill="currentColor" font-family="sans-serif" font-size="11">'
        f"{''.join(texts)}</g>{''.join(ways)}</svg></div>"
    )


def _hatching(left: float, top: float, width: float, height: float) -> str:
    """Parallel lines across a rectangle, from the lower left to the upper right."""
    found = []
    distance = HATCH_DISTANCE / 2
    while distance < width + height:  # a line's points have x + y = distance
        x, y = max(0.0, distance - height), min(distance, height)
        step = min(width - x, y)
        found.append(f"M{left + x:.1f} {top + y:.1f}l{step:.1f} {-step:.1f}")
        distance += HATCH_DISTANCE
    return "".join(found)


def _ways(label: WaysLabel, x: float, y: float) -> str:
    """Text in a white box, on any theme."""
    wide, tall = COLUMN_WIDTH - 4, 14
    top = y - tall / 2 if label.is_inside else y + 2
    box = f'x="{x - wide / 2:g}" y="{top:.1f}" width="{wide}" height="{tall}" rx="2"'
    return (
        f'<rect {box} fill="white" stroke="{KINDS[CONFLICT].colour}"/>'
        f'<text x="{x:g}" y="{top + tall - 3.5:.1f}" text-anchor="middle" fill="{INK}" '
        f'font-family="sans-serif" font-size="10">{label.text}</text>'
    )
