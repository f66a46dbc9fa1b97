"""Interfaces of device arrays that anybody may write down: where they reach, and what else they
claim.

What an interface claims of memory is not true because it says so. Each of them is an array in the
memory of the device or an error, and never an access outside of allocations.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from conftest import EXAMPLES, SEED

import gpureduce as gr
from gpureduce import _core

EXTENTS = (0, 1, 1, 2, 3, 7, 1 << 31, 1 << 32, (1 << 62) + 1, (1 << 63) - 1)
STRIDES = (0, 4, -4, 8, -8, 12, 1 << 31, -(1 << 32), 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))
POINTERS = (4, 4096, 1 << 47, 1 << 63, (1 << 64) - 4096, (1 << 64) - 8, (1 << 64) - 4)
ITEM_BYTES = 4


def has_addresses(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether every element has an address, at most 2**63 - 1 bytes from the first."""
    if 0 in shape:
        return True
    reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    below = -sum(bytes_ for bytes_ in reach if bytes_ < 0)
    above = sum(bytes_ for bytes_ in reach if bytes_ > 0) + ITEM_BYTES - 1
    return max(below, above) < 1 << 63 and pointer >= below and pointer + above < 1 << 64


def test_arrays_are_taken_if_every_element_has_an_address(rng: np.random.Generator) -> None:
    draw = random.Random(int(rng.integers(1 << 32)))
    for _ in range(20_000):
        ndim = draw.choice((0, 1, 1, 2, 2, 3, 4, 64))
        shape = tuple(draw.choice(EXTENTS) for _ in range(ndim))
        strides = tuple(draw.choice(STRIDES) for _ in range(ndim))
        pointer = draw.choice(POINTERS)
        try:
            array = _core.device_array(pointer, shape, strides, "float32", 0, None, None)
        except ValueError:
            taken = False
        else:
            taken = True
            _core.may_overlap(array, array)
        expected = has_addresses(pointer, shape, strides)
        assert taken == expected, (pointer, shape, strides)


@pytest.mark.parametrize("device", [-1, 1 << 31, 1 << 32, (1 << 63) - 1])
def test_numbers_of_devices_are_not_cut(device: int) -> None:
    with pytest.raises(ValueError, match=f"device {device}, which cannot be"):
        _core.device_array(4096, (3,), None, "float32", device, None, None)


def test_contiguous_arrays_have_at_most_so_many_bytes() -> None:
    for shape in itertools.permutations((3, 1 << 31, 1 << 31)):
        with pytest.raises(ValueError, match="more than 2\\^63 - 1 bytes"):
            _core.device_array(4096, shape, None, "float32", 0, None, None)


# ---------------------------------------------------------------- lying interfaces


@pytest.mark.parametrize("protocol", ["interface", "dlpack", "exchange"])
def test_interfaces_that_lie_are_errors(protocol: str, tmp_path: Path) -> None:
    fakes.run(
        f"import test_extents as t; t.lie({protocol!r})",
        tmp_path,
        PYTHONPATH=fakes.module_path("interop"),
        GPR_TEST_SEED=str(SEED),
        timeout=60 + EXAMPLES,
    )


REFUSALS = (BufferError, MemoryError, OverflowError, TypeError, ValueError)
"""What a caller of NumPy's functions expects of bad arrays."""
MOST_ELEMENTS = 10_000
ROOM = 8192  # bytes of the allocation that is lied about
ADDRESSES = (0, 1, 4096, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1)
DTYPES = ("int8", "uint16", "int32", "int64", "bool", "float32", "complex64")
GARBAGE: tuple[Any, ...] = (
    None, -1, 0, 1, 2.5, 1 << 63, 1 << 64, -(1 << 70), "x", "", b"<f4", (), (1,), ("a",), [1],
    (None, None), (1 << 70, False), {}, object(), float("nan"), True,
)  # fmt: skip


