"""The kernels' text as tokens and definitions: enough of C++ to find places in it by shape.

No parser: kernels are laid out so that a binary ``<`` has a space before it and a template's has
none, and directives are left aside, so both branches of an ``#if`` are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
      | (?P<token>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'
        |[A-Za-z_]\w*|\.?\d(?:[\w.]|[eEpP][+-])*
        |<<=|>>=|\.\.\.|->|::|\+\+|--|<<|[-+*/%&|^=!<>]=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return self.text


@dataclass
class Definition:
    """A function, type, variable or alias at namespace or class scope."""

    name: str
    file: str
    tokens: list[Token]
    body: int
    """Index of the token after a function's opening brace; 0 if this is no function with a body."""
    is_kernel: bool
    owner: str
    """Name of the type that it is a member of; empty at namespace scope."""
    words: set[str] = field(default_factory=set)

    @property
    def span(self) -> tuple[int, int]:
        return self.tokens[0].start, self.tokens[-1].end


def tokens_of(text: str) -> list[Token]:
    return [
        Token(m["token"], m.start(), m.end())
        for m in TOKEN.finditer(text)
        if m["token"] is not None
    ]


def closing(tokens: list[Token], at: int) -> int:
    """Index of the bracket that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].text in PAIRS:
            depth += 1
        elif tokens[i].text in ")]}":
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"{tokens[at]} at {tokens[at].start} is never closed")


def after_angles(tokens: list[Token], at: int) -> int:
    """Index behind the ``>`` of a template's parameters, which begin at the ``<`` at ``at``."""
    depth = 0
    i = at
    while True:
        text = tokens[i].text
        if text in "([{":
            i = closing(tokens, i)
        elif text == "<":
            depth += 1
        elif text in (">", ">>"):
            depth -= len(text)
            if depth <= 0:
                return i + 1
        i += 1


def _after_templates(head: list[Token]) -> int:
    """Index of a declaration's first token behind its templates' parameters."""
    i = 0
    while i < len(head) and head[i].text == "template":
        i = after_angles(head, i + 1)
    return i


def _outside_brackets(tokens: list[Token]) -> list[str]:
    """Texts of a declaration's tokens but those in parentheses and brackets."""
    found = []
    i = 0
    while i < len(tokens):
        if tokens[i].text in "([":
            i = closing(tokens, i)
        else:
            found.append(tokens[i].text)
        i += 1
    return found


def _name(head: list[Token]) -> tuple[str, bool]:
    """What a declaration declares, by its tokens up to body, value or end; if with parameters."""
    i = _after_templates(head)
    kinds = ("struct", "class", "union", "enum", "namespace", "using")
    texts = [each.text for each in head]
    last = ""
    while i < len(head):
        text = texts[i]
        if text in kinds and "(" not in texts[i:]:
            return next(
                (each for each in texts[i + 1 :] if re.match(r"[A-Za-z_]", each)), ""
            ), False
        if text in ("__launch_bounds__", "__align__", "alignas", "decltype", "__attribute__"):
            i = closing(head, i + 1)
        elif text == "operator":
            end = texts.index("(", i + 2 if texts[i + 1] == "(" else i)
            return "operator" + "".join(texts[i + 1 : end]), True
        elif text == "(":
            return last, True
        elif text in ("=", "["):
            break
        elif re.match(r"[A-Za-z_]", text):
            last = text
        i += 1
    return last, False


def definitions_of(file: str, text: str) -> list[Definition]:
    """All of a file's definitions. A type's members are definitions of their own beside it."""
    tokens = tokens_of(text)
    found: list[Definition] = []

    def add(start: int, end: int, owner: str, body: int = 0) -> None:
        part = tokens[start:end]
        head = part[: body - 1] if body else part
        name, _ = _name(head)
        words = {each.text for each in part if re.match(r"[A-Za-z_]", each.text)}
        if name:
            found.append(Definition(name, file, part, body, "__global__" in words, owner, words))

    def scan(i: int, end: int, owner: str) -> None:
        start = i
        while i < end:
            text = tokens[i].text
            if text == "template":
                i = after_angles(tokens, i + 1)
                continue
            head = _outside_brackets(tokens[start + _after_templates(tokens[start:i]) : i])
            if text in "([" or (text == "{" and "=" in head and "operator" not in head):
                i = closing(tokens, i)
            elif text == "{":
                close = closing(tokens, i)
                name, has_parameters = _name(tokens[start:i])
                if has_parameters:
                    add(start, close + 1, owner, i - start + 1)
                elif {"namespace", "struct", "class", "union"} & set(head):
                    is_type = "namespace" not in head
                    if is_type:
                        add(start, i, owner)
                    scan(i + 1, close, name if is_type else owner)
                else:
                    add(start, close + 1, owner)
                i = close
                start = i + 1
            elif text == ";" or (text == ":" and head in (["public"], ["private"])):
                if text == ";" and head:
                    add(start, i + 1, owner)
                start = i + 1
            i += 1

    scan(0, len(tokens), "")
    return found


def includes_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """Each file, those that it includes, and those that they do."""
    named = {
        file: set(re.findall(r'#include "([^"]+)"', text)) & set(sources)
        for file, text in sources.items()
    }
    found = {file: {file} for file in sources}
    for _ in sources:
        found = {file: some.union(*(named[one] for one in some)) for file, some in found.items()}
    return found


def functions_of(sources: dict[str, str]) -> Iterator[Definition]:
    """Device functions with their bodies."""
    for file, text in sources.items():
        yield from (each for each in definitions_of(file, text) if each.body)
