"""Kernel `exact` gives the real sum rounded once: on the CPU, on the emulator, and on GPUs.

The reference is Python's integers (exact_reference.py). The emulator also watches for races and
reads of what nobody wrote, as in every other kernel.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")

import emu
from draws import EVERYTHING, SEED, some
from emu import exact_layouts, exact_states
from emu.exact_sums import (
    check_all_bits,
    check_nothing,
    check_outliers_among,
    draw,
    sum_on_device,
)
from exact_reference import FLOATS, GENERATORS, assert_result, exact_sum, expected
from reference import DTYPES, random_array

import gpureduce as gr

INTEGERS = tuple(name for name in DTYPES if name not in FLOATS)


def exactly(values: Any, **options: Any) -> Any:
    return gr.sum(values, kernel="exact", device="cpu", **options)


# ---------------------------------------------------------------- the emulator


def both_bins(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks with bins of float64 and of integers: each with one of them, drawn anew each run."""
    if EVERYTHING:
        return [task | {"slow_float64": slow} for task in tasks for slow in (False, True)]
    return [task | {"slow_float64": (SEED // 4 + i) % 2 == 1} for i, task in enumerate(tasks)]


@pytest.mark.long
def test_the_kernels_source_gives_every_bit_on_the_emulator() -> None:
    """An ordinary run draws half of what there is with few dtypes, and a block size for each."""
    count, blocks = 60 if EVERYTHING else 6, (32, 64, 256)
    wide = [name for name in FLOATS if name != "float16"]  # one bin holds all of that
    tasks = [
        {
            "do": "exact_sums.check_exact",
            "dtype": name,
            "block": block,
            "seed": SEED,
            "count": count,
            "limit": 600.0,
        }
        for i, name in enumerate(FLOATS if EVERYTHING else FLOATS[SEED // 2 % 2 :: 2])
        for block in (blocks if EVERYTHING else (blocks[(SEED + i) % 3],))
    ]
    tasks += [
        {"do": "exact_sums.check_rows", "dtype": name, "seed": SEED, "limit": 300.0}
        for name in (FLOATS if EVERYTHING else (FLOATS[SEED // 4 % 4],))
    ]
    tasks += [
        {"do": "exact_sums.check_outliers", "dtype": name, "seed": SEED, "limit": 300.0}
        | {"share": 1 if EVERYTHING else 3}
        for name in (FLOATS if EVERYTHING else (FLOATS[SEED % 4],))
    ]
    tasks += [
        {
            "do": "exact_sums.check_runs",
            "dtype": name,
            "block": (32, 64, 96, 256)[(SEED + i) % 4],
            "seed": SEED,
        }
        | {"count": 60 if EVERYTHING else 4, "limit": 600.0}
        for i, name in enumerate(FLOATS if EVERYTHING else FLOATS[SEED // 8 % 2 :: 2])
    ]
    tasks += [
        {"do": "exact_sums.check_lone_outliers", "dtype": name, "seed": SEED, "limit": 600.0}
        | {"count": 200 if EVERYTHING else 12}
        for name in (wide if EVERYTHING else (wide[SEED // 3 % 3],))
    ]
    tasks += [
        {
            "do": "exact_sums.check_edges",
            "dtype": name,
            "stride": 1 if EVERYTHING else 8,
            "seed": SEED,
            "limit": 300.0,
        }
        for name in (wide if EVERYTHING else (wide[SEED % 3],))
    ]
    wrong = emu.failures(both_bins(some(tasks, 1 / 2, "every bit")))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_short_rows_have_every_bit_on_the_emulator() -> None:
    tasks = [
        {
            "do": "exact_sums.check_double_double",
            "dtype": name,
            "rows": 500 if EVERYTHING else 32,
            "seed": SEED,
            "limit": 900.0,
        }
        | {"sizes": 9 if EVERYTHING else 1}
        for name in (FLOATS if EVERYTHING else (FLOATS[SEED % 4],))
    ]
    # Thousands of rows take the emulator minutes with bins of integers.
    wrong = emu.failures(
        task | {"many": EVERYTHING or not task["slow_float64"]} for task in both_bins(tasks)
    )
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_bins_that_are_full_give_every_bit_on_the_emulator() -> None:
    """An ordinary run draws half of what there is for few dtypes, and a block size for each."""
    blocks = (32, 64, 96)
    tasks = [
        {
            "do": "exact_sums.check_spills",
            "dtype": name,
            "block": blocks[(SEED + i) % 3],
            "seed": SEED,
        }
        | {"count": 10 if EVERYTHING else 1, "limit": 900.0}
        for i, name in enumerate(FLOATS if EVERYTHING else FLOATS[SEED // 3 % 2 :: 2])
    ]
    tasks += [
        {"do": "exact_sums.check_spills_to_the_end", "dtype": name, "seed": SEED, "limit": 900.0}
        for name in (FLOATS if EVERYTHING else ("float16",))
    ]
    tasks += [
        {
            "do": "exact_layouts.check_columns_to_the_end",
            "dtype": name,
            "seed": SEED,
            "limit": 900.0,
        }
        for name in (FLOATS if EVERYTHING else (FLOATS[SEED % 4],))
    ]
    wrong = emu.failures(both_bins(tasks) if EVERYTHING else some(tasks, 1 / 2, "full bins"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_a_tile_per_warp_gives_every_bit_on_the_emulator() -> None:
    """An ordinary run draws two dtypes, and a block size and a grid for each."""
    grids = [(32, (1, 2, 40)), (64, (1, 3, 40)), (96, (1, 2, 5)), (256, (1, 1, 2))]
    drawn = np.random.default_rng(SEED).permutation(len(grids)).tolist()
    tasks = [
        {
            "do": "exact_tiles.check_tiles",
            "dtype": name,
            "block": grids[i][0],
            "blocks": grids[i][1],
            "seed": SEED,
        }
        | {"count": 15 if EVERYTHING else 3, "limit": 600.0}
        for name, one in zip(FLOATS, drawn, strict=True)
        for i in (drawn if EVERYTHING else (one,))
    ]
    wrong = emu.failures(both_bins(tasks) if EVERYTHING else some(tasks, 1 / 2, "tiles"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_the_kernels_source_sums_every_layout_on_the_emulator() -> None:
    """Random axes, steps backwards and of 0, masks, gaps; a thread's own rows, and short ones. An
    ordinary run draws half of what there is for few dtypes.
    """
    floats = FLOATS if EVERYTHING else (FLOATS[SEED % 4],)
    names = [*floats, ("complex64", "complex128")[SEED % 2], INTEGERS[SEED % len(INTEGERS)]]
    wide = [name for name in FLOATS if name != "float16"]
    tasks: list[dict[str, Any]] = [
        {
            "do": "exact_layouts.check_layouts",
            "dtype": name,
            "block": (0, 64, 96)[(SEED + i) % 3],
            "seed": SEED,
        }
        | {"count": 40 if EVERYTHING else 2, "limit": 900.0}
        for i, name in enumerate(names)
    ]
    tasks += [
        {
            "do": "exact_layouts.check_kinds",
            "dtype": name,
            "block": 64,
            "share": 1 if EVERYTHING else 8,
            "seed": SEED,
            "limit": 300.0,
        }
        for name in floats
    ]
    tasks += [
        {"do": "exact_layouts.check_strided", "dtype": name, "seed": SEED, "limit": 600.0}
        | {"stride": 2 if EVERYTHING else 24}
        for name in (wide if EVERYTHING else (wide[SEED % 3],))
    ]
    tasks += [
        {
            "do": "exact_layouts.check_columns",
            "dtype": name,
            "block": block,
            "seed": SEED,
            "limit": 900.0,
        }
        | {"count": 10 if EVERYTHING else 2}
        for name in [*floats, names[-2]]
        for block in ((32, 96, 256, 1024) if EVERYTHING else ((32, 64, 256, 1024)[SEED // 4 % 4],))
    ]
    if EVERYTHING:  # a minute
        tasks.append({"do": "exact_layouts.check_slots", "seed": SEED, "limit": 600.0})
    wrong = emu.failures(both_bins(some(tasks, 1 / 2, "every layout")))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_shares_that_are_no_pairs_are_added_again_on_the_emulator() -> None:
    """One block alone, several that share rows, and few of many blocks. An ordinary run draws a
    dtype, a third of the layouts, and one of those that take long.
    """
    wide = [name for name in FLOATS if name != "float16"]  # whose sums always are pairs
    names = wide if EVERYTHING else [wide[SEED % 3]]
    tasks = [
        {"do": "exact_layouts.check_shares", "dtype": name, "seed": SEED, "limit": 600.0}
        | ({} if EVERYTHING else {"turn": SEED // 3})
        for name in names
    ]
    wrong = emu.failures(tasks)
    assert not wrong, "\n".join(wrong)


def test_infinities_and_nan_settle_rows_of_float64_on_the_emulator() -> None:
    wrong = emu.failures([{"do": "exact_layouts.check_specials", "seed": SEED, "limit": 300.0}])
    assert not wrong, "\n".join(wrong)


def test_the_sum_of_what_leaves_nothing_is_plus_zero_on_the_emulator() -> None:
    names = [*FLOATS, "complex64", "complex128"]
    tasks = [
        {"do": "exact_sums.check_nothing_there", "dtype": name, "seed": SEED, "limit": 300.0}
        for name in (names if EVERYTHING else (names[SEED % len(names)],))
    ]
    wrong = emu.failures(tasks)
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_states_of_arrays_on_hosts_and_devices_are_the_same_on_the_emulator() -> None:
    tasks = [
        {
            "do": "exact_states.check_states",
            "dtype": name,
            "seed": SEED,
            "count": 40 if EVERYTHING else 3,
        }
        | {"devices": 2, "emulator": {"devices": 2}, "limit": 600.0}
        for name in (
            DTYPES
            if EVERYTHING
            else np.random.default_rng(SEED).choice([*DTYPES], 3, replace=False).tolist()
        )
    ]
    wrong = emu.failures(both_bins(tasks))
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- the CPU


@pytest.mark.parametrize("name", FLOATS)
def test_sums_and_means_of_hard_arrays_are_rounded_once(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for make in some(GENERATORS, 1 / 2, f"hard arrays {name} {isa}"):
        for n in (3, 500, 20_000):
            values = make(rng, name, n)
            context = f"{make} {n} {isa} {SEED}"
            check_all_bits(exactly, values, context)
            mean = gr.mean(values, kernel="exact", device="cpu")
            assert_result(mean, expected(values, name, values.size), context)


@pytest.mark.parametrize("name", FLOATS)
def test_rows_of_any_layout_are_summed(name: str, rng: np.random.Generator) -> None:
    for shape, axis in (
        ((6, 700), 1),
        ((700, 6), 0),
        ((5, 40, 3), (0, 2)),
        ((3, 50_000), 1),
        ((300, 40), None),
    ):
        values = draw(rng, name, int(np.prod(shape))).reshape(shape)
        axes = range(values.ndim) if axis is None else np.atleast_1d(axis)
        rows = np.moveaxis(values, tuple(axes), tuple(range(-len(axes), 0)))
        rows = rows.reshape(-1, int(np.prod(rows.shape[values.ndim - len(axes) :])))
        got = np.atleast_1d(exactly(values, axis=axis)).ravel()
        for row, one in zip(rows, got, strict=True):
            assert_result(one, expected(np.ascontiguousarray(row), name), f"{shape} {axis} {SEED}")


@pytest.mark.parametrize("name", FLOATS)
def test_masks_and_nan_leave_elements_out_of_sums_and_counts(
    name: str, rng: np.random.Generator
) -> None:
    for n in (40, 9_000):
        values = draw(rng, name, n)
        kept = rng.random(n) < 0.5
        kept[rng.integers(n)] = True
        some = values[kept]
        assert_result(exactly(values, where=kept), expected(some, name))
        mean = gr.mean(values, kernel="exact", device="cpu", where=kept)
        assert_result(mean, expected(some, name, some.size))
        values[rng.integers(0, n, 3)] = DTYPES[name].type(np.nan)
        numbers = values[values == values]
        assert_result(gr.nansum(values, kernel="exact", device="cpu"), expected(numbers, name))
        assert_result(
            gr.nanmean(values, kernel="exact", device="cpu"), expected(numbers, name, numbers.size)
        )
        both = kept & (values == values)
        if both.any():
            mean = gr.nanmean(values, kernel="exact", device="cpu", where=kept)
            assert_result(mean, expected(values[both], name, int(both.sum())))


@pytest.mark.parametrize("name", [*FLOATS, "complex64", "complex128"])
def test_the_sum_of_what_leaves_nothing_is_plus_zero(name: str, rng: np.random.Generator) -> None:
    check_nothing(rng, name, "cpu", (1, 40, 9_001, 600_003))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_parts_of_complex_sums_are_exact_each(name: str, rng: np.random.Generator) -> None:
    real = {"complex64": "float32", "complex128": "float64"}[name]
    for n in (3, 5_000, 30_000):
        values = draw(rng, real, 2 * n).view(name)
        got = exactly(values)
        for part, elements in ((got.real, values.real), (got.imag, values.imag)):
            assert_result(part, expected(np.ascontiguousarray(elements), real))
    pairs = np.array([1 + 2j, complex(np.nan, 5), 3 + 4j, complex(7, np.nan)], name)
    assert gr.nansum(pairs, kernel="exact", device="cpu") == 4 + 6j
    assert gr.nanmean(pairs, kernel="exact", device="cpu") == 2 + 3j


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_as_numpys_and_their_means_are_rounded_once(
    name: str, rng: np.random.Generator
) -> None:
    for n in (1, 1000, 50_000):
        values = random_array(rng, DTYPES[name], n, "sum")
        got = exactly(values)
        assert (got, got.dtype) == (values.sum(), values.sum().dtype)
        assert gr.mean(values, kernel="exact", device="cpu") == float(
            Fraction(exact_sum(values), n)
        )
        assert_result(exactly(values, dtype=np.float32), np.float32(Fraction(exact_sum(values))))


@pytest.mark.parametrize("result", FLOATS)
@pytest.mark.parametrize("name", FLOATS)
def test_a_result_of_another_type_is_rounded_once(
    name: str, result: str, rng: np.random.Generator
) -> None:
    values = draw(rng, name, 700)
    assert_result(exactly(values, dtype=DTYPES[result]), expected(values, result))


def test_empty_sums_infinities_and_overflow() -> None:
    assert exactly(np.zeros(0)) == 0
    assert exactly(np.zeros((3, 0)), axis=1).tolist() == [0, 0, 0]
    assert exactly([1e308, 1e308, -1e308]) == 1e308
    assert exactly([1e308, 1e308]) == np.inf
    assert np.isnan(exactly([np.inf, -np.inf]))
    assert str(exactly([-0.0, -0.0])) == str(exactly([-0.0, 0.0])) == "0.0"
    assert str(exactly([-0.0, -0.0], initial=-0.0)) == "-0.0"


def test_what_the_kernel_does_not_do_is_refused_by_name() -> None:
    for op in ("max", "prod", "ptp", "argmin", "any"):
        with pytest.raises(
            ValueError, match=f"'exact' sums numbers: it takes sum, mean, var and std, not {op}"
        ):
            gr.reduce(np.ones(3), op, kernel="exact", device="cpu")
    with pytest.raises(ValueError, match="sums numbers"):
        exactly(np.ones(3), dtype=bool)
    with pytest.raises(TypeError, match="does not make a sum of float64 one of int64"):
        exactly(np.ones(3), dtype=np.int64)


def test_the_number_of_threads_does_not_change_a_bit(rng: np.random.Generator) -> None:
    values = draw(rng, "float64", 300_000)
    before = gr.limits().cpu_threads
    try:
        sums = set()
        for threads in (1, 2, 5):
            gr.set_limits(cpu_threads=threads)
            sums.add(exactly(values).tobytes())
    finally:
        gr.set_limits(cpu_threads=before)
    assert sums == {expected(values, "float64").tobytes()}


# ---------------------------------------------------------------- GPUs


@pytest.mark.gpu
@pytest.mark.parametrize("block", [32, 96, 256, 1024])
@pytest.mark.parametrize("name", FLOATS)
def test_a_gpu_gives_every_bit(name: str, block: int, rng: np.random.Generator) -> None:
    for n in (1, 33, 2_047, 100_003, 3_000_017):
        for make in GENERATORS if n < 10**5 else GENERATORS[:: max(1, len(GENERATORS) // 4)]:
            values = np.ascontiguousarray(make(rng, name, max(n, 3))[:n])
            offset, grid = int(rng.integers(8)), int(rng.choice([0, 1, 7]))
            context = f"{make} n={n} block={block} grid={grid} offset={offset} {SEED}"
            for on_device in (False, True):
                check_all_bits(
                    lambda x, o=offset, g=grid, d=on_device: sum_on_device(
                        x, "sum", o, block, g, d
                    ),
                    values,
                    context,
                )
            mean = sum_on_device(values, "mean", offset, block, grid, True)
            assert_result(values.dtype.type(mean), expected(values, name, n), context)


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(16))
def test_a_gpu_rounds_sums_and_means_of_all_pairs_of_float16_once(
    part: int, rng: np.random.Generator
) -> None:
    """A float64 holds such a sum, and its half. An ordinary run draws a sixteenth of a part."""
    second = np.arange(65_536, dtype=np.uint16).view(np.float16)
    pieces = range(16) if EVERYTHING else [int(rng.integers(16))]
    for piece in pieces:
        first = np.arange(256, dtype=np.uint16) + np.uint16((part * 16 + piece) * 256)
        pairs = np.empty((256, 65_536, 2), np.float16)
        pairs[..., 0] = first.view(np.float16)[:, np.newaxis]
        pairs[..., 1] = second
        with np.errstate(all="ignore"):
            sums = pairs[..., 0].astype(np.float64) + pairs[..., 1]
            wanted = {"sum": sums.astype(np.float16), "mean": (sums / 2).astype(np.float16)}
        for op, right in wanted.items():
            got = sum_on_device(pairs, op, 0, 256, 0, on_device=True)
            same = (got.view(np.uint16) == right.view(np.uint16)) | (
                np.isnan(got) & np.isnan(right)
            )
            wrong = np.argwhere(~same)
            assert wrong.size == 0, (
                f"{op} of {pairs[tuple(wrong[0])]}: {got[tuple(wrong[0])]}, GPR_TEST_SEED={SEED}"
            )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in FLOATS if name != "float16"])
def test_a_gpu_sums_a_number_that_bins_do_not_hold(name: str, rng: np.random.Generator) -> None:
    check_outliers_among(rng, name, 1000, f"GPR_TEST_SEED={SEED}")


@pytest.mark.gpu
def test_more_rows_than_scratch_has_room_for_are_summed() -> None:
    exact_layouts.check_slots({"seed": SEED})


@pytest.mark.gpu
def test_infinities_and_nan_settle_rows_of_float64_on_a_gpu() -> None:
    exact_layouts.check_specials({"seed": SEED})


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", [*FLOATS, "complex64", "complex128", "bool", "int8", "int64", "uint32"]
)
def test_a_gpu_gives_every_bit_of_every_layout(name: str) -> None:
    for number in range(60 if EVERYTHING else 20):
        rng = np.random.default_rng([SEED, number, *name.encode()])
        block = (0, 64, 96, 512)[number % 4]
        exact_layouts.check_random(rng, name, block, f"{name} case {number} GPR_TEST_SEED={SEED}")


@pytest.mark.gpu
@pytest.mark.parametrize("name", DTYPES)
def test_states_of_arrays_on_hosts_and_gpus_are_the_same(name: str) -> None:
    devices = len(gr.devices())
    for number in range(40 if EVERYTHING else 15):
        rng = np.random.default_rng([SEED, number, *name.encode()])
        exact_states.check_random(rng, name, f"{name} case {number} GPR_TEST_SEED={SEED}", devices)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FLOATS, "complex64", "complex128", *INTEGERS])
def test_a_gpu_and_the_cpu_agree_to_the_bit(name: str, rng: np.random.Generator) -> None:
    """Host arrays: streamed in chunks, with masks, rows and NaN left out."""
    for n in (5, 4_099, 6_000_001):
        if name.startswith("complex"):
            values = draw(rng, {"complex64": "float32", "complex128": "float64"}[name], 2 * n).view(
                name
            )
        elif name in FLOATS:
            values = draw(rng, name, n)
        else:
            values = random_array(rng, DTYPES[name], n, "sum")
        mask = rng.random(n) < 0.7
        mask[0] = True
        calls = [
            (gr.sum, {}),
            (gr.mean, {}),
            (gr.sum, {"where": mask}),
            (gr.mean, {"where": mask}),
            (gr.nansum, {}),
        ]
        for function, options in calls:
            on_gpu, on_cpu = (
                function(values, kernel="exact", device=device, **options)
                for device in ("cuda", "cpu")
            )
            assert on_gpu.tobytes() == on_cpu.tobytes(), (
                f"{function} {n} {list(options)} {SEED}: {on_gpu} {on_cpu}"
            )
