"""Several reductions of one array by a GPU in one pass over memory, where that has their bits.

The core decides which operators share the pass (``csrc/lib/rules/plan_several.c``); what it leaves
to calls of their own is not among the results here. An array of the host crosses the bus once, in
pieces or in blocks of whole rows.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _core
from ._calls import Array, Options
from ._core import DeviceArray
from ._dtypes import native_dtype
from ._first_made import first_made
from ._interop.device_reduction import Work
from ._interop.libraries import DeviceBuffer, Library
from ._records import MinMax

__all__ = [
    "compile_pass",
    "find_pass",
    "forget_plans",
    "measure_pass",
    "reduce_device_array",
    "reduce_host_array",
]

COUNT_NAN = "_count_nan"
"""Stands for the number of NaN, which is no operator of its own."""
LEAST_BYTES = 64 << 20
"""Of an array: reading a smaller one several times takes less time than preparing a pass does."""
LEAST_HOST_OPERATORS = 4
"""Of an array of the host: calls of their own fill pinned memory faster than Python does."""
CHUNK_BYTES = 32 << 20
"""Of an array of the host that cross the bus at a time."""
_PIECE_BYTES = 2 << 20
"""Of a chunk, that a thread copies."""
_SLOTS = 2
"""Chunks under way: one crosses the bus while the other one is reduced."""
_MOST_PLANS = 256
_ALIGNED = 4096
"""An address that nothing is read from."""
_DDOF = frozenset(("var", "std", "nanvar", "nanstd"))
_EXTREMES = frozenset(("min", "max", "minmax", "ptp", "nanmin", "nanmax"))

Member = tuple[int, bool, bool]
"""An operator's number, whether it leaves out NaN, whether it counts them."""
Placed = tuple[Any, DeviceArray]
"""A result, and its memory."""


class Pass(NamedTuple):
    """A plan, its program on a device, and facts that calls need."""

    plan: bytes
    loaded: Any
    positions: tuple[int, ...]
    """Of the operators that it makes results of."""
    results: tuple[tuple[str, int], ...]
    """Dtype and number of outputs of each operator's results."""
    rows: int
    n: int


_passes: dict[tuple[Any, ...], Pass | None] = {}
_programs: dict[tuple[Any, ...], Any] = {}
"""Programs stay loaded: a graph may hold their kernels."""


@functools.cache
def _facts(ordinal: int) -> tuple[Any, ...]:
    """Facts of a device, which the driver takes 400 us to tell."""
    return _core.device_facts(ordinal)


def forget_plans() -> None:
    """Plan anew: the costs of a device's plans are others now."""
    _facts.cache_clear()
    _passes.clear()


def _member(op: Any) -> Member | None:
    """An operator as a member of a pass; None for one of the user's own."""
    if not isinstance(op, str):
        return None
    if op == COUNT_NAN:
        return _core.OPERATORS["count_nonzero"], False, True
    skips = op.startswith("nan")
    return _core.OPERATORS[op.removeprefix("nan")], skips, False


def find_pass(
    source: DeviceArray,
    axis: Any,
    ops: tuple[Any, ...],
    *,
    block_size: int | None = None,
    grid_size: int | None = None,
    pieces: bool = False,
    resident: int = 0,
) -> Pass | None:
    """Plan a pass over a device array, and load its program; None where there is none.

    Parameters
    ----------
    source : DeviceArray
        The array, or a piece of its only row.
    axis : None or int or tuple of int
    ops : tuple
        Names of operators. Others than names take calls of their own.
    block_size, grid_size : int, optional
        Of the launch; the plan's own choice by default.
    pieces : bool
        Whether `source` is a piece.
    resident : int
        Threads that a multiprocessor holds at least; 0 is the plan's own choice.
    """
    members = tuple(_member(op) for op in ops)
    key = (
        source.device, source.dtype, source.shape, source.strides, source.pointer % 16, axis,
        members, block_size, grid_size, pieces, resident,
    )  # fmt: skip
    found = _passes.get(key, ...)  # in one step: another thread may forget all plans
    if found is not ...:
        return found
    if len(_passes) >= _MOST_PLANS:
        _passes.clear()
    _passes[key] = made = _make_pass(
        source,
        axis,
        members,
        _facts(source.device),
        (block_size or 0, grid_size or 0, pieces, resident),
    )
    return made


