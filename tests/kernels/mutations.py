"""Rules that break a kernel's text in one place: what threads do together, and slips of the pen.

A rule finds its places by CUDA's names and by the shape of the code around them, not by the
kernels' own names. A mutant is named by its file, function, rule, and which of the function's
places it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernel_text import Definition, after_angles, closing, functions_of

HALF_WARP = "(0xffffu << (threadIdx.x & 16))"
FULL_WARP = "0xffffffffu"
WARP_OPERATION = re.compile(r"__(shfl|all|any|ballot|reduce|match)\w*_sync")
BLOCK_VOTE = {"__syncthreads_and": "__all_sync", "__syncthreads_or": "__any_sync"}
ATOMIC = {
    "atomicAdd": "[](auto *p, auto x) { auto old = *p; *p = old + x; return old; }",
    "atomicOr": "[](auto *p, auto x) { auto old = *p; *p = old | x; return old; }",
    "atomicCAS": "[](auto *p, auto x, auto y) { auto old = *p; if (old == x) *p = y; return old; }",
}
ADDITIVE = ("+", "-")
# What ends an operand that is added: anything that binds no tighter.
ENDS_TERM = (
    *ADDITIVE,
    "<",
    ">",
    "<=",
    ">=",
    "==",
    "!=",
    "&",
    "|",
    "^",
    "&&",
    "||",
    "?",
    ":",
    ",",
    ";",
    "<<",
    ">>",
)


@dataclass(frozen=True)
class Change:
    """Text to put in place of [start, end)."""

    start: int
    end: int
    new: str


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    rule: str
    ordinal: int
    """Which of the places that the rule has in functions of that name, from 1."""
    start: int
    line: int
    old: str
    new: str
    text: str
    """The whole file, changed."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.file, self.function, self.rule, self.ordinal

    def __str__(self) -> str:
        key = f"{self.file}: {self.function}, {self.rule} {self.ordinal}"
        return f"{key} (line {self.line}): {self.old!r} -> {self.new!r}"


class Body:
    """A function's tokens, with what rules ask of them."""

    def __init__(self, function: Definition, text: str) -> None:
        self.tokens = function.tokens
        self.first = function.body
        self.text = text
        self.of_threads = self._names_of_threads()

    def __getitem__(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, len(self.tokens)))

    def is_binary(self, i: int) -> bool:
        """Whether an operator has two operands: a space, and an operand's end, before it."""
        before = self.tokens[i - 1]
        is_operand = re.match(r"[\w)\]]", before.text[-1]) is not None and before.text != "return"
        return is_operand and before.end < self.tokens[i].start

    def closing(self, at: int) -> int:
        return closing(self.tokens, at)

    def replace(self, first: int, last: int, new: str) -> Change:
        """Tokens first to last, both of them, give way to ``new``."""
        return Change(self.tokens[first].start, self.tokens[last].end, new)

    def insert(self, before: int, new: str) -> Change:
        return Change(self.tokens[before].start, self.tokens[before].start, new)

    def between(self, first: int, last: int) -> str:
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def argument(self, opening: int) -> tuple[int, int]:
        """First and last token of a call's first argument."""
        i = opening + 1
        while self[i] not in (",", ")"):
            i = self.closing(i) + 1 if self[i] in ("(", "[", "{") else i + 1
        return opening + 1, i - 1

    def _names_of_threads(self) -> set[str]:
        """Variables that differ between threads because their value is made of threadIdx."""
        names = {"threadIdx"}
        for i in self:
            if self[i] != "=" or not re.match(r"[A-Za-z_]", self[i - 1]):
                continue
            end = i
            while self[end] not in (";", ""):
                end = self.closing(end) if self[end] in ("(", "[", "{") else end + 1
            if names & {self[k] for k in range(i, end)}:
                names.add(self[i - 1])
        return names

    def loops(self) -> Iterator[tuple[int, int, int, bool]]:
        """Of each ``for``: its opening interval, both semicolons, and whether it is unrolled."""
        for i in self:
            if self[i] != "for":
                continue
            opening, semicolons, k = i + 1, [], i + 2
            end = self.closing(opening)
            while k < end:
                if self[k] == ";":
                    semicolons.append(k)
                k = self.closing(k) + 1 if self[k] in ("(", "[", "{") else k + 1
            if len(semicolons) == 2:
                before = self.text[: self.tokens[i].start].rstrip().rpartition("\n")[2].strip()
                is_unrolled = before.startswith("#pragma unroll") and not before.startswith(
                    "#pragma unroll 1"
                )
                yield opening, semicolons[0], semicolons[1], is_unrolled

    def step_of(self, opening: int, second: int) -> tuple[str, str] | None:
        """A loop's variable, and what makes the next round's; None for another kind of step."""
        i = second + 1
        if self[i] == "++" or self[i + 1] == "++":
            return self[i + 1] if self[i] == "++" else self[i], "+ 1 "
        if self[i + 1] not in ("+=", "-=", "*=", "/="):
            return None
        end = i + 2
        while end < self.closing(opening) and self[end] != ",":
            end = self.closing(end) + 1 if self[end] in ("(", "[", "{") else end + 1
        return self[i], f"{self[i + 1][0]} ({self.between(i + 2, end - 1)}) "

    def end_of_term(self, at: int) -> int:
        """Index of the last token of the operand that begins at ``at``."""
        i = at
        while i == at or self[i] not in (*ENDS_TERM, ")", "]", "}", ""):
            i = self.closing(i) + 1 if self[i] in ("(", "[", "{") else i + 1
            if self[i] == "<" and not self.is_binary(i):
                i = after_angles(self.tokens, i)
        return i - 1


