"""Names of kernels for type checkers are those of the registry; typed_calls.py uses them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import gpureduce as gr

TOOL = Path(__file__).parents[2] / "tools" / "kernel_names.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel_names", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_names_are_the_registrys(tool: ModuleType) -> None:
    assert tool.FILE.read_text() == tool.text(), "run python tools/kernel_names.py"
    names = get_args(gr.KernelName)
    assert {info.name for info in gr.kernels()} <= set(names)
    assert len(names) == sum(1 + len(info.aliases) for info in gr.kernels())
    assert all(gr.kernel_source(name) for name in names)
