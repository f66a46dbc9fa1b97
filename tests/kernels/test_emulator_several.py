"""Several reductions in one pass, emulated: the bits of calls of their own, and no rule broken."""

from __future__ import annotations

import emu
import pytest
from draws import EVERYTHING, SEED

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
FLOATS = DTYPES[:4]


def draw(count: int, dtypes: tuple[str, ...], place: int) -> list[str]:
    """Some types; every type has its turn as runs go by."""
    if EVERYTHING:
        return list(dtypes)
    return [dtypes[(SEED + place + 5 * i) % len(dtypes)] for i in range(count)]


def demand(do: str, dtypes: list[str], **more: object) -> None:
    tasks = [
        {
            "do": do,
            "dtype": dtype,
            "block": (0, 32, 0, 64, 0, 256)[(SEED + i) % 6],
            "seed": SEED,
            "count": 8 if EVERYTHING else 1,
            "limit": 900.0 if EVERYTHING else 240.0,
            **more,
        }
        for i, dtype in enumerate(dtypes)
    ]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)} types:\n" + "\n".join(wrong)


@pytest.mark.long
def test_device_arrays_have_the_bits_of_calls_of_their_own() -> None:
    demand("several.check_device_arrays", draw(1, DTYPES, 0))


def test_folds_add_elements_in_the_order_of_their_own_calls() -> None:
    demand("several.check_long_rows", draw(1, ("bool", "int32", "int8"), 2), block=32)


@pytest.mark.long
def test_an_exact_sum_shares_the_pass_with_folds() -> None:
    ops = ["sum", "mean", "nansum", "nanmean", "min", "argmin", "nanmax", "nanstd"]
    demand("several.check_device_arrays", draw(1, FLOATS, 1), ops=ops, slow_float64=SEED % 2 == 0)


@pytest.mark.long
def test_members_that_leave_nan_out_are_beside_others() -> None:
    demand("several.check_nans_beside_each_other", draw(1, FLOATS, 2))


@pytest.mark.long
def test_results_of_one_exact_sum_do_not_depend_on_each_other() -> None:
    floats = ["float32", "float64"] if EVERYTHING else [("float32", "float64")[SEED // 2 % 2]]
    demand("several.check_shared_sums", floats, slow_float64=SEED % 2 == 0)


@pytest.mark.long
def test_host_arrays_cross_the_bus_in_pieces() -> None:
    demand("several.check_host_arrays", draw(1, DTYPES, 3))


@pytest.mark.long
def test_exponentials_of_many_elements_are_summed_at_once() -> None:
    demand("operators.check_exponentials", draw(2, DTYPES[:3] + DTYPES[4:7], 4))
