"""Result of :func:`gpureduce.compare`: contenders side by side, as tables, charts, CSV and JSON.

Times from host memory to a result, and times of the kernels alone, have columns of their own: a
speedup divides times of one kind.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._display.exported import Exported, make_public
from .._display.html_page import element, table
from .._display.tables import (
    HEADING_COLUMNS,
    fold_lines,
    lay_out,
    markdown,
    show_bandwidth,
    show_count,
    show_range,
    terminal_width,
    time_unit,
)
from .._records import without_advice
from .changes import Changes, find_changes
from .charts import plot_comparison
from .contenders import (
    BEST_PEER,
    FIRST,
    NUMPY,
    TOO_CLOSE,
    TOO_NOISY,
    BreakEven,
    ComparisonRecord,
    Contender,
    is_too_noisy,
)
from .environment import flat_environment
from .profile import counter_table
from .runs import load_run, save_run
from .sampling import Spread
from .sentences import answer, explain_columns, explain_error, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Comparison"]


_MOST_DOUBTS = 4
"""Rows that are named as too noisy."""
_BARE = (
    "name",
    "is_kernel",
    "block_size",
    "grid_size",
    "elements",
    "bytes",
    "ran_on",
    "right",
    "ulps",
)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(ComparisonRecord, Exported):
    """Kernels and libraries on the same array; :func:`compare` makes it.

    Prints as tables, shows as tables in a notebook, and draws itself with matplotlib. A sequence of
    its rows. As CSV it has a row for each contender and size, in seconds and bytes per second, with
    the environment.

    Attributes
    ----------
    op, dtype, shape, axis
        Operator; dtype of the elements, or several with commas; shape of the array; reduced axes.
    cache
        What the caches held when a sample started.
    rows
        The :class:`Contender` records: kernels in the order given, then libraries; for each dtype
        and size in turn.
    break_even
        :class:`BreakEven` of the fastest kernel and NumPy; ``None`` if it was not measured.
    peak, ceiling
        Bandwidth that the memory's clock and bus come to; and the most that was measured here, by a
        contender or over a long array, so that no figure exceeds it. ``None`` if unknown.
    device_name
        Name of the GPU, or of the processor.
    warnings
        Reasons to doubt the times, in words.
    environment
        Device, driver, versions, date.
    """

    def _summary(self) -> str:
        return f"{self.title}, {len(self.rows)} rows"

    # ------------------------------------------------------------ tables

    def table(
        self, elements: int | None = None, dtype: str | None = None
    ) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of text, of one size and dtype.

        Parameters
        ----------
        elements : int, optional
            The largest by default.
        dtype : str, optional
            The first by default.
        """
        size = self.sizes[-1] if elements is None else elements
        kind_of = self.dtypes[0] if dtype is None else dtype
        here = self._measured(size, kind_of)
        headings, columns = self._names(here)
        for kind in ("on_device", "host"):
            more, cells = self._times(here, kind)
            headings, columns = headings + more, columns + cells
        return _whole_table(headings, columns, here)

    def _measured(self, elements: int, dtype: str) -> list[Contender]:
        """Rows of one array that have times, or a wrong result."""
        return [
            row
            for row in self.rows
            if (row.elements, row.dtype) == (elements, dtype)
            and (row.right is False or row.host is not None or row.on_device is not None)
        ]

    def _names(self, here: Sequence[Contender]) -> tuple[list[str], list[list[str]]]:
        """The columns that name the rows."""
        headings, columns = [""], [[row.name if row.block_size else row.label for row in here]]
        if any(row.block_size for row in here):
            headings.append("threads per block")
            columns.append([str(row.block_size or "") for row in here])
        return headings, columns

    def _times(self, here: Sequence[Contender], kind: str) -> tuple[list[str], list[list[str]]]:
        """The columns of one kind of time; none if no row has any."""
        spreads: list[Spread | None] = [getattr(row, kind) for row in here]
        if not any(spreads):
            return [], []
        unit, name = time_unit(each.median for each in spreads if each is not None)
        rates = [
            row.bytes / each.median if each else None
            for row, each in zip(here, spreads, strict=True)
        ]
        words = "kernels alone" if kind == "on_device" else "whole call"
        words = words if self._has_device_times else "time"
        headings = [f"{words} ({name})", "GB/s"]
        columns = [
            ["" if each is None else show_count(each.median / unit) for each in spreads],
            ["" if rate is None else show_bandwidth(rate) for rate in rates],
        ]
        if kind == "on_device":  # the GPU's memory does not bound a call from the host
            for whole, heading in ((self.peak, "% of peak"), (self.ceiling, "% of ceiling")):
                if whole is not None:
                    headings.append(heading)
                    columns.append(
                        ["" if rate is None else f"{100 * rate / whole:.1f}" for rate in rates]
                    )
        for over in (FIRST, NUMPY, BEST_PEER):
            reference = self._reference(here, over, kind)
            if reference is not None:
                headings.append(f"times as fast as {reference.name}")
                columns.append([self.show_speedup(row, over, kind) for row in here])
        return headings, columns

    def _reference(self, here: Sequence[Contender], over: str, kind: str) -> Contender | None:
        """The row that others are compared with; ``None`` without one, or of one kernel alone."""
        timed = [row for row in here if getattr(row, kind) is not None]
        if over == FIRST:
            kernels = [row for row in timed if row.is_kernel]
            first = next((row for row in here if row.is_kernel), None)
            return first if len(kernels) > 1 and first in kernels else None
        if over == NUMPY:
            return next((row for row in timed if row.name == NUMPY), None)
        peers = [row for row in timed if not row.is_kernel and row.name != NUMPY]
        return min(peers, key=lambda row: getattr(row, kind).median, default=None)

    def notes(self) -> list[str]:
        """What there is to say beside the tables, in words: an answer per array, what the columns
        mean, what was not measured, and other sizes.

        Returns
        -------
        list of str
        """
        answers = [answer(self, self._measured(n, dtype)) for dtype, n in self._arrays()]
        even = [] if self.break_even is None else [str(self.break_even)]
        return list(dict.fromkeys([*filter(None, answers), *self._remarks(), *even]))

    def _remarks(self) -> list[str]:
        """The notes that stand below the tables."""
        lines = explain_columns(self)
        if self.peak is not None:
            lines.append(f"peak: {show_bandwidth(self.peak)} GB/s by the memory's clock and bus")
        if self.ceiling is not None:
            most = show_bandwidth(self.ceiling)
            lines.append(
                f"ceiling: {most} GB/s, the most that anything read in this run"
                if self._has_device_times
                else f"GB/s: {most} is the most that anything read in this run"
            )
        lines += explain_error(self)
        lines += [*self._doubts(), *self._wrong(), *self._not_measured()]
        return list(dict.fromkeys(lines))

    def _wrong(self) -> list[str]:
        return [
            f"{self.label(row)}: WRONG, off by {show_count(row.ulps or 0)} ulps; it was not timed"
            for row in self._largest()
            if row.right is False
        ]

    def _not_measured(self) -> list[str]:
        """What has no times, with the reason: a line per kernel, and per reason of libraries."""
        absent = [row for row in self._largest() if row.absent]
        lines = [
            f"not measured: {self.label(row)}: {row.absent}" for row in absent if row.is_kernel
        ]
        reasons: dict[str, list[str]] = {}
        for row in absent:
            if not row.is_kernel:
                reasons.setdefault(row.absent, []).append(row.name)
        no_times = [row for row in self._largest() if row.right and row.is_kernel]
        for why in dict.fromkeys(row.why_no_device for row in no_times if row.on_device is None):
            short = without_advice(why)
            same = next((each for each in reasons if short and short in each), short)
            if why:
                reasons[same] = ["times on a GPU", *reasons.get(same, [])]
        names = {why: named(list(dict.fromkeys(each))) for why, each in reasons.items()}
        return [*lines, *(f"not measured: {each}: {why}" for why, each in names.items())]

    @property
    def _has_device_times(self) -> bool:
        return any(row.on_device is not None for row in self.rows)

    def _largest(self) -> list[Contender]:
        return [row for row in self.rows if row.elements == self.sizes[-1]]

    def _arrays(self) -> list[tuple[str, int]]:
        """Dtype and elements of each array, in the order of the rows."""
        return list(dict.fromkeys((row.dtype, row.elements) for row in self.rows))

    def _doubts(self) -> list[str]:
        """Rows of the largest size that may be faster or slower than another, for all one knows."""
        found = []
        for row in self._largest():
            for over in (FIRST, NUMPY, BEST_PEER) if row.is_kernel else ():
                for kind in ("on_device", "host"):
                    interval = self.speedup_interval(row, over, kind)
                    if interval is not None and is_too_noisy(interval):
                        reference = self._reference(self._largest(), over, kind)
                        than = over if reference is None else reference.name
                        found.append(f"{self.label(row)} and {than} ({show_range(interval)})")
        if not found:
            return []
        pairs = list(dict.fromkeys(found))
        more = " ..." * (len(pairs) > _MOST_DOUBTS)
        return [f"{TOO_CLOSE}: {'; '.join(pairs[:_MOST_DOUBTS])}{more}; to know more, {TOO_NOISY}"]

    def _tables(self) -> list[tuple[str, list[tuple[list[str], list[list[str]]]]]]:
        """For each array the answer, or what it is, and its tables: one per kind of time."""
        found = []
        for dtype, n in self._arrays():
            here = self._measured(n, dtype)
            tables = []
            for kind in ("host", "on_device"):
                rows = [row for row in here if row.right is False or getattr(row, kind) is not None]
                more, cells = self._times(rows, kind)
                if more:
                    headings, columns = self._names(rows)
                    tables.append(_whole_table([*headings, *more], [*columns, *cells], rows))
            if here and not tables:
                tables = [_whole_table(*self._names(here), here)]
            words = answer(self, here) or f"{n:,} {dtype or self.dtype} numbers"
            found += [(words, tables)] if here else []
        return found

    def _counter_table(self) -> tuple[list[str], list[list[str]]] | None:
        counted = [row for row in self.rows if row.counters]
        if not counted:
            return None
        return counter_table(
            [{"kernel": self.label(row), **each} for row in counted for each in row.counters]
        )

    def _other_sizes(self) -> BreakEven | None:
        """The search over sizes, if it measured more than the array that was asked for."""
        even = self.break_even
        return even if even is not None and len(even.sizes) > 1 else None

    def _title_of(self, even: BreakEven) -> str:
        hot = "" if self.cache == "hot" else "; the array is in the cache where it fits"
        return f"{even.title}{hot}:"

    def __str__(self) -> str:
        width = terminal_width()

        def show(each: tuple[list[str], list[list[str]]], left: int = 1) -> str:
            return lay_out(*each, left=left, width=width, heading_width=HEADING_COLUMNS)

        def paragraph(text: str) -> str:
            return fold_lines([text], width, indent=0)

        parts = [self.title]
        for words, tables in self._tables():
            parts += [paragraph(words), *map(show, tables)]
        counters = self._counter_table()
        if counters is not None:
            parts.append(lay_out(*counters, left=1, width=width))
        lines = [*self._remarks(), *(f"warning: {each}" for each in self.warnings)]
        parts += [fold_lines(lines, width)] if lines else []
        even = self._other_sizes()
        if even is not None:
            parts += [paragraph(self._title_of(even)), show(even.table(), left=0)]
            parts.append(paragraph(str(even)))
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """Tables and notes as Markdown.

        Returns
        -------
        str
        """
        parts = [f"**{self.title}**"]
        for words, tables in self._tables():
            parts += [words, *(markdown(*each) for each in tables)]
        counters = self._counter_table()
        if counters is not None:
            parts.append(markdown(*counters))
        lines = [*self._remarks(), *(f"Warning: {each}" for each in self.warnings)]
        parts += ["\n".join(f"- {each}" for each in lines)] if lines else []
        even = self._other_sizes()
        if even is not None:
            parts += [self._title_of(even), markdown(*even.table(), left=0), str(even)]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        shown = []
        for words, tables in self._tables():
            shown += [f"<p>{escape(words)}</p>", *(table(*each, left=1) for each in tables)]
        counters = self._counter_table()
        if counters is not None:
            shown.append(table(*counters, left=1))
        even = self._other_sizes()
        if even is not None:
            words = f"<p>{escape(self._title_of(even))}</p>"
            shown += [words, table(*even.table(), left=0), f"<p>{escape(str(even))}</p>"]
        return element(self.title, shown, self._remarks(), self.warnings)

    # ------------------------------------------------------------ data

    def _flat(self) -> list[dict[str, Any]]:
        """A dictionary for each row, without lists."""
        flat = []
        for row in self.rows:
            one: dict[str, Any] = {"op": self.op, "dtype": row.dtype or self.dtype}
            one["cache"] = self.cache
            one |= {name: getattr(row, name) for name in _BARE}
            for kind in ("host", "on_device"):
                spread: Spread | None = getattr(row, kind)
                figures: dict[str, Any] = {} if spread is None else spread.to_dict()
                low, high = figures.get("quartiles", (None, None))
                figures |= {
                    "lower_quartile": low,
                    "upper_quartile": high,
                    "count": len(figures.get("samples", ())),
                }
                wanted = (
                    "median",
                    "lower_quartile",
                    "upper_quartile",
                    "minimum",
                    "maximum",
                    "noise",
                    "count",
                )
                one |= {f"{kind}_{name}": figures.get(name) for name in wanted}
                for over in (FIRST, NUMPY, BEST_PEER):
                    name = f"{kind}_times_{over.replace(' ', '_')}"
                    one[name] = self.speedup(row, over, kind)
                    interval = self.speedup_interval(row, over, kind) or (None, None)
                    one |= {f"{name}_low": interval[0], f"{name}_high": interval[1]}
            one |= {"host_bandwidth": row.host_bandwidth, "device_bandwidth": row.device_bandwidth}
            one |= {"peak": self.peak, "ceiling": self.ceiling, "absent": row.absent}
            one |= {"why_no_host": row.why_no_host, "why_no_device": row.why_no_device}
            flat.append(one)
        return flat

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers; raw samples are in it, in
        seconds.

        Returns
        -------
        dict
        """
        rows = []
        for row, flat in zip(self.rows, self._flat(), strict=True):
            one = {
                name: flat[name] for name in flat if not name.startswith(("host_", "on_device_"))
            }
            for kind in ("host", "on_device"):
                spread: Spread | None = getattr(row, kind)
                one[kind] = None if spread is None else spread.to_dict()
                names = {
                    over: f"{kind}_times_{over.replace(' ', '_')}"
                    for over in (FIRST, NUMPY, BEST_PEER)
                }
                one[f"{kind}_speedups"] = {over: flat[name] for over, name in names.items()}
                one[f"{kind}_speedup_intervals"] = {
                    over: None
                    if flat[name] is None
                    else [flat[f"{name}_low"], flat[f"{name}_high"]]
                    for over, name in names.items()
                }
            one |= {
                "host_bandwidth": row.host_bandwidth,
                "counters": [dict(each) for each in row.counters],
            }
            if one["ulps"] is not None and not math.isfinite(one["ulps"]):
                one["ulps"] = str(one["ulps"])
            rows.append(one)
        even = self.break_even
        meeting = None if even is None else asdict(even) | {"outcomes": even.outcomes}
        return {
            "op": self.op,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "axis": list(self.axis) if isinstance(self.axis, tuple) else self.axis,
            "cache": self.cache,
            "device_name": self.device_name,
            "peak": self.peak,
            "ceiling": self.ceiling,
            "break_even": meeting,
            "rows": rows,
            "notes": self.notes(),
            "warnings": list(self.warnings),
            "environment": self.environment,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Comparison:
        """Make a comparison from what :meth:`to_dict` returned.

        Parameters
        ----------
        saved : dict

        Returns
        -------
        Comparison

        Raises
        ------
        ValueError
            The dictionary is not of a comparison.
        """
        try:
            return cls(
                op=saved["op"],
                dtype=saved["dtype"],
                shape=tuple(saved["shape"]),
                axis=tuple(axis) if isinstance(axis := saved["axis"], list) else axis,
                cache=saved["cache"],
                rows=tuple(_row_of(each) for each in saved["rows"]),
                break_even=_break_even_of(saved["break_even"]),
                peak=saved["peak"],
                ceiling=saved["ceiling"],
                device_name=saved["device_name"],
                warnings=tuple(saved["warnings"]),
                environment=saved["environment"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved comparison ({type(error).__name__}: {error})") from None

    def save(self, name: str | os.PathLike[str]) -> Path:
        """Write the comparison to a file, for :meth:`against` in a later run.

        Parameters
        ----------
        name : str or path
            A name, for the file ``.gpureduce/NAME.json`` in the current folder; or a path that ends
            with ``.json``. An older file is replaced.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        ValueError
            The name is neither.
        OSError
            The file cannot be written.
        """
        return save_run(name, self.to_json())

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Comparison:
        """Read a comparison that :meth:`save` wrote.

        Parameters
        ----------
        name : str or path
            As :meth:`save` takes it.

        Returns
        -------
        Comparison

        Raises
        ------
        FileNotFoundError
            Nothing is saved under this name; the error lists the names that are.
        ValueError
            The file holds something else.
        """
        path, saved = load_run(name)
        try:
            return cls.from_dict(saved)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def against(self, earlier: Comparison | str | os.PathLike[str]) -> Changes:
        """Compare these times with those of an earlier run, contender by contender.

        Parameters
        ----------
        earlier : Comparison or str or path
            The earlier run, or the name or path that it was saved under.

        Returns
        -------
        Changes

        Raises
        ------
        FileNotFoundError
            Nothing is saved under this name; the error lists the names that are.
        ValueError
            The runs have no contender in common that both have timed.
        """
        if isinstance(earlier, Comparison):
            return find_changes(earlier, self)
        return find_changes(type(self).load(earlier), self, os.fspath(earlier))

    def _rows(self) -> list[list[Any]]:
        setting = flat_environment(self.environment)
        flat = self._flat()
        head = [*(flat[0] if flat else ()), *setting]
        return [head, *([*one.values(), *setting.values()] for one in flat)]

    def to_dataframe(self) -> Any:
        """The columns of :meth:`to_csv`, without the environment, which is in ``attrs``.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe needs pandas: pip install pandas") from None
        frame = pandas.DataFrame(self._flat())
        frame.attrs["environment"] = self.environment
        return frame

    def plot(
        self, kind: str | None = None, ax: Axes | Figure | None = None, *, column: str | None = None
    ) -> Axes:
        """Draw the comparison with matplotlib.

        Parameters
        ----------
        kind : {"bars", "sizes", "roofline"}, optional
            ``"bars"``: bandwidth of each contender, with the ceiling. ``"sizes"``: bandwidth over
            size, on logarithmic axes; the default of a sweep. ``"roofline"``: operations per second
            over operations per byte.
        ax : matplotlib.axes.Axes or matplotlib.figure.Figure, optional
            Where to; a figure of its own by default.
        column : {"on_device", "host"}, optional
            Which times: of the kernels alone, the default where there are any, or from host memory
            to the result.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            An unknown kind or column, or nothing was timed.
        """
        return plot_comparison(self, kind or self.default_kind, column, ax)


