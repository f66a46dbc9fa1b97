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
    "explain-copies.png": ("async_copy",),
    "explain-bulk-copies.png": ("bulk_copy",),
}
BLOCK_SIZE = 128  # four warps: enough to see a pattern, few enough to see a thread
OPTIONS = {  # five and four rounds for each block: copies begin three rounds ahead
    "explain-copies.png": {"n": 5120, "grid_size": 2},
    "explain-bulk-copies.png": {"n": 4096, "grid_size": 2},
}


def explain(name: str) -> gr.Explanations:
    """What a picture shows."""
    return gr.explain(PICTURES[name], block_size=BLOCK_SIZE, **OPTIONS.get(name, {}))


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        save(explain(name), folder / name)


if __name__ == "__main__":
    main()
