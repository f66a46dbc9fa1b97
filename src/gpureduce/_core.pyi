"""The C core: csrc/python. Arguments are positional; the package's functions say what they mean."""

from collections.abc import Callable
from typing import Any, Self, final

import numpy as np

from ._kernel_names import KernelName

__version__: str
OPERATORS: dict[str, int]
DTYPES: dict[str, tuple[int, int, int, bool]]
PLAN_COSTS: tuple[str, ...]
KERNEL_FILES: dict[str, str]
KERNELS_ON_CPU: tuple[str, ...]

# ---- host_reduce.c

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

# ---- function_type.c

class Function:
    def __new__(
        cls,
        function: Callable[..., Any],
        parameters: tuple[str, ...],
        positional: int,
        op: int,
        skip_nan: bool,
        finish: Callable[..., Any] | None = None,
        /,
    ) -> Self: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# ---- dot_arrays.c

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
def dot_plain(
    a: Any,
    b: Any,
    conjugates: bool,
    dtype: Any,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
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
def dot_along(
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any] | None,
    factor: np.dtype[Any],
    dtype: Any,
    axis: Any,
    keepdims: bool,
    products: int,
    conjugate: bool,
    root: bool,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    /,
) -> Any: ...
def average_along(
    a: np.ndarray[Any, Any],
    weights: np.ndarray[Any, Any],
    factor: np.dtype[Any],
    dtype: np.dtype[Any],
    axis: tuple[int, ...] | None,
    keepdims: bool,
    totals: Any,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    /,
) -> Any: ...
def norm(
    a: np.ndarray[Any, Any],
    order: Any,
    axis: Any,
    keepdims: Any,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    /,
) -> Any: ...
def powers_of(numbers: np.ndarray[Any, Any], power: Any, /) -> np.ndarray[Any, Any]: ...
def logsumexp(
    a: np.ndarray[Any, Any],
    dtype: np.dtype[Any],
    axis: Any,
    keepdims: bool,
    mask: np.ndarray[Any, Any] | None,
    /,
) -> Any: ...
def dot_along_on_device(
    a: DeviceArray,
    b: DeviceArray | None,
    factor: str,
    dtype: Any,
    axis: Any,
    keepdims: bool,
    products: int,
    conjugate: bool,
    root: bool,
    kernel: str,
    device: str | None,
    block_size: int | None,
    grid_size: int | None,
    stream: Any,
    make: Any,
    /,
) -> Any: ...

# ---- inspect.c

def kernels() -> list[dict[str, Any]]: ...
def find_kernel(name: str, /) -> KernelName: ...
def sources() -> dict[str, str]: ...
def devices() -> list[dict[str, Any]]: ...
def why_no_cuda() -> str | None: ...
def read_ordinal(device: str | None, /) -> int | None: ...
def cuda_versions() -> tuple[int, int]: ...
def cpu_isa() -> str: ...
def set_cpu_isa(name: str | None, /) -> None: ...
def set_nvrtc_path(path: str | None, /) -> None: ...
def set_cccl_path(directory: str | None, /) -> None: ...
def watch_progress(callback: Callable[[float], object] | None, /) -> None: ...
def last_run() -> dict[str, Any] | None: ...
def forget_run() -> None: ...
def limits() -> dict[str, int]: ...
def set_limits(
    device_bytes: int | None, pinned_bytes: int | None, cpu_threads: int | None, /
) -> None: ...
def cache_info() -> dict[str, Any]: ...
def clear_cache(loaded: bool, /) -> None: ...

# ---- numpy_dtypes.c

def numpy_dtype(name: str, /) -> np.dtype[Any]: ...

# ---- launch_text.c

def compile_text(
    name: str, text: str, entries: tuple[str, ...], options: tuple[str, ...], cc: int, /
) -> tuple[bytes, tuple[str, ...]]: ...
def load_image(device: int, image: bytes, symbols: tuple[str, ...], /) -> Any: ...
def run_launches(
    loaded: Any,
    launches: tuple[tuple[int, int, int, int, tuple[bytes | bytearray, ...]], ...],
    stream: Any = None,
    flush_bytes: int = 0,
    repeats: int = 1,
    /,
) -> list[float]: ...
def queue_launches(
    loaded: Any,
    launches: tuple[tuple[int, int, int, int, tuple[bytes | bytearray, ...]], ...],
    stream: Any,
    scratch_bytes: int,
    pointers: tuple[tuple[bytearray, int, int], ...],
    /,
) -> None: ...
def plan_kernel(
    name: str, device: int, rows: int, n: int, block_size: int, grid_size: int, /
) -> dict[str, Any]: ...
def find_cached_image(key: str, /) -> tuple[bytes, tuple[str, ...]] | None: ...
def cache_image(key: str, image: bytes, symbols: tuple[str, ...], /) -> None: ...
def run_custom_tasks(task: int, context: int, count: int, /) -> None: ...

# ---- several_call.c

