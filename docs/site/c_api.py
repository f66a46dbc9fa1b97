"""The C API's reference, made from the comments of gpureduce.h.

The header is one page: its sections become the page's, and each comment goes to what it is about,
which is the declaration that follows it or stands on its line. A declaration that this does not
understand is an error, as the page would lack it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(r"/\*.*?\*/|[^;{}/]+|[;{}/]", re.DOTALL)
_SECTION = re.compile(r"^-{8,} (.*?) -{2,}$")
_SPACES = re.compile(r"\s+")
_WORD = re.compile(r"`[^`]+`|\b(?:gpr_\w+|GPR_\w+)(?:\(\))?(?:\.\w+)?\*?")
_SPECIAL = re.compile(r"([\\*`|_])")
_FUNCTION = re.compile(r"GPR_API (.*?(\w+)\((?:[^()]|\([^()]*\))*\))")
_MEMBER = re.compile(r".*?(?:\(\*(\w+)\)\(.*\)|\b(\w+)(?:\[\w+\])?)")

_UNLISTED = "   :no-contents-entry:"


@dataclass
class Member:
    """A structure's field, or several that are declared together; or an enumerator."""

    text: str
    comment: str = ""

    @property
    def lines(self) -> list[str]:
        if "(" in self.text or "," not in self.text:
            return [self.text]
        first, *others = self.text.split(", ")
        return [first, *(f"{first.rpartition(' ')[0]} {other}" for other in others)]


@dataclass
class Declaration:
    """What one declaration says: ``kind`` is function, struct, enum or type."""

    kind: str
    name: str
    text: str
    comment: str = ""
    members: list[Member] = field(default_factory=list)
    after: str = ""  # what is said below the members, of all


@dataclass
class Section:
    """A part of the header: title, declarations in order, and comments that are about none."""

    title: str
    parts: list[str | Declaration] = field(default_factory=list)


def _words(comment: str) -> str:
    lines = comment.removeprefix("/*").removesuffix("*/").splitlines()
    stripped = [re.sub(r"^\s*\* ?", "", line) for line in lines]
    return "\n".join(line.rstrip() for line in stripped).strip()


def _code(header: str) -> str:
    """The header without what only the preprocessor sees."""
    kept, in_cplusplus = [], False
    for line in header.splitlines():
        if line.startswith("#ifdef __cplusplus"):
            in_cplusplus = True
        elif line.startswith("#endif"):
            in_cplusplus = False
        elif not in_cplusplus and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def _pieces(code: str) -> Iterator[tuple[str, bool]]:
    """Comments and code in turns; whether a comment begins on a line of its own."""
    for found in _TOKEN.finditer(code):
        before = code[code.rfind("\n", 0, found.start()) + 1 : found.start()]
        yield found[0], not before.strip()


def parse(header: str) -> tuple[str, list[Section]]:
    """The comment that the header begins with, and its sections.

    Raises
    ------
    ValueError
        A declaration is of no kind that this knows.
    """
    opening, sections = "", [Section("")]
    comment, text, depth, body = "", "", 0, []
    last: Declaration | None = None
    for piece, starts_line in _pieces(_code(header)):
        is_comment = piece.startswith("/*")
        if depth:
            body.append((piece, starts_line))
            depth += (piece == "{") - (piece == "}")
            if not depth:
                body.pop()
        elif is_comment:
            words = _words(piece)
            if title := _SECTION.match(words):
                if comment:
                    sections[-1].parts.append(comment)
                sections.append(Section(title[1]))
                comment = ""
            elif not opening:
                opening = words
            elif starts_line:
                if comment:
                    sections[-1].parts.append(comment)
                comment = words
            elif last is not None:
                last.comment = f"{last.comment} {words}".strip()
        elif piece == "{":
            depth, body = 1, []
        elif piece == ";":
            last = _declaration(_SPACES.sub(" ", text).strip(), body)
            last.comment, comment = comment, ""
            sections[-1].parts.append(last)
            text, body = "", []
        else:
            text += piece
            if (
                "\n\n" in piece and not text.strip() and comment
            ):  # a blank line: it is about what follows in general
                sections[-1].parts.append(comment)
                comment = ""
    if text.strip() or depth:
        raise ValueError(f"gpureduce.h: what does not end: {text.strip()!r}")
    return opening, sections[1:]


def _declaration(text: str, body: list[tuple[str, bool]]) -> Declaration:
    function = _FUNCTION.fullmatch(text)
    if function:
        return Declaration("function", function[2], function[1])
    if found := re.fullmatch(r"(?:typedef )?(struct|enum) ?(\w*) ?(\w*)", text):
        kind, tag, name = found.groups()
        if tag and name and not body:
            return Declaration("struct", name, name)
        members, about_all = _members(body, "," if kind == "enum" else ";")
        return Declaration(kind, tag, tag, "", members, about_all)
    raise ValueError(f"gpureduce.h: what is {text!r}?")


