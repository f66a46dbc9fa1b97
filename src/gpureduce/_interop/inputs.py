"""Arguments made arrays of the host: NumPy's, and what other libraries lend of host memory.

A type that overrides NumPy's functions has rules that this package does not know: units, missing
values, laziness. Its arrays are refused, unless the type says by ``__gpureduce_wrap__`` that it
makes its own of the results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .._calls import Array, NoValue
from .libraries import device_library, from_host, is_on_device
from .not_numbers import HOLDS_NO_NUMBERS, explain_no_numbers

__all__ = ["as_array", "check_plain", "rewrap", "wrapper_of"]

_OVERRIDES = ("__array_ufunc__", "__array_function__")
_METHODS = (
    "all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "ptp", "std", "sum", "var",
)  # fmt: skip
"""What ``numpy.sum`` and its like call of a subclass of ndarray."""
_MISSING = object()


def as_array(a: Any, instead_of_masked: str, name: str = "a") -> Array:
    """Make what NumPy takes an array; else a ``TypeError`` says what to pass instead."""
    array = (
        np.asarray(a) if type(a) in _PLAIN_TYPES else _as_other_array(a, instead_of_masked, name)
    )
    if array.dtype.kind in HOLDS_NO_NUMBERS:
        raise TypeError(explain_no_numbers(a, array, name))
    return array


def _as_other_array(a: Any, instead_of_masked: str, name: str) -> Array:
    if _is_masked(a):
        raise TypeError(f"masked arrays are not supported: pass {instead_of_masked}")
    check_plain(a, name)
    if isinstance(a, np.ndarray):
        return a
    if is_on_device(a):
        raise TypeError(
            f"device arrays are not supported here: {type(a).__name__} is in GPU memory. Copy it "
            "to the host first, as with cupy.asnumpy(a) or a.cpu().numpy()"
        )
    return from_host(a)


_PLAIN_TYPES = frozenset((bool, int, float, list, tuple, np.ndarray))
"""Types whose rules are NumPy's, which most arguments have."""


def check_plain(value: Any, name: str) -> None:
    """Refuse an argument whose type has rules of its own, which the result would not follow."""
    if value is None or value is NoValue or type(value) in _PLAIN_TYPES:
        return
    if _is_masked(value):
        raise TypeError(f"{name} is a masked array, whose mask would be lost: pass {name}.data")
    rule = _own_rule(value)
    if rule is None:
        return
    library = device_library(value)
    if library is not None and library.is_known:
        return
    kind = type(value)
    instead = (
        f"numpy.asarray({name})"
        if library is None
        else f"a plain array of its memory, as cupy.asarray({name})"
    )
    raise TypeError(
        f"{name} is a {kind.__module__}.{kind.__qualname__}, whose own rules ({rule}) the result "
        f"would not follow: pass {instead}"
    )


def wrapper_of(a: Any) -> Callable[[Any, str], Any] | None:
    """How the type of `a` makes its own of a result, if it says so: ``a.__gpureduce_wrap__``."""
    if type(a) in _PLAIN_TYPES or getattr(type(a), "__gpureduce_wrap__", None) is None:
        return None
    wrapper: Callable[[Any, str], Any] = a.__gpureduce_wrap__
    return wrapper


def rewrap(a: Any, wrapper: Callable[[Any, str], Any], result: Any, name: str) -> Any:
    """Let the type of `a` make its own of a result of the function `name`."""
    made = wrapper(result, name)
    if made is NotImplemented:
        raise TypeError(
            f"a is a {type(a).__name__}, which takes no result of {name}: pass numpy.asarray(a)"
        )
    return made


def _is_masked(a: Any) -> bool:
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(a, masked.MaskedArray)


def _own_rule(a: Any) -> str | None:
    """Name of what the type of `a` has in place of an ndarray's rules."""
    kind = type(a)
    if kind is np.ndarray:
        return None
    for name in _OVERRIDES:
        usual = getattr(np.ndarray, name)
        if getattr(kind, name, usual) is not usual:
            return name
    if isinstance(a, np.ndarray):
        for name in _METHODS:  # those of matrices are our rules too
            usual = [getattr(plain, name, _MISSING) for plain in (np.ndarray, np.matrix)]
            if getattr(kind, name, _MISSING) not in usual:
                return name
    return None
