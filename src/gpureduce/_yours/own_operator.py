"""An operator of the user's own: :class:`gpureduce.Operator`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._calls import OwnCall
from .._display.exported import make_public
from .._kernel_names import KernelName
from .kernel import Kernel
from .operator_call import DeviceRows, Programs, compile_by, measure_by, reduce_by
from .operator_named import check_kernel
from .operator_text import OperatorText
from .source_file import read_source

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Operator"]

_NAME = re.compile(r"[A-Za-z_]\w*")


class Operator:
    """An operator of your own that :func:`gpureduce.reduce` reduces by, written in CUDA C++.

    Its text has a structure of the operator's name, which is C++17 as well. ``T`` stands for the
    type of the elements.

    .. code-block:: cuda

        struct compose {                                 // left-to-right composition of x -> x + a
            struct State { long long a, b; };            // optional: T without it
            static State identity() { return {1, 0}; }   // optional
            static State lift(T x, uint64 index) { return {x, 1}; }   // optional; or lift(T x)
            static State combine(State l, State r) { return {l.a * r.a, l.b * r.a + r.b}; }
            static long long finish(State s, uint64 n) { return s.b; }   // optional; or finish(s)
        };

    ``combine`` must be associative; its left operand comes before the right one in the array.
    ``lift`` makes a state of an element, whose index counts a row's elements in the array's order,
    from 0. ``finish`` makes the result of a row's state; ``n`` is the number of elements that
    counted. A result of type ``T`` has the array's dtype.

    Parameters
    ----------
    name : str
        Name of the structure.
    source : str or path
        CUDA C++, or the path of a file: a string with a brace is text.
    commutative : bool, optional
        Whether elements may be combined in any order, which is faster. By default the order of the
        array is kept: the result is that of a left-to-right fold.
    dtypes : sequence of dtype, optional
        Elements that it takes; by default all that the text compiles for.
    result : dtype, optional
        Dtype of results that are structures.

    Raises
    ------
    ValueError
        The text has no structure of that name.

    See Also
    --------
    gpureduce.reduce : Reduce an array by the operator.

    Notes
    -----
    ``T`` is float for float16 and bfloat16, which are converted, and has the members ``re`` and
    ``im`` for complex elements. Programs are compiled once per dtype: by NVRTC for a GPU, by the
    machine's C++ compiler (``CXX``, g++, c++ or clang++) for the CPU, and cached on disk. A text
    that does not compile raises ``CompileError``, with the compiler's messages; their lines are
    those of `source`.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gcd = gr.Operator('gcd', '''
    ... struct gcd {
    ...     static T identity() { return 0; }
    ...     static T combine(T a, T b)
    ...     {
    ...         while (b != 0) { const T rest = a % b; a = b; b = rest; }
    ...         return a;
    ...     }
    ... };''', commutative=True)
    >>> gr.reduce(np.array([[12, 18], [35, 21]]), gcd, axis=1, device="cpu")
    array([6, 7])
    """

    def __init__(
        self,
        name: str,
        source: str | os.PathLike[str],
        *,
        commutative: bool = False,
        dtypes: Sequence[DTypeLike] | None = None,
        result: DTypeLike | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"an operator's name is that of its structure, not {name!r}")
        if isinstance(source, str) and "{" in source:
            text, file = source, f"{name}.cu"
        elif isinstance(source, (str, os.PathLike)):
            text = read_source(source)
            file = re.sub(r"[^\w.-]", "_", Path(source).name)
        else:
            raise TypeError(f"an operator's source is text or a path, not {type(source).__name__}")
        if not re.search(rf"\b(?:struct|class)\s+{name}\b", text):
            raise ValueError(f"{file} has no structure {name}: the operator is `struct {name}`")
        self._text = OperatorText(
            name,
            file,
            text,
            bool(commutative),
            None if dtypes is None else tuple(np.dtype(each) for each in dtypes),
            None if result is None else np.dtype(result),
        )
        self._programs: Programs = {}

    def __getstate__(self) -> dict[str, Any]:
        # Loaded programs stay in their process; the cache has them for others.
        return {**self.__dict__, "_programs": {}}

    @property
    def name(self) -> str:
        """Name of the operator and its structure."""
        return self._text.name

    @property
    def source(self) -> str:
        """The text."""
        return self._text.source

    @property
    def file(self) -> str:
        """Name of the text in messages of compilers."""
        return self._text.file

    @property
    def commutative(self) -> bool:
        """Whether elements may be combined in any order."""
        return self._text.commutative

    @property
    def dtypes(self) -> tuple[np.dtype[Any], ...] | None:
        """Elements that it takes; None: all that the text compiles for."""
        return self._text.dtypes

    @property
    def result(self) -> np.dtype[Any] | None:
        """Dtype of results, if it was given."""
        return self._text.result

    def __repr__(self) -> str:
        order = "" if self.commutative else ", not commutative"
        return f"<Operator: {self.name}{order}>"

    @property
    def text(self) -> OperatorText:
        """What programs are made of.

        :meta private:
        """
        return self._text

    def kernel_for(
        self, kernel: object, block_size: int | None = None, grid_size: int | None = None
    ) -> KernelName:
        """The name of a kernel that takes the operator, or the error of a call of it.

        :meta private:
        """
        if isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel '{kernel.name}' computes {kernel.op}: operators of your own take kernels "
                "by name"
            )
        return check_kernel(self._text, kernel, block_size, grid_size)

    def measure(self, call: OwnCall, given: DeviceRows, count: int, flush: int) -> list[float]:
        """Device times of a call's kernel.

        :meta private:
        """
        return measure_by(self._text, call, given, count, flush)

    def compile_for(self, call: OwnCall, dtype: np.dtype[Any], capability: tuple[int, int]) -> bool:
        """Have the program of a call in the cache; whether it was compiled now.

        :meta private:
        """
        return compile_by(self._text, call, dtype, capability)

    def reduce_array(self, call: OwnCall) -> Any:
        """Run a call of :func:`gpureduce.reduce` with this operator.

        :meta private:
        """
        return reduce_by(self._text, self._programs, call)


make_public(Operator)
