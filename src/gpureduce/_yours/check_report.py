"""Reports of :func:`gpureduce.check`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from .._display.exported import Exported, make_public
from .._display.html_page import element
from .findings import ADVICE, Place, Trouble

__all__ = ["SCHEDULES", "CheckReport", "Finding", "Limit"]

SCHEDULES = ("forward", "reverse", "random")
"""Orders of threads on the emulator, in the order in which cases are run."""

_WIDTH = 88
_HIDDEN = "One mistake may hide another: check again after each change."


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake that :func:`check` found, in the smallest case that shows it.

    Attributes
    ----------
    kind, title
        Which mistake: one of few words that do not change, and how people call it.
    line, text
        Line of the user's file, from 1, and what it contains; 0: unknown.
    what
        Which thread did what there.
    other, other_line, other_text
        What another thread had done, and where; "" and 0 if nothing.
    missing
        What is missing between the two; may be "".
    n, block_size, grid_size, schedule, dtype
        The case: elements, threads per block, blocks, the order of threads (``"forward"``,
        ``"reverse"`` or ``"random"``), and the elements' dtype. Of an operator that breaks a
        promise without a launch: 0 threads, 0 blocks and ``""``.
    rule, remedy
        The rule that is broken, and what usually mends it.
    read
        A kernel of the catalogue whose source explains it.
    """

    kind: str
    title: str
    line: int
    text: str
    what: str
    other: str
    other_line: int
    other_text: str
    missing: str
    n: int
    block_size: int
    grid_size: int
    schedule: str
    dtype: str
    rule: str
    remedy: str
    read: str

    @classmethod
    def of(cls, trouble: Trouble, case: dict[str, Any]) -> Finding:
        """A broken rule of a case."""
        advice = ADVICE[trouble.kind]
        return cls(
            kind=trouble.kind,
            title=advice.title,
            line=trouble.where.line,
            text=trouble.where.text,
            what=trouble.what,
            other=trouble.other,
            other_line=trouble.other_where.line,
            other_text=trouble.other_where.text,
            missing=trouble.end,
            n=case["n"],
            block_size=case["block"],
            grid_size=case["grid"],
            schedule=case["schedule"],
            dtype=case["in"],
            rule=advice.rule,
            remedy=trouble.remedy or advice.remedy,
            read=advice.read,
        )

    @property
    def case(self) -> str:
        """The case in words."""
        blocks = "1 block" if self.grid_size == 1 else f"{self.grid_size} blocks"
        threads = "1 thread" if self.block_size == 1 else f"{self.block_size} threads"
        elements = "1 element" if self.n == 1 else f"{self.n} elements"
        if not self.schedule:  # no launch
            return f"{elements} of {self.dtype}"
        case = f"{elements} of {self.dtype}, {blocks} of {threads}"
        on_gpu = self.schedule.startswith("compute-sanitizer")
        return f"{case}, {f'by {self.schedule}' if on_gpu else f'{self.schedule} schedule'}"

    @property
    def summary(self) -> str:
        """What happened, in one sentence."""

        def place(line: int) -> str:
            return f" (line {line})" if line > 0 else ""

        other = f"; {self.other}{place(self.other_line)}" if self.other else ""
        missing = f"; {self.missing}" if self.missing else ""
        return f"{self.what}{place(self.line)}{other}{missing}"

    def lines(self) -> list[str]:
        """What happened, with the lines of the file."""
        found = [f"{self.what}", *_quoted(Place(self.line, self.text))]
        if self.other:
            found += [self.other, *_quoted(Place(self.other_line, self.other_text))]
        if self.missing:
            found.append(self.missing)
        return found


@dataclass(frozen=True, slots=True)
class Limit:
    """What a kernel is not for, although it is right.

    Attributes
    ----------
    text
        In one line.
    finding
        What goes wrong there, where a run showed it.
    """

    text: str
    finding: Finding | None = None


