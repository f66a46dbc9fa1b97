"""Two runs of :func:`gpureduce.compare` side by side: which contender became faster or slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .._display.exported import Exported, make_public
from .._display.html_page import element, table
from .._display.tables import fold_lines, lay_out, markdown, show_speedup, show_time, terminal_width
from .contenders import TOO_NOISY, ComparisonRecord, Contender, is_too_noisy, outcome
from .environment import flat_environment
from .sampling import Spread, ratio_interval

__all__ = ["Change", "Changes", "expect_same_operator", "find_changes"]

_TIMES = {"on_device": "device", "host": "from host"}
_SETTING = ("shape", "axis", "cache", "device_name")
_UNIMPORTANT = ("date", "device.name", "device")
"""Columns of the environment that differ in any two runs, or that :data:`_SETTING` names."""


@dataclass(frozen=True, slots=True)
class Change:
    """A contender's times in two runs.

    Attributes
    ----------
    label, is_kernel, dtype, elements
        The contender in the later run, whether it is a kernel of this package, and the array that
        it reduced.
    column
        Which times: ``"on_device"`` or ``"host"``, as in
        :class:`~gpureduce._bench.contenders.Contender`.
    before, after
        :class:`Spread` of the earlier and the later run.
    """

    label: str
    is_kernel: bool
    dtype: str
    elements: int
    column: str
    before: Spread
    after: Spread

    @property
    def speedup(self) -> float:
        """The earlier median time over the later one: above 1 where the later run is faster."""
        return self.before.median / self.after.median

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest speedup that the quartiles of both times give."""
        return ratio_interval(self.before, self.after)

    @property
    def outcome(self) -> str:
        """``"faster"`` or ``"slower"`` if the quartiles do not overlap, else ``"level"``."""
        return outcome(self.interval)

    @property
    def is_too_noisy(self) -> bool:
        """Whether the times are level only because the spread is wide: a change of more than a
        quarter may be hidden in it.
        """
        return is_too_noisy(self.interval)

    def is_slower_by(self, percent: float) -> bool:
        """Whether the later run is slower beyond the spread, and its median by this much.

        Parameters
        ----------
        percent : float
            Of the earlier median.

        Returns
        -------
        bool
        """
        limit = (1 + percent / 100) * self.before.median
        return self.outcome == "slower" and self.after.median > limit


