"""Layouts of calls of an operator of the user's own: axes, and the parameters of its programs.

The parameters are ``gpr_custom_params`` of ``csrc/shared/custom_params.h``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .shared_header import constants, structure

__all__ = [
    "ACROSS",
    "CONTINUES",
    "ENDS",
    "FACTS",
    "INITIAL_BYTES",
    "STARTS",
    "Axis",
    "Layout",
    "facts_of",
    "parameters",
]

_HEADERS = ("custom_params.h", "launch_params.h")
_CONSTANTS = constants("custom_params.h")
INITIAL_BYTES = _CONSTANTS["GPR_CUSTOM_INITIAL_BYTES"]
CONTINUES, ENDS, STARTS, ACROSS = (
    _CONSTANTS[f"GPR_CUSTOM_{flag}"] for flag in ("CONTINUES", "ENDS", "STARTS", "ACROSS")
)
FACTS = structure("gpr_custom_facts", *_HEADERS)
PARAMETERS = structure("gpr_custom_params", *_HEADERS)


class Axis(NamedTuple):
    """An axis: steps in bytes of the array and of its mask, and of results or of positions."""

    extent: int
    step: int
    mask: int
    last: int


_NO_AXIS = Axis(1, 0, 0, 0)


@dataclass(frozen=True)
class Layout:
    """Where the elements of a call are: kept axes, then reduced ones, the nearest in memory last.

    Reduced axes stay in the order of the array's axes where the order of elements counts.
    """

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    rows: int = field(default=1)
    n: int = field(default=1)

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        strides: Sequence[int],
        mask: Sequence[int] | None,
        reduced: Sequence[int],
        itemsize: int,
        *,
        reorder: bool,
        keep_positions: bool,
        positions: Sequence[int] | None = None,
    ) -> Layout:
        """Make the layout of an array.

        Parameters
        ----------
        shape, strides, mask : sequence of int
            Of the array; steps in bytes. `mask` has the steps of its mask.
        reduced : sequence of int
            Numbers of the reduced axes.
        itemsize : int
            Bytes of a result; results are C-contiguous.
        reorder : bool
            Whether the order of elements does not count.
        keep_positions : bool
            Whether positions of elements count, though their order does not.
        positions : sequence of int, optional
            Shape that positions count in: that of the array of which this one is a chunk.
        """
        whole = shape if positions is None else positions
        masks = mask if mask is not None else [0] * len(shape)
        axes: dict[bool, list[Axis]] = {True: [], False: []}
        lasts = {True: 1, False: itemsize}
        for i in reversed(range(len(shape))):
            is_reduced = i in reduced
            axes[is_reduced].insert(0, Axis(shape[i], strides[i], masks[i], lasts[is_reduced]))
            lasts[is_reduced] *= whole[i] if is_reduced else shape[i]
        rows = math.prod(axis.extent for axis in axes[False])
        n = math.prod(axis.extent for axis in axes[True])
        kept = _merged(_by_distance(axes[False]), with_last=True)
        inner = _by_distance(axes[True]) if reorder else axes[True]
        return cls(kept, _merged(inner, with_last=not reorder or keep_positions), rows, n)

    @property
    def is_across(self) -> bool:
        """Whether neighbours in memory are elements of different rows."""
        column = self.kept[-1]
        return column.extent > 1 and abs(column.step) < abs(self.reduced[-1].step)

    def cut(self, wanted: int) -> tuple[int, int]:
        """Parts per row, `wanted` or fewer, and elements per part.

        Each part but the last has that many, and none is empty unless the row is.
        """
        share = -(-self.n // max(1, min(wanted, self.n)))
        return (-(-self.n // share) if share > 0 else 1), share


def _by_distance(axes: list[Axis]) -> list[Axis]:
    return sorted(axes, key=lambda axis: -abs(axis.step))


def _merged(axes: Sequence[Axis], *, with_last: bool) -> tuple[Axis, ...]:
    """Axes that follow each other in memory as one."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged:
            before = merged[-1]
            steps = ("step", "mask", "last") if with_last else ("step", "mask")
            if all(getattr(before, s) == getattr(axis, s) * axis.extent for s in steps):
                merged[-1] = axis._replace(extent=before.extent * axis.extent)
                continue
        merged.append(axis)
    return tuple(merged) or (_NO_AXIS,)


def facts_of(told: np.ndarray[Any, Any]) -> dict[str, int]:
    """Facts that a program wrote to an array of :data:`FACTS`, by name."""
    return {field: int(told[field]) for field in FACTS.names or ()}


def parameters(layout: Layout, **values: Any) -> np.ndarray[Any, Any]:
    """Parameters of a program, as an array of one element."""
    made = np.zeros((), PARAMETERS)
    axes = [*layout.kept, *layout.reduced]
    made["axes"][: len(axes)] = axes
    made["kept"], made["reduced"] = len(layout.kept), len(layout.reduced)
    made["rows"], made["n"] = layout.rows, layout.n
    made["total"] = layout.n
    for name, value in values.items():
        made[name] = value
    return made
