"""Reduce arrays on NVIDIA GPUs, or on all cores of a CPU, by named kernels.

>>> import numpy as np
>>> import gpureduce as gr
>>> gr.sum(np.arange(10.0), device="cpu")
np.float64(45.0)
"""

from typing import TYPE_CHECKING

from ._core import __version__
from ._describe import Description, describe
from ._dot import dot, vdot
from ._exact import ExactSum
from ._exceptions import (
    CompileError,
    CudaError,
    DeviceUnavailableError,
    KernelUnavailableError,
    NoDeviceWarning,
)
from ._functions import *  # noqa: F403 (the reductions, which _functions.py lists)
from ._functions import __all__ as _reductions
from ._kernel_names import KernelName
from ._memory import empty_pinned, pinned_copy
from ._norms import average, norm
from ._records import (
    CacheInfo,
    DeviceInfo,
    KernelInfo,
    LastRun,
    Limits,
    MinMax,
    cache_info,
    clear_cache,
    cuda_versions,
    devices,
    kernel_source,
    last_run,
    limits,
    set_limits,
)

if TYPE_CHECKING:
    from ._bench.benchmark import benchmark
    from ._bench.changes import Changes
    from ._bench.compare import compare
    from ._bench.comparison import Comparison
    from ._bench.timing import Timing
    from ._display.kernel_list import kernels
    from ._explain.explain import explain
    from ._explain.explanation import Explanation, Explanations
    from ._tune.tune import Tuning, tune
    from ._warm import Warmed, warm
    from ._yours.check import check
    from ._yours.check_report import CheckReport
    from ._yours.exponentials import logsumexp
    from ._yours.kernel import Kernel
    from ._yours.own_operator import Operator
    from ._yours.python_operator import operator

__all__ = [
    "CacheInfo",
    "Changes",
    "CheckReport",
    "Comparison",
    "CompileError",
    "CudaError",
    "Description",
    "DeviceInfo",
    "DeviceUnavailableError",
    "ExactSum",
    "Explanation",
    "Explanations",
    "Kernel",
    "KernelInfo",
    "KernelName",
    "KernelUnavailableError",
    "LastRun",
    "Limits",
    "MinMax",
    "NoDeviceWarning",
    "Operator",
    "Timing",
    "Tuning",
    "Warmed",
    "__version__",
    "average",
    "benchmark",
    "cache_info",
    "check",
    "clear_cache",
    "compare",
    "cuda_versions",
    "describe",
    "devices",
    "dot",
    "empty_pinned",
    "explain",
    "kernel_source",
    "kernels",
    "last_run",
    "limits",
    "logsumexp",
    "norm",
    "operator",
    "pinned_copy",
    "set_limits",
    "tune",
    "vdot",
    "warm",
]
__all__ += _reductions

_LATE = {
    "benchmark": "_bench.benchmark",
    "check": "_yours.check",
    "CheckReport": "_yours.check_report",
    "Kernel": "_yours.kernel",
    "logsumexp": "_yours.exponentials",
    "Operator": "_yours.own_operator",
    "operator": "_yours.python_operator",
    "compare": "_bench.compare",
    "Changes": "_bench.changes",
    "Comparison": "_bench.comparison",
    "kernels": "_display.kernel_list",
    "explain": "_explain.explain",
    "Explanation": "_explain.explanation",
    "Explanations": "_explain.explanation",
    "Timing": "_bench.timing",
    "Tuning": "_tune.tune",
    "tune": "_tune.tune",
    "warm": "_warm",
    "Warmed": "_warm",
}
"""Names whose modules are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _LATE:
        from ._exceptions import did_you_mean

        near = did_you_mean(name, __all__) if not name.startswith("_") else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near}")
    from importlib import import_module

    thing = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


def load_ipython_extension(shell: object) -> None:
    """Give IPython the magics ``%gr_bench``, ``%gr_compare``, ``%gr_explain`` and ``%%gr_kernel``:
    ``%load_ext gpureduce``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    from ._cli.magics import register

    register(shell)
