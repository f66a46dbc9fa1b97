"""The libraries we measure against, each wrapped as "reduce this device array n times".

Everything here runs on CUDA events of the peer's own stream, so that device times compare with
device times. A peer that is not installed is left out and named in ``absent``.
"""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent


class Cub:
    """cub::DeviceReduce, compiled here by nvcc."""

    name = "cub"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        library = pathlib.Path(self._folder.name) / "cub_device_reduce.so"
        command = ["nvcc", "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
        subprocess.run(
            [*command, str(HERE / "cub_device_reduce.cu"), "-o", str(library)],
            check=True,
            capture_output=True,
        )
        self._measure = ctypes.CDLL(str(library)).cub_measure

    def measure(self, op: str, dtype: str, pointer: int, n: int, repeats: int, flush: int) -> list[float]:
        times = (ctypes.c_float * repeats)()
        result = ctypes.create_string_buffer(8)
        error = self._measure(
            op.encode(), dtype.encode(), ctypes.c_void_p(pointer), ctypes.c_uint64(n),
            3, repeats, ctypes.c_uint64(flush), times, result,
        )  # fmt: skip
        if error:
            raise RuntimeError(f"cub_measure failed with CUDA error {error}")
        return list(times)


class _Events:
    """Times a call with a peer's events: ``record()`` returns an event, ``elapsed`` ms."""

    def measure_calls(self, call: Callable[[], Any], flush: Callable[[], Any] | None, repeats: int) -> list[float]:
        times = []
        for i in range(repeats + 3):
            if flush is not None:
                flush()
            start = self.record()
            call()
            stop = self.record()
            elapsed = self.elapsed(start, stop)
            if i >= 3:
                times.append(elapsed)
        return times

    def record(self) -> Any:
        raise NotImplementedError

    def elapsed(self, start: Any, stop: Any) -> float:
        raise NotImplementedError


class CuPy(_Events):
    """CuPy's own reductions with its defaults (CUB among its accelerators)."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def record(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record()
        return event

    def elapsed(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, stop))

    def array(self, pointer: int, shape: tuple[int, ...], dtype: str, owner: Any) -> Any:
        cupy = self._cupy
        array_bytes = cupy.dtype(dtype).itemsize
        for extent in shape:
            array_bytes *= extent
        memory = cupy.cuda.UnownedMemory(pointer, array_bytes, owner)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def measure(self, op: str, array: Any, axis: int | None, repeats: int, flush: int) -> list[float]:
        scratch = self._cupy.empty(max(flush, 1), "uint8")
        function = getattr(self._cupy, op)
        return self.measure_calls(
            lambda: function(array, axis=axis),
            (lambda: scratch.fill(1)) if flush else None,
            repeats,
        )


class Torch(_Events):
    """PyTorch eager."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def record(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed(self, start: Any, stop: Any) -> float:
        stop.synchronize()
        return float(start.elapsed_time(stop))

    def measure(self, op: str, array: Any, axis: int | None, repeats: int, flush: int) -> list[float]:
        torch = self._torch
        tensor = torch.as_tensor(array, device="cuda")
        scratch = torch.empty(max(flush, 1), dtype=torch.uint8, device="cuda")
        function = getattr(torch, {"min": "amin", "max": "amax"}.get(op, op))
        call = (lambda: function(tensor)) if axis is None else (lambda: function(tensor, dim=axis))
        return self.measure_calls(call, (lambda: scratch.fill_(1)) if flush else None, repeats)


def available() -> tuple[dict[str, Any], dict[str, str]]:
    """Peers that work here, by name, and why each other one does not."""
    present: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for peer in (Cub, CuPy, Torch):
        try:
            present[peer.name] = peer()
        except Exception as error:  # whatever a peer's import or build raises is its reason
            absent[peer.name] = f"{type(error).__name__}: {error}"
    return present, absent
