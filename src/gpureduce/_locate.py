"""Find NVRTC and CUB's headers where pip installed them.

The C library searches the dynamic linker's path and the usual folders of toolkits.
``cuda-pathfinder`` finds files inside site-packages. The glue calls :func:`locate` before the first
work on a GPU, so that neither the import nor the CPU backend pays for it.
"""

from __future__ import annotations

import importlib.machinery
from pathlib import Path

from . import _core


def emulator() -> Path | None:
    """Path of the emulator: a library built with the package, in place of libcuda and NVRTC."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_emulator{suffix}")
        if path.exists():
            return path
    return None


def locate() -> None:
    """Pass the places of NVRTC and the CCCL headers to the C library, if ``cuda-pathfinder`` finds
    them.

    What is not found is left to the library's own search, whose error names what to install.
    """
    try:
        from cuda import pathfinder
    except ImportError:
        return
    try:
        nvrtc = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except (
        RuntimeError
    ):  # DynamicLibNotFoundError and others: not installed, or not for this machine
        nvrtc = None
    if nvrtc is not None:
        _core.set_nvrtc_path(nvrtc)
    headers = pathfinder.find_nvidia_header_directory("cccl")
    if headers is not None:
        _core.set_cccl_path(headers)
