"""Types of the values of an operator that is made of Python functions, by Numba.

Elements, states and results are numbers, or tuples of numbers. Numba infers what the functions
return; what they return is converted to states and results as C does, but never from a float to an
integer, which would hide a mistake.
"""

from __future__ import annotations

import collections
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._exceptions import CompileError
from .python_functions import Functions

__all__ = [
    "Types",
    "Value",
    "compile_error",
    "dispatcher",
    "identity_of",
    "import_numba",
    "types_of",
    "value_of",
]

_VALUES = ("element", "lifted", "combined", "state", "result")
_MOST_FIELDS = 32
_ROUNDS = 4
"""Of widening states until ``combine`` returns no wider ones."""
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""What is converted to what: to its own kind or to a higher one."""


def import_numba() -> Any:
    """Numba, with what is used of it.

    Raises
    ------
    ImportError
        It is not installed.
    RuntimeError
        It is told to compile nothing.
    """
    try:
        import numba
        import numba.extending
        from numba.np import numpy_support  # noqa: F401
    except ImportError:
        raise ImportError(
            "Numba compiles operators that are Python functions: pip install 'gpureduce[numba]'"
        ) from None
    if numba.config.DISABLE_JIT:
        raise RuntimeError(
            "NUMBA_DISABLE_JIT is set, and operators that are Python functions are compiled by "
            "Numba: unset it"
        )
    return numba


@dataclass(frozen=True)
class Value:
    """A number, or a tuple of numbers.

    Attributes
    ----------
    dtypes
        Of the numbers.
    names
        Of the fields of a tuple that has names, else ``()``.
    is_tuple
        Whether it is a tuple.
    make
        The class of a named tuple.
    """

    dtypes: tuple[np.dtype[Any], ...]
    is_tuple: bool = False
    names: tuple[str, ...] = ()
    make: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        shown = [str(each) for each in self.dtypes]
        if not self.is_tuple:
            return shown[0]
        if self.names:
            shown = [f"{name}: {each}" for name, each in zip(self.names, shown, strict=True)]
        return f"({', '.join(shown)})"

    def numba_type(self) -> Any:
        """Numba's type."""
        from numba import types
        from numba.np.numpy_support import from_dtype

        numbers = [from_dtype(each) for each in self.dtypes]
        if not self.is_tuple:
            return numbers[0]
        if self.make is None:
            return types.Tuple(numbers)
        if len(set(numbers)) == 1:
            return types.NamedUniTuple(numbers[0], len(numbers), self.make)
        return types.NamedTuple(numbers, self.make)

    def aligned(self, *more: tuple[str, str]) -> np.dtype[Any]:
        """The structure that holds it in memory, as C++ has it."""
        fields = [(f"f{i}", each) for i, each in enumerate(self.dtypes)]
        return np.dtype([*fields, *more], align=True)

    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of it."""
        if not self.is_tuple:
            return self.dtypes[0]
        names = self.names or [f"f{i}" for i in range(len(self.dtypes))]
        return np.dtype(list(zip(names, self.dtypes, strict=True)), align=True)


def value_of(dtype: np.dtype[Any]) -> Value:
    """What Python functions receive of a dtype: numbers, or tuples with the fields' names."""
    if dtype.names is None:
        return Value((_number(dtype),))
    fields = [dtype[name] for name in dtype.names]
    try:
        make = collections.namedtuple("Element", dtype.names)  # type: ignore[misc]
    except ValueError as error:
        raise TypeError(f"fields of {dtype} cannot be those of a named tuple: {error}") from None
    return Value(tuple(map(_number, fields)), True, tuple(dtype.names), make)


