"""Reductions on a GPU by a kernel of the user's own, launched as its text says.

The program is compiled by NVRTC once per device, element type and block size, and stays loaded as
long as the kernel lives.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._calls import Call, NoValue
from .._exceptions import KernelUnavailableError
from .._interop.inputs import as_array
from .._interop.libraries import device_library
from .._records import DeviceInfo, devices
from .kernel_form import C_TYPES, KernelForm
from .program_text import (
    Program,
    arguments,
    blocks_for,
    dtypes_of,
    fixed_dtypes,
    identity,
    shared_bytes,
    write,
)

__all__ = ["DEFAULT_BLOCK", "LoadedKernel", "Programs", "loaded_kernel", "reduce_call"]

DEFAULT_BLOCK = 256
_EMULATED_NVRTC = 1_000_000
"""Versions from this one on are the emulator's (csrc/emu/compiler.c)."""
_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
_RESIDENT_THREADS = 2048
"""Most threads that a multiprocessor of any GPU holds: blocks that loop fill them."""
Programs = dict[tuple[int, Program], Any]
"""Loaded images by device and text."""
_LONGEST = 2**31 - 1
"""Most blocks of a grid."""


def _device_of(form: KernelForm, place: str | None) -> DeviceInfo:
    """The GPU that a call runs on."""
    only = (
        f"kernel '{form.name}' runs on GPUs only; gpureduce.check and gpureduce.explain run it "
        "on any machine"
    )
    if place == "cpu":
        raise KernelUnavailableError(f"{only}: device is 'cpu'")
    if (why := _core.why_no_cuda()) is not None:
        raise KernelUnavailableError(f"{only}: {why}")
    ordinal = 0
    if place is not None and place not in ("auto", "cuda"):
        head, _, number = place.partition(":")
        if head != "cuda" or not number.isdigit():
            raise ValueError(f"unknown device {place!r}: it is cpu, cuda, cuda:N or auto")
        ordinal = int(number)
    for each in devices():
        if each.ordinal == ordinal:
            return each
    raise ValueError(f"there is no device cuda:{ordinal}")


