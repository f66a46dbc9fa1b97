"""Draws of cases: all of them over many seeds, as many each time, the same by the same seed."""

from __future__ import annotations

import pytest
from draws import some


@pytest.mark.parametrize(
    ("cases", "share", "count"),
    [(0, 0.5, 0), (1, 0.5, 1), (2, 0.1, 1), (4, 0, 1), (7, 0.5, 4), (36, 0.25, 9)],
)
def test_every_case_is_drawn_in_some_run_and_as_many_in_each(
    cases: int, share: float, count: int
) -> None:
    drawn = [some(range(cases), share, "family", seed=i, everything=False) for i in range(100)]
    assert {len(each) for each in drawn} == {count}
    assert {case for each in drawn for case in each} == set(range(cases))
    assert all(each == sorted(each) for each in drawn)


def test_a_seed_repeats_a_draw_and_families_draw_independently() -> None:
    draws = [
        [some(range(4), 0, family, seed=i, everything=False) for i in range(200)]
        for family in ("one", "one", "other")
    ]
    assert draws[0] == draws[1]
    pairs = {(a[0], b[0]) for a, b in zip(draws[0], draws[2], strict=True)}
    assert len(pairs) == 16


def test_everything_is_every_case() -> None:
    assert some("abc", 0, "family", everything=True) == list("abc")
