"""GPUs that users' own kernels and operators run on: which one, and what all of them share."""

from __future__ import annotations

from .. import _core
from .._records import DeviceInfo, devices
from .shared_header import constants

__all__ = ["MOST_BLOCKS", "RESIDENT_THREADS", "cooperative_blocks", "find_device", "is_emulated"]

MOST_BLOCKS = 2**31 - 1
"""Most blocks of a grid."""
RESIDENT_THREADS = 2048
"""Most threads that a multiprocessor of any GPU holds: blocks that loop fill them."""
_EMULATED_NVRTC = 1_000_000
"""Versions from this one on are the emulator's (csrc/emu/compiler.c)."""


def cooperative_blocks(block: int) -> int:
    """Blocks of so many threads that a multiprocessor of any GPU holds at once, if their kernel has
    launch bounds.
    """
    of = constants("tuning.h")
    return max(1, min(of["GPR_RESIDENT_THREADS"] // block, of["GPR_LEAST_BLOCK_PLACES"]))


def find_device(ordinal: int) -> DeviceInfo:
    """The GPU of that number; ``ValueError`` if there is none."""
    for each in devices():
        if each.ordinal == ordinal:
            return each
    raise ValueError(f"there is no device cuda:{ordinal}")


def is_emulated() -> bool:
    """Whether the emulator stands in for NVRTC."""
    return _core.cuda_versions()[1] >= _EMULATED_NVRTC
