"""Tables of a kernel's counts, as headings and rows of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .. import _core
from .launches import Column, Figures, KernelRun, Launch

__all__ = [
    "FIGURE_WORDS",
    "caption",
    "column_table",
    "comparison_table",
    "names_of",
    "shorten",
    "show_figure",
    "shuffle_note",
    "stages_note",
    "totals_table",
]


MOST_ROWS = 48
"""Columns of a launch that its printed table shows; of a longer one, the first and last ones."""
FIGURE_WORDS: tuple[tuple[str, str], ...] = (
    ("launches", "launches"),
    ("barriers", "barriers"),
    ("active_threads", "active threads"),
    ("active_warps", "active warps"),
    ("lanes_per_warp", "lanes per warp"),
    ("lanes_per_request", "lanes per request"),
    ("diverged", "idle lanes"),
    ("waiting", "idle warps"),
    ("global_requests", "global requests"),
    ("sectors", "sectors"),
    ("sectors_per_request", "sectors per request"),
    ("coalescing", "coalescing"),
    ("shared_loads", "shared loads"),
    ("shared_stores", "shared stores"),
    ("bank_conflicts", "bank conflicts"),
    ("ways", "ways"),
    ("shuffles", "shuffles"),
    ("copies", "async copies"),
    ("atomics", "atomics"),
    ("most_on_one_address", "most on one address"),
)
"""Figures that tables show, and their headings."""
_IN_COLUMNS = (
    *(
        "active_threads",
        "active_warps",
        "lanes_per_warp",
        "diverged",
        "waiting",
        "global_requests",
        "sectors",
        "coalescing",
    ),
    *("shared_loads", "shared_stores", "bank_conflicts", "ways", "shuffles", "copies", "atomics"),
)
_MOST_STAGES = 3
"""Launches of a kernel that are named, where kernels are compared."""
_SHARES = ("diverged", "waiting", "coalescing")
_BEST = {
    "diverged": "idle lanes, warp active (best: 0%)",
    "waiting": "idle warps (cheap)",
}
"""Words of figures that say which of the two costs time, where kernels are compared."""
_SHOWN_WITH = {
    "sectors": "global_requests",
    "coalescing": "global_requests",
    "sectors_per_request": "global_requests",
    "ways": "wavefronts",
    "bank_conflicts": "wavefronts",
    "most_on_one_address": "atomics",
}
"""Figures that are shown only where another one is not 0."""


def show_figure(figures: Figures, name: str) -> str:
    """One figure as text; ``"-"`` if there is none."""
    value = getattr(figures, name)
    if value is None:
        return "-"
    if name in _SHARES:
        return f"{value:.1%}" if value < 1 else "100%"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def shown_names(names: Iterable[str], many: Sequence[Figures]) -> list[str]:
    """Those figures that are neither 0 nor undefined in all of `many`."""
    return [
        name
        for name in names
        if any(getattr(figures, _SHOWN_WITH.get(name, name)) for figures in many)
    ]


def column_table(launch: Launch, own_file: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a launch's table: how each column ends, and its figures.

    Places in `own_file` are shown without the file's name.
    """
    words = dict(FIGURE_WORDS)
    many_steps = any(column.step for column in launch.columns)
    names = shown_names(_IN_COLUMNS, [column.figures for column in launch.columns])
    names += [name for name in ("active_threads", "active_warps") if name not in names]
    rows = []
    for column in launch.columns:
        phase = f"{column.phase}.{column.step}" if many_steps else f"{column.phase}"
        shown = [show_figure(column.figures, name) for name in names]
        rows.append([phase, column.ends.replace("_", " ") + _place(column, own_file), *shown])
    return [
        "phase.step" if many_steps else "phase",
        "ends with",
        *(words[name] for name in names),
    ], rows


def _place(column: Column, own_file: str) -> str:
    """Where a column ends: the line, and of a helper the line that calls it, too."""
    if not column.file:
        return ""
    line = f"line {column.line}"
    if column.file != own_file:
        line += f" of {column.file}"
    if (column.op_file, column.op_line) == (column.file, column.line):
        return f", {line}"
    return f", {column.op_file}:{column.op_line} from {line}"


def shuffle_note(launch: Launch) -> str:
    """Why there are as many shuffles as there are; "" if there are none."""
    phases = {column.phase for column in launch.columns if column.ends == "shuffle"}
    if not phases:
        return ""
    note = (
        "A warp combines its 32 lanes in 5 steps, because 2^5 = 32; a step takes a shuffle per 4 "
        "bytes of the accumulator."
    )
    if len(phases) > 1:
        note += (
            " Each warp does so before the barrier, and one warp after it, with the warps' results."
        )
    return note


