"""Several results of host arrays on a GPU: the emulator, or a GPU where there is one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from draws import SEED
from test_own_kernel_calls import emulated

import gpureduce as gr
from gpureduce import _core
from gpureduce._yours.exponentials import LOGSUMEXP
from gpureduce._yours.operator_device_program import OPTIONS
from gpureduce._yours.operator_gpu import gpu_text
from gpureduce._yours.operator_text import OperatorTypes

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


EXPONENTIALS = """
from gpureduce import _core
from gpureduce._interop.libraries import from_host
def near(found, wanted, rounding):
    found, wanted = np.asarray(found, "f8"), np.asarray(wanted, "f8")
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    same = (found == wanted) | ((found != found) & (wanted != wanted))
    with np.errstate(invalid="ignore"):
        small = np.abs(found - wanted) <= rounding * (20 + 4 * np.abs(wanted))
    assert np.all(same | small), (found, wanted)
for dtype, rounding in (("f8", 2.0**-53), ("f4", 2.0**-24), ("f2", 2.0**-11), ("i4", 2.0**-53)):
    for shape, axis in (((700,), None), ((9, 40), 1), ((40, 9), 0), ((4, 5, 6), (0, 2))):
        x = (rng.normal(size=shape) * 10).astype(dtype)
        if dtype == "f8":
            x *= 10.0 ** rng.integers(0, 12)
        got = gr.logsumexp(x, axis, device="cuda")
        assert got.dtype == (x.dtype if x.dtype.kind == "f" else np.float64)
        near(got, gr.logsumexp(x, axis, device="cpu"), rounding)
        mask = rng.random(shape) < 0.5
        near(gr.logsumexp(x, axis, where=mask, keepdims=True, device="cuda"),
             gr.logsumexp(x, axis, where=mask, keepdims=True, device="cpu"), rounding)
inf, nan = float("inf"), float("nan")
for x in ([], [-inf] * 3, [inf, -inf], [nan, inf, 1.0], [1e300, 1e300], [0.0, -500.0],
          [-1e-20, -500.0], [-(2.0**20) - 0.5, -(2.0**20) + 0.5, -(2.0**20) - 1],
          [2.0**20, 2.0**20 + 1],
          [-5000.0, -5001.0], list(np.arange(300) * 0.01)):
    near(gr.logsumexp(x, device="cuda"), gr.logsumexp(x, device="cpu"), 2.0**-53)
x = rng.normal(size=50).astype("f4")
assert gr.logsumexp(x, dtype="f8", device="cuda").dtype == np.float64
near(gr.logsumexp(x, dtype="f8", device="cuda"), gr.logsumexp(x.astype("f8"), device="cpu"),
     2.0**-53)
assert gr.logsumexp(x, dtype="f2", device="cuda").dtype == np.float16
out = np.zeros((), "f8")
assert gr.logsumexp(x, out=out, device="cuda") is out
assert "complex" in refused(lambda: gr.logsumexp(x + 1j, device="cuda"))
"""


@needs_compiler
def test_logsumexp_of_host_arrays_is_that_of_the_cpu(tmp_path: Path) -> None:
    run(EXPONENTIALS, tmp_path)


DEVICE = """
from device_buffers import device, host
a = rng.normal(size=(4, 5, 6)) * 5
for axis in (None, 0, (0, 2), -1, ()):
    for dtype in ("f8", "f4"):
        x = a.astype(dtype)
        got = gr.logsumexp(device(x), axis, keepdims=True)
        assert type(got) is _core.DeviceBuffer and got.dtype == x.dtype.name
        near(host(got), gr.logsumexp(x, axis, keepdims=True, device="cpu"),
             2.0**-53 if dtype == "f8" else 2.0**-24)
mask = a > 3
near(host(gr.logsumexp(device(a), 1, where=device(mask))),
     gr.logsumexp(a, 1, where=mask, device="cpu"), 2.0**-53)
assert host(gr.logsumexp(device(a.astype("f4")), 1, dtype="float64")).dtype == np.float64
assert host(gr.logsumexp(device(a), 1, dtype="float32")).dtype == np.float32
assert host(gr.logsumexp(device(np.arange(5)))).dtype == np.float64
room = device(np.zeros((4, 6)))
assert gr.logsumexp(device(a), 1, out=room) is room
near(host(room), gr.logsumexp(a, 1, device="cpu"), 2.0**-53)
assert host(gr.logsumexp(device(np.zeros((3, 0))), 1)).tolist() == [-inf] * 3
assert "complex" in refused(lambda: gr.logsumexp(device(a + 1j)))
"""


@needs_compiler
def test_logsumexp_of_device_arrays(tmp_path: Path) -> None:
    functions = EXPONENTIALS[: EXPONENTIALS.index("for dtype")]
    run(functions + "inf = float('inf')\n" + DEVICE, tmp_path)


def test_logsumexp_compiles_for_a_gpu_in_seconds() -> None:
    """With its merge inlined for each element of a vector NVRTC takes up to half a minute."""
    rng = np.random.default_rng(SEED)
    dtype = str(rng.choice(["float64", "float32", "float16", "int32", "bool"]))
    types = OperatorTypes(np.dtype(dtype), np.dtype(dtype), False)
    text, entries = gpu_text(LOGSUMEXP._text, types, 256, emulated=False)
    before = time.process_time()
    try:
        image, symbols = _core.compile_text("operator", text, entries, OPTIONS, 90)
    except gr.DeviceUnavailableError as error:
        pytest.skip(str(error))
    assert len(image) > 1000
    assert time.process_time() - before < 5, dtype
    assert len(symbols) == len(entries)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_logsumexp_of_large_arrays_on_a_gpu(dtype: str) -> None:
    rng = np.random.default_rng(SEED)
    for shape, axis in (((10_000_019,), None), ((3001, 3001), 0), ((3001, 3001), 1),
                        ((200_001, 33), 1), ((5, 700, 3000), (0, 2))):  # fmt: skip
        a = (rng.normal(size=shape) * 20).astype(dtype)
        got = gr.logsumexp(a, axis, device="cuda")
        wanted = gr.logsumexp(a, axis, device="cpu")
        np.testing.assert_allclose(got, wanted, rtol=1e-14 if dtype == "float64" else 2e-7)
