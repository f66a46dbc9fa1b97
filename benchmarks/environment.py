"""What a measurement was made with: device, driver, versions, date. Goes into every result file."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from typing import Any

import numpy as np

import gpureduce as gr

PEERS = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "numba", "jax", "ml_dtypes")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def environment() -> dict[str, Any]:
    """Everything a reader needs to repeat the measurement.

    Returns
    -------
    dict
        JSON-ready; ``device`` is ``None`` on a machine without a GPU.
    """
    devices = gr.devices()
    driver, nvrtc = gr.cuda_versions()
    device: dict[str, Any] | None = None
    if devices:
        first = devices[0]
        peak = 2e3 * first.memory_clock_khz * first.memory_bus_bits / 8
        device = {
            "name": first.name,
            "compute_capability": first.compute_capability,
            "multiprocessors": first.multiprocessors,
            "memory_bytes": first.memory_bytes,
            "l2_bytes": first.l2_bytes,
            "peak_bytes_per_second": peak,
        }
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpureduce": gr.__version__,
        "device": device,
        "cuda_driver": driver,
        "nvrtc": nvrtc,
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: version for name in PEERS if (version := _version(name))},
    }


def summary(samples: list[float]) -> dict[str, Any]:
    """Median, quartiles and the raw samples, in the samples' own unit."""
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return {
        "median": float(middle),
        "quartiles": [float(low), float(high)],
        "samples": [float(x) for x in samples],
    }
