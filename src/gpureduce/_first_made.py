"""Programs that are made once, though several threads may come for one at the same time."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeVar

__all__ = ["first_made"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def first_made(
    known: MutableMapping[_Key, _Value], key: _Key, make: Callable[[], _Value]
) -> _Value:
    """What `known` has for a key, made now if it has nothing.

    Of threads that make it at the same time, the first one's stays: machine code is freed with
    what holds it, and another thread may be running it.
    """
    found = known.get(key)
    return known.setdefault(key, make()) if found is None else found
