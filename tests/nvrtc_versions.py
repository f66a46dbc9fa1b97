"""The oldest NVRTC that the library takes, which an extra installs beside the newest."""

from __future__ import annotations

import importlib.metadata

import pytest

OLDEST = "12.0"  # OLDEST_NVRTC of csrc/lib/driver/nvrtc.c


def oldest_nvrtc() -> str:
    """Path of the NVRTC of extra ``oldest-nvrtc``; skips the test where it is not installed."""
    name = "nvidia-cuda-nvrtc-cu12"
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} {OLDEST} is not installed, or not made for this machine")
    if not installed.startswith(f"{OLDEST}."):
        pytest.skip(f"{name} is {installed}, not {OLDEST}")
    files = importlib.metadata.files(name) or []
    return str(next(file.locate() for file in files if file.name == "libnvrtc.so.12"))
