"""Array libraries in miniature, over device memory of the fake driver, which the host can read.

Each shows its arrays by one of the ways there are: DLPack capsules, DLPack's C exchange API, the
CUDA array interface, or as one of the real libraries does (under its name in ``sys.modules``). All
count what was lent and given back.
"""

from __future__ import annotations

import copy
import ctypes
import os
import sys
import time
import types
import weakref
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from gpureduce import _core

CUDA, HOST, PINNED, MANAGED = 2, 1, 3, 13
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
UNREDUCED = {
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
    "float4_e2m1fn": (17, 4),
    "int4": (0, 4),
    "uint2": (1, 2),
    "complex32": (5, 32),
    "float128": (2, 128),
}
"""DLPack's codes and bits of dtypes that are not reduced."""

driver = ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"])


# ---------------------------------------------------------------- memory and streams


def settle() -> None:
    """Wait until nothing is under way on any stream."""
    while driver.fake_busy():
        time.sleep(0.001)


def dawdle(microseconds: int, seed: int = 1) -> None:
    """Let every operation of every stream take up to so long."""
    driver.fake_set_delays(seed, microseconds)


def make_stream(device: int = 0) -> int:
    """A stream that is not the library's."""
    context, popped, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(popped)) == 0
    assert stream.value
    return stream.value


class Memory:
    """Device memory with a NumPy array's bytes; `values` is the view of it that is lent."""

    def __init__(self, values: np.ndarray, device: int = 0, dtype: str | None = None) -> None:
        base = values
        while isinstance(base.base, np.ndarray):
            base = base.base
        base = base if base.size else values
        low, high = byte_bounds(base) if base.size else (0, 0)
        self.pointer = _core.alloc_device(device, high - low)
        if base.size:
            as_bytes = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
            _core.upload(device, self.pointer, as_bytes)
        self.start = self.pointer + values.ctypes.data - low if base.size else 0
        self.device, self.shape, self.strides = device, values.shape, values.strides
        self.numpy_dtype = values.dtype
        self.dtype = dtype or values.dtype.name
        self.end = weakref.finalize(self, _core.free_device, device, self.pointer)

    def transposed(self, axes: tuple[int, ...]) -> Memory:
        """The same memory with its axes in another order."""
        view = copy.copy(self)
        view.whole = self  # type: ignore[attr-defined]
        view.shape = tuple(self.shape[axis] for axis in axes)
        view.strides = tuple(self.strides[axis] for axis in axes)
        return view

    def read(self) -> np.ndarray:
        """What is there once all work is done."""
        return read(self.start, self.shape, self.strides, self.numpy_dtype)


def read(
    pointer: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any
) -> np.ndarray:
    """Copy an array out of device memory once all work is done."""
    settle()
    dtype = np.dtype(dtype)
    if 0 in shape:
        return np.empty(shape, dtype)
    if strides is None:
        strides = np.empty(shape, dtype).strides
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    high = (
        sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step > 0)
        + dtype.itemsize
    )
    memory = (ctypes.c_char * (high - low)).from_address(pointer + low)
    return np.ndarray(shape, dtype, memory, -low, strides).copy()


def value(result: Any) -> Any:
    """A result as NumPy has it."""
    view = result if isinstance(result, _core.DeviceArray) else memory_of(result)
    return read(view.pointer, view.shape, view.strides, view.dtype)[()]


def memory_of(result: Any) -> Any:
    """Where a result of any of the libraries here is."""
    for attribute in ("memory", "held"):
        if hasattr(result, attribute):
            found = getattr(result, attribute)
            return found if isinstance(found, _core.DeviceArray) else by_hand(found)
    raise TypeError(type(result).__name__)


def by_hand(memory: Memory) -> Any:
    return _core.device_array(
        memory.start, memory.shape, memory.strides, memory.dtype, memory.device, None, memory
    )


