"""Records of a comparison: contenders and their times, and the break-even."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .._display.exported import make_public
from .._display.tables import show_bytes, show_speedup
from .sampling import Spread, ratio_interval

__all__ = [
    "BEST_PEER",
    "FIRST",
    "NUMPY",
    "TOO_CLOSE",
    "TOO_NOISY",
    "BreakEven",
    "ComparisonRecord",
    "Contender",
    "find_break_even",
    "is_too_noisy",
]


FIRST, NUMPY, BEST_PEER = "first", "numpy", "best peer"
TOO_CLOSE = "too close to call"
LEVEL_WITHIN = 1.25
"""Two times are level where their ratio is known to be between 1 / 1.25 and 1.25."""
TOO_NOISY = (
    "take more samples (seconds=, --seconds), reduce a larger array, or use a machine without "
    "other load"
)
"""What to do about times too noisy to compare."""
_WORDS = {"faster": "faster than numpy", "slower": "slower than numpy", "level": TOO_CLOSE}


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of a :class:`Comparison`. Times are in seconds.

    Attributes
    ----------
    name
        A kernel's name, or a library's; of one of two kernels of your own with one name, its file
        or a number, too.
    is_kernel
        Whether it is a kernel of this package.
    block_size, grid_size
        Threads per block and blocks of the first launch; 0 for libraries, and on the CPU.
    elements, bytes, dtype
        Elements of the array; bytes read and written: its elements once, the results once; and the
        elements' dtype.
    ran_on
        ``"cuda:N"`` or ``"cpu"``; ``""`` if it did not run.
    right, ulps
        Whether the result was right, and its error in ulps of the right result. A contender with a
        wrong result is not timed.
    host
        :class:`Spread` of the wall time from the caller's array to the result on the host.
    on_device
        :class:`Spread` of the device time of the kernels alone.
    absent
        The reason why there are no times, or ``""``.
    why_no_host, why_no_device
        The reason why times of one kind are missing, or ``""``.
    counters
        Counters of each launch by Nsight Compute, if a profile was requested.
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
    dtype: str = ""

    @property
    def label(self) -> str:
        """Its name, and the block size of a kernel, or that the CPU backend ran."""
        if self.is_kernel and self.ran_on == "cpu":
            return f"{self.name} (CPU backend)"
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
    """The size from which a kernel is faster than ``numpy``, both from host memory to a result.

    At a measured size one of the two is faster if their quartiles do not overlap; otherwise they
    are level there.

    Attributes
    ----------
    kernel, device
        The kernel that was compared with NumPy, and the device that it ran on.
    elements
        Elements at which both take the same time, interpolated on logarithmic axes between two
        measured sizes; ``None`` if no size where one is faster follows one where the other is.
    bytes
        Bytes of these elements.
    between
        Least and most elements that `elements` may be, by the quartiles; ``None`` without it.
    first_wins
        Whether the kernel is faster above `elements`; ``None`` without it.
    sizes, ratios, intervals
        Elements of the arrays that were measured; NumPy's median time over the kernel's; and the
        lowest and highest ratio of their quartiles.
    """

    kernel: str
    device: str
    elements: int | None
    bytes: int | None
    between: tuple[int, int] | None
    first_wins: bool | None
    sizes: tuple[int, ...]
    ratios: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def outcomes(self) -> tuple[str, ...]:
        """For each size, whether the kernel is ``"faster"``, ``"slower"`` or ``"level"``."""
        return tuple(map(outcome, self.intervals))

    @property
    def title(self) -> str:
        """Which arrays were measured, in one sentence."""
        others = [f"{n:,}" for n in self.sizes[:-1]]
        first = f"{others[0]} to {others[-1]}" if len(others) > 1 else "".join(others)
        factors = {round(b / a) for a, b in pairwise(self.sizes)}
        each = f", each size {factors.pop()} times the one before" if len(factors) == 1 else ""
        whole = "" if self.device == "cpu" else "; whole calls, from host memory to a result"
        return f"Other sizes, measured briefly: the first {first} numbers of the array{each}{whole}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and a row of text per size."""
        words = {**_WORDS, "faster": "faster", "slower": "slower"}
        shown = map(show_speedup, self.ratios, self.intervals)
        verdicts = [words[each] for each in self.outcomes]
        rows = [[f"{n:,}", *each] for n, *each in zip(self.sizes, shown, verdicts, strict=True)]
        return ["numbers", "times as fast as numpy", f"{self.kernel} is"], rows

    def __str__(self) -> str:
        """The ranges of sizes in one sentence, and what was not measured in another."""
        on_cpu = self.device == "cpu"
        runs, gaps = self._runs()
        spans = [f"{_WORDS[each]} {_span(*span)}" for each, span in runs]
        start = f"{self.kernel} on {'the CPU' if on_cpu else self.device} is "
        text = ("" if on_cpu else "From host memory to a result, ") + start
        text += ", and ".join(filter(None, [", ".join(spans[:-1]), *spans[-1:]])) + "."
        if self.elements is not None and self.bytes is not None and self.between is not None:
            text += (
                f" The two are equally fast at about {_round(self.elements):,} numbers "
                f"({show_bytes(self.bytes)}), somewhere between {_round(self.between[0]):,} and "
                f"{_round(self.between[1]):,}."
            )
        if gaps:
            between = " and between ".join(f"{low:,} and {high:,}" for low, high in gaps)
            text += f" Where that changes between {between} was not measured."
        return text

    def _runs(self) -> tuple[list[tuple[str, tuple[int, int]]], list[tuple[int, int]]]:
        """Ranges of sizes with one outcome, and the ranges between them where it changes.

        The last crossing is known better than by the sizes around it: the outcomes there reach to
        the ends of :attr:`between`, and level sizes between the two belong to the crossing.
        """
        crossing = _last_change(self.intervals) if self.between is not None else None
        inside = range(crossing[0] + 1, crossing[1]) if crossing is not None else range(0)
        runs: list[tuple[str, tuple[int, int]]] = []
        gaps = []
        for i, which in enumerate(self.outcomes):
            low = high = self.sizes[i]
            if i in inside:
                continue
            if crossing is not None and self.between is not None:
                low = min(low, _round(self.between[1])) if i == crossing[1] else low
                high = max(high, _round(self.between[0])) if i == crossing[0] else high
            if runs and runs[-1][0] == which:
                runs[-1] = (which, (runs[-1][1][0], high))
                continue
            if runs and (crossing is None or i != crossing[1]):
                gaps.append((runs[-1][1][1], low))
            runs.append((which, (low, high)))
        return runs, gaps


