"""What stands where an array of numbers should, in words, with what to write instead."""

from __future__ import annotations

import collections.abc
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._calls import Array

__all__ = ["HOLDS_NO_NUMBERS", "explain_no_numbers"]

HOLDS_NO_NUMBERS = frozenset("OSUT")
"""Kinds of dtypes whose elements are Python objects, bytes and strings."""
_MOST_LOOKED_AT = 1000
"""Elements of an array that are looked at for the first that is no number."""


def explain_no_numbers(given: Any, array: Array, name: str) -> str:
    """The text of the ``TypeError`` for an argument of which NumPy made no numbers.

    Parameters
    ----------
    given : object
        The caller's argument.
    array : ndarray
        What NumPy made of it: of objects, bytes or strings.
    name : str
        The argument's name.

    Returns
    -------
    str
        What the argument is, and what to write instead.
    """
    if isinstance(given, str):
        return _explain_text(given, name)
    kinds: tuple[tuple[bool, str, str], ...] = (
        (given is None, "None", "pass an array or a list of numbers"),
        (
            isinstance(given, (bytes, bytearray, memoryview)),
            "bytes",
            f"numpy.frombuffer({name}, dtype) makes an array of the numbers in its memory",
        ),
        (
            hasattr(given, "read"),
            "an open file",
            f"numpy.loadtxt({name}) reads the numbers of a text file",
        ),
        (
            isinstance(given, collections.abc.Mapping),
            "a mapping",
            f"list({name}.values()) is a list of its values",
        ),
        (
            isinstance(given, collections.abc.Iterator),
            f"a {type(given).__name__}, whose items are made one by one",
            f"numpy.fromiter({name}, dtype=float) makes an array of them",
        ),
        (
            isinstance(given, (collections.abc.Set, collections.abc.ValuesView)),
            f"a {type(given).__name__}, which is no sequence",
            f"list({name}) is a list of its items",
        ),
        (callable(given), "a function", "call it, and pass its result"),
    )
    for is_this, what, instead in kinds:
        if is_this:
            return f"{name} is {what}, not an array of numbers: {instead}"
    return _explain_elements(array, name)


def _explain_text(text: str, name: str) -> str:
    ending = Path(text).suffix
    if ending == ".npy":
        instead = f"numpy.load({text!r}) reads this file's array"
    elif text.split() and all(map(_is_number, text.split())):
        instead = f"numpy.array({name}.split(), dtype=float) makes an array of the numbers in it"
    elif ending:
        comma = ', delimiter=","' if ending == ".csv" else ""
        instead = f"numpy.loadtxt({text!r}{comma}) reads the numbers of a text file"
    else:
        instead = "pass an array or a list of numbers"
    return f"{name} is the string {text!r}, not an array of numbers: {instead}"


def _explain_elements(array: Array, name: str) -> str:
    """Of an array, or what NumPy makes one: which elements are no numbers."""
    kind, end = f"(dtype {array.dtype})", f". Supported are {_supported()}"
    wrong = next((each for each in _some(array) if not _is_number(each)), 0)
    if array.dtype.kind != "O":
        if not _is_number(wrong):
            return (
                f"{name} holds strings {kind} such as {_plain(wrong)}, which are not supported{end}"
            )
        return (
            f"{name} holds strings {kind}, which are not supported: numpy.array({name}, "
            f"dtype=float) makes numbers of them{end}"
        )
    if wrong is None:
        return (
            f"{name} holds None beside numbers: numpy.array({name}, dtype=float) makes it NaN, "
            f"which functions such as nansum and nanmean leave out{end}"
        )
    if _is_number(wrong):
        return (
            f"{name} holds Python numbers {kind}, which is not supported: numpy.array({name}, "
            f"dtype=float) makes them floats of 64 bits{end}"
        )
    what = type(wrong).__name__
    return f"{name} holds objects of type {what} {kind}, which are not supported{end}"


def _supported() -> str:
    """The dtypes of arrays: integers in one word, others by their names."""
    integers = ("int", "uint")
    others = [each for each in _core.DTYPES if each != "bool" and not each.startswith(integers)]
    return ", ".join(["bool", "integers", *others])


def _some(array: Array) -> list[Any]:
    return list(array.reshape(-1)[:_MOST_LOOKED_AT])


def _plain(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _is_number(value: Any) -> bool:
    """Whether NumPy converts a value to a float; None, which it converts to NaN, is none."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return value is not None
