"""Structured arrays: each field is reduced as an array of its own.

On a GPU, fields of one dtype whose distances in memory are equal are one array with an axis more:
it is uploaded as it is in memory and reduced by one launch. All others are views with steps. On the
CPU each field is read by itself, which takes less time than the narrow columns of that array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _core
from ._arguments import as_mask, check_is_array
from ._calls import Array, Call, NoValue

__all__ = ["reduce_fields"]

Reduce = Callable[[Call, Array], Any]
"""Reduces an array without fields by a call's other arguments."""
_POSITIONS = ("argmin", "argmax")
_OF_FIELDS = ("dtype", "out", "initial", "center")
"""Arguments that may have a value for each field."""
_NAMES = {"center": "mean"}
"""Of arguments that a call has under another name."""


def reduce_fields(call: Call, array: Array, reduce: Reduce) -> Any:
    """Reduce each field of a structured array.

    Parameters
    ----------
    call : Call
        The call; `dtype`, `out`, `initial` and `mean` may have the array's fields.
    array : ndarray
        With fields.
    reduce : callable
        Reduces an array of numbers by a call.

    Returns
    -------
    numpy.void or ndarray
        With the array's fields; of `minmax` a pair of these.
    """
    array = array.view(np.ndarray)
    if not array.dtype.names:
        raise TypeError(f"{call.name} of a structured array without fields")
    if call.op in _POSITIONS and not isinstance(call.axis, int | np.integer | None):
        raise TypeError(f"{call.name} takes one axis, or None, not {call.axis!r}")
    reduced = _reduced(call, array.ndim)
    for name in _OF_FIELDS:
        _check_fields(call, name, array.dtype)
    results = _Fields(call, array, reduced, reduce).run()
    if call.out is not None:
        return call.out
    if call.op == "minmax":
        return tuple(_join(call, array, reduced, [one[i] for one in results]) for i in range(2))
    return _join(call, array, reduced, results)


def _reduced(call: Call, ndim: int) -> tuple[int, ...]:
    if call.axis is None:
        return tuple(range(ndim))
    if ndim == 0 and call.axis in (0, -1):  # as NumPy reduces a scalar
        return ()
    return tuple(normalize_axis_tuple(call.axis, ndim))


def _names(dtype: np.dtype[Any]) -> tuple[str, ...]:
    return dtype.names or ()