def _span(low: int, high: int) -> str:
    return f"for {low:,} numbers" if low == high else f"from {low:,} to {high:,} numbers"


def is_too_noisy(interval: tuple[float, float]) -> bool:
    """Whether an interval of ratios holds 1, and is too wide to call the two times level."""
    low, high = interval
    return outcome(interval) == "level" and (low * LEVEL_WITHIN < 1 or high > LEVEL_WITHIN)


def _round(n: int) -> int:
    """Round to two significant digits, which is the precision of the measurement."""
    return round(n, 2 - len(str(n)))


def outcome(interval: tuple[float, float]) -> str:
    """Whether an interval of ratios is above 1, below 1, or holds it."""
    low, high = interval
    return "faster" if low > 1 else "slower" if high < 1 else "level"


def find_break_even(
    sizes: Sequence[int], ratios: Sequence[float], intervals: Sequence[tuple[float, float]]
) -> tuple[float, tuple[float, float], bool] | None:
    """Where the ratio crosses 1 for the last time, so that the spread cannot explain it.

    Parameters
    ----------
    sizes : sequence of int
        Rising.
    ratios, intervals : sequence
        For each size; above 1 is a win. A crossing is between a size whose whole interval is on one
        side of 1, and a later one whose whole interval is on the other.

    Returns
    -------
    tuple or None
        The size, the least and the most it may be, and whether later sizes win.
    """
    change = _last_change(intervals)
    if change is None:
        return None
    first, last = change
    wins = outcome(intervals[last]) == "faster"
    here = slice(first, last + 1)
    curves = (
        ratios[here],
        [low for low, _ in intervals[here]],
        [high for _, high in intervals[here]],
    )
    middle, one, other = (_crossing(sizes[here], curve) for curve in curves)
    return middle, (min(one, other), max(one, other)), wins


def _last_change(intervals: Sequence[tuple[float, float]]) -> tuple[int, int] | None:
    """The last two decided sizes, by number, at which different contenders win."""
    decided = [i for i, each in enumerate(intervals) if outcome(each) != "level"]
    changes = [
        (a, b) for a, b in pairwise(decided) if outcome(intervals[a]) != outcome(intervals[b])
    ]
    return changes[-1] if changes else None


