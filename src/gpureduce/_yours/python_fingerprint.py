"""What Python functions compute, as a key of the cache: their bytecode, and the values of their
closures and of the globals that they name.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["fingerprint"]

_MODULES = ("cmath", "math", "numba", "numpy", "operator")
"""Modules whose attributes do not change, but with the versions that are in the key."""
_MOST_BYTES = 1 << 16


class _UnknownError(Exception):
    """A value that no key tells from others."""


def fingerprint(functions: Iterator[tuple[str, Callable[..., Any]]]) -> str | None:
    """A digest of functions by their roles.

    Returns
    -------
    str or None
        ``None``: they depend on a value that may be another one in another process, as a module or
        an object of the user's own; they have no key.
    """
    seen: dict[Any, int] = {}
    try:
        shown = [(role, _function(function, seen)) for role, function in functions]
    except _UnknownError:
        return None
    text = repr((sys.implementation.cache_tag, np.__version__, shown))
    return hashlib.sha256(text.encode()).hexdigest()


def _function(function: Any, seen: dict[Any, int]) -> object:
    if function in seen:
        return ("again", seen[function])
    seen[function] = len(seen)
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = [(name, _value(cell.cell_contents, seen)) for name, cell in cells]
    known = [
        (name, _value(function.__globals__[name], seen))
        for name in sorted(_names(code))
        if name in function.__globals__
    ]
    return (_code(code), closure, known, _value(function.__defaults__, seen))


def _names(code: types.CodeType) -> set[str]:
    """Names of globals and attributes, of the functions inside, too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _code(code: types.CodeType) -> object:
    constants = [
        _code(each) if isinstance(each, types.CodeType) else _constant(each)
        for each in code.co_consts
    ]
    return (
        code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars,
        code.co_argcount, code.co_flags,
    )  # fmt: skip


def _constant(value: object) -> object:
    if isinstance(value, frozenset):
        return ("frozenset", sorted(map(repr, value)))
    return (type(value).__name__, repr(value))


def _value(value: Any, seen: dict[Any, int]) -> object:
    plain = getattr(value, "py_func", value)
    if isinstance(plain, types.FunctionType):
        options = getattr(value, "targetoptions", None)
        return (_function(plain, seen), repr(sorted(options.items())) if options else "")
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return _constant(value)
    if isinstance(value, tuple):
        return (type(value).__name__, [_value(each, seen) for each in value])
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufc":
        if value.nbytes > _MOST_BYTES:
            raise _UnknownError
        return (value.dtype.str, value.shape, value.tobytes().hex())
    if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in _MODULES:
        return ("module", value.__name__)
    if isinstance(value, (type, types.BuiltinFunctionType, np.ufunc)):
        return _named(value)
    raise _UnknownError


def _named(value: Any) -> object:
    """Of what its module's version decides; of named tuples, their fields."""
    module = getattr(value, "__module__", None) or "numpy"
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        return ("named tuple", value.__name__, value._fields)
    if module.split(".")[0] in (*_MODULES, builtins.__name__):
        return (module, getattr(value, "__qualname__", value.__name__))
    raise _UnknownError