class LoadedKernel:
    """A kernel that is loaded on a device, for arrays of one type and length.

    Parameters
    ----------
    form : KernelForm
    programs : dict
        Programs of this kernel that are loaded, which this one is added to.
    device : DeviceInfo
    dtype : str
        Of the elements.
    n : int
        Number of elements, 1 or more.
    block_size, grid_size : int or None
        As the reductions take them.

    Raises
    ------
    TypeError
        The kernel takes other elements.
    ValueError
        It takes no such length, block size or grid size.
    CudaError
        It does not compile, or cannot be loaded.

    Attributes
    ----------
    block, grid
        Threads per block, and blocks of the first launch.
    result
        Dtype of the output.
    """

    def __init__(
        self,
        form: KernelForm,
        programs: Programs,
        device: DeviceInfo,
        dtype: str,
        n: int,
        block_size: int | None,
        grid_size: int | None,
    ) -> None:
        self._form, self._ordinal, self._n = form, device.ordinal, n
        self.block = block_size or form.block_size or DEFAULT_BLOCK
        self._element, self.result = _types(form, dtype)
        _check_launch(form, n, self.block, grid_size)
        resident = max(1, _RESIDENT_THREADS // self.block)
        self._most = grid_size or device.multiprocessors * resident
        self.grid = blocks_for(form, n, self.block, self._most)
        if self.grid > _LONGEST:
            raise ValueError(f"an array of {n:,} elements needs more blocks than a grid has")
        capability = device.compute_capability
        self._loaded = _load(form, programs, self._ordinal, capability, dtype, self.block)

    @contextlib.contextmanager
    def outputs(self) -> Iterator[tuple[int, int]]:
        """Device memory for outputs of all launches, twice: they go back and forth."""
        count = 1 if self._form.finish == "atomic" else self.grid
        bytes_ = count * np.dtype(self.result).itemsize
        pointers: list[int] = []
        try:
            for _ in range(2):
                pointers.append(_core.alloc_device(self._ordinal, bytes_))
            yield pointers[0], pointers[1]
        finally:
            for pointer in pointers:
                _core.free_device(self._ordinal, pointer)

    def launches(self, elements: int, outputs: tuple[int, int]) -> tuple[tuple[Any, ...], int, int]:
        """Launches over an array in device memory, where their output is, and how many values it
        has.

        A kernel whose output has the elements' type reduces its partials by further launches.
        """
        form, source, n = self._form, elements, self._n
        made: list[Any] = []
        here = outputs[0]
        if form.finish == "atomic":
            start = np.asarray(identity(form.op, self.result)).tobytes()
            made.append((1, 1, 1, 0, (here.to_bytes(8, "little"), start)))
        while True:
            grid = blocks_for(form, n, self.block, self._most)
            bytes_ = shared_bytes(form, self._element, self.block)
            made.append((0, grid, self.block, bytes_, arguments(form, source, here, n)))
            again = self._element == self.result and form.of("n") is not None
            if form.finish != "partials":
                return tuple(made), here, 1
            if grid == 1 or not again or grid >= n:
                return tuple(made), here, grid
            source, n = here, grid
            here = outputs[1] if here == outputs[0] else outputs[0]

    def run(self, launches: tuple[Any, ...], flush_bytes: int = 0) -> float:
        """Run launches; their device time in seconds."""
        return 1e-3 * _core.run_launches(self._loaded, launches, flush_bytes)

    def fold(self, output: int, count: int) -> Any:
        """The result, of what launches left: partials that are more than one are combined here."""
        values = np.empty(count, self.result)
        _core.download(self._ordinal, output, values)
        if count == 1:
            return values[0]
        return _UFUNCS[self._form.op].reduce(values, dtype=values.dtype)

    def reduce(self, elements: int) -> Any:
        """Reduce an array in device memory to a NumPy scalar."""
        with self.outputs() as outputs:
            launches, output, count = self.launches(elements, outputs)
            self.run(launches)
            return self.fold(output, count)


def loaded_kernel(
    form: KernelForm,
    programs: Programs,
    place: str | None,
    dtype: np.dtype[Any],
    n: int,
    block_size: int | None = None,
    grid_size: int | None = None,
) -> tuple[LoadedKernel, int]:
    """A kernel loaded where a call runs, and the ordinal of that device.

    Raises
    ------
    KernelUnavailableError
        There is no GPU, or the CPU was asked for.
    """
    device = _device_of(form, place)
    return LoadedKernel(
        form, programs, device, dtype.name, n, block_size, grid_size
    ), device.ordinal


def _types(form: KernelForm, dtype: str) -> tuple[str, str]:
    known = fixed_dtypes(form)
    if known is not None and dtype != known[0]:
        raise TypeError(
            f"kernel '{form.name}' takes {known[0]}, and the array is {dtype}: convert it by "
            f"astype, or change the kernel"
        )
    if dtype not in C_TYPES.values():
        raise TypeError(f"kernels of your own take no {dtype}")
    return dtypes_of(form, dtype)


def _check_launch(form: KernelForm, n: int, block: int, grid_size: int | None) -> None:
    name, tile = form.name, block * form.elements_per_thread
    if form.block_size is not None and block != form.block_size:
        raise ValueError(f"kernel '{name}' takes blocks of {form.block_size} threads, not {block}")
    if not 1 <= block <= 1024:
        raise ValueError(f"block sizes are from 1 to 1024, not {block}")
    if grid_size is not None and form.cover != "stride":
        raise ValueError(f"kernel '{name}' does not loop over blocks: it takes no grid_size")
    most, why, line = form.most_elements
    if n > most:
        raise ValueError(
            f"kernel '{name}' takes up to {most:,} elements, since {why} (line {line}), and the "
            f"array has {n:,}"
        )
    if form.of("n") is None and (n % tile != 0 or (form.cover == "one" and n != tile)):
        raise ValueError(
            f"kernel '{name}' has no n: it takes whole blocks of {tile:,} elements, and the array "
            f"has {n:,}"
        )
    if form.cover == "one" and not form.loops and n > tile:
        raise ValueError(
            f"kernel '{name}' is one block without a loop: it takes up to {tile:,} elements, and "
            f"the array has {n:,}"
        )


def _load(
    form: KernelForm,
    programs: Programs,
    ordinal: int,
    capability: tuple[int, int],
    dtype: str,
    block: int,
) -> Any:
    emulated = _core.cuda_versions()[1] >= _EMULATED_NVRTC
    program = write(form, dtype, block, emulated=emulated)
    key = (ordinal, program)
    if key not in programs:
        options = ["--std=c++17"]
        if "cooperative_groups" in program.text and not emulated:
            options += [f"--include-path={folder}" for folder in _include_folders()]
        cc = 10 * capability[0] + capability[1]
        image, symbols = _core.compile_text(
            program.name, program.text, program.entries, tuple(options), cc
        )
        programs[key] = _core.load_image(ordinal, image, symbols)
    return programs[key]


def _include_folders() -> list[Path]:
    """Folders with CUDA's headers, which NVRTC does not carry: cooperative groups are there."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    found = [Path(root) / "include" for root in roots if root]
    found += [
        Path(entry) / "nvidia" / part / "include"
        for entry in sys.path
        for part in ("cuda_runtime", "cu13")
    ]
    return [folder for folder in found if (folder / "cooperative_groups.h").is_file()][:4]


# ---------------------------------------------------------------- calls of the reductions --------


def reduce_call(form: KernelForm, programs: Programs, call: Call) -> Any:
    """Run a call of a reduction by a kernel of the user's own; see :class:`gpureduce.Kernel`."""
    name, place, block_size, grid_size, stream = (form.name, *call.options[1:])
    if call.name != form.op:
        raise ValueError(f"kernel '{name}' computes {form.op}, not {call.name}")
    if device_library(call.array) is not None:
        raise TypeError(f"kernel '{name}' takes arrays of the host, not of a device")
    if stream is not None:
        raise ValueError(f"kernel '{name}' takes no stream")
    if call.where is not True and call.where is not NoValue:
        raise ValueError(f"kernel '{name}' takes no where")
    array = as_array(call.array, "a.data")
    axes = call.axis if isinstance(call.axis, tuple) else (call.axis,)
    if call.axis is not None and len(axes) != array.ndim:
        raise ValueError(f"kernel '{name}' reduces whole arrays: axis must be None")
    if call.axis is not None:
        _UFUNCS["sum"].reduce(np.empty(array.shape, np.bool_), axis=call.axis)  # bad axes
    if array.size == 0:
        result = getattr(np, form.op)(array)  # NumPy's own error for extremes
        result = result.astype(_types(form, array.dtype.name)[1])
    else:
        result = _reduce_array(form, programs, place, array, block_size, grid_size)
    if call.dtype is not None and np.dtype(call.dtype) != result.dtype:
        raise TypeError(f"kernel '{name}' computes {result.dtype}: dtype must be that or None")
    if call.initial is not NoValue and call.initial is not None:
        result = result.dtype.type(_UFUNCS[form.op](result, call.initial))
    if call.out is not None:
        call.out[...] = result
        return call.out
    return np.full((1,) * array.ndim, result) if call.keepdims is True else result


def _reduce_array(
    form: KernelForm,
    programs: Programs,
    place: str | None,
    array: np.ndarray[Any, Any],
    block_size: int | None,
    grid_size: int | None,
) -> Any:
    loaded, ordinal = loaded_kernel(
        form, programs, place, array.dtype, math.prod(array.shape), block_size, grid_size
    )
    packed = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    pointer = _core.alloc_device(ordinal, packed.nbytes)
    try:
        _core.upload(ordinal, pointer, packed)
        return loaded.reduce(pointer)
    finally:
        _core.free_device(ordinal, pointer)
