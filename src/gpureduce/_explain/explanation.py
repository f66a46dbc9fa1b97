"""Results of :func:`gpureduce.explain`: runs of kernels, with tables, pictures and exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, overload

from .._display.exported import Exported, make_public
from .._display.figures import expect_axes
from .._display.tables import fold_lines, lay_out, terminal_width
from . import page, picture
from .figure_tables import (
    caption,
    column_table,
    comparison_table,
    names_of,
    shorten,
    shuffle_note,
    stages_note,
    totals_table,
)
from .launches import RATIOS, Figures, KernelRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Explanation", "Explanations"]


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(KernelRun, Exported):
    """What a kernel did with an array, launch by launch; :func:`explain` returns it.

    It prints as a table, shows a picture and its annotated source in a notebook, and draws the
    picture with matplotlib. :class:`Figures` defines the counts. Its CSV has a row per column of
    each launch.

    Attributes
    ----------
    kernel
        Its name in the catalogue.
    op, dtype
        Operator, and dtype of the elements.
    n, rows
        Elements per row, and rows.
    block_size
        Threads per block of the first launch over the array.
    launches
        The :class:`Launch` records, in order.
    own_source
        Of a :class:`Kernel` of your own, and of the kernels that ``"auto"`` is with an
        :class:`Operator`: the name of the file, and the text; else ``None``.
    chosen_by
        ``"auto"`` where that was asked for and `kernel` is what it is; else ``""``.
    """

    def _summary(self) -> str:
        return self.title

    def __str__(self) -> str:
        headings, rows = column_table(self.main, self.file)
        course = lay_out(headings, shorten(rows), left=2, width=terminal_width())
        totals = lay_out(*totals_table(self), left=2, width=terminal_width())
        number = self.launches.index(self.main) + 1
        steps = f"launch {number}, step by step"
        note = fold_lines(filter(None, [shuffle_note(self.main)]), terminal_width())
        parts = (self.title, steps, course, note, "launches", totals, stages_note([self]))
        return "\n\n".join(filter(None, parts)) + "\n"

    def annotated_source(self) -> str:
        """The kernel's CUDA source, with counts per line in the margin.

        Returns
        -------
        str
            Counts are those of :attr:`main`; a helper's counts are in the line that calls it.
        """
        headings = ["requests", "lanes", "conflicts", "sectors"]
        margin = {}
        for number, (requests, threads, conflicts, sectors) in self.line_counts().items():
            lanes = f"{threads / requests:.1f}"
            margin[number] = [
                f"{requests:,}",
                lanes,
                f"{conflicts:,}" if conflicts else "",
                f"{sectors:,}" if sectors else "",
            ]
        widths = [max(map(len, column)) for column in zip(headings, *margin.values(), strict=True)]
        source = self.source().splitlines()
        digits = len(str(len(source)))

        def one(cells: Sequence[str], number: str, text: str) -> str:
            counts = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            return f"{counts}  {number:>{digits}} | {text}".rstrip()

        lines = [one(margin.get(i, [""] * 4), str(i), text) for i, text in enumerate(source, 1)]
        return "\n".join([one(headings, "", self.file), *lines]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
            The attributes; ``"figures"`` are those of :class:`Figures` with its ratios.
        """
        names = ("kernel", "op", "dtype", "n", "rows", "block_size", "figures", "launches")
        return {name: _as_plain(getattr(self, name)) for name in names}

    def _rows(self) -> list[list[Any]]:
        return _rows_of([self])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the operations of each thread of one block over time, with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to; a figure of its own by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        expect_axes(ax)
        return picture.plot([self], None if ax is None else [ax])[0]

    def _repr_html_(self) -> str:
        return page.fragment([self])


class Explanations(Exported, Sequence[Explanation]):
    """Several :class:`Explanation`, side by side.

    It prints as one table with a column per kernel, and shows and draws the kernels beside one
    another. The first rows are what differs between the runs (alias, elements, threads per block),
    and the line below is what they share. Its CSV has a row per column of each launch of each
    kernel.

    Parameters
    ----------
    explanations : iterable of Explanation
    """

    def __init__(self, explanations: Iterable[Explanation]) -> None:
        self._all = tuple(explanations)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        return Explanations(self._all[index]) if isinstance(index, slice) else self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanations) and self._all == other._all

    def __hash__(self) -> int:
        return hash(tuple(each.title for each in self._all))

    def _summary(self) -> str:
        return ", ".join(names_of(self._all))

    def __str__(self) -> str:
        if not self._all:
            return "no kernels\n"
        table = lay_out(*comparison_table(self), left=1, width=terminal_width())
        lines = [caption(self)]
        if len({each.n for each in self}) > 1:
            lines.append(_WHY_SIZES_DIFFER)
        return f"{table}\n\n{fold_lines(lines, terminal_width())}\n"

    def to_dict(self) -> list[dict[str, Any]]:
        """Each explanation as a dictionary.

        Returns
        -------
        list of dict
        """
        return [each.to_dict() for each in self._all]

    def _rows(self) -> list[list[Any]]:
        return _rows_of(self._all)

    def plot(self, axes: Sequence[Axes] | None = None) -> list[Axes]:
        """Draw the kernels side by side, with one scale and one legend.

        Parameters
        ----------
        axes : sequence of matplotlib.axes.Axes, optional
            Where to, one for each kernel; a figure of their own by default.

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        ValueError
            Not as many axes as kernels, or no kernels.
        """
        return picture.plot(self._all, axes)

    def _repr_html_(self) -> str:
        return page.fragment(self._all)


_WHY_SIZES_DIFFER = (
    "the arrays differ in size, and so do the counts: n, or -n, sets it for all. By default an "
    "array fills four blocks, and kernels differ in threads per block (block_size, --block-size) "
    "and in elements per thread"
)


def _as_plain(value: Any) -> Any:
    """Records as dictionaries, and tuples as lists, as JSON would have them."""
    if isinstance(value, (list, tuple)):
        return [_as_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _as_plain(each) for key, each in value.items()}
    if isinstance(value, Figures):
        return value.to_dict()
    if is_dataclass(value):
        return {each.name: _as_plain(getattr(value, each.name)) for each in fields(value)}
    return value


def _rows_of(explanations: Iterable[Explanation]) -> list[list[Any]]:
    names = [name for name in Figures.__slots__ if name not in ("launches", "most_on_one_address")]
    place = ["kernel", "launch", "stage", "phase", "step", "ends", "file", "line", "blocks"]
    lines: list[list[Any]] = [[*place, *names, *RATIOS]]
    for each in explanations:
        for number, launch in enumerate(each.launches, 1):
            for column in launch.columns:
                figures = column.figures.to_dict()
                where = [getattr(column, name) for name in place[3:]]
                lines.append(
                    [
                        each.kernel,
                        number,
                        launch.stage,
                        *where,
                        *(figures[n] for n in (*names, *RATIOS)),
                    ]
                )
    return lines


make_public(Explanation, Explanations)
