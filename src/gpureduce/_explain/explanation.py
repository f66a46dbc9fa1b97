"""What a kernel did, as records: read from the emulator's report, counted up, printed.

:func:`gpureduce.explain` makes them. Nothing here runs anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

from .. import _core
from .._display.tables import Exported, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Atomics",
    "BlockMap",
    "Column",
    "Count",
    "Explanation",
    "Explanations",
    "Figures",
    "Launch",
    "Line",
    "read_report",
]

REPORT_FORMAT = 1
WARP_LANES = 32
MOST_ROWS = 48
"""Columns of a launch that its printed table shows; of a longer one, the first and last ones."""

LOAD_GLOBAL, STORE_GLOBAL, LOAD_SHARED, STORE_SHARED, ATOMIC_SHARED, ATOMIC_GLOBAL, EXCHANGE = (
    1 << i for i in range(7)
)
"""Bits of :attr:`BlockMap.did`."""

_EXCHANGES = ("shuffle", "vote", "reduce")
_MEMORY = ("shared_load", "shared_store", "shared_atomic", "global_load", "global_store", "global_atomic")


@dataclass(frozen=True, slots=True)
class Count:
    """How much of one operation there was; what does not apply to the operation is 0.

    Attributes
    ----------
    requests, threads
        Instructions of warps, and lanes that took part in them.
    bytes
        Moved by them.
    wavefronts, ideal
        Of shared memory: passes over the 32 banks, and as many as there would be without bank conflicts.
    sectors, ideal_sectors
        Of global memory: pieces of 32 bytes that were touched, and as many as the bytes would fill side by side.
    """

    requests: int
    threads: int
    bytes: int = 0
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    ideal_sectors: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted: of a column, of a launch or of all launches. Each word means the same everywhere.

    Attributes
    ----------
    launches
        Kernels started.
    barriers
        Block barriers (``__syncthreads``) that a block passes.
    active_threads, active_warps
        Threads that do something, and warps in which one does: touch memory or exchange registers. Computing in
        registers and waiting are not counted as doing something. Over several columns: sums.
    slots
        Threads of the warps that are still there: they have something to do in this column or later, or come to a
        block barrier. Over several columns: a sum.
    shared_loads, shared_stores
        Requests to shared memory. A *request* is one instruction of one warp, however many of its lanes take part.
    bank_conflicts
        Passes over the 32 banks of shared memory beyond those needed without conflicts: words that lie in the same
        bank queue up.
    wavefronts, ideal_wavefronts
        All such passes, and those needed without conflicts, as a card counts them: by a load as many as its words
        fill, by a store one for each group of neighbouring lanes that could fill the banks.
    shuffles
        Requests by which the lanes of a warp exchange registers: shuffles, votes, warp-wide reductions.
    atomics
        Atomic operations, in shared and global memory, one a lane.
    most_on_one_address
        The most of them that met on one address, where they queue; ``None`` of a single column.
    global_requests
        Loads, stores and atomics of global memory.
    sectors, ideal_sectors
        Pieces of 32 bytes that these touch, and as many as their bytes would fill if they lay side by side.
    requests, request_lanes
        Requests to memory of any kind, and lanes that took part in them.
    """

    launches: int
    barriers: int
    active_threads: int
    active_warps: int
    slots: int
    shared_loads: int
    shared_stores: int
    bank_conflicts: int
    wavefronts: int
    ideal_wavefronts: int
    shuffles: int
    atomics: int
    most_on_one_address: int | None
    global_requests: int
    sectors: int
    ideal_sectors: int
    requests: int
    request_lanes: int

    @property
    def lanes_per_warp(self) -> float | None:
        """Active threads in an active warp, of 32: the fewer, the more the warp diverges."""
        return _ratio(self.active_threads, self.active_warps)

    @property
    def lanes_per_request(self) -> float | None:
        """Lanes that take part in a request to memory, of 32."""
        return _ratio(self.request_lanes, self.requests)

    @property
    def idle(self) -> float | None:
        """Share of the slots in which a thread does nothing."""
        return _ratio(self.slots - self.active_threads, self.slots)

    @property
    def ways(self) -> float | None:
        """Passes over the banks for each one needed: 1 is without conflicts, 2 a two-way conflict, up to 32."""
        return _ratio(self.wavefronts, self.ideal_wavefronts)

    @property
    def sectors_per_request(self) -> float | None:
        """Sectors that a request to global memory touches."""
        return _ratio(self.sectors, self.global_requests)

    @property
    def coalescing(self) -> float | None:
        """Ideal sectors over sectors: 1 if all that is fetched was asked for."""
        return _ratio(self.ideal_sectors, self.sectors)

    def to_dict(self) -> dict[str, Any]:
        """All figures, ratios included; ``None`` where there is nothing to divide by.

        Returns
        -------
        dict
        """
        return asdict(self) | {name: getattr(self, name) for name in RATIOS}


