"""Several results of host arrays on a GPU: the emulator, or a GPU where there is one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from test_own_kernel_calls import emulated

SEED = int(os.environ["GPR_TEST_SEED"])
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
FIELDS = """
from gpureduce import _core
a = np.zeros((20, 30), [("x", "f4"), ("y", "f4"), ("z", "f4")])
for name in "xyz":
    a[name] = rng.normal(size=a.shape)
reduce, calls = _core.reduce, []
def counted(op, array, *more):
    calls.append(array.shape)
    return reduce(op, array, *more)
_core.reduce = counted
for name in ("sum", "max", "mean", "argmin"):
    calls.clear()
    function = getattr(gr, name)
    got = function(a, axis=1, device="cuda")
    assert calls == [(20, 30, 3)], calls
    for field in "xyz":
        alone = function(np.ascontiguousarray(a[field]), axis=1, device="cpu")
        assert np.array_equal(got[field], alone), (name, field)
for name in ("argmax", "sum"):
    got = getattr(gr, name)(a, device="cuda")
    for field in "xyz":
        assert got[field] == getattr(gr, name)(a[field], device="cpu"), (name, field)
calls.clear()
got = gr.sum(a, axis=0, where=a["x"] > 0, device="cuda", keepdims=True)
assert calls == [(20, 30, 3)] and got.shape == (1, 30)
assert np.array_equal(got["y"][0], gr.sum(a["y"], axis=0, where=a["x"] > 0, device="cpu"))
calls.clear()
mixed = np.zeros(7, [("x", "f8"), ("n", "i4")])
mixed["n"] = 3
assert gr.sum(mixed, device="cuda")["n"] == 21
assert calls == [(7,), (7,)], calls
"""


def run(code: str, tmp_path: Path) -> None:
    begin = f"rng = np.random.default_rng({SEED})\n"
    assert emulated(begin + code + "\nprint(json.dumps('done'))\n", tmp_path) == "done"


@needs_compiler
def test_interleaved_fields_are_one_launch(tmp_path: Path) -> None:
    run(FIELDS, tmp_path)
