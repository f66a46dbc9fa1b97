"""The Python functions of an operator of the user's own, before anything compiles them."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Functions", "plain_function"]


_RAISES = frozenset(
    dis.opmap[name] for name in ("RAISE_VARARGS", "YIELD_VALUE") if name in dis.opmap
)
_COUNTS = {"combine": (2, 2), "lift": (1, 2), "finish": (1, 2)}
_OPERANDS = {
    "combine": "combine(left, right)",
    "lift": "lift(x) or lift(x, index)",
    "finish": "finish(state) or finish(state, n)",
}


@dataclass(frozen=True, eq=False)
class Functions:
    """What an operator consists of; equal only to itself."""

    combine: Callable[..., Any]
    lift: Callable[..., Any] | None
    finish: Callable[..., Any] | None
    identity: Any
    """A value, or a function of the elements' dtype; None: there is none."""
    state: Any
    """Dtype of states, if it was given."""
    dispatchers: dict[str, Any] = field(default_factory=dict, repr=False)
    """What Numba compiled for the CPU, by role."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By their code: in their module, and in a notebook, the operator has the function's name.
        from numba import cloudpickle

        fields = self.combine, self.lift, self.finish, self.identity, self.state
        return _restored, (cloudpickle.dumps(fields),)

    @property
    def has_identity(self) -> bool:
        """Whether no elements have a value."""
        return self.identity is not None

    @property
    def takes_index(self) -> bool:
        """Whether ``lift`` depends on indices."""
        return self.lift is not None and count_of(self.lift) > 1

    @property
    def takes_count(self) -> bool:
        """Whether ``finish`` depends on the number of elements."""
        return self.finish is not None and count_of(self.finish) > 1

    def named(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """The functions, by what they are for."""
        for name in _COUNTS:
            if (function := getattr(self, name)) is not None:
                yield name, function

    @property
    def file(self) -> str:
        """Name of the file of ``combine``."""
        return Path(self.combine.__code__.co_filename).name

    @property
    def source(self) -> str:
        """The text of the functions, as far as Python finds it."""
        found = []
        for _, function in self.named():
            try:
                text = inspect.getsource(function)
            except (OSError, TypeError):
                continue
            if text not in found:
                found.append(text)
        return "\n".join(found)


def _restored(pickled: bytes) -> Functions:
    from numba import cloudpickle

    return Functions(*cloudpickle.loads(pickled))


def count_of(function: Callable[..., Any]) -> int:
    """Parameters of a function."""
    return int(function.__code__.co_argcount)


def plain_function(given: object, role: str, name: str) -> Callable[..., Any]:
    """The Python function that is given, or that a dispatcher of Numba is made of.

    Raises
    ------
    TypeError
        It is no Python function, or not one of the operands that `role` has.
    ValueError
        It raises exceptions or yields, which the machine code of an operator cannot.
    """
    function = getattr(given, "py_func", given)
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"{role} of operator '{name}' is a Python function, not {type(given).__name__}"
        )
    parameters = inspect.signature(function).parameters.values()
    least, most = _COUNTS[role]
    if not least <= len(parameters) <= most or any(
        each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        or each.default is not each.empty
        for each in parameters
    ):
        raise TypeError(
            f"{role} of operator '{name}' is {_OPERANDS[role]}, not "
            f"{function.__name__}{inspect.signature(function)}"
        )
    for each in _with_called(function):
        _refuse_raising(each, role, name)
    return function


def _with_called(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """A function, and those of the user's own that it names."""
    waiting, seen = [function], {function}
    while waiting:
        each = waiting.pop()
        yield each
        values = inspect.getclosurevars(each)
        for value in (*values.globals.values(), *values.nonlocals.values()):
            plain = getattr(value, "py_func", value)
            if isinstance(plain, types.FunctionType) and plain not in seen:
                seen.add(plain)
                waiting.append(plain)


def _refuse_raising(function: types.FunctionType, role: str, name: str) -> None:
    line = function.__code__.co_firstlineno
    for step in dis.get_instructions(function):
        line = _line_of(step) or line
        if step.opcode in _RAISES:
            what = "raises an exception" if step.opname == "RAISE_VARARGS" else "yields"
            raise ValueError(
                f"{role} of operator '{name}' {what} in line {line} of "
                f"{Path(function.__code__.co_filename).name}: threads of a GPU cannot"
            )


def _line_of(step: dis.Instruction) -> int | None:
    """Line of an instruction, where a line begins."""
    line = step.starts_line
    if isinstance(line, bool):  # from Python 3.13 on
        return getattr(step, "line_number", None)
    return line