def lie(protocol: str) -> None:
    """Reduce arrays whose interface lies, in a process over the fakes."""
    from fakes import array_libraries as libraries

    draw = random.Random(SEED)
    memory = libraries.Memory(np.random.default_rng(SEED).integers(0, 2, ROOM, dtype=np.uint8))
    tell = {"interface": tell_interface, "dlpack": tell_dlpack, "exchange": tell_exchange}
    taken = refused = 0
    for _ in range(10 * EXAMPLES):
        told = Told(draw, memory.start)
        is_spoiled = draw.random() < 0.3
        array = tell[protocol](draw, told, is_spoiled)
        if told.may_read_again() if is_spoiled else told.reads_again():
            continue
        refusal = found = None
        try:
            found = gr.count_nonzero(array)
        except REFUSALS as error:
            refusal = error
        refused += refusal is not None
        taken += refusal is None
        assert refusal is None or str(refusal), f"{refusal!r} of {told}"
        if is_spoiled or 0 in told.shape:
            continue
        assert told.is_allocated() == (refusal is None), f"{told}: {refusal!r}"
        if refusal is None:
            assert libraries.value(found) == np.count_nonzero(told.read()), str(told)
    libraries.settle()
    assert taken > 0, "no array was taken"
    assert refused > 0, "no array was refused"


