"""Tables as text, Markdown and HTML, and numbers with units."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from html import escape

__all__ = [
    "fold_lines",
    "html",
    "lay_out",
    "markdown",
    "show_bandwidth",
    "show_bytes",
    "show_count",
    "show_range",
    "show_ratio",
    "show_speedup",
    "show_time",
    "terminal_width",
    "time_unit",
]

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


GAP, LEAST_TEXT = 2, 20
"""Spaces between columns, and columns of a terminal that a wrapped text has at least."""
LEAST_FIXED_RATIO = 0.1
MOST_DECIMALS = 4
"""Decimals of a ratio's range."""
HEADING_COLUMNS = 14
"""Columns that a heading of several words may take before it wraps."""

# ---------------------------------------------------------------- tables


def terminal_width() -> int | None:
    """Columns of the terminal that is printed to; ``None`` in a pipe or a notebook."""
    out = sys.stdout
    return shutil.get_terminal_size().columns if out is not None and out.isatty() else None


def lay_out(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int,
    width: int | None = None,
    heading_width: int = 0,
) -> str:
    """Make a table for a terminal.

    The first `left` columns are flush left; headings of the others wrap at spaces, each word on a
    line of its own unless `heading_width` columns hold more. Columns for which a line of `width`
    has no room are continued below, beside the first column again; in a table of nothing but text,
    the last column wraps instead.
    """
    if width is not None and left == len(headings):
        rows = _wrap_last(headings, rows, width)
    heads = [
        [heading] if i < left else _fold_words(heading, heading_width)
        for i, heading in enumerate(headings)
    ]
    height = max(map(len, heads))
    columns = []
    for i, head in enumerate(heads):
        cells = [*[""] * (height - len(head)), *head, *(row[i] for row in rows)]
        wide = max(map(len, cells))
        cells.insert(height, "-" * wide)
        columns.append([cell.ljust(wide) if i < left else cell.rjust(wide) for cell in cells])
    parts = _parts([len(column[0]) for column in columns], left, width)
    return "\n\n".join(
        "\n".join("  ".join(line).rstrip() for line in zip(*part, strict=True))
        for part in ([columns[i] for i in part] for part in parts)
    )


def _fold_words(text: str, width: int) -> list[str]:
    """Lines of whole words, each as long as the width and the longest word allow."""
    longest = max(map(len, text.split()), default=1)
    return textwrap.wrap(text, max(width, longest)) if width else text.split(" ")


def fold_lines(lines: Iterable[str], width: int | None = None, indent: int = GAP) -> str:
    """Lines of words for a terminal: one that is wider continues, indented, on the next."""
    if width is None:
        return "\n".join(lines)
    return "\n".join(
        textwrap.fill(
            line,
            max(width, LEAST_TEXT),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )


def _parts(widths: Sequence[int], left: int, width: int | None) -> list[list[int]]:
    """The columns that go side by side, part by part."""
    parts, used = [[0]], widths[0]
    for i in range(1, len(widths)):
        used += GAP + widths[i]
        if width is not None and used > width and i >= left and len(parts[-1]) > 1:
            parts.append([0])
            used = widths[0] + GAP + widths[i]
        parts[-1].append(i)
    return parts


def _wrap_last(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[list[str]]:
    """Break the last column's cells into lines that fit, each a row of its own."""
    others = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings) - 1)]
    room = max(width - sum(others) - GAP * len(others), LEAST_TEXT)
    wrapped = []
    for *cells, text in rows:
        first, *more = textwrap.wrap(text, room) or [""]
        wrapped.append([*cells, first])
        wrapped += [[*[""] * len(cells), line] for line in more]
    return wrapped


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Make a Markdown table; all columns but the first `left` are flush right."""
    rule = [*["---"] * left, *["---:"] * (len(headings) - left)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, rule, *rows])


def html(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Make an HTML table.

    Cells are text and are escaped, the first `left` columns have the class ``gpr-text``.
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        text = ' class="gpr-text"'
        return "".join(
            f"<{tag}{text if i < left else ''}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{line('th', headings)}</tr></thead>"
    return f'<div class="gpr-scroll"><table>{head}<tbody>{body}</tbody></table></div>'


# ---------------------------------------------------------------- numbers


def show_count(value: float) -> str:
    """A number with at least four significant digits and separated thousands.

    Only 0 is shown as 0.
    """
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 1e-3 else f"{value:#.4g}".rstrip(".")


def show_ratio(value: float) -> str:
    """A ratio with at least two digits, so that a small one is not shown as 0."""
    if value >= LEAST_FIXED_RATIO:
        return f"{value:,.2f}"
    return f"{value:.{1 - math.floor(math.log10(value))}f}".rstrip("0") if value > 0 else "0"


def show_speedup(value: float, interval: tuple[float, float]) -> str:
    """A ratio and its interval, as ``"1.47 (1.05 to 1.89)"``; the ratio alone where both ends of
    the interval are shown as the ratio is.
    """
    decimals = _decimals(interval)
    shown = _fixed(value, decimals)
    if all(_fixed(each, decimals) == shown for each in interval):
        return show_ratio(value)
    return f"{shown} ({show_range(interval)})"


def show_range(interval: tuple[float, float]) -> str:
    """An interval of ratios, as ``"1.05 to 1.89"``."""
    low, high = (_fixed(each, _decimals(interval)) for each in interval)
    return low if low == high else f"{low} to {high}"


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _decimals(interval: tuple[float, float]) -> int:
    """Decimals that show the width of an interval, and two digits of a low end near 0."""
    low, high = interval
    decimals = 2 if high < 10 else 1 if high < 100 else 0
    wanted = [-math.floor(math.log10(high - low))] if high > low else []
    if 0 < low < LEAST_FIXED_RATIO:
        wanted.append(1 - math.floor(math.log10(low)))
    return max(decimals, min(max(wanted, default=0), MOST_DECIMALS))


def show_time(seconds: float) -> str:
    """A time in the unit of its size."""
    for size, unit in _TIMES:
        if abs(seconds) >= size:
            return f"{show_count(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{show_count(seconds / 1e-9)} ns"


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """The unit of a column of times, in seconds, and its name: the unit of the shortest time."""
    least = min(seconds, default=1.0)
    return next(((size, unit) for size, unit in _TIMES if least >= size), _TIMES[-1])


def show_bytes(count: float) -> str:
    """A size in binary units."""
    for size, unit in _BYTES:
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:,.0f} B"


def show_bandwidth(bytes_per_second: float) -> str:
    """GB/s with at least two digits, so that a slow kernel is not shown as 0."""
    value = bytes_per_second / 1e9
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
