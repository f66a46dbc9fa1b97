"""Kernels and libraries side by side on one array: :func:`gpureduce.compare`.

Times from host memory to a result and times of the kernels alone are of two kinds, and stay in columns of their own: no
speedup has one kind above and the other below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._display.tables import (
    Exported,
    lay_out,
    markdown,
    show_bandwidth,
    show_bytes,
    show_count,
    show_ratio,
    show_time,
    time_unit,
)
from .._records import kernels as catalogue
from .._records import last_run, limits
from .baselines import NumPy, available, numpy_function
from .benchmark_array import Operand, on_host, operand
from .clocks import moved
from .environment import environment
from .profile import check_possible, counter_table, profile_kernel
from .roofline import ceiling_or_why
from .sampling import NOISY, Spread, Turn, progress_bar, take_turns
from .session import REFUSED, Bed, check_operator, ignoring_array
from .timing import finished, flat_environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

__all__ = ["BreakEven", "Comparison", "Contender", "check", "compare"]

BASELINES = ("numpy", "cub", "cupy", "torch")
SECONDS, PRECISION = 0.5, 0.02
BREAK_EVEN_FIRST, BREAK_EVEN_FACTOR = 256, 8
"""Elements of the smallest array on which the break-even is looked for, and how much longer each next one is."""
BREAK_EVEN_SECONDS = 0.05
_ROUNDED_ALWAYS = ("mean", "var", "std")
_PIECE = 1 << 22
_HALF_BYTES = 2
SPREAD_OF_SUMS = 4.0
"""How many standard deviations a sum of rounded additions may be off; see :func:`check`."""

_BARE = ("name", "is_kernel", "block_size", "grid_size", "elements", "bytes", "ran_on", "right", "ulps")
FIRST, NUMPY, BEST_PEER = "first", "numpy", "best peer"


# ---------------------------------------------------------------- right or wrong


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result is right, and how far off it is at most, in ulps of the right one."""

    right: bool
    ulps: float