def _number(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What a number is computed in: of 16 bits, float32."""
    if dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 2):
        return np.dtype(np.float32)
    return dtype.newbyteorder("=")


@dataclass(frozen=True)
class Types:
    """Types of an operator's values, for elements of one dtype.

    `lifted` is what ``lift`` returns, `combined` what ``combine`` does, before they are converted
    to `state`.
    """

    element: Value
    lifted: Value
    combined: Value
    state: Value
    result: Value
    result_is_element: bool

    def to_text(self) -> str:
        """As JSON, without the classes of named tuples."""
        values = {
            name: {
                "dtypes": [each.str for each in value.dtypes],
                "is_tuple": value.is_tuple,
                "names": value.names,
            }
            for name, value in ((name, getattr(self, name)) for name in _VALUES)
        }
        return json.dumps({**values, "result_is_element": self.result_is_element})

    @classmethod
    def from_text(cls, text: str) -> Types:
        """What :meth:`to_text` returned."""
        found = json.loads(text)
        values = {
            name: Value(
                tuple(map(np.dtype, found[name]["dtypes"])),
                found[name]["is_tuple"],
                tuple(found[name]["names"]),
            )
            for name in _VALUES
        }
        return cls(**values, result_is_element=found["result_is_element"])


def compile_error(
    name: str, function: Callable[..., Any], error: Exception, what: str = ""
) -> CompileError:
    """The exception of a function that Numba does not compile, with the user's line."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    path = function.__code__.co_filename
    line: int | None = None
    for found in _PLACE.finditer(log):
        if found["file"] == path or Path(found["file"]).name == Path(path).name:
            line = int(found["line"])
    if line is None:
        location = getattr(error, "loc", None)
        line = getattr(location, "line", None)
    message = _first_message(log)
    shown = _line_of(path, function, line)
    place = f"{Path(path).name}, line {line}: " if line is not None else ""
    return CompileError(
        f"operator '{name}' does not compile{what}: {place}{message}{shown}", log, line
    )


def _first_message(log: str) -> str:
    """The line of Numba's message that says most."""
    lines = [line.strip() for line in log.splitlines()]
    kept = [
        line
        for line in lines
        if line
        and not line.startswith(("Failed in ", "During:", "File ", "There are ", "[", "- ", "<"))
    ]
    for line in kept:
        if "No implementation" in line or line.startswith(("Invalid use", "Unknown", "NameError")):
            signature = next((each for each in lines if each.startswith(">>> ")), "")
            return f"{line.rstrip(':')}{': ' + signature[4:] if signature else ''}"
    return kept[0] if kept else "Numba gave no reason"


def _line_of(path: str, function: Callable[..., Any], line: int | None) -> str:
    import linecache

    shown = linecache.getline(path, line).strip() if line is not None else ""
    return f": {shown}" if shown else ""


def dispatcher(functions: Functions, role: str) -> Any:
    """The function that Numba compiles for the CPU: once per types."""
    if role not in functions.dispatchers:
        function = getattr(functions, role)
        functions.dispatchers[role] = import_numba().njit(function, error_model="numpy")
    return functions.dispatchers[role]


def _returned(name: str, functions: Functions, role: str, *arguments: Value) -> Value:
    """What a function returns for arguments of these types."""
    numba = import_numba()
    function = getattr(functions, role)
    given = tuple(each.numba_type() for each in arguments)
    try:
        compiled = dispatcher(functions, role)
        compiled.compile(given)
        returned = compiled.overloads[given].signature.return_type
    except numba.core.errors.NumbaError as error:
        raise compile_error(name, function, error) from None
    return _as_value(name, function, returned)


def _as_value(name: str, function: Callable[..., Any], returned: Any) -> Value:
    from numba import types
    from numba.core.errors import NumbaNotImplementedError
    from numba.np.numpy_support import as_dtype

    def number(kind: Any) -> np.dtype[Any]:
        kind = types.unliteral(kind)
        if isinstance(kind, (types.Number, types.Boolean)):
            try:
                return np.dtype(as_dtype(kind))
            except NumbaNotImplementedError:
                pass
        raise CompileError(
            f"operator '{name}': {function.__name__} returns {returned}: values of operators are "
            "numbers and tuples of numbers",
            line=function.__code__.co_firstlineno,
        )

    if not isinstance(returned, types.BaseTuple):
        return Value((number(returned),))
    if not 0 < len(returned) <= _MOST_FIELDS:
        raise CompileError(
            f"operator '{name}': {function.__name__} returns a tuple of {len(returned)} numbers: "
            f"1 to {_MOST_FIELDS} can be",
            line=function.__code__.co_firstlineno,
        )
    dtypes = tuple(number(each) for each in returned)
    make = getattr(returned, "instance_class", None)
    return Value(dtypes, True, tuple(getattr(make, "_fields", ())), make)


def _check_conversion(
    name: str, function: Callable[..., Any], given: Value, to: Value, role: str
) -> None:
    """Refuse conversions that lose more than bits of integers and of mantissas."""
    if given.is_tuple == to.is_tuple and len(given.dtypes) == len(to.dtypes):
        pairs = zip(given.dtypes, to.dtypes, strict=True)
        if all(_KINDS[one.kind] <= _KINDS[other.kind] for one, other in pairs):
            return
    hint = ""
    if not given.is_tuple and not to.is_tuple and to.dtypes[0].kind in "iu":
        hint = (
            ": Numba makes a float of a quotient, and of uint64 with a signed integer, as a "
            "literal is"
        )
    raise CompileError(
        f"operator '{name}': {function.__name__} returns {given}, and {role} is {to}{hint}",
        line=function.__code__.co_firstlineno,
    )


def _widened(state: Value, other: Value) -> Value:
    """The state that both convert to."""
    if state.is_tuple != other.is_tuple or len(state.dtypes) != len(other.dtypes):
        return state
    pairs = zip(state.dtypes, other.dtypes, strict=True)
    dtypes = tuple(np.promote_types(one, two) for one, two in pairs)
    return Value(dtypes, state.is_tuple, state.names, state.make)


def types_of(name: str, functions: Functions, element: np.dtype[Any], result: Any) -> Types:
    """Types of the values, for elements of a dtype.

    Parameters
    ----------
    name : str
        The operator's.
    functions : Functions
    element : dtype
        What elements are computed in.
    result : dtype or None
        Of results, if it was given.

    Raises
    ------
    CompileError
        Numba does not compile a function, or what it returns is no state or result.
    """
    number = value_of(element)
    index = Value((np.dtype(np.int64),))
    lift, combine, finish = functions.lift, functions.combine, functions.finish
    lifted = number
    if lift is not None:
        more = [index] if functions.takes_index else []
        lifted = _returned(name, functions, "lift", number, *more)
    state = value_of(functions.state) if functions.state is not None else lifted
    combined = _returned(name, functions, "combine", state, state)
    if lift is not None and functions.state is None:
        for _ in range(_ROUNDS):
            wider = _widened(state, combined)
            if wider == state:
                break
            state, combined = wider, _returned(name, functions, "combine", wider, wider)
    _check_conversion(name, lift or combine, lifted, state, "its state")
    _check_conversion(name, combine, combined, state, "its state")
    returned = state
    if finish is not None:
        more = [index] if functions.takes_count else []
        returned = _returned(name, functions, "finish", state, *more)
    made = returned
    if result is not None:
        made = value_of(np.dtype(result))
        _check_conversion(name, finish or combine, returned, made, "its result")
    return Types(number, lifted, combined, state, made, made == number and result is None)


def identity_of(name: str, functions: Functions, element: np.dtype[Any], state: Value) -> list[Any]:
    """Numbers of the identity, as Python has them.

    Raises
    ------
    TypeError, ValueError
        It is no state.
    """
    given = functions.identity
    if callable(given):
        given = given(element)
    numbers = list(given) if state.is_tuple else [given]
    if len(numbers) != len(state.dtypes):
        raise ValueError(
            f"identity of operator '{name}' has {len(numbers)} numbers, and a state has "
            f"{len(state.dtypes)}"
        )
    found = []
    for value, dtype in zip(numbers, state.dtypes, strict=True):
        try:
            made = dtype.type(value)
        except (OverflowError, TypeError, ValueError):
            made = None
        if made is None or (
            dtype.kind in "biu"
            and ((isinstance(value, float) and math.isnan(value)) or made != value)
        ):
            raise ValueError(f"identity of operator '{name}': {value!r} is no {dtype}")
        found.append(made.item())
    return found