def plan_several(
    source: DeviceArray,
    axis: Any,
    members: tuple[tuple[int | str, bool, bool], ...],
    facts: tuple[Any, ...],
    block_size: int = 0,
    grid_size: int = 0,
    pieces: bool = False,
    resident: int = 0,
    /,
) -> tuple[bytes, dict[str, Any]]: ...
def compile_several(plan: bytes, cc: int, /) -> tuple[bytes, tuple[str, ...], bool]: ...
def several_scratch(plan: bytes, pieces: int, /) -> int: ...
def queue_several(
    loaded: Any,
    plan: bytes,
    address: int,
    results: tuple[int, ...],
    ddof: float,
    output_stride: int,
    stream: Any,
    piece: tuple[int, int, int, int, int, int] | None = None,
    /,
) -> None: ...
def measure_several(
    loaded: Any,
    plan: bytes,
    address: int,
    results: tuple[int, ...],
    ddof: float,
    output_stride: int,
    stream: Any,
    repeats: int,
    flush_bytes: int,
    /,
) -> list[float]: ...

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
    way: int = 0,
    /,
    *,
    strides: tuple[int, ...] | None = None,
) -> list[float]: ...
def price_ways(
    op: int | str,
    shape: tuple[int, ...],
    dtype: Any,
    reduced: int,
    facts: tuple[Any, ...],
    strides: tuple[int, ...] | None = None,
    /,
) -> list[float]: ...
def warm(
    op: int | str,
    shape: tuple[int, ...],
    dtype: Any,
    reduced: int,
    kernel: str,
    facts: tuple[Any, ...],
    way: int = 0,
    compute: Any = None,
    block_size: int = 0,
    on_device: bool = True,
    *,
    strides: tuple[int, ...] | None = None,
    mask: int = 0,
    mask_strides: tuple[int, ...] | None = None,
    result: int = 0,
    result_strides: tuple[int, ...] | None = None,
    skip_nan: bool = False,
    ddof: float = 0.0,
) -> int: ...
def choose_kernel(name: str, op: int | str, dtype: str, /) -> str: ...
def compile_program(
    kernel: str,
    op: int | str,
    dtype: str,
    compute: str | None,
    block_size: int,
    cc: int,
    variant: int = -1,
    /,
) -> int: ...
def write_program(kernel: str, op: int | str, dtype: str, block_size: int, /) -> str: ...
def compile_dot(
    a: str, b: str, factor: str, compute: str | None, block_size: int, cc: int, /
) -> int: ...
def compile_dot_along(
    a: str,
    b: str,
    factor: str,
    compute: str | None,
    products: int,
    conjugate: bool,
    root: bool,
    block_size: int,
    cc: int,
    /,
) -> int: ...

# ---- costs.c

def device_facts(device: int, /) -> tuple[Any, ...]: ...
def typical_facts(capability: int, /) -> tuple[Any, ...]: ...
def plan_costs(device: int, /) -> dict[str, Any]: ...
def store_costs(device: int, costs: tuple[float, ...] | None, /) -> None: ...
def use_costs(device: int, costs: tuple[float, ...] | None, /) -> None: ...

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
def may_overlap(a: DeviceArray, b: DeviceArray, /) -> bool: ...

# ---- array_interface.c

def import_cai(interface: dict[str, Any], owner: Any, stream: Any, /) -> DeviceArray: ...

# ---- dlpack.c

def import_dlpack(capsule: Any, stream: Any, /) -> DeviceArray: ...
def import_exchange(array: Any, /) -> DeviceArray | None: ...
def empty_like(array: Any, shape: tuple[int, ...], dtype: str, device: int, /) -> Any: ...
def export_dlpack(array: DeviceArray, versioned: bool, /) -> Any: ...

# ---- device_buffer.c

@final
class DeviceBuffer:
    """A C-contiguous array in gpureduce's own memory; libraries take it over without a copy."""

    def __new__(cls, shape: tuple[int, ...], dtype: str, device: int, stream: Any, /) -> Self: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def memory(self) -> DeviceArray: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...

def fill_device(array: DeviceArray, element: bytes, stream: Any, /) -> None: ...
def queue_upload(array: DeviceArray, source: Any, stream: Any, /) -> None: ...

# ---- stream_order.c

LEGACY_STREAM: int
MOST_SEVERAL: int

def device_stream(device: int, /) -> int: ...
def stream_handle(stream: Any, /) -> int: ...
def order_streams(device: int, first: Any, then: Any, /) -> None: ...
def mark_stream(device: int, stream: Any, /) -> Any: ...
def mark_passed(mark: Any, /) -> bool: ...
def mark_wait(mark: Any, /) -> None: ...

# ---- loans.c

def keep_loan(device: int, stream: Any, lent: Any, /) -> None: ...
def end_loans() -> None: ...

# ---- libraries.c

@final
class Library:
    """An array library: how its arrays are read, made and written."""

    @property
    def name(self) -> str: ...
    @property
    def is_known(self) -> bool: ...
    @property
    def lends(self) -> bool: ...
    @property
    def writes(self) -> bool: ...
    @property
    def converts(self) -> bool: ...
    def read(self, array: Any, /) -> DeviceArray: ...
    def make(
        self,
        like: Any,
        memory: DeviceArray,
        shape: tuple[int, ...],
        dtype: str,
        order: tuple[int, ...] | None = None,
        /,
    ) -> tuple[Any, DeviceArray]: ...
    def finish(self, like: Any, made: Any, /) -> Any: ...
    def split(self, array: Any, /) -> tuple[Any, Any]: ...
    def dtype(self, dtype: Any, /) -> Any: ...
    def assign(self, out: Any, array: Any, /) -> None: ...

def find_library(array: Any, /) -> Library | None: ...

# ---- device_reduce.c

def result_axes(
    op: int | str, source: DeviceArray, axis: Any, keepdims: Any, skip_nan: bool, masked: bool, /
) -> tuple[tuple[int, ...], int]: ...
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
    start: bytes | None = None,
    /,
) -> Any: ...

# ---- exact_sum.c

def exact_new(dtype: Any, /) -> Any: ...
def exact_update(state: Any, array: np.ndarray[Any, Any] | DeviceArray, /) -> None: ...
def exact_merge(state: Any, other: Any, /) -> None: ...
def exact_result(state: Any, dtype: Any, mean: bool, /) -> Any: ...
def exact_count(state: Any, /) -> int: ...
def exact_dtype(state: Any, /) -> str: ...
def exact_store(state: Any, /) -> bytes: ...
def exact_load(buffer: Any, /) -> Any: ...
