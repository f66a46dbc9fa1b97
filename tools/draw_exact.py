"""Draw docs/exact-sums.md's pictures of benchmarks/results: tools/draw_exact.py [FOLDER]."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
# Colours and marks by contender: told apart without colour, too.
STYLES = {
    "exact": ("#0072b2", "o", "exact"),
    "fast": ("#e69f00", "s", "fast"),
    "numpy.sum": ("#555555", "v", "numpy.sum"),
    "math.fsum": ("#000000", "+", "math.fsum"),
    "cub": ("#009e73", "^", "CUB"),
    "cupy": ("#cc79a7", "D", "CuPy"),
    "torch": ("#d55e00", "x", "PyTorch"),
}
CANCELLING = "cancelling"  # where errors are to be seen


def load(part: str) -> dict[str, Any]:
    (path,) = RESULTS.glob(f"{part}-nvidia-*.json")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def draw(axes: Any, name: str, x: list[float], y: list[float]) -> None:
    colour, mark, label = STYLES[name]
    axes.plot(x, y, color=colour, marker=mark, markersize=5, linewidth=1.2, label=label)


def draw_errors(folder: pathlib.Path) -> None:
    """Error over the number of elements, of sums in which much cancels."""
    rows = [row for row in load("accuracy")["rows"] if row["data"] == CANCELLING]
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    figure, grid = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    for axes, dtype in zip(grid, dtypes, strict=True):
        for name in STYLES:
            points = [
                (r["elements"], r["ulps"][name])
                for r in rows
                if r["dtype"] == dtype and name in r["ulps"]
            ]
            if points:
                draw(axes, name, *(list(each) for each in zip(*points, strict=True)))
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(-0.2, 2 * max(max(row["ulps"].values()) for row in rows))
        axes.set_title(dtype)
        axes.set_xlabel("elements, which cancel but for a few")
        axes.grid(alpha=0.3)
    grid[0].set_ylabel("error, units in the last place\n(logarithmic above 1)")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(folder / "exact-error.png", dpi=110)
    plt.close(figure)


def draw_speed(folder: pathlib.Path) -> None:
    """Time over size, beside the sums that round; and what hard data costs."""
    result = load("exact")
    largest = max(row["bytes"] for row in result["rows"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    rows = [row for row in result["rows"] if row["dtype"] == "float32" and "peers" in row]
    sizes = [row["bytes"] for row in rows]
    for name in ("exact", "fast"):
        draw(left, name, sizes, [1e3 * row[name]["median"] for row in rows])
    for name in ("cub", "cupy", "torch"):
        points = [
            (row["bytes"], 1e3 * row["peers"][name]["milliseconds"]["median"])
            for row in rows
            if "milliseconds" in row["peers"].get(name, {})
        ]
        if points:
            draw(left, name, *(list(each) for each in zip(*points, strict=True)))
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    left.set_xlabel("bytes of float32")
    left.set_ylabel("device time of a sum, µs")
    left.legend()
    left.grid(alpha=0.3)
    at_largest = [row for row in result["rows"] if row["bytes"] == largest]
    kinds = list(dict.fromkeys(row["data"] for row in at_largest))
    dtypes = list(dict.fromkeys(row["dtype"] for row in at_largest))
    width = 0.8 / len(dtypes)
    for i, (dtype, colour, hatch) in enumerate(
        zip(
            dtypes,
            ("#0072b2", "#e69f00", "#009e73", "#cc79a7"),
            ("", "//", "..", "xx"),
            strict=True,
        )
    ):
        speeds = [
            row["fast"]["median"] / row["exact"]["median"]
            for kind in kinds
            for row in at_largest
            if (row["dtype"], row["data"]) == (dtype, kind)
        ]
        places = [k + (i - (len(dtypes) - 1) / 2) * width for k in range(len(kinds))]
        right.bar(places, speeds, width, label=dtype, color=colour, hatch=hatch, edgecolor="white")
    right.axhline(1, color="#555555", linewidth=0.8)
    right.set_xticks(range(len(kinds)), kinds, rotation=20)
    right.set_ylim(0, 1.28)
    right.set_ylabel("speed of exact over fast's")
    right.set_title(f"{largest >> 30} GiB")
    right.legend(ncols=4, fontsize=8, loc="upper center")
    figure.savefig(folder / "exact-speed.png", dpi=110)
    plt.close(figure)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    draw_errors(folder)
    draw_speed(folder)


if __name__ == "__main__":
    main()
