"""The reductions: NumPy's names and arguments, and arguments for where and how the work is done.

One maker makes all functions with the same arguments, so that each signature has one body. A plain
call of an ``ndarray``, or of an array in a GPU's memory, runs in the C core as a whole, by
``_core.Function``, which keeps small calls cheap. Every other call calls the body, and
:mod:`gpureduce._rules` runs it.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from . import _core
from ._arguments import as_mask
from ._calls import Call, NoValue, OwnCall, warn
from ._docstrings import compose
from ._exceptions import unknown_operator
from ._moments import tell_freedom, warn_if_nothing_is_left
from ._records import MinMax
from ._rules import check_found, finish_extreme, reduce_any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from ._signatures import (
        Accumulation,
        Axis,
        Count,
        Extreme,
        Mean,
        OwnKernel,
        OwnOperator,
        Pair,
        Position,
        Span,
        Truth,
        Variance,
    )

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "count_nonzero",
    "logical_xor",
    "max",
    "mean",
    "min",
    "minmax",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "reduce",
    "std",
    "sum",
    "var",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

Finish = Callable[..., Any]
"""What is done with results of an exact ndarray if some are not ordinary: ``finish(result, a, axis,
keepdims, where, ddof, *options)`` warns or raises as NumPy does, and returns the result."""

_functions: dict[str, Callable[..., Any]] = {}
_parameters: dict[str, tuple[str, ...]] = {}


def _parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _define(
    name: str, function: _Function, skip_nan: bool = False, finish: Finish | None = None
) -> _Function:
    """Give a function that a maker made its name and docstring, and the core its plain calls.

    The function takes all others. Results of plain calls of ndarrays that are NaN, infinite or
    negative positions are given to `finish`, and all pairs of results.
    """
    _parameters[name] = _parameters_of(function)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = compose(name, _parameters[name])
    positional = function.__code__.co_argcount
    op = _core.OPERATORS[name.removeprefix("nan") if skip_nan else name]
    quick = _core.Function(function, _parameters[name], positional, op, skip_nan, finish)
    functools.update_wrapper(quick, function)
    _functions[name] = quick
    return cast("_Function", quick)


# ---------------------------------------------------------------- makers


def _make_accumulation(op: str, skip_nan: bool = False) -> Accumulation:
    def accumulate(
        a: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NoValue,
        where: ArrayLike = True,
        *,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(
            Call(op, a, options, axis, dtype, out, keepdims, initial, where, skip_nan)
        )

    return accumulate


def _finish_extreme(op: str) -> Finish:
    """For results of ``nanmin`` and ``nanmax`` without a start."""

    def finish(
        result: Any, a: Any, axis: Any, keepdims: Any, where: Any, ddof: Any, *options: Any
    ) -> Any:
        if not np.isinf(result).any():  # then some are NaN
            warn("All-NaN slice encountered")
            return result
        call = Call(op, a, options, axis, None, None, keepdims, NoValue, where, True)
        return finish_extreme(call, None if where is True else where, result)

    return finish


def _make_extreme(op: str, skip_nan: bool = False) -> Extreme:
    def extreme(
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NoValue,
        where: ArrayLike = True,
        *,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(Call(op, a, options, axis, None, out, keepdims, initial, where, skip_nan))

    return extreme


def _make_truth(op: str) -> Truth:
    def truth(
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(Call(op, a, options, axis, None, out, keepdims, NoValue, where))

    return truth


def _finish_mean(skip_nan: bool) -> Finish:
    """For means of which some are NaN: a mean of nothing is, and NumPy warns of it."""

    def finish(
        result: Any, a: Any, axis: Any, keepdims: Any, where: Any, ddof: Any, *options: Any
    ) -> Any:
        if skip_nan and a.dtype.kind in "fcV":
            call = Call("mean", a, options, axis, keepdims=keepdims, skip_nan=True)
            warn_if_nothing_is_left(call, as_mask(where, a.shape), result)
        elif where is not True and _leaves_rows_empty(where, axis):
            warn("Mean of empty slice")
        return result

    return finish


def _make_mean(skip_nan: bool = False) -> Mean:
    def mean(
        a: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(
            Call("mean", a, options, axis, dtype, out, keepdims, NoValue, where, skip_nan)
        )

    return mean


def _leaves_rows_empty(mask: Any, axis: Any) -> bool:
    """Whether a mask, an exact ndarray of bool, is false of all of a row."""
    return not np.all(any(mask, axis=axis, kernel="fast", device="cpu"))


def _finish_variance(op: str, skip_nan: bool) -> Finish:
    """For variances of which some are infinite or NaN: those of too few elements are."""

    def finish(
        result: Any, a: Any, axis: Any, keepdims: Any, where: Any, ddof: Any, *options: Any
    ) -> Any:
        if skip_nan and a.dtype.kind not in "biu":
            call = Call(op, a, options, axis, keepdims=keepdims, skip_nan=True, ddof=ddof)
            return tell_freedom(call, as_mask(where, a.shape), result)
        if where is not True:
            counts = count_nonzero(where, axis=axis, kernel="fast", device="cpu")
            if np.less_equal(counts, ddof).any():
                warn("Degrees of freedom <= 0 for slice")
        return result

    return finish


def _make_variance(op: str, skip_nan: bool = False) -> Variance:
    def variance(
        a: Any,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike = True,
        mean: Any = NoValue,
        correction: Any = NoValue,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        if correction is not NoValue:
            if ddof != 0:
                raise ValueError("ddof and correction can't be provided simultaneously.")
            ddof = correction
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(
            Call(op, a, options, axis, dtype, out, keepdims, NoValue, where, skip_nan, ddof, mean)
        )

    return variance


def _finish_position(
    result: Any, a: Any, axis: Any, keepdims: Any, where: Any, ddof: Any, *options: Any
) -> Any:
    check_found(result)
    return result


def _make_position(op: str, skip_nan: bool = False) -> Position:
    def position(
        a: Any,
        axis: int | None = None,
        out: Any = None,
        *,
        keepdims: bool = False,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        if keepdims is NoValue:
            keepdims = False
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(Call(op, a, options, axis, None, out, keepdims, skip_nan=skip_nan))

    return position


def _make_span() -> Span:
    def ptp(
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(Call("ptp", a, options, axis, None, out, keepdims))

    return ptp


def _make_count() -> Count:
    def count_nonzero(
        a: Any,
        axis: Axis = None,
        *,
        keepdims: bool = False,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return reduce_any(Call("count_nonzero", a, options, axis, keepdims=keepdims))

    return count_nonzero


def _finish_pair(result: Any, *_: Any) -> MinMax:
    return MinMax(*result)


def _make_pair() -> Pair:
    def minmax(
        a: Any,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NoValue,
        where: ArrayLike = True,
        *,
        kernel: str | OwnKernel = "auto",
        device: str | None = None,
        block_size: int | None = None,
        grid_size: int | None = None,
        stream: Any = None,
    ) -> Any:
        options = kernel, device, block_size, grid_size, stream
        return MinMax(
            *reduce_any(Call("minmax", a, options, axis, None, out, keepdims, initial, where))
        )

    return minmax


# ---------------------------------------------------------------- functions

sum = _define("sum", _make_accumulation("sum"))
prod = _define("prod", _make_accumulation("prod"))
nansum = _define("nansum", _make_accumulation("sum", skip_nan=True), skip_nan=True)
nanprod = _define("nanprod", _make_accumulation("prod", skip_nan=True), skip_nan=True)

min = amin = _define("min", _make_extreme("min"))
max = amax = _define("max", _make_extreme("max"))
nanmin = _define("nanmin", _make_extreme("min", skip_nan=True), True, _finish_extreme("min"))
nanmax = _define("nanmax", _make_extreme("max", skip_nan=True), True, _finish_extreme("max"))
bitwise_and = _define("bitwise_and", _make_extreme("bitwise_and"))
bitwise_or = _define("bitwise_or", _make_extreme("bitwise_or"))
bitwise_xor = _define("bitwise_xor", _make_extreme("bitwise_xor"))
logical_xor = _define("logical_xor", _make_extreme("logical_xor"))

any = _define("any", _make_truth("any"))
all = _define("all", _make_truth("all"))

mean = _define("mean", _make_mean(), finish=_finish_mean(skip_nan=False))
nanmean = _define("nanmean", _make_mean(skip_nan=True), True, _finish_mean(skip_nan=True))

var = _define("var", _make_variance("var"), finish=_finish_variance("var", skip_nan=False))
std = _define("std", _make_variance("std"), finish=_finish_variance("std", skip_nan=False))
nanvar = _define("nanvar", _make_variance("var", True), True, _finish_variance("var", True))
nanstd = _define("nanstd", _make_variance("std", True), True, _finish_variance("std", True))

argmin = _define("argmin", _make_position("argmin"))
argmax = _define("argmax", _make_position("argmax"))
nanargmin = _define("nanargmin", _make_position("argmin", True), True, _finish_position)
nanargmax = _define("nanargmax", _make_position("argmax", True), True, _finish_position)

ptp = _define("ptp", _make_span())
count_nonzero = _define("count_nonzero", _make_count())
minmax = _define("minmax", _make_pair(), finish=_finish_pair)

# ---------------------------------------------------------------- by operator

_OTHER_NAMES: dict[object, str] = {
    "amin": "min",
    "amax": "max",
    "add": "sum",
    "multiply": "prod",
    "minimum": "min",
    "maximum": "max",
    "fmin": "nanmin",
    "fmax": "nanmax",
    "logical_and": "all",
    "logical_or": "any",
    operator.add: "sum",
    operator.mul: "prod",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
}
"""What NumPy calls its ufuncs, and Python's operators."""


