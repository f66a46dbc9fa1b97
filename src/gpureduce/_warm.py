"""Compile kernels before the call that needs them: :func:`warm`."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from . import _core
from ._calls import NoValue, OwnCall
from ._dtypes import native_dtype
from ._exceptions import DeviceUnavailableError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ._kernel_names import KernelName
    from ._signatures import OwnOperator

__all__ = ["MEMORIES", "Warmed", "warm"]

MEMORIES = ("host", "device")
MASK = 4096
"""Address of a mask, aligned as memory is, for programs that have one; nothing is read from it."""

Shape = int | tuple[int, ...]
_FEWEST = 2
"""Operators that share a pass."""


@dataclass(frozen=True)
class Warmed:
    """What :func:`warm` did.

    Attributes
    ----------
    calls : int
        Calls whose programs are in the cache now: one per function, dtype, shape and memory.
    compiled : int
        Programs that were compiled; the others were in the cache already.
    seconds : float
        How long it took.
    device : str
        ``"cuda:0"`` or ``"sm_90"``: the GPU that the programs are for.
    directory : str
        Folder of the cache.
    """

    calls: int
    compiled: int
    seconds: float
    device: str
    directory: str

    def __str__(self) -> str:
        return (
            f"{self.device}: {self.compiled} programs compiled for {self.calls} calls in "
            f"{self.seconds:.1f} s, kept in {self.directory}"
        )


class _Work(NamedTuple):
    """A call whose programs are wanted, with its axes in the core's order: reduced ones last."""

    op: str
    skip_nan: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    mask_strides: tuple[int, ...]
    reduced: int
    on_device: bool


def _list_of(value: Any, one: type | tuple[type, ...]) -> list[Any]:
    return [value] if isinstance(value, one) else list(value)


def _operator(name: str) -> tuple[str, bool]:
    """Operator of a function, and whether the function leaves NaN out."""
    if name in _core.OPERATORS:
        return name, False
    from ._functions import __all__ as functions

    op = name.removeprefix("nan")
    if name in functions and op in _core.OPERATORS:
        return op, True
    known = [each for each in functions if each.removeprefix("nan") in _core.OPERATORS]
    raise ValueError(f"unknown function {name!r}: programs are compiled for {', '.join(known)}")


def _c_strides(shape: tuple[int, ...], item: int) -> list[int]:
    return [item * math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _work(
    name: str, dtype: np.dtype[Any], shape: Shape, axis: Any, where: bool, on_device: bool
) -> _Work:
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"an array has no negative extents, as {extents} does")
    op, skip_nan = _operator(name)
    axes = range(len(extents)) if axis is None else np.atleast_1d(axis).tolist()
    # The function that NumPy's reductions check axes by.
    reduced = np.lib.array_utils.normalize_axis_tuple(tuple(axes), len(extents))
    order = [i for i in range(len(extents)) if i not in reduced] + sorted(reduced)
    strides, mask = _c_strides(extents, dtype.itemsize), _c_strides(extents, 1)
    return _Work(
        op,
        skip_nan and dtype.kind not in "biu",
        dtype,
        tuple(extents[i] for i in order),
        tuple(strides[i] for i in order),
        tuple(mask[i] for i in order) if where else (),
        len(reduced),
        on_device,
    )