def reference(op: str, array: np.ndarray[Any, Any], axis: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """NumPy's result in extended precision, and how much a result of rounded operations may be off.

    The first is exact for integers and for everything that does not round. Whatever the order of n additions, each
    rounded with unit roundoff u, their sum is off by less than 4 sqrt(n) u times the sum of magnitudes but with
    vanishing probability; a product in the same way by its own magnitude. Where errors do not cancel, as where many
    numbers are added to a sum that has outgrown them, it is off by more, and wrong.
    """
    function = numpy_function(op)
    is_float = array.dtype.kind in "fcV"
    name = op.removeprefix("nan")
    if name not in (_ROUNDED_ALWAYS if not is_float else (*_ROUNDED_ALWAYS, "sum", "prod")):
        exact = np.asarray(function(array, axis=axis))
        return exact, np.zeros(exact.shape)
    wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
    source = array.astype(np.float32) if array.dtype.kind == "V" else array  # V: bfloat16
    with np.errstate(all="ignore"):
        exact = np.asarray(function(source, axis=axis, dtype=wide))
        count = max(array.size // max(exact.size, 1), 1)
        is_double = not is_float or array.dtype in (np.float64, np.complex128)
        unit = 2.0**-53 if is_double else 2.0**-24
        adds = name in ("sum", "mean")
        magnitude = _magnitude(op, source, axis) if adds else np.abs(exact).astype(np.float64)
        return exact, SPREAD_OF_SUMS * math.sqrt(count) * unit * magnitude


Right = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""A right result, and how much another may be off: what :func:`reference` gives."""


def loosened(right: Right, dtype: np.dtype[Any]) -> Right:
    """For libraries, which may add 16-bit floats in their own type: NumPy does along all but the last axis."""
    exact, slack = right
    if dtype.itemsize != _HALF_BYTES or dtype.kind not in "fV":
        return right
    return exact, slack * (2.0**13 if dtype.kind == "f" else 2.0**16)  # to 11 and to 8 bits from 24


def _magnitude(op: str, source: np.ndarray[Any, Any], axis: Any) -> np.ndarray[Any, Any]:
    """Sum or mean of magnitudes, a piece at a time where that is possible: no second array of the first one's size."""
    function = numpy_function(op)
    if axis is not None or not source.flags.c_contiguous:
        return np.asarray(function(np.abs(source), axis=axis, dtype=np.float64))
    add: Callable[..., Any] = np.nansum if op.startswith("nan") else np.sum
    flat, total = source.reshape(-1), 0.0
    for first in range(0, flat.size, _PIECE):
        total += float(add(np.abs(flat[first : first + _PIECE]), dtype=np.float64))
    return np.asarray(total / flat.size if op.endswith("mean") else total)


def check(result: Any, right: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], like: np.dtype[Any]) -> Verdict:
    """Hold a result against :func:`reference`.

    Parameters
    ----------
    result : array_like
        On the host.
    right : tuple
        What :func:`reference` gave.
    like : dtype
        Of NumPy's own result: its ulps are counted.
    """
    exact, slack = right
    found = np.asarray(result)
    if found.shape != exact.shape:
        return Verdict(False, math.inf)
    if like.kind not in "fcV":
        wrong = found.astype(like, casting="unsafe") != exact
        if not np.any(wrong):
            return Verdict(True, 0.0)
        pairs = zip(found[wrong].flat, exact[wrong].flat, strict=True)
        return Verdict(False, float(max(abs(int(a) - int(b)) for a, b in pairs)))
    if like.kind == "c" or exact.dtype.kind == "c":
        parts = [check(part(found), (part(exact), slack), part(np.ones(1, like)).dtype) for part in (np.real, np.imag)]
        return Verdict(all(part.right for part in parts), max(part.ulps for part in parts))
    wide, narrow = exact.astype(np.longdouble), np.finfo(like) if like.kind == "f" else None
    with np.errstate(all="ignore"):
        rounded = wide.astype(like).astype(np.longdouble)
        mine = found.astype(like).astype(np.longdouble) if like.kind == "f" else found.astype(np.longdouble)
        bits, least = (narrow.nmant, narrow.minexp) if narrow is not None else (7, -126)
        exponent = np.frexp(np.where(np.isfinite(rounded), rounded, 0))[1] - 1
        ulp = np.ldexp(np.ones_like(wide), np.maximum(exponent, least) - bits)
        same = (mine == rounded) | (np.isnan(mine) & np.isnan(rounded))
        off = np.where(same, 0, np.abs(mine - wide))
        right_there = same | (off <= slack + ulp)
        ulps = np.where(same, 0, np.where(np.isfinite(off), off / ulp, np.inf))
    return Verdict(bool(np.all(right_there)), float(np.max(ulps)) if ulps.size else 0.0)


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of a :class:`Comparison`. Times are in seconds.

    Attributes
    ----------
    name
        A kernel's name, or a library's.
    is_kernel
        Whether it is one of ours.
    block_size, grid_size
        Threads per block and blocks of the first launch; 0 of a library, and on the CPU.
    elements, bytes
        Of the array, and bytes that had to move: its elements once, the results once.
    ran_on
        ``"cuda:N"`` or ``"cpu"``, ``""`` of what did not run.
    right, ulps
        Whether the result was right, and how far off it was, in ulps of the right one. What is wrong has no times.
    host
        :class:`Spread` of the wall time from the array where the caller has it to the result on the host.
    on_device
        :class:`Spread` of the device time of the kernels alone.
    absent
        Why there are no times at all, or ``""``.
    why_no_host, why_no_device
        Why there are none of one kind, or ``""``.
    counters
        Of each launch by Nsight Compute, if it was asked for.
    """

    name: str
    is_kernel: bool
    elements: int
    bytes: int
    block_size: int = 0
    grid_size: int = 0
    ran_on: str = ""
    right: bool | None = None
    ulps: float | None = None
    host: Spread | None = None
    on_device: Spread | None = None
    absent: str = ""
    why_no_host: str = ""
    why_no_device: str = ""
    counters: tuple[dict[str, Any], ...] = ()

    @property
    def label(self) -> str:
        """Its name, and the block size of a kernel."""
        return f"{self.name} ({self.block_size})" if self.block_size else self.name

    @property
    def host_bandwidth(self) -> float | None:
        """Bytes per second from host memory to the result, at the median."""
        return None if self.host is None else self.bytes / self.host.median

    @property
    def device_bandwidth(self) -> float | None:
        """Bytes per second of the kernels, at the median."""
        return None if self.on_device is None else self.bytes / self.on_device.median


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which size on a kernel answers sooner than ``numpy``, both from host memory to a result.

    Attributes
    ----------
    kernel, device
        What was held against NumPy, and where it ran.
    elements
        Where the two meet, interpolated on logarithmic axes between two sizes that were measured; ``None`` if one is
        ahead at all sizes.
    bytes
        The same in bytes.
    first_wins
        Whether the kernel is ahead beyond it; if there is none, at all sizes.
    sizes, ratios
        Elements of the arrays that were measured, and NumPy's time over the kernel's.
    """

    kernel: str
    device: str
    elements: int | None
    bytes: int | None
    first_wins: bool
    sizes: tuple[int, ...]
    ratios: tuple[float, ...]

    def __str__(self) -> str:
        what = f"from host memory to a result, {self.kernel} on {self.device}"
        if self.elements is None or self.bytes is None:
            always = "sooner" if self.first_wins else "later"
            sizes = f"{self.sizes[0]:,} to {self.sizes[-1]:,} elements"
            return f"{what} answers {always} than numpy at every size from {sizes}: there is no break-even"
        order = ("later", "sooner") if self.first_wins else ("sooner", "later")
        return (
            f"{what} answers {order[0]} than numpy below about {_round(self.elements):,} elements "
            f"({show_bytes(self.bytes)}), {order[1]} above"
        )


def _round(n: int) -> int:
    """Two significant digits: more were not measured."""
    return round(n, 2 - len(str(n)))


def find_break_even(sizes: Sequence[int], ratios: Sequence[float]) -> tuple[float | None, bool]:
    """Where the ratio crosses 1 for the last time, and whether it is above 1 from there on.

    Parameters
    ----------
    sizes : sequence of int
        Rising.
    ratios : sequence of float
        For each size; above 1 is a win.
    """
    logs = [math.log(ratio) for ratio in ratios]
    for i in range(len(logs) - 1, 0, -1):
        if (logs[i] > 0) != (logs[i - 1] > 0):
            share = logs[i - 1] / (logs[i - 1] - logs[i])
            return math.exp((1 - share) * math.log(sizes[i - 1]) + share * math.log(sizes[i])), logs[i] > 0
    return None, logs[-1] > 0


@dataclass(frozen=True, slots=True)
class Comparison(Exported):
    """Kernels and libraries on the same array; :func:`compare` makes it.

    Prints as tables, shows as tables in a notebook, and draws itself with matplotlib. A sequence of its rows. As
    CSV it has a row for each contender and size, in seconds and bytes per second, with the environment.

    Attributes
    ----------
    op, dtype, shape, axis
        What was reduced.
    cache
        What the caches held when a sample started.
    rows
        The :class:`Contender` records: kernels in the order given, then libraries; for each size in turn.
    break_even
        :class:`BreakEven` of the fastest kernel and NumPy; ``None`` if it was not measured.
    peak, ceiling
        Bandwidth that the memory's clock and bus come to, and that was measured here; ``None`` if unknown.
    device_name
        The card's, or the processor's.
    warnings
        What casts doubt on the times, in words.
    environment
        Device, driver, versions, date.
    """

    op: str
    dtype: str
    shape: tuple[int, ...]
    axis: tuple[int, ...] | int | None
    cache: str
    rows: tuple[Contender, ...]
    break_even: BreakEven | None
    peak: float | None
    ceiling: float | None
    device_name: str
    warnings: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[Contender]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: int | str) -> Contender:
        """A row by its number; or by its name, the one of the largest size."""
        if isinstance(which, str):
            found = [row for row in self.rows if which in (row.name, row.label)]
            if not found:
                raise KeyError(which)
            return max(found, key=lambda row: row.elements)
        return self.rows[which]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of the arrays, rising."""
        return tuple(sorted({row.elements for row in self.rows}))

    @property
    def default_kind(self) -> str:
        """What :meth:`plot` draws unless told: ``"sizes"`` of a sweep, else ``"bars"``."""
        return "sizes" if len(self.sizes) > 1 else "bars"

    @property
    def title(self) -> str:
        """One line that says what was compared."""
        shape = " x ".join(f"{extent:,}" for extent in self.shape) or "1"
        axis = "" if self.axis is None else f" over axis {self.axis}"
        return f"{self.op} of {shape} {self.dtype}{axis}, {self.cache} cache, {self.device_name}"

    def speedup(self, row: Contender, over: str, column: str) -> float | None:
        """How many times faster than another a row is.

        Parameters
        ----------
        row : Contender
        over : {"first", "numpy", "best peer"}
            The first kernel of the comparison, NumPy, or the fastest library other than NumPy, of the same size.
        column : {"host", "on_device"}
            Which times: both are of the same kind.

        Returns
        -------
        float or None
            ``None`` if one of the two has no time of this kind.
        """
        if column not in ("host", "on_device"):
            raise ValueError(f"column must be 'host' or 'on_device', not {column!r}")
        others = [each for each in self.rows if each.elements == row.elements]
        if over == FIRST:
            others = [each for each in others if each.is_kernel][:1]
        elif over == NUMPY:
            others = [each for each in others if each.name == NumPy.name]
        elif over == BEST_PEER:
            others = [each for each in others if not each.is_kernel and each.name != NumPy.name]
        else:
            raise ValueError(f"over must be 'first', 'numpy' or 'best peer', not {over!r}")
        mine: Spread | None = getattr(row, column)
        theirs = [spread.median for each in others if (spread := getattr(each, column)) is not None]
        return None if mine is None or not theirs else min(theirs) / mine.median

    # ------------------------------------------------------------ tables

    def table(self, elements: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of text, of one size.

        Parameters
        ----------
        elements : int, optional
            The largest by default.
        """
        size = self.sizes[-1] if elements is None else elements
        here = [row for row in self.rows if row.elements == size]
        kinds = [kind for kind in ("on_device", "host") if any(getattr(row, kind) is not None for row in here)]
        headings, columns = ["", "block"], [[row.name for row in here], [str(row.block_size or "") for row in here]]
        for kind in kinds:
            words = "device" if kind == "on_device" else "from host"
            spreads: list[Spread | None] = [getattr(row, kind) for row in here]
            unit, name = time_unit(each.median for each in spreads if each is not None)
            headings += [f"{words} {name}", "GB/s"]
            columns.append(["" if each is None else show_count(each.median / unit) for each in spreads])
            rates = [row.bytes / each.median if each else None for row, each in zip(here, spreads, strict=True)]
            columns.append(["" if rate is None else show_bandwidth(rate) for rate in rates])
            if kind == "on_device" or self.peak is None:  # a card's memory is no measure of a call from the host
                for whole, heading in ((self.peak, "% of peak"), (self.ceiling, "% of ceiling")):
                    if whole is not None:
                        headings.append(heading)
                        columns.append(["" if rate is None else f"{100 * rate / whole:.1f}" for rate in rates])
            for over in (FIRST, NUMPY, BEST_PEER):
                ratios = [self.speedup(row, over, kind) for row in here]
                if any(ratio is not None for ratio in ratios):
                    headings.append(f"x {over}")
                    columns.append(["" if ratio is None else show_ratio(ratio) for ratio in ratios])
        headings.append("error, ulps")
        columns.append([_show_error(row) for row in here])
        return headings, [list(line) for line in zip(*columns, strict=True)]

    def notes(self) -> list[str]:
        """What there is to say beside the tables, in words.

        Returns
        -------
        list of str
        """
        said = []
        if self.peak is not None:
            said.append(f"peak: {show_bandwidth(self.peak)} GB/s by the memory's clock and bus")
        if self.ceiling is not None:
            said.append(f"ceiling: {show_bandwidth(self.ceiling)} GB/s, the most that was read here")
        said += self._losses()
        if self.break_even is not None:
            said.append(str(self.break_even))
        size = self.sizes[-1] if self.rows else 0
        for row in self.rows:
            if row.elements != size:
                continue
            if row.absent:
                said.append(f"{row.label}: {row.absent}")
            elif row.right is False:
                said.append(f"{row.label}: WRONG, off by {show_count(row.ulps or 0)} ulps; it was not timed")
        untimed = [row for row in self.rows if row.elements == size and row.right and row.is_kernel]
        reasons = dict.fromkeys(row.why_no_device for row in untimed if row.on_device is None)
        said += [f"no device times: {why}" for why in reasons if why]
        return said

    def _losses(self) -> list[str]:
        """Where the copy makes the GPU lose to NumPy, that it does."""
        size = self.sizes[-1] if self.rows else 0
        numpy = next((row for row in self.rows if row.name == NumPy.name and row.elements == size), None)
        if numpy is None or numpy.host is None:
            return []
        there = [row for row in self.rows if row.elements == size and row.is_kernel and row.ran_on not in ("", "cpu")]
        timed = [(row.host.median, row) for row in there if row.host is not None]
        if not timed:
            return []
        best, row = min(timed, key=lambda pair: pair[0])
        if best <= numpy.host.median:
            return []
        said = (
            f"the GPU loses to numpy at this size: from host memory the fastest kernel, {row.label}, takes "
            f"{show_time(best)}, and numpy {show_time(numpy.host.median)}"
        )
        if row.on_device is not None:
            spent = show_time(row.on_device.median)
            is_copy = row.on_device.median < numpy.host.median
            said += f"; its kernels alone take {spent}" + (": what loses is the copy over PCIe" if is_copy else "")
        return [said]

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        sizes = self.sizes
        return [(f"{n:,} elements" if len(sizes) > 1 else "", *self.table(n)) for n in sizes]

    def _counter_table(self) -> tuple[list[str], list[list[str]]] | None:
        counted = [row for row in self.rows if row.counters]
        if not counted:
            return None
        return counter_table([{"kernel": row.label, **each} for row in counted for each in row.counters])

    def __str__(self) -> str:
        parts = [self.title]
        for heading, headings, rows in self._tables():
            parts += [heading] if heading else []
            parts.append(lay_out(headings, rows, left=1))
        counters = self._counter_table()
        if counters is not None:
            parts.append(lay_out(*counters, left=1))
        said = [*self.notes(), *(f"warning: {each}" for each in self.warnings)]
        return "\n\n".join([*parts, *(["\n".join(said)] if said else [])]) + "\n"

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
        said = [*self.notes(), *(f"Warning: {each}" for each in self.warnings)]
        return "\n\n".join([*parts, *(["\n".join(f"- {each}" for each in said)] if said else [])]) + "\n"

    def _repr_html_(self) -> str:
        from .._explain.page import element, table

        tables = []
        for heading, headings, rows in self._tables():
            tables.append((f"<h4>{heading}</h4>" if heading else "") + table(headings, rows, left=1))
        counters = self._counter_table()
        if counters is not None:
            tables.append(table(*counters, left=1))
        return element(self.title, tables, self.notes(), self.warnings)

    # ------------------------------------------------------------ data

    def _flat(self) -> list[dict[str, Any]]:
        """A dictionary for each row, without lists."""
        flat = []
        for row in self.rows:
            one: dict[str, Any] = {"op": self.op, "dtype": self.dtype, "cache": self.cache}
            one |= {name: getattr(row, name) for name in _BARE}
            for kind in ("host", "on_device"):
                spread: Spread | None = getattr(row, kind)
                figures: dict[str, Any] = {} if spread is None else spread.to_dict()
                low, high = figures.get("quartiles", (None, None))
                figures |= {"lower_quartile": low, "upper_quartile": high, "count": len(figures.get("samples", ()))}
                wanted = ("median", "lower_quartile", "upper_quartile", "minimum", "maximum", "noise", "count")
                one |= {f"{kind}_{name}": figures.get(name) for name in wanted}
                for over in (FIRST, NUMPY, BEST_PEER):
                    one[f"{kind}_times_{over.replace(' ', '_')}"] = self.speedup(row, over, kind)
            one |= {"host_bandwidth": row.host_bandwidth, "device_bandwidth": row.device_bandwidth}
            one |= {"peak": self.peak, "ceiling": self.ceiling, "absent": row.absent}
            one |= {"why_no_host": row.why_no_host, "why_no_device": row.why_no_device}
            flat.append(one)
        return flat

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers; raw samples are in it, in seconds.

        Returns
        -------
        dict
        """
        rows = []
        for row, flat in zip(self.rows, self._flat(), strict=True):
            one = {name: flat[name] for name in flat if not name.startswith(("host_", "on_device_"))}
            for kind in ("host", "on_device"):
                spread: Spread | None = getattr(row, kind)
                one[kind] = None if spread is None else spread.to_dict()
                names = {over: f"{kind}_times_{over.replace(' ', '_')}" for over in (FIRST, NUMPY, BEST_PEER)}
                one[f"{kind}_speedups"] = {over: flat[name] for over, name in names.items()}
            one |= {"host_bandwidth": row.host_bandwidth, "counters": [dict(each) for each in row.counters]}
            if one["ulps"] is not None and not math.isfinite(one["ulps"]):
                one["ulps"] = str(one["ulps"])
            rows.append(one)
        even = self.break_even
        of_even = ("kernel", "device", "elements", "bytes", "first_wins", "sizes", "ratios")
        meeting = None if even is None else {name: getattr(even, name) for name in of_even}
        if meeting is not None:
            meeting |= {"sizes": list(meeting["sizes"]), "ratios": list(meeting["ratios"])}
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

    def plot(self, kind: str | None = None, ax: Axes | None = None, *, column: str | None = None) -> Axes:
        """Draw the comparison with matplotlib.

        Parameters
        ----------
        kind : {"bars", "sizes", "roofline"}, optional
            ``"bars"``: bandwidth of each contender, with the ceiling. ``"sizes"``: bandwidth over size, on logarithmic
            axes; the default of a sweep. ``"roofline"``: operations per second over operations per byte.
        ax : matplotlib.axes.Axes, optional
            Where to; a figure of its own by default.
        column : {"on_device", "host"}, optional
            Which times: of the kernels alone, the default where there are any, or from host memory to the result.

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
        from .charts import plot_comparison

        return plot_comparison(self, kind or self.default_kind, column, ax)


