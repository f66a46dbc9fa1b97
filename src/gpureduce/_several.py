"""Several reductions of one array: where memory is read once, and where it is not.

Each result is what the operator's own function returns, to the bit. On the CPU a large array is cut
into tiles that stay in the caches, and every operator reduces a tile before the next one is read:

    rows of an array    tiles of whole rows: each row's result is made in one tile
    one long row        pieces, whose results merge without rounding: exact sums, extremes,
                        positions, truths, counts

A GPU reads memory once by a kernel that has every operator's accumulator (:mod:`_one_pass`).

Operators whose bits depend on how their row is cut (products, variances, sums that are not exact)
are reduced by calls of their own where rows are cut.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _core
from ._calls import Array
from ._dtypes import name_of as dtype_name
from ._exact import ExactSum
from ._interop.inputs import as_array, wrapper_of
from ._interop.libraries import device_library
from ._one_pass import reduce_device_array, reduce_host_array

__all__ = ["is_small", "name_of", "reduce_several", "tuple_of"]

TILE_BYTES = 1 << 21
"""Of a tile: it stays in the caches of today's processors while all operators read it."""
STRIP_BYTES = 256
"""Least bytes that follow each other in a tile of columns: shorter ones waste bandwidth."""
_SMALLEST_ROWS = 2
"""A tile of one row would be reduced as a long row is."""

Reduce = Callable[..., Any]
"""Reduces an array by one operator: ``(array, name, axis=..., keepdims=..., ...)``."""


@functools.lru_cache(maxsize=64)
def tuple_of(names: tuple[str, ...]) -> Any:
    """The named tuple of results."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"operator {name!r} is named twice")
    return collections.namedtuple("Reduced", names)


def is_small(a: Any) -> bool:
    """Whether an array of the host stays in the caches, so that each operator may read it."""
    return type(a) is np.ndarray and a.nbytes <= TILE_BYTES


def name_of(op: Any, found: str | None) -> str:
    """The field that an operator's result has: the name it was given by, or its own."""
    name = op if isinstance(op, str) else found or getattr(op, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"operator {op!r} has no name that a field of the results could have")
    return name


def reduce_several(
    a: Any,
    ops: tuple[Any, ...],
    names: tuple[str, ...],
    reduce: Reduce,
    axis: Any,
    keepdims: bool,
    given: dict[str, Any],
) -> Any:
    """Reduce an array by several operators to a named tuple of results.

    `names` are the fields, `reduce` reduces by one operator, and `given` has its other arguments.
    """
    results = tuple_of(names)
    made: dict[int, Any] = {}
    is_plain = (
        not given.keys() - _PLAIN_OPTIONS
        and given.get("kernel", "auto") == "auto"
        and len(ops) > 1
        and wrapper_of(a) is None
    )
    library = device_library(a) if is_plain else None
    if library is not None:
        made = reduce_device_array(library, a, ops, axis, keepdims, given)
    elif is_plain:
        a = array = as_array(a, "a.filled(0)")
        is_known = array.dtype.names is None and dtype_name(array.dtype) in _core.DTYPES
        if is_known and _runs_on_cpu(given):
            if array.nbytes > TILE_BYTES:
                return results(*_Tiled(array, axis, keepdims, reduce, given).run(ops))
        elif is_known and given.get("device") in _OF_GPU and _core.why_no_cuda() is None:
            made = reduce_host_array(array, ops, axis, keepdims, given)
    return results(
        *(
            made[i] if i in made else reduce(a, op, axis=axis, keepdims=keepdims, **given)
            for i, op in enumerate(ops)
        )
    )


_PLAIN_OPTIONS = {"kernel", "device", "block_size", "grid_size", "stream", "ddof"}
"""Arguments that tiles, and a pass of a GPU, may have: no mask, start, dtype or out."""
_OF_GPU = (None, "cuda", "cuda:0")
"""Devices that a host array is certain to be reduced on, where there is a GPU."""


def _runs_on_cpu(given: dict[str, Any]) -> bool:
    device = given.get("device")
    return device == "cpu" or (device in (None, "auto") and _core.why_no_cuda() is not None)


# ---------------------------------------------------------------- tiles

_EXTREMES = frozenset(("min", "amin", "max", "amax", "minmax", "nanmin", "nanmax", "ptp"))
_SUMS = frozenset(("sum", "nansum", "mean", "nanmean"))
_FREE = frozenset(
    ("any", "all", "count_nonzero", "_count_nan", "argmin", "argmax", "nanargmin", "nanargmax",
     "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor")
)  # fmt: skip


