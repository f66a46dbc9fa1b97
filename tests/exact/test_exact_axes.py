"""Exact sums of products, squares and magnitudes along axes: the kernel beside the CPU's bits, on
the emulator and on a GPU, and every program compiled by NVRTC."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ml_dtypes")

import emu
import emu.exact_axes
import numpy as np
from draws import EVERYTHING, SEED, one, some
from exact_reference import FLOATS, INTEGERS
from reference import DTYPES

from gpureduce import _core, _locate

COMPLEX = ("complex64", "complex128")
PRODUCTS, SQUARES, MAGNITUDES = range(3)
_locate.locate()


@pytest.mark.long
def test_the_kernel_sums_along_axes_of_every_layout_on_the_emulator() -> None:
    kinds = [*FLOATS, *COMPLEX, *INTEGERS]
    drawn = [FLOATS[SEED % len(FLOATS)], COMPLEX[SEED % 2], INTEGERS[SEED % len(INTEGERS)]]
    tasks: list[dict[str, Any]] = [
        {"do": "exact_axes.check_random", "dtype": name, "count": 40 if EVERYTHING else 2}
        for name in (kinds if EVERYTHING else some(drawn, 2 / 3, "kinds along axes"))
    ]
    wrong = emu.failures([{**task, "seed": SEED, "limit": 600.0} for task in tasks])
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_norms_and_products_of_arrays_in_gpu_memory_on_the_emulator() -> None:
    share = 1 if EVERYTHING else 4
    wrong = emu.failures(
        [{"do": "exact_axes.check_calls", "share": share, "seed": SEED, "limit": 300.0}]
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
def test_norms_and_products_of_arrays_in_gpu_memory() -> None:
    emu.exact_axes.check_calls({"seed": SEED})


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FLOATS, *COMPLEX, *INTEGERS])
def test_a_gpu_sums_along_axes_of_every_layout(name: str) -> None:
    task = {"dtype": name, "seed": SEED, "count": 60 if EVERYTHING else 15}
    emu.exact_axes.check_random(task, emulated=False)


@pytest.mark.parametrize("products", [-1, 3])
def test_a_product_that_there_is_not_is_refused(products: int) -> None:
    a = np.arange(6.0)
    plain = (a.dtype, None, None, False, products, False, False)
    with pytest.raises(ValueError, match=f"there is no product {products}"):
        _core.dot_along(a, a, *plain, "auto", "cpu", None, None, None)


@pytest.mark.skipif(not _core.cuda_versions()[1], reason="there is no NVRTC")
@pytest.mark.parametrize("name", some(DTYPES, 1 / 2, "sums along axes"))
def test_every_sum_along_axes_compiles(name: str) -> None:
    """An ordinary run draws some dtypes, and a sum for each."""
    is_complex = name in COMPLEX
    root = name if name in FLOATS else "float64"
    calls: list[tuple[Any, ...]] = [(None, PRODUCTS, False, False)]
    calls += [(None, PRODUCTS, True, False)] if is_complex else []
    calls += [] if is_complex else [(root, SQUARES, False, True), (None, MAGNITUDES, False, False)]
    for call in one(calls, f"sum along axes of {name}"):
        assert _core.compile_dot_along(name, name, name, *call, 0, 90) > 0