def _show_error(row: Contender) -> str:
    if row.absent or row.ulps is None:
        return "absent" if row.absent else ""
    shown = "0" if row.ulps == 0 else f"{row.ulps:.2g}"
    return shown if row.right else f"WRONG {shown}"


# ---------------------------------------------------------------- measuring


@dataclass(slots=True)
class _Entry:
    """A contender while it is measured."""

    row: Contender
    host: Turn | None = None
    device: Turn | None = None

    def finish(self) -> Contender:
        return replace(
            self.row,
            host=self.host.spread if self.host is not None else None,
            on_device=self.device.spread if self.device is not None else None,
        )


def compare(
    arr: ArrayLike,
    kernels: Iterable[str] | str | None = None,
    op: str = "sum",
    *,
    axis: int | tuple[int, ...] | None = None,
    block_size: int | Iterable[int | None] | None = None,
    baselines: Iterable[str] = BASELINES,
    device: str | None = None,
    sizes: Iterable[int] | None = None,
    cache: str = "hot",
    seconds: float = SECONDS,
    precision: float = PRECISION,
    break_even: bool = True,
    ceiling: bool = True,
    profile: bool = False,
    progress: bool | None = None,
) -> Comparison:
    """Time kernels and libraries on the same array, in turns, after their answers were checked.

    Parameters
    ----------
    arr : array_like
        Host array of any layout, or a contiguous one in device memory with ``__cuda_array_interface__``.
    kernels : str or iterable of str, optional
        Names or aliases; by default all of the catalogue, or ``"auto"`` alone where there is no GPU: the CPU backend
        has but one way.
    op : str, optional
        The operator.
    axis : optional
        As the reductions take it. Kernels alone are timed over the last axes.
    block_size : int or iterable of int, optional
        Threads per block, or several, each of which is tried with each kernel; by default the kernels' own.
    baselines : iterable of {"numpy", "cub", "cupy", "torch"}, optional
        Libraries to measure against; what is not installed is listed with the reason.
    device : str, optional
        As the reductions take it.
    sizes : iterable of int, optional
        Elements: compares on the first so many elements of the flattened array, for each size.
    cache : {"hot", "cold", "rotated"}, optional
        As :func:`benchmark` takes it. Libraries are timed hot or cold.
    seconds, precision : float, optional
        As :func:`benchmark` takes them, for each contender and kind of time.
    break_even : bool, optional
        Whether to look for the size at which the fastest kernel meets NumPy, from host memory to a result.
    ceiling, profile, progress : bool, optional
        As :func:`benchmark` takes them.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An unknown kernel, operator, baseline, device or cache; a size that the array does not have.
    TypeError
        A dtype that does not reduce.
    DeviceUnavailableError
        A CUDA device was asked for and there is none; or a profile was, and Nsight Compute is missing or not allowed.

    Notes
    -----
    An answer is right if it is NumPy's, where nothing rounds. A sum, mean or product of n floats may be off by one ulp
    and four times sqrt(n) units of roundoff of the accumulator, relative to the sum of magnitudes: any order of
    additions stays within that, but for one in which errors cannot cancel. Libraries may add 16-bit floats in their
    own type.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> found = gr.compare(
    ...     np.ones(10_000), device="cpu", baselines=["numpy"], seconds=0.01, break_even=False, ceiling=False
    ... )
    >>> [row.name for row in found], found["auto"].right
    (['auto', 'numpy'], True)
    """
    if seconds <= 0 or precision < 0:
        raise ValueError("seconds must be above 0, and precision not below")
    whole = operand(arr)
    check_operator(op)
    if not hasattr(np, op):
        raise ValueError(f"NumPy has no {op} to check the answers of {op} with")
    blocks = [block_size] if block_size is None or isinstance(block_size, (int, np.integer)) else list(block_size)
    wanted = list(dict.fromkeys(baselines))
    peers, missing = available(wanted)
    lengths = _lengths(whole, sizes, axis)
    with progress_bar(f"compare {op}", progress) as bar:
        names = _kernel_names(kernels, Bed(whole, axis, device, cache))
        share = 0.8 if break_even else 1.0
        rows: list[Contender] = []
        warnings: list[str] = []
        for i, n in enumerate(lengths):
            part = whole if n is None else replace(whole, array=_first(whole, n), shape=(n,))
            with Bed(part, axis, device, cache) as bed:
                if profile:
                    check_possible(bed.why_no_device)
                entries = _enter(op, part, bed, names, blocks, wanted, peers, missing, profile)
                edges = (share * i / len(lengths), share * (i + 1) / len(lengths))
                for kind, first in (("device", 0.0), ("host", 0.5)):
                    turns = [turn for entry in entries if (turn := getattr(entry, kind)) is not None]
                    low = edges[0] + first * (edges[1] - edges[0])
                    take_turns(turns, seconds, precision, bar.part(low, low + (edges[1] - edges[0]) / 2))
                rows += [entry.finish() for entry in entries]
                warnings += _warnings(bed, entries, precision, part.elements if len(lengths) > 1 else 0)
                info, place = bed.info, bed.place
        even = _look_for_break_even(rows, whole, op, device, peers, bar) if break_even and axis is None else None
        on_gpu = any(row.ran_on.startswith("cuda") for row in rows)
        rate, trouble = (None, "")
        if ceiling:
            rate, trouble = ceiling_or_why(info if on_gpu else None, limits().cpu_threads)
    named = [row.name for row in rows if row.is_kernel and row.ran_on == "cpu" and row.name not in _core.KERNELS_ON_CPU]
    if named and place == "cpu":
        warnings.append("the CPU backend answered for every kernel: the times are not the kernels'")
    setting = environment(info.ordinal if info is not None else 0)
    return Comparison(
        op=op, dtype=whole.dtype.name, shape=whole.shape, axis=axis, cache=cache, rows=tuple(rows), break_even=even,
        peak=bed.peak if on_gpu else None, ceiling=rate,
        device_name=setting["device"]["name"] if on_gpu else setting["cpu"],
        warnings=tuple(dict.fromkeys([*warnings, *filter(None, [trouble])])), environment=setting,
    )  # fmt: skip


