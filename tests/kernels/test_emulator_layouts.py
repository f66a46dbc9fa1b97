"""Device arrays of random layouts, emulated: right in all operators and schedules, and clean.

Views lie in memory that ends where they do; partials of blocks and results with gaps between them
are watched like everything else. A failure names the command that repeats it.
"""

from __future__ import annotations

import emu
import pytest
from draws import EVERYTHING, SEED, one, some
from emu.layouts import GIVEN_MEAN, MADE_FOR
from reference import ALL_DTYPES, DTYPES, is_float

COUNT = 40 if EVERYTHING else 2
OPERATORS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "std",
    "count_nonzero", "ptp", "minmax", "bitwise_xor",
)  # fmt: skip


def takes(op: str, dtype: str) -> bool:
    """Whether NumPy's operator takes the type, and means the same by it as elsewhere."""
    if op == "bitwise_xor":
        return not is_float(DTYPES[dtype])
    return dtype != "bool" or op not in ("ptp", "std", "prod")


def draw_dtype(op: str, place: int) -> str:
    """Every type meets every operator as runs go by."""
    names = [name for name in (ALL_DTYPES if op == GIVEN_MEAN else DTYPES) if takes(op, name)]
    return names[(SEED + 5 * place) % len(names)]


@pytest.mark.long
def test_random_layouts_are_right_and_break_no_rule() -> None:
    tasks = [
        {
            "do": "layouts.check_layouts",
            "op": op,
            "kernel": kernel,
            "dtype": draw_dtype(op, place),
            "block": (0, 64, 96)[(SEED + place) % 3],
            "seed": SEED,
            "count": COUNT,
            "limit": 600.0 if EVERYTHING else 120.0,
        }
        for place, (op, kernel) in enumerate(
            [*((op, "fast") for op in OPERATORS), ("sum", "exact"), ("mean", "exact")]
        )
    ]
    tasks = some(tasks, 1 / 2, "layouts")
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)} operators:\n" + "\n".join(wrong)


@pytest.mark.long
def test_variances_about_given_means_read_the_means_of_their_rows() -> None:
    """An ordinary run draws half of the kernels, and a schedule for each array: each has a program
    of its own, as means are of any type.
    """
    kernels = [name for name in MADE_FOR if not name.startswith("exact")]
    dtypes = ("float32", "int16", "float64", "complex64", "float16", "uint8", "bfloat16")
    tasks = [
        {
            "do": "layouts.check_made_for",
            "op": GIVEN_MEAN,
            "kernel": kernel,
            "dtype": dtypes[(SEED + place) % len(dtypes)],
            "spread": not EVERYTHING,
        }
        for place, kernel in enumerate(kernels)
    ]
    tasks[kernels.index("fast_counted")]["dtype"] = (
        "float64"  # of others a thread's moments are too many
    )
    tasks += [
        {
            "do": "layouts.check_layouts",
            "op": GIVEN_MEAN,
            "dtype": draw_dtype(GIVEN_MEAN, place),
            "count": COUNT,
        }
        for place in range(4 if EVERYTHING else 2)
    ]
    for place, task in enumerate(tasks):
        task.update(
            block=(0, 64, 96)[(SEED + place) % 3], seed=SEED, limit=600.0 if EVERYTHING else 120.0
        )
        if task.get("kernel") == "finalize_rows":
            task["block"] = 64
    tasks = some(tasks, 1 / 2, "layouts about given means")
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)


def test_results_of_rows_that_are_the_same_are_copied() -> None:
    """Of results that lie anywhere, in one type or two results a row."""
    cases = (
        ("sum", "fast"), ("sum", "exact"), ("argmax", "fast"), ("minmax", "fast"), ("any", "fast"),
        ("count_nonzero", "fast"), ("max", "fast"),
    )  # fmt: skip
    tasks = [
        {
            "do": "layouts.check_same_rows",
            "op": op,
            "kernel": kernel,
            "dtype": "float32" if kernel == "exact" else draw_dtype(op, place),
            "block": (0, 64)[(SEED + place) % 2],
            "seed": SEED,
            "count": 2,
            "limit": 120.0,
        }
        for place, (op, kernel) in some(enumerate(cases), 1 / 3, "same rows")
    ]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)


def test_columns_of_up_to_24_elements_share_programs() -> None:
    cases = (("sum", "uint8"), ("max", "int16"), ("argmin", "float32"), ("var", "float16"))
    tasks = [
        {
            "do": "layouts.check_made_for",
            "kernel": "fast_few",
            "reaches": True,
            "spread": not EVERYTHING,
            "op": op,
            "dtype": dtype,
            "block": (0, 64, 256)[(SEED + place) % 3],
            "seed": SEED,
            "limit": 120.0,
        }
        for place, (op, dtype) in some(enumerate(cases), 1 / 2, "few columns")
    ]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)


def test_columns_of_a_thread_go_down_large_blocks_in_several_steps() -> None:
    tasks = [
        {
            "do": "layouts.check_made_for",
            "kernel": "fast_columns",
            "block": 1024,
            "spread": not EVERYTHING,
            "seed": SEED,
            "limit": 120.0,
        }
        | {"op": op, "dtype": dtype}
        for op, dtype in one(
            (("var", "float32"), ("max", "uint8"), ("argmin", "float16")), "columns of large blocks"
        )
    ]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)


def test_exact_sums_of_short_rows_are_right_in_blocks_of_any_size() -> None:
    """Each warp has numbers of its own in shared memory. An ordinary run draws one case."""
    tasks = [
        {"do": "layouts.check_made_for", "op": op, "kernel": "exact_rows", "dtype": dtype,
         "block": block, "seed": SEED, "limit": 120.0}
        for op, dtype, block in (
            ("sum", "float64", 1024), ("mean", "float32", 512), ("sum", "bfloat16", 800),
        )
    ]  # fmt: skip
    tasks = one(tasks, "exact rows in blocks")
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)
