"""The clocks of a GPU while it is measured, by ``nvidia-ml-py``; nothing is changed.

Without that package, or where the driver's management library gives no clocks, there is nothing to
compare.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

__all__ = ["Clocks", "moved", "read_clocks"]

MOVED = 0.02
"""Share by which a clock may differ between two readings."""

_SLOWED = {
    "HwSlowdown": "a hardware slowdown",
    "SwThermalSlowdown": "its temperature (software)",
    "HwThermalSlowdown": "its temperature (hardware)",
    "HwPowerBrakeSlowdown": "the power brake",
    "SwPowerCap": "its power limit",
}
"""Reasons for lower clocks, by NVML's names; idling and a user's own settings are not among
them."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """A reading: clocks in MHz, and the reasons for which the GPU runs slower than it could."""

    sm: int
    memory: int
    slowed_by: tuple[str, ...]


@functools.cache
def _handle(uuid: str) -> tuple[Any, Any] | None:
    """The module ``pynvml`` and its handle of the GPU with this UUID.

    ``None`` where either is missing.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(
            uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        )
    except pynvml.NVMLError:
        return None


def read_clocks(uuid: str) -> Clocks | None:
    """Read the clocks of the GPU with this UUID now; ``None`` where that is impossible."""
    found = _handle(uuid)
    if found is None:
        return None
    nvml, handle = found
    try:
        sm, memory = (
            nvml.nvmlDeviceGetClockInfo(handle, kind)
            for kind in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
        )
    except nvml.NVMLError:
        return None
    try:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError:
        reasons = 0
    slowed = (
        words
        for name, words in _SLOWED.items()
        if reasons & getattr(nvml, f"nvmlClocksThrottleReason{name}")
    )
    return Clocks(sm, memory, tuple(slowed))


def moved(readings: list[Clocks]) -> list[str]:
    """What to warn a reader of, from readings taken while the GPU was at work."""
    found = []
    for name, words in (("sm", "multiprocessors"), ("memory", "memory")):
        values = [getattr(each, name) for each in readings]
        if values and max(values) - min(values) > MOVED * max(values):
            found.append(
                f"the clock of the {words} moved between {min(values):,} and {max(values):,} MHz"
            )
    reasons = dict.fromkeys(reason for each in readings for reason in each.slowed_by)
    if reasons:
        found.append(f"the GPU was slowed by {', '.join(reasons)}")
    return found