def _lengths(whole: Operand, sizes: Iterable[int] | None, axis: Any) -> list[int | None]:
    if sizes is None:
        return [None]
    lengths = sorted({int(n) for n in sizes})
    if axis is not None:
        raise ValueError("a sweep over sizes reduces the flattened array: it takes no axis")
    if not lengths or lengths[0] < 1 or lengths[-1] > whole.elements:
        raise ValueError(f"sizes must be from 1 to the array's {whole.elements:,} elements")
    return list(lengths)


def _first(whole: Operand, n: int) -> Any:
    """The first n elements; a device array is cut by its number of elements alone."""
    return whole.array if whole.pointer is not None else whole.array.reshape(-1)[:n]


def _kernel_names(kernels: Iterable[str] | str | None, bed: Bed) -> list[str]:
    if kernels is None:
        return [info.name for info in catalogue()] if bed.place.startswith("cuda") else ["auto"]
    asked = [kernels] if isinstance(kernels, str) else list(kernels)
    return list(dict.fromkeys(_core.find_kernel(name) for name in asked))


def _enter(
    op: str,
    it: Operand,
    bed: Bed,
    names: Sequence[str],
    blocks: Sequence[int | None],
    baselines: Sequence[str],
    peers: dict[str, Any],
    missing: dict[str, str],
    profile: bool,
) -> list[_Entry]:
    """Check every contender's answer, and warm up those that are right."""
    right = reference(op, on_host(it), bed.axis)
    like = np.asarray(numpy_function(op)(np.ones(1, it.dtype))).dtype
    moved_bytes = it.nbytes + right[0].size * like.itemsize
    entries = []
    for name in names:
        for block in blocks:
            row = Contender(name, True, it.elements, moved_bytes, block_size=int(block or 0))
            entries.append(_enter_kernel(op, it, bed, row, block, right, like, profile))
    for name in baselines:
        row = Contender(name, False, it.elements, moved_bytes)
        if name in peers:
            entries.append(_enter_peer(op, it, bed, row, peers[name], right, like))
        else:
            entries.append(_Entry(replace(row, absent=missing[name])))
    return entries