# ---------------------------------------------------------------- what threads do together


def block_barrier(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] == "__syncthreads":
            yield body.replace(i, i + 2, "")


def warp_barrier(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] == "__syncwarp":
            yield body.replace(i, body.closing(i + 1), "")


def warp_barrier_of_halves(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] == "__syncwarp" and body[i + 2] == ")":
            yield body.replace(i, i + 2, f"__syncwarp{HALF_WARP}")


def fence(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] == "__threadfence":
            yield body.replace(i, i + 2, "")


def mask(body: Body, new: Callable[[str], str]) -> Iterator[Change]:
    for i in body:
        if WARP_OPERATION.fullmatch(body[i]):
            first, last = body.argument(i + 1)
            yield body.replace(first, last, new(body.between(first, last)))


def mask_without_last_lane(body: Body) -> Iterator[Change]:
    return mask(body, lambda old: f"({old} >> 1)")


def mask_of_halves(body: Body) -> Iterator[Change]:
    return mask(body, lambda old: f"({old} & {HALF_WARP})")


def block_vote_of_warps(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] in BLOCK_VOTE:
            yield body.replace(i, i + 1, f"{BLOCK_VOTE[body[i]]}({FULL_WARP}, ")


def block_vote_of_threads(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] in BLOCK_VOTE:
            yield body.replace(i, i + 1, "(__syncthreads(), ")


def atomic(body: Body) -> Iterator[Change]:
    for i in body:
        if body[i] in ATOMIC:
            yield body.replace(i, i, ATOMIC[body[i]])


TOGETHER = [
    block_barrier,
    warp_barrier,
    warp_barrier_of_halves,
    fence,
    mask_without_last_lane,
    mask_of_halves,
    block_vote_of_warps,
    block_vote_of_threads,
    atomic,
]

# ---------------------------------------------------------------- slips of the pen


def last_round(body: Body) -> Iterator[Change]:
    """A loop ends one round early: its condition is asked of the next round."""
    for opening, first, second, _ in body.loops():
        step = body.step_of(opening, second)
        for i in range(first + 2, second):
            if step is not None and body[i] in ("<", ">") and body.is_binary(i):
                variable, next_one = step
                if _operand_before(body, i) == [variable]:
                    yield body.insert(i, next_one)


def bound(body: Body) -> Iterator[Change]:
    """One element too many, where threads compare theirs with an end."""
    for i in body:
        if body[i] == "<" and body.is_binary(i) and body.of_threads & set(_operand_before(body, i)):
            yield body.replace(i, i, "<=")


