"""What Markdown pages are made of, for the site and tests: links, anchors, code, sections.

The pages are read on GitHub too, so anchors are what GitHub makes of headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)$")
_HEADING = re.compile(r"^(#{1,6}) +(.*?) *$")
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)*\1")
_NOTE = re.compile(r"^<!-- example: *(.*?) *(-->)?$")


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    ``notes`` are the comments ``<!-- example: ... -->`` right above it. They may have several
    lines.
    """

    language: str
    text: str
    line: int
    notes: tuple[str, ...]


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Number and text of each line, and whether it is code (fences included)."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if fence:
            yield number, line, True
            if found and found[2].startswith(fence) and not found[3].strip():
                fence = ""
        else:
            fence = found[2] if found else ""
            yield number, line, bool(found)


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of each link and image."""
    for number, line, is_code in _lines(text):
        if not is_code:
            for found in _LINK.finditer(_CODE.sub("code", line)):
                yield number, found[1]


def anchors(text: str) -> set[str]:
    """Anchors that GitHub gives the headings."""
    seen: dict[str, int] = {}
    found = set()
    for _, line, is_code in _lines(text):
        heading = None if is_code else _HEADING.match(line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2])
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            again = seen.get(slug, 0)
            seen[slug] = again + 1
            found.add(f"{slug}-{again}" if again else slug)
    return found


def blocks(text: str) -> Iterator[Block]:
    """Fenced blocks of code, in order."""
    notes: list[str] = []
    block: list[str] | None = None
    note: list[str] | None = None
    language, first, fence, indent = "", 0, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if block is not None:
            if found and found[2].startswith(fence) and not found[3].strip():
                yield Block(
                    language, "".join(f"{each[indent:]}\n" for each in block), first, tuple(notes)
                )
                block, notes = None, []
            else:
                block.append(line)
        elif note is not None:
            if line.endswith("-->"):
                notes.append("\n".join([*note, line.removesuffix("-->").rstrip()]))
                note = None
            else:
                note.append(line)
        elif found:
            block, language, first = [], found[3].strip(), number
            indent, fence = len(found[1]), found[2]
        elif comment := _NOTE.match(line):
            if comment[2]:
                notes.append(comment[1])
            else:
                note = [comment[1]]
        elif line.strip():
            notes = []
    if block is not None or note is not None:
        raise ValueError(f"line {first}: a block of code or a comment has no end")


def sections(text: str) -> dict[str, str]:
    """A page's parts below headings of level two, by anchor, each heading one level up."""
    parts: dict[str, list[str]] = {}
    part: list[str] | None = None
    for _, line, is_code in _lines(text):
        heading = None if is_code else _HEADING.match(line)
        if heading and heading[1] == "##":
            part = parts.setdefault(next(iter(anchors(line))), [])
        if part is not None:
            part.append(line[1:] if heading else line)
    return {name: "\n".join(lines).strip() + "\n" for name, lines in parts.items()}


def introduction(text: str) -> str:
    """What stands between a page's title and its first section."""
    lines = []
    for _, line, is_code in _lines(text):
        heading = None if is_code else _HEADING.match(line)
        if heading and heading[1] == "##":
            break
        if not heading:
            lines.append(line)
    return "\n".join(lines).strip() + "\n"
