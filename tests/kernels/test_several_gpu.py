"""Several results in one pass on a real GPU: the bits of calls of their own, beyond 2^31 too.

``tests/kernels/test_emulator_several.py`` runs the kernel in small on the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from draws import SEED
from emu import several

import gpureduce as gr
from gpureduce import _core, _one_pass

pytestmark = pytest.mark.gpu

REAL = ("float64", "float32", "float16", "bool", "int8", "uint16", "int32", "uint64")
BEYOND = (1 << 31) + 4099


@pytest.fixture(autouse=True)
def small_arrays_share_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_one_pass, "LEAST_BYTES", 0)
    monkeypatch.setattr(_one_pass, "LEAST_HOST_OPERATORS", 2)
    monkeypatch.setattr(_one_pass, "CHUNK_BYTES", 1 << 20)
    _one_pass.forget_plans()
    yield
    _one_pass.forget_plans()


@pytest.mark.parametrize("dtype", REAL)
def test_device_arrays_have_the_bits_of_calls_of_their_own(dtype: str) -> None:
    rng = np.random.default_rng([SEED, REAL.index(dtype)])
    passes = 0
    for _ in range(12):
        a, axis = several.draw(rng, dtype, int(rng.choice([4000, 300_000, 5_000_000])))
        ops = several.draw_operators(rng)
        options = several.options_of(rng, ops) | {"axis": axis}
        block, grid = None, None
        if rng.random() < 0.5:
            block, grid = int(rng.choice([64, 256, 1024])), int(rng.integers(1, 300))
            options |= {"block_size": block, "grid_size": grid}
        memory = several.device(a)
        context = f"{dtype} {a.shape} {ops} {options} GPR_TEST_SEED={SEED}"
        several.compare(memory, ops, options, context)
        source = _core.find_library(memory).read(memory)
        found = _one_pass.find_pass(source, axis, ops, block_size=block, grid_size=grid)
        passes += found is not None
    assert passes > 0, "no tuple was reduced in one pass"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_results_of_one_exact_sum_do_not_depend_on_each_other(dtype: str) -> None:
    several.check_shared_sums({"dtype": dtype, "seed": SEED})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_members_that_leave_nan_out_are_beside_others(dtype: str) -> None:
    several.check_nans_beside_each_other({"dtype": dtype, "seed": SEED, "count": 4})


@pytest.mark.parametrize("dtype", REAL)
def test_host_arrays_cross_the_bus_in_pieces(dtype: str) -> None:
    rng = np.random.default_rng([SEED, REAL.index(dtype)])
    for _ in range(4):
        a, axis = several.draw(rng, dtype, 3_000_000)
        a, ops = np.ascontiguousarray(a), several.draw_operators(rng)
        options = several.options_of(rng, ops) | {"axis": axis, "device": "cuda"}
        several.compare(a, ops, options, f"{dtype} {a.shape} {ops} {options} {SEED}")


@pytest.mark.parametrize(("dtype", "ops"), [
    ("int8", ("sum", "min", "argmax", "count_nonzero", "minmax")),
    ("float16", ("sum", "mean", "max", "argmin", "any")),
])  # fmt: skip
def test_an_array_beyond_2_31_elements(dtype: str, ops: tuple[str, ...]) -> None:
    rng = np.random.default_rng(SEED)
    a = np.resize(rng.integers(-50, 50, 1_000_003).astype(dtype), BEYOND)
    a[rng.integers(1 << 31, BEYOND)] = 99  # the largest, behind 2^31
    memory = several.device(a)
    several.compare(memory, ops, {}, f"{dtype} {ops} GPR_TEST_SEED={SEED}")
    if "argmax" in ops:
        found = gr.reduce(memory, ops)
        assert int(several.host(found.argmax)) == int(np.argmax(a))
