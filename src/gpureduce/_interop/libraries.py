"""Arrays of other libraries in GPU memory: how each shows its memory and its stream, and makes room for a result.

An adapter per library is found by the module of an array's type, so nothing is imported that the caller has not
imported. Types of libraries that are not known here are taken by DLPack's C exchange API, by ``__dlpack__``, or by
``__cuda_array_interface__``, in this order.

Plain calls with arrays of PyTorch and CuPy do not come here again: once the adapters have told the core of their types,
it reads those itself (``csrc/python/known_library.c``), by the same rules.
"""

from __future__ import annotations

import atexit
import math
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .. import _core
from .._core import DeviceArray

__all__ = ["DeviceBuffer", "Library", "device_library", "from_host", "is_on_device"]

LEGACY_STREAM = 1
"""CUDA's number of the default stream of old; libraries that say 0 mean it."""
PER_THREAD_STREAM = 2
"""Its number of the calling thread's default stream."""
CUDA_TYPES = (2, 13)
"""DLPack's device types of memory of a CUDA device, and of managed memory."""
DLPACK_VERSION = (1, 3)
ITEM_BYTES = {name: int(name.lstrip("abcdefghijklmnopqrstuvwxyz") or 8) // 8 for name in _core.DTYPES}  # of bool a byte


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for a name of ours; for bfloat16 that of ``ml_dtypes``."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise TypeError("NumPy has no bfloat16: pip install 'gpureduce[bf16]'") from None
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


# ---------------------------------------------------------------- memory of our own


class DeviceBuffer:
    """A C-contiguous array in memory of our own, for libraries that only take arrays over.

    It has what every library imports by: ``__dlpack__``, ``__dlpack_device__`` and, for dtypes that NumPy knows,
    ``__cuda_array_interface__``. Its memory is freed with the last array that was made of it.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        Name of the elements' type.
    stream : int
        Handle of the stream that its elements are written on.
    """

    __slots__ = ("__weakref__", "_memory", "dtype", "shape", "stream")

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> None:
        pointer, owner = _core.device_memory(device, math.prod(shape) * ITEM_BYTES[dtype])
        self._memory = _core.device_array(pointer, shape, None, dtype, device, stream, owner)
        self.shape = shape
        self.dtype = dtype
        self.stream = stream

    def halves(self) -> tuple[DeviceBuffer, DeviceBuffer]:
        """Both parts along the first axis, which is two long; they share the memory."""
        memory, shape = self._memory, self.shape[1:]
        parts = []
        for half in (0, 1):
            part = DeviceBuffer.__new__(DeviceBuffer)
            start = memory.pointer + half * math.prod(shape) * ITEM_BYTES[self.dtype]
            part._memory = _core.device_array(start, shape, None, self.dtype, memory.device, self.stream, memory)
            part.shape, part.dtype, part.stream = shape, self.dtype, self.stream
            parts.append(part)
        return parts[0], parts[1]

    def __repr__(self) -> str:
        return f"<gpureduce.DeviceBuffer shape={self.shape} dtype={self.dtype} device='cuda:{self.device}'>"

    @property
    def device(self) -> int:
        """CUDA ordinal of the device whose memory it is in."""
        return self._memory.device

    @property
    def memory(self) -> DeviceArray:
        """As the core takes it."""
        return self._memory

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_TYPES[0], self._memory.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Lend the memory: the consumer's `stream` waits for what is still being written."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on CUDA device {self.device} and is not copied elsewhere")
        if copy:
            raise BufferError("the array is lent as it is, not copied")
        if stream == 0:
            raise ValueError("stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's")
        if stream != -1:
            _core.order_streams(self.device, self.stream, LEGACY_STREAM if stream is None else stream)
        return _core.export_dlpack(self._memory, max_version is not None and max_version[0] >= DLPACK_VERSION[0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype == "bfloat16":
            raise AttributeError("the CUDA array interface has no bfloat16: use DLPack")
        return {
            "shape": self.shape,
            "typestr": np.dtype(self.dtype).str,
            "data": (self._memory.pointer, False),
            "strides": None,
            "stream": self.stream,
            "version": 3,
        }


class _Loans:
    """What the device may still read though the caller is done with it, each with the mark after which it is free.

    Producers that cannot be told to wait for our stream get their memory back only when the device has passed the
    mark; every loan looks whether earlier ones have ended.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[Any, tuple[Any, ...]]] = []
        self._ends_with_process = False

    def keep(self, device: int, stream: int, *lent: Any) -> None:
        """Keep `lent` alive until what is queued on `stream` now is done."""
        if not self._ends_with_process:
            self._ends_with_process = True
            atexit.register(self.end)
        self._pending = [loan for loan in self._pending if not _core.mark_passed(loan[0])]
        self._pending.append((_core.mark_stream(device, stream), lent))

    def end(self) -> None:
        """Wait until the device is done with every loan, and end them all."""
        pending, self._pending = self._pending, []
        for mark, _ in pending:
            _core.mark_wait(mark)


loans = _Loans()


# ---------------------------------------------------------------- adapters


class Library:
    """What is asked of an array library; this one knows only the DLPack C exchange API."""

    name: ClassVar[str] = "the array's library"
    lends: ClassVar[bool] = False
    """Whether its arrays have to be kept until the device is done: it does not order its memory's reuse by the stream
    that we worked on."""
    writes: ClassVar[bool] = True
    """Whether its arrays may be written, for ``out``."""

    converts: ClassVar[bool] = True
    """Whether it can write an array of one dtype into one of another, for ``out``."""

    def holds(self, a: Any) -> bool:
        """Whether an array of this library is in the memory of a CUDA device."""
        return int(a.__dlpack_device__()[0]) in CUDA_TYPES

    def memory(self, a: Any) -> DeviceArray:
        """Where the array is, and the stream that it is ready on."""
        found = _core.import_exchange(a)
        assert found is not None
        return found

    def empty(self, like: Any, memory: DeviceArray, shape: tuple[int, ...], dtype: str) -> tuple[Any, DeviceArray]:
        """Make an array beside `like`, whose memory is `memory`, for work on ``memory.stream``."""
        made = _core.empty_like(like, shape, dtype, memory.device)
        return made, self.memory(made)

    def finish(self, like: Any, result: Any) -> Any:
        """Make what :meth:`empty` made the caller's, once its writing is queued."""
        return result

    def split(self, result: Any) -> tuple[Any, Any]:
        """Take the two halves of a result of minima and maxima apart."""
        return result[0], result[1]

    def dtype(self, dtype: Any) -> Any:
        """Read the `dtype` argument: None, a name of ours or something for ``numpy.dtype``."""
        return dtype

    def assign(self, out: Any, result: Any) -> None:
        """Write ``result`` into ``out``, converted to its dtype as NumPy's ``unsafe`` casting does."""
        out[...] = result


class _Torch(Library):
    name = "PyTorch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._has_grad = torch.is_grad_enabled
        self._dtypes = {name: getattr(torch, name) for name in _core.DTYPES if hasattr(torch, name)}
        self._names = {dtype: name for name, dtype in self._dtypes.items()}
        self._raw_stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
        )
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            _core.know_torch(torch.Tensor, tuple(self._dtypes.get(name) for name in _core.DTYPES))

    def holds(self, a: Any) -> bool:
        return bool(a.is_cuda)

    def memory(self, a: Any) -> DeviceArray:
        if a.requires_grad and self._has_grad():
            raise TypeError("the tensor requires gradients, which a reduction would lose: pass a.detach()")
        if a.is_neg() or a.is_conj():
            a = a.resolve_neg().resolve_conj()
        try:
            found = _core.import_exchange(a)
            return found if found is not None else self._describe(a)
        except (RuntimeError, NotImplementedError, BufferError) as error:
            raise self._explain(a, error) from error

    def _describe(self, a: Any) -> DeviceArray:
        """The same without the C exchange API, which PyTorch has from 2.10 on."""
        if a.layout is not self._torch.strided:
            raise BufferError(f"its layout is {a.layout}")
        name = self._names.get(a.dtype)
        if name is None:
            raise TypeError(f"reducing a tensor of dtype {a.dtype} is not supported")
        device = a.device.index
        strides = tuple(step * a.element_size() for step in a.stride())
        return _core.device_array(a.data_ptr(), tuple(a.shape), strides, name, device, self._raw_stream(device), a)

    def _explain(self, a: Any, error: Exception) -> Exception:
        if getattr(a, "is_nested", False):
            kind = "nested tensors are not supported: reduce their parts, a.unbind()"
        elif a.layout is not self._torch.strided:
            kind = f"tensors of layout {a.layout} are not supported: pass a.to_dense(), or reduce a.values()"
        elif a.is_quantized:
            kind = "quantised tensors are not supported: pass a.dequantize() or a.int_repr()"
        else:
            kind = f"PyTorch does not show the tensor's memory: {error}"
        return TypeError(kind)

    def empty(self, like: Any, memory: DeviceArray, shape: tuple[int, ...], dtype: str) -> tuple[Any, DeviceArray]:
        # Not by the exchange API: PyTorch's record_stream knows nothing of tensors that came in through it.
        kind = self._dtypes.get(dtype)
        if kind is None:
            raise TypeError(f"PyTorch has no dtype {dtype}")
        made = like.new_empty(shape) if like.dtype is kind else like.new_empty(shape, dtype=kind)
        return made, _core.import_exchange(made) or self._describe(made)

    def dtype(self, dtype: Any) -> Any:
        if isinstance(dtype, self._torch.dtype):
            name = self._names.get(dtype)
            if name is None:
                raise TypeError(f"reducing to dtype {dtype} is not supported")
            return name
        return dtype

    def assign(self, out: Any, result: Any) -> None:
        out.copy_(result)


class _CuPy(Library):
    name = "CuPy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._empty = cupy.empty
        self._current_device = cupy.cuda.runtime.getDevice
        self._current_stream = cupy.cuda.get_current_stream
        _core.know_cupy(cupy.ndarray, self._empty, self._current_device, self._current_stream)

    def holds(self, a: Any) -> bool:
        return True

    def memory(self, a: Any) -> DeviceArray:
        data = a.data
        device = data.device_id
        stream = self._current_stream(device).ptr
        return _core.device_array(data.ptr, a.shape, a.strides, a.dtype, device, stream, a)

    def empty(self, like: Any, memory: DeviceArray, shape: tuple[int, ...], dtype: str) -> tuple[Any, DeviceArray]:
        if self._current_device() == memory.device:
            made = self._empty(shape, numpy_dtype(dtype))
        else:
            with self._cupy.cuda.Device(memory.device):
                made = self._empty(shape, numpy_dtype(dtype))
        return made, _core.device_array(made.data.ptr, shape, None, dtype, memory.device, memory.stream, made)

    def assign(self, out: Any, result: Any) -> None:
        with self._cupy.cuda.Device(out.data.device_id):
            self._cupy.copyto(out, result, casting="unsafe")


class _Borrowed(Library):
    """A library whose results are memory of ours, handed over by DLPack where it takes that."""

    converts = False

    def empty(self, like: Any, memory: DeviceArray, shape: tuple[int, ...], dtype: str) -> tuple[Any, DeviceArray]:
        assert memory.stream is not None
        made = DeviceBuffer(shape, dtype, memory.device, memory.stream)
        return made, made.memory

    def finish(self, like: Any, result: Any) -> Any:
        namespace = getattr(like, "__array_namespace__", None)
        from_dlpack = getattr(namespace(), "from_dlpack", None) if namespace is not None else None
        return result if from_dlpack is None else from_dlpack(result)

    def split(self, result: Any) -> tuple[Any, Any]:
        return result.halves() if isinstance(result, DeviceBuffer) else (result[0], result[1])


class _Interface(_Borrowed):
    """Any library by its CUDA array interface."""

    default_stream = LEGACY_STREAM
    """Where the interface names no stream: what it shows is ready, and this is what its users follow on."""

    def holds(self, a: Any) -> bool:
        return True

    def memory(self, a: Any) -> DeviceArray:
        return _core.import_cai(a.__cuda_array_interface__, a, self.default_stream)


class _Numba(_Interface):
    name = "Numba"

    def __init__(self, cuda: Any, per_thread: bool) -> None:
        self._cuda = cuda
        self.default_stream = PER_THREAD_STREAM if per_thread else LEGACY_STREAM

    def empty(self, like: Any, memory: DeviceArray, shape: tuple[int, ...], dtype: str) -> tuple[Any, DeviceArray]:
        with self._cuda.gpus[memory.device]:
            made = self._cuda.device_array(shape, numpy_dtype(dtype), stream=like.stream)
        return made, self.memory(made)

    def finish(self, like: Any, result: Any) -> Any:
        return result

    def split(self, result: Any) -> tuple[Any, Any]:
        # Not by indices: Numba copies a single element to the host.
        interface = result.__cuda_array_interface__
        start, shape = interface["data"][0], interface["shape"][1:]
        parts = []
        for half in (0, 1):
            data = start + half * math.prod(shape) * result.dtype.itemsize, False
            part = {**interface, "shape": shape, "strides": None, "data": data}
            parts.append(self._cuda.from_cuda_array_interface(part, owner=result, sync=False))
        return parts[0], parts[1]


class _DLPack(_Borrowed):
    """Any library by ``__dlpack__``: the producer makes a stream of ours wait for it."""

    lends = True

    def memory(self, a: Any) -> DeviceArray:
        stream = _core.device_stream(int(a.__dlpack_device__()[1]))
        try:
            capsule = a.__dlpack__(stream=stream, max_version=DLPACK_VERSION)
        except TypeError:  # from before there were versions
            capsule = a.__dlpack__(stream=stream)
        return _core.import_dlpack(capsule, stream)


class _Jax(_DLPack):
    name = "JAX"
    writes = False

    def __init__(self, jax: Any) -> None:
        from jax import dlpack

        self._tracer = jax.core.Tracer
        self._from_dlpack = dlpack.from_dlpack

    def holds(self, a: Any) -> bool:
        return not isinstance(a, self._tracer) and any(device.platform == "gpu" for device in a.devices())

    def finish(self, like: Any, result: Any) -> Any:
        return self._from_dlpack(result)


# ---------------------------------------------------------------- finding the adapter


def _make_torch(a: Any) -> Library | None:
    torch = sys.modules["torch"]
    return _Torch(torch) if isinstance(a, torch.Tensor) else None


def _make_cupy(a: Any) -> Library | None:
    cupy = sys.modules["cupy"]
    return _CuPy(cupy) if isinstance(a, cupy.ndarray) else None


def _make_numba(a: Any) -> Library | None:
    if not hasattr(a, "__cuda_array_interface__"):
        return None
    from numba import config, cuda

    return _Numba(cuda, bool(getattr(config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0)))


def _make_jax(a: Any) -> Library | None:
    jax = sys.modules.get("jax")
    return _Jax(jax) if jax is not None and isinstance(a, jax.Array) else None


_MAKERS: dict[str, Callable[[Any], Library | None]] = {
    "torch": _make_torch,
    "cupy": _make_cupy,
    "numba": _make_numba,
    "numba_cuda": _make_numba,
    "jax": _make_jax,
    "jaxlib": _make_jax,
}
_made: dict[Callable[[Any], Library | None], Library] = {}
_known: dict[type, Library] = {}
"""Array types of the libraries above. Types of others are looked at each time: keeping them would keep them alive."""
_EXCHANGE, _DLPACK, _INTERFACE = Library(), _DLPack(), _Interface()
_HOST_TYPES = (np.ndarray, np.generic, list, tuple, int, float, complex, range, memoryview)


def _find(a: Any, kind: type) -> Library | None:
    for base in kind.__mro__:
        maker = _MAKERS.get(base.__module__.partition(".")[0])
        if maker is None:
            continue
        library = _made.get(maker) or maker(a)
        if library is None:
            break
        _made[maker] = library
        if base is kind:
            _known[kind] = library
        return library
    if hasattr(a, "__dlpack_device__"):
        return _EXCHANGE if hasattr(kind, "__dlpack_c_exchange_api__") else _DLPACK
    return _INTERFACE if hasattr(a, "__cuda_array_interface__") else None


def device_library(a: Any) -> Library | None:
    """Find the adapter of an array in the memory of a CUDA device; None for everything else."""
    library = _known.get(type(a))
    if library is None:
        if isinstance(a, _HOST_TYPES):
            return None
        library = _find(a, type(a))
        if library is None:
            return None
    return library if library.holds(a) else None


def is_on_device(a: Any) -> bool:
    """Whether an object is an array in the memory of a CUDA device."""
    return device_library(a) is not None


def from_host(a: Any) -> np.ndarray[Any, Any]:
    """``numpy.asarray``, also of what has nothing but ``__dlpack__``, as some arrays in pinned memory."""
    if hasattr(a, "__dlpack__") and not hasattr(a, "__array__") and not hasattr(a, "__array_interface__"):
        return np.from_dlpack(a)
    return np.asarray(a)
