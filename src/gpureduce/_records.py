"""Records that functions return: extremes, kernels, devices, the last run, limits, the cache."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _core
from ._kernel_names import KernelName
from ._kernel_sources import shown_rule

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "CacheInfo",
    "DeviceInfo",
    "KernelInfo",
    "LastRun",
    "Limits",
    "MinMax",
    "cache_info",
    "clear_cache",
    "cuda_versions",
    "devices",
    "kernel_source",
    "last_run",
    "limits",
    "set_limits",
    "without_advice",
]


class MinMax(NamedTuple):
    """Result of :func:`minmax`.

    Examples
    --------
    >>> import gpureduce as gr
    >>> gr.minmax([3, 1, 2]).max
    np.int64(3)
    """

    min: Any
    """Smallest element, or elements."""
    max: Any
    """Largest element, or elements."""


_ON_THE_CPU = ("auto", "exact", "fast")
"""Kernels that the CPU backend has, too."""


def _on_the_cpu(name: str) -> str:
    """What a kernel's name gives without a GPU."""
    if name in _ON_THE_CPU:
        return f"yes: its results, by the CPU backend; gpureduce explain {name} draws the kernel"
    return f"emulated, by gpureduce explain {name}; reductions warn, and run 'fast' there"


def without_advice(reason: str) -> str:
    """A reason why there is no GPU without the remedies, which errors and ``gpureduce info`` have:
    tables would repeat them in each row.
    """
    return re.split(r"[:;]", reason)[0] if reason.startswith("no NVIDIA") else reason