RATIOS = ("lanes_per_warp", "lanes_per_request", "idle", "ways", "sectors_per_request", "coalescing")


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _add_up(figures: Iterable[Figures], *, launches: int | None = None, most: int | None = None) -> Figures:
    """Sum of figures; of ``most_on_one_address`` the largest."""
    rows = [asdict(each) for each in figures]
    total: dict[str, Any] = {
        name: sum(row[name] or 0 for row in rows) for name in Figures.__slots__ if name != "most_on_one_address"
    }
    known = [row["most_on_one_address"] for row in rows if row["most_on_one_address"] is not None]
    total["most_on_one_address"] = max(known, default=None) if most is None else most
    if launches is not None:
        total["launches"] = launches
    return Figures(**total)


@dataclass(frozen=True, slots=True)
class Column:
    """One step of a phase: a row of the printed table, a column of the picture.

    A *phase* lies between two block barriers, a *step* of it between two things that a warp does together: a warp
    barrier, a shuffle, a vote. A kernel without those has one step a phase.

    Attributes
    ----------
    phase, step
        Counted from 0.
    ends
        What it ends with: ``"barrier"``, ``"warp_barrier"``, ``"shuffle"``, ``"vote"``, ``"reduce"`` or ``"exit"``.
    file, line
        Where that is, in the kernel's own file if it is called from there; ``""`` and 0 for the kernel's end.
    blocks
        Blocks that got here.
    ops
        :class:`Count` of each kind of operation that occurs.
    figures
        What that comes to.
    """

    phase: int
    step: int
    ends: str
    file: str
    line: int
    blocks: int
    ops: dict[str, Count]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of source did, in a whole launch: an operation and its :class:`Count`.

    `file` and `line` are the place itself, `from_file` and `from_line` the line of the kernel that it was called from.
    """

    file: str
    line: int
    from_file: str
    from_line: int
    op: str
    count: Count


@dataclass(frozen=True, slots=True)
class Atomics:
    """Atomic operations of a launch on one kind of memory: how many, on how many addresses, the most on one."""

    operations: int
    addresses: int
    most: int


@dataclass(frozen=True, slots=True)
class BlockMap:
    """What each thread of one block did in each column; at most 512 columns.

    Attributes
    ----------
    block, threads
        Which block, and its size.
    did
        For each column, for each thread, the sum of 1 global load, 2 global store, 4 shared load, 8 shared store, 16
        shared atomic, 32 global atomic, 64 shuffle, vote or warp-wide reduction; 0 is nothing.
    ways
        For each column, for each thread, the worst of the requests to shared memory that it took part in: passes for
        each one needed, rounded up; 0 if it took part in none.
    """

    block: int
    threads: int
    did: tuple[tuple[int, ...], ...]
    ways: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a kernel.

    Attributes
    ----------
    entry
        The template that ran, as ``"gpr::sequential<First, 256u>"``.
    stage
        ``"first"`` over the array, ``"next"`` over the partials of the launch before, ``"fill"`` to put the identity
        into the outputs that atomics fold into, ``"finish"`` to turn accumulators into results.
    grid, block
        Blocks, and threads of each.
    shared_bytes
        Shared memory of a block.
    columns
        Its course, in the order of time.
    lines
        Its operations by source line.
    atomics
        :class:`Atomics` on ``"shared"`` and ``"global"`` memory.
    map
        What each thread of the first block did.
    figures
        Of all columns together.
    """

    entry: str
    stage: str
    grid: int
    block: int
    shared_bytes: int
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    atomics: dict[str, Atomics]
    map: BlockMap
    figures: Figures


