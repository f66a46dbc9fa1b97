"""The CPU backend takes the best instruction set that the processor has, whatever has linked it."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from gpureduce import _core

AVX2 = {"avx", "avx2", "f16c", "fma"}
AVX512 = {"avx512bw", "avx512dq", "avx512f", "avx512vl"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there is one set of other processors")
def test_the_best_instruction_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Linux lists what it saves the registers of, too.
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert found is not None
    flags = set(found[1].split())
    best = "baseline"
    if flags >= AVX2:
        best = "avx512" if flags >= AVX512 else "avx2"
    monkeypatch.delenv("GPUREDUCE_CPU_ISA", raising=False)
    _core.set_cpu_isa(None)
    assert _core.cpu_isa() == best
