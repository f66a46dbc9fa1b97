"""What an operator of the user's own promises: its combine is associative, its identity changes
nothing, and if it says that it is commutative, operands may be swapped.

Promises are tried on a few hundred random elements, and shown by the first that break them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .operator_on_cpu import cpu_program
from .operator_tasks import COMBINE, EMPTY
from .operator_text import OperatorText, OperatorTypes, result_dtype

__all__ = ["Laws", "agree", "some_elements", "tolerance_of"]

_TOLERANCE = {2: 2.0**-7, 4: 2.0**-12, 8: 2.0**-40}
"""What results of floats may differ by, relatively, by their bytes: combined in another order."""
_TRIES = 200
_KINDS = {"associative": "not associative", "identity": "no identity", "swap": "not commutative"}
"""Kinds of mistakes (findings.ADVICE)."""


def tolerance_of(dtype: np.dtype[Any]) -> float:
    """What results of a float or complex dtype may differ by, relatively."""
    return _TOLERANCE[dtype.itemsize // (2 if dtype.kind == "c" else 1)]


def agree(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether results are equal; of floats, but for rounding in another order."""
    if a.dtype.names is not None:
        return all(agree(a[name], b[name]) for name in a.dtype.names)
    if a.dtype.kind not in "fcV":
        return bool(np.array_equal(a, b))
    tolerance = tolerance_of(a.dtype)
    wide = [each.astype(np.complex128) for each in (a, b)]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    return bool(np.allclose(wide[0][finite], wide[1][finite], rtol=tolerance, atol=tolerance))


def some_elements(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Small random whole numbers, also of structures."""
    if dtype.names is not None:
        made = np.zeros(shape, dtype)
        for name in dtype.names:
            made[name] = some_elements(rng, made.dtype[name], shape)
        return made
    values = rng.integers(0 if dtype.kind in "ub" else -4, 5, shape)
    return values.astype(np.float32).astype(dtype) if dtype.kind == "V" else values.astype(dtype)


@dataclass(frozen=True)
class Broken:
    """A promise that an operator does not keep: its kind, the function, and what shows it."""

    kind: str
    role: str
    what: str
    n: int


class Laws:
    """An operator for elements of a dtype, compiled for the CPU.

    Raises ``CompileError`` if it does not compile, ``KernelUnavailableError`` without a compiler.
    """

    def __init__(self, operator: OperatorText, dtype: np.dtype[Any]) -> None:
        self._operator, self._dtype = operator, dtype
        self._program = cpu_program(operator, OperatorTypes(dtype, dtype, False))
        self.facts = self._program.facts
        self._result = result_dtype(operator, self.facts, dtype)

    def value(self, elements: np.ndarray[Any, Any], *steps: int) -> np.ndarray[Any, Any]:
        """The result of combinations of elements."""
        out = np.empty((), self._result)
        if not self._program.evaluate(elements, steps, out):
            raise ValueError("the steps leave no value")
        return out

    def fold(self, elements: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The result of elements from left to right."""
        steps = [0, *(step for i in range(1, len(elements)) for step in (i, COMBINE))]
        return self.value(elements, *steps)

    def broken(self, seed: int) -> list[Broken]:
        """Promises that the operator does not keep."""
        rng = np.random.default_rng(seed)
        pairs: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
            "associative": (
                (0, 1, COMBINE, 2, COMBINE), (0, 1, 2, COMBINE, COMBINE),
                "combine(combine(x, y), z) is {0}, and combine(x, combine(y, z)) is {1}",
            ),
        }  # fmt: skip
        if self.facts["has_identity"]:
            pairs["identity"] = (
                (EMPTY, 0, COMBINE), (0, EMPTY, COMBINE),
                "combine(identity(), x) is {0}, combine(x, identity()) is {1}, and x is {2}",
            )  # fmt: skip
        if self._operator.commutative:
            pairs["swap"] = (
                (0, 1, COMBINE), (1, 0, COMBINE),
                "it says that it is commutative, combine(x, y) is {0}, and combine(y, x) is {1}",
            )  # fmt: skip
        found = []
        for name, (left, right, words) in pairs.items():
            for _ in range(_TRIES):
                x = some_elements(rng, self._dtype, (3,))
                values = [self.value(x, *left), self.value(x, *right), self.value(x, 0)]
                is_kept = agree(values[0], values[1])
                if name == "identity":
                    is_kept = is_kept and agree(values[0], values[2])
                if not is_kept:
                    count = max(*left, *right) + 1
                    shown = [f"{n} = {v}" for n, v in zip("xyz"[:count], x.tolist(), strict=False)]
                    what = f"of {', '.join(shown)}: {words.format(*(v.item() for v in values))}"
                    role = "identity" if name == "identity" else "combine"
                    found.append(Broken(_KINDS[name], role, what, count))
                    break
        return found
