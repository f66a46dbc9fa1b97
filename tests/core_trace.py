"""Record the functions of the core, and of the package, that a call calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def _called(call: Callable[[], Any], name_of: Callable[[Any, str, Any], str | None]) -> list[str]:
    """What `name_of` names of the events of a call, in order, after a first call like it."""
    names: list[str] = []

    def note(frame: Any, event: str, function: Any) -> None:
        name = name_of(frame, event, function)
        if name is not None:
            names.append(name)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def core_calls(call: Callable[[], Any]) -> list[str]:
    """Names of the core's functions that a call calls, in order, after a first call like it."""

    def name_of(_frame: Any, event: str, function: Any) -> str | None:
        is_core = getattr(function, "__module__", "") == "gpureduce._core"
        return function.__name__ if event == "c_call" and is_core else None

    return _called(call, name_of)


def package_frames(call: Callable[[], Any]) -> list[str]:
    """Names of the package's Python functions that a call calls, in order, after a first call."""

    def name_of(frame: Any, event: str, _argument: Any) -> str | None:
        is_ours = frame.f_globals.get("__name__", "").startswith("gpureduce")
        return frame.f_code.co_name if event == "call" and is_ours else None

    return _called(call, name_of)
