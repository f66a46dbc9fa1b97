"""Programs of a kernel of the user's own: text for NVRTC or the emulator, arguments.

A program's lines are those of the user's file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._exceptions import CudaError
from .host_headers import prelude
from .kernel_form import C_TYPES, KernelForm

__all__ = [
    "Places",
    "Program",
    "arguments",
    "blocks_for",
    "does_not_compile",
    "dtypes_of",
    "fixed_dtypes",
    "further_launches",
    "identity",
    "roles",
    "set_value",
    "shared_bytes",
    "shown_name",
    "takes_block",
    "write",
]

C_NAMES = {
    dtype: c_type
    for c_type, dtype in reversed(C_TYPES.items())
    if not c_type.endswith("_t") and c_type not in ("long", "unsigned long")
}
"""C types of dtypes, as CUDA's own functions are declared for them."""
_DYNAMIC = re.compile(
    r"extern(\s+)__shared__(\s+)(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)?"
    r"([^;\[]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(r"\bstatic(?=\s+__shared__\b)")
_INCLUDE_BELOW = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<cooperative_groups/\w+\.h>", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.MULTILINE)
_NAME_ROOM = 40
"""Longest name of a file in findings of the emulator (csrc/emu/emu.h has 48 bytes)."""
TEMPLATE_DTYPES = ("float32", "int32", "float64")
"""Dtypes that a kernel templated on the element's type is checked with."""


@dataclass(frozen=True)
class Program:
    """What a compiler receives: text, names of its kernels, and the name of the file in messages.

    The first entry is the kernel; ``gpr_set_value``, where there is one, sets what the kernel
    expects to be set: an output that atomics update, the ticket of blocks.
    """

    name: str
    text: str
    entries: tuple[str, ...]


def shown_name(file: str) -> str:
    """The file's name as compilers and findings have it."""
    name = re.sub(r"[^\w.-]", "_", file.rsplit("/", 1)[-1])
    return name if 0 < len(name) <= _NAME_ROOM else "kernel.cu"


def dtypes_of(form: KernelForm, dtype: str | None = None) -> tuple[str, str]:
    """Dtypes of elements and output; `dtype` is the template's element type."""
    if form.dtypes is not None:
        return form.dtypes

    def one(role: str) -> str:
        parameter = form.of(role)
        assert parameter is not None
        return C_TYPES.get(parameter.c_type) or dtype or TEMPLATE_DTYPES[0]

    return one("in"), one("out")


def fixed_dtypes(form: KernelForm) -> tuple[str, str] | None:
    """Dtypes of elements and output; ``None``: the kernel is templated on them."""
    types = {each.c_type for each in form.parameters}
    if form.dtypes is not None:
        return form.dtypes
    return None if any(name in types for name, _ in form.template) else dtypes_of(form)


def write(form: KernelForm, dtype: str | None, block: int, *, emulated: bool) -> Program:
    """The program of a kernel for elements of `dtype`, where it is templated on them, and a block
    size, where it is templated on that.
    """
    name = shown_name(form.file)
    element, result = dtypes_of(form, dtype)
    text = form.text
    prefix = ""
    if emulated:
        text = _DYNAMIC.sub(
            lambda m: (
                f"{m[1]}{m[2]}{m[3]} *const {m[4]} = "
                f"reinterpret_cast<{m[3]} *>(gpr_emu_dynamic_shared);"
            ),
            text,
        )
        text = _STATIC.sub("", text)  # it is, there
        text = _INCLUDE_BELOW.sub("", text)
        prefix = '#include "plain_cuda.h"\n'
    if form.traits:
        entries = tuple(
            f"{form.scope}{form.name}<{traits}, {block}u>"
            for traits in form.traits
            if traits != "scratch"
        )
    else:
        values = [
            value
            if value is not None
            else (f"{block}u" if _is_block(form, parameter) else C_NAMES[element])
            for parameter, value in form.template
        ]
        entries = (f"{form.name}<{', '.join(values)}>" if values else form.name,)
    set_type = C_NAMES[result] if form.finish == "atomic" else "unsigned" * form.has_scratch
    if set_type:
        text += (
            f'\nextern "C" __global__ void gpr_set_value({set_type} *gpr_out, {set_type} gpr_value)'
            "\n{\n    *gpr_out = gpr_value;\n}\n"
        )
        entries += ("gpr_set_value",)
    # Headers that stay come first: they may define some of the words, too.
    prefix += "".join(f"{line.strip()}\n" for line in _INCLUDE.findall(text))
    return Program(name, f'{prefix}{prelude(text)}#line 1 "{name}"\n{text}\n', entries)


def takes_block(form: KernelForm) -> bool:
    """Whether the block size is a template parameter, of which each value is a program."""
    return any(value is None and _is_block(form, name) for name, value in form.template)


def does_not_compile(form: KernelForm, error: CudaError) -> CudaError:
    """The exception of a text that a compiler refuses, with the first message, and the includes
    that were not read.
    """
    lines = (error.log or "").splitlines() or [str(error)]
    at = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line)), 0)
    place, colon, message = lines[at].partition(": ")
    # Without the folder of a compiler's file; of a message about a helper, the line that uses it.
    place = place.rsplit("/", 1)[-1]
    if not place.startswith(shown_name(form.file)):
        used = re.findall(rf"\b{re.escape(shown_name(form.file))}:\d+", "\n".join(lines[:at]))
        place = used[-1] if used else place
    first = f"{place}: {message}" if colon else lines[at]
    headers = "".join(
        f"; line {line} includes {name}, which is not read: put what the kernel needs of it into "
        "this file"
        for line, name in form.left_out
    )
    return CudaError(
        f"{form.file} does not compile: {first}{headers}",
        error.name,
        error.number,
        error.call,
        error.log,
    )


