"""Programs of an operator of the user's own: its text, with what makes kernels and loops of it.

The text is in a namespace of its own, where ``T`` is the type of elements. Its lines keep their
numbers, so that messages of compilers name lines of the user's text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .._dtypes import is_below_float32, name_of, native_dtype
from .._exceptions import CompileError
from .device_text import blank
from .shared_header import constants

__all__ = [
    "OperatorText",
    "OperatorTypes",
    "compile_error",
    "headers",
    "operator_program",
    "result_dtype",
]

_NUMBERS = {
    "bool": "bool",
    "complex64": "gpr::dt_complex64",
    "complex128": "gpr::dt_complex128",
}
"""What ``T`` is, of dtypes whose device type is no number of C++, floats below float32 excepted."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)
_ERROR = re.compile(
    r"^(?P<file>[^\s:(]+)(?::(?P<line>\d+):(?:\d+:)?|\((?P<line2>\d+)\):)\s*"
    r"(?:fatal |catastrophic )?error:\s*(?P<text>.*)$",
    re.MULTILINE,
)
_STATIC = re.compile(
    r"static(?: assertion|_assert) failed(?: with| due to requirement '.*?')?:?\s*\"?(.*?)\"?$"
)
_KINDS = "biufc"
"""NumPy's letters of the kinds that a program names by number (csrc/shared/dtype_kinds.h)."""
_ELEMENT, _STRUCT = (
    constants("custom_params.h")[f"GPR_CUSTOM_RESULT_{kind}"] for kind in ("ELEMENT", "STRUCT")
)


@dataclass(frozen=True)
class OperatorText:
    """An operator as it is given."""

    name: str
    file: str
    source: str
    commutative: bool
    dtypes: tuple[np.dtype[Any], ...] | None
    result: np.dtype[Any] | None

    @property
    def structure(self) -> str:
        """Name of the structure."""
        return self.name

    def text_for(self, types: OperatorTypes, addresses: Mapping[str, int] | None = None) -> str:
        """The structure, for a program; `addresses` are those of functions on the emulator."""
        return self.source

    def place_of(self, role: str) -> tuple[int, str]:
        """Line of the file in which ``combine`` or ``identity`` begins, and its text; 0: none."""
        place = re.search(rf"\b{role}\s*\(", self.source)
        if place is None:
            return 0, ""
        line = self.source.count("\n", 0, place.start()) + 1
        return line, self.source.splitlines()[line - 1]

    def result_of(self, compute: np.dtype[Any]) -> np.dtype[Any] | None:
        """Dtype of results, where it is known before there is a program."""
        return None


@dataclass(frozen=True)
class OperatorTypes:
    """What decides an operator's program beside its text.

    `element` is an element's dtype in memory, `compute` what it is converted to first.
    """

    element: np.dtype[Any]
    compute: np.dtype[Any]
    masked: bool


def _constant(value: bool) -> str:
    return "true" if value else "false"


def _number(dtype: np.dtype[Any]) -> str:
    """What elements of a dtype are in C++."""
    name = name_of(dtype)
    return "float" if is_below_float32(name) else _NUMBERS.get(name, f"gpr::dt_{name}")


def _numbers(types: OperatorTypes) -> tuple[str, str]:
    """Text that defines ``T``, and text that makes it of elements."""
    if types.element.names is not None:
        return _structure(types.element)
    element, compute = name_of(types.element), name_of(types.compute)
    return f"using T = {_number(types.compute)};", (
        f"using CustomElement = dt_{element};\n"
        "GPR_DEVICE CustomNumber custom_number(const CustomElement &x)\n"
        f"{{ return value_of(convert<dt_{compute}>(x)); }}\n"
        f"GPR_DEVICE dt_{compute} custom_element(CustomNumber x)\n"
        f"{{ return element_of<dt_{compute}>(x); }}"
    )