# ---------------------------------------------------------------- reading a report


def read_report(text: str) -> tuple[Launch, ...]:
    """Launches of the emulator's report: one JSON object a line.

    Parameters
    ----------
    text : str

    Returns
    -------
    tuple of Launch
    """
    launches: list[Launch] = []
    for line in text.splitlines():
        report = json.loads(line)
        if report["format"] != REPORT_FORMAT:
            raise RuntimeError(
                f"the emulator reports in format {report['format']}, this package reads {REPORT_FORMAT}: "
                "they were built from different versions; install the package again"
            )
        seen_first = any(launch.stage == "first" for launch in launches)
        launches.append(_read_launch(report, _stage(report["entry"], seen_first)))
    return tuple(launches)


def _stage(entry: str, seen_first: bool) -> str:
    if "::fill_identity<" in entry:
        return "fill"
    if "::finish_rows<" in entry:
        return "finish"
    # Where partials have the elements' type, one template serves the passes over both.
    return "next" if "<Next," in entry or seen_first else "first"


def _read_count(row: dict[str, Any]) -> Count:
    return Count(**{name: row[name] for name in Count.__slots__ if name in row})


def _read_launch(report: dict[str, Any], stage: str) -> Launch:
    warps_there = _warps_there(report["columns"])
    barriers = _barriers(report["columns"])
    columns = tuple(
        _read_column(row, WARP_LANES * there, ends)
        for row, there, ends in zip(report["columns"], warps_there, barriers, strict=True)
    )
    atomics = {where: Atomics(*(row[name] for name in Atomics.__slots__)) for where, row in report["atomics"].items()}
    most = max((each.most for each in atomics.values()), default=0)
    picture = report["map"]
    return Launch(
        entry=report["entry"],
        stage=stage,
        grid=report["grid"],
        block=report["block"],
        shared_bytes=report["shared_bytes"],
        columns=columns,
        lines=tuple(_read_line(row) for row in report["lines"]),
        atomics=atomics,
        map=BlockMap(
            picture["block"],
            picture["threads"],
            tuple(map(tuple, picture["did"])),
            tuple(map(tuple, picture["ways"])),
        ),
        figures=_add_up((column.figures for column in columns), launches=1, most=most),
    )


def _warps_there(rows: list[dict[str, Any]]) -> list[int]:
    """Warps, over all blocks, that are still there in each column: they work then or later, or come to a barrier."""
    arrivals: dict[int, int] = {}
    for row in rows:
        waiting = row["ops"].get("barrier", {"requests": 0})["requests"]
        arrivals[row["phase"]] = arrivals.get(row["phase"], 0) + waiting
    there: list[int] = []
    most = 0
    for row in reversed(rows):
        most = max(most, row["warps"], arrivals[row["phase"]])
        there.append(most)
    return there[::-1]


def _barriers(rows: list[dict[str, Any]]) -> list[int]:
    """1 for the last column of each phase that a block barrier ends, else 0."""
    last = {row["phase"]: i for i, row in enumerate(rows)}
    ended = {last[row["phase"]] for row in rows if "barrier" in row["ops"]}
    return [int(i in ended) for i in range(len(rows))]