def _enter_kernel(
    op: str, it: Operand, bed: Bed, row: Contender, block: int | None, right: Any, like: np.dtype[Any], profile: bool
) -> _Entry:
    options = {"kernel": row.name, "block_size": block, "grid_size": None, "stream": None, "dtype": None}
    call = bed.reduction(op, options)
    try:
        result = call(it.array)
    except REFUSED as error:
        return _Entry(replace(row, absent=str(error)))
    run = last_run()
    assert run is not None
    verdict = check(result, right, like)
    on_gpu = run.device != "cpu"
    block_size, grid_size = (run.block_size, run.grid_size) if on_gpu else (0, 0)
    row = replace(row, block_size=block_size, grid_size=grid_size)
    row = replace(row, right=verdict.right, ulps=verdict.ulps, ran_on=run.device)
    if not verdict.right:
        return _Entry(row)
    entry = _Entry(row)
    if on_gpu:
        try:
            entry.device = bed.device_turn(op, options)
        except REFUSED as error:
            entry.row = replace(row, why_no_device=str(error))
    if entry.device is None and not entry.row.why_no_device:
        entry.row = replace(entry.row, why_no_device=bed.why_no_device or f"the call ran on the {run.device.upper()}")
    entry.host = bed.host_turn(call)
    if profile and entry.device is not None and bed.reduced is not None:
        entry.row = replace(entry.row, counters=profile_kernel(op, options, it, bed.reduced))
    return entry