def _crossing(sizes: Sequence[int], ratios: Sequence[float]) -> float:
    """The last size at which a curve, whose ends are on both sides of 1, is 1."""
    logs = [math.log(ratio) for ratio in ratios]
    for i in range(len(logs) - 1, 0, -1):
        if (logs[i] > 0) != (logs[i - 1] > 0):
            share = logs[i - 1] / (logs[i - 1] - logs[i])
            return math.exp((1 - share) * math.log(sizes[i - 1]) + share * math.log(sizes[i]))
    raise AssertionError("the ends are on both sides of 1")


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonRecord:
    """Contenders that were measured on one array: the input of tables and charts.

    The attributes are described in :class:`Comparison`.
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
        """A row by its number; or by its name or label, the first of those of the largest size."""
        if isinstance(which, str):
            found = [row for row in self.rows if which in (row.name, row.label, self.label(row))]
            if not found:
                raise KeyError(which)
            return max(found, key=lambda row: row.elements)
        return self.rows[which]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of the arrays, rising."""
        return tuple(sorted({row.elements for row in self.rows}))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Names of the arrays' dtypes, in the order in which they were compared."""
        return tuple(dict.fromkeys(row.dtype for row in self.rows))

    def label(self, row: Contender) -> str:
        """A row's label, with its dtype if the comparison has several.

        Parameters
        ----------
        row : Contender

        Returns
        -------
        str
        """
        return f"{row.label}, {row.dtype}" if len(self.dtypes) > 1 else row.label

    @property
    def default_kind(self) -> str:
        """What :meth:`plot` draws unless told: ``"sizes"`` of a sweep, else ``"bars"``."""
        return "sizes" if len(self.sizes) > 1 else "bars"

    @property
    def title(self) -> str:
        """Operator, dtype, shape and axis in one line."""
        shape = " x ".join(f"{extent:,}" for extent in self.shape) or "1"
        axis = "" if self.axis is None else f" over axis {self.axis}"
        cache = "" if self.cache == "hot" else f", {self.cache} cache"
        return f"{self.op} of {shape} {self.dtype}{axis}{cache}, {self.device_name}"

    def speedup(self, row: Contender, over: str, column: str) -> float | None:
        """How many times faster than another a row is, by the medians.

        Parameters
        ----------
        row : Contender
        over : {"first", "numpy", "best peer"}
            The first kernel of the comparison, NumPy, or the fastest library other than NumPy, of
            the same size and dtype.
        column : {"host", "on_device"}
            Which times: both are of the same kind.

        Returns
        -------
        float or None
            ``None`` if one of the two has no time of this kind.
        """
        mine, theirs = self._pair(row, over, column)
        return None if mine is None or theirs is None else theirs.median / mine.median

    def speedup_interval(
        self, row: Contender, over: str, column: str
    ) -> tuple[float, float] | None:
        """The lowest and the highest speedup that the quartiles of both times give.

        Parameters
        ----------
        row, over, column
            As :meth:`speedup` takes them.

        Returns
        -------
        tuple of float or None
        """
        mine, theirs = self._pair(row, over, column)
        if mine is None or theirs is None:
            return None
        return (1.0, 1.0) if mine is theirs else ratio_interval(theirs, mine)

    def show_speedup(self, row: Contender, over: str, column: str) -> str:
        """A speedup in words, with the interval of its quartiles, as ``"1.47 (1.05 to 1.89)"``.

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

    def _pair(self, row: Contender, over: str, column: str) -> tuple[Spread | None, Spread | None]:
        """Times of a row and of what it is compared with."""
        if column not in ("host", "on_device"):
            raise ValueError(f"column must be 'host' or 'on_device', not {column!r}")
        others = [
            each for each in self.rows if (each.elements, each.dtype) == (row.elements, row.dtype)
        ]
        if over == FIRST:
            others = [each for each in others if each.is_kernel][:1]
        elif over == NUMPY:
            others = [each for each in others if each.name == NUMPY]
        elif over == BEST_PEER:
            others = [each for each in others if not each.is_kernel and each.name != NUMPY]
        else:
            raise ValueError(f"over must be 'first', 'numpy' or 'best peer', not {over!r}")
        theirs = [spread for each in others if (spread := getattr(each, column)) is not None]
        return getattr(row, column), min(theirs, key=lambda each: each.median, default=None)


make_public(BreakEven, Contender)