def _is_free(op: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a result has the same bits however its row is cut; extremes but for equal ones."""
    if op in _SUMS:
        is_exact = dtype.kind in "fV"
        # A sum of integers wraps; a mean of wide ones is a sum of doubles.
        return is_exact or (dtype.kind in "biu" and (op.endswith("sum") or dtype.itemsize <= 2))
    return isinstance(op, str) and (op in _FREE or op in _EXTREMES)


class _Tiled:
    """An array of the host that does not fit the caches."""

    def __init__(
        self, array: Array, axis: Any, keepdims: bool, reduce: Reduce, given: dict[str, Any]
    ) -> None:
        self.array, self.axis, self.keepdims = array, axis, bool(keepdims)
        self.reduce, self.given = reduce, given
        axes = range(array.ndim) if axis is None else normalize_axis_tuple(axis, array.ndim)
        self.reduced = tuple(axes)
        self.kept = tuple(i for i in range(array.ndim) if i not in self.reduced)

    def alone(self, op: Any) -> Any:
        """The result of a call of its own."""
        return self.reduce(self.array, op, axis=self.axis, keepdims=self.keepdims, **self.given)

    def run(self, ops: tuple[Any, ...]) -> list[Any]:
        blocks = self.blocks()
        if blocks is not None:
            return self.by_rows(ops, blocks)
        flat = self.flat()
        if flat is None:
            return [self.alone(op) for op in ops]
        return self.by_pieces(ops, flat)

    # ---- whole rows

    def steps(self, axes: tuple[int, ...]) -> list[int]:
        return [abs(self.array.strides[i]) for i in axes if self.array.shape[i] > 1]

    def lies_crosswise(self) -> bool:
        """Whether neighbouring rows are nearer in memory than neighbouring elements of a row."""
        kept, reduced = self.steps(self.kept), self.steps(self.reduced)
        return bool(kept) and (not reduced or min(kept) < min(reduced))

    def blocks(self) -> list[tuple[slice, ...]] | None:
        """Tiles of whole rows, or None where a row does not fit."""
        array = self.array
        if array.size == 0 or 0 in self.steps(tuple(range(array.ndim))):
            return None
        order = sorted(self.kept, key=lambda i: -abs(array.strides[i]))
        bytes_left, cuts = array.nbytes, []
        for axis in order:
            extent = array.shape[axis]
            if bytes_left <= TILE_BYTES:
                break
            each = bytes_left // extent
            step = max(1, TILE_BYTES // each)
            is_strip = abs(array.strides[axis]) * step < STRIP_BYTES
            if each > TILE_BYTES:
                step = 1
            elif is_strip or step < _SMALLEST_ROWS:
                step = min(extent, max(step, _SMALLEST_ROWS))
                if abs(array.strides[axis]) * step < STRIP_BYTES:
                    return None
            cuts.append((axis, step))
            bytes_left = each * step
        if bytes_left > 2 * TILE_BYTES or not cuts:
            return None
        return list(self._cut(cuts))

    def _cut(self, cuts: list[tuple[int, int]]) -> Iterator[tuple[slice, ...]]:
        """The blocks, in the order of memory. None has one row where others have more."""
        whole = [slice(None)] * self.array.ndim
        counts = []
        for axis, step in cuts:
            extent = self.array.shape[axis]
            counts.append(max(1, extent // step) if step > 1 else extent)
        for index in np.ndindex(*counts):
            block = list(whole)
            for (axis, step), i, count in zip(cuts, index, counts, strict=True):
                block[axis] = slice(i * step, None if i == count - 1 else (i + 1) * step)
            yield tuple(block)

    def by_rows(self, ops: tuple[Any, ...], blocks: list[tuple[slice, ...]]) -> list[Any]:
        crosswise = self.lies_crosswise()
        dtype = self.array.dtype
        mine = [
            i for i, op in enumerate(ops) if isinstance(op, str)
            and (not crosswise or _is_free(op, dtype))
        ]  # fmt: skip
        if len(mine) < _SMALLEST_ROWS:
            return [self.alone(op) for op in ops]
        made: dict[int, Any] = {}
        for block in blocks:
            tile = self.array[block]
            place = tuple(
                slice(None) if i in self.reduced else block[i] for i in range(self.array.ndim)
            )
            for i in mine:
                part = self.reduce(tile, ops[i], axis=self.axis, keepdims=True, **self.given)
                parts = part if isinstance(part, tuple) else (part,)
                if i not in made:
                    shape = tuple(
                        1 if k in self.reduced else n for k, n in enumerate(self.array.shape)
                    )
                    made[i] = (
                        type(part),
                        [np.empty(shape, np.asarray(one).dtype) for one in parts],
                    )
                for whole, one in zip(made[i][1], parts, strict=True):
                    whole[place] = one
        results = []
        for i, op in enumerate(ops):
            if i not in made or (crosswise and not self.is_certain(op, made[i][1])):
                results.append(self.alone(op))
                continue
            kind, wholes = made[i]
            ended = [w if self.keepdims else np.squeeze(w, self.reduced)[()] for w in wholes]
            results.append(kind(*ended) if issubclass(kind, tuple) else ended[0])
        return results

    def is_certain(self, op: Any, values: list[Any]) -> bool:
        """Whether equal extremes have equal bits: zeros of both signs, and NaN, may not."""
        if op not in _EXTREMES or self.array.dtype.kind in "biu":
            return True
        return all(bool(np.all((value == value) & (value != 0))) for value in values)

    # ---- pieces of one row

    def flat(self) -> Array | None:
        """All elements in C order as a row without gaps; None where they are not one."""
        array = self.array
        if len(self.reduced) != array.ndim or not array.flags.c_contiguous:
            return None
        if not array.dtype.isnative or array.dtype.kind == "c":
            return None
        return array.reshape(-1)

    def by_pieces(self, ops: tuple[Any, ...], flat: Array) -> list[Any]:
        step = TILE_BYTES // flat.itemsize
        merges: dict[int, _Merge] = {}
        for i, op in enumerate(ops):
            kind = _MERGES.get(op) if isinstance(op, str) else None
            divides = op == "mean" and flat.dtype.kind in "biu"
            if kind is not None and not divides:
                merges[i] = kind(op, flat.dtype)
        if len(merges) < _SMALLEST_ROWS:
            return [self.alone(op) for op in ops]
        for first in range(0, flat.size, step):
            tile = flat[first : first + step]
            for merge in merges.values():
                merge.add(tile, first, self.reduce, self.given)
        results = []
        for i, op in enumerate(ops):
            ended = merges[i].result() if i in merges else None
            if ended is None:
                results.append(self.alone(op))
            elif self.keepdims:
                ones = (1,) * self.array.ndim
                kept = [np.asarray(one).reshape(ones) for one in _parts_of(ended)]
                results.append(type(ended)(*kept) if isinstance(ended, tuple) else kept[0])
            else:
                results.append(ended)
        return results


def _parts_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


# ---------------------------------------------------------------- merging


class _Merge:
    """Results of pieces of a row, merged."""

    def __init__(self, op: str, dtype: np.dtype[Any]) -> None:
        self.op, self.dtype = op, dtype
        self.merged: Any = None

    def add(self, tile: Array, first: int, reduce: Reduce, given: dict[str, Any]) -> None:
        part = reduce(tile, self.op, axis=None, keepdims=False, **given)
        self.merged = part if self.merged is None else self.merge(self.merged, part)

    def merge(self, merged: Any, part: Any) -> Any:
        raise NotImplementedError

    def result(self) -> Any:
        """The row's result; None if its bits are not certain."""
        return self.merged


class _Sum(_Merge):
    """Exact sums of floats, and sums of integers, which wrap."""

    def __init__(self, op: str, dtype: np.dtype[Any]) -> None:
        super().__init__(op, dtype)
        self.state = ExactSum(dtype) if dtype.kind in "fV" else None

    def add(self, tile: Array, first: int, reduce: Reduce, given: dict[str, Any]) -> None:
        if self.state is None:
            super().add(tile, first, reduce, given)
        else:
            self.state.update(tile)

    def merge(self, merged: Any, part: Any) -> Any:
        return np.add(np.asarray(merged), np.asarray(part))[()]

    def result(self) -> Any:
        if self.state is None:
            return self.merged
        total = self.state.mean(self.dtype) if self.op == "mean" else self.state.result(self.dtype)
        return None if total != total else total + self.dtype.type(0)  # which starts at +0


class _Extreme(_Merge):
    def merge(self, merged: Any, part: Any) -> Any:
        if isinstance(part, tuple):
            ends = (np.minimum(merged[0], part[0]), np.maximum(merged[1], part[1]))
            return part._make(ends) if hasattr(part, "_make") else ends
        return (np.minimum if self.op in ("min", "amin") else np.maximum)(merged, part)

    def result(self) -> Any:
        ends = _parts_of(self.merged)
        # Zeros of both signs are equal, and there are many NaN.
        certain = self.dtype.kind in "biu" or all(end == end and end != 0 for end in ends)
        return self.merged if certain else None


class _Position(_Merge):
    """The first of the preferred elements, NaN before all others."""

    def add(self, tile: Array, first: int, reduce: Reduce, given: dict[str, Any]) -> None:
        at = reduce(tile, self.op, axis=None, keepdims=False, **given)
        found = tile[at]
        if self.merged is None or self.precedes(found, self.merged[1]):
            self.merged = at + first, found

    def precedes(self, x: Any, y: Any) -> bool:
        if y != y:
            return False
        return bool(x != x or (x < y if self.op == "argmin" else x > y))

    def result(self) -> Any:
        return np.intp(self.merged[0])


class _Truth(_Merge):
    def merge(self, merged: Any, part: Any) -> Any:
        return merged | part if self.op == "any" else merged & part


class _Count(_Merge):
    def merge(self, merged: Any, part: Any) -> Any:
        return np.intp(merged + part)


_MERGES: dict[str, type[_Merge]] = {
    "sum": _Sum, "mean": _Sum, "min": _Extreme, "amin": _Extreme, "max": _Extreme,
    "amax": _Extreme, "minmax": _Extreme, "argmin": _Position, "argmax": _Position, "any": _Truth,
    "all": _Truth, "count_nonzero": _Count, "_count_nan": _Count,
}  # fmt: skip
"""Operators whose pieces are merged here."""