def _make_pass(
    source: DeviceArray,
    axis: Any,
    members: tuple[Member | None, ...],
    facts: tuple[Any, ...],
    options: tuple[int, int, bool, int],
) -> Pass | None:
    known = tuple(i for i, member in enumerate(members) if member is not None)
    given = tuple(member for member in members if member is not None)
    if not 1 < len(given) <= _core.MOST_SEVERAL:
        return None
    plan, made = _core.plan_several(source, axis, given, facts, *options)
    mine = [i for i in range(len(given)) if made["in_pass"] >> i & 1]
    if not mine:
        return None
    key = (source.device, source.dtype, given, made["in_pass"], made["block"], made["resident"])

    def load() -> Any:
        image, symbols, _ = _core.compile_several(plan, facts[0])
        return _core.load_image(source.device, image, symbols)

    return Pass(
        plan,
        first_made(_programs, key, load),
        tuple(known[i] for i in mine),
        tuple(made["results"][i] for i in mine),
        made["rows"],
        made["n"],
    )


def _queue(
    found: Pass,
    ops: tuple[Any, ...],
    address: int,
    memories: list[int],
    ddof: float,
    stride: int,
    stream: int,
    piece: tuple[int, int, int, int, int, int] | None = None,
) -> None:
    """Queue a launch; `memories` are addresses of the pass's results."""
    outs = _places(found, ops, memories)
    _core.queue_several(found.loaded, found.plan, address, outs, ddof, stride, stream, piece)


def _places(found: Pass, ops: tuple[Any, ...], memories: list[int]) -> tuple[int, ...]:
    """Addresses of results by member, 0 where the pass makes none."""
    place = iter(memories)
    return tuple(
        next(place) if i in found.positions else 0
        for i, op in enumerate(ops)
        if isinstance(op, str)
    )


def _kept(shape: tuple[int, ...], axis: Any, keepdims: bool) -> tuple[int, ...]:
    """The shape of a result."""
    reduced = range(len(shape)) if axis is None else normalize_axis_tuple(axis, len(shape))
    return tuple(
        1 if i in reduced else extent
        for i, extent in enumerate(shape)
        if keepdims or i not in reduced
    )