def totals_table(run: KernelRun) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the launches' figures, and of all together."""
    parts = [launch.figures for launch in run.launches]
    names = shown_names(
        # "waiting" costs little, and lines are long
        [name for name, _ in FIGURE_WORDS if name not in ("launches", "waiting")],
        [*parts, run.figures],
    )
    words = dict(FIGURE_WORDS)
    rows = [
        [
            f"{i} {launch.stage}",
            f"{launch.grid:,} x {launch.block:,}",
            *(show_figure(launch.figures, n) for n in names),
        ]
        for i, launch in enumerate(run.launches, 1)
    ]
    if len(parts) > 1:
        rows.append(["all", "", *(show_figure(run.figures, name) for name in names)])
    return ["launch", "grid x block", *(words[name] for name in names)], rows


def names_of(runs: Sequence[KernelRun]) -> list[str]:
    """A name per run: of runs of kernels that share one, a kernel of the user's own has its file's,
    and further ones are numbered.
    """
    count = Counter(each.kernel for each in runs)
    names: list[str] = []
    for each in runs:
        is_own = each.own_source is not None and count[each.kernel] > 1
        name = f"{each.kernel} in {each.file}" if is_own else each.kernel
        name += f" ({each.chosen_by})" if each.chosen_by else ""
        same = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{same + 1}" if same else name)
    return names


def comparison_table(runs: Sequence[KernelRun]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of several kernels' figures, with a column per kernel."""
    many = [each.figures for each in runs]
    names = shown_names([name for name, _ in FIGURE_WORDS], many)
    words = dict(FIGURE_WORDS) | _BEST
    rows = [[words[name], *(show_figure(figures, name) for figures in many)] for name in names]
    rows[0] = ["launches", *map(_launches, runs)]
    facts = [
        ("alias", [_aliases(each) for each in runs]),
        ("elements", [f"{each.n:,}" for each in runs]),
        ("threads per block", [f"{each.block_size:,}" for each in runs]),
    ]
    first = [[word, *cells] for word, cells in facts if len(set(cells)) > 1]
    return ["all launches", *names_of(runs)], first + rows


def _launches(run: KernelRun) -> str:
    """How many, and what they are for if there are few."""
    stages = [launch.stage for launch in run.launches]
    return ", ".join(stages) if len(stages) <= _MOST_STAGES else f"{len(stages):,}"


def caption(runs: Sequence[KernelRun]) -> str:
    """What :func:`comparison_table` is of, as far as it is common to all runs."""
    one, *_ = runs
    common = {word: len({getattr(each, word) for each in runs}) == 1 for word in _COMMON}
    parts = []
    if common["op"] and common["dtype"]:
        n = f"{one.n:,} " if common["n"] else ""
        rows = f"{one.rows:,} rows of " if common["rows"] and one.rows > 1 else ""
        parts.append(f"{one.op} of {rows}{n}{one.dtype}")
    if common["block_size"]:
        parts.append(f"blocks of {one.block_size:,} threads")
    return ", ".join([*parts, "counts of all launches on the emulated GPU"])


_STAGES = {
    "fill": "fill stores the identity where atomics add",
    "first": "first reads the array",
    "next": "next reads the partials of the launch before",
    "finish": "finish, one thread per result, makes results of accumulators",
}


def stages_note(runs: Sequence[KernelRun]) -> str:
    """What the names of launches mean that occur."""
    seen = {launch.stage for each in runs for launch in each.launches}
    return "; ".join(words for stage, words in _STAGES.items() if stage in seen)


_COMMON = ("op", "dtype", "n", "rows", "block_size")


def _aliases(run: KernelRun) -> str:
    if run.own_source is not None:
        return ""
    row = next((each for each in _core.kernels() if each["name"] == run.kernel), None)
    return "" if row is None else ", ".join(row["aliases"].split())


def shorten(rows: list[list[str]]) -> list[list[str]]:
    """Replace the middle of a long table by a row with the number of rows left out."""
    if len(rows) <= MOST_ROWS:
        return rows
    half = MOST_ROWS // 2
    note = ["...", f"{len(rows) - 2 * half:,} more", *[""] * (len(rows[0]) - 2)]
    return [*rows[:half], note, *rows[-half:]]
