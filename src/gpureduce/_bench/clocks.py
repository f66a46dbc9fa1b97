"""The clocks of a card while it is measured, read from the driver's management library; nothing is changed.

Where ``libnvidia-ml`` is not there or answers nothing, there are no clocks to compare.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

__all__ = ["Clocks", "moved", "read_clocks"]

LIBRARY = "libnvidia-ml.so.1"
MOVED = 0.02
"""Share by which a clock may differ between two readings."""

_SM, _MEMORY = 1, 2
_SLOWED = {
    0x0000000000000008: "a hardware slowdown",
    0x0000000000000020: "its temperature (software)",
    0x0000000000000040: "its temperature (hardware)",
    0x0000000000000080: "the power brake",
    0x0000000000000004: "its power limit",
}
"""Reasons for lower clocks, as NVML numbers them; those by idling or by a user's setting are none of ours."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """A reading: clocks in MHz, and why the card runs slower than it could, if it does."""

    sm: int
    memory: int
    slowed_by: tuple[str, ...]


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(LIBRARY)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


@functools.cache
def _handle(uuid: str) -> ctypes.c_void_p | None:
    library = _library()
    if library is None:
        return None
    handle = ctypes.c_void_p()
    name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
    found = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    return handle if found == 0 else None


def read_clocks(uuid: str) -> Clocks | None:
    """Read the clocks of the card with this UUID now; ``None`` where that cannot be."""
    library, handle = _library(), _handle(uuid)
    if library is None or handle is None:
        return None
    sm, memory = ctypes.c_uint(), ctypes.c_uint()
    for kind, mhz in ((_SM, sm), (_MEMORY, memory)):
        if library.nvmlDeviceGetClockInfo(handle, kind, ctypes.byref(mhz)) != 0:
            return None
    reasons = ctypes.c_ulonglong()
    if library.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) != 0:
        reasons.value = 0
    slowed = tuple(words for bit, words in _SLOWED.items() if reasons.value & bit)
    return Clocks(sm.value, memory.value, slowed)


def moved(readings: list[Clocks]) -> list[str]:
    """What a reader should be warned of, in words, from readings taken while the card was at work."""
    found = []
    for name, words in (("sm", "multiprocessors"), ("memory", "memory")):
        values = [getattr(each, name) for each in readings]
        if values and max(values) - min(values) > MOVED * max(values):
            found.append(f"the clock of the {words} moved between {min(values):,} and {max(values):,} MHz")
    reasons = dict.fromkeys(reason for each in readings for reason in each.slowed_by)
    if reasons:
        found.append(f"the card was slowed by {', '.join(reasons)}")
    return found
