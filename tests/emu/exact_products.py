"""Exact variances and dot products on a machine with a GPU, which the emulator stands in for: the CPU makes them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpureduce as gr
from gpureduce import _core
from gpureduce._interop import DeviceBuffer

ALONE = "on the CPU alone: pass device='cpu'"


def expect(error: type[Exception], text: str, call: Any) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


def last_place() -> tuple[str, str]:
    run = gr.last_run()
    assert run is not None
    return run.device, run.kernel


def check_devices(task: dict[str, Any]) -> None:
    """Host arrays without a device, and device arrays."""
    del task
    values = np.array([1.0, 2.0, 4.0, 9.0])
    assert gr.sum(values, kernel="exact") == 16
    assert last_place() == ("cuda:0", "exact")
    for device in (None, "auto", "cpu"):
        assert gr.var(values, kernel="exact", device=device) == 9.5
        assert last_place() == ("cpu", "exact"), device
        assert gr.dot(values, values, device=device) == 102
    for name in ("var", "nanstd"):
        expect(ValueError, ALONE, lambda name=name: getattr(gr, name)(values, kernel="exact", device="cuda"))
    expect(ValueError, ALONE, lambda: gr.dot(values, values, device="cuda:0"))
    for rows in (np.zeros((3, 0)), values.reshape(2, 2)):
        expect(ValueError, ALONE, lambda rows=rows: gr.std(rows, axis=1, kernel="exact", device="cuda"))

    shown = DeviceBuffer((4,), "float64", 0, _core.device_stream(0))
    _core.upload(0, shown.memory.pointer, values)
    assert gr.sum(shown, kernel="exact") is not None
    expect(ValueError, ALONE, lambda: gr.var(shown, kernel="exact"))
    expect(TypeError, "Copy it to the host first", lambda: gr.dot(shown, shown))
    expect(TypeError, "Copy it to the host first", lambda: gr.dot(values, shown))
