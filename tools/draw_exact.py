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
# Colour, mark, its size, and width of the line. Contenders that are drawn later are smaller and
# thinner, so that equal results show each other: CuPy calls CUB, and exact and fsum are right.
STYLES = {
    "exact": ("#0072b2", "o", 12, 4.5, "exact"),
    "fast": ("#e69f00", "s", 8, 2.2, "fast"),
    "numpy.sum": ("#555555", "v", 7, 1.4, "numpy.sum"),
    "math.fsum": ("#000000", "+", 7, 1.0, "math.fsum"),
    "cub": ("#009e73", "^", 12, 4.5, "CUB"),
    "cupy": ("#cc79a7", "D", 5, 1.4, "CuPy"),
    "torch": ("#d55e00", "x", 7, 1.4, "PyTorch"),
}
# Descriptions of the elements, by the name of the data in the results.
DATA = {
    "uniform": "uniform\nin [0, 1)",
    "normal": "normal",
    "lognormal": "lognormal",
    "cancelling": "most\ncancel",
    "outliers": "few huge\noutliers",
    "wide": "all\nexponents",
    "any bits": "random\nbits",
}
CANCELLING = "cancelling"  # where errors are shown


def load(part: str) -> dict[str, Any]:
    (path,) = RESULTS.glob(f"{part}-nvidia-*.json")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def show_size(size: int) -> str:
    """A number of bytes that is a power of two."""
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def draw(axes: Any, name: str, x: list[float], y: list[float], *, nested: bool) -> None:
    colour, mark, size, width, label = STYLES[name]
    if not nested:
        size, width = 6, 1.4
    is_cross = mark in "+x"
    axes.plot(
        x,
        y,
        color=colour,
        marker=mark,
        markersize=size,
        linewidth=width,
        label=label,
        markeredgewidth=1.4 if is_cross else 0.6,
        markeredgecolor=colour if is_cross else "white",
    )


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
                draw(axes, name, *(list(each) for each in zip(*points, strict=True)), nested=True)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(-0.2, 2 * max(max(row["ulps"].values()) for row in rows))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_title(f"Sums of {dtype} of which most cancel")
        axes.set_xlabel("elements")
        axes.grid(alpha=0.3)
    grid[0].set_ylabel("error, units in the last place\n(logarithmic above 1)")
    handles = figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
    handles.set_title("equal results\nare drawn nested")
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
        draw(left, name, sizes, [1e3 * row[name]["median"] for row in rows], nested=False)
    for name in ("cub", "cupy", "torch"):
        points = [
            (row["bytes"], 1e3 * row["peers"][name]["milliseconds"]["median"])
            for row in rows
            if "milliseconds" in row["peers"].get(name, {})
        ]
        if points:
            draw(left, name, *(list(each) for each in zip(*points, strict=True)), nested=False)
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    left.set_xticks(sizes, [show_size(size) for size in sizes], rotation=20)
    left.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    (data,) = {row["data"] for row in rows}
    left.set_title(f"Sum of float32 ({data} data) on the GPU")
    left.set_xlabel("size of the array (logarithmic)")
    left.set_ylabel("time on the device, µs (logarithmic)")
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
    right.set_xticks(range(len(kinds)), [DATA[kind] for kind in kinds], fontsize=9)
    right.set_ylim(0, 1.28)
    right.set_xlabel("what the elements are")
    right.set_ylabel("speed of exact divided by speed of fast")
    right.set_title(f"What hard data cost: sums of {show_size(largest)}")
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
