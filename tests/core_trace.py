"""Record the functions of the core, and of the package, that a call calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def core_calls(call: Callable[[], Any]) -> list[str]:
    """Names of the core's functions that a call calls, in order, after a first call like it."""
    names: list[str] = []

    def note(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and getattr(function, "__module__", "") == "gpureduce._core":
            names.append(function.__name__)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def package_frames(call: Callable[[], Any]) -> list[str]:
    """Names of the package's Python functions that a call calls, in order, after a first call."""
    names: list[str] = []

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("gpureduce"):
            names.append(frame.f_code.co_name)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names