def _checked(names: tuple[Any, ...]) -> tuple[str, ...]:
    """A tuple of functions' names."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a tuple is of names of functions, and has {name!r}")
        _operator(name)
    if len(names) < _FEWEST:
        raise ValueError("operators that share a pass are two or more")
    return names


class _Together(NamedTuple):
    """A call of `reduce` by a tuple of operators."""

    ops: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    on_device: bool

    def compile(
        self, axis: Any, facts: tuple[Any, ...], block_size: int | None
    ) -> tuple[bool, list[str]]:
        """Have the program of their pass in the cache: whether it was compiled, and the operators
        that take calls of their own.
        """
        from ._one_pass import compile_pass

        return compile_pass(
            self.ops, self.dtype, self.shape, axis, facts, block_size, self.on_device
        )


def _facts_of(device: str | int) -> tuple[str, tuple[Any, ...]]:
    """Name and facts of a GPU that is here, or of a usual one of a compute capability."""
    sm = re.fullmatch(r"sm_(\d+)", device) if isinstance(device, str) else None
    if sm is not None:
        return sm.group(), _core.typical_facts(int(sm.group(1)))
    cuda = re.fullmatch(r"cuda(?::(\d+))?", str(device))
    if cuda is None and not isinstance(device, int):
        raise ValueError(f"programs are compiled for 'cuda', 'cuda:N' or 'sm_90', not {device!r}")
    ordinal = device if isinstance(device, int) else int(cuda.group(1) or 0) if cuda else 0
    reason = _core.why_no_cuda()
    if reason is not None:
        raise DeviceUnavailableError(
            f"{reason}. For a GPU that is not here, name its architecture, such as 'sm_90'"
        )
    return f"cuda:{ordinal}", _core.device_facts(ordinal)


def warm(
    ops: str | OwnOperator | Sequence[str | OwnOperator | tuple[str, ...]],
    dtypes: DTypeLike | Sequence[DTypeLike],
    shapes: Shape | Sequence[Shape],
    axis: int | tuple[int, ...] | None = None,
    *,
    where: bool = False,
    kernel: KernelName | str = "auto",
    block_size: int | None = None,
    memory: str | Sequence[str] = MEMORIES,
    device: str | int = "cuda",
) -> Warmed:
    """Compile the kernels of calls into the cache on disk, before these calls are made.

    The first call of a kernel compiles it, which takes about 0.1 s, or more for exact sums. After
    this function, these calls load machine code from the cache, in all processes of this user. It
    needs NVRTC but no GPU, so a container image can be built with its kernels compiled.

    Parameters
    ----------
    ops : str, Operator, or a sequence
        Names of functions, such as ``"sum"`` or ``"nanmean"``; operators of your own; and, in a
        list, tuples of names, for calls of :func:`reduce` with such a tuple.
    dtypes : dtype or sequence of dtypes
        Of the arrays.
    shapes : int, tuple of int, or a list of them
        Shapes of the arrays, in C order. The choice of kernels depends on the shape: calls with
        other shapes may need other kernels.
    axis : int or tuple of int, optional
        As in the functions; all axes by default.
    where : bool, optional
        Whether the calls have a mask (``where=``).
    kernel : str, optional
        As in the functions.
    block_size : int, optional
        As in the functions.
    memory : {"host", "device"} or a sequence of them, optional
        Where the arrays are. Arrays in host memory, as NumPy's, need other programs than arrays in
        device memory.
    device : str or int, optional
        ``"cuda"`` (default), ``"cuda:1"`` or a number: a GPU of this machine. ``"sm_90"``: a
        typical GPU of compute capability 9.0, which need not be present. GPUs of that capability
        with fewer or more multiprocessors may need other kernels for some shapes.

    Returns
    -------
    Warmed

    Raises
    ------
    ValueError
        An unknown function, kernel, device or architecture, or a kernel that does not support the
        function.
    TypeError
        The function does not support the dtype.
    numpy.exceptions.AxisError
        An axis is out of range.
    DeviceUnavailableError
        There is no usable GPU, and `device` names no architecture.
    KernelUnavailableError
        The GPU is too old for the kernel, or there is no NVRTC.
    OSError
        There is no cache.

    Notes
    -----
    Three kinds of kernels are not compiled in advance: those that combine ``initial=`` with the
    result of an array in GPU memory, those of ``dot``, and those of exact states. Programs of an
    operator of your own do not depend on the shape, nor on where the array is; with named kernels
    they are compiled when they are called.

    Examples
    --------
    >>> gr.warm(["sum", "max"], "float32", [1000, 1_000_000], device="sm_90")  # doctest: +SKIP
    >>> gr.warm([("sum", "min", "max")], "float32", 10**8, device="sm_90")  # doctest: +SKIP
    """
    began = time.perf_counter()
    is_one = isinstance(ops, str) or hasattr(ops, "compile_for")
    given: list[Any] = [ops] if is_one else list(cast("Sequence[Any]", ops))
    own = [op for op in given if hasattr(op, "compile_for")]
    tuples = [_checked(op) for op in given if isinstance(op, tuple)]
    names = [op for op in given if not (hasattr(op, "compile_for") or isinstance(op, tuple))]
    if tuples and (where or kernel != "auto"):
        raise ValueError("operators of a tuple share a pass without a mask, by kernel auto alone")
    # A list names several dtypes, as no dtype that is reduced is written as one.
    types = [native_dtype(each) for each in _list_of(dtypes, (str, type, np.dtype))]
    sizes = _list_of(shapes, (int, tuple))
    places = _list_of(memory, str)
    for place in places:
        if place not in MEMORIES:
            raise ValueError(f"memory is one of {', '.join(MEMORIES)}, not {place!r}")
    target, facts = _facts_of(device)
    cache = _core.cache_info()
    if cache["reason"]:
        raise OSError(f"compiled kernels are kept in the cache on disk: {cache['reason']}")
    passes = [
        _Together(ops, dtype, (shape,) if isinstance(shape, int) else shape, place == "device")
        for ops, dtype, shape, place in product(tuples, types, sizes, places)
    ]
    compiled = 0
    work = [
        _work(name, dtype, shape, axis, where, place == "device")
        for name, dtype, shape, place in product(names, types, sizes, places)
    ]
    for each in passes:
        is_new, alone = each.compile(axis, facts, block_size)
        compiled += is_new
        work += [_work(name, each.dtype, each.shape, axis, False, each.on_device) for name in alone]
    masked_call = OwnCall(
        None, axis, None, None, False, NoValue, MASK if where else True, kernel, None,
        block_size, None, None,
    )  # fmt: skip
    capability = divmod(facts[0], 10)
    for operator, dtype in product(own, types):
        compiled += operator.compile_for(masked_call, dtype, capability)

    def compile_programs(each: _Work) -> int:
        masked: dict[str, Any] = {"mask": MASK, "mask_strides": each.mask_strides} if where else {}
        if where and each.op in ("min", "max") and each.on_device:
            masked["start"] = bytes(each.dtype.itemsize)  # as they need `initial`
        return _core.warm(
            each.op, each.shape, each.dtype, each.reduced, kernel, facts, 0, None, block_size or 0,
            each.on_device, strides=each.strides, skip_nan=each.skip_nan, **masked,
        )  # fmt: skip

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled += sum(pool.map(compile_programs, work))
    return Warmed(
        calls=len(names) * len(types) * len(sizes) * len(places)
        + len(passes)
        + len(own) * len(types),
        compiled=compiled,
        seconds=time.perf_counter() - began,
        device=target,
        directory=cache["directory"],
    )