def _read_column(row: dict[str, Any], slots: int, barriers: int) -> Column:
    ops = {name: _read_count(count) for name, count in row["ops"].items()}
    return Column(
        phase=row["phase"],
        step=row["step"],
        ends=row["ends"],
        file=row.get("from_file") or row["file"],
        line=row.get("from_line") or row["line"],
        blocks=row["blocks"],
        ops=ops,
        figures=_count(ops, row["threads"], row["warps"], slots, barriers),
    )


def _count(ops: dict[str, Count], threads: int, warps: int, slots: int, barriers: int) -> Figures:
    def total(field: str, *names: str) -> int:
        return sum(getattr(ops[name], field) for name in names if name in ops)

    shared = ("shared_load", "shared_store", "shared_atomic")
    in_global = ("global_load", "global_store", "global_atomic")
    wavefronts, ideal = total("wavefronts", *shared), total("ideal", *shared)
    return Figures(
        launches=0,
        barriers=barriers,
        active_threads=threads,
        active_warps=warps,
        slots=slots,
        shared_loads=total("requests", "shared_load"),
        shared_stores=total("requests", "shared_store"),
        bank_conflicts=wavefronts - ideal,
        wavefronts=wavefronts,
        ideal_wavefronts=ideal,
        shuffles=total("requests", *_EXCHANGES),
        atomics=total("threads", "shared_atomic", "global_atomic"),
        most_on_one_address=None,
        global_requests=total("requests", *in_global),
        sectors=total("sectors", *in_global),
        ideal_sectors=total("ideal_sectors", *in_global),
        requests=total("requests", *_MEMORY),
        request_lanes=total("threads", *_MEMORY),
    )


def _read_line(row: dict[str, Any]) -> Line:
    return Line(
        file=row["file"],
        line=row["line"],
        from_file=row.get("from_file") or row["file"],
        from_line=row.get("from_line") or row["line"],
        op=row["op"],
        count=_read_count(row),
    )


# ---------------------------------------------------------------- tables of text

FIGURE_WORDS: tuple[tuple[str, str], ...] = (
    ("launches", "launches"),
    ("barriers", "barriers"),
    ("active_threads", "active threads"),
    ("active_warps", "active warps"),
    ("lanes_per_warp", "lanes per warp"),
    ("lanes_per_request", "lanes per request"),
    ("idle", "idle"),
    ("global_requests", "global requests"),
    ("sectors", "sectors"),
    ("sectors_per_request", "sectors per request"),
    ("coalescing", "coalescing"),
    ("shared_loads", "shared loads"),
    ("shared_stores", "shared stores"),
    ("bank_conflicts", "bank conflicts"),
    ("ways", "ways"),
    ("shuffles", "shuffles"),
    ("atomics", "atomics"),
    ("most_on_one_address", "most on one address"),
)
"""Figures that tables show, and how they call them."""

_IN_COLUMNS = (
    *("active_threads", "active_warps", "lanes_per_warp", "idle", "global_requests", "sectors", "coalescing"),
    *("shared_loads", "shared_stores", "bank_conflicts", "ways", "shuffles", "atomics"),
)
_SHARES = ("idle", "coalescing")
_SHOWN_WITH = {
    "sectors": "global_requests",
    "coalescing": "global_requests",
    "sectors_per_request": "global_requests",
    "ways": "wavefronts",
    "bank_conflicts": "wavefronts",
    "most_on_one_address": "atomics",
}
"""Figures that say something only where there is some of another."""


def show_figure(figures: Figures, name: str) -> str:
    """One figure as text; ``"-"`` if there is none."""
    value = getattr(figures, name)
    if value is None:
        return "-"
    if name in _SHARES:
        return f"{value:.1%}" if value < 1 else "100%"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def shown_names(names: Iterable[str], many: Sequence[Figures]) -> list[str]:
    """Those figures that are not 0 or meaningless in all of `many`."""
    return [name for name in names if any(getattr(figures, _SHOWN_WITH.get(name, name)) for figures in many)]


