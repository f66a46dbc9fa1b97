"""Libraries to compare with: each reduces the same device memory, or a NumPy array to a NumPy
result.

Device times are measured by events on the library's current stream, as ours are. A library that is
not installed is listed with the reason; a library without the dtype or operator raises when it is
called.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._exceptions import did_you_mean
from .._records import without_advice
from .._temporary import temporary_folder

__all__ = ["BASELINES", "DeviceView", "DeviceWork", "available", "numpy_function"]

WARMUP = 3
"""Calls before the first timed one."""
CUB_SOURCE = Path(__file__).with_name("cub_device_reduce.cu")
_CUB_RESULT_BYTES = 8


def numpy_function(op: str) -> Callable[..., Any]:
    """NumPy's function for an operator: ``function(array, axis=...)``.

    Raises
    ------
    NotImplementedError
        NumPy has none.
    """
    return _function_of(np, op)


def _function_of(library: Any, op: str) -> Callable[..., Any]:
    """A reduction of NumPy or of a library with its names; a ufunc's method ``reduce``."""
    found = getattr(library, op, None)
    if found is None:
        raise NotImplementedError(f"{library.__name__} has no {op}")
    function: Callable[..., Any] = found.reduce if hasattr(found, "reduce") else found
    return function


@dataclass(frozen=True, slots=True)
class DeviceView:
    """Contiguous device memory that a library is to reduce; `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    owner: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.pointer, False)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": data,
            "strides": None,
            "version": 3,
        }

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """A reduction of device memory by a library.

    Attributes
    ----------
    result
        Reduces once and returns the result as NumPy's.
    take
        Device times of the given number of runs, in seconds.
    """

    result: Callable[[], Any]
    take: Callable[[int], list[float]]


class NumPy:
    """``numpy`` itself, on the host."""

    name = "numpy"

    def host_call(self, op: str, array: np.ndarray[Any, Any], axis: Any) -> Callable[[], Any]:
        """The call that is timed, from host memory to a result in host memory."""
        function = numpy_function(op)
        return lambda: function(array, axis=axis)

    def device_work(self, op: str, view: DeviceView, axis: Any, flush: int) -> DeviceWork:
        """Not available."""
        raise NotImplementedError("NumPy works in host memory")


class Cub:
    """``cub::DeviceReduce``, compiled here by nvcc."""

    name = "cub"

    def __init__(self) -> None:
        command = ["nvcc", "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
        # A library that is loaded needs its file no more.
        with temporary_folder("gpureduce-cub-") as folder:
            library = folder / "cub_device_reduce.so"
            try:
                subprocess.run(
                    [*command, str(CUB_SOURCE), "-o", str(library)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
            except FileNotFoundError:
                raise RuntimeError(
                    "nvcc, which compiles cub::DeviceReduce, is not on PATH: install a toolkit"
                ) from None
            except subprocess.CalledProcessError as error:
                last = error.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                raise RuntimeError(f"nvcc does not compile cub::DeviceReduce: {last[0]}") from None
            self._measure = ctypes.CDLL(str(library)).cub_measure

    def host_call(self, op: str, array: np.ndarray[Any, Any], axis: Any) -> Callable[[], Any]:
        """Not available."""
        raise NotImplementedError("cub::DeviceReduce takes device memory")

    def device_work(self, op: str, view: DeviceView, axis: Any, flush: int) -> DeviceWork:
        """Reduce all axes of memory of the first device."""
        if axis is not None and len(view.shape) > 1:
            raise NotImplementedError("cub::DeviceReduce is set up here for full reductions")
        if view.device != 0:
            raise NotImplementedError("cub::DeviceReduce is set up here for the first device")
        result = ctypes.create_string_buffer(_CUB_RESULT_BYTES)

        def run(warmup: int, repeats: int) -> list[float]:
            times = (ctypes.c_float * max(repeats, 1))()
            error = self._measure(
                op.encode(), view.dtype.name.encode(),
                ctypes.c_void_p(view.pointer), ctypes.c_uint64(view.elements),
                warmup, repeats, ctypes.c_uint64(flush), times, result,
            )  # fmt: skip
            if error:
                raise NotImplementedError(
                    f"{op} of {view.dtype} gives CUDA error {error} from cub::DeviceReduce"
                )
            return [1e-3 * each for each in times[:repeats]]

        def value() -> Any:
            run(0, 1)
            kind = numpy_function(op)(np.ones(1, view.dtype)).dtype
            return np.frombuffer(result.raw, kind, 1)[0]

        return DeviceWork(value, lambda count: run(WARMUP, count))


class _WithEvents:
    """Times a call with a library's own events."""

    def _record(self) -> Any:
        raise NotImplementedError

    def _seconds(self, start: Any, stop: Any) -> float:
        raise NotImplementedError

    def _take(
        self, call: Callable[[], Any], flush: Callable[[], Any] | None, on: Callable[[], Any]
    ) -> Callable[[int], list[float]]:
        def take(count: int) -> list[float]:
            times = []
            with on():
                for _ in range(WARMUP + count):
                    if flush is not None:
                        flush()
                    start = self._record()
                    call()
                    stop = self._record()
                    times.append(self._seconds(start, stop))
            return times[WARMUP:]

        return take

    def times_of(self, call: Callable[[], Any], count: int) -> list[float]:
        """Device times of the given number of calls on the library's stream, in seconds."""
        return self._take(call, None, contextlib.nullcontext)(count)


