"""Fit the costs of a GPU's plans to times of ways to read arrays.

The model is the library's own (``csrc/lib/rules/plan_costs.h``): it prices the ways of an array
under any costs. A measured time is a price and a time per launch, which is the same for all ways.
Two things are wanted of costs, that the cheapest way is the fastest, and that prices are times:

    loss = mean over arrays of log(expected time of the choice / time of the fastest way)
         + PRICE_WEIGHT * mean over ways of log(price / time) ** 2, outliers counted less
         + PRIOR_WEIGHT * mean over costs of log(cost / start) ** 2

The expected time takes ways by weights that fall with their prices, which makes the loss smooth
enough for a search along each cost in turn. The last term keeps costs that no time depends on
where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Costs", "Fit", "Times", "fit_costs", "likely_ways", "loss"]

Floats = NDArray[np.float64]
Costs = tuple[float, ...]

SOFTNESS = 0.05
"""Prices that differ by this share are nearly as good as each other."""
PRICE_WEIGHT, PRIOR_WEIGHT = 0.3, 0.002
OUTLIER = 0.3
"""Logarithm of price over time from which a way counts as an outlier."""
FIRST_STEP, LAST_STEP, SHRINKING = 0.5, 0.01, 0.5
"""Steps of the search, as logarithms."""
FARTHEST = 3.0
"""Logarithm of how far a cost may move from where it began."""
MOST_ROUNDS = 60
NOISE = 1.01
"""Choices slower by no more than this are as good, as times are measured."""
LAUNCH_SHARES = (0.05, 0.2, 0.5, 0.8)
"""Times per launch that the search begins with, over the shortest time."""


@dataclass(frozen=True)
class Times:
    """Times of some of the ways of an array.

    Attributes
    ----------
    ways : ndarray of int
        Numbers of the measured ways, from 1.
    ns : ndarray of float64
        Their times in nanoseconds.
    price : callable
        Prices of all ways of the array in nanoseconds, given costs.
    """

    ways: NDArray[np.int64]
    ns: Floats
    price: Callable[[Costs], Sequence[float]]


@dataclass(frozen=True)
class Fit:
    """Fitted costs, and how good they are on the times they were fitted to.

    Attributes
    ----------
    costs : tuple of float
        As ``PLAN_COSTS`` of the core names them.
    launch_ns : float
        What every measured time has beside its price.
    before, after : float
        Time of the chosen ways over the time of the fastest, a geometric mean over the arrays: with
        the costs that the search began with, and with the fitted ones.
    """

    costs: Costs
    launch_ns: float
    before: float
    after: float


def _prices(times: Times, costs: Costs) -> Floats:
    return np.asarray(times.price(costs), dtype=np.float64)[times.ways - 1]


def _choice_ratio(cells: Sequence[Times], costs: Costs) -> float:
    logs = [np.log(cell.ns[np.argmin(_prices(cell, costs))] / cell.ns.min()) for cell in cells]
    return float(np.exp(np.mean(logs)))


def _robust(residuals: Floats) -> float:
    """Mean square; beyond ``OUTLIER`` the residual itself counts (Huber)."""
    size = np.abs(residuals)
    square = np.where(size <= OUTLIER, size**2, 2 * OUTLIER * size - OUTLIER**2)
    return float(square.mean())


def loss(cells: Sequence[Times], start: Floats, costs: Floats, launch_ns: float) -> float:
    """The number that a fit makes small, of costs and a time per launch."""
    choice, residuals = [], []
    given = tuple(costs.tolist())
    for cell in cells:
        prices = _prices(cell, given)
        weights = np.exp(-np.log(prices / prices.min()) / SOFTNESS)
        fastest = cell.ns.min()
        choice.append(np.log((weights @ cell.ns) / weights.sum() / fastest))
        residuals.append(np.log((prices + launch_ns) / cell.ns))
    return (
        float(np.mean(choice))
        + PRICE_WEIGHT * _robust(np.concatenate(residuals))
        + PRIOR_WEIGHT * float(np.mean(np.log(costs / start) ** 2))
    )


def _search(evaluate: Callable[[Floats], float], origin: Floats) -> tuple[Floats, float]:
    """Search along each coordinate in turn: a minimum near ``origin``, and the value there."""
    point, best = origin.copy(), evaluate(origin)
    steps = np.full(len(point), FIRST_STEP)
    for _ in range(MOST_ROUNDS):
        before_round = point.copy()
        for i in range(len(point)):
            moved = False
            for sign in (1.0, -1.0):
                trial = point.copy()
                trial[i] += sign * steps[i]
                if abs(trial[i] - origin[i]) > FARTHEST:
                    continue
                value = evaluate(trial)
                if value < best:
                    best, point, moved = value, trial, True
                    break
            steps[i] = min(FIRST_STEP, steps[i] * 1.5) if moved else steps[i] * SHRINKING
        # Along the way that the round has gone: costs that trade with each other move together.
        trial = np.clip(2 * point - before_round, origin - FARTHEST, origin + FARTHEST)
        value = evaluate(trial)
        if value < best:
            best, point = value, trial
        if steps.max() < LAST_STEP:
            break
    return point, best


def fit_costs(cells: Sequence[Times], start: Costs) -> Fit:
    """Fit costs to times.

    Parameters
    ----------
    cells : sequence of Times
        One per array; at least one.
    start : tuple of float
        Costs that the search begins with.

    Returns
    -------
    Fit
        Of choices on these arrays that take at most 1.01 times as long as those by ``start``.

    Raises
    ------
    ValueError
        There are no times, or one that is not positive and finite.
    """
    if not cells:
        raise ValueError("costs are fitted to the times of at least one array")
    for cell in cells:
        if len(cell.ns) == 0 or not (np.isfinite(cell.ns) & (cell.ns > 0)).all():
            raise ValueError("times are positive, and there is one for each measured way")
    first = np.array(start, dtype=np.float64)
    least = min(float(cell.ns.min()) for cell in cells)

    def evaluate(at: Floats) -> float:
        return loss(cells, first, np.exp(at[:-1]), float(np.exp(at[-1])))

    # A wrong time per launch is made up for by wrong costs of small arrays, which is a minimum of
    # its own: the search begins with several.
    found = [_search(evaluate, np.log(np.append(first, share * least))) for share in LAUNCH_SHARES]
    point, _ = min(found, key=lambda each: each[1])
    before = _choice_ratio(cells, start)
    fitted: Costs = tuple(np.exp(point[:-1]).tolist())
    after = _choice_ratio(cells, fitted)
    launch_ns = float(np.exp(point[-1]))
    if after > before * NOISE:
        return Fit(start, launch_ns, before, before)
    return Fit(fitted, launch_ns, before, after)


def likely_ways(
    price: Callable[[Costs], Sequence[float]], start: Costs, most: int, rng: Any
) -> list[int]:
    """Numbers of ways worth measuring, the likeliest first: choices of GPUs with other costs.

    Parameters
    ----------
    price : callable
        As in :class:`Times`.
    start : tuple of float
        Costs near those of the GPUs.
    most : int
        Most ways in the list.
    rng : numpy.random.Generator
        Draws the costs of the GPUs, and ways that none of them would choose: a quarter.
    """
    spread, gpus = 0.5, 60
    chosen = [int(np.argmin(price(start))) + 1]
    for _ in range(gpus):
        drawn = np.array(start) * np.exp(rng.normal(0, spread, len(start)))
        way = int(np.argmin(price(tuple(drawn.tolist())))) + 1
        if way not in chosen:
            chosen.append(way)
    count = len(price(start))
    others = [way for way in range(1, count + 1) if way not in chosen]
    extra = min(len(others), max(most // 4, most - len(chosen)))
    picked = rng.choice(others, extra, replace=False).tolist() if extra else []
    return [*chosen[: most - len(picked)], *map(int, picked)]
