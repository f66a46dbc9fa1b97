"""Names of kernels for type checkers are those of the registry; typed_calls.py uses them."""

from __future__ import annotations

from typing import get_args

import kernel_names

import gpureduce as gr


def test_the_names_are_the_registrys() -> None:
    assert kernel_names.FILE.read_text() == kernel_names.text(), "run python tools/kernel_names.py"
    names = get_args(gr.KernelName)
    assert {info.name for info in gr.kernels()} <= set(names)
    assert len(names) == sum(1 + len(info.aliases) for info in gr.kernels())
    assert all(gr.kernel_source(name) for name in names)
