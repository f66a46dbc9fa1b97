"""The list of kernels, which prints as a table: :func:`gpureduce.kernels`."""

from __future__ import annotations

from typing import Any, SupportsIndex, overload

from .. import _core
from .._records import KernelInfo
from .html_page import element, table
from .tables import lay_out, terminal_width

__all__ = ["KernelList", "kernels"]

_MOST_NAMES = 5
"""Kernels that the ``repr`` of a list names."""


class KernelList(list[KernelInfo]):
    """Kernels that print as a table, in a notebook, too; ``repr`` is one line.

    An index is a number, or a kernel's name or alias.
    """

    def __repr__(self) -> str:
        names = [each.name for each in self]
        shown = (
            names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 1], "...", names[-1]]
        )
        return f"<{len(names)} kernels: {', '.join(shown)}>"

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> KernelInfo: ...
    @overload
    def __getitem__(self, which: slice) -> KernelList: ...
    def __getitem__(self, which: SupportsIndex | slice | str) -> KernelInfo | KernelList:
        if isinstance(which, str):
            name = _core.find_kernel(which)
            found = next((each for each in self if each.name == name), None)
            if found is None:
                raise ValueError(f"kernel '{name}' is not in this list")
            return found
        if isinstance(which, slice):
            return KernelList(super().__getitem__(which))
        return super().__getitem__(which)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [
                each.name,
                str(each.block_size),
                "yes" if each.deterministic else "no",
                each.summary + f" (alias {', '.join(each.aliases)})" * bool(each.aliases),
            ]
            for each in self
        ]
        return ["kernel", "block", "same bits", "what it does"], rows

    def __str__(self) -> str:
        headings, rows = self._table()
        return lay_out(headings, rows, left=len(headings), width=terminal_width())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str:
        title = "1 kernel" if len(self) == 1 else f"{len(self)} kernels"
        return element(title, [table(*self._table(), left=4)], [], [])


def _kernel_info(row: dict[str, Any]) -> KernelInfo:
    capability = row["min_compute_capability"]
    shaped = {
        "aliases": tuple(row["aliases"].split()),
        "min_compute_capability": divmod(capability, 10) if capability else None,
    }
    return KernelInfo(**row | shaped)


def kernels() -> KernelList:
    """List all kernels, in the order of the course.

    Returns
    -------
    list of KernelInfo
        It prints as a table. ``available`` and ``reason`` refer to the first GPU; the call opens
        the driver.

    Examples
    --------
    >>> import gpureduce as gr
    >>> [kernel.name for kernel in gr.kernels()][:2]
    ['naive_atomic', 'shared_atomic']
    >>> gr.kernels()[:2]
    <2 kernels: naive_atomic, shared_atomic>
    """
    return KernelList(_kernel_info(row) for row in _core.kernels())
