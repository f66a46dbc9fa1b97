"""A kernel of the user's own: :class:`gpureduce.Kernel`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._calls import Call
from .._display.exported import make_public
from .kernel_form import FINISHES, OPERATORS, KernelForm, read_kernel
from .launching import LoadedKernel, Programs, device_of
from .program_text import fixed_dtypes
from .reducing import reduce_call
from .source_file import read_source

__all__ = ["Kernel"]

_TEXT_NAME = "mine.cu"
"""Name of a kernel's file where its text is given."""
_MOST_BLOCK = 1024
_TRIAL_SECONDS = 20.0
_COVER_WORDS = {
    "cover": "as many blocks as n needs",
    "stride": "blocks that loop over the elements",
    "one": "one block",
    "thread": "one thread",
}
_FINISH_WORDS = {
    "partials": "each block stores a partial in out[blockIdx.x]",
    "atomic": "blocks update out[0] by atomics; it holds the identity before",
    "single": "the result is in out[0]",
}


def _together(form: KernelForm) -> str:
    """How blocks of a launch belong together."""
    if form.is_cooperative:
        return ", in a cooperative launch"
    return f", in clusters of up to {form.most_cluster}" if form.most_cluster > 1 else ""


class Kernel:
    """A CUDA kernel of your own that reduces an array.

    Its parameters are the elements, the output and the number of elements, in any order and with
    any names. Host code in the file (``main``, launches, includes) is ignored.

    .. code-block:: cuda

        __global__ void mine(const float *in, float *out, unsigned n)

    A kernel in the template form of this package, as ``gpureduce kernels --export`` writes it, is
    accepted, too.

    The operator and the launch are inferred from the text: from shared memory, ``blockIdx`` and
    ``gridDim``, atomics, and stores to the output. ``print(kernel)`` shows what was inferred;
    arguments override it.

    Parameters
    ----------
    source : str or path
        CUDA C++ text, or the path of a file. A string is text if it contains a line end or the word
        ``__global__``.
    name : str, optional
        Name of the kernel, if the text has several.
    op : {"sum", "prod", "min", "max"}, optional
        The operator.
    block_size : int, optional
        The only number of threads per block that the kernel supports.
    elements_per_thread : int, optional
        Elements that each thread loads, where blocks do not loop.
    finish : {"partials", "atomic", "single"}, optional
        ``"partials"``: each block stores a partial in ``out[blockIdx.x]``. ``"atomic"``: blocks
        update ``out[0]`` by atomics; it holds the identity before the launch. ``"single"``: one
        block stores ``out[0]``.
    template : mapping, optional
        Values of template parameters other than the element's type and the block size.

    trial : float, optional
        Seconds for the first launch on a GPU, which a process of its own makes, over random
        elements: a kernel that breaks there or does not end leaves your process as it was. 0: there
        is none.

    Attributes
    ----------
    source, file
        The text, and the name of its file.
    form
        What the text says.
    programs
        What has been compiled and loaded, by device.

    Raises
    ------
    ValueError
        The text has no such kernel, or the kernel has another form; the message begins with file
        and line.
    FileNotFoundError
        The file does not exist.

    Examples
    --------
    >>> import gpureduce as gr
    >>> mine = gr.Kernel('''
    ... __global__ void mine(const float *in, float *out, unsigned n)
    ... {
    ...     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) atomicAdd(out, in[i]);
    ... }''')
    >>> mine
    <Kernel: mine, sum of float32>
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        name: str | None = None,
        op: str | None = None,
        block_size: int | None = None,
        elements_per_thread: int | None = None,
        finish: str | None = None,
        template: Mapping[str, object] | None = None,
        trial: float = _TRIAL_SECONDS,
    ) -> None:
        if isinstance(source, str) and ("\n" in source or "__global__" in source):
            text, file = source, _TEXT_NAME
        elif isinstance(source, (str, os.PathLike)):
            text, file = read_source(source), Path(source).name
        else:
            raise TypeError(f"a kernel's source is text or a path, not {type(source).__name__}")
        for what, value, known in (("op", op, OPERATORS), ("finish", finish, FINISHES)):
            if value is not None and value not in known:
                raise ValueError(f"unknown {what} {value!r}: it is one of {', '.join(known)}")
        for what, number, most in (
            ("block_size", block_size, _MOST_BLOCK),
            ("elements_per_thread", elements_per_thread, 1 << 20),
        ):
            if number is not None and not 1 <= number <= most:
                raise ValueError(f"{what} must be from 1 to {most}, not {number}")
        if trial < 0:
            raise ValueError(f"trial must be 0 or more seconds, not {trial}")
        self.source = text
        self.file = file
        self.trial = trial
        self.programs: Programs = {}
        self.form = read_kernel(
            text,
            file,
            name=name,
            op=op,
            block_size=block_size,
            elements_per_thread=elements_per_thread,
            finish=finish,
            template=template,
        )

    def reduce_call(self, call: Call) -> Any:
        """Run a call of a reduction whose `kernel` this is.

        :meta private:
        """
        return reduce_call(self.form, self.programs, self.trial, call)

    def load(
        self,
        ordinal: int,
        dtype: str,
        n: int,
        block_size: int | None = None,
        grid_size: int | None = None,
    ) -> LoadedKernel:
        """Load the kernel on a device, for n elements of a dtype that are there.

        :meta private:
        """
        device = device_of(self.form, f"cuda:{ordinal}")
        sizes = n, block_size, grid_size
        return LoadedKernel(self.form, self.programs, device, dtype, *sizes, self.trial)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is loaded: another process loads the kernel itself."""
        return self.__dict__ | {"programs": {}}

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.form.name

    @property
    def op(self) -> str:
        """What it computes."""
        return self.form.op

    @property
    def dtypes(self) -> tuple[str, str] | None:
        """Dtypes of elements and output; ``None``: the kernel is templated on them."""
        return fixed_dtypes(self.form)

    def __repr__(self) -> str:
        dtypes = self.dtypes
        return f"<Kernel: {self.name}, {self.op} of {dtypes[0] if dtypes else 'any dtype'}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """HTML for notebooks."""
        printer.text(repr(self) if cycle else str(self))

    def __str__(self) -> str:
        form, dtypes = self.form, self.dtypes
        types = " to ".join(dict.fromkeys(dtypes)) if dtypes else "any dtype"
        lines = [
            f"{self.name} ({form.file}:{form.line})",
            f"  computes   {form.op} of {types}",
            f"  launch     {_COVER_WORDS[form.cover]}{_together(form)}",
            f"  result     {_FINISH_WORDS[form.finish]}",
        ]
        if form.cover in ("cover", "stride"):
            lines.append(f"  loads      {_count(form.elements_per_thread, 'element')} per thread")
        lines.append(f"  block      {form.block_words}")
        if form.shared_type is not None:
            lines.append(f"  shared     one {form.shared_type} per thread, dynamic")
        return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


make_public(Kernel)