def _is_plain_axis(axis: Any, ndim: int) -> bool:
    """Whether an axis is one of the array's, or None: anything else has errors to raise."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    return axis is None or (
        all(type(i) is int and -ndim <= i < ndim for i in axes)
        and len({i % ndim for i in axes}) == len(axes)
    )


def _last_axes(shape: tuple[int, ...], axis: Any) -> tuple[int, int] | None:
    """Rows and elements of each where the last axes are reduced; None where others are."""
    ndim = len(shape)
    reduced = sorted(i % ndim for i in (range(ndim) if axis is None else np.atleast_1d(axis)))
    if reduced != list(range(ndim - len(reduced), ndim)):
        return None
    kept = ndim - len(reduced)
    return math.prod(shape[:kept]), math.prod(shape[kept:])


def _own_axis_only(op: Any) -> bool:
    """Whether an operator takes one axis, or None, and no tuple."""
    return isinstance(op, str) and "arg" in op


def compile_pass(
    ops: tuple[str, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    axis: Any,
    facts: tuple[Any, ...],
    block_size: int | None,
    on_device: bool,
) -> tuple[bool, list[str]]:
    """Have the program of a call's pass in the cache on disk: whether it was compiled now, and the
    operators that take calls of their own. The GPU of these facts need not be here.
    """
    alone = list(ops)
    if math.prod(shape) * dtype.itemsize < LEAST_BYTES or not _is_plain_axis(axis, len(shape)):
        return False, alone
    if not on_device:
        if len(ops) < LEAST_HOST_OPERATORS:
            return False, alone
        shape, axis = _piece_of(shape, axis, dtype.itemsize)
        if not shape:
            return False, alone
    # An address that is aligned as memory is; nothing is read there.
    source = _core.device_array(_ALIGNED, shape, None, dtype.name, 0, None, None)
    members = tuple(member for op in ops if (member := _member(op)) is not None)
    if not 1 < len(members) <= _core.MOST_SEVERAL:
        return False, alone
    plan, made = _core.plan_several(
        source, axis, members, facts, block_size or 0, 0, not on_device, 0
    )
    if made["in_pass"] == 0:
        return False, alone
    _, _, compiled = _core.compile_several(plan, facts[0])
    return compiled, [op for i, op in enumerate(ops) if not made["in_pass"] >> i & 1]


def _piece_of(shape: tuple[int, ...], axis: Any, itemsize: int) -> tuple[tuple[int, ...], Any]:
    """The shape and axis of a host array's first piece; no shape where it has none."""
    found = _last_axes(shape, axis)
    if found is None:
        return (), None
    rows, n = found
    if rows == 1:
        return (min(n, _chunk_bytes() // itemsize),), None
    step = min(rows, _chunk_bytes() // (n * itemsize))
    return ((step, n), 1) if step > 0 else ((), None)


def measure_pass(
    found: Pass,
    ops: tuple[Any, ...],
    source: DeviceArray,
    count: int,
    flush_bytes: int,
    stream: int,
) -> list[float]:
    """Device times of a pass, in seconds; `flush_bytes` of other memory are written before each."""
    bytes_ = [
        found.rows * outputs * native_dtype(dtype).itemsize for dtype, outputs in found.results
    ]
    rooms = [DeviceBuffer((each,), "uint8", source.device, stream) for each in bytes_]
    outs = _places(found, ops, [room.memory.pointer for room in rooms])
    times = _core.measure_several(
        found.loaded, found.plan, source.pointer, outs, 0.0, found.rows, stream, count, flush_bytes
    )
    return [1e-3 * each for each in times]


# ---------------------------------------------------------------- device arrays


def reduce_device_array(
    library: Library, a: Any, ops: tuple[Any, ...], axis: Any, keepdims: bool, given: dict[str, Any]
) -> dict[int, Any]:
    """Results of operators by their place in `ops`: of those that one pass makes."""
    source = library.read(a)
    place = given.get("device")
    is_here = place in (None, "auto", "cuda", f"cuda:{source.device}")
    ddof = given.get("ddof", 0)
    bytes_ = math.prod(source.shape) * _core.DTYPES[source.dtype][0]
    if (
        not is_here
        or bytes_ < LEAST_BYTES
        or not _is_plain_axis(axis, len(source.shape))
        or (isinstance(axis, tuple) and any(map(_own_axis_only, ops)))
        or type(keepdims) is not bool
        or type(ddof) not in (int, float)
    ):
        return {}
    block, grid = given.get("block_size"), given.get("grid_size")
    found = find_pass(source, axis, ops, block_size=block, grid_size=grid)
    if found is None or (ddof >= found.n and any(op in _DDOF for op in ops)):
        return {}
    options: Options = ("auto", place, block, grid, given.get("stream"))
    shape = _kept(source.shape, axis, keepdims)
    made: list[Placed] = []
    with Work(library, a, source, options) as work:
        for dtype, outputs in found.results:
            made.append(work.empty((outputs, *shape) if outputs > 1 else shape, dtype))
        _queue(
            found, ops, source.pointer, [memory.pointer for _, memory in made], ddof, found.rows,
            work.stream,
        )  # fmt: skip
    results = {}
    for i, (result, _), (_, outputs) in zip(found.positions, made, found.results, strict=True):
        one = library.finish(a, result)
        results[i] = MinMax(*library.split(one)) if outputs > 1 else one
    return results


# ---------------------------------------------------------------- host arrays


class _Slot:
    """Room for a chunk: pinned where it can be, and on the device."""

    def __init__(self, ordinal: int, stream: int, bytes_: int) -> None:
        pinned = _core.pinned_bytes(bytes_)
        self.bytes = bytes_
        self.staged = np.empty(bytes_, np.uint8) if pinned is None else pinned
        self.room = DeviceBuffer((bytes_,), "uint8", ordinal, stream)
        self.mark: Any = None

    def wait(self) -> None:
        """Wait until the last chunk has been reduced."""
        if self.mark is not None:
            _core.mark_wait(self.mark)
            self.mark = None

    def fill(self, part: Array, ordinal: int, stream: int) -> DeviceArray:
        """Queue the upload of a contiguous part of the array."""
        self.wait()
        bytes_ = part.nbytes
        _copy(self.staged[:bytes_], part.reshape(-1).view(np.uint8))
        pointer = self.room.memory.pointer
        target = _core.device_array(pointer, (bytes_,), None, "uint8", ordinal, stream, self.room)
        _core.queue_upload(target, self.staged[:bytes_], stream)
        return _core.device_array(
            pointer, part.shape, None, part.dtype.name, ordinal, stream, self.room
        )


@functools.cache
def _copiers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_core.limits()["cpu_threads"], "gpureduce-copy")


def _copy(to: Array, source: Array) -> None:
    """Copy bytes by several threads: one of them is slower than the bus."""
    ends = range(0, len(source), _PIECE_BYTES)
    if len(ends) == 1:
        np.copyto(to, source)
        return
    pieces = [slice(begin, begin + _PIECE_BYTES) for begin in ends]
    for _ in _copiers().map(lambda each: np.copyto(to[each], source[each]), pieces):
        pass


_idle: list[tuple[int, _Slot]] = []
"""Slots that no call has, with their devices: pinning memory takes longer than filling it."""


@contextlib.contextmanager
def _slots(ordinal: int, stream: int, bytes_: int) -> Iterator[list[_Slot]]:
    """Slots of so many bytes, of a device; idle again when all chunks have been reduced."""
    taken: list[_Slot] = []
    for each in list(_idle):
        if each[0] == ordinal and each[1].bytes >= bytes_ and len(taken) < _SLOTS:
            with contextlib.suppress(ValueError):  # another thread has taken it
                _idle.remove(each)
                taken.append(each[1])
    while len(taken) < _SLOTS:
        taken.append(_Slot(ordinal, stream, bytes_))
    yield taken
    for slot in taken:
        slot.wait()
    _idle.extend((ordinal, slot) for slot in taken)
    del _idle[:-_SLOTS]


def _chunk_bytes() -> int:
    """Bytes of a chunk within the limits of memory."""
    limits = _core.limits()
    share = min(limits["device_bytes"], limits["pinned_bytes"]) // (2 * _SLOTS)
    return min(CHUNK_BYTES, share)


def reduce_host_array(
    array: Array, ops: tuple[Any, ...], axis: Any, keepdims: bool, given: dict[str, Any]
) -> dict[int, Any]:
    """Results of operators by their place in `ops`: of those that one pass over the bus makes.

    The array is of a dtype of the core's, and the device is a GPU.
    """
    ddof = given.get("ddof", 0)
    if (
        array.nbytes < LEAST_BYTES
        or len(ops) < LEAST_HOST_OPERATORS
        or not array.flags.c_contiguous
        or not array.dtype.isnative
        or not _is_plain_axis(axis, array.ndim)
        or (isinstance(axis, tuple) and any(map(_own_axis_only, ops)))
        or type(keepdims) is not bool
        or type(ddof) not in (int, float)
        or {"stream", "block_size", "grid_size"} & given.keys()
    ):
        return {}
    by_rows = _last_axes(array.shape, axis)
    if by_rows is None or ddof >= by_rows[1]:
        return {}
    rows = array.reshape(by_rows)
    ordinal = _core.read_ordinal(given.get("device"))
    assert ordinal is not None
    if len(rows) == 1:
        found, outs = _reduce_row(rows[0], ops, ordinal, ddof)
    else:
        found, outs = _reduce_rows(rows, ops, ordinal, ddof)
    if found is None:
        return {}
    shape = _kept(array.shape, axis, keepdims)
    results = {}
    for i, out, (_, outputs) in zip(found.positions, outs, found.results, strict=True):
        if not _is_certain(ops[i], out):
            continue
        one = out.reshape((outputs, *shape) if outputs > 1 else shape)
        results[i] = MinMax(one[0][()], one[1][()]) if outputs > 1 else one[()]
    return results


def _is_certain(op: str, out: Array) -> bool:
    """Whether results do not depend on the order, and nothing is to be warned of."""
    if "arg" in op:
        return not bool((out < 0).any())
    if out.dtype.kind in "biu":
        return True
    ordinary = out == out
    return bool(np.all(ordinary & (out != 0) if op in _EXTREMES else ordinary))


def _download(ordinal: int, outs: list[DeviceBuffer], found: Pass, stream: int) -> list[Array]:
    """Results of a pass, each of as many rows as its buffer has."""
    results = []
    for out, (dtype, outputs) in zip(outs, found.results, strict=True):
        host = np.empty(out.memory.shape[0], np.uint8)
        _core.download(ordinal, out.memory.pointer, host, stream)
        results.append(host.view(native_dtype(dtype)).reshape(outputs, -1))
    return results


def _outs(found: Pass, rows: int, ordinal: int, stream: int) -> list[DeviceBuffer]:
    return [
        DeviceBuffer((rows * outputs * native_dtype(dtype).itemsize,), "uint8", ordinal, stream)
        for dtype, outputs in found.results
    ]


def _reduce_row(
    row: Array, ops: tuple[Any, ...], ordinal: int, ddof: float
) -> tuple[Pass | None, list[Array]]:
    """A row, in pieces: blocks of all pieces are blocks of one row."""
    stream = _core.device_stream(ordinal)
    most = _chunk_bytes()
    with _slots(ordinal, stream, most) as slots:
        return _reduce_pieces(row, ops, ordinal, ddof, stream, most // row.itemsize, slots)


def _reduce_pieces(
    row: Array,
    ops: tuple[Any, ...],
    ordinal: int,
    ddof: float,
    stream: int,
    step: int,
    slots: list[_Slot],
) -> tuple[Pass | None, list[Array]]:
    pieces = -(-row.size // step)
    found, outs, room = None, [], None
    for number in range(pieces):
        slot = slots[number % _SLOTS]
        part = row[number * step : (number + 1) * step]
        piece = slot.fill(part, ordinal, stream)
        if found is None:
            found = find_pass(piece, None, ops, pieces=True)
            if found is None:
                return None, []
            outs = _outs(found, 1, ordinal, stream)
            bytes_ = _core.several_scratch(found.plan, pieces)
            room = DeviceBuffer((max(bytes_, 16),), "uint8", ordinal, stream)
            _core.fill_device(room.memory, bytes(1), stream)
        assert room is not None
        cut = (part.size, number * step, row.size, number, pieces, room.memory.pointer)
        addresses = [out.memory.pointer for out in outs]
        _queue(found, ops, piece.pointer, addresses, ddof, 1, stream, cut)
        slot.mark = _core.mark_stream(ordinal, stream)
    assert found is not None
    return found, _download(ordinal, outs, found, stream)


def _reduce_rows(
    rows: Array, ops: tuple[Any, ...], ordinal: int, ddof: float
) -> tuple[Pass | None, list[Array]]:
    """Whole rows at a time."""
    stream = _core.device_stream(ordinal)
    most = _chunk_bytes()
    step = min(most // (rows.nbytes // len(rows)), len(rows))
    if step == 0:
        return None, []
    with _slots(ordinal, stream, most) as slots:
        return _reduce_blocks(rows, ops, ordinal, ddof, stream, step, slots)


def _reduce_blocks(
    rows: Array,
    ops: tuple[Any, ...],
    ordinal: int,
    ddof: float,
    stream: int,
    step: int,
    slots: list[_Slot],
) -> tuple[Pass | None, list[Array]]:
    made: list[tuple[Pass, list[DeviceBuffer]]] = []
    for number, begin in enumerate(range(0, len(rows), step)):
        slot = slots[number % _SLOTS]
        piece = slot.fill(rows[begin : begin + step], ordinal, stream)
        found = find_pass(piece, 1, ops, pieces=True)
        if found is None or (made and found.positions != made[0][0].positions):
            return None, []
        count = piece.shape[0]
        outs = _outs(found, count, ordinal, stream)
        addresses = [out.memory.pointer for out in outs]
        _queue(found, ops, piece.pointer, addresses, ddof, count, stream)
        slot.mark = _core.mark_stream(ordinal, stream)
        made.append((found, outs))
    parts = [_download(ordinal, outs, found, stream) for found, outs in made]
    return made[0][0], [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]
