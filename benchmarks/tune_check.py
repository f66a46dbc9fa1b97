"""Compare plans by tuned costs with plans by hand-fitted ones, on this GPU.

    python benchmarks/tune_check.py [--cells 60] [--seed N]

The costs of H100 and H200 were fitted by hand to thousands of measurements (docs/adr/0012). This
script begins with wrong ones, those of the other card and random ones up to twice as large or
small, has ``gpureduce tune`` fit them on this GPU, and measures, on arrays that the fit has not
seen, the ways that plans choose by each. Nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench.environment import environment
from gpureduce._tune.cells import draw_cells
from gpureduce._tune.fit import Costs, likely_ways
from gpureduce._tune.tune import (
    ARRAYS,
    FLUSH_CACHES,
    LARGEST_BYTES,
    compile_ways,
    measure_and_fit,
    measure_ways,
    price_of,
)

OTHERS = {"H100": 4917.0, "H200": 3352.0}
"""Memory bandwidth, in bytes per nanosecond, of the other one of these two cards."""
FARTHEST = np.log(2)
CANDIDATES = 5


def other_costs(facts: tuple[Any, ...], name: str) -> Costs:
    """Costs of the other card; of a card that is neither, its own with half the bandwidth."""
    other = next((peak for word, peak in OTHERS.items() if word in name), None)
    scale = other / facts[4] if other is not None else 0.5
    return (facts[-1][0] * scale, *facts[-1][1:])


def samples_of(ways: Sequence[Sequence[int]], times: Sequence[Any]) -> dict[str, Any]:
    """Measured ways and their times, as JSON keeps them."""
    return {"ways": list(map(list, ways)), "ns": [np.round(ns).tolist() for ns in times]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--arrays", type=int, default=ARRAYS)
    parser.add_argument("--largest-bytes", type=int, default=LARGEST_BYTES)
    parser.add_argument("--seconds", type=float, default=240, help="about as long as it may take")
    parser.add_argument("--times", type=Path, help="write all times, as JSON")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(np.random.default_rng().integers(1e9))
    rng = np.random.default_rng(seed)
    info = gr.devices()[0]
    facts = _core.device_facts(0)
    by_hand: Costs = facts[-1]
    flush = FLUSH_CACHES * info.l2_bytes
    cells = draw_cells(options.arrays, options.largest_bytes)
    wrong = np.array(by_hand) * np.exp(rng.uniform(-FARTHEST, FARTHEST, len(by_hand)))
    starts = {"other card": other_costs(facts, info.name), "random": tuple(wrong.tolist())}
    print(json.dumps({"device": info.name, "seed": seed, "hand": np.round(by_hand, 1).tolist()}))
    found: dict[str, Costs] = {}
    raw: list[Any] = []
    began = time.perf_counter()
    for name, start in starts.items():
        if found and time.perf_counter() - began > options.seconds / 3:
            continue  # the other cells are for the comparison
        fit_began = time.perf_counter()
        fit, measured = measure_and_fit(cells, facts, start, 0, flush)
        raw.append(samples_of([each.ways.tolist() for each in measured], [t.ns for t in measured]))
        found[name] = fit.costs
        print(
            json.dumps(
                {
                    "from": name,
                    "start": np.round(start, 1).tolist(),
                    "tuned": np.round(fit.costs, 1).tolist(),
                    "choice before": round(fit.before, 4),
                    "after": round(fit.after, 4),
                    "seconds": round(time.perf_counter() - fit_began, 1),
                }
            ),
            flush=True,
        )
    fresh = draw_cells(options.cells, options.largest_bytes, seed)
    prices = [price_of(cell, facts) for cell in fresh]
    every = {"hand": by_hand, **{f"tuned from {name}": costs for name, costs in found.items()}}
    every |= {f"untuned, {name}": start for name, start in starts.items()}
    chosen = [
        {name: int(np.argmin(price(costs))) + 1 for name, costs in every.items()}
        for price in prices
    ]
    ways = [
        sorted({*each.values(), *likely_ways(price, by_hand, CANDIDATES, rng)})
        for each, price in zip(chosen, prices, strict=True)
    ]
    compile_ways(fresh, ways, facts)
    times = measure_ways(fresh, ways, 0, flush)
    raw.append(samples_of(ways, times))
    if options.times is not None:
        result = {"environment": environment(), "seed": seed, "facts": facts, "measured": raw}
        options.times.write_text(json.dumps(result, default=str))
    table = [
        dict(zip(some, ns.tolist(), strict=True)) for some, ns in zip(ways, times, strict=True)
    ]
    for name in every:
        logs = {
            "over hand": [
                np.log(t[c[name]] / t[c["hand"]]) for t, c in zip(table, chosen, strict=True)
            ],
            "over best": [
                np.log(t[c[name]] / min(t.values())) for t, c in zip(table, chosen, strict=True)
            ],
        }
        line: dict[str, Any] = {"costs": name}
        for what, some in logs.items():
            quantiles = np.exp(np.quantile(some, [0.05, 0.5, 0.95, 1.0]))
            line[what] = {
                "mean": round(float(np.exp(np.mean(some))), 4),
                "q05 q50 q95 max": np.round(quantiles, 3).tolist(),
            }
        line["same choice"] = sum(c[name] == c["hand"] for c in chosen)
        print(json.dumps(line), flush=True)
        if name.startswith("tuned from other"):
            worst = np.argsort(logs["over hand"])[-3:]
            for i in worst:
                print(
                    json.dumps(
                        {
                            "slower": str(fresh[i]),
                            "times": round(float(np.exp(logs["over hand"][i])), 3),
                        }
                    )
                )


if __name__ == "__main__":
    main()