def _members(body: list[tuple[str, bool]], end: str) -> tuple[list[Member], str]:
    """Members, each with the comments above it and on its line; and the last ones, about all."""
    members: list[Member] = []
    text = ""
    above: list[str] = []  # comments on lines of their own, since the last member

    def add_member() -> None:
        nonlocal text
        if text.strip():
            members.append(Member(_SPACES.sub(" ", text).strip(), " ".join(above)))
            above.clear()
        text = ""

    for piece, starts_line in body:
        if not piece.startswith("/*"):
            *ended, rest = piece.split(end)
            for part in ended:
                text += part
                add_member()
            text += rest
        elif starts_line:
            above.append(_words(piece))
        else:
            add_member()  # the last enumerator has no comma
            members[-1].comment = f"{members[-1].comment} {_words(piece)}".strip()
    add_member()
    return members, "\n\n".join(above)


def _roles(sections: list[Section]) -> dict[str, str]:
    """How a name is referred to."""
    roles = {}
    for section in sections:
        for part in section.parts:
            if isinstance(part, Declaration):
                roles[part.name] = {"function": "c:func", "struct": "c:struct", "enum": "c:enum"}[
                    part.kind
                ]
                if part.kind == "enum":
                    roles |= {member.text.split(" ")[0]: "c:enumerator" for member in part.members}
                else:
                    fields = (_name(line) for member in part.members for line in member.lines)
                    roles |= {f"{part.name}.{name}": "c:member" for name in fields}
    return roles


def _name(member: str) -> str:
    found = _MEMBER.fullmatch(member)
    if not found:
        raise ValueError(f"gpureduce.h: what member is {member!r}?")
    return found[1] or found[2]


def _rst(words: str, roles: dict[str, str], own: str = "") -> str:
    """A comment as reStructuredText: names that the header declares become links."""
    parts, end = [], 0
    for found in _WORD.finditer(words):
        name = found[0].removesuffix("()")
        if name.startswith("`"):
            linked = f"`{name}`"
        elif name.endswith("*"):
            linked = f"``{name}``"
        elif name in roles and name != own:
            # With arguments: the role would add its own parentheses.
            called = words.startswith("(", found.end())
            linked = f":{roles[name]}:`{name} <{name}>`" if called else f":{roles[name]}:`{name}`"
        elif "." in name and name.rpartition(".")[0] in roles:
            owner, _, rest = name.rpartition(".")
            linked = f":{roles[owner]}:`{owner}`.{rest}"
        else:
            linked = f"``{name}``"
        parts += [_SPECIAL.sub(r"\\\1", words[end : found.start()]), linked]
        end = found.end()
        if words[end : end + 1].isalnum() or words.startswith("(", end):
            parts.append("\\ ")
    return "".join([*parts, _SPECIAL.sub(r"\\\1", words[end:])])


def _indented(text: str, by: str = "   ") -> str:
    return "\n".join(f"{by}{line}" if line.strip() else "" for line in text.splitlines())


def page(header: str) -> str:
    """The reference, as reStructuredText."""
    opening, sections = parse(header)
    roles = _roles(sections)
    title = "gpureduce.h"
    lines = [title, "=" * len(title), "", _preface(opening, roles), ""]
    anonymous = 0
    for section in sections:
        heading = re.sub(r"^\d\. ", "", section.title)
        heading = heading[:1].upper() + heading[1:]
        lines += [heading, "-" * len(heading), ""]
        for part in section.parts:
            if isinstance(part, str):
                lines += [_rst(part, roles), ""]
                continue
            shown = part.text
            if not shown:
                anonymous += 1
                shown = f"@constants{anonymous}"
            lines += [f".. c:{part.kind}:: {shown}", *([] if part.text else [_UNLISTED]), ""]
            if part.comment:
                lines += [_indented(_rst(part.comment, roles, part.name)), ""]
            for member in part.members:
                kind = "enumerator" if part.kind == "enum" else "member"
                head = f"   .. c:{kind}:: "
                lines += [head + f"\n{' ' * len(head)}".join(member.lines), f"   {_UNLISTED}", ""]
                if member.comment:
                    lines += [_indented(_rst(member.comment, roles), "      "), ""]
            if part.after:
                lines += [_indented(_rst(part.after, roles)), ""]
    return "\n".join(lines)


def _preface(opening: str, roles: dict[str, str]) -> str:
    """The header's own comment: its numbered list becomes one."""
    parts = []
    for paragraph in opening.split("\n\n"):
        head, *items = re.split(r"\n\s+(?=\d\. )", paragraph)
        parts.append(_rst(head, roles))
        parts += ["\n".join(_rst(item, roles) for item in items)] if items else []
    return "\n\n".join(parts)