def _structure(dtype: np.dtype[Any]) -> tuple[str, str]:
    """The same for elements that are structures: ``T`` has members of the fields' names.

    In memory they are bytes, whose fields are at any offset; on a GPU at multiples of their size's
    power of two.
    """
    fields: Mapping[str, Any] = dtype.fields or {}
    members, loads, stores = "", "", ""
    for name, (field, offset, *_) in fields.items():
        number, stored = _number(field), f"dt_{name_of(field)}"
        members += f" {number} {name};"
        loads += (
            f"    {stored} {name}_;\n    memcpy(&{name}_, x.bytes + {offset}, sizeof {name}_);\n"
            f"    made.{name} = value_of({name}_);\n"
        )
        stores += (
            f"    const {stored} {name}_ = element_of<{stored}>(x.{name});\n"
            f"    memcpy(made.bytes + {offset}, &{name}_, sizeof {name}_);\n"
        )
    size = dtype.itemsize
    return f"struct T {{{members} }};", (
        f"struct GPR_CUSTOM_ALIGNED({math.gcd(size, 16)}) CustomElement "
        f"{{ unsigned char bytes[{size}]; }};\n"
        "GPR_DEVICE CustomNumber custom_number(const CustomElement &x)\n"
        f"{{\n    CustomNumber made;\n{loads}    return made;\n}}\n"
        "GPR_DEVICE CustomElement custom_element(const CustomNumber &x)\n"
        f"{{\n    CustomElement made{{}};\n{stores}    return made;\n}}"
    )


def operator_program(
    operator: OperatorText, types: OperatorTypes, before: str, after: str,
    addresses: Mapping[str, int] | None = None,
) -> str:  # fmt: skip
    """The text of a program.

    Parameters
    ----------
    operator : OperatorText
    types : OperatorTypes
    before, after : str
        What the target needs around it.
    addresses : mapping, optional
        Of functions that it calls on the emulator.

    Returns
    -------
    str
    """
    number, conversions = _numbers(types)
    text = _INCLUDE.sub(lambda found: blank(found[0]), operator.text_for(types, addresses))
    return f"""{before}
#include "custom_words.cuh"
namespace yours {{
{number}
#line 1 "{operator.file}"
{text}
#line 1 "operator"
}}
namespace gpr {{
using CustomOp = yours::{operator.structure};
using CustomNumber = yours::T;
constexpr bool custom_is_commutative = {_constant(operator.commutative)};
constexpr bool custom_is_masked = {_constant(types.masked)};
{conversions}
}}
{after}
"""


def compile_error(operator: OperatorText, log: str) -> CompileError:
    """The exception of a program that does not compile, by the compiler's log."""
    message, line = _first_error(log, operator)
    return CompileError(f"operator '{operator.name}' does not compile: {message}", log, line)


def _first_error(log: str, operator: OperatorText) -> tuple[str, int | None]:
    """The first message of a compiler's log that is about the user's text, else the first one, and
    its line in that text.
    """
    errors = list(_ERROR.finditer(log))
    for each in errors:
        if each["file"] == operator.file:
            number = int(each["line"] or each["line2"])
            lines = operator.source.splitlines()
            shown = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            return f"{operator.file}, line {number}: {each['text']}: {shown}", number
    if errors:
        message = errors[0]["text"]
        return (_STATIC.search(message) or ("", message))[1], None
    return (log.strip().splitlines() or ["the compiler gave no reason"])[0], None


def result_dtype(
    operator: OperatorText, facts: dict[str, int], compute: np.dtype[Any]
) -> np.dtype[Any]:
    """Dtype of results, by what the program says of them.

    Raises
    ------
    TypeError
        They are structures, and no dtype of their size is given; or they are numbers, and another
        one is given.
    """
    known = operator.result_of(compute)
    if known is not None:
        return known
    kind, size = facts["result_kind"], facts["result_bytes"]
    name, given = operator.name, operator.result
    if kind == _STRUCT:
        if given is None:
            raise TypeError(
                f"results of operator '{name}' are structures of {size} bytes: their dtype is "
                "needed, as Operator(..., result=numpy.dtype([...], align=True))"
            )
        if given.itemsize != size:
            raise TypeError(
                f"results of operator '{name}' are structures of {size} bytes, and result= is a "
                f"dtype of {given.itemsize}: a dtype made with align=True has a structure's layout"
            )
        return given
    own = compute if kind == _ELEMENT else np.dtype(f"{_KINDS[kind]}{size}".replace("b1", "?"))
    if given is not None and given != own:
        raise TypeError(f"results of operator '{name}' are of dtype {own}, and result= is {given}")
    return native_dtype(own)


def headers() -> dict[str, str]:
    """Files that programs include, by name."""
    return _core.sources()
