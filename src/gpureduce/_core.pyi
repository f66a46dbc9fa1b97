"""The C core: csrc/python. Arguments are positional; the package's functions say what they mean."""

from typing import Any

import numpy as np

__version__: str
OPERATORS: dict[str, int]
DTYPES: tuple[str, ...]
KERNEL_FILES: dict[str, str]

def reduce(
    op: int | str,
    array: np.ndarray[Any, Any],
    axis: Any,
    dtype: Any,
    keepdims: Any,
    mask: np.ndarray[Any, Any] | None,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    /,
) -> Any: ...

# ---- inspect.c

def kernels() -> list[dict[str, Any]]: ...
def find_kernel(name: str, /) -> str: ...
def sources() -> dict[str, str]: ...
def devices() -> list[dict[str, Any]]: ...
def why_no_cuda() -> str | None: ...
def cuda_versions() -> tuple[int, int]: ...
def cpu_isa() -> str: ...
def set_cpu_isa(name: str | None, /) -> None: ...
def set_nvrtc_path(path: str | None, /) -> None: ...
def set_cccl_path(directory: str | None, /) -> None: ...
def last_run() -> dict[str, Any] | None: ...
def limits() -> dict[str, int]: ...
def set_limits(device_bytes: int | None, pinned_bytes: int | None, cpu_threads: int | None, /) -> None: ...
def cache_info() -> dict[str, Any]: ...
def clear_cache(loaded: bool, /) -> None: ...

# ---- memory.c

def pinned_bytes(size: int, /) -> np.ndarray[Any, np.dtype[np.uint8]] | None: ...
def alloc_device(device: int, nbytes: int, /) -> int: ...
def upload(device: int, pointer: int, source: Any, /) -> None: ...
def free_device(device: int, pointer: int, /) -> None: ...
def reduce_device(
    op: int | str,
    pointer: int,
    shape: tuple[int, ...],
    dtype: Any,
    reduced: int,
    kernel: str,
    device: int,
    block_size: int = 0,
    grid_size: int = 0,
    compute: Any = None,
    stream: int = 0,
    /,
) -> Any: ...
def measure(
    op: int | str,
    pointer: int,
    shape: tuple[int, ...],
    dtype: Any,
    reduced: int,
    kernel: str,
    device: int,
    block_size: int,
    grid_size: int,
    warmup: int,
    repeats: int,
    flush_bytes: int,
    compute: Any = None,
    stream: int = 0,
    /,
) -> list[float]: ...
def compile_cell(
    kernel: str,
    op: int | str,
    dtype: str,
    compute: str | None,
    block_size: int,
    cc: int,
    /,
) -> int: ...
