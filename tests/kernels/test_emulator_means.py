"""``mean=`` of variances of device arrays over the emulator: random calls beside NumPy's.

A failure names the command that repeats it.
"""

from __future__ import annotations

import emu
import pytest
from draws import EVERYTHING, SEED, some
from emu.means import DTYPES

COUNT = 60 if EVERYTHING else 5
DRAWN = len(DTYPES) if EVERYTHING else 2


@pytest.mark.long
def test_random_calls_about_given_means_are_numpys() -> None:
    names = sorted(DTYPES)
    tasks = [
        {
            "do": "means.check_calls",
            "dtype": names[(SEED + 5 * place) % len(names)],
            "seed": SEED,
            "count": COUNT,
            "limit": 900.0 if EVERYTHING else 180.0,
        }
        for place in range(DRAWN)
    ]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)} types:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "dtype", some(["float64", "float32", "float16", "complex64"], 1 / 2, "given means")
)
def test_infinities_and_nan_about_given_means_are_numpys(dtype: str) -> None:
    task = {"do": "means.check_specials", "dtype": dtype, "seed": SEED, "limit": 120.0}
    wrong = emu.failures([task])
    assert not wrong, wrong[0]
