"""Draw the pictures of docs/explain.md and README.md: python tools/draw_explain.py [FOLDER]."""

from __future__ import annotations

import pathlib
import sys

import gpureduce as gr
from gpureduce._explain.picture import save

IMAGES = pathlib.Path(__file__).parents[1] / "docs" / "images"
PICTURES = {
    "explain-trees.png": ("interleaved_modulo", "interleaved_strided", "sequential"),
    "explain-last-warp.png": ("unrolled_last_warp",),
    "explain-shuffles.png": ("shfl_atomic",),
}
BLOCK_SIZE = 128  # four warps: enough to see a pattern, few enough to see a thread


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, kernels in PICTURES.items():
        save(gr.explain(kernels, block_size=BLOCK_SIZE), folder / name)


if __name__ == "__main__":
    main()
