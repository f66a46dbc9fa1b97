"""Run every kernel once over a few types and shapes on the first GPU: work for compute-sanitizer.

Sizes straddle warps and blocks and make several blocks; results are checked, so that a tool that
changes timing still finds a wrong sum.
"""

from __future__ import annotations

import sys

import numpy as np

import gpureduce as gr

DTYPES = ("uint8", "float16", "int32", "float32", "float64")
SIZES = (1, 31, 1000, 20_011)


def main() -> int:
    rng = np.random.default_rng(1)
    wrong = 0
    for kernel in gr.kernels():
        if not kernel.available:
            print(f"{kernel.name}: {kernel.reason}")
            continue
        for dtype in DTYPES:
            for n in SIZES:
                values = rng.integers(0, 3, (2, n)).astype(dtype)
                for op in ("sum", "max"):
                    whole = gr.reduce(values, op, kernel=kernel.name, device="cuda")
                    rows = gr.reduce(values, op, axis=1, kernel=kernel.name, device="cuda")
                    exact = getattr(values.astype(np.float64), op)  # rounded once, as ours is
                    right = whole == exact().astype(whole.dtype)
                    if not right or np.any(rows != exact(axis=1).astype(rows.dtype)):
                        print(f"{kernel.name} {op} {dtype} {n}: wrong")
                        wrong += 1
        print(f"{kernel.name}: done")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