def _find(op: Any) -> Callable[..., Any]:
    """Function of an operator given by a name, a ufunc or a function of ``operator``."""
    key = op.__name__ if isinstance(op, np.ufunc) else op
    if isinstance(key, str) or callable(key):
        found = _functions.get(_OTHER_NAMES.get(key, key))
        if found is not None:
            return found
    raise unknown_operator(key, list(_functions))


_PLAIN: dict[str, Any] = {
    "dtype": None, "out": None, "initial": NoValue, "where": True, "ddof": 0, "mean": NoValue,
    "correction": NoValue, "kernel": "auto", "device": None, "block_size": None, "grid_size": None,
    "stream": None,
}  # fmt: skip
"""Arguments of :func:`reduce` as they are where nothing is given."""


@functools.lru_cache(maxsize=256)
def _named(ops: tuple[str, ...]) -> tuple[tuple[str, ...], Any, tuple[Callable[..., Any], ...]]:
    """Our own names of operators that are given by names, the tuple of their results, and their
    functions.
    """
    from ._several import tuple_of

    functions = tuple(map(_find, ops))
    return tuple(one.__name__ for one in functions), tuple_of(ops), functions


def _reduce_several(
    a: Any, ops: tuple[Any, ...], axis: Axis, keepdims: bool, given: dict[str, Any]
) -> Any:
    from ._several import is_small, name_of, reduce_several

    if not ops:
        raise ValueError("no operator is named: the tuple is empty")
    for key in ("dtype", "out", "mean", "correction"):
        if key in given:
            raise TypeError(f"several operators take no {key}: reduce by one at a time")
    if {*map(type, ops)} == {str}:
        known, results, functions = _named(ops)
        if not given and is_small(a):  # nothing is gained by reading it once
            return results(*[function(a, axis, keepdims=keepdims) for function in functions])
        names = ops
    else:
        found = [None if hasattr(op, "reduce_array") else _find(op).__name__ for op in ops]
        names = tuple(name_of(op, name) for op, name in zip(ops, found, strict=True))
        # A name of ours for each operator that has one, so that tiles know what it is.
        known = tuple(name or op for op, name in zip(ops, found, strict=True))
    takes_ddof = (isinstance(op, str) and "ddof" in _parameters[op] for op in known)
    if "ddof" in given and not builtins.any(takes_ddof):
        raise TypeError("none of these operators takes a ddof")

    def by_one(array: Any, op: Any, **more: Any) -> Any:
        if not (isinstance(op, str) and "ddof" in _parameters[op]):
            more.pop("ddof", None)
        if isinstance(op, str) and "where" not in more and "initial" not in more:
            return _functions[op](array, **more)
        return reduce(array, op, **more)

    return reduce_several(a, known, names, by_one, axis, keepdims, given)