def _whole_table(
    headings: Sequence[str], columns: Sequence[Sequence[str]], here: Sequence[Contender]
) -> tuple[list[str], list[list[str]]]:
    """Columns as rows, with the errors as the last column."""
    errors = [_show_error(row) for row in here]
    last = ["error (ulps)"] if any(errors) else []
    rows = zip(*columns, *([errors] if last else []), strict=True)
    return [*headings, *last], [list(line) for line in rows]


def _spread_of(saved: dict[str, Any] | None) -> Spread | None:
    return None if saved is None else Spread(tuple(saved["samples"]), saved["calls_per_sample"])


def _row_of(saved: dict[str, Any]) -> Contender:
    """A row from its dictionary; the speedups in it follow from the times."""
    plain = {each.name: saved[each.name] for each in fields(Contender)}
    plain |= {kind: _spread_of(saved[kind]) for kind in ("host", "on_device")}
    plain["ulps"] = None if saved["ulps"] is None else float(saved["ulps"])
    plain["counters"] = tuple(saved["counters"])
    return Contender(**plain)


def _break_even_of(saved: dict[str, Any] | None) -> BreakEven | None:
    if saved is None:
        return None
    plain = {each.name: saved[each.name] for each in fields(BreakEven)}
    plain |= {name: tuple(saved[name]) for name in ("sizes", "ratios")}
    plain["intervals"] = tuple(map(tuple, saved["intervals"]))
    plain["between"] = None if saved["between"] is None else tuple(saved["between"])
    return BreakEven(**plain)


def _show_error(row: Contender) -> str:
    if row.ulps is None:
        return ""
    shown = "0" if row.ulps == 0 else f"{row.ulps:.2g}"
    return shown if row.right else f"WRONG {shown}"


make_public(Comparison)
