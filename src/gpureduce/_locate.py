"""Finding NVRTC and CUB's headers where pip put them.

The C library knows the dynamic linker's path and the usual toolkit folders. Wheels keep their files
inside site-packages, which is ``cuda-pathfinder``'s business. The glue calls :func:`locate` before
the first work on a GPU and never before, so neither import nor the CPU backend pays for it.
"""

from __future__ import annotations

import importlib.machinery
from pathlib import Path

from . import _core


def emulator() -> Path | None:
    """Say where the emulator is: the library that stands in for libcuda and NVRTC, built with the package."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_emulator{suffix}")
        if path.exists():
            return path
    return None


def locate() -> None:
    """Tell the C library where NVRTC and the CCCL headers are, if ``cuda-pathfinder`` knows.

    What is not found is left to the library's own search, whose error says what to install.
    """
    try:
        from cuda import pathfinder
    except ImportError:
        return
    try:
        nvrtc = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except RuntimeError:  # DynamicLibNotFoundError and its kin: not installed, or not for this machine
        nvrtc = None
    if nvrtc is not None:
        _core.set_nvrtc_path(nvrtc)
    headers = pathfinder.find_nvidia_header_directory("cccl")
    if headers is not None:
        _core.set_cccl_path(headers)
