"""Result of :func:`gpureduce.benchmark`: the times of a reduction and of its stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._display.exported import Exported, make_public
from .._display.html_page import element, table
from .._display.tables import (
    fold_lines,
    lay_out,
    markdown,
    show_bandwidth,
    show_bytes,
    show_time,
    terminal_width,
)
from .._records import without_advice
from .charts import plot_stages
from .environment import flat_environment
from .profile import counter_table
from .sampling import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["STAGES", "Timing"]


STAGES = {
    "compile": "NVRTC, or reading the disk cache: in the first call only",
    "stage": "packing into pinned memory",
    "upload": "copying pinned memory to the device, by itself",
    "kernel": "all launches, by events around them",
    "return": "launching, copying the result back, waiting: a call on device memory less its "
    "kernels",
}
"""Stages of a call from host memory. Packing, copying and kernels of an array of several chunks
overlap."""
_BARE = (
    *(
        "function",
        "op",
        "dtype",
        "shape",
        "axis",
        "device",
        "kernel",
        "variant",
        "block_size",
        "grid_size",
    ),
    *("cache", "bytes", "first_call", "peak", "ceiling"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Timing(Exported):
    """Times of a reduction, in seconds, and rates, in bytes per second; :func:`benchmark` returns
    it.

    It prints as a table, shows as one in a notebook, and draws its stages with matplotlib. Its CSV
    has a row per sample, with the sample's kind and the environment.

    Attributes
    ----------
    function
        Name of the function: an operator's, or the callable that was given.
    op, dtype, shape, axis
        Operator (``""`` for other callables), the elements' dtype, the array's shape, the reduced
        axes.
    device, kernel, variant, block_size, grid_size
        The kernel that the call named; all others as in :class:`LastRun`. ``""`` and 0 for other
        callables.
    cache
        Contents of the caches when a sample started: ``"hot"``, ``"cold"`` or ``"rotated"``.
    bytes
        Bytes read and written: the elements once, the results once.
    host
        :class:`Spread` of the wall time of the whole synchronous call, from the caller's array to
        the result.
    on_device
        :class:`Spread` of the device time of the kernels alone, over the array in device memory;
        ``None`` if it was not measured.
    why_no_device
        The reason why `on_device` is ``None``, or ``""``.
    first_call
        Wall time of the very first call, which compiles.
    stages
        Seconds of the stages of a call from host memory that can be timed separately:
        ``"compile"``, ``"stage"``, ``"upload"``, ``"kernel"``, ``"return"``.
    peak
        Bandwidth of the memory by its clock and bus width; ``None`` on the CPU.
    ceiling
        Read bandwidth that was measured, with ``fast`` over a long array, once per process, or that
        of this call if it is higher; ``None`` if it was not measured.
    warnings
        Reasons to doubt the times, in words.
    counters
        Counters of each launch by Nsight Compute, if a profile was requested.
    environment
        Device, driver, versions, date.
    """

    function: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    axis: tuple[int, ...] | int | None
    device: str
    kernel: str
    variant: str
    block_size: int
    grid_size: int
    cache: str
    bytes: int
    host: Spread
    on_device: Spread | None
    why_no_device: str
    first_call: float
    stages: dict[str, float]
    peak: float | None
    ceiling: float | None
    warnings: tuple[str, ...] = ()
    counters: tuple[dict[str, Any], ...] = ()
    environment: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the whole call, at the median."""
        return self.bytes / self.host.median

    @property
    def device_bandwidth(self) -> float | None:
        """Bytes per second of the kernels, at the median."""
        return None if self.on_device is None else self.bytes / self.on_device.median

    @property
    def of_peak(self) -> float | None:
        """:attr:`device_bandwidth` over the theoretical peak."""
        return _share(self.device_bandwidth, self.peak)

    @property
    def of_ceiling(self) -> float | None:
        """Bandwidth over the measured read ceiling: of kernels, or of the call on the CPU."""
        return _share(
            self.bandwidth if self.device == "cpu" else self.device_bandwidth, self.ceiling
        )

    @property
    def title(self) -> str:
        """Function, dtype, shape, device and kernel in one line."""
        what = "CPU backend" if self.device == "cpu" else self.kernel or self.function
        shape = " x ".join(f"{extent:,}" for extent in self.shape) or "1"
        of = f"{self.op} of {shape} {self.dtype}" if self.op else f"{shape} {self.dtype}"
        where = f" on {self.device}" if self.device else ""
        block = (
            f", blocks of {self.block_size:,}" if self.block_size and self.device != "cpu" else ""
        )
        cache = "" if self.cache == "hot" else f", {self.cache} cache"
        return f"{what}: {of}{where}{block}{cache}"

    def _summary(self) -> str:
        return f"{self.title}, {show_time(self.host.median)} from host to result"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        headings = [
            "",
            "median",
            "lower quartile",
            "upper quartile",
            "min",
            "max",
            "noise",
            "samples",
            "GB/s",
        ]
        rows = []
        for words, spread in (
            ("host to result", self.host),
            ("kernels on the device", self.on_device),
        ):
            if spread is not None:
                times = (spread.median, *spread.quartiles, spread.minimum, spread.maximum)
                rate = show_bandwidth(self.bytes / spread.median)
                rows.append(
                    [
                        words,
                        *map(show_time, times),
                        f"{spread.noise:.1%}",
                        f"{len(spread.samples)}",
                        rate,
                    ]
                )
        return headings, rows

    def _facts(self) -> list[str]:
        facts = [
            f"moves {show_bytes(self.bytes)}; the first call took {show_time(self.first_call)}"
        ]
        rate = self.bandwidth if self.device == "cpu" else self.device_bandwidth
        if rate is not None:
            if self.peak is not None:
                facts.append(
                    f"{rate / self.peak:.1%} of {show_bandwidth(self.peak)} GB/s, the theoretical "
                    "peak"
                )
            if self.ceiling is not None and rate >= self.ceiling:
                facts.append("no higher bandwidth was measured here")
            elif self.ceiling is not None:
                facts.append(
                    f"{rate / self.ceiling:.1%} of {show_bandwidth(self.ceiling)} GB/s, the "
                    "highest bandwidth measured here"
                )
        elif self.why_no_device:
            facts.append(f"no device time: {without_advice(self.why_no_device)}")
        return facts

    def _stage_table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [name, show_time(self.stages[name]), STAGES[name]]
            for name in STAGES
            if name in self.stages
        ]
        return ["stage", "time", "what it is"], rows

    def _stage_lines(self) -> str:
        _, rows = self._stage_table()
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        return "\n".join(
            f"{name:<{widths[0]}}  {spent:>{widths[1]}}  {words}" for name, spent, words in rows
        )

    def __str__(self) -> str:
        width = terminal_width()
        body = lay_out(*self._table(), left=1, width=width)
        parts = [self.title, body, fold_lines(self._facts(), width)]
        if self.stages:
            parts.append(f"stages of a call from host memory\n{self._stage_lines()}")
        if self.counters:
            parts.append(lay_out(*counter_table(self.counters), left=1, width=width))
        if self.warnings:
            parts.append(fold_lines((f"warning: {each}" for each in self.warnings), width))
        return "\n\n".join(parts) + "\n"

    def to_markdown(self) -> str:
        """The table and its notes, as Markdown.

        Returns
        -------
        str
        """
        parts = [f"**{self.title}**", markdown(*self._table()), "; ".join(self._facts()) + "."]
        if self.stages:
            parts.append(markdown(*self._stage_table()))
        parts += [f"*Warning: {each}.*" for each in self.warnings]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        tables = [table(*self._table(), left=1)]
        if self.stages:
            tables.append(table(*self._stage_table(), left=3))
        if self.counters:
            tables.append(table(*counter_table(self.counters), left=1))
        return element(self.title, tables, self._facts(), self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists, strings and numbers.

        Returns
        -------
        dict
        """
        bare: dict[str, Any] = {name: getattr(self, name) for name in _BARE}
        bare["shape"] = list(self.shape)
        bare["axis"] = list(self.axis) if isinstance(self.axis, tuple) else self.axis
        rates = {
            name: getattr(self, name)
            for name in ("bandwidth", "device_bandwidth", "of_peak", "of_ceiling")
        }
        return {
            **bare,
            **rates,
            "host": self.host.to_dict(),
            "on_device": None if self.on_device is None else self.on_device.to_dict(),
            "why_no_device": self.why_no_device,
            "stages": dict(self.stages),
            "warnings": list(self.warnings),
            "counters": [dict(each) for each in self.counters],
            "environment": self.environment,
        }

    def _rows(self) -> list[list[Any]]:
        setting = flat_environment(self.environment)
        bare = [name for name in _BARE if name not in ("peak", "ceiling", "first_call")]
        rows: list[list[Any]] = [["time", "number", "seconds", *bare, *setting]]
        for words, spread in (("host", self.host), ("on_device", self.on_device)):
            for i, seconds in enumerate(() if spread is None else spread.samples):
                rows.append(
                    [words, i, seconds, *(getattr(self, name) for name in bare), *setting.values()]
                )
        return rows

    def plot(self, ax: Axes | Figure | None = None) -> Axes:
        """Draw what the call is made of: a bar for each stage, beside the whole.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or matplotlib.figure.Figure, optional
            Where to; a figure of its own by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        drawn = {
            name: self.stages[name] for name in STAGES if name in self.stages and name != "compile"
        }
        return plot_stages(self.title, drawn, self.host, ax)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


make_public(Timing)
