"""The device code of a CUDA file: its text with everything for the host blanked out.

A student's file has includes, a ``main`` and launches, which neither NVRTC nor the emulator
compiles. Lines and columns stay where they are, so that messages of compilers and findings of the
emulator name lines of the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .host_headers import CUDA_HEADERS, KNOWN

__all__ = [
    "Declaration",
    "barrier_in_branch",
    "barrier_in_loop",
    "blank",
    "declarations",
    "device_text",
    "divergent_branch",
    "is_in_loop",
    "left_out",
    "line_of",
    "stores_to_one_word",
    "without_comments",
]

_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL)
_DIRECTIVE = re.compile(r"[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.DOTALL)
_NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b[^;=(]*|extern\s*)$")
_DEVICE = re.compile(r"\b__(?:global|device|constant|shared)__\b")
_HOST = re.compile(r"\bstd\s*::|\bthrust\s*::|\bcuda[A-Z]\w*|\bFILE\b|<<<|\bnamespace\s+std\b")
_TYPE = re.compile(
    r"\s*(?:template\s*<.*?>\s*)?(?:struct|class|union|enum|typedef|using|static_assert|namespace)\b",
    re.DOTALL,
)
_CONSTANT = re.compile(r"\s*(?:(?:static|inline|extern)\s+)*(?:constexpr|const)\b")
_INCLUDE = re.compile(r'\s*#\s*include\s*(?:<([^>]*)>|"([^"]*)")')


def blank(text: str) -> str:
    """Spaces in place of everything but line ends."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text: str) -> str:
    """The text with comments blanked, and what strings and characters contain."""

    def replacement(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == "/":
            return blank(found)
        return found[0] + " " * (len(found) - 2) + found[-1]

    return _SKIPPED.sub(replacement, text)


def line_of(text: str, position: int) -> int:
    """Number of the line of a position, from 1."""
    return text.count("\n", 0, position) + 1


def _closing(code: str, position: int, ends: str) -> int:
    """Where the first of `ends` is that no bracket encloses, or the text's end."""
    depth = 0
    for i in range(position, len(code)):
        if depth == 0 and code[i] in ends:
            return i
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0 and code[i] in ")]}" and code[i] in ends:
            return i
    return len(code)


_BARRIER = re.compile(r"\b__sync(?:threads|warp)\w*\s*\(|(?:\.|::)\s*sync\s*\(")


def barrier_in_loop(code: str, here: int, there: int) -> bool:
    """Whether a loop has a barrier between two of its lines: then one that both lines lack belongs
    to the end of the loop's body.
    """
    first, last = sorted((here, there))
    lines = code.splitlines()
    return is_in_loop(code, first, last) and any(map(_BARRIER.search, lines[first - 1 : last]))


def is_in_loop(code: str, line: int, *others: int) -> bool:
    """Whether lines are in the body of one loop; `code` has no comments."""
    least, most = min((line, *others)), max((line, *others))
    for loop in re.finditer(r"\b(?:for|while)\s*\(|\bdo\b(?=\s*\{)", code):
        start = loop.end()
        if code[start - 1] == "(":
            start = _closing(code, start, ")") + 1
        end = _body_end(code, start)
        if line_of(code, loop.start()) <= least and most <= line_of(code, end):
            return True
    return False


def _body_end(code: str, start: int) -> int:
    """Where the statement ends that begins at `start`."""
    body = start + len(code[start:]) - len(code[start:].lstrip())
    return _closing(code, body, "}" if code[body : body + 1] == "{" else ";}")


def _depends_on_thread(code: str, condition: str) -> bool:
    """Whether a condition names ``threadIdx``, or a variable that is computed from it."""
    names = {"threadIdx"}
    found = True
    while found:
        of_thread = re.compile(rf"\b(?:{'|'.join(names)})\b")
        found = False
        for name, value in re.findall(r"\b(\w+)\s*=(?!=)([^,;]*)", code):
            if name not in names and of_thread.search(value):
                names.add(name)
                found = True
    return bool(of_thread.search(condition))


_BRANCH = re.compile(r"\b(?:if\s*(?:constexpr\s*)?|while\s*|(?P<loop>for)\s*)\(")


def _conditions(code: str, at: int, both: tuple[int, int]) -> Iterator[str]:
    """Conditions of the branches and loops around a position that are not around both lines."""
    for branch in _BRANCH.finditer(code, 0, at):
        close = _closing(code, branch.end(), ")")
        end = _body_end(code, close + 1)
        if not close < at <= end:
            continue
        if line_of(code, branch.start()) <= both[0] and both[1] <= line_of(code, end):
            continue
        condition = code[branch.end() : close]
        yield condition.split(";")[1] if branch["loop"] and ";" in condition else condition


def barrier_in_branch(code: str, here: int, there: int) -> tuple[int, str] | None:
    """The line of the block barrier between two lines and the condition of its branch or loop, if
    each barrier between them is in one that not all threads of a block take.
    """
    first, last = sorted((here, there))
    found = None
    for barrier in re.finditer(r"\b__syncthreads\w*\s*\(", code):
        line = line_of(code, barrier.start())
        if not first <= line <= last:
            continue
        around = _conditions(code, barrier.start(), (first, last))
        divergent = [each for each in around if _depends_on_thread(code, each)]
        if not divergent:
            return None
        found = found or (line, " ".join(divergent[-1].split()))
    return found


_COLLECTIVE = re.compile(
    r"\b__(?:sync\w+|shfl\w*|ballot\w*|any_sync|all_sync|reduce_\w+|match_\w+)\s*\("
    r"|(?:\.|::|->)\s*(?:sync|shfl\w*|any|all|ballot)\s*\(|\breduce\s*\("
)


def divergent_branch(code: str, line: int) -> str:
    """The condition of the innermost branch or loop, not taken by all threads of a block, that is
    around a barrier or an operation of a warp in a line, or around a call of the function that
    contains the line; "" if there is none. `code` has no comments.
    """
    return _divergent_branch(code, line, _COLLECTIVE, set())


def _divergent_branch(code: str, line: int, calls: re.Pattern[str], seen: set[str]) -> str:
    lines = code.splitlines(keepends=True)
    start = sum(map(len, lines[: line - 1]))
    end = start + len(lines[line - 1])
    places = [call.start() for call in calls.finditer(code, start, end)] or [end - 1]
    for place in places:
        found = [
            each for each in _conditions(code, place, (0, 0)) if _depends_on_thread(code, each)
        ]
        if found:
            return " ".join(found[-1].split())
    around = next((each for each in declarations(code) if each.start <= start < each.end), None)
    named = re.search(r"(\w+)\s*\(", around.head) if around is not None else None
    if around is None or named is None or "__global__" in around.head or named[1] in seen:
        return ""
    seen.add(named[1])
    by_name = re.compile(rf"\b{named[1]}\s*(?:<[^<>()]*>)?\s*\(")
    for call in by_name.finditer(code):
        if around.start <= call.start() < around.end:
            continue
        if found_there := _divergent_branch(code, line_of(code, call.start()), by_name, seen):
            return found_there
    return ""


def stores_to_one_word(code: str, line: int, name: str) -> str:
    """How a line stores to a variable in a word that is the same for all threads of a block.

    Returns
    -------
    str
        ``"update"`` if the line also reads the variable, else ``"store"``; "" if threads have words
        of their own, or it does not store.
    """
    text = code.splitlines()[line - 1]
    index = r"\s*\[\s*(?:\d+|[A-Z_]+|blockIdx\.x)\s*\]"
    stored = re.search(
        rf"(?P<before>\+\+|--)?\s*\b{name}\b(?:{index})?\s*"
        r"(?P<after>(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--|;)",
        text,
    )
    if not name or stored is None or (not stored["before"] and stored["after"] == ";"):
        return ""
    others = text[: stored.start()] + text[stored.end() :]
    is_read = stored["after"] != "=" or re.search(rf"\b{name}\b", others) is not None
    return "update" if is_read else "store"


@dataclass(frozen=True)
class Declaration:
    """A declaration, or a directive, outside functions: ``text[start:end]`` without comments."""

    start: int
    end: int
    text: str

    @property
    def head(self) -> str:
        """What is before its body."""
        return self.text.split("{", 1)[0]

    @property
    def is_function(self) -> bool:
        return "(" in self.head and not _TYPE.match(self.text) and "=" not in self.head


def _ends(code: str, start: int, brace: int, close: int) -> bool:
    """Whether a declaration whose body is ``code[brace:close]`` ends with the body.

    A type's or an initializer's ends with a semicolon behind it.
    """
    return Declaration(start, close, code[start:brace]).is_function


def declarations(code: str) -> Iterator[Declaration]:
    """Split a text that has no comments any more.

    The braces of namespaces and of ``extern "C"`` are declarations of their own.
    """
    start = position = 0
    depth = brace = 0
    at_line_start = True
    while position < len(code):
        if at_line_start and (directive := _DIRECTIVE.match(code, position)):
            if depth == 0 and not code[start:position].strip():
                yield Declaration(position, directive.end(), directive[0])
                start = directive.end()
            position = directive.end()
            continue
        character = code[position]
        at_line_start = character == "\n"
        position += 1
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "{":
            if depth == 0:
                head = code[start : position - 1]
                if _NAMESPACE.match(re.sub(r'"[^"]*"', "", head)):
                    yield Declaration(start, position, code[start:position])
                    start = position
                    continue
                brace = position - 1
            depth += 1
        elif character == "}":
            if depth == 0:
                yield Declaration(start, position, code[start:position])
                start = position
                continue
            depth -= 1
            if depth == 0 and _ends(code, start, brace, position):
                yield Declaration(start, position, code[start:position])
                start = position
        elif character == ";" and depth == 0:
            yield Declaration(start, position, code[start:position])
            start = position


def _is_kept(declaration: Declaration) -> bool:
    text = declaration.text
    if include := _INCLUDE.match(text):
        return bool(CUDA_HEADERS.fullmatch(include[1] or include[2] or ""))
    if text.lstrip().startswith("#"):
        return True
    if _DEVICE.search(declaration.head):
        return True
    if declaration.is_function:
        return bool(re.match(r"\s*(?:static\s+|inline\s+)*constexpr\b", text))
    if text.strip().endswith(("{", "}")) and _NAMESPACE.match(
        re.sub(r'"[^"]*"', "", text.strip().removesuffix("{"))
    ):
        return True
    if text.strip() == "}":
        return True
    if _HOST.search(text):
        return False
    return bool(_TYPE.match(text) or _CONSTANT.match(text))


def left_out(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of headers that a file includes and that are not read, though device code may
    need them.
    """
    for declaration in declarations(without_comments(source)):
        # What strings contain is blank in the code.
        text = source[declaration.start : declaration.end]
        if (found := _INCLUDE.match(text)) is not None:
            name = found[1] or found[2]
            if name not in KNOWN and not CUDA_HEADERS.fullmatch(name):
                start = declaration.start + len(text) - len(text.lstrip())
                yield line_of(source, start), name


def device_text(source: str) -> str:
    """A CUDA file without what the host compiles, line for line.

    Parameters
    ----------
    source : str

    Returns
    -------
    str
    """
    code = without_comments(source)
    parts: list[str] = []
    end = 0
    for declaration in declarations(code):
        text = source[declaration.start : declaration.end]
        # Directives keep their strings: a name of a header is one.
        kept = _is_kept(
            Declaration(declaration.start, declaration.end, text)
            if text.lstrip().startswith("#")
            else declaration
        )
        parts += [blank(source[end : declaration.start]), text if kept else blank(text)]
        end = declaration.end
    return "".join(parts) + blank(source[end:])