def _enter_peer(op: str, it: Operand, bed: Bed, row: Contender, peer: Any, right: Any, like: np.dtype[Any]) -> _Entry:
    entry = _Entry(row)
    right = loosened(right, it.dtype)
    verdicts: list[Verdict] = []
    reasons = {"host": "", "device": bed.why_no_device}

    def attempt(kind: str, make: Callable[[], tuple[Any, Callable[[], Turn]]]) -> None:
        try:
            result, turn = make()
            verdict = check(result, right, like)
            verdicts.append(verdict)
            if verdict.right:
                setattr(entry, kind, turn())
        except Exception as error:  # a library without this cell says so in its own way
            reasons[kind] = " ".join(f"{error}".split()) or type(error).__name__

    def on_host() -> tuple[Any, Callable[[], Turn]]:
        if it.pointer is not None:
            raise NotImplementedError("the array is in device memory")
        call = peer.host_call(op, it.array, bed.axis)
        return call(), lambda: bed.host_turn(ignoring_array(call))

    def on_device() -> tuple[Any, Callable[[], Turn]]:
        if bed.cache == "rotated":
            raise NotImplementedError("libraries are timed hot or cold")
        work = peer.device_work(op, bed.view(), bed.axis, bed.flush_bytes)
        return work.result(), lambda: Turn(work.take, batch=5)

    attempt("host", on_host)
    if not bed.why_no_device:
        attempt("device", on_device)
    if not verdicts:
        why = reasons["host"] if reasons["host"] == reasons["device"] else "; ".join(filter(None, reasons.values()))
        return _Entry(replace(row, absent=why))
    entry.row = replace(
        row,
        right=all(each.right for each in verdicts),
        ulps=max(each.ulps for each in verdicts),
        ran_on="cpu" if peer.name == NumPy.name else bed.place,
        why_no_host=reasons["host"],
        why_no_device=reasons["device"],
    )
    return entry