class CuPy(_WithEvents):
    """CuPy's own reductions with its defaults (CUB among its accelerators)."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def _record(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record()
        return event

    def _seconds(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return 1e-3 * float(self._cupy.cuda.get_elapsed_time(start, stop))

    def host_call(self, op: str, array: np.ndarray[Any, Any], axis: Any) -> Callable[[], Any]:
        """Copy to the device, reduce, copy back."""
        function = _function_of(self._cupy, op)
        return lambda: function(self._cupy.asarray(array), axis=axis).get()

    def device_work(self, op: str, view: DeviceView, axis: Any, flush: int) -> DeviceWork:
        """Reduce a view of the memory."""
        cupy = self._cupy
        function = _function_of(cupy, op)
        with cupy.cuda.Device(view.device):
            nbytes = view.elements * view.dtype.itemsize
            memory = cupy.cuda.UnownedMemory(view.pointer, nbytes, view.owner, view.device)
            array = cupy.ndarray(view.shape, view.dtype, cupy.cuda.MemoryPointer(memory, 0))
            scratch = cupy.empty(flush, "uint8") if flush else None

        def call() -> Any:
            return function(array, axis=axis)

        def on() -> Any:
            return cupy.cuda.Device(view.device)

        def value() -> Any:
            with on():
                return call().get()

        return DeviceWork(
            value, self._take(call, None if scratch is None else lambda: scratch.fill(1), on)
        )


class Torch(_WithEvents):
    """PyTorch eager."""

    name = "torch"
    _NAMES = {"min": "amin", "max": "amax", "minmax": "aminmax"}  # noqa: RUF012  torch.min over an axis finds positions

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("this PyTorch has no CUDA device")
        self._torch = torch

    def _record(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return 1e-3 * float(start.elapsed_time(stop))

    def _call(self, op: str, axis: Any) -> Callable[[Any], Any]:
        function = getattr(self._torch, self._NAMES.get(op, op), None)
        if function is None or op.startswith(
            ("bitwise", "logical")
        ):  # of two tensors, not of one's elements
            raise NotImplementedError(f"torch has no reduction {op}")
        options = {} if axis is None else {"dim": axis}
        if op in ("var", "std"):
            options["correction"] = 0
        return lambda tensor: function(tensor, **options)

    def host_call(self, op: str, array: np.ndarray[Any, Any], axis: Any) -> Callable[[], Any]:
        """Copy to the device, reduce, copy back."""
        call, tensor = self._call(op, axis), self._torch.from_numpy(array)
        return lambda: call(tensor.to("cuda")).cpu().numpy()

    def device_work(self, op: str, view: DeviceView, axis: Any, flush: int) -> DeviceWork:
        """Reduce a view of the memory."""
        torch, function = self._torch, self._call(op, axis)
        place = f"cuda:{view.device}"
        tensor = torch.as_tensor(view, device=place)
        scratch = torch.empty(flush, dtype=torch.uint8, device=place) if flush else None

        def call() -> Any:
            return function(tensor)

        def on() -> Any:
            return torch.cuda.device(view.device)

        clear = None if scratch is None else lambda: scratch.fill_(1)
        return DeviceWork(lambda: call().cpu().numpy(), self._take(call, clear, on))


_made: dict[str, Any] = {}
"""Baselines that this process has loaded: nvcc compiles CUB's for a minute."""

BASELINES: dict[str, Callable[[], Any]] = {each.name: each for each in (NumPy, Cub, CuPy, Torch)}
"""Classes by name; an instance imports or builds the library."""


def available(names: Sequence[str] | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """Libraries that work here, by name, and the reason why each other one does not.

    Parameters
    ----------
    names : sequence of str, optional
        Which ones; by default all that reduce device memory.

    Raises
    ------
    ValueError
        There is no such library.
    """
    present: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name in [each for each in BASELINES if each != NumPy.name] if names is None else names:
        if name not in BASELINES:
            known = f": the baselines are {', '.join(BASELINES)}"
            raise ValueError(f"unknown baseline {name!r}{did_you_mean(name, BASELINES) or known}")
        if name in _made:
            present[name] = _made[name]
            continue
        if name != NumPy.name and (why := _core.why_no_cuda()) is not None:
            absent[name] = f"there is no GPU ({without_advice(why)})"
            continue
        try:
            present[name] = _made[name] = BASELINES[name]()
        except ModuleNotFoundError as error:
            absent[name] = f"{error.name} is not installed"
        except Exception as error:  # any exception of a library's import or build is the reason
            absent[name] = " ".join(f"{type(error).__name__}: {error}".split())
    return present, absent
