"""Kernels in this project's template form, as ``gpureduce kernels --export`` writes them.

.. code-block:: cuda

    template <class Traits, unsigned BLOCK>
    __global__ void mine(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                         Scratch<typename Traits::Acc>)

The types are those of ``using First = gpr::KernelTraits<...>``, and the launch is the one of the
file's ``reduce``; where that was removed, the kernel's own text says it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._dtypes import is_numpys

__all__ = ["TemplateForm", "is_template_form", "read_template_form"]

_TRAITS = re.compile(r"\busing\s+First\s*=\s*gpr::KernelTraits\s*<([^;]*)>\s*;", re.DOTALL)
_OPERATORS = {"sum": "sum", "prod": "prod", "min": "min", "max": "max"}
_BLOCK = re.compile(r"\bconstexpr\s+unsigned\s+block_size\s*=\s*(\d+)")
_MOST_CLUSTER = 8
"""Blocks of a cluster, at most, on every GPU that has clusters."""
_ITEMS = re.compile(r"\bconstexpr\s+unsigned\s+elements_per_thread\s*=\s*(\d+)")


@dataclass(frozen=True)
class TemplateForm:
    """What the text of a kernel in template form says.

    Attributes
    ----------
    op, dtypes
        The operator, and the dtypes of elements and accumulators.
    block_size, elements_per_thread
        The file's constants; ``None`` and 1 if there are none.
    cover, finish
        As in ``KernelForm``.
    has_scratch
        Whether the last block combines partials, by a ticket.
    next_kernel
        Traits of the launches over partials; "" where they are the first one's.
    is_cooperative, most_cluster
        As in ``KernelForm``.
    """

    op: str
    dtypes: tuple[str, str]
    block_size: int | None
    elements_per_thread: int
    cover: str
    finish: str
    has_scratch: bool
    next_kernel: str
    is_cooperative: bool
    most_cluster: int


def is_template_form(parameters: str) -> bool:
    """Whether a kernel's parameters are those of the template form."""
    return bool(re.search(r"\btypename\s+\w+::In\b", parameters))


def read_template_form(file: str, code: str, name: str, body: str) -> TemplateForm:
    """Read types and launch.

    Parameters
    ----------
    file : str
        Name of the file, for messages.
    code : str
        Its text without comments.
    name, body : str
        The kernel's name and text.

    Raises
    ------
    ValueError
        There are no traits, or kernels of your own do not compute what they are of.
    """
    traits = _TRAITS.search(code)
    if traits is None:
        raise ValueError(
            f"{file}: kernel '{name}' is in template form, and its types are not there: using "
            "First = gpr::KernelTraits<gpr::fold_sum, gpr::dt_float32, gpr::dt_float32, "
            "gpr::dt_float32>;"
        )
    line = code.count("\n", 0, traits.start()) + 1
    words = [each.strip().removeprefix("gpr::") for each in traits[1].split(",")]
    op = _OPERATORS.get(words[0].removeprefix("fold_"))
    dtypes = [word.removeprefix("dt_") for word in words[1:4]]
    if op is None or len(dtypes) != 3:
        raise ValueError(
            f"{file}:{line}: First is of {words[0]}: kernels of your own compute sum, prod, min "
            "and max"
        )
    for dtype in (dtypes[0], dtypes[2]):
        if not is_numpys(dtype) or dtype.startswith(("complex", "bool")):
            raise ValueError(
                f"{file}:{line}: First is of {dtype}: kernels of your own take integers and floats "
                "that NumPy has"
            )
    if dtypes[2] == "uint64" and dtypes[0].startswith("int"):
        dtypes[2] = "int64"  # the same bits: signed integers are summed unsigned, which wraps
    block, items = _BLOCK.search(code), _ITEMS.search(code)
    cover, finish = _launch(code, body)
    return TemplateForm(
        op=op,
        dtypes=(dtypes[0], dtypes[2]),
        block_size=None if block is None else int(block[1]),
        elements_per_thread=1 if items is None else int(items[1]),
        cover=cover,
        finish="single" if finish == "ticket" else finish,
        has_scratch=finish == "ticket",
        next_kernel="Next" if re.search(r"\busing\s+Next\s*=", code) else "",
        is_cooperative=re.search(r"\bgrid_barrier\s*\(", body) is not None,
        most_cluster=_MOST_CLUSTER if re.search(r"\bcluster_\w+\s*\(", body) else 1,
    )


def _function(code: str, head: str) -> str:
    """The body of a host function; "" if there is none."""
    found = re.search(rf"{head}[^;{{}}]*\{{(.*?)^\}}", code, re.DOTALL | re.MULTILINE)
    return "" if found is None else found[1]


def _launch(code: str, body: str) -> tuple[str, str]:
    """How blocks cover the elements, and how they become one."""
    blocks = _function(code, r"\bunsigned\s+blocks_for\s*\(")
    if blocks:
        cover = "stride" if "most" in blocks else "cover" if "per_block" in blocks else "one"
    elif re.search(r"\bgrid_of\b|/\s*row\.blocks\b", body) or (
        re.search(r"\brow\.blocks\b", body)
        and re.search(r"\bfor\s*\([^;]*;[^;]*;\s*\w+\s*\+=", body)
    ):
        cover = "stride"  # a block's share depends on how many blocks there are
    else:
        cover = "cover" if re.search(r"\brow\.block\b", body) else "one"
    reduce = _function(code, r"\breduce\s*\(")
    if reduce:
        for word, finish in (("fill_identity", "atomic"), ("scratch", "ticket")):
            if word in reduce:
                return cover, finish
        return cover, "partials" if cover != "one" else "single"
    if re.search(r"\batomic_(?:combine|fold)\s*\(\s*&?\s*out\b|\batomic\w*\([^;]*\bout\b", body):
        return cover, "atomic"
    if re.search(r"\bpartials\s*\(\s*\)|\btickets\b|\bis_last\w*", body):
        return cover, "ticket"
    return cover, "partials" if cover != "one" else "single"
