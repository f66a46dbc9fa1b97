"""A description of an array: counts, mean, standard deviation and extremes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _functions
from ._arguments import count_reduced
from ._calls import Options, map_once, placement
from ._interop.inputs import as_array
from ._interop.libraries import device_library
from ._several import reduce_several

__all__ = ["Description", "describe"]


class Description(NamedTuple):
    """Result of :func:`describe`; ``print`` shows it as a table.

    Examples
    --------
    >>> import gpureduce as gr
    >>> gr.describe([1.0, float("nan"), 3.0], device="cpu").mean
    np.float64(2.0)
    """

    count: Any
    """How many elements are not NaN."""
    nan_count: Any
    """How many are."""
    mean: Any
    """What :func:`nanmean` returns."""
    std: Any
    """What :func:`nanstd` returns: the divisor is `count` less the argument `ddof`."""
    min: Any
    """What :func:`nanmin` returns."""
    max: Any
    """What :func:`nanmax` returns."""

    def __str__(self) -> str:
        length = len(self.mean) if isinstance(self.mean, np.ndarray) and self.mean.ndim == 1 else 0
        if 0 < length <= _MOST_ROWS:
            rows = [["", *self._fields]]
            rows += [[str(i), *(_show(each[i]) for each in self)] for i in range(length)]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            aligned = (map(str.rjust, row, widths) for row in rows)
            return "\n".join("  ".join(row) for row in aligned)
        width = max(map(len, self._fields)) + 2
        return "\n".join(
            f"{name:<{width}}{str(value).replace(chr(10), chr(10) + ' ' * width)}"
            for name, value in zip(self._fields, self, strict=True)
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))


def _show(value: Any) -> str:
    """A number of a table; floats have six digits."""
    return f"{value:.6g}" if np.asarray(value).dtype.kind == "f" else str(value)


_MOST_ROWS = 40
"""Results along one axis that print as a table with a row each."""


def describe(
    a: Any,
    axis: int | tuple[int, ...] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Description:
    """Counts, mean, standard deviation and extremes of the elements that are not NaN.

    Parameters
    ----------
    a : array_like
        Real numbers, as :func:`nanmean` takes them. It may be in GPU memory, of a library whose
        arrays compare.
    axis : None or int or tuple of ints, optional
        Axes to reduce; all of them by default.
    ddof : int or float, optional
        The divisor of the standard deviation is the number of elements less `ddof`: 0 as in
        :func:`nanstd`, 1 as in pandas' ``describe``.
    keepdims : bool, optional
        Whether reduced axes stay, with length one.
    device : str, optional
        Where host arrays are reduced, see :func:`sum`.
    block_size, grid_size : int, optional
        Of kernels on a GPU: threads per block, blocks per row.
    stream : int or object, optional
        CUDA stream to work on, see :func:`sum`.

    Returns
    -------
    Description
        Named tuple of `count`, `nan_count`, `mean`, `std`, `min` and `max`. The counts are int64,
        the others what :func:`nanmean`, :func:`nanstd`, :func:`nanmin` and :func:`nanmax` return,
        to the bit.

    Raises
    ------
    TypeError
        A dtype that has no mean or no extremes; an array in GPU memory that does not compare.
    ValueError
        No elements to take extremes of.
    numpy.exceptions.AxisError
        `axis` is out of bounds.
    DeviceUnavailableError
        A GPU was asked for and there is none.

    See Also
    --------
    reduce : Any operators, by a tuple of their names.

    Notes
    -----
    There is no argument `where`. Describe ``a[mask]``; or, along an axis,
    ``np.where(mask, a, np.nan)``, where `nan_count` includes the elements that the mask leaves out.

    Where :func:`reduce` reads a large array once for several operators, so does this function.

    Determinism: as of the functions that it combines.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> found = gr.describe(np.array([[1.0, np.nan], [3.0, 5.0]]), axis=1, device="cpu")
    >>> found.nan_count, found.max
    (array([1, 0]), array([1., 5.]))
    >>> print(found)
       count  nan_count  mean  std  min  max
    0      1          1     1    0    1    1
    1      2          0     4    1    3    5
    """
    options: Options = ("auto", device, block_size, grid_size, stream)
    on_device = device_library(a) is not None
    array = a if on_device else as_array(a, "a.filled(np.nan)")
    if not on_device and array.dtype.names is not None:
        raise TypeError("describe takes no structured arrays: describe each field, as a['x']")

    if 0 in array.shape and (axis is None or count_reduced(array.shape, axis) == 0):
        raise ValueError(f"an array of shape {tuple(array.shape)} has no elements to describe")

    def by_one(tile: Any, op: str, **more: Any) -> Any:
        if op != "_count_nan":
            if op == "nanstd":
                more["ddof"] = ddof
            return getattr(_functions, op)(tile, **more)
        flags = map_once(_are_nan, tile) if isinstance(tile, np.ndarray) else tile != tile
        if isinstance(flags, bool):
            raise _no_arithmetic(tile)
        return _functions.count_nonzero(flags, **more)

    ops = ("_count_nan", "nanmean", "nanstd", "nanmin", "nanmax")
    found = reduce_several(array, ops, _FIELDS, by_one, axis, keepdims, placement(options))
    nan_count, mean, std, low, high = found
    shape = tuple(array.shape)
    axes = range(len(shape)) if axis is None else normalize_axis_tuple(axis, len(shape))
    reduced = math.prod(shape[i] for i in axes)
    if not hasattr(type(nan_count), "__rsub__"):
        raise _no_arithmetic(array)
    return Description(reduced - nan_count, nan_count, mean, std, low, high)


def _are_nan(a: Any) -> Any:
    return a != a


def _no_arithmetic(array: Any) -> TypeError:
    return TypeError(
        f"arrays of type {type(array).__name__} do not compare, so that their NaN are not counted: "
        "reduce by nanmean, nanstd, nanmin and nanmax"
    )


_FIELDS = ("nan_count", "mean", "std", "min", "max")
"""Of the results that a description is made of."""
