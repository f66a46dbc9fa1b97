"""Tables as text, Markdown and HTML, and numbers with units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = [
    "html",
    "lay_out",
    "markdown",
    "show_bandwidth",
    "show_bytes",
    "show_count",
    "show_ratio",
    "show_time",
]

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


LEAST_FIXED_RATIO = 0.1

# ---------------------------------------------------------------- tables


def lay_out(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """Make a table for a terminal.

    The first `left` columns are flush left; headings wrap at spaces.
    """
    wrapped = [heading.split(" ") for heading in headings]
    for i in range(left):
        wrapped[i] = [headings[i]]
    height = max(map(len, wrapped))
    cells = [[""] * (height - len(words)) + words for words in wrapped]
    lines = [[column[i] for column in cells] for i in range(height)]
    widths = [max(len(line[i]) for line in [*lines, *rows]) for i in range(len(headings))]

    def one(line: Sequence[str]) -> str:
        parts = [
            cell.ljust(w) if i < left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([*(one(line) for line in lines), rule, *(one(row) for row in rows)])


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
