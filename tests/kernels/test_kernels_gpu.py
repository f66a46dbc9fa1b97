"""Every kernel, dtype, operator, size and block size on a real GPU.

The catalogue comes from the registry through ``gr.kernels()``: a new row is tested without a change
here. Sizes sit on both sides of every edge a kernel can have (warp, block, several blocks); data is
fresh in each run and the seed stands in the failure's message.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from draws import EVERYTHING, SEED
from emu import operators
from reference import (
    ALL_DTYPES,
    DTYPES,
    OPERATORS,
    REFUSALS,
    assert_reduction,
    is_float,
    random_array,
    takes,
)

import gpureduce as gr

pytestmark = pytest.mark.gpu

# Kernel auto is one of the others.
KERNELS = {info.name: info for info in gr.kernels() if info.name != "auto"}


def block_sizes(info: gr.KernelInfo, rng: np.random.Generator) -> list[int]:
    """The edges of what the kernel takes, its default, and one more by chance; GPR_TEST_ALL: all.

    A tree's code differs at 32 and 64, where its last warp starts, and is alike above.
    """
    if info.block_rule == "32":
        return [32]
    others = [128, 256, 512] if info.block_rule == "power of two" else [96, 128, 256, 512, 800]
    if not EVERYTHING:
        others = [int(rng.choice(others))]
    return sorted({32, 64, 1024, info.block_size, *others})


def sizes_around(block: int) -> list[int]:
    edges = [32, block, 2 * block, 8 * block]
    return sorted({1, 7, 4097, *(edge + d for edge in edges for d in (-1, 0, 1))})


def chain(info: gr.KernelInfo, n: int, block: int) -> float:
    """Most additions that can follow each other on one value's way to the result."""
    if info.name == "naive_atomic":
        return n
    if info.family == "atomic":
        return n + block  # atomics in any order, within a block and between blocks
    return n / 32 + 64


def describe(name: str, dtype: str, op: str, n: int, block: int) -> str:
    return f"{name} {dtype} {op} n={n} block={block} (GPR_TEST_SEED={SEED})"


def operators_of(
    info: gr.KernelInfo, dtype: str, rng: np.random.Generator, count: int
) -> list[str]:
    """The kernel's operators for the dtype: a run draws some anew; GPR_TEST_ALL: all."""
    able = [op for op in OPERATORS if takes(op, ALL_DTYPES[dtype]) and can(info.name, op, dtype)]
    return able if EVERYTHING else [str(op) for op in rng.permutation(able)[:count]]


def can(name: str, op: str, dtype: str) -> bool:
    """Whether the kernel folds what the operator accumulates; it says so when it does not."""
    try:
        gr.reduce(np.ones(1, ALL_DTYPES[dtype]), op, kernel=name, device="cpu")
    except ValueError as error:
        assert any(reason in str(error) for reason in REFUSALS), error  # noqa: PT017
        return False
    return True


def require(info: gr.KernelInfo) -> None:
    if not info.available:
        pytest.skip(info.reason)


def test_additions_are_rounded_up_and_down() -> None:
    operators.check_rounded_additions({"seed": SEED})


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_right_for_every_operator_size_and_block(name: str, dtype: str) -> None:
    info = KERNELS[name]
    require(info)
    rng = np.random.default_rng([SEED, *name.encode(), *dtype.encode()])
    blocks = block_sizes(info, rng)
    if name == "cub":  # its programs take seconds to compile, not milliseconds
        blocks = [128, 256]
    for op in operators_of(info, dtype, rng, 4):
        for block in blocks:
            for n in sizes_around(block):
                values = random_array(rng, ALL_DTYPES[dtype], n, op)
                result = gr.reduce(values, op, kernel=name, block_size=block, device="cuda")
                assert_reduction(
                    result, values, op, chain(info, n, block), describe(name, dtype, op, n, block)
                )


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_right_for_odd_millions_streamed_in_chunks(name: str, dtype: str) -> None:
    info = KERNELS[name]
    require(info)
    rng = np.random.default_rng([SEED, 1, *name.encode(), *dtype.encode()])
    for op in operators_of(info, dtype, rng, 4):
        n = int(rng.integers(10**6, 3 * 10**6)) | 1
        values = random_array(rng, ALL_DTYPES[dtype], n, op)
        result = gr.reduce(values, op, kernel=name, device="cuda")
        assert_reduction(result, values, op, chain(info, n, 32), describe(name, dtype, op, n, 0))


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_right_for_rows_of_every_length(name: str, dtype: str) -> None:
    info = KERNELS[name]
    require(info)
    rng = np.random.default_rng([SEED, 2, *name.encode(), *dtype.encode()])
    block = info.block_size
    for op in operators_of(info, dtype, rng, 4):
        for n in (1, 2, 3, 5, 8, 31, 33, 100, 257, 513, 2 * block + 1, 5 * block + 3):
            rows = int(rng.integers(1, 40))
            values = random_array(rng, ALL_DTYPES[dtype], rows * n, op).reshape(rows, n)
            result = gr.reduce(values, op, axis=-1, kernel=name, device="cuda")
            outputs = result if op == "minmax" else (result,)
            assert all(output.shape == (rows,) for output in outputs)
            for r in range(rows):
                where = f"row {r} of {rows}: {describe(name, dtype, op, n, block)}"
                one = tuple(output[r] for output in outputs) if op == "minmax" else result[r]
                assert_reduction(one, values[r], op, chain(info, n, 32), where)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_lets_nan_win_wherever_it_is(name: str) -> None:
    require(KERNELS[name])
    rng = np.random.default_rng([SEED, 3, *name.encode()])
    for dtype in ("float16", "float32", "float64"):
        for n in (1, 33, 1000, 5000):
            values = rng.normal(size=n).astype(dtype)
            values[rng.integers(n)] = np.nan
            for op in ("sum", "prod", "min", "max", "mean", "ptp", "var"):
                if can(name, op, dtype):
                    result = gr.reduce(values, op, kernel=name, device="cuda")
                    assert np.isnan(result), describe(name, dtype, op, n, 0)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_says_deterministic_repeats_its_bits(name: str) -> None:
    info = KERNELS[name]
    require(info)
    if not info.deterministic:
        pytest.skip(f"{name} says that float sums may vary")
    rng = np.random.default_rng([SEED, 4, *name.encode()])
    values = rng.normal(size=300_001).astype(np.float32)
    first = gr.sum(values, kernel=name, device="cuda")
    for _ in range(20):
        assert gr.sum(values, kernel=name, device="cuda").tobytes() == first.tobytes()