def fill(memory: Memory, stream: int, *numbers: float) -> None:
    """Have a stream write float32 numbers to all elements, one number after the other."""
    for number in numbers:
        _core.fill_device(by_hand(memory), np.float32(number).tobytes(), stream)


def lend_late(lend: Any, *numbers: float) -> tuple[Any, int]:
    """500 elements, which a stream is still writing when they are lent; and the stream."""
    stream = make_stream()
    array = lend(np.zeros(500, np.float32), stream=stream)
    fill(array.held, stream, *numbers)
    return array, stream


# ---------------------------------------------------------------- DLPack


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    _fields_ = [("dl_tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", DELETER)]


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", Tensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_name = ctypes.pythonapi.PyCapsule_GetName
capsule_name.restype = ctypes.c_char_p
capsule_name.argtypes = [ctypes.py_object]


def fill_tensor(
    tensor: Tensor,
    memory: Memory,
    kind: int = CUDA,
    compact: bool = False,
    keep: list | None = None,
) -> None:
    """Describe an array; `keep` holds what the description points to."""
    ndim = len(memory.shape)
    name = memory.dtype.rstrip("0123456789")
    itemsize = memory.numpy_dtype.itemsize
    shape = (ctypes.c_int64 * max(ndim, 1))(*memory.shape)
    strides = (ctypes.c_int64 * max(ndim, 1))(*(step // itemsize for step in memory.strides))
    tensor.data = memory.start or None
    tensor.device = Device(kind, memory.device)
    tensor.ndim = ndim
    tensor.byte_offset = 0
    tensor.dtype = Type(*UNREDUCED.get(memory.dtype, (CODES.get(name), 8 * itemsize)), 1)
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = None if compact else ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    if keep is not None:
        keep += [shape, strides]


LENT: list[Any] = []
"""Structures, which outlive their return: the deleter is running in one of them then."""


class Producer:
    """A library with ``__dlpack__``. `change` may spoil each tensor before it is lent."""

    def __init__(
        self,
        values: np.ndarray,
        *,
        device: int = 0,
        dtype: str | None = None,
        versions: bool = True,
        kind: int = CUDA,
        compact: bool = False,
        flags: int = 0,
        major: int = 1,
        change: Any = None,
        stream: int | None = None,
    ) -> None:
        self.held = Memory(values, device, dtype)
        self.versions, self.kind, self.compact, self.flags, self.major = (
            versions,
            kind,
            compact,
            flags,
            major,
        )
        self.change, self.stream = change, stream
        self.lent = self.returned = 0
        self.asked: list[int] = []
        self.alive: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.held.device

    def __dlpack__(self, *, stream: int | None = None, **more: Any) -> Any:
        if not self.versions and more:
            raise TypeError("unexpected keyword arguments")
        assert stream is not None
        self.asked.append(stream)
        if self.stream is not None:
            _core.order_streams(self.held.device, self.stream, stream)
        made: Any = Versioned() if self.versions else Legacy()
        fill_tensor(made.dl_tensor, self.held, self.kind, self.compact, self.alive)
        if self.versions:
            made.version, made.flags = Version(self.major, 0), self.flags
        if self.change is not None:
            self.change(made.dl_tensor)
        record = [self]  # a producer lives until it has everything back

        def take_back(_: Any) -> None:
            record.pop().returned += 1

        made.deleter = DELETER(take_back)
        LENT.append((made, made.deleter))
        self.lent += 1
        name = b"dltensor_versioned" if self.versions else b"dltensor"
        return new_capsule(ctypes.addressof(made), name, None)


# ---------------------------------------------------------------- the CUDA array interface


class Shown:
    """A library with ``__cuda_array_interface__``; `more` replaces entries, ``drop`` omits."""

    def __init__(
        self, values: np.ndarray, *, device: int = 0, drop: tuple[str, ...] = (), **more: Any
    ) -> None:
        self.held = Memory(values, device)
        self.entries: dict[str, Any] = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.held.start, False),
            "strides": None if values.flags.c_contiguous else values.strides,
            "stream": None,
            "version": 3,
            **more,
        }
        for name in drop:
            del self.entries[name]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.entries


