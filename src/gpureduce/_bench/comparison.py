"""Result of :func:`gpureduce.compare`: contenders side by side, as tables, charts, CSV and JSON.

Times from host memory to a result, and times of the kernels alone, have columns of their own: a
speedup divides times of one kind.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._display.exported import Exported, make_public
from .._display.html_page import element, table
from .._display.tables import (
    fold_lines,
    lay_out,
    markdown,
    show_bandwidth,
    show_count,
    show_speedup,
    show_time,
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
    TOO_NOISY,
    BreakEven,
    ComparisonRecord,
    Contender,
    is_too_noisy,
    outcome,
)
from .environment import flat_environment
from .profile import counter_table
from .runs import load_run, save_run
from .sampling import Spread

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
        here = [row for row in self.rows if (row.elements, row.dtype) == (size, kind_of)]
        kinds = [
            kind
            for kind in ("on_device", "host")
            if any(getattr(row, kind) is not None for row in here)
        ]
        headings = [""]
        columns = [[row.name if row.block_size else row.label for row in here]]
        if any(row.block_size for row in here):
            headings.append("block")
            columns.append([str(row.block_size or "") for row in here])
        for kind in kinds:
            words = "device" if kind == "on_device" else "from host"
            spreads: list[Spread | None] = [getattr(row, kind) for row in here]
            unit, name = time_unit(each.median for each in spreads if each is not None)
            headings += [f"{words} {name}", "GB/s"]
            columns.append(
                ["" if each is None else show_count(each.median / unit) for each in spreads]
            )
            rates = [
                row.bytes / each.median if each else None
                for row, each in zip(here, spreads, strict=True)
            ]
            columns.append(["" if rate is None else show_bandwidth(rate) for rate in rates])
            if (
                kind == "on_device" or self.peak is None
            ):  # the GPU's memory does not bound a call from the host
                for whole, heading in ((self.peak, "% of peak"), (self.ceiling, "% of ceiling")):
                    if whole is not None:
                        headings.append(heading)
                        columns.append(
                            ["" if rate is None else f"{100 * rate / whole:.1f}" for rate in rates]
                        )
            for over in (FIRST, NUMPY, BEST_PEER):
                ratios = [self.show_speedup(row, over, kind) for row in here]
                if any(ratios):
                    headings.append(f"x {over}")
                    columns.append(ratios)
        headings.append("error, ulps")
        columns.append([_show_error(row) for row in here])
        return headings, [list(line) for line in zip(*columns, strict=True)]

    def show_speedup(self, row: Contender, over: str, column: str) -> str:
        """A speedup in words, with half the width of its interval, as ``"1.47 ± 0.42"``.

        Parameters
        ----------
        row, over, column
            As :meth:`speedup` takes them.

        Returns
        -------
        str
            Empty where there is no speedup.
        """
        value, interval = self.speedup(row, over, column), None
        if value is not None:
            interval = self.speedup_interval(row, over, column)
        return "" if value is None or interval is None else show_speedup(value, interval)

    def notes(self) -> list[str]:
        """What there is to say beside the tables, in words.

        Returns
        -------
        list of str
        """
        lines = []
        if self.peak is not None:
            lines.append(f"peak: {show_bandwidth(self.peak)} GB/s by the memory's clock and bus")
        if self.ceiling is not None:
            lines.append(
                f"ceiling: {show_bandwidth(self.ceiling)} GB/s, the highest bandwidth measured here"
            )
        lines += self._losses()
        if self.break_even is not None:
            lines.append(str(self.break_even))
        lines += self._doubts()
        size = self.sizes[-1] if self.rows else 0
        absent: dict[str, list[str]] = {}
        for row in self.rows:
            if row.elements != size:
                continue
            if row.absent and row.is_kernel:
                lines.append(f"{self.label(row)}: {row.absent}")
            elif row.absent:
                absent.setdefault(row.absent, []).append(self.label(row))
            elif row.right is False:
                lines.append(
                    f"{self.label(row)}: WRONG, off by {show_count(row.ulps or 0)} ulps; it was "
                    "not timed"
                )
        lines += [f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in absent.items()]
        untimed = [row for row in self.rows if row.elements == size and row.right and row.is_kernel]
        reasons = dict.fromkeys(row.why_no_device for row in untimed if row.on_device is None)
        lines += [f"no device times: {without_advice(why)}" for why in reasons if why]
        return list(dict.fromkeys(lines))

    def _doubts(self) -> list[str]:
        """Rows of the largest size that may be faster or slower than another, for all one knows."""
        found = []
        size = self.sizes[-1] if self.rows else 0
        for row in self.rows:
            for over in (FIRST, NUMPY, BEST_PEER) if row.is_kernel else ():
                for kind in ("on_device", "host"):
                    interval = self.speedup_interval(row, over, kind)
                    if row.elements == size and interval is not None and is_too_noisy(interval):
                        shown = self.show_speedup(row, over, kind)
                        found.append(f"{self.label(row)} (x {over}: {shown})")
        if not found:
            return []
        named = ", ".join(dict.fromkeys(found[:_MOST_DOUBTS])) + " ..." * (
            len(found) > _MOST_DOUBTS
        )
        return [f"too noisy to compare: {named}; {TOO_NOISY}"]

    def _losses(self) -> list[str]:
        """For each dtype, whether the GPU is slower than NumPy beyond the spread of both."""
        size = self.sizes[-1] if self.rows else 0
        return [
            loss
            for dtype in self.dtypes
            for loss in self._loss(
                [row for row in self.rows if (row.elements, row.dtype) == (size, dtype)]
            )
        ]

    def _loss(self, here: list[Contender]) -> list[str]:
        numpy = next((row for row in here if row.name == NUMPY), None)
        if numpy is None or numpy.host is None:
            return []
        there = [row for row in here if row.is_kernel and row.ran_on not in ("", "cpu")]
        timed = [(row.host.median, row) for row in there if row.host is not None]
        if not timed:
            return []
        best, row = min(timed, key=lambda pair: pair[0])
        interval = self.speedup_interval(row, NUMPY, "host")
        if interval is None or outcome(interval) != "slower":
            return []
        ratio = show_speedup(best / numpy.host.median, (1 / interval[1], 1 / interval[0]))
        sentence = (
            f"the GPU is slower than numpy at this size: from host memory the fastest kernel, "
            f"{self.label(row)}, takes {show_time(best)}, numpy {show_time(numpy.host.median)} "
            f"(numpy is {ratio} times faster)"
        )
        if row.on_device is not None:
            sentence += f"; its kernels alone take {show_time(row.on_device.median)}"
            if row.on_device.median < numpy.host.median:
                sentence += ": the copy over PCIe takes the rest"
        return [sentence]

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        tables = []
        for dtype, n in dict.fromkeys((row.dtype, row.elements) for row in self.rows):
            parts = [dtype] * (len(self.dtypes) > 1) + [f"{n:,} elements"] * (len(self.sizes) > 1)
            tables.append((", ".join(parts), *self.table(n, dtype)))
        return tables

    def _counter_table(self) -> tuple[list[str], list[list[str]]] | None:
        counted = [row for row in self.rows if row.counters]
        if not counted:
            return None
        return counter_table(
            [{"kernel": self.label(row), **each} for row in counted for each in row.counters]
        )

    def __str__(self) -> str:
        parts = [self.title]
        for heading, headings, rows in self._tables():
            parts += [heading] if heading else []
            parts.append(lay_out(headings, rows, left=1, width=terminal_width()))
        counters = self._counter_table()
        if counters is not None:
            parts.append(lay_out(*counters, left=1, width=terminal_width()))
        lines = [*self.notes(), *(f"warning: {each}" for each in self.warnings)]
        parts += [fold_lines(lines, terminal_width())] if lines else []
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """Tables and notes as Markdown.

        Returns
        -------
        str
        """
        parts = [f"**{self.title}**"]
        for heading, headings, rows in self._tables():
            parts += [heading] if heading else []
            parts.append(markdown(headings, rows))
        counters = self._counter_table()
        if counters is not None:
            parts.append(markdown(*counters))
        lines = [*self.notes(), *(f"Warning: {each}" for each in self.warnings)]
        return (
            "\n\n".join([*parts, *(["\n".join(f"- {each}" for each in lines)] if lines else [])])
            + "\n"
        )

    def _repr_html_(self) -> str:
        tables = []
        for heading, headings, rows in self._tables():
            tables.append(
                (f"<h4>{heading}</h4>" if heading else "") + table(headings, rows, left=1)
            )
        counters = self._counter_table()
        if counters is not None:
            tables.append(table(*counters, left=1))
        return element(self.title, tables, self.notes(), self.warnings)

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
    if row.absent or row.ulps is None:
        return "absent" if row.absent else ""
    shown = "0" if row.ulps == 0 else f"{row.ulps:.2g}"
    return shown if row.right else f"WRONG {shown}"


make_public(Comparison)
