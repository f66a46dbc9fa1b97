"""The environment of a measurement: device, driver, versions, date. Part of every result."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from .._core import __version__
from .._records import DeviceInfo, cuda_versions, devices

__all__ = [
    "cpu_name",
    "environment",
    "flat_environment",
    "last_level_cache_bytes",
    "peak_bytes_per_second",
    "show_cuda_version",
]

PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "numba", "jax", "ml_dtypes")
"""Packages whose versions are part of the environment."""
TRANSFERS_PER_CLOCK = 2
"""Transfers per clock of the memory that the driver reports: data moves on both edges."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def package_version(package: str) -> str | None:
    """Version of an installed package; ``None`` if it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's name, from the system."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def last_level_cache_bytes() -> int:
    """Size of the CPU's largest cache; 0 if the system does not report it."""
    sizes = [0]
    for index in _CACHES.glob("index*"):
        try:
            text = (index / "size").read_text(encoding="ascii").strip()
        except OSError:
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        digits = text.rstrip("KM")
        sizes.append(int(digits) * unit if digits.isdigit() else 0)
    return max(sizes)


def peak_bytes_per_second(device: DeviceInfo) -> float:
    """Bandwidth by memory clock and bus width."""
    return TRANSFERS_PER_CLOCK * 1e3 * device.memory_clock_khz * device.memory_bus_bits / 8


def show_cuda_version(number: int) -> str:
    """``13000`` as ``"13.0"``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def environment(ordinal: int = 0) -> dict[str, Any]:
    """Everything a reader needs to repeat the measurement.

    Parameters
    ----------
    ordinal : int, optional
        The CUDA device that was measured.

    Returns
    -------
    dict
        JSON-ready; ``device`` is ``None`` on a machine without a GPU.
    """
    found = {each.ordinal: each for each in devices()}
    driver, nvrtc = cuda_versions()
    device: dict[str, Any] | None = None
    if ordinal in found:
        it = found[ordinal]
        device = {
            "name": it.name,
            "compute_capability": list(it.compute_capability),
            "multiprocessors": it.multiprocessors,
            "memory_bytes": it.memory_bytes,
            "l2_bytes": it.l2_bytes,
            "peak_bytes_per_second": peak_bytes_per_second(it),
        }
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpureduce": __version__,
        "device": device,
        "cuda_driver": driver,
        "nvrtc": nvrtc,
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := package_version(name))},
    }


def flat_environment(setting: dict[str, Any]) -> dict[str, Any]:
    """The environment as columns of a table."""
    flat: dict[str, Any] = {}
    for name, value in setting.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        elif name == "device":  # without a GPU: the place of a run is a column of this name
            flat[f"{name}.name"] = value
        else:
            flat[name] = value
    return flat