@pytest.mark.parametrize("name", [k for k, info in KERNELS.items() if info.takes_grid_size])
def test_kernel_is_right_for_any_grid_size(name: str) -> None:
    info = KERNELS[name]
    require(info)
    rng = np.random.default_rng([SEED, 5, *name.encode()])
    for grid in (1, 2, 7, 100, 1000):
        for dtype in ("int32", "float64"):
            n = int(rng.integers(1, 200_000))
            values = random_array(rng, DTYPES[dtype], n, "sum")
            if name == "cooperative" and grid > 2 * gr.devices()[0].multiprocessors:
                with pytest.raises(ValueError, match="as many as this GPU holds at once"):
                    gr.sum(values, kernel=name, grid_size=grid, device="cuda")
                continue
            result = gr.sum(values, kernel=name, grid_size=grid, device="cuda")
            assert_reduction(
                result, values, "sum", chain(info, n, 32), describe(name, dtype, "sum", n, grid)
            )


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_converts_elements_first_when_dtype_says_so(name: str) -> None:
    require(KERNELS[name])
    if name == "cub" and not EVERYTHING:
        pytest.skip("each pair of types is seconds of compiling; GPR_TEST_ALL=1 runs it")
    rng = np.random.default_rng([SEED, 6, *name.encode()])
    for element in ("int8", "uint16", "int64", "float16", "float32", "float64", "bool"):
        for computed in ("int16", "int32", "uint64", "float32", "float64"):
            values = random_array(rng, DTYPES[element], 3001, "sum")
            if is_float(values.dtype):
                values = np.abs(values)  # a negative float as an unsigned integer is undefined
            if name == "exact" and is_float(values.dtype) and not is_float(np.dtype(computed)):
                with pytest.raises(TypeError, match="convert the elements"):
                    gr.sum(values, dtype=computed, kernel=name, device="cuda")
                continue
            result = gr.sum(values, dtype=computed, kernel=name, device="cuda")
            expected = np.sum(values, dtype=computed)
            assert result.dtype == expected.dtype
            is_rounded = not computed.startswith(("int", "uint"))
            # Where positive and negative elements leave next to nothing, a rounding is a large
            # share of the sum.
            rounding = 1e-6 * np.sum(np.abs(values.astype(np.float64)))
            np.testing.assert_allclose(
                np.float64(result), np.float64(expected),
                rtol=1e-4 if is_rounded else 0, atol=rounding if is_rounded else 0,
                err_msg=f"{name} {element} as {computed} (GPR_TEST_SEED={SEED})",
            )  # fmt: skip


@pytest.mark.parametrize("offset", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_reads_device_arrays_that_start_anywhere(name: str, offset: int) -> None:
    from gpureduce import _core

    info = KERNELS[name]
    require(info)
    rng = np.random.default_rng([SEED, 7, offset, *name.encode()])
    for dtype in ("uint8", "int16", "float32", "float64"):
        for n in (1, 13, 257, 100_003):
            values = random_array(rng, DTYPES[dtype], n + offset, "sum")
            pointer = _core.alloc_device(0, values.nbytes)
            try:
                _core.upload(0, pointer, values)
                result = _core.reduce_device(
                    "sum", pointer + offset * values.itemsize, (n,), values.dtype, 1, name, 0
                )
            finally:
                _core.free_device(0, pointer)
            where = f"offset {offset}: {describe(name, dtype, 'sum', n, 0)}"
            assert_reduction(result, values[offset:], "sum", chain(info, n, 32), where)


@pytest.fixture(scope="module")
def big_array() -> Iterator[tuple[int, int, np.uint64]]:
    """A device array of more than 2^32 bytes: its address, its length, its sum."""
    from gpureduce import _core

    n = 2**32 + 12345
    rng = np.random.default_rng([SEED, 8])
    values = np.resize(rng.integers(0, 3, 2**26 + 1, dtype=np.uint8), n)
    pointer = _core.alloc_device(0, values.nbytes)
    _core.upload(0, pointer, values)
    yield pointer, n, values.sum(dtype=np.uint64)
    _core.free_device(0, pointer)


@pytest.mark.xdist_group("big")
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_counts_past_four_billion_elements(
    name: str, big_array: tuple[int, int, np.uint64]
) -> None:
    from gpureduce import _core

    require(KERNELS[name])
    pointer, n, expected = big_array
    result = _core.reduce_device("sum", pointer, (n,), np.dtype("uint8"), 1, name, 0)
    assert result == expected, f"{name} (GPR_TEST_SEED={SEED})"