def reduce(
    a: ArrayLike,
    op: str | np.ufunc | Callable[[Any, Any], Any] | OwnOperator | tuple[Any, ...],
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    ddof: float = 0,
    mean: Any = NoValue,
    correction: Any = NoValue,
    kernel: str | OwnKernel = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    reduce_by_own: Callable[[OwnCall], Any] | None = getattr(op, "reduce_array", None)
    if reduce_by_own is not None:  # an Operator of the user's own, which is above the reductions
        if ddof != 0 or mean is not NoValue or correction is not NoValue:
            raise TypeError("an operator of your own takes no ddof, mean or correction")
        where_to = kernel, device, block_size, grid_size, stream
        return reduce_by_own(OwnCall(a, axis, dtype, out, keepdims, initial, where, *where_to))
    has_none = initial is NoValue and mean is NoValue and correction is NoValue
    is_plain = has_none and dtype is None and out is None and where is True
    is_plain = is_plain and ddof is _PLAIN["ddof"]
    options = {
        "kernel": kernel,
        "device": device,
        "block_size": block_size,
        "grid_size": grid_size,
        "stream": stream,
    }
    if isinstance(op, tuple):
        others = {"dtype": dtype, "out": out, "initial": initial, "where": where, "ddof": ddof,
                  "mean": mean, "correction": correction}  # fmt: skip
        every = options if is_plain else others | options
        given = {key: value for key, value in every.items() if value is not _PLAIN[key]}
        return _reduce_several(a, op, axis, keepdims, given)
    function = _find(op)
    if is_plain:
        return function(a, axis=axis, keepdims=keepdims, **options)
    name = function.__name__
    given = {"keepdims": keepdims}
    for key, value, default in (
        ("dtype", dtype, None),
        ("out", out, None),
        ("initial", initial, NoValue),
        ("where", where, True),
        ("ddof", ddof, 0),
        ("mean", mean, NoValue),
        ("correction", correction, NoValue),
    ):
        if value is not default and value is not NoValue:
            given[key] = value
    for key in given:
        if key == "dtype" and key not in _parameters[name]:
            raise TypeError(f"{name} computes in the elements' own type: it takes no dtype")
        if key not in _parameters[name]:
            raise TypeError(f"{name} takes no {key}")
    return function(a, axis=axis, **given, **options)


reduce.__doc__ = compose("reduce", _parameters_of(reduce))
