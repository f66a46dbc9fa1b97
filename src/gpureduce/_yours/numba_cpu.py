"""An operator of Python functions on the CPU: compiled by Numba, functions and loops as one."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._dtypes import native_dtype
from .._first_made import first_made
from .numba_loops import Loops, columns_of, partial_dtype
from .numba_task import compiled_task
from .operator_layout import Layout
from .operator_tasks import CpuTasks
from .operator_text import OperatorTypes
from .python_text import PythonText

__all__ = ["NumbaProgram"]


class NumbaProgram(CpuTasks):
    """Machine code of an operator for elements of a dtype.

    Parameters
    ----------
    operator : PythonText
    types : OperatorTypes

    Raises
    ------
    ImportError
        Numba is not installed.
    CompileError
        Numba does not compile a function.

    Attributes
    ----------
    facts
        ``gpr_custom_facts``, by name.
    """

    def __init__(self, operator: PythonText, types: OperatorTypes) -> None:
        self._operator = operator
        # Of complex numbers, and to bools, NumPy converts elements before.
        is_loaded = types.element.kind != "c" and types.compute.kind != "b"
        self.element = types.element if is_loaded else types.compute
        self._types = types
        compute, functions = types.compute, operator.functions
        state = operator.types(compute).state
        self._result = native_dtype(operator.result_of(compute))
        # What the loops store: NumPy makes 16-bit floats of the results.
        self._stored = _stored(self._result)
        self._tasks: dict[str, Any] = {}
        whole = state.aligned() if state.is_tuple else state.dtypes[0]
        self.facts = {
            "partial_bytes": partial_dtype(state).itemsize,
            "swapped_bytes": self._swapped_bytes(whole),
            "state_bytes": whole.itemsize,
            "result_bytes": self._result.itemsize,
            "has_identity": int(functions.has_identity),
            "takes_index": int(functions.takes_index),
            "columns": columns_of(state),
        }

    def _swapped_bytes(self, state: np.dtype[Any]) -> int:
        """Bytes of a partial on a GPU, which has no count where the loops here always have one."""
        functions = self._operator.functions
        counts = self._types.masked and functions.takes_count
        if counts or not functions.has_identity:
            return np.dtype([("state", state), ("count", "i8")], align=True).itemsize
        alignment = max(4, state.alignment)
        return -(-state.itemsize // alignment) * alignment

    @functools.cached_property
    def _loops(self) -> Loops:
        operator, compute = self._operator, self._types.compute
        return Loops(
            operator.functions, operator.inferred(compute), self.element, self._stored,
            operator.identity(compute), commutative=operator.commutative,
            masked=self._types.masked,
        )  # fmt: skip

    def _address(self, name: str) -> int:
        """Address of a task, which is compiled where the cache does not have it."""

        def compiled() -> Any:
            compute = self._types.compute
            identity = self._operator.identity(compute)
            layout = self.element, compute, self._types.masked
            key = self._operator.key("task", name, layout, identity)
            count = 4 if name == "evaluate" else 3
            return compiled_task(key, count, lambda: self._loops.written(name))

        return int(first_made(self._tasks, name, compiled).address)

    def fold_task(self, is_across: bool) -> int:
        """Address of the function that folds a part of rows, or of columns."""
        return self._address("fold_columns" if is_across else "fold_rows")

    def end_task(self) -> int:
        """Address of the function that merges the parts of rows."""
        return self._address("end_rows")

    def run(self, task: int, given: np.ndarray[Any, Any], count: int) -> None:
        """Run tasks on all cores.

        Raises
        ------
        RuntimeError
            A function raised an exception.
        """
        done = np.zeros(count, np.uint8)
        given["states"] = done.ctypes.data
        super().run(task, given, count)
        if not done.all():
            raise RuntimeError(
                f"a function of operator '{self._operator.name}' raised an exception, which "
                "sys.unraisablehook has"
            )

    def reduce(self, layout: Layout, array: np.ndarray[Any, Any], out: Any, **values: Any) -> None:
        """Reduce an array into `out`."""
        if self._stored == out.dtype:
            super().reduce(layout, array, out, **values)
            return
        size, stored = out.dtype.itemsize, self._stored.itemsize
        kept = tuple(axis._replace(last=axis.last // size * stored) for axis in layout.kept)
        target = np.empty(out.shape, self._stored)
        super().reduce(replace(layout, kept=kept), array, target, **values)
        out[...] = target

    def evaluate(self, array: np.ndarray[Any, Any], steps: Sequence[int], out: Any) -> bool:
        """Combine elements as postfix steps say."""
        program = np.array(steps, np.int64)
        function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 4)(
            self._address("evaluate")
        )
        target = out if self._stored == out.dtype else np.empty(out.shape, self._stored)
        found = function(array.ctypes.data, program.ctypes.data, program.size, target.ctypes.data)
        if target is not out:
            out[...] = target
        return bool(found)


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype whose floats of 16 bits are of 32."""
    if dtype.names is not None:
        fields = {name: _stored(dtype[name]) for name in dtype.names}
        if all(fields[name] == dtype[name] for name in fields):
            return dtype
        return np.dtype(list(fields.items()))
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind in "fV" else dtype
