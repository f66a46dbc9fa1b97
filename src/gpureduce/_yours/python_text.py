"""An operator of Python functions as programs have it: CUDA C++ whose functions call those that
Numba compiles.

Each number of a value is passed by its address, so that no compiler needs to know how the other one
passes structures; a linker that optimises makes registers of them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import linecache
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from .. import _core
from .._dtypes import name_of, native_dtype
from .numba_types import Types, Value, identity_of, types_of
from .operator_text import OperatorText, OperatorTypes
from .python_fingerprint import fingerprint
from .python_functions import Functions

__all__ = ["PythonText", "addresses_of_numbers", "entry_name", "version_of"]


def entry_name(role: str) -> str:
    """Name of the function that Numba compiles, in the program."""
    return f"gpr_python_{role}"


def addresses_of_numbers(value: Value) -> list[np.dtype[Any]]:
    """What the addresses that are passed of a value are of: a complex number is two floats, a bool
    a byte.
    """
    found = []
    for dtype in value.dtypes:
        if dtype.kind == "c":
            found += [np.dtype(f"f{dtype.itemsize // 2}")] * 2
        elif dtype.kind == "b":
            found.append(np.dtype(np.uint8))
        else:
            found.append(dtype)
    return found


@dataclass(frozen=True)
class PythonText(OperatorText):
    """An operator that is made of Python functions."""

    functions: Functions

    @property
    def structure(self) -> str:
        """Name of the structure: not the operator's, which may be a word of C++."""
        return "python_operator"

    def place_of(self, role: str) -> tuple[int, str]:
        """Line of the file in which a function begins; of a value, where ``combine`` does."""
        given = self.functions.identity if role == "identity" else None
        code = (given if isinstance(given, FunctionType) else self.functions.combine).__code__
        line = code.co_firstlineno
        return line, linecache.getline(code.co_filename, line).rstrip("\n")

    def types(self, compute: np.dtype[Any]) -> Types:
        """Types of its values, for elements that are computed in a dtype; from the cache without
        classes of named tuples.
        """
        return _types_of(self, compute)

    def inferred(self, compute: np.dtype[Any]) -> Types:
        """Types of its values as Numba infers them."""
        return _inferred(self, compute)

    def key(self, *what: object) -> str | None:
        """A key of the cache for something that is made of the functions; ``None``: they have
        none.
        """
        functions = _fingerprint(self.functions)
        if functions is None:
            return None
        given = self.functions.state, self.result, self.commutative
        settings = sorted(each for each in os.environ.items() if each[0].startswith("NUMBA_"))
        return "\n".join(
            [f"gpureduce {_core.__version__} functions {functions}", _own_digest()]
            + [f"{package} {version_of(package)}" for package in ("numba", "llvmlite")]
            + [repr(each) for each in (*given, settings, *what)]
        )

    def identity(self, compute: np.dtype[Any]) -> list[Any] | None:
        """Numbers of the state of no elements."""
        if not self.functions.has_identity:
            return None
        return identity_of(self.name, self.functions, compute, self.types(compute).state)

    def result_of(self, compute: np.dtype[Any]) -> np.dtype[Any]:
        """Dtype of results."""
        types = self.types(compute)
        return native_dtype(compute) if types.result_is_element else types.result.dtype()

    def text_for(self, types: OperatorTypes, addresses: Mapping[str, int] | None = None) -> str:
        """The structure of a program; `addresses` are those of the functions on the emulator."""
        values = self.types(types.compute)
        members = _members(values.element, types.compute)
        state, states = "T", members
        lines = [f"struct {self.structure} {{"]
        if values.state != values.element:
            state, states = "State", _fields(values.state)
            lines.append(_type("State", values.state))
        result, results = "T", members
        if not values.result_is_element:
            result, results = "Result", _fields(values.result)
            lines.append(_type("Result", values.result))
        counted = {"index": "uint64 index", "n": "uint64 n"}
        made = {
            "combine": (state, states, [(state, "l", states), (state, "r", states)], ""),
            "lift": (
                state, states, [("T", "x", members)], "index" * self.functions.takes_index
            ),
            "finish": (
                result, results, [(state, "s", states)], "n" * self.functions.takes_count
            ),
        }  # fmt: skip
        declared = []
        for role, _ in self.functions.named():
            returned, fields, given, count = made[role]
            parameters = [f"{kind} {name}" for kind, name, _ in given]
            passed = [_address(f"made{field}", kind) for field, kind in fields]
            kinds = [_pointer(kind) for _, kind in fields]
            for _, name, parts in given:
                passed += [_address(f"{name}{field}", kind) for field, kind in parts]
                kinds += [_pointer(kind) for _, kind in parts]
            if count:
                parameters.append(counted[count])
                passed.append(f"(long long){count}")
                kinds.append("long long")
            entry = entry_name(role)
            lines.append(
                f"static {returned} {role}({', '.join(parameters)}) {{ {returned} made; "
                f"{entry}({', '.join(passed)}); return made; }}"
            )
            if addresses is None:
                declared.append(f'extern "C" __device__ int {entry}({", ".join(kinds)});')
            else:
                kind = f"int (*)({', '.join(kinds)})"
                declared.append(
                    f"static int (*const {entry})({', '.join(kinds)}) = "
                    f"reinterpret_cast<{kind}>({addresses[role]:#x}ull);"
                )
        numbers = self.identity(types.compute)
        if numbers is not None:
            lines.append(_identity(state, values.state, numbers, states))
        return "\n".join([*declared, *lines, "};"])