def _check_fields(call: Call, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an argument whose fields are others than the array's."""
    value = getattr(call, name)
    if name == "out" and value is not None:
        for out in value if isinstance(value, tuple) else (value,):
            check_is_array(out)
            if out.dtype.names != dtype.names:
                raise TypeError(
                    f"out= of a structured array has its fields, {', '.join(_names(dtype))}; this "
                    f"one is of dtype {out.dtype}"
                )
        return
    fields = _fields_of(name, value)
    if fields is not None and fields != dtype.names:
        raise TypeError(
            f"{_NAMES.get(name, name)}= has fields {', '.join(fields)}, and the array has "
            f"{', '.join(_names(dtype))}"
        )


def _fields_of(name: str, value: Any) -> tuple[str, ...] | None:
    """The fields that an argument has."""
    if value is None or value is NoValue:
        return None
    if name == "dtype":
        value = np.empty(0, value)
    names: tuple[str, ...] | None = getattr(getattr(value, "dtype", None), "names", None)
    return names


class _Part(NamedTuple):
    """Fields that are reduced together, along a last axis of `array`, or one field."""

    names: tuple[str, ...]
    array: Array


class _Fields:
    def __init__(self, call: Call, array: Array, reduced: tuple[int, ...], reduce: Reduce) -> None:
        self.call, self.array, self.reduced, self.reduce = call, array, reduced, reduce
        self.of_fields = [
            name
            for name in _OF_FIELDS
            if (name == "out" and call.out is not None)
            or _fields_of(name, getattr(call, name)) is not None
        ]

    def run(self) -> list[Any]:
        """A result per field, in order."""
        found: dict[str, Any] = {}
        for part in self.parts():
            if len(part.names) == 1:
                name = part.names[0]
                found[name] = self.one(name, part.array)
                continue
            together = self.run_one(part.names, self.call, part.array)
            for i, name in enumerate(part.names):
                found[name] = (
                    tuple(np.asarray(each)[..., i] for each in together)
                    if isinstance(together, tuple)
                    else np.asarray(together)[..., i]
                )
        return [found[name] for name in _names(self.array.dtype)]

    def parts(self) -> Iterator[_Part]:
        dtype = self.array.dtype
        names = _names(dtype)
        if not self.of_fields and not self.runs_on_cpu():
            together = _as_one(self.array)
            if together is not None:
                yield _Part(names, together)
                return
        for name in names:
            yield _Part((name,), self.array[name])

    def runs_on_cpu(self) -> bool:
        return self.call.options[1] == "cpu" or _core.why_no_cuda() is not None

    def one(self, name: str, array: Array) -> Any:
        call = self.call
        for argument in self.of_fields:
            value = getattr(call, argument)
            if argument == "out" and isinstance(value, tuple):
                mine: Any = tuple(each[name] for each in value)
            else:
                mine = np.dtype(value)[name] if argument == "dtype" else value[name]
            call = call._replace(**{argument: mine})
        return self.run_one((name,), call, array)

    def run_one(self, names: tuple[str, ...], call: Call, array: Array) -> Any:
        """Reduce the axes of the structured array, of an array that may have more."""
        further = array.ndim - self.array.ndim
        axis: Any = self.reduced
        keepdims = call.keepdims
        if call.op in _POSITIONS:
            if len(self.reduced) != 1:  # of all elements in C order
                array = array.reshape((self.array.size, *array.shape[self.array.ndim :]))
            axis = self.reduced[0] if len(self.reduced) == 1 else 0
            keepdims = keepdims and len(self.reduced) == 1
        where = call.where
        mask = as_mask(where, self.array.shape) if further > 0 else None
        if mask is not None:
            where = mask.reshape(mask.shape + (1,) * further)
        call = call._replace(array=array, axis=axis, keepdims=keepdims, where=where, is_exact=True)
        try:
            if array.dtype.names is not None:
                return reduce_fields(call, array, self.reduce)
            return self.reduce(call, array)
        except TypeError as error:
            raise TypeError(f"field {' and '.join(map(repr, names))}: {error}") from error


def _as_one(array: Array) -> Array | None:
    """Fields of one dtype at equal distances as one array with an axis more."""
    fields = [(array.dtype.fields or {})[name] for name in _names(array.dtype)]
    dtype = fields[0][0]
    if len(fields) == 1 or dtype.names is not None or dtype.subdtype is not None:
        return None
    offsets = [field[1] for field in fields]
    step = offsets[1] - offsets[0]
    if any(field[0] != dtype for field in fields):
        return None
    if any(offset != offsets[0] + i * step for i, offset in enumerate(offsets)):
        return None
    first = array[_names(array.dtype)[0]]
    return np.lib.stride_tricks.as_strided(
        first, (*first.shape, len(fields)), (*first.strides, step), writeable=False
    )


def _join(call: Call, array: Array, reduced: tuple[int, ...], results: list[Any]) -> Any:
    """One structured result of the fields' results."""
    shape = tuple(n for i, n in enumerate(array.shape) if i not in reduced)
    if call.keepdims:
        shape = tuple(1 if i in reduced else n for i, n in enumerate(array.shape))
    parts = [np.asarray(each) for each in results]
    if call.op in _POSITIONS and len(reduced) != 1:
        parts = [part.reshape(shape + part.shape) for part in parts]
    names = _names(array.dtype)
    made = np.empty(
        shape,
        [
            (name, part.dtype, part.shape[len(shape) :])
            for name, part in zip(names, parts, strict=True)
        ],
    )
    for name, part in zip(names, parts, strict=True):
        made[name] = part
    return made[()]