def _warnings(bed: Bed, entries: Sequence[_Entry], precision: float, n: int) -> list[str]:
    """Doubts about one size, those of many contenders in one line."""
    found = [*bed.cache_troubles(), *moved(bed.readings)]
    noisy = {"device": "device time", "host": "time from host memory"}
    for kind, words in noisy.items():
        timed = [entry for entry in entries if getattr(entry, kind) is not None]
        doubtful = [
            entry.row.label for entry in timed if getattr(entry, kind).spread.troubles("", max(precision, NOISY))
        ]
        if doubtful:
            names = ", ".join(doubtful[:_MOST_NAMES]) + (" ..." if len(doubtful) > _MOST_NAMES else "")
            found.append(f"{len(doubtful)} of {len(timed)} are noisy, drifted or have few samples, in {words}: {names}")
    return [f"{n:,} elements: {each}" for each in found] if n else found


_MOST_NAMES = 6


def _look_for_break_even(
    rows: Sequence[Contender], whole: Operand, op: str, device: str | None, peers: dict[str, Any], bar: progress_bar
) -> BreakEven | None:
    """Time the fastest kernel and NumPy over sizes, in turns; ``None`` if there is nothing to hold against NumPy."""
    if whole.pointer is not None or NumPy.name not in peers:
        return None
    timed = [(row.host.median, row) for row in rows if row.is_kernel and row.host is not None]
    largest = max((row.elements for row in rows), default=0)
    timed = [(spent, row) for spent, row in timed if row.elements == largest]
    if not timed or not any(row.name == NumPy.name and row.host is not None for row in rows):
        return None
    row = min(timed, key=lambda pair: pair[0])[1]
    options = {"kernel": row.name, "block_size": row.block_size or None}
    options |= {"grid_size": None, "stream": None, "dtype": None}
    sizes = [largest]
    while sizes[0] // BREAK_EVEN_FACTOR >= BREAK_EVEN_FIRST:
        sizes.insert(0, sizes[0] // BREAK_EVEN_FACTOR)
    ratios = []
    for i, n in enumerate(sizes):
        part = replace(whole, array=_first(whole, n), shape=(n,))
        with Bed(part, None, device, "hot", with_device=False) as bed:
            ours = bed.host_turn(bed.reduction(op, options))
            call = peers[NumPy.name].host_call(op, part.array, None)
            theirs = bed.host_turn(ignoring_array(call))
            edges = (0.8 + 0.2 * i / len(sizes), 0.8 + 0.2 * (i + 1) / len(sizes))
            take_turns([ours, theirs], BREAK_EVEN_SECONDS, PRECISION, bar.part(*edges))
        ratios.append(theirs.spread.median / ours.spread.median)
    meeting, wins = find_break_even(sizes, ratios)
    n_meeting = None if meeting is None else round(meeting)
    nbytes = None if n_meeting is None else n_meeting * whole.dtype.itemsize
    return BreakEven(row.name, row.ran_on, n_meeting, nbytes, wins, tuple(sizes), tuple(ratios))


finished((BreakEven, Comparison, Contender))
