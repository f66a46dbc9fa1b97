"""Kernels compile with the oldest NVRTC that the library takes, as with the newest.

Extra ``cu13`` installs the newest NVRTC, and every other test compiles with it. It accepts what
older ones refuse, a builtin for ``offsetof`` for example. Extra ``oldest-nvrtc``, which ``test``
includes, pins the oldest one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from draws import EVERYTHING, SEED, some
from nvrtc_versions import oldest_nvrtc

pytestmark = pytest.mark.long

# One program per family, which together include most files of csrc/kernels and all that the library
# shares with kernels: a call of _core each. An ordinary run draws half of them.
PROGRAMS = (
    'compile_program("sequential", "sum", "float32", None, 0, 90)',
    'compile_program("fast", "sum", "float32", None, 0, 90, 0)',  # fast_stream
    'compile_program("fast", "argmax", "int64", None, 0, 90, 1)',  # fast_rows
    'compile_program("exact", "sum", "float32", None, 0, 90, 0)',
    # mbarriers, new in PTX 8.0
    'compile_program("bulk_copy", "sum", "float32", None, 0, 90)',
    'compile_program("cluster", "max", "int8", None, 0, 90)',
    'compile_program("cooperative", "var", "float64", None, 0, 75)',
    'compile_program("exact", "var", "int32", None, 0, 90, 1)',  # exact_moments_strided
    'compile_dot("float64", "float64", "float64", None, 0, 90)',
    'compile_dot_along("float64", "float64", "float64", None, 1, False, True, 0, 90)',
    'compile_dot_along("complex64", "float32", "complex64", None, 0, True, False, 0, 90)',
)
CALLS = "\n".join(f"_core.{call}" for call in some(PROGRAMS, 1 / 2, "oldest NVRTC"))
WAYS = (
    ("sum", "uint8", (1 << 22, 2), (1, 1 << 22)),
    ("max", "int16", (1 << 22, 3), (1, 1 << 22)),
    ("sum", "float32", (1 << 20, 2), (1, 1 << 20)),
    ("argmin", "float16", (1 << 20, 7), (7, 1)),
    ("var", "int8", (250, 4609), (1, 251)),
)
"""Operator, dtype, and the shape and steps in elements with the reduced axis last."""
SHARE_OF_WAYS = 12 if EVERYTHING else 24  # a run compiles one of so many, in turn
FIRST_WAY = 1 + SEED % SHARE_OF_WAYS
SCRIPT = f"""
import numpy as np
from gpureduce import _core
from gpureduce._yours.exponentials import LOGSUMEXP
from gpureduce._yours.operator_device_program import OPTIONS
from gpureduce._yours.operator_gpu import gpu_text
from gpureduce._yours.operator_text import OperatorTypes
WAYS = {WAYS}
{CALLS}
# An operator, by the kernels of operators.
types = OperatorTypes(np.dtype("float32"), np.dtype("float32"), True)
text, entries = gpu_text(LOGSUMEXP.text, types, 256, emulated=False)
_core.compile_text("operator", text, entries, OPTIONS, 90)
# A share of the ways to read an array whose columns have few elements, or whose rows are short.
facts = _core.typical_facts(90)
for op, dtype, shape, strides in WAYS:
    dtype = np.dtype(dtype)
    strides = tuple(step * dtype.itemsize for step in strides)
    count = len(_core.price_ways(op, shape, dtype, 1, facts, strides))
    for way in range({FIRST_WAY}, 1 + count, {SHARE_OF_WAYS}):
        _core.warm(op, shape, dtype, 1, "fast", facts, way, strides=strides)
    _core.warm(op, shape, dtype, 1, "auto", facts, strides=strides)
assert "libnvrtc.so.12" in open("/proc/self/maps").read()
"""


def test_a_program_of_every_family_compiles_with_the_oldest_nvrtc(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "GPUREDUCE_LIBNVRTC": oldest_nvrtc(),
        "GPUREDUCE_CACHE_DIR": str(tmp_path),
    }
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300
    )
    assert child.returncode == 0, child.stderr
