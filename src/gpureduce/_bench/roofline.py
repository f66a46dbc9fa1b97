"""The roofs of a reduction's bandwidth: the theoretical peak of a GPU's memory, and the measured
read ceiling.

The *read ceiling* is the best bandwidth that ``fast`` reaches over a long array: of a maximum of
int32 and a sum of float32, the least arithmetic there is per byte. It is measured once per process
and device.
"""

from __future__ import annotations

import functools
import time

from .. import _core
from .._functions import reduce
from .._records import DeviceInfo
from .benchmark_array import random_values, repeat
from .environment import last_level_cache_bytes

__all__ = ["host_read_ceiling", "read_ceiling"]

MOST_BYTES = 1 << 30
"""Size of the array that is read; at most an eighth of the device's memory."""
PIECE_BYTES = 64 << 20
SECONDS = 0.6
"""About what either takes in a process's first call."""
REPEATS = 20
HOST_BYTES, HOST_CACHES, HOST_MOST_BYTES = 256 << 20, 4, 1 << 30
"""Least size of the array that is read on the host, its size in last-level caches, and its most."""
HOST_REPEATS = 7

_READERS = (("max", "int32"), ("sum", "float32"))
_WORD = 4  # bytes of either


@functools.cache
def read_ceiling(device: DeviceInfo) -> float:
    """Most bytes per second that a kernel reads from the memory of a device.

    Raises
    ------
    MemoryError
        There is no room on the device for the array.
    CudaError, DeviceUnavailableError, KernelUnavailableError
        Nothing runs there.
    """
    nbytes = min(MOST_BYTES, device.memory_bytes // 8) // PIECE_BYTES * PIECE_BYTES or PIECE_BYTES
    ordinal = device.ordinal
    pointer = _core.alloc_device(ordinal, nbytes)
    best = float("inf")
    try:
        for op, dtype in _READERS:
            piece = random_values(dtype, PIECE_BYTES // _WORD)
            for offset in range(0, nbytes, PIECE_BYTES):
                _core.upload(ordinal, pointer + offset, piece)
            shape = (nbytes // piece.itemsize,)
            times = _core.measure(
                op, pointer, shape, piece.dtype, 1, "fast", ordinal, 0, 0, 2, REPEATS, 0
            )
            best = min(best, *times)
    finally:
        _core.free_device(ordinal, pointer)
    return nbytes / (1e-3 * best)


@functools.cache
def host_read_ceiling(threads: int) -> float:
    """Most bytes per second that the CPU backend reads from memory with this number of threads."""
    nbytes = min(max(HOST_BYTES, HOST_CACHES * last_level_cache_bytes()), HOST_MOST_BYTES)
    best = float("inf")
    for op, dtype in _READERS:
        # Making up all of them would take longer than the reads.
        values = repeat(random_values(dtype, PIECE_BYTES // _WORD), nbytes // _WORD)
        for _ in range(HOST_REPEATS):
            start = time.perf_counter()
            reduce(values, op, device="cpu")
            best = min(best, time.perf_counter() - start)
    return nbytes / best


def ceiling_or_why(device: DeviceInfo | None, threads: int) -> tuple[float | None, str]:
    """The read ceiling of a device, or of the host for ``None``; or ``None`` and the reason."""
    try:
        return (host_read_ceiling(threads) if device is None else read_ceiling(device)), ""
    except (MemoryError, RuntimeError) as error:
        return None, f"the read ceiling could not be measured: {error}"