def _quoted(place: Place) -> list[str]:
    return [f"{place.line:>6} | {place.text}"] if place.line > 0 else []


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(Exported):
    """What :func:`check` found; it prints as a text.

    Its CSV has a row per finding.

    Attributes
    ----------
    kernel, file, op
        The kernel, the name of its file, and what it computes.
    description
        How it was launched.
    right
        Whether nothing was found.
    findings
        :class:`Finding` records, in the order of their cases: the smallest is first.
    limits
        :class:`Limit` records: arrays and block sizes that the kernel is not for.
    remarks
        What a right kernel does that would be wrong in many others, in sentences: threads that
        return before a barrier, and undefined values that it does not use.
    blocks, sizes, dtypes
        Threads per block, numbers of elements and dtypes that were tried.
    runs
        Launches that were looked at.
    why_blocks
        Why one block size alone was tried; "" if several were.
    """

    kernel: str
    file: str
    op: str
    description: str
    right: bool
    findings: tuple[Finding, ...]
    limits: tuple[Limit, ...]
    remarks: tuple[str, ...]
    blocks: tuple[int, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    runs: int
    why_blocks: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the findings, each once."""
        return tuple(dict.fromkeys(each.kind for each in self.findings))

    def _verdict(self) -> str:
        if not self.right:
            count = len(self.findings)
            return f"wrong, {count} {'mistake' if count == 1 else 'mistakes'}"
        return "right" if not self.limits else "right, within limits"

    def _summary(self) -> str:
        where = ", ".join(f"{each.title} (line {each.line})" for each in self.findings)
        return f"{self.kernel}: {self._verdict()}{': ' if where else ''}{where}"

    def _tried(self) -> str:
        launches = "launch" if self.runs == 1 else "launches"
        of = f"{self.runs} {launches}" if self.right else f"stopped after {self.runs} {launches} of"
        return (
            f"{of}{':' if self.right else ''} {_range(self.sizes)} elements of "
            f"{', '.join(self.dtypes)}, "
            f"blocks of {', '.join(map(str, sorted(self.blocks)))} threads"
            f"{f', {self.why_blocks}' if self.why_blocks else ''}"
        )

    def __str__(self) -> str:
        found = "" if self.right else " found"
        parts = [f"{self.file}: {self.kernel} is {self._verdict()}{found}", self.description]
        for number, finding in enumerate(self.findings, 1):
            parts.append("\n".join(_text_of(f"{number}. ", finding)))
        if self.limits:
            parts.append("\n".join(["limits", *(f"  {each.text}" for each in self.limits)]))
        if self.remarks:
            parts.append("\n".join(["remarks", *(f"  {each}" for each in self.remarks)]))
        if not self.right:
            parts.append(_HIDDEN)
        parts.append(self._tried())
        return "\n\n".join(parts) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
        """
        made = asdict(self)
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in made.items()
        }

    def _rows(self) -> list[list[Any]]:
        names = list(Finding.__slots__)
        return [names, *([getattr(each, name) for name in names] for each in self.findings)]

    def _repr_html_(self) -> str:
        parts = [f"<pre>{escape(self.description)}</pre>"]
        for number, each in enumerate(self.findings, 1):
            parts.append(f"<h4>{number}. {escape(each.title)}, line {each.line}</h4>")
            parts.append(
                f"<p>{escape(each.case)}:</p><pre>{escape(chr(10).join(each.lines()))}</pre>"
            )
            parts.append(f"<p>{escape(each.rule)}</p><p><b>{escape(each.remedy)}</b></p>")
            parts.append(f"<p>Read: <code>{escape(_read(each))}</code></p>")
        if not self.right:
            parts.append(f"<p>{escape(_HIDDEN)}</p>")
        if self.limits:
            items = "".join(f"<li>{escape(each.text)}</li>" for each in self.limits)
            parts.append(f"<h4>limits</h4><ul>{items}</ul>")
        if self.remarks:
            items = "".join(f"<li>{escape(each)}</li>" for each in self.remarks)
            parts.append(f"<h4>remarks</h4><ul>{items}</ul>")
        return element(f"{self.kernel}: {self._verdict()}", parts, [self._tried()], [])


def _range(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _read(finding: Finding) -> str:
    return f"gpureduce kernels --source {finding.read}"


def _text_of(number: str, finding: Finding) -> list[str]:
    def wrapped(text: str) -> list[str]:
        return textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="   ")

    where = f", line {finding.line}" if finding.line else ""
    lines = [f"{number}{finding.title}{where}", *wrapped(f"{finding.case}:")]
    for line in finding.lines():
        lines += [f"   {line}"] if "|" in line[:9] else wrapped(line)
    lines += [
        "",
        *wrapped(finding.rule),
        *wrapped(finding.remedy),
        *wrapped(f"Read: {_read(finding)}"),
    ]
    return lines


make_public(CheckReport, Finding, Limit)
