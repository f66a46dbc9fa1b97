"""Where device arrays reach, of shapes and strides that anybody may write down."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

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
