"""Device arrays of any layout on a real GPU: the planner's kernels on a full GPU, beyond 2^31.

Small whole numbers make every sum exact, so that no bound hides a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from draws import SEED
from emu import layouts
from reference import ALL_DTYPES, DTYPES

import gpureduce as gr
from gpureduce import _core

pytestmark = pytest.mark.gpu


@contextmanager
def on_device(memory: np.ndarray) -> Iterator[int]:
    """Address of a copy of the array's memory."""
    pointer = _core.alloc_device(0, max(memory.nbytes, 1))
    try:
        _core.upload(0, pointer, memory.reshape(-1))
        yield int(pointer)
    finally:
        _core.free_device(0, pointer)


def reduce_axes(
    op: str,
    array: np.ndarray,
    reduced: tuple[int, ...],
    pointer: int,
    kernel: str = "fast",
    **more: Any,
) -> np.ndarray:
    """Reduce axes of a C-ordered array at `pointer`; the results come from the device."""
    kept = [axis for axis in range(array.ndim) if axis not in reduced]
    view = array.transpose(*kept, *reduced)
    like = layouts._core_result_dtype(op, array.dtype)
    outputs = (2,) if op == "minmax" else ()
    result = np.empty(outputs + tuple(array.shape[axis] for axis in kept), like)
    with on_device(result) as out:
        name = "var" if op == layouts.GIVEN_MEAN else op
        _core.reduce_device(
            name,
            pointer,
            view.shape,
            array.dtype,
            len(reduced),
            kernel,
            0,
            strides=view.strides,
            result=out,
            **more,
        )
        _core.download(0, out, result.reshape(-1))
    return result


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few of them, so that any sum is exact."""
    return rng.integers(0, 2, shape, dtype=np.int8).astype(DTYPES[dtype])


CASES = [
    ((4096, 4096), (0,), "fast_columns"),
    ((4096, 4096), (1,), "fast_rows"),
    ((3_000_001, 3), (0,), "fast_narrow"),
    ((3_000_001, 3), (1,), "fast_counted"),
    ((3, 3_000_000), (0,), "fast_few"),
    ((3, 3_000_001), (1,), "fast_stream"),
    ((21, 300_001), (0,), None),
    ((256, 256, 256), (1,), "fast_columns"),
    ((256, 256, 256), (0, 2), "fast_strided"),
    ((100_000, 256), (0,), "fast_columns"),
    ((100_000, 255), (0,), None),
    ((50, 40_000, 3), (1,), "fast_narrow"),
    ((7, 5, 11, 13, 17, 19), (0, 2, 4), None),
    ((5000, 11, 136), (1,), "fast_columns"),  # groups of columns that share a block
    ((30_000, 7, 2, 2), (2,), None),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int16", "float16", "bool"])
@pytest.mark.parametrize(("shape", "reduced", "variant"), CASES)
def test_axes_of_arrays_are_reduced_right(
    shape: tuple[int, ...], reduced: tuple[int, ...], variant: str | None, dtype: str
) -> None:
    rng = np.random.default_rng([SEED, *shape, len(dtype)])
    array = whole_numbers(rng, shape, dtype)
    with on_device(array) as pointer:
        for op in ("sum", "max", "argmax", "mean", "count_nonzero", "minmax"):
            got = reduce_axes(op, array, reduced, pointer)
            # Indices cost arithmetic: for some GPUs two kernels are then within a few percent.
            if variant is not None and dtype == "float32" and op != "argmax":
                assert gr.last_run().variant == variant
            kept = [axis for axis in range(array.ndim) if axis not in reduced]
            rows = array.transpose(*kept, *reduced).reshape(*(shape[axis] for axis in kept), -1)
            want = layouts.expected(op, rows, None)
            where = f"{op} {dtype} {shape} {reduced} (GPR_TEST_SEED={SEED})"
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(got.dtype).astype(np.float64),
                rtol=1e-3 if dtype == "float16" else 1e-12 if op == "mean" else 0,
                err_msg=where,
            )


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "complex64"])
@pytest.mark.parametrize(("shape", "reduced"), [case[:2] for case in CASES])
def test_variances_about_given_means_are_right(
    shape: tuple[int, ...], reduced: tuple[int, ...], dtype: str
) -> None:
    """Means of every row, of several rows, and one for all; half of them with infinities or NaN."""
    rng = np.random.default_rng([SEED, 4, *shape, len(dtype)])
    array = np.asarray(layouts.small_integers(rng, ALL_DTYPES[dtype], 1 << 20))
    array = np.resize(layouts.strew_specials(rng, array), shape)
    kept = [axis for axis in range(array.ndim) if axis not in reduced]
    rows = array.transpose(*kept, *reduced).reshape(*(shape[axis] for axis in kept), -1)
    with on_device(array) as pointer:
        for mean_dtype in ("float32", "int64"):
            for repeated in ((), (0,), tuple(range(len(kept)))):
                few = tuple(1 if axis in repeated else n for axis, n in enumerate(rows.shape[:-1]))
                means = layouts.small_integers(rng, DTYPES[mean_dtype], int(np.prod(few)))
                means = layouts.strew_specials(rng, means).reshape(few)
                whole = np.broadcast_to(means, rows.shape[:-1])
                with on_device(means) as given:
                    got = reduce_axes(
                        layouts.GIVEN_MEAN, array, reduced, pointer,
                        mean=given, mean_dtype=means.dtype, mean_strides=whole.strides,
                    )  # fmt: skip
                with np.errstate(all="ignore"):
                    want = layouts.expected_with_given_mean(rows, None, whole)
                where = (
                    f"{dtype} about {mean_dtype} {shape} {reduced} {repeated} "
                    f"(GPR_TEST_SEED={SEED})"
                )
                np.testing.assert_allclose(
                    got, want, rtol=1e-12 if got.dtype == np.float64 else 2e-7, err_msg=where
                )


# By bins or by pairs of doubles, whichever is faster for the dtype on an H100 or H200.
EXACT_CASES = [
    ((4096, 4096), (0,), "fast_columns"),
    ((3_000_001, 3), (0,), "fast_columns"),
    ((3_000_001, 3), (1,), "exact_rows"),
    ((3, 3_000_000), (0,), "exact_rows"),
    ((300_001, 61), (1,), "fast_rows"),
    ((9, 300_001), (0,), {"float32": "exact_rows", "float64": "fast_few",
                          "float16": "fast_few"}),
    ((2, 60_001), (1,), {"float32": "exact", "float64": "exact", "float16": "fast_stream"}),
    ((7, 30_001), (0,), {"float32": "exact_rows", "float64": "fast_few",
                         "float16": "exact_rows"}),
    ((256, 256, 1024), (1,), {"float32": "exact_rows", "float64": "fast_columns",
                              "float16": "fast_columns"}),
    ((256, 256, 256), (0, 2), "fast_strided"),
    ((200_000, 256), (0,), "fast_columns"),
    ((2100, 17_001), (0,), {"float32": "exact_strided", "float64": "fast_columns",
                            "float16": "fast_columns"}),
    ((1000, 520, 16), (1,), "fast_columns"),  # groups that share a block
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("shape", "reduced", "variant"), EXACT_CASES)
def test_exact_sums_of_axes_have_the_cpus_bits(
    shape: tuple[int, ...], reduced: tuple[int, ...], variant: str | dict[str, str], dtype: str
) -> None:
    """Numbers of a few magnitudes, and of all there are."""
    wanted = variant if isinstance(variant, str) else variant.get(dtype)
    is_planned_for = any(name in gr.devices()[0].name for name in ("H100", "H200"))
    rng = np.random.default_rng([SEED, *shape, len(dtype)])
    for make in (lambda n: rng.normal(size=n), lambda n: rng.lognormal(0, 50, n)):
        with np.errstate(over="ignore"):
            array = np.resize(make(1 << 20), int(np.prod(shape))).astype(dtype).reshape(shape)
        with on_device(array) as pointer:
            for op in ("sum", "mean"):
                got = reduce_axes(op, array, reduced, pointer, kernel="exact")
                assert wanted in (None, gr.last_run().variant) or not is_planned_for
                want = gr.reduce(array, op, axis=reduced, kernel="exact", device="cpu")
                assert got.tobytes() == want.tobytes(), (
                    f"{op} {dtype} {shape} {reduced} (GPR_TEST_SEED={SEED})"
                )


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_masks_and_the_same_bits_each_time(dtype: str) -> None:
    rng = np.random.default_rng([SEED, 1])
    array = rng.normal(size=(2000, 3000)).astype(dtype)
    mask = rng.random((2000, 3000)) < 0.5
    for reduced in ((0,), (1,), (0, 1)):
        with on_device(array) as pointer, on_device(mask) as mask_pointer:
            kept = [axis for axis in range(2) if axis not in reduced]
            steps = mask.transpose(*kept, *reduced).strides
            results = [
                reduce_axes("sum", array, reduced, pointer, mask=mask_pointer, mask_strides=steps)
                for _ in range(5)
            ]
        assert all(result.tobytes() == results[0].tobytes() for result in results)
        want = np.sum(
            array.astype(np.complex128 if dtype == "complex64" else np.float64),
            axis=reduced,
            where=mask,
        )
        np.testing.assert_allclose(
            results[0], want, rtol=1e-3, atol=1e-2, err_msg=f"GPR_TEST_SEED={SEED}"
        )


@pytest.mark.parametrize("op", [*layouts.ORDERLESS, *layouts.POSITIONS, layouts.GIVEN_MEAN])
def test_random_layouts_are_right(op: str) -> None:
    for number in range(60):
        rng = np.random.default_rng([SEED, 2, number, *op.encode()])
        names = [
            name
            for name in ("int8", "float32", "uint16", "float64")
            if op != "bitwise_xor" or "int" in name
        ]
        if op == layouts.GIVEN_MEAN:
            names += ["complex64", "float16"]
        dtype, block = ALL_DTYPES[names[number % len(names)]], (0, 64, 96)[number // len(names) % 3]
        where = f"{op} {dtype} block={block} case {number} (GPR_TEST_SEED={SEED})"
        layouts.call(layouts.draw_case(rng, op, dtype), op, dtype, block, rng, where)


@pytest.mark.xdist_group("big")
@pytest.mark.parametrize(
    ("shape", "reduced"),
    [
        ((2**31 + 4096, 2), (0,)),
        ((65536, 65600), (0,)),
        ((3, 2**31 + 5), (0,)),
        ((2**26 + 5, 17, 4), (1,)),
    ],
)
def test_indices_count_past_four_billion(shape: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    rng = np.random.default_rng([SEED, 3])
    array = np.resize(rng.integers(0, 3, 2**24 + 1, dtype=np.uint8), shape)
    with on_device(array) as pointer:
        got = reduce_axes("max" if shape[0] == 3 else "sum", array, reduced, pointer)
    want = array.max(axis=0) if shape[0] == 3 else array.sum(axis=reduced, dtype=np.uint64)
    assert np.array_equal(got, want), f"GPR_TEST_SEED={SEED}"


@pytest.mark.xdist_group("big")
def test_an_axis_may_have_more_than_32_bits() -> None:
    """Two elements, each of them so often; the axis that varies fastest is the long one."""
    times = 2**32 + 7
    array = np.random.default_rng([SEED, 4]).integers(1, 200, 2, dtype=np.uint8)
    often = np.lib.stride_tricks.as_strided(array, (2, times), (1, 0))
    with on_device(array) as pointer:
        got = reduce_axes("sum", often, (0, 1), pointer)
    assert int(got) == times * int(array.sum()), f"GPR_TEST_SEED={SEED}"
