"""Constants and structures of ``csrc/shared``, read from the headers that programs carry.

Python writes structures that kernels read. So that no member, size or number is written down twice,
they come from the text of the header: enumerators, and structures of numbers, addresses, arrays
and structures. Where members share memory (a union), the first one counts.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np

from .. import _core

__all__ = ["constants", "structure"]

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ENUM = re.compile(r"\benum(?: \w+)? \{([^}]*)\}")
_UNION = re.compile(r"\bunion \{\s*([^;]*;)[^}]*\};")
_MEMBERS = re.compile(r"([\w ]+|GPR_DEVICE_POINTER\([\w ]+\)) ([\w, ]+)(?:\[(\w+)\])?;")
_NUMBERS = {"gpr_u32": "u4", "gpr_u64": "u8", "gpr_i64": "i8", "unsigned char": "u1"}


def _text(header: str) -> str:
    return _COMMENT.sub("", _core.sources()[header])


def _value(text: str, known: dict[str, int]) -> int:
    """An enumerator's value: numbers and names, multiplied, and shifted left by others."""
    first, *shifts = (
        math.prod(known[each] if each in known else int(each) for each in factors.split(" * "))
        for factors in text.split(" << ")
    )
    for shift in shifts:
        first <<= shift
    return first


@functools.cache
def constants(header: str) -> dict[str, int]:
    """Enumerators of a header, by name."""
    found: dict[str, int] = {}
    for enum in _ENUM.finditer(_text(header)):
        following = 0
        for entry in enum[1].split(","):
            name, _, value = entry.strip().partition(" = ")
            if name:
                found[name] = _value(value, found) if value else following
                following = found[name] + 1
    return found


def structure(name: str, *headers: str) -> np.dtype[Any]:
    """A structure that one of the headers defines, with structures and constants of all of them."""
    known = {key: value for header in headers for key, value in constants(header).items()}
    fields: list[tuple[str, Any, int]] = []
    for type_name, member, count in _members(name, headers):
        element: Any = _NUMBERS.get(type_name)
        if type_name.startswith("GPR_DEVICE_POINTER"):
            element = "u8"
        elif element is None:
            element = structure(type_name, *headers)
        number = _value(count, known) if count else 1
        if element == "u1" and count:  # memory of any contents
            element, number = f"V{number}", 1
        fields.append((member, element, number))
    return np.dtype([(name, kind) if n == 1 else (name, kind, n) for name, kind, n in fields])


def _members(name: str, headers: tuple[str, ...]) -> list[tuple[str, str, str | None]]:
    """Type, name and number of elements of each member of a structure."""
    for header in headers:
        found = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", _text(header), re.DOTALL)
        if found is not None:
            body = _UNION.sub(r"\1", found[1])
            return [
                (match[1].strip(), member, match[3])
                for match in _MEMBERS.finditer(body)
                for member in match[2].split(", ")
            ]
    raise KeyError(name)
