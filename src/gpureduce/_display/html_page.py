"""HTML of measurements and explanations: an element for notebooks, a page for files, without
scripts or requests.

Text has the theme's colour; lines are half-transparent, which is legible on light and on dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .tables import html as table

__all__ = ["STYLE", "element", "table", "whole_page"]


STYLE = """
.gpr-explain{font-size:13px;line-height:1.4}
.gpr-explain h4{margin:1em 0 .3em;font-size:1.1em}
.gpr-explain p{margin:.2em 0}
.gpr-explain .gpr-side{display:flex;flex-wrap:wrap;gap:0 2em}
.gpr-explain .gpr-scroll{overflow-x:auto}
.gpr-explain table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums;\
background:none;color:inherit}
.gpr-explain th,.gpr-explain td{padding:2px 8px;text-align:right;border:0;\
border-bottom:1px solid rgba(127,127,127,.35);background:none;color:inherit;white-space:nowrap}
.gpr-explain th{vertical-align:bottom;white-space:normal}
.gpr-explain .gpr-text{text-align:left}
.gpr-explain table.gpr-source td{border:0;padding:0 8px;\
font-family:ui-monospace,monospace;font-size:12px}
.gpr-explain table.gpr-source td.gpr-code{white-space:pre;text-align:left;\
border-left:2px solid rgba(127,127,127,.5)}
.gpr-explain tr.gpr-busy td{background:rgba(86,180,233,.18)}
.gpr-explain tr.gpr-conflict td{background:rgba(230,159,0,.28)}
.gpr-explain .gpr-key{display:inline-block;margin-right:1.2em}
.gpr-explain .gpr-key i{display:inline-block;width:1.3em;height:.8em;margin-right:.4em}
.gpr-explain summary{cursor:pointer}
.gpr-explain .gpr-warning{border-left:3px solid #d55e00;padding-left:8px}
"""


def whole_page(title: str, body: str) -> str:
    """A page around an element, for light and dark themes.

    Parameters
    ----------
    title : str
    body : str
        HTML.

    Returns
    -------
    str
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>"
        "<style>body{font-family:system-ui,sans-serif;margin:2em}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def element(
    title: str, tables: Iterable[str], notes: Iterable[str], warnings: Iterable[str]
) -> str:
    """One element of a title, tables, notes and warnings.

    Parameters
    ----------
    title : str
    tables : iterable of str
        HTML.
    notes, warnings : iterable of str
        Text.

    Returns
    -------
    str
    """
    parts = [f"<h4>{escape(title)}</h4>", *tables, *(f"<p>{escape(note)}</p>" for note in notes)]
    parts += [f'<p class="gpr-warning">warning: {escape(each)}</p>' for each in warnings]
    return f'<div class="gpr-explain"><style>{STYLE}</style>{"".join(parts)}</div>'