# ---------------------------------------------------------------- the C exchange API


class Header(ctypes.Structure):
    pass


Header._fields_ = [("version", Version), ("prev_api", ctypes.POINTER(Header))]
OBJECT = ctypes.py_object
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Tensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_void_p,
)
FROM = ctypes.PYFUNCTYPE(ctypes.c_int, OBJECT, ctypes.POINTER(ctypes.c_void_p))
TO = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, OBJECT, ctypes.POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        ("allocate", ALLOCATE),
        ("take", FROM),
        ("give", TO),
        ("view", VIEW),
        ("stream", STREAM),
    ]


class Exchanged:
    """A library with the C exchange API on its type; :func:`offer` puts it there."""

    current = 0
    kind = CUDA

    def __init__(self, values: np.ndarray, device: int = 0, dtype: str | None = None) -> None:
        self.held = Memory(values, device, dtype)
        self.alive: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.held.device


def offer(
    kind: type, *, views: bool = True, major: int = 1, older: bool = False, fails: bool = False
) -> None:
    """Give a type its ``__dlpack_c_exchange_api__``."""
    counts = kind.counts = {"view": 0, "take": 0, "returned": 0, "made": 0}  # type: ignore[attr-defined]
    alive: list[Any] = []

    def describe(tensor: Any, array: Any) -> None:
        fill_tensor(tensor, array.held, array.kind, keep=array.alive)
        change = getattr(array, "change", None)
        if change is not None:
            change(tensor)

    def view(array: Any, tensor: Any) -> int:
        if fails:
            return -1
        counts["view"] += 1
        describe(tensor.contents, array)
        return 0

    def take_back(_: Any) -> None:
        counts["returned"] += 1

    def take(array: Any, out: Any) -> int:
        counts["take"] += 1
        made = Versioned(version=Version(1, 3), deleter=DELETER(take_back))
        describe(made.dl_tensor, array)
        alive.extend([made, array, made.deleter])
        out[0] = ctypes.addressof(made)
        return 0

    def allocate(prototype: Any, out: Any, _: Any, __: Any) -> int:
        like = prototype.contents
        shape = tuple(like.shape[i] for i in range(like.ndim))
        name = next(key for key, code in CODES.items() if code == like.dtype.code)
        dtype = name if name == "bool" else f"{name}{like.dtype.bits}"
        made = kind(np.zeros(shape, dtype), like.device.device_id)
        counts["made"] += 1
        return take(made, out)

    def give(tensor: Any, out: Any) -> int:
        array = next(
            b
            for a, b, _ in zip(alive, alive[1:], alive[2:], strict=False)
            if isinstance(a, Versioned) and ctypes.addressof(a) == tensor
        )
        ctypes.pythonapi.Py_IncRef(OBJECT(array))
        out[0] = id(array)
        return 0

    def stream(_: Any, __: Any, out: Any) -> int:
        out[0] = kind.current or None  # type: ignore[attr-defined]
        return 0

    api = Exchange(
        Header(Version(major, 3), None),
        ALLOCATE(allocate),
        FROM(take),
        TO(give),
        VIEW(view),
        STREAM(stream),
    )
    if not views:
        ctypes.memset(
            ctypes.addressof(api) + Exchange.view.offset, 0, ctypes.sizeof(ctypes.c_void_p)
        )
    if older:
        newer = Exchange(Header(Version(major + 1, 0), ctypes.pointer(api.header)))
        alive.append(newer)
        address = ctypes.addressof(newer)
    else:
        address = ctypes.addressof(api)
    kind.api = api, alive  # type: ignore[attr-defined]
    kind.__dlpack_c_exchange_api__ = new_capsule(address, b"dlpack_exchange_api", None)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the real libraries' ways


def install(name: str, **members: Any) -> types.ModuleType:
    """Put a module of that name where imports find it."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module
