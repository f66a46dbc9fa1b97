"""A session of measurements on one array: its copies, the work between samples, and the turns that
time calls.

Wall time is of the whole synchronous call, from the array where the caller has it to the result.
Device time is of the kernels alone, by events around them, over a copy of the array that was
uploaded before.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core, _functions
from .._calls import NoValue, OwnCall
from .._display.tables import show_bytes
from .._exceptions import (
    CudaError,
    DeviceUnavailableError,
    KernelUnavailableError,
    unknown_operator,
)
from .._one_pass import find_pass, measure_pass
from .._records import DeviceInfo, devices
from .._yours.kernel import Kernel
from .._yours.operator_call import DeviceRows
from .._yours.own_operator import Operator
from .baselines import BASELINES, DeviceView
from .benchmark_array import BenchmarkArray, on_device
from .clocks import Clocks, read_clocks
from .environment import last_level_cache_bytes, peak_bytes_per_second
from .sampling import Turn, calls_for, host_samples

__all__ = ["CACHES", "REFUSED", "BenchmarkSession"]

CACHES = ("hot", "cold", "rotated")
"""Contents of the caches when a sample starts: the array, nothing of it, or other copies of it."""
FLUSH_CACHES, HOST_FLUSH_CACHES = 4, 2
"""Bytes written between samples, or bytes of all copies, over the size of the L2 or the CPU's
last-level cache."""
MOST_COPIES = 64
WARMUP_CALLS = 3
WARMUP_RUNS = 3
"""Untimed calls and launches before the first sample."""
RUNS_PER_TURN = 5
"""Device samples per turn, after one untimed run that restores the contents of the caches."""

REFUSED = (TypeError, ValueError, NotImplementedError, KernelUnavailableError)
"""Exceptions by which an operator, dtype, kernel or library refuses the work."""
_NO_DEVICE_COPY = (MemoryError, CudaError, DeviceUnavailableError)


def operators() -> list[str]:
    """Names of the operators that have kernels and a function of the package."""
    return [name for name in _core.OPERATORS if name in _functions.__all__]


def check_operator(op: str) -> str:
    """Return an operator that can be measured; raise ``ValueError`` for others."""
    if op not in operators():
        raise unknown_operator(op, operators())
    return op


def expect_kernel(name: object) -> None:
    """Raise ``ValueError`` for a library's name where a kernel's is expected."""
    if name in BASELINES and name not in (row["name"] for row in _core.kernels()):
        raise ValueError(
            f"{name!r} is a library, not a kernel: compare measures libraries beside the kernels, "
            "all that are installed or those of baselines= (--baselines)"
        )


_Request = tuple[str, int, tuple[int, ...], Any, int, str, int, int, int]


def ignoring_array(call: Callable[[], Any]) -> Callable[[Any], Any]:
    """Adapt a call without arguments to callers that pass the array."""
    return lambda _: call()


class BenchmarkSession:
    """Measurements of one array; use it as a context.

    Parameters
    ----------
    measured : BenchmarkArray
    axis : None or int or tuple of ints
    device : str or None
        As the reductions take it.
    cache : {"hot", "cold", "rotated"}
    with_device : bool, optional
        Whether the array is put into device memory, for times of the kernels alone.

    Attributes
    ----------
    place
        Where reductions run: ``"cpu"``, ``"cuda:N"``, or ``"auto"``.
    info
        The CUDA device, or ``None``.
    why_no_device
        The reason why there are no device times; ``""`` if there are.
    readings
        :class:`Clocks` of the GPU, while it was at work.
    """

    def __init__(
        self,
        measured: BenchmarkArray,
        axis: Any,
        device: str | None,
        cache: str,
        with_device: bool = True,
    ) -> None:
        if cache not in CACHES:
            raise ValueError(f"cache must be one of {', '.join(map(repr, CACHES))}, not {cache!r}")
        self.measured, self.axis, self.cache = measured, axis, cache
        self.place, ordinal = _place(measured, device)
        self.info: DeviceInfo | None = next(
            (each for each in devices() if each.ordinal == ordinal), None
        )
        self.why_no_device = (
            "" if self.info is not None else (_core.why_no_cuda() or "the CPU was asked for")
        )
        if self.info is not None and not with_device:
            self.why_no_device = "it was not asked for"
        self._reads_device = self.info is not None and (with_device or measured.pointer is not None)
        self.reduced = measured.trailing(axis)
        self.readings: list[Clocks] = []
        self._open = contextlib.ExitStack()
        self._pointers: list[int] = []
        self._arrays: list[Any] = [measured.array]
        self._next = 0
        self._scratch: np.ndarray[Any, Any] | None = None

    @property
    def cache_bytes(self) -> int:
        """Size of the L2 cache of the GPU, or of the CPU's last-level cache."""
        return (
            self.info.l2_bytes
            if self._reads_device and self.info is not None
            else last_level_cache_bytes()
        )

    @property
    def flush_bytes(self) -> int:
        """Device memory that is written before each device sample."""
        return (
            FLUSH_CACHES * self.info.l2_bytes
            if self.cache == "cold" and self.info is not None
            else 0
        )

    @property
    def peak(self) -> float | None:
        """Theoretical bandwidth of the GPU's memory, bytes per second; ``None`` on the host."""
        return peak_bytes_per_second(self.info) if self.info is not None else None

    def __enter__(self) -> BenchmarkSession:
        try:
            self._lay_out()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _copies(self, wanted_bytes: int) -> int:
        if self.cache != "rotated":
            return 1
        return min(max(2, math.ceil(wanted_bytes / self.measured.nbytes)), MOST_COPIES)

    def _lay_out(self) -> None:
        host = self.measured.pointer is None
        if host:
            flush = HOST_FLUSH_CACHES * last_level_cache_bytes()
            self._arrays += [self.measured.array.copy() for _ in range(self._copies(flush) - 1)]
            if self.cache == "cold":
                self._scratch = np.empty(max(flush, 1), np.uint8)
        if self.info is None or self.why_no_device:
            return
        if self.reduced is None:
            self.why_no_device = (
                "the reduced axes are not the last ones: the library packs such arrays on the host"
            )
            return
        if not host:
            if self.cache == "rotated":
                raise ValueError("a device array is not copied: cache='rotated' takes a host array")
            assert self.measured.pointer is not None
            self._pointers = [self.measured.pointer]
            return
        try:
            for _ in range(self._copies(FLUSH_CACHES * self.info.l2_bytes)):
                lent = on_device(self.measured.array, self.info.ordinal)
                self._pointers.append(self._open.enter_context(lent))
        except _NO_DEVICE_COPY as error:
            if not self._pointers:
                size = show_bytes(self.measured.nbytes)
                self.why_no_device = (
                    f"the array ({size}) cannot be put on the device whole: {error}"
                )

    # ------------------------------------------------------------ calls

    def reduction(
        self, op: str | Operator | tuple[Any, ...], options: dict[str, Any]
    ) -> Callable[[Any], Any]:
        """The call ``function(array)`` that is timed, with these options of the reductions."""
        given = {name: value for name, value in options.items() if value is not None}
        if not isinstance(op, str):
            where = {"axis": self.axis, "device": self.place}
            return functools.partial(_functions.reduce, op=op, **where, **given)
        if self.measured.pointer is not None:
            return lambda _: self.reduce_there(op, options)
        function = getattr(_functions, op)
        return functools.partial(function, axis=self.axis, device=self.place, **given)

    def _request(self, op: str, options: dict[str, Any], pointer: int) -> _Request:
        assert self.info is not None
        assert self.reduced is not None
        it = self.measured
        kernel, block, grid = (
            options["kernel"],
            options["block_size"] or 0,
            options["grid_size"] or 0,
        )
        dtype = it.dtype.newbyteorder("=")
        return op, pointer, it.shape, dtype, self.reduced, kernel, self.info.ordinal, block, grid

    def _load(self, op: str, kernel: Kernel, options: dict[str, Any]) -> Any:
        """A kernel of the user's own, loaded for the array in device memory."""
        assert self.info is not None
        it = self.measured
        if op != kernel.op:
            raise ValueError(f"kernel '{kernel.name}' computes {kernel.op}, not {op}")
        if self.reduced != len(it.shape):
            raise ValueError(f"kernel '{kernel.name}' reduces whole arrays: axis must be None")
        sizes = options["block_size"], options["grid_size"]
        return kernel.load(self.info.ordinal, it.dtype.name, it.elements, *sizes)

    def _measure(
        self, op: Operator, options: dict[str, Any], pointer: int, count: int
    ) -> list[float]:
        """Device times of a kernel with an operator of the user's own."""
        assert self.info is not None
        assert self.reduced is not None
        it, stream = self.measured, _core.stream_handle(options["stream"])
        sizes = options["block_size"], options["grid_size"]
        call = OwnCall(
            None, None, None, None, False, NoValue, True, options["kernel"], None, *sizes, None
        )
        where = (it.dtype.newbyteorder("="), self.reduced, self.info.ordinal, stream)
        given = DeviceRows(pointer, it.shape, *where)
        return op.measure(call, given, count, self.flush_bytes)

    def _measure_pass(
        self, ops: tuple[Any, ...], options: dict[str, Any], pointer: int, count: int
    ) -> list[float]:
        """Device times of the pass over memory that a tuple of operators shares."""
        assert self.info is not None
        if options["kernel"] != "auto":
            raise ValueError("operators share a pass by kernel 'auto' alone")
        it, stream = self.measured, _core.stream_handle(options["stream"])
        dtype = it.dtype.newbyteorder("=").name
        source = _core.device_array(pointer, it.shape, None, dtype, self.info.ordinal, None, self)
        sizes = {"block_size": options["block_size"], "grid_size": options["grid_size"]}
        found = find_pass(source, self.axis, ops, **sizes)
        if found is None or len(found.positions) < len(ops):
            mine = () if found is None else found.positions
            alone = [getattr(op, "name", op) for i, op in enumerate(ops) if i not in mine]
            raise ValueError(f"there are several launches: {', '.join(alone)} take their own")
        return measure_pass(found, ops, source, count, self.flush_bytes, stream)

    def reduce_there(self, op: str, options: dict[str, Any]) -> Any:
        """Reduce the array in device memory to a result on the host."""
        stream = _core.stream_handle(options["stream"])
        if isinstance(options["kernel"], Kernel):
            loaded = self._load(op, options["kernel"], options)
            return loaded.reduce(self._pointers[0], stream)
        request = self._request(op, options, self._pointers[0])
        return _core.reduce_device(*request, options["dtype"], stream)

    def view(self) -> DeviceView:
        """The copy in device memory, for other libraries."""
        assert self.info is not None
        it = self.measured
        return DeviceView(
            self._pointers[0], it.shape, it.dtype.newbyteorder("="), self.info.ordinal, self
        )

    # ------------------------------------------------------------ turns

    def _rotate(self, things: list[Any]) -> Any:
        self._next += 1
        return things[self._next % len(things)]

    def _flush_host(self) -> None:
        assert self._scratch is not None
        self._scratch.fill(self._next & 1)
        self._next += 1

    def host_turn(self, call: Callable[[Any], Any]) -> Turn:
        """Turn of wall times of ``call(array)``, after warm-up and choice of calls per sample."""
        best = math.inf
        for _ in range(WARMUP_CALLS):
            start = time.perf_counter()
            call(self._rotate(self._arrays))
            best = min(best, time.perf_counter() - start)
            if best > 0.1:
                break
        if self._scratch is not None:
            return Turn(host_samples(lambda: call(self._arrays[0]), 1, self._flush_host))
        number = calls_for(best)
        once: Callable[[], Any] = functools.partial(call, self._arrays[0])
        if len(self._arrays) > 1:

            def once() -> Any:
                return call(self._rotate(self._arrays))

        return Turn(host_samples(once, number), calls_per_sample=number)

    def device_turn(
        self, op: str | Operator | tuple[Any, ...], options: dict[str, Any]
    ) -> Turn | None:
        """Turn of device times of a kernel over the copies in device memory.

        ``None`` if there are none.
        """
        if not self._pointers or self.info is None:
            return None
        info, stream = self.info, _core.stream_handle(options["stream"])
        kernel = options["kernel"]
        own = None
        if isinstance(kernel, Kernel):
            assert isinstance(op, str)
            own = self._load(op, kernel, options)

        def run(pointer: int, warmup: int, count: int) -> list[float]:
            if isinstance(op, Operator):
                return self._measure(op, options, pointer, warmup + count)[warmup:]
            if isinstance(op, tuple):
                return self._measure_pass(op, options, pointer, warmup + count)[warmup:]
            if own is not None:
                found: list[float] = own.measure(pointer, warmup, count, self.flush_bytes, stream)
                return found
            request = self._request(op, options, pointer)
            times = _core.measure(
                *request, warmup, count, self.flush_bytes, options["dtype"], stream
            )
            return [1e-3 * each for each in times]

        def take(count: int) -> list[float]:
            if len(self._pointers) > 1:
                times = [run(self._rotate(self._pointers), 0, 1)[0] for _ in range(count)]
            else:
                times = run(self._pointers[0], 1, count)
            self.read_clocks(info)
            return times

        first = run(self._pointers[0], 0, 1)[0]
        if first < SLOW_SECONDS:
            run(self._pointers[0], WARMUP_RUNS, 0)
        return Turn(take, batch=RUNS_PER_TURN if first < SLOW_SECONDS else 1)

    def read_clocks(self, info: DeviceInfo) -> None:
        """Read the GPU's clocks, during or right after work."""
        reading = read_clocks(info.uuid)
        if reading is not None:
            self.readings.append(reading)

    def cache_troubles(self) -> list[str]:
        """A warning if repeated runs read a cache instead of memory."""
        if self.cache != "hot" or self.measured.nbytes > self.cache_bytes:
            return []
        where = "the L2 cache" if self._reads_device else "the CPU's last-level cache"
        sizes = f"{show_bytes(self.measured.nbytes)} fit in {show_bytes(self.cache_bytes)}"
        return [
            f"the array fits in {where} ({sizes}): repeated runs do not read memory; cache='cold' "
            "(--cache cold) flushes it"
        ]


SLOW_SECONDS = 0.05
"""Device time of a run above which turns have one sample, and there is no further warming up."""


def _place(measured: BenchmarkArray, device: str | None) -> tuple[str, int | None]:
    """Where reductions run, and the ordinal of the CUDA device of device times."""
    if measured.pointer is not None:
        if device not in (None, "cuda", f"cuda:{measured.device}"):
            raise ValueError(
                f"the array is on cuda:{measured.device}, which device={device!r} is not"
            )
        return f"cuda:{measured.device}", measured.device
    no_cuda = _core.why_no_cuda()
    if device == "auto":
        return device, None if no_cuda else 0
    if device is None and no_cuda is not None:
        return "cpu", None
    _functions.sum(np.ones(1, np.int8), device=device)  # raises the library's own errors
    run = _core.last_run()
    assert run is not None
    place: str = run["device"]
    return place, int(place.removeprefix("cuda:")) if place != "cpu" else None