def _is_block(form: KernelForm, parameter: str) -> bool:
    types = {each.c_type for each in form.parameters}
    return parameter not in types


def identity(op: str, dtype: str) -> Any:
    """The value that an atomic kernel's output holds before, of type `dtype`."""
    kind = np.dtype(dtype)
    if op in ("sum", "prod"):
        return kind.type(op == "prod")
    if kind.kind == "f":
        return kind.type(np.inf if op == "min" else -np.inf)
    limits = np.iinfo(kind)
    return kind.type(limits.max if op == "min" else limits.min)


def blocks_for(form: KernelForm, n: int, block: int, most: int, given: int | None = None) -> int:
    """Blocks that a launch over n elements has; `most`, or else how many are `given`, bounds those
    that loop. Where none are given clusters are as large as they can be.
    """
    if form.cover in ("one", "thread"):
        return 1
    needed = max(1, -(-n // (block * form.elements_per_thread)))
    if form.cover != "stride":
        return needed
    found, cluster = min(needed, given or most), form.most_cluster
    while cluster > found:
        cluster //= 2
    return found if given is not None else found - found % cluster


def further_launches(
    form: KernelForm, same_type: bool, grid: int, block: int, most: int
) -> list[tuple[int, int]]:
    """Elements and blocks of the launches after the first, whose `grid` blocks left partials.

    A kernel whose output has the elements' type (`same_type`) reduces its partials again, until one
    is left.
    """
    found: list[tuple[int, int]] = []
    if form.finish != "partials" or not form.takes_n:
        return found
    while same_type or "Next" in form.traits:
        n, grid = grid, blocks_for(form, grid, block, most)
        if n == 1 or grid >= n:
            break
        found.append((n, grid))
    return found


def shared_bytes(form: KernelForm, element: str, block: int) -> int:
    """Dynamic shared memory of a block: an element of the array per thread."""
    if form.shared_type is None:
        return 0
    dtype = C_TYPES.get(form.shared_type)
    if dtype is None or form.shared_type in ("char", "unsigned char", "uchar"):
        dtype = element  # a template's element type, or bytes that the kernel casts
    return block * np.dtype(dtype).itemsize


def set_value(address: int, value: Any) -> tuple[Any, ...]:
    """The launch of ``gpr_set_value``, the second entry of a program."""
    return 1, 1, 1, 0, (address.to_bytes(8, "little"), np.asarray(value).tobytes())


@dataclass(frozen=True)
class Places:
    """Device memory of a launch: elements, output, and of the template form partials and ticket."""

    elements: int
    output: int
    partials: int = 0
    ticket: int = 0


def roles(form: KernelForm) -> list[tuple[str, str]]:
    """Roles of the kernel's parameters, with the dtype that n has."""
    return [(each.role, C_TYPES.get(each.c_type, "uint64")) for each in form.parameters]


def arguments(
    parameters: Iterable[tuple[str, str]], places: Places, n: int, grid: int
) -> tuple[bytes, ...]:
    """What the kernel's parameters get, in the order of their :func:`roles`."""
    found = []
    for role, dtype in parameters:
        if role == "n":
            found.append(np.array(n).astype(dtype).tobytes())
        elif role == "rows":  # gpr_rows_params
            found.append(struct.pack("<QQQI4x", n, 1, 0, grid))
        elif role == "scratch":  # gpr_scratch_params
            found.append(struct.pack("<QQ", places.partials, places.ticket))
        else:
            address = places.elements if role == "in" else places.output
            found.append(address.to_bytes(8, "little"))
    return tuple(found)