@dataclass(frozen=True, slots=True, repr=False)
class Changes(Exported):
    """The changes from an earlier to a later comparison; :meth:`Comparison.against` returns it.

    Prints as a table, shows as one in a notebook, and is a sequence of its :class:`Change` records.
    Its CSV has a row per change, in seconds.

    Attributes
    ----------
    name, date
        The name that the earlier run was saved under, or ``""``; and when it was measured.
    changes
        The :class:`Change` records, in the order of the later run.
    differences
        What else differs between the runs: arguments, machine, versions; in words.
    unmatched
        Contenders that only one of the runs has timed; in words.
    """

    name: str
    date: str
    changes: tuple[Change, ...]
    differences: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __getitem__(self, which: int) -> Change:
        return self.changes[which]

    @property
    def title(self) -> str:
        """Name and date of the earlier run, in one line."""
        name = f" {self.name!r}" if self.name else ""
        return f"this run against the earlier run{name}" + (f" of {self.date}" * bool(self.date))

    def _summary(self) -> str:
        count = Counter(each.outcome for each in self.changes)
        return ", ".join(f"{count[word]} {word}" for word in ("faster", "slower", "level"))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        columns: dict[str, list[str]] = {"": [each.label for each in self]}
        if len({each.dtype for each in self}) > 1:
            columns["dtype"] = [each.dtype for each in self]
        if len({each.elements for each in self}) > 1:
            columns["elements"] = [f"{each.elements:,}" for each in self]
        columns["time"] = [_TIMES[each.column] for each in self]
        columns["before"] = [show_time(each.before.median) for each in self]
        columns["now"] = [show_time(each.after.median) for each in self]
        columns["speedup"] = [show_speedup(each.speedup, each.interval) for each in self]
        columns["result"] = ["too noisy" if each.is_too_noisy else each.outcome for each in self]
        return list(columns), [list(line) for line in zip(*columns.values(), strict=True)]

    def _notes(self) -> list[str]:
        noisy = sum(each.is_too_noisy for each in self)
        count = Counter(each.outcome for each in self)
        found = [
            f"{count['faster']} faster, {count['slower']} slower, {count['level'] - noisy} level"
        ]
        found[0] += f", {noisy} too noisy to tell" if noisy else ""
        found[0] += "; level: within the spread of both runs"
        if noisy:
            found.append(
                "too noisy: the times differ less than they vary, and by more than a quarter "
                f"either way; {TOO_NOISY}"
            )
        return [*found, *self.unmatched]

    def _warnings(self) -> list[str]:
        return [f"the runs differ in {each}" for each in self.differences]

    def __str__(self) -> str:
        lines = [*self._notes(), *(f"warning: {each}" for each in self._warnings())]
        body = lay_out(*self._table(), left=1, width=terminal_width())
        return "\n\n".join([self.title, body, fold_lines(lines, terminal_width())]) + "\n"

    def to_markdown(self) -> str:
        """The table and notes as Markdown.

        Returns
        -------
        str
        """
        lines = [*self._notes(), *(f"Warning: {each}" for each in self._warnings())]
        parts = [f"**{self.title}**", markdown(*self._table())]
        return "\n\n".join([*parts, "\n".join(f"- {each}" for each in lines)]) + "\n"

    def _repr_html_(self) -> str:
        return element(self.title, [table(*self._table(), left=1)], self._notes(), self._warnings())

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
        """
        return {
            "name": self.name,
            "date": self.date,
            "changes": [self._flat(each) for each in self],
            "differences": list(self.differences),
            "unmatched": list(self.unmatched),
        }

    @staticmethod
    def _flat(each: Change) -> dict[str, Any]:
        return {
            "label": each.label,
            "is_kernel": each.is_kernel,
            "dtype": each.dtype,
            "elements": each.elements,
            "column": each.column,
            "before": each.before.median,
            "after": each.after.median,
            "speedup": each.speedup,
            "speedup_low": each.interval[0],
            "speedup_high": each.interval[1],
            "outcome": each.outcome,
            "too_noisy": each.is_too_noisy,
        }

    def _rows(self) -> list[list[Any]]:
        flat = [self._flat(each) for each in self]
        return [list(flat[0]), *(list(each.values()) for each in flat)]


def expect_same_operator(earlier: ComparisonRecord, op: str) -> None:
    """Raise ``ValueError`` if an earlier run reduced by another operator."""
    if earlier.op != op:
        raise ValueError(
            f"the earlier run computed {earlier.op} and this one computes {op}: their times do not "
            "compare"
        )


def find_changes(earlier: ComparisonRecord, later: ComparisonRecord, name: str = "") -> Changes:
    """Match the contenders of two runs.

    Parameters
    ----------
    earlier, later : ComparisonRecord
    name : str, optional
        Name of the earlier run.

    Returns
    -------
    Changes

    Raises
    ------
    ValueError
        The runs have no timed contender in common, or reduce by different operators.
    """
    expect_same_operator(earlier, later.op)
    before, after = _by_key(earlier, later)
    changes = []
    for key, row in after.items():
        for column in _TIMES:
            old = getattr(before[key], column) if key in before else None
            new = getattr(row, column)
            if old is not None and new is not None:
                place = (row.label, row.is_kernel, row.dtype, row.elements)
                changes.append(Change(*place, column, old, new))
    if not changes:
        raise ValueError(
            "the runs have nothing in common to compare: no contender was timed on as many "
            f"elements of one dtype in both ({_contents(earlier)}; now {_contents(later)})"
        )
    unmatched = [
        f"only in {where} run: {', '.join(dict.fromkeys(rows[key].label for key in keys))}"
        for where, rows, keys in (
            ("this", after, [key for key in after if key not in before]),
            ("the earlier", before, [key for key in before if key not in after]),
        )
        if keys
    ]
    date = str(earlier.environment.get("date", ""))
    return Changes(
        name, date, tuple(changes), tuple(_differences(earlier, later)), tuple(unmatched)
    )


_Key = tuple[str, str, int, int]


def _by_key(
    earlier: ComparisonRecord, later: ComparisonRecord
) -> tuple[dict[_Key, Contender], dict[_Key, Contender]]:
    """The timed rows of both runs, by contender, dtype, size and block size.

    The block size is 0 unless one of the runs has several: a kernel's own choice may differ
    from version to version.
    """

    def timed(run: ComparisonRecord) -> list[Contender]:
        return [row for row in run.rows if row.host is not None or row.on_device is not None]

    several = {
        shared
        for run in (earlier, later)
        for shared, count in Counter(_shared(row) for row in timed(run)).items()
        if count > 1
    }

    def keyed(run: ComparisonRecord) -> dict[_Key, Contender]:
        return {
            (*shared, row.block_size if shared in several else 0): row
            for row in timed(run)
            for shared in [_shared(row)]
        }

    return keyed(earlier), keyed(later)


def _shared(row: Contender) -> tuple[str, str, int]:
    """A row's name and array; kernels and libraries may share a name."""
    return f"{'kernel' if row.is_kernel else 'library'} {row.name}", row.dtype, row.elements


def _contents(run: ComparisonRecord) -> str:
    sizes = ", ".join(f"{n:,}" for n in run.sizes)
    return f"{', '.join(dict.fromkeys(row.name for row in run.rows))}: {sizes} {run.dtype}"


def _differences(earlier: ComparisonRecord, later: ComparisonRecord) -> list[str]:
    """Arguments, machine and versions that are not alike, in words."""
    before: dict[str, Any] = {each: getattr(earlier, each) for each in _SETTING}
    after: dict[str, Any] = {each: getattr(later, each) for each in _SETTING}
    before |= flat_environment(earlier.environment)
    after |= flat_environment(later.environment)
    return [
        f"{key}: {before.get(key)} before, {after.get(key)} now"
        for key in dict.fromkeys([*before, *after])
        if key not in _UNIMPORTANT and before.get(key) != after.get(key)
    ]


make_public(Change, Changes)
