"""The C core: csrc/python. Arguments are positional; the package's functions say what they mean."""

from collections.abc import Callable
from typing import Any, final

import numpy as np

__version__: str
OPERATORS: dict[str, int]
DTYPES: tuple[str, ...]
KERNEL_FILES: dict[str, str]
KERNELS_ON_CPU: tuple[str, ...]

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
    skip_nan: bool,
    ddof: float,
    /,
) -> Any: ...
def reduce_plain(
    op: int,
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    out: Any,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    skip_nan: bool,
    ddof: Any,
    /,
) -> Any: ...

# ---- dot.c

def dot(
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    factor: np.dtype[Any],
    dtype: Any,
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
def watch_progress(callback: Callable[[float], object] | None, /) -> None: ...
def last_run() -> dict[str, Any] | None: ...
def limits() -> dict[str, int]: ...
def set_limits(device_bytes: int | None, pinned_bytes: int | None, cpu_threads: int | None, /) -> None: ...
def cache_info() -> dict[str, Any]: ...
def clear_cache(loaded: bool, /) -> None: ...

# ---- memory.c

def pinned_bytes(size: int, /) -> np.ndarray[Any, np.dtype[np.uint8]] | None: ...
def alloc_device(device: int, nbytes: int, /) -> int: ...
def upload(device: int, pointer: int, source: Any, /) -> None: ...
def download(device: int, pointer: int, destination: Any, stream: int = 0, /) -> None: ...
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
def choose_kernel(name: str, op: int | str, dtype: str, /) -> str: ...
def compile_case(
    kernel: str,
    op: int | str,
    dtype: str,
    compute: str | None,
    block_size: int,
    cc: int,
    variant: int = -1,
    /,
) -> int: ...
def compile_dot(a: str, b: str, factor: str, compute: str | None, block_size: int, cc: int, /) -> int: ...

# ---- device_array.c

@final
class DeviceArray:
    """An array in the memory of a CUDA device; keeps alive what lent it."""

    @property
    def ndim(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def read_only(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def pointer(self) -> int: ...
    @property
    def stream(self) -> int | None: ...

def import_dlpack(capsule: Any, stream: Any, /) -> DeviceArray: ...
def import_exchange(array: Any, /) -> DeviceArray | None: ...
def import_cai(interface: dict[str, Any], owner: Any, stream: Any, /) -> DeviceArray: ...
def device_array(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str | np.dtype[Any],
    device: int,
    stream: Any,
    owner: Any,
    /,
) -> DeviceArray: ...
def empty_like(array: Any, shape: tuple[int, ...], dtype: str, device: int, /) -> Any: ...
def export_dlpack(array: DeviceArray, versioned: bool, /) -> Any: ...

# ---- known_library.c

def know_torch(kind: type, dtypes: tuple[Any, ...], /) -> None: ...
def know_cupy(
    kind: type,
    empty: Callable[..., Any],
    current_device: Callable[[], int],
    current_stream: Callable[[int], Any],
    /,
) -> None: ...

# ---- device_reduce.c

def reduce_on_device(
    op: int | str,
    source: DeviceArray,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    mask: DeviceArray | None,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    skip_nan: bool,
    ddof: float,
    make: Any,
    mean: DeviceArray | complex | None = None,
    /,
) -> Any: ...
def dot_on_device(
    a: DeviceArray,
    b: DeviceArray,
    factor: str,
    dtype: Any,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    make: Any,
    /,
) -> Any: ...
def device_memory(device: int, nbytes: int, /) -> tuple[int, Any]: ...
def fill_device(array: DeviceArray, element: bytes, stream: Any, /) -> None: ...
def queue_upload(array: DeviceArray, source: Any, stream: Any, /) -> None: ...
def may_overlap(a: DeviceArray, b: DeviceArray, /) -> bool: ...
def device_stream(device: int, /) -> int: ...
def stream_handle(stream: Any, /) -> int: ...
def order_streams(device: int, first: Any, then: Any, /) -> None: ...
def mark_stream(device: int, stream: Any, /) -> Any: ...
def mark_passed(mark: Any, /) -> bool: ...
def mark_wait(mark: Any, /) -> None: ...

# ---- exact_sum.c

def exact_new(dtype: Any, /) -> Any: ...
def exact_update(state: Any, array: np.ndarray[Any, Any] | DeviceArray, /) -> None: ...
def exact_merge(state: Any, other: Any, /) -> None: ...
def exact_result(state: Any, dtype: Any, mean: bool, /) -> Any: ...
def exact_count(state: Any, /) -> int: ...
def exact_dtype(state: Any, /) -> str: ...
def exact_store(state: Any, /) -> bytes: ...
def exact_load(buffer: Any, /) -> Any: ...