class Told:
    """What an interface tells of an array, in or near the allocation."""

    def __init__(self, draw: random.Random, start: int) -> None:
        self.dtype = np.dtype(draw.choice(DTYPES))
        size = self.dtype.itemsize
        far, kinds = draw.random() < 0.2, (0, 1, 2, 3, 5, 8)
        self.shape = tuple(draw.choice(EXTENTS if far else kinds) for _ in range(draw.randrange(4)))
        self.strides = tuple(
            draw.choice(STRIDES) // 4 * size if far else size * draw.randrange(-40, 41)
            for _ in self.shape
        )
        offset = draw.choice((0, ROOM - size, size * draw.randrange(-64, ROOM // size + 64)))
        self.pointer = draw.choice(ADDRESSES) if draw.random() < 0.1 else start + offset

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape} by {self.strides} at {self.pointer:#x}"

    def reads_again(self) -> bool:
        """Whether a library that takes it reads few bytes so often that it takes long."""
        return math.prod(self.shape) > MOST_ELEMENTS and self.is_allocated()

    def may_read_again(self) -> bool:
        """Whether it may do so with other items, fewer axes or at another address."""
        most_bytes = 8 * ROOM  # of items that may be an eighth of these
        again = [
            extent
            for extent, stride in zip(self.shape, self.strides, strict=True)
            if extent and (extent - 1) * abs(stride) < most_bytes
        ]
        return math.prod(again) > MOST_ELEMENTS

    def ends(self) -> tuple[int, int]:
        """Addresses of the first byte and of the last one."""
        reach = [
            (extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)
        ]
        below, above = (sum(one for one in reach if (one < 0) == low) for low in (True, False))
        return self.pointer + below, self.pointer + above + self.dtype.itemsize - 1

    def is_allocated(self) -> bool:
        """Whether the driver knows both ends, and elements may be read there."""
        if not all(-(1 << 63) <= stride < 1 << 63 for stride in self.strides):
            return False
        first, last = self.ends()
        if self.pointer % self.dtype.itemsize or first < 0 or last >= 1 << 64:
            return False
        return all(is_on_device(end) for end in self.ends())

    def read(self) -> Any:
        """The elements, which the host can read with the fakes."""
        first, last = self.ends()
        room = (ctypes.c_char * (last - first + 1)).from_address(first)
        return np.ndarray(self.shape, self.dtype, room, self.pointer - first, self.strides)


def is_on_device(address: int) -> bool:
    from fakes.array_libraries import driver

    kind, result = ctypes.c_uint(), ctypes.c_int(2)  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    values = (ctypes.c_void_p * 1)(ctypes.addressof(kind))
    done = driver.cuPointerGetAttributes(1, ctypes.byref(result), values, ctypes.c_uint64(address))
    on_device = 2  # CU_MEMORYTYPE_DEVICE
    return done == 0 and kind.value == on_device


def tell_interface(draw: random.Random, told: Told, is_spoiled: bool) -> Any:
    entries: dict[str, Any] = {
        "shape": told.shape,
        "typestr": told.dtype.str,
        "data": (told.pointer, False),
        "strides": told.strides,
        "version": 3,
        "stream": None,
    }
    for name in draw.sample(sorted(entries), draw.randrange(1, 3)) if is_spoiled else ():
        entries[name] = draw.choice(GARBAGE)
        if draw.random() < 0.2:
            del entries[name]
    shown = entries if not is_spoiled or draw.random() < 0.9 else draw.choice(GARBAGE)
    return type("Lies", (), {"__cuda_array_interface__": shown})()


def spoil(draw: random.Random, told: Told, tensor: Any, keep: list[Any], is_spoiled: bool) -> None:
    """Describe the array in a tensor of DLPack's, or something else that fits the structure."""
    from fakes.array_libraries import CODES, CUDA, Device, Type

    numbers = ctypes.c_int64 * 64  # as many axes as there may be: more is never read
    shape, strides = numbers(*told.shape), numbers(*told.strides)
    for axis, stride in enumerate(told.strides):
        strides[axis] = stride // told.dtype.itemsize
    keep += [shape, strides]
    pointer = ctypes.POINTER(ctypes.c_int64)
    offset = draw.choice((0, 8, 4096)) if told.pointer > ROOM else 0
    tensor.data, tensor.byte_offset = told.pointer - offset or None, offset
    tensor.device, tensor.ndim = Device(CUDA, 0), len(told.shape)
    name = told.dtype.name.rstrip("0123456789")
    tensor.dtype = Type(CODES[name], 8 * told.dtype.itemsize, 1)
    tensor.shape, tensor.strides = ctypes.cast(shape, pointer), ctypes.cast(strides, pointer)
    if not is_spoiled:
        return
    lies: dict[str, Any] = {
        "data": draw.choice([one for one in ADDRESSES if one] + [None]),
        "byte_offset": draw.choice(ADDRESSES),
        "device": Device(draw.choice((0, 1, 2, 3, 13, 14, -1)), draw.choice((0, 1, -1, 1 << 30))),
        "ndim": draw.choice((-1, 0, 1, 64, 65, (1 << 31) - 1, -(1 << 31))),
        "dtype": Type(*(draw.randrange(256) for _ in range(2)), draw.choice((0, 1, 2, 65535))),
        "shape": None,
        "strides": None,
    }
    for name in draw.sample(sorted(lies), draw.randrange(1, 3)):
        setattr(tensor, name, lies[name])


def tell_dlpack(draw: random.Random, told: Told, is_spoiled: bool) -> Any:
    from fakes.array_libraries import Producer

    keep: list[Any] = []
    made = Producer(
        np.zeros(1, np.int8),
        versions=draw.random() < 0.7,
        major=draw.choice((0, 1, 2, 1 << 31)) if is_spoiled and draw.random() < 0.3 else 1,
        flags=draw.randrange(1 << 16) if is_spoiled else 0,
        change=lambda tensor: spoil(draw, told, tensor, keep, is_spoiled),
    )
    made.alive.append(keep)
    return made


def tell_exchange(draw: random.Random, told: Told, is_spoiled: bool) -> Any:
    """A type with a DLPack C exchange API of some version, and ``__dlpack__`` beside it."""
    from fakes.array_libraries import Exchange, Producer, new_capsule, offer

    class Exchanges(Producer):
        current = 0

        def __init__(self, values: Any, device: int = 0, **more: Any) -> None:
            super().__init__(values, device=device, **more)

    made = Exchanges(np.zeros(1, np.int8), change=lambda t: spoil(draw, told, t, keep, is_spoiled))
    keep: list[Any] = made.alive
    offer(Exchanges, views=draw.random() < 0.7, older=draw.random() < 0.3)
    if is_spoiled:
        kind = draw.randrange(4)
        room = ctypes.create_string_buffer(ctypes.sizeof(Exchange))
        room[0:4] = draw.choice((0, 1, 2, 1 << 31)).to_bytes(4, "little")
        keep.append(room)
        Exchanges.__dlpack_c_exchange_api__ = (  # type: ignore[attr-defined]
            draw.choice(GARBAGE),
            new_capsule(ctypes.addressof(room), b"dlpack_exchange_api", None),
            new_capsule(ctypes.addressof(room), b"another", None),
            Exchanges.__dlpack_c_exchange_api__,  # type: ignore[attr-defined]
        )[kind]
    return made