def _operand_before(body: Body, at: int) -> list[str]:
    """Tokens of the operand that a comparison has on its left."""
    found: list[str] = []
    depth = 0
    for i in range(at - 1, body.first - 1, -1):
        text = body[i]
        depth += (text in (")", "]")) - (text in ("(", "["))
        if depth < 0 or (
            depth == 0 and text in ("&&", "||", "?", ":", ",", ";", "=", "return", "{", "}")
        ):
            break
        found.append(text)
    return found


def stride(body: Body) -> Iterator[Change]:
    """Rounds are not as far apart as they should be."""
    for opening, _, second, _ in body.loops():
        for i in range(second + 1, body.closing(opening)):
            if body[i] == "+=":
                end = i + 1
                while end < body.closing(opening) and body[end] != ",":
                    end = body.closing(end) + 1 if body[end] in ("(", "[", "{") else end + 1
                yield body.replace(i + 1, end - 1, "1")
            elif body[i] in ("/=", "*=", ">>=", "<<="):
                yield body.insert(i + 1, "2 * ")


def offset(body: Body) -> Iterator[Change]:
    """An element's index lacks what is added to it."""
    for i in body:
        if body[i] != "[":
            continue
        k, end = i + 1, body.closing(i)
        if re.fullmatch(r"[\w>*&]+", body[i - 2]) and body[i - 2] not in ("return", "case", "else"):
            continue  # a declaration's size
        while k < end:
            if body[k] in ("(", "[", "{"):
                k = body.closing(k)
            elif body[k] == "+" and body.is_binary(k):
                yield body.replace(k, body.end_of_term(k + 1), "")
            k += 1


def who(body: Body) -> Iterator[Change]:
    """Every thread works but the one that should."""
    for i in body:
        if body[i] in ("==", "!=") and body.of_threads & set(_operand_before(body, i)):
            yield body.replace(i, i, "!=" if body[i] == "==" else "==")


def gathered(body: Body) -> Iterator[Change]:
    """What was gathered before is lost."""
    in_steps = {
        i for opening, _, second, _ in body.loops() for i in range(second, body.closing(opening))
    }
    for i in body:
        if body[i] in ("|=", "+=") and i not in in_steps:
            yield body.replace(i, i, "=")


def call(body: Body) -> Iterator[Change]:
    """A function that is called for its effect is not."""
    for i in body:
        if body[i] != ";" or body[i - 1] != ")":
            continue
        start = i - 1
        depth = 0
        while start > body.first - 1:
            depth += (body[start] in (")", "]", "}")) - (body[start] in ("(", "[", "{"))
            if depth < 0 or (depth == 0 and body[start] in (";", "}") and start < i - 1):
                break
            start -= 1
        words = [body[k] for k in range(start + 1, i)]
        if words and re.fullmatch(r"[a-z]\w*", words[0]) and _is_plain_call(words):
            yield body.replace(start + 1, i - 1, "")


def _is_plain_call(words: list[str]) -> bool:
    if words[0] in (
        "asm",
        "return",
        "if",
        "for",
        "while",
        "else",
        "do",
        "using",
        "static_assert",
        "const",
        "auto",
    ):
        return False
    opening = words.index("(")
    return (
        all(re.fullmatch(r"\w+|\.|->|::|<|>|,", each) for each in words[:opening])
        and "=" not in words[:opening]
    )


SLIPS = [last_round, bound, stride, offset, who, gathered, call]


def mutants(
    sources: dict[str, str], rules: list[Callable[[Body], Iterator[Change]]]
) -> Iterator[Mutant]:
    """Every mutant of every file."""
    ordinals: dict[tuple[str, str, str], int] = {}
    for function in functions_of(sources):
        text = sources[function.file]
        body = Body(function, text)
        for rule in rules:
            for change in rule(body):
                key = (function.file, function.name, rule.__name__)
                ordinals[key] = ordinals.get(key, 0) + 1
                yield Mutant(
                    *key,
                    ordinal=ordinals[key],
                    start=change.start,
                    line=text.count("\n", 0, change.start) + 1,
                    old=text[change.start : max(change.end, change.start + 1)],
                    new=change.new,
                    text=text[: change.start] + change.new + text[change.end :],
                )
