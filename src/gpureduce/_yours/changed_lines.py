"""The lines in which a user's file differs from the export of a kernel of the catalogue that it was
made of.
"""

from __future__ import annotations

import difflib
from functools import lru_cache

from .. import _core
from .._dtypes import native_dtype
from .._standalone import standalone_source
from .device_text import without_comments
from .kernel import Kernel

__all__ = ["changed_lines"]

_MOST = 12
"""Lines of a file that is still the export with a change; with more it is another kernel."""


def changed_lines(kernel: Kernel) -> tuple[int, ...]:
    """Lines of code of the file that its export does not have; where lines were removed, the one
    before. Empty if the kernel is not made of an export, or has little in common with it.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    tuple of int
    """
    form = kernel.form
    if form.dtypes is None or form.block_size is None or form.name not in _core.KERNEL_FILES:
        return ()
    return _compare(kernel.source, form.name, form.dtypes[0], form.op, form.block_size)


@lru_cache(maxsize=8)
def _compare(source: str, name: str, dtype: str, op: str, block: int) -> tuple[int, ...]:
    try:
        export = standalone_source(name, native_dtype(dtype), op, block)
    except ValueError:  # a block size that the catalogue's kernel does not take
        return ()
    before, after = (
        [line.strip() for line in without_comments(text).splitlines()] for text in (export, source)
    )
    changed = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        changed += [line + 1 for line in range(start, end) if after[line]]
        if start == end and any(before[first:last]):
            changed.append(max(start, 1))
    return tuple(changed) if len(changed) <= _MOST else ()
