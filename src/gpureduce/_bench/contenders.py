"""Records of a comparison: contenders and their times, and the break-even."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._display.exported import make_public
from .._display.tables import show_bytes
from .sampling import Spread

__all__ = [
    "BEST_PEER",
    "FIRST",
    "NUMPY",
    "BreakEven",
    "ComparisonRecord",
    "Contender",
    "find_break_even",
]


FIRST, NUMPY, BEST_PEER = "first", "numpy", "best peer"


@dataclass(frozen=True, slots=True)
class Contender:
    """A row of a :class:`Comparison`. Times are in seconds.

    Attributes
    ----------
    name
        A kernel's name, or a library's.
    is_kernel
        Whether it is a kernel of this package.
    block_size, grid_size
        Threads per block and blocks of the first launch; 0 for libraries, and on the CPU.
    elements, bytes
        Elements of the array, and bytes read and written: its elements once, the results once.
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
    """The size from which a kernel is faster than ``numpy``, both from host memory to a result.

    Attributes
    ----------
    kernel, device
        The kernel that was compared with NumPy, and the device that it ran on.
    elements
        Elements at which both take the same time, interpolated on logarithmic axes between two
        measured sizes; ``None`` if one is faster at all sizes.
    bytes
        Bytes of these elements.
    first_wins
        Whether the kernel is faster above that size; without a break-even, at all sizes.
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
            always = "faster" if self.first_wins else "slower"
            sizes = f"{self.sizes[0]:,} to {self.sizes[-1]:,} elements"
            return (
                f"{what} is {always} than numpy at every size from {sizes}: there is no break-even"
            )
        order = ("slower", "faster") if self.first_wins else ("faster", "slower")
        return (
            f"{what} is {order[0]} than numpy below about {_round(self.elements):,} elements "
            f"({show_bytes(self.bytes)}), {order[1]} above"
        )


def _round(n: int) -> int:
    """Round to two significant digits, which is the precision of the measurement."""
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
            return math.exp(
                (1 - share) * math.log(sizes[i - 1]) + share * math.log(sizes[i])
            ), logs[i] > 0
    return None, logs[-1] > 0


@dataclass(frozen=True, slots=True)
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
            The first kernel of the comparison, NumPy, or the fastest library other than NumPy, of
            the same size.
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
            others = [each for each in others if each.name == NUMPY]
        elif over == BEST_PEER:
            others = [each for each in others if not each.is_kernel and each.name != NUMPY]
        else:
            raise ValueError(f"over must be 'first', 'numpy' or 'best peer', not {over!r}")
        mine: Spread | None = getattr(row, column)
        theirs = [spread.median for each in others if (spread := getattr(each, column)) is not None]
        return None if mine is None or not theirs else min(theirs) / mine.median


make_public(BreakEven, Contender)