def column_table(launch: Launch, own_file: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a launch's table: what ends each column, and its figures.

    Lines of `own_file` go without its name.
    """
    words = dict(FIGURE_WORDS)
    many_steps = any(column.step for column in launch.columns)
    names = shown_names(_IN_COLUMNS, [column.figures for column in launch.columns])
    names += [name for name in ("active_threads", "active_warps") if name not in names]
    rows = []
    for column in launch.columns:
        where = "" if not column.file else f", line {column.line}"
        if column.file not in ("", own_file):
            where += f" of {column.file}"
        phase = f"{column.phase}.{column.step}" if many_steps else f"{column.phase}"
        shown = [show_figure(column.figures, name) for name in names]
        rows.append([phase, column.ends.replace("_", " ") + where, *shown])
    return ["phase.step" if many_steps else "phase", "ends with", *(words[name] for name in names)], rows


def totals_table(explanation: Explanation) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the launches' figures, and of all together."""
    parts = [launch.figures for launch in explanation.launches]
    names = shown_names([name for name, _ in FIGURE_WORDS if name != "launches"], [*parts, explanation.figures])
    words = dict(FIGURE_WORDS)
    rows = [
        [f"{i} {launch.stage}", f"{launch.grid:,} x {launch.block:,}", *(show_figure(launch.figures, n) for n in names)]
        for i, launch in enumerate(explanation.launches, 1)
    ]
    if len(parts) > 1:
        rows.append(["all", "", *(show_figure(explanation.figures, name) for name in names)])
    return ["launch", "grid x block", *(words[name] for name in names)], rows


def comparison_table(explanations: Sequence[Explanation]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of several kernels' figures, a kernel a column."""
    many = [each.figures for each in explanations]
    names = shown_names([name for name, _ in FIGURE_WORDS], many)
    words = dict(FIGURE_WORDS)
    rows = [[words[name], *(show_figure(figures, name) for figures in many)] for name in names]
    return ["", *(each.kernel for each in explanations)], rows


def shorten(rows: list[list[str]]) -> list[list[str]]:
    """Leave out the middle of a long table, and say how much of it."""
    if len(rows) <= MOST_ROWS:
        return rows
    half = MOST_ROWS // 2
    note = ["...", f"{len(rows) - 2 * half:,} more", *[""] * (len(rows[0]) - 2)]
    return [*rows[:half], note, *rows[-half:]]


# ---------------------------------------------------------------- explanations


@dataclass(frozen=True, slots=True)
class Explanation(Exported):
    """What a kernel did with an array, launch by launch; :func:`explain` makes it.

    Prints as a table, shows itself in a notebook with its annotated source and a picture, and draws that picture with
    matplotlib. What is counted is said by :class:`Figures`. As CSV it has a row for each column of each launch.

    Attributes
    ----------
    kernel
        Its name in the catalogue.
    op, dtype
        Operator, and dtype of the elements.
    n, rows
        Elements of a row, and rows.
    block_size
        Threads of a block, of the first launch over the array.
    launches
        The :class:`Launch` records, in order.
    """

    kernel: str
    op: str
    dtype: str
    n: int
    rows: int
    block_size: int
    launches: tuple[Launch, ...]

    @property
    def main(self) -> Launch:
        """The first launch over the array: the one whose course is shown."""
        return next(launch for launch in self.launches if launch.stage == "first")

    @property
    def file(self) -> str:
        """Name of the kernel's source file."""
        return _core.KERNEL_FILES[self.kernel]

    @property
    def figures(self) -> Figures:
        """:class:`Figures` of all launches together."""
        return _add_up(launch.figures for launch in self.launches)

    @property
    def title(self) -> str:
        """One line that says what was run."""
        rows = f"{self.rows:,} rows of " if self.rows > 1 else ""
        return f"{self.kernel}: {self.op} of {rows}{self.n:,} {self.dtype}, blocks of {self.block_size:,} threads"

    def __str__(self) -> str:
        headings, rows = column_table(self.main, self.file)
        course = lay_out(headings, shorten(rows), left=2)
        totals = lay_out(*totals_table(self), left=2)
        number = self.launches.index(self.main) + 1
        return f"{self.title}\n\nlaunch {number}, its course\n\n{course}\n\nlaunches\n\n{totals}\n"

    def annotated_source(self) -> str:
        """The kernel's CUDA source, with what each line did in the margin.

        Returns
        -------
        str
            Counts are of :attr:`main`; what a helper did stands at the line that calls it.
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

    def source(self) -> str:
        """The kernel's CUDA source, as :func:`kernel_source` has it.

        Returns
        -------
        str
        """
        return _core.sources()[self.file]

    def line_counts(self) -> dict[int, tuple[int, int, int, int]]:
        """Requests, lanes in them, bank conflicts and sectors of the kernel's source lines, in :attr:`main`.

        Returns
        -------
        dict
            By line number, counted from 1; lines that did nothing are not in it. Requests are all of a warp's
            instructions that are counted at all: memory, shuffles, barriers, fences.
        """
        found: dict[int, tuple[int, int, int, int]] = {}
        for line in self.main.lines:
            if line.from_file == self.file:
                one = line.count
                so_far = found.get(line.from_line, (0, 0, 0, 0))
                more = (one.requests, one.threads, one.wavefronts - one.ideal, one.sectors)
                found[line.from_line] = (
                    so_far[0] + more[0],
                    so_far[1] + more[1],
                    so_far[2] + more[2],
                    so_far[3] + more[3],
                )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
            The attributes; ``"figures"`` are those of :class:`Figures` with its ratios.
        """
        launches = []
        for launch in self.launches:
            row = asdict(launch)
            row["figures"] = launch.figures.to_dict()
            for plain, column in zip(row["columns"], launch.columns, strict=True):
                plain["figures"] = column.figures.to_dict()
            launches.append(_as_lists(row))
        head = {name: getattr(self, name) for name in ("kernel", "op", "dtype", "n", "rows", "block_size")}
        return {**head, "figures": self.figures.to_dict(), "launches": launches}

    def _rows(self) -> list[list[Any]]:
        return _rows_of([self])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what each thread of one block does, over time, with matplotlib.

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
        from . import picture

        return picture.plot([self], None if ax is None else [ax])[0]

    def _repr_html_(self) -> str:
        from . import page

        return page.fragment([self])


class Explanations(Exported, Sequence[Explanation]):
    """Several :class:`Explanation`, to look at side by side.

    Prints as one table with a kernel a column; shows and draws the kernels beside one another. As CSV it has a row for
    each column of each launch of each kernel.

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

    def __repr__(self) -> str:
        return f"Explanations({list(self._all)!r})"

    def __str__(self) -> str:
        return lay_out(*comparison_table(self), left=1) + "\n"

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
        from . import picture

        return picture.plot(self._all, axes)

    def _repr_html_(self) -> str:
        from . import page

        return page.fragment(self._all)


def _as_lists(value: Any) -> Any:
    """Tuples as lists, as JSON would have them."""
    if isinstance(value, dict):
        return {key: _as_lists(each) for key, each in value.items()}
    return [_as_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def _rows_of(explanations: Iterable[Explanation]) -> list[list[Any]]:
    names = [name for name in Figures.__slots__ if name not in ("launches", "most_on_one_address")]
    place = ["kernel", "launch", "stage", "phase", "step", "ends", "file", "line", "blocks"]
    lines: list[list[Any]] = [[*place, *names, *RATIOS]]
    for each in explanations:
        for number, launch in enumerate(each.launches, 1):
            for column in launch.columns:
                figures = column.figures.to_dict()
                where = [getattr(column, name) for name in place[3:]]
                lines.append([each.kernel, number, launch.stage, *where, *(figures[n] for n in (*names, *RATIOS))])
    return lines


for _class in (Explanation, Explanations):
    _class.__module__ = "gpureduce"
del _class
