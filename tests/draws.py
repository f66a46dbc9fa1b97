"""Cases that an ordinary run takes of those that take long: a share, drawn anew each run.

Draws follow from ``GPR_TEST_SEED`` alone, as all processes of a run have to collect the same tests.
``GPR_TEST_ALL=1`` takes every case.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

SEED = int(os.environ["GPR_TEST_SEED"])
EVERYTHING = bool(os.environ.get("GPR_TEST_ALL"))
Case = TypeVar("Case")


def some(
    cases: Iterable[Case],
    share: float,
    family: str,
    *,
    seed: int = SEED,
    everything: bool = EVERYTHING,
) -> list[Case]:
    """A share of the cases, at least one if there is any, in their order.

    Families that name themselves differently draw independently, so that over many runs every
    combination of their cases occurs.
    """
    there = list(cases)
    if everything:
        return there
    count = min(max(round(share * len(there)), 1), len(there))
    places = random.Random(f"{seed} {family}").sample(range(len(there)), count)
    return [there[place] for place in sorted(places)]


def one(cases: Iterable[Case], family: str) -> list[Case]:
    """One of the cases, or all."""
    return some(cases, 0, family)