def _address(number: str, kind: str) -> str:
    return f"reinterpret_cast<uint8 *>(&{number})" if kind == "bool" else f"&{number}"


def _pointer(kind: str) -> str:
    return "uint8 *" if kind == "bool" else f"{kind} *"


@functools.lru_cache(maxsize=256)
def _types_of(operator: PythonText, compute: np.dtype[Any]) -> Types:
    key = operator.key("types", compute)
    cached = None if key is None else _core.find_cached_image(key)
    if cached is not None:
        return Types.from_text(cached[0].decode())
    types = operator.inferred(compute)
    if key is not None:
        _core.cache_image(key, types.to_text().encode(), ())
    return types


@functools.lru_cache(maxsize=256)
def _inferred(operator: PythonText, compute: np.dtype[Any]) -> Types:
    return types_of(operator.name, operator.functions, compute, operator.result)


@functools.lru_cache(maxsize=256)
def _fingerprint(functions: Functions) -> str | None:
    return fingerprint(functions.named())


@functools.cache
def version_of(package: str) -> str:
    """Version of a package; "none": it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


@functools.cache
def _own_digest() -> str:
    """Of the files that write programs of functions."""
    files = sorted(Path(__file__).parent.glob("numba_*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _members(element: Value, compute: np.dtype[Any]) -> list[tuple[str, str]]:
    """Numbers of ``T``, and their types."""
    names = [""] if compute.names is None else [f".{name}" for name in compute.names]
    return _parts(names, element)


def _fields(value: Value) -> list[tuple[str, str]]:
    names = [f".f{i}" for i in range(len(value.dtypes))] if value.is_tuple else [""]
    return _parts(names, value)


def _parts(names: list[str], value: Value) -> list[tuple[str, str]]:
    parts = []
    for name, dtype in zip(names, value.dtypes, strict=True):
        if dtype.kind == "c":
            part = f"float{4 * dtype.itemsize}"
            parts += [(f"{name}.re", part), (f"{name}.im", part)]
        else:
            parts.append((name, name_of(dtype)))
    return parts


def _type(name: str, value: Value) -> str:
    """The definition of a type for a value."""
    if not value.is_tuple:
        return f"using {name} = {name_of(value.dtypes[0])};"
    fields = "".join(f" {name_of(each)} f{i};" for i, each in enumerate(value.dtypes))
    return f"struct {name} {{{fields} }};"


def _identity(name: str, state: Value, numbers: list[Any], parts: list[tuple[str, str]]) -> str:
    """The function that returns the identity, bit by bit."""
    stored = []
    places = iter(parts)
    for dtype, number in zip(state.dtypes, numbers, strict=True):
        halves = [number.real, number.imag] if dtype.kind == "c" else [number]
        for half in halves:
            place, kind = next(places)
            bits = np.array(half, kind).tobytes()
            shown = ", ".join(map(str, bits))
            stored.append(
                f"{{ const unsigned char bytes[] = {{{shown}}}; "
                f"memcpy(&made{place}, bytes, {len(bits)}); }}"
            )
    return f"static {name} identity() {{ {name} made; {' '.join(stored)} return made; }}"
