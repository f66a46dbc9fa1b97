"""Reduce arrays on NVIDIA GPUs, or on all cores of a CPU, by named kernels.

>>> import numpy as np
>>> import gpureduce as gr
>>> gr.sum(np.arange(10.0), device="cpu")
np.float64(45.0)
"""

from ._core import __version__
from ._exceptions import CudaError, DeviceUnavailableError, KernelUnavailableError, NoDeviceWarning
from ._functions import all, any, max, mean, min, prod, reduce, sum
from ._memory import empty_pinned, pinned_copy
from ._records import (
    CacheInfo,
    DeviceInfo,
    KernelInfo,
    LastRun,
    Limits,
    cache_info,
    clear_cache,
    cuda_versions,
    devices,
    kernel_source,
    kernels,
    last_run,
    limits,
    set_limits,
)

__all__ = [
    "CacheInfo",
    "CudaError",
    "DeviceInfo",
    "DeviceUnavailableError",
    "KernelInfo",
    "KernelUnavailableError",
    "LastRun",
    "Limits",
    "NoDeviceWarning",
    "__version__",
    "all",
    "any",
    "cache_info",
    "clear_cache",
    "cuda_versions",
    "devices",
    "empty_pinned",
    "kernel_source",
    "kernels",
    "last_run",
    "limits",
    "max",
    "mean",
    "min",
    "pinned_copy",
    "prod",
    "reduce",
    "set_limits",
    "sum",
]