@dataclass(frozen=True, slots=True, repr=False)
class KernelInfo:
    """A row of the kernel catalogue; ``print`` shows all of it, ``repr`` its name and summary.

    Attributes
    ----------
    name, aliases
        Values for the argument `kernel`.
    family
        ``"atomic"``, ``"tree"``, ``"shuffle"``, ``"block"``, ``"warp"``, ``"library"`` or
        ``"planner"``.
    summary, removes, pays
        The kernel in one line, the cost that it removes from the step before, the cost that
        remains.
    source
        The publication that introduced it.
    block_rule, block_size
        Block sizes that it takes (``"power of two"``, ``"multiple of 32"``, ``"32"``), and its
        default.
    elements_per_thread
        Least elements per thread of a full block.
    takes_grid_size
        Whether it takes the argument `grid_size`.
    commutative_only
        Whether it reorders operands.
    deterministic
        Whether the same input on the same device gives the same bits, floats included.
    min_compute_capability
        Least compute capability that it needs; ``None`` if every supported device has it.
    available, reason
        Whether it can run on the first GPU; if not, the reason and a remedy.
    """

    name: KernelName
    aliases: tuple[KernelName, ...]
    family: str
    summary: str
    removes: str
    pays: str
    source: str
    block_rule: str
    block_size: int
    elements_per_thread: int
    takes_grid_size: bool
    commutative_only: bool
    deterministic: bool
    min_compute_capability: tuple[int, int] | None
    available: bool
    reason: str

    def __repr__(self) -> str:
        return f"<KernelInfo: {self.name}: {self.summary}>"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.summary}"]
        lines += [f"  aliases    {', '.join(self.aliases)}"] if self.aliases else []
        lines += [
            f"  removes    {self.removes}",
            f"  pays       {self.pays}",
            f"  source     {self.source}",
            f"  block      {self.block_size} by default; takes {shown_rule(self.block_rule)}",
        ]
        if not self.available:
            if _core.why_no_cuda() is not None:
                lines.append(f"  on the CPU {_on_the_cpu(self.name)}")
            lines.append(f"  on a GPU   {without_advice(self.reason)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A CUDA device. Memory sizes are in bytes."""

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    memory_clock_khz: int
    memory_bus_bits: int
    uuid: str


@dataclass(frozen=True, slots=True)
class LastRun:
    """What the calling thread's last call did.

    Attributes
    ----------
    device
        ``"cpu"`` or ``"cuda:N"``.
    kernel, variant
        Catalogue name (``"auto"`` stays ``"auto"``), and the template that ran; on the CPU
        ``"auto"``, ``"exact"`` or ``"fast"``, which computes in place of kernels that need a GPU,
        and the instruction set. Of a :class:`Kernel` of your own its name.
    block_size, grid_size
        Threads per block and blocks of the first launch; 0 on the CPU.
    launches
        Kernel launches for the last chunk.
    chunks
        Pieces in which the array was uploaded.
    elements, bytes
        Elements and bytes read from the array.
    seconds
        Wall time inside the library.
    stages
        Seconds that the host spent in ``"stage"``, ``"upload"``, ``"kernel"``, ``"download"`` and
        ``"compile"``, for those stages that were timed.
    compiled, cache_hits
        Programs that NVRTC compiled for this call, and programs read from the disk cache.
    threads, tasks
        Threads of the CPU that took part, and tasks that they divided the work into; 0 on a GPU.
    """

    device: str
    kernel: KernelName
    variant: str
    block_size: int
    grid_size: int
    launches: int
    chunks: int
    elements: int
    bytes: int
    seconds: float
    stages: dict[str, float]
    compiled: int
    cache_hits: int
    threads: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of this process's use of memory and cores.

    Attributes
    ----------
    device_bytes
        Device memory for streaming host arrays, per device.
    pinned_bytes
        Pinned host memory for streaming host arrays.
    cpu_threads
        Threads of the CPU backend and of the staging copy.
    """

    device_bytes: int
    pinned_bytes: int
    cpu_threads: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The disk cache of compiled programs.

    Attributes
    ----------
    directory, reason
        Folder of the cache, ``""`` if it is off; the reason why it is off.
    entries, bytes, limit_bytes
        Number and size of its entries, and the limit of their size.
    hits, misses, writes, faults
        Counts of this process: programs read, not found, written, and errors of the file system.
    """

    directory: str
    reason: str
    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    writes: int
    faults: int


def kernel_source(
    name: KernelName,
    helpers: bool | Literal["used"] = False,
    *,
    standalone: bool = False,
    dtype: DTypeLike = "float32",
    op: str = "sum",
    block_size: int | None = None,
) -> str:
    """CUDA source of a kernel, as NVRTC compiles it.

    Parameters
    ----------
    name : str
        Name or alias of a kernel.
    helpers : bool or "used", optional
        What to include above the kernel: with ``"used"`` the functions that it calls, directly or
        indirectly; with ``True`` all files that kernels share.
    standalone : bool, optional
        Return one file that needs no other: the kernel for one operator and dtype, the parts of
        other files that it uses, and a ``main`` that launches it, checks its result and times it.
        ``nvcc -std=c++17`` compiles the file.
    dtype, op, block_size : optional
        Dtype of the elements, operator and threads per block of a standalone file; by default
        float32, the sum, and the kernel's own block size.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        No kernel has this name; the message lists similar names. `helpers` is neither a
        bool nor ``"used"``, or is given with `standalone`. An unknown operator, or a block size
        that the kernel does not support.
    TypeError
        A dtype that is not supported.
    KernelUnavailableError
        The kernel cannot be one file (``auto``, ``fast``, ``exact``, ``cub``); the message says
        why.

    Notes
    -----
    A standalone file contains the declarations that the program uses, with their comments, taken
    from the files that run, without branches of ``if constexpr`` that its dtype and operator never
    take.

    Examples
    --------
    >>> import gpureduce as gr
    >>> "__global__" in gr.kernel_source("sequential")
    True
    >>> "__shfl_down_sync" in gr.kernel_source("shfl_atomic", helpers="used")
    True
    >>> "int main(" in gr.kernel_source("shfl_atomic", standalone=True, dtype="int32", op="max")
    True
    """
    name = _core.find_kernel(name)
    file = _core.KERNEL_FILES[name]
    sources = _core.sources()
    if not isinstance(helpers, bool) and helpers != "used":
        raise ValueError(f"helpers must be True, False or 'used', not {helpers!r}")
    if standalone:
        if helpers:
            raise ValueError("a standalone file has its helpers: give standalone or helpers")
        from ._dtypes import native_dtype
        from ._standalone import standalone_source

        return standalone_source(name, native_dtype(dtype), op, block_size)
    if not helpers:
        return sources[file]
    kernel_files = set(_core.KERNEL_FILES.values())
    if helpers == "used":
        from ._kernel_sources import used_helpers

        found = used_helpers(name, file, sources, kernel_files)
        return f"{found}\n// ==== {file}\n{sources[file]}" if found else sources[file]
    shared = [other for other in sources if other not in kernel_files]
    return "\n".join(f"// ==== {part}\n{sources[part]}" for part in (*shared, file))


def devices() -> list[DeviceInfo]:
    """List the CUDA devices of this machine; empty without a usable driver.

    Returns
    -------
    list of DeviceInfo
    """
    return [DeviceInfo(**row) for row in _core.devices()]


def cuda_versions() -> tuple[int, int]:
    """CUDA versions of the driver and of NVRTC as 1000 * major + 10 * minor; 0 where there is none.

    Returns
    -------
    tuple of int
    """
    return _core.cuda_versions()


def last_run() -> LastRun | None:
    """What the calling thread's last reduction did; ``None`` if it made none, or if that one was by
    an :class:`Operator`, of which nothing is recorded.

    Returns
    -------
    LastRun or None

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.sum(np.ones(1000, np.float32), device="cpu")
    np.float32(1000.0)
    >>> gr.last_run().device, gr.last_run().elements
    ('cpu', 1000)
    """
    row = _core.last_run()
    return getattr(_noted, "run", None) if row is None else LastRun(**row)


_noted = threading.local()


def note_run(run: LastRun) -> None:
    """Make a run that is not the core's what :func:`last_run` returns to the calling thread."""
    _core.forget_run()
    _noted.run = run


def forget_run() -> None:
    """After a reduction of which nothing is recorded, :func:`last_run` returns none."""
    _core.forget_run()
    _noted.run = None


def limits() -> Limits:
    """Limits now in force.

    Returns
    -------
    Limits
    """
    return Limits(**_core.limits())


def set_limits(
    *,
    device_bytes: int | None = None,
    pinned_bytes: int | None = None,
    cpu_threads: int | None = None,
) -> None:
    """Change limits for the whole process; limits that are ``None`` do not change.

    Parameters
    ----------
    device_bytes, pinned_bytes : int, optional
        At least 1 MiB. Larger buffers are freed before the next call.
    cpu_threads : int, optional
        1 to 1024.

    Raises
    ------
    ValueError
        A limit out of range; nothing changes.

    Notes
    -----
    The environment variables ``GPUREDUCE_DEVICE_BYTES``, ``GPUREDUCE_PINNED_BYTES`` and
    ``GPUREDUCE_THREADS`` set the initial values.
    """
    _core.set_limits(device_bytes, pinned_bytes, cpu_threads)


def cache_info() -> CacheInfo:
    """The disk cache of compiled programs.

    Returns
    -------
    CacheInfo
    """
    return CacheInfo(**_core.cache_info())


def clear_cache(*, loaded: bool = False) -> None:
    """Remove every entry of the disk cache.

    Parameters
    ----------
    loaded : bool, optional
        Whether to forget programs that this process has loaded, too.
    """
    _core.clear_cache(loaded)
