"""Tasks of an operator of the user's own on the CPU: what folds parts of rows, and what ends rows.

Tasks depend on the array's shape alone, not on the number of threads, so results do not either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from .operator_layout import ACROSS, Layout, parameters

__all__ = ["COMBINE", "EMPTY", "CpuTasks"]

COMBINE, EMPTY = -1, -2
"""Steps of :meth:`CpuTasks.evaluate` (csrc/kernels/custom/custom_cpu.cuh)."""

_PIECE = 1 << 17
"""Elements of a row that a task folds, where rows are few."""
_ENOUGH = 64
"""Groups of rows that keep all cores busy without cutting rows."""
_BATCH = 1 << 14
"""Elements of the short rows that a task folds."""
_ROWS_PER_END = 16


class CpuTasks:
    """An operator's machine code that is loaded into this process.

    Attributes
    ----------
    facts
        ``gpr_custom_facts``, by name.
    element
        Dtype of the arrays that it reads.
    """

    facts: dict[str, int]
    element: np.dtype[Any]

    def fold_task(self, is_across: bool) -> int:
        """Address of the function that folds a part of rows; `is_across`: that are columns."""
        raise NotImplementedError

    def end_task(self) -> int:
        """Address of the function that merges the parts of rows."""
        raise NotImplementedError

    def run(self, task: int, given: np.ndarray[Any, Any], count: int) -> None:
        """Run tasks on all cores."""
        _core.run_custom_tasks(task, given.ctypes.data, count)

    def reduce(self, layout: Layout, array: np.ndarray[Any, Any], out: Any, **values: Any) -> None:
        """Reduce an array into `out`; `values` are more of the parameters, of which ``mask``.

        Parameters
        ----------
        layout : Layout
        array : ndarray
        out : ndarray
            C-contiguous, of the results' dtype.
        """
        if layout.rows == 0:
            return
        side_by_side, across = layout.kept[-1].extent, layout.is_across
        if across:
            lanes = min(self.facts["columns"], side_by_side)
        else:
            lanes = min(max(1, _BATCH // max(1, layout.n)), side_by_side)
        groups = layout.rows // side_by_side * -(-side_by_side // lanes)
        wanted = 1 if groups >= _ENOUGH else -(-layout.n * lanes // _PIECE)
        parts, share = layout.cut(wanted)
        values["flags"] = values.get("flags", 0) | (ACROSS if across else 0)
        given = parameters(
            layout, parts=parts, share=share, lanes=lanes, out=out.ctypes.data, **values
        )
        given["in"] = array.ctypes.data
        partials = None
        if parts > 1:
            partials = np.empty(layout.rows * parts * self.facts["partial_bytes"] + 64, np.uint8)
            given["partials"] = -(-partials.ctypes.data // 64) * 64
        self.run(self.fold_task(across), given, groups * parts)
        if parts > 1:
            given["lanes"] = _ROWS_PER_END
            self.run(self.end_task(), given, -(-layout.rows // _ROWS_PER_END))
        del partials

    def evaluate(self, array: np.ndarray[Any, Any], steps: Sequence[int], out: Any) -> bool:
        """Combine elements as postfix steps say: the number of one, COMBINE, or EMPTY.

        Parameters
        ----------
        array : ndarray
            Of one axis, contiguous.
        steps : sequence of int
        out : ndarray
            The result, of no axes and the results' dtype.

        Returns
        -------
        bool
            False: they have no value.
        """
        raise NotImplementedError
