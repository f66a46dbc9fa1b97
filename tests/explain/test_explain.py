"""Explanations say what kernels do: figures beside an independent model, every form, errors.

The emulator is built with the package; all it takes beside it is a C++ compiler.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import os
import pickle
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import draw_explain
import numpy as np
import pytest
import tree_model
from draws import SEED, one, some
from outputs import assert_balanced, run_command

import gpureduce as gr
from gpureduce import _core, _emulator_process
from gpureduce._cli import command
from gpureduce._display.figures import DPI
from gpureduce._explain import (
    emulator_worker,
    explain,
    figure_tables,
    launches,
    page,
    picture,
    picture_parts,
    report,
    timeline,
)

TREES = ("interleaved_modulo", "interleaved_strided", "sequential")
KERNELS = tuple(name for name in _core.KERNEL_FILES if name not in ("cub", "auto"))
ACCUMULATOR = {"float32": 4, "int32": 8, "float64": 8, "uint8": 8, "float16": 4}
PAGE_PIXELS, POINTS_PER_INCH, LEAST_PIXELS = 830, 72, 8
"""Width of a page on GitHub, and the least height of letters in its pictures."""

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "c++", "clang++")),
    reason="explain needs a C++ compiler",
)


@pytest.fixture(scope="module")
def trees() -> gr.Explanations:
    """The three trees with four warps a block."""
    return gr.explain(TREES, block_size=128)


@pytest.fixture(scope="module")
def strided(trees: gr.Explanations) -> gr.Explanation:
    return trees[1]


def figures_of(figures: launches.Figures, names: Any) -> dict[str, int]:
    return {name: getattr(figures, name) for name in names}


# ---------------------------------------------------------------- figures


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(kernel, dtype) for kernel in TREES for dtype in some(ACCUMULATOR, 0.4, f"columns, {kernel}")],
)
def test_every_column_of_a_tree_is_as_an_independent_model_has_it(kernel: str, dtype: str) -> None:
    rng = np.random.default_rng([SEED, TREES.index(kernel), len(dtype)])
    block, n = int(rng.choice([32, 64, 128, 256])), int(rng.integers(1, 2000))
    launch = gr.explain(kernel, n, block_size=block, dtype=dtype).main
    model = tree_model.launch_columns(
        kernel, block, n, np.dtype(dtype).itemsize, ACCUMULATOR[dtype]
    )
    assert len(launch.columns) == len(model)
    for i, (column, expected) in enumerate(zip(launch.columns, model, strict=True)):
        found = figures_of(column.figures, expected)
        assert found == expected, f"seed {SEED}, n {n}, block {block}, column {i}"


@needs_compiler
@pytest.mark.parametrize("block", [64, 128, 256, 512])
def test_conflicts_of_interleaved_strided_follow_from_its_stride(block: int) -> None:
    launch = gr.explain("interleaved_strided", block, block_size=block).main
    tree = launch.columns[1:-1]
    assert len(tree) == math.log2(block)
    for k, column in enumerate(tree):
        lanes = min(block >> (k + 1), 32)
        banks = 32 // math.gcd(2 ** (k + 1), 32)  # that words 2s apart fall into
        assert column.figures.ways == -(-lanes // banks), f"s = {2**k}"


@needs_compiler
def test_the_three_trees_differ_as_the_course_describes(trees: gr.Explanations) -> None:
    modulo, strided, sequential = (each.figures for each in trees)
    assert modulo.active_threads == strided.active_threads == sequential.active_threads
    assert modulo.active_warps > strided.active_warps == sequential.active_warps
    assert modulo.lanes_per_warp < strided.lanes_per_warp == sequential.lanes_per_warp
    assert (modulo.bank_conflicts, sequential.bank_conflicts) == (0, 0)
    assert strided.bank_conflicts > 0


@needs_compiler
def test_atomics_are_counted_and_how_many_meet_on_an_address() -> None:
    rng = np.random.default_rng(SEED)
    n = int(rng.integers(600, 3000))
    naive = gr.explain("naive_atomic", n).figures
    assert (naive.atomics, naive.most_on_one_address) == (n, n)
    shared = gr.explain("shared_atomic", n, block_size=64).main
    blocks = -(-n // 64)
    assert shared.atomics["global"].operations == shared.atomics["global"].most == blocks
    assert shared.atomics["shared"].operations == shared.figures.atomics - blocks
    warps = gr.explain("shfl_atomic", 2048, block_size=128, grid_size=2).main
    assert warps.atomics["global"].operations == 2 * 128 // 32


@needs_compiler
@pytest.mark.parametrize("kernel", ["interleaved_strided", "shared_atomic", "naive_atomic"])
def test_the_drawn_block_has_its_share_of_a_launchs_counts(kernel: str) -> None:
    for blocks in (1, 4):
        launch = gr.explain(kernel, blocks * 128, block_size=128).main
        assert launch.grid == blocks
        assert sum(launch.map.conflicts) * blocks == launch.figures.bank_conflicts
        assert sum(launch.map.atomics) * blocks == launch.figures.atomics


@needs_compiler
def test_the_two_ways_to_be_idle_are_counted_apart(trees: gr.Explanations) -> None:
    for each in trees:
        for figures in (each.figures, *(column.figures for column in each.main.columns)):
            assert figures.diverged + figures.waiting == pytest.approx(figures.idle)
        map_ = each.main.map
        kinds = [
            run.kind
            for strip in timeline.strips(each.main)
            for run in strip.runs
            for _ in range(run.first, run.last + 1)
        ]
        present = len(kinds) - kinds.count(timeline.GONE)
        assert map_.threads == 128
        main = each.main.figures
        assert kinds.count(timeline.DIVERGED) / present == pytest.approx(main.diverged)
        assert kinds.count(timeline.WAITING) / present == pytest.approx(main.waiting)
    modulo, strided, _ = (each.figures for each in trees)
    assert modulo.idle == pytest.approx(strided.idle)
    assert modulo.diverged > 3 * strided.diverged
    rows = {row[0]: row[1:] for row in figure_tables.comparison_table(trees)[1]}
    assert rows["idle lanes, warp active (best: 0%)"] == [
        f"{each.figures.diverged:.1%}" for each in trees
    ]
    assert rows["idle warps (cheap)"] == [f"{each.figures.waiting:.1%}" for each in trees]
    assert rows["launches"] == ["first, next, finish"] * 3


@needs_compiler
def test_steps_in_helpers_name_the_helpers_line_and_the_one_that_calls_it() -> None:
    run = gr.explain("shfl_two_pass", block_size=64)
    table = {row[0]: row[1] for row in figure_tables.column_table(run.main, run.file)[1]}
    source = run.source().splitlines()
    helpers = _core.sources()
    for step, (ends, call) in {
        "0.0": ("shuffle", "__shfl_down_sync"),
        "0.5": ("barrier", "__sync"),
    }.items():
        found = re.fullmatch(rf"{ends}, ([\w.]+):(\d+) from line (\d+)", table[step])
        assert found is not None, table[step]
        assert call in helpers[found[1]].splitlines()[int(found[2]) - 1]
        assert "block_reduce" in source[int(found[3]) - 1]
    assert "5 steps, because 2^5 = 32" in str(run)
    assert "one warp after it, with the warps' results" in str(run)
    assert "because 2^5" not in str(gr.explain("sequential", block_size=64))


@needs_compiler
@pytest.mark.parametrize(("dtype", "words"), [("float32", 1), ("int32", 2)])
def test_shuffles_of_a_warp_are_five_for_each_word(dtype: str, words: int) -> None:
    launch = gr.explain("shfl_atomic", 1024, block_size=256, dtype=dtype).main
    assert launch.figures.shuffles == 5 * words * 1024 // 32
    assert launch.figures.coalescing == 1
    assert launch.figures.barriers == 0


@needs_compiler
def test_idle_is_counted_among_warps_that_are_still_there() -> None:
    # Eight warps shuffle and come to the barrier; after it only the first one is left, and all of
    # its lanes shuffle.
    launch = gr.explain("shfl_two_pass", 256, block_size=256).main
    after = [column for column in launch.columns if column.phase == 1]
    assert [column.figures.slots for column in after] == [32] * len(after)
    assert launch.columns[0].figures.slots == 256
    assert after[0].figures.idle == 0


@needs_compiler
def test_totals_are_sums_and_stages_are_named(trees: gr.Explanations) -> None:
    summed = (
        "active_threads",
        "slots",
        "shared_loads",
        "bank_conflicts",
        "global_requests",
        "sectors",
        "barriers",
    )
    for each in [*trees, gr.explain("naive_atomic")]:
        for name in summed:
            parts = [getattr(launch.figures, name) for launch in each.launches]
            assert getattr(each.figures, name) == sum(parts)
            for launch, part in zip(each.launches, parts, strict=True):
                assert part == sum(getattr(column.figures, name) for column in launch.columns)
        assert each.figures.launches == len(each.launches)
    assert [launch.stage for launch in trees[0].launches] == ["first", "next", "finish"]
    assert [launch.stage for launch in gr.explain("naive_atomic").launches] == [
        "fill",
        "first",
        "finish",
    ]
    # Its partials are wider than its elements.
    wider = gr.explain("sequential", 200, block_size=64, dtype="int32")
    assert [launch.stage for launch in wider.launches] == ["first", "next", "finish"]
    assert "<Next," in wider.launches[1].entry


@needs_compiler
def test_rows_have_blocks_of_their_own() -> None:
    one, four = (gr.explain("sequential", 100, block_size=64, rows=rows) for rows in (1, 4))
    assert four.main.grid == 4 * one.main.grid
    assert four.main.figures.active_threads == 4 * one.main.figures.active_threads
    assert (four.rows, four.n) == (4, 100)


@needs_compiler
def test_a_long_array_is_one_launch() -> None:
    assert gr.explain("multi_add_chunks", 300_000).main.grid == -(-300_000 // (256 * 8))


@needs_compiler
def test_explaining_twice_gives_the_same(strided: gr.Explanation) -> None:
    assert gr.explain("reduce1", block_size=128) == strided
    assert pickle.loads(pickle.dumps(strided)) == strided


@needs_compiler
def test_auto_is_explained_as_the_kernel_it_selects_for_the_operator_and_dtype() -> None:
    assert gr.explain("auto", op="sum", dtype="float32").kernel == "exact"
    assert gr.explain("auto", op="max", dtype="float32").kernel == "fast"


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_an_explanation_in_every_form(name: str) -> None:
    """An ordinary run draws one of the forms that take as long as the explanation."""
    each = gr.explain(name)
    info = next(kernel for kernel in gr.kernels() if kernel.name == name)
    assert each.kernel == name
    # The planner chooses blocks for the array.
    assert each.block_size == info.block_size or info.family == "planner"
    assert each.main.grid in (1, 4)
    assert name in str(each)
    for form in one(("HTML", "JSON"), f"form, {name}"):
        if form == "HTML":
            assert_balanced(each._repr_html_())
        else:
            assert json.loads(each.to_json()) == each.to_dict()
    assert "gpr" in each.annotated_source()
    assert sum(requests for requests, *_ in each.line_counts().values()) > 0
    for launch in each.launches:
        for column in launch.columns:
            assert 0 <= column.figures.active_threads <= column.figures.slots
            assert column.figures.bank_conflicts >= 0


# ---------------------------------------------------------------- text, JSON, CSV, HTML


@needs_compiler
def test_the_table_has_the_figures_of_each_phase(strided: gr.Explanation) -> None:
    text = str(strided)
    assert text.startswith("interleaved_strided: sum of 512 float32, blocks of 128 threads\n")
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("-----"))
    for line, column in zip(lines[first + 1 :], strided.main.columns, strict=False):
        words = line.split()
        assert words[0] == str(column.phase)
        assert column.ends in line
        assert f"{column.figures.active_threads:,}" in words
        assert f"{column.figures.bank_conflicts:,}" in words
    assert "1 first" in text
    assert "2 next" in text
    assert "shuffles" not in text  # there are none
    assert max(map(len, lines)) <= 150


@needs_compiler
def test_a_long_table_is_cut_and_counts_the_rows_left_out() -> None:
    each = gr.explain("single_warp_ordered_padded", 640)
    many = len(each.main.columns)
    assert many > figure_tables.MOST_ROWS
    assert f"{many - figure_tables.MOST_ROWS:,} more" in str(each)
    assert len(each.to_csv().splitlines()) == 1 + sum(
        len(launch.columns) for launch in each.launches
    )


@needs_compiler
def test_the_margin_of_the_source_has_the_counts_of_its_lines(strided: gr.Explanation) -> None:
    source = gr.kernel_source("interleaved_strided").splitlines()
    annotated = strided.annotated_source().splitlines()[1:]
    assert [line.partition("| ")[2] for line in annotated] == [line.rstrip() for line in source]
    combining = next(i for i, line in enumerate(source) if "Traits::combine(" in line)
    figures = strided.main.figures
    requests = figures.shared_loads + figures.shared_stores
    # The tree is one line; the first store and the last load are others.
    blocks = strided.main.grid
    expected = requests - blocks * (128 // 32 + 1)
    assert annotated[combining].split()[0] == f"{expected:,}"
    assert f"{figures.bank_conflicts:,}" in annotated[combining].split()


@needs_compiler
def test_json_and_csv_hold_the_same_figures(trees: gr.Explanations, tmp_path: Path) -> None:
    for each in trees:
        again = json.loads(each.to_json(indent=1))
        assert again == each.to_dict()
        assert again["figures"]["bank_conflicts"] == each.figures.bank_conflicts
    assert json.loads(trees.to_json()) == trees.to_dict()
    path = tmp_path / "figures.csv"
    text = trees.to_csv(path)
    assert path.read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = [column for each in trees for launch in each.launches for column in launch.columns]
    assert len(rows) == len(columns)
    for row, column in zip(rows, columns, strict=True):
        figures = column.figures.to_dict()
        for name in (
            "active_threads",
            "slots",
            "wavefronts",
            "sectors",
            "idle",
            "ways",
            "coalescing",
        ):
            assert row[name] == ("" if figures[name] is None else str(figures[name]))
        assert (row["phase"], row["ends"]) == (str(column.phase), column.ends)


@needs_compiler
def test_several_print_with_a_kernel_a_column_and_are_a_sequence(trees: gr.Explanations) -> None:
    lines = str(trees).splitlines()
    assert lines[0].split() == ["all", "launches", *TREES]
    row = next(line for line in lines if line.startswith("bank conflicts"))
    assert row.split()[2:] == [f"{each.figures.bank_conflicts:,}" for each in trees]
    assert [each.kernel for each in trees] == list(TREES)
    assert isinstance(trees[1:], gr.Explanations)
    assert (len(trees[1:]), trees[-1].kernel) == (2, "sequential")


@needs_compiler
def test_a_table_says_what_it_is_of_and_which_kernels_have_an_alias(
    trees: gr.Explanations, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks for reduce0 finds reduce0 in the table."""
    lines = str(trees).splitlines()
    assert lines[2].split() == ["alias", "reduce0", "reduce1", "reduce2"]
    shared = "sum of 512 float32, blocks of 128 threads, counts of all launches on the emulated GPU"
    assert lines[-1] == shared
    assert shared in trees._repr_html_()
    mixed = gr.explain(["reduce0", "shfl_atomic", "single_warp"], dtype="int32")
    lines = str(mixed).splitlines()
    assert lines[3].split() == ["elements", *(f"{each.n:,}" for each in mixed)]
    assert lines[4].split() == ["threads", "per", "block", "256", "512", "32"]
    assert lines[-2] == "sum of int32, counts of all launches on the emulated GPU"
    assert lines[-1].startswith("the arrays differ in size, and so do the counts: n, or -n")


@needs_compiler
def test_kernels_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """An exported kernel has the name of the one that it was."""
    (tmp_path / "mine.cu").write_text(gr.kernel_source("sequential", standalone=True))
    mine = gr.Kernel(tmp_path / "mine.cu")
    several = gr.explain([mine, "sequential", mine], 256, block_size=256)
    names = ["sequential in mine.cu", "sequential", "sequential in mine.cu #2"]
    assert repr(several) == f"<Explanations: {', '.join(names)}>"
    shown = several._repr_html_()
    assert all(f"<h4>{name}</h4>" in shown for name in names)
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture.save(several, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert all(f"<!-- {name}" in drawn for name in names)


@needs_compiler
def test_html_is_balanced_escaped_and_has_picture_table_and_source(strided: gr.Explanation) -> None:
    parsed = assert_balanced(strided._repr_html_())
    assert {"svg", "table", "style"} <= set(parsed.seen)
    assert "".join(parsed.data).count("template <class Traits, unsigned BLOCK>") == 1
    assert "&lt;class Traits" in strided._repr_html_()
    assert any(text == "4-way" for text in parsed.data)


@needs_compiler
def test_html_of_several_and_as_a_page(trees: gr.Explanations) -> None:
    assert assert_balanced(trees._repr_html_()).seen.count("svg") == 3
    text = page.page(trees)
    assert text.startswith("<!DOCTYPE html>")
    assert {"html", "head", "title", "body"} <= set(assert_balanced(text).seen)


# ---------------------------------------------------------------- pictures


@needs_compiler
def test_the_picture_shows_each_thread_as_the_map_has_it(trees: gr.Explanations) -> None:
    for each in trees:
        launch = each.main
        # Trees have no shuffle, before which a column would be cut.
        for strip, did, ways in zip(
            timeline.strips(launch), launch.map.did, launch.map.ways, strict=True
        ):
            shown = [run.kind for run in strip.runs for _ in range(run.first, run.last + 1)]
            assert len(shown) == launch.block
            idle = (timeline.GONE, timeline.WAITING, timeline.DIVERGED)
            assert [kind not in idle for kind in shown] == [bool(bits) for bits in did]
            assert [kind == timeline.CONFLICT for kind in shown] == [degree > 1 for degree in ways]
            for warp in range(0, launch.block, 32):
                kinds = set(shown[warp : warp + 32]) & set(idle)
                assert kinds <= (
                    {timeline.DIVERGED}
                    if any(did[warp : warp + 32])
                    else {timeline.WAITING, timeline.GONE}
                )


@needs_compiler
def test_a_warps_five_shuffles_are_five_columns() -> None:
    """The first one is drawn beside the loads that come before it, not in their column."""
    launch = gr.explain("shfl_atomic", block_size=64).main
    drawn = timeline.strips(launch)
    assert [strip.label for strip in drawn] == [
        "load", *(f"shuffle {i}" for i in range(1, 6)), "atomic"
    ]  # fmt: skip
    assert [strip.column for strip in drawn] == [0, 0, 1, 2, 3, 4, 5]
    assert [strip.ends for strip in drawn] == ["", *["shuffle"] * 5, "exit"]
    assert [strip.threads for strip in drawn] == [*[64] * 6, 2]
    two = timeline.strips(gr.explain("shfl_two_pass", block_size=64).main)
    assert [strip.label.split()[0] for strip in two].count("shuffle") == 10


@needs_compiler
def test_every_kind_that_is_drawn_is_in_the_legend(
    strided: gr.Explanation, trees: gr.Explanations, tmp_path: Path
) -> None:
    assert "its warp has exited" in strided._repr_html_()
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture.save(list(trees), tmp_path / "trees.svg")
    text = (tmp_path / "trees.svg").read_text()
    for words in ("its warp has exited", "idle with its whole warp"):
        assert f"<!-- {words} -->" in text or words in text


@needs_compiler
def test_white_lines_are_in_the_legend_where_there_are_any(trees: gr.Explanations) -> None:
    words = "next step, no block barrier"
    shuffles = gr.explain("shfl_two_pass", block_size=64)
    assert words in shuffles._repr_html_()
    assert words in [entry.words for entry in picture_parts.legend([shuffles])]
    assert words not in trees._repr_html_()  # a barrier ends each of their steps


@needs_compiler
def test_html_shows_what_the_picture_shows(trees: gr.Explanations, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture.save(list(trees), tmp_path / "trees.svg")
    drawn = re.findall(r"<!-- (.+?) -->", (tmp_path / "trees.svg").read_text())
    shown = html.unescape(trees._repr_html_())
    legend = re.findall(r'class="gpr-key"><i style="[^"]*"></i>([^<]+)<', shown)
    # matplotlib draws a text of several lines as one, and HTML each by itself
    texts = {line for text in drawn for line in text.splitlines()} | set(legend)
    assert {"block barrier", "warp boundary", "accesses shared memory, bank conflict"} <= set(
        legend
    )
    assert {"launch 1 of 3: 180 bank conflicts", "step", "active threads", "active warps"} <= texts
    for text in texts - {""}:
        assert f">{text}<" in shown, text
    conflicts = sum(text.endswith("-way") for text in drawn)
    assert conflicts > 0
    assert len(re.findall(r">\d+-way<", shown)) == conflicts


CONFLICTS = """
__global__ void conflicts(const float *in, float *out, unsigned n)
{
    __shared__ float s[32 * 64];
    unsigned t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t * 32] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned h = 32; h > 0; h /= 2) {
        if (t < h) s[t * 32] += s[(t + h) * 32];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""


@needs_compiler
def test_bank_conflicts_beside_a_load_and_of_atomics_are_hatched(tmp_path: Path) -> None:
    mine = gr.explain(gr.Kernel(CONFLICTS), block_size=64)
    load = timeline.strips(mine.main)[0]
    assert [(run.kind, run.ways) for run in load.runs] == [(timeline.LOAD, 32)]
    atomic = timeline.strips(gr.explain("shared_atomic", block_size=64).main)[1]
    assert [(run.kind, run.ways) for run in atomic.runs] == [(timeline.ATOMIC, 32)]
    words = "hatched: also a bank conflict in shared memory"
    assert words in [entry.words for entry in picture_parts.legend([mine])]
    assert words not in gr.explain("interleaved_strided", block_size=64)._repr_html_()
    shown = mine._repr_html_()
    assert words in shown
    assert shown.count(">32-way<") == 2  # the load's, and the first step's of the tree
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture.save([mine], tmp_path / "mine.svg")
    drawn = (tmp_path / "mine.svg").read_text()
    assert drawn.count("<!-- 32-way -->") == 2
    assert f"<!-- {words} -->" in drawn
    # matplotlib writes hatching as a pattern that cells are filled with
    assert len(re.findall(r"<path [^>]*fill: url\(#\w+\)", drawn)) >= 2


@needs_compiler
def test_both_pictures_say_which_block_is_drawn_and_what_is_not(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    several = gr.explain(["naive_atomic", "fast", "multi_add", "single_warp"], 8192, block_size=32)
    picture.save(list(several), tmp_path / "a.svg")
    drawn = html.unescape((tmp_path / "a.svg").read_text())
    shown = html.unescape(several._repr_html_())
    for each in several:
        lines = picture_parts.facts(each)
        assert any(line.startswith("block 0 of ") for line in lines) == (each.main.grid > 1)
        for line in lines:
            assert line in drawn
            assert line in shown
        rest = len(each.main.columns) - len(each.main.map.did)
        said = f"another block finishes, by {rest} more steps"
        assert (said in lines) == (rest > 0)
    assert any("another block finishes" in line for line in picture_parts.facts(several[1]))
    assert "more columns" not in shown


@needs_compiler
def test_blocks_of_different_sizes_have_names_of_warps_each_and_no_white_below() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    several = gr.explain(["single_warp_ordered", "sequential", "interleaved_modulo"])
    axes = several.plot()
    for each, ax in zip(several, axes, strict=True):
        assert ax.get_ylim() == (each.block_size, 0)
    names = [[text.get_text() for text in ax.get_yticklabels()] for ax in axes]
    assert names == [["warp 0"], [f"warp {i}" for i in range(8)], []]


@needs_compiler
def test_a_column_with_a_store_is_named_so() -> None:
    labels = [strip.label for strip in timeline.strips(gr.explain("multi_add").main)]
    assert labels[-1] == "store"


@needs_compiler
def test_a_thread_of_a_large_block_is_high_enough_to_be_seen() -> None:
    shown = gr.explain("interleaved_modulo", block_size=256)._repr_html_()
    height = float(re.search(r'<svg [^>]*height="(\d+)"', shown)[1])
    assert height >= 3 * 256


@needs_compiler
def test_titles_say_which_launch_they_count_and_tables_that_they_count_all(
    trees: gr.Explanations,
) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    axes = trees.plot()
    assert len(trees[1].launches) > 1
    assert any(
        re.match(r"launch 1 of \d+: 180 bank conflicts\n", text.get_text())
        for text in axes[1].texts
    )
    assert str(trees).splitlines()[0].startswith("all launches")


@needs_compiler
def test_warps_that_have_exited_are_left_white(strided: gr.Explanation) -> None:
    last = timeline.strips(strided.main)[-1]
    assert [(run.first, run.kind) for run in last.runs] == [
        (0, timeline.STORE),
        (1, timeline.DIVERGED),
        (32, timeline.GONE),
    ]


@needs_compiler
@pytest.mark.parametrize("name", some(draw_explain.PICTURES, 0.4, "letters"))
def test_letters_of_the_pictures_in_pages_are_legible_and_apart(name: str) -> None:
    """Pages scale a picture down to their width."""
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    axes = draw_explain.explain(name).plot()
    figure = axes[0].figure
    shown = min(PAGE_PIXELS / figure.get_figwidth(), DPI)
    figure.canvas.draw()
    for ax in axes:
        numbers = [text for text in ax.get_xticklabels() if text.get_text()]
        words = [text for text in ax.texts if re.fullmatch("[a-z]+", text.get_text())]
        assert len(words) >= 3
        for text in (*ax.texts, *numbers):
            assert text.get_fontsize() / POINTS_PER_INCH * shown >= LEAST_PIXELS
        for row in (numbers, words):
            ends = [text.get_window_extent() for text in row]
            assert all(one.x1 < following.x0 for one, following in pairwise(ends))
    titles = [text for ax in axes for text in ax.texts if "lanes active" in text.get_text()]
    for left, right in pairwise(titles):
        assert left.get_window_extent().x1 < right.get_window_extent().x0


def copies_model(rounds: int, ahead: int, of_round: int) -> list[int]:
    """Bytes under way when a round's copies have begun, and when threads read it."""
    found = []
    begun = min(rounds, ahead)
    for read in range(rounds):
        begun = min(rounds, begun + 1)
        found += [(begun - read) * of_round, (begun - read - 1) * of_round]
    return found


@needs_compiler
@pytest.mark.parametrize("kernel", ["async_copy", "bulk_copy"])
def test_copies_are_counted_and_their_bytes_are_under_way_until_the_wait(kernel: str) -> None:
    rounds, block, blocks = random.Random(SEED).randrange(4, 9), 64, 2
    n = rounds * blocks * block * 4
    each = gr.explain(kernel, n, block_size=block, grid_size=blocks)
    figures = each.main.figures
    a_round = blocks * (block // 32 if kernel == "async_copy" else 1)
    assert figures.copies == rounds * a_round, SEED
    assert figures.global_requests == figures.copies + blocks  # and the stores of partials
    assert figures.sectors == n * 4 // 32 + blocks
    assert figures.coalescing == 1
    strips = timeline.strips(each.main)
    model = copies_model(rounds, 3, block * 16)
    ways = {timeline.COPY: model[::2], timeline.SHARED: model[1::2]}
    for kind, expected in ways.items():
        found = [s for s in strips if any(run.kind == kind for run in s.runs)]
        if kind == timeline.COPY and kernel == "bulk_copy":
            assert found[0].under_way == 3 * block * 16  # before the block barrier
            del found[0]
        assert [s.under_way for s in found][: len(expected)] == expected[: len(found)], SEED
    assert "KiB under way" in page.fragment([each])
    assert {run.kind for strip in strips for run in strip.runs} >= {timeline.COPY}
    assert not gr.explain("sequential", block_size=64).main.figures.copies


@needs_compiler
def test_thin_cells_are_drawn_wide_enough_to_see_and_over_nothing_that_works(
    trees: gr.Explanations,
) -> None:
    for strip in (strip for each in trees for strip in timeline.strips(each.main)):
        drawn = timeline.with_heights(strip.runs, 128)
        for (run, height), following in zip(drawn, [*strip.runs[1:], None], strict=True):
            own = run.last - run.first + 1
            assert height >= own
            if following is None or following.kind > timeline.DIVERGED:
                assert height == own


@needs_compiler
def test_pictures_are_drawn_side_by_side(trees: gr.Explanations, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    axes = trees.plot()
    assert [ax.get_title(loc="left").strip() for ax in axes] == list(TREES)
    assert len({ax.get_ylim() for ax in axes}) == 1
    ways = [text.get_text() for text in axes[1].texts if text.get_text().endswith("-way")]
    assert ways == ["2-way", "4-way", "4-way", "4-way", "4-way", "2-way"]
    assert not [
        text for ax in (axes[0], axes[2]) for text in ax.texts if text.get_text().endswith("-way")
    ]
    own = Figure().subplots()
    assert trees[0].plot(own) is own
    with pytest.raises(ValueError, match="3 explanations are drawn on as many axes, not 1"):
        trees.plot([own])
    with pytest.raises(ValueError, match="no explanation"):
        trees[:0].plot()
    for name in one(("picture.png", "picture.svg"), "pictures side by side"):
        assert (
            command.main(["explain", *TREES, "--block-size", "64", "--plot", str(tmp_path / name)])
            == 0
        )
        assert (tmp_path / name).stat().st_size > 10_000


@needs_compiler
def test_drawing_without_matplotlib_raises_with_what_to_install(
    strided: gr.Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'gpureduce[plot]'")):
        strided.plot()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"kernel": "sequentia"},
            ValueError,
            "unknown kernel 'sequentia'; did you mean 'sequential'?",
        ),
        (
            {"kernel": 3},
            TypeError,
            "kernel must be a string, a Kernel or a sequence of them, not int",
        ),
        ({"kernel": []}, ValueError, "no kernel is named"),
        ({"n": 0}, ValueError, "n must be 1 or more, not 0"),
        ({"n": 2.5}, TypeError, "n must be an integer, not float"),
        ({"rows": 0}, ValueError, "rows must be 1 or more, not 0"),
        ({"rows": True}, TypeError, "rows must be an integer, not bool"),
        ({"op": "norm"}, ValueError, "unknown operator 'norm': the operators are sum, prod"),
        ({"dtype": "S4"}, TypeError, "dtype |S4 is not supported"),
        ({"block_size": 100}, ValueError, "block size that is a power of two"),
        ({"grid_size": 2}, ValueError, "takes no grid_size"),
        ({"kernel": "cub"}, gr.KernelUnavailableError, "kernel 'cub' cannot be explained"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        gr.explain(**{"kernel": "sequential", **arguments})
    assert type(caught.value) is kind


def test_an_unknown_kernel_is_refused_in_the_words_of_the_reductions() -> None:
    with pytest.raises(ValueError, match="unknown kernel") as ours:
        gr.explain("reduse")
    with pytest.raises(ValueError, match="unknown kernel") as theirs:
        gr.sum(np.ones(1), kernel="reduse", device="cpu")
    assert str(ours.value) == str(theirs.value)


def test_a_missing_emulator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_emulator_process, "emulator", lambda: None)
    with pytest.raises(gr.DeviceUnavailableError, match="the emulator is not beside the package"):
        gr.explain("sequential")


def test_the_emulator_is_built_with_the_package() -> None:
    assert _emulator_process.emulator() is not None


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUREDUCE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(gr.DeviceUnavailableError, match="install g"):
        gr.explain("sequential")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("echo no way >&2; exit 3", "ended with status 3: no way"),
        ("kill -SEGV $$", r"ended by signal 11 \(Segmentation fault\): it said nothing"),
        ("kill -KILL $$", r"was killed \(SIGKILL\), as Linux does where memory runs out"),
    ],
)
def test_a_process_that_dies_is_reported(
    end: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setattr(_emulator_process.sys, "executable", str(program))
    with pytest.raises(RuntimeError, match=message):
        gr.explain("sequential")


def test_more_elements_than_the_emulator_can_record_are_refused_at_once() -> None:
    for n, rows in ((10**9, 1), (10_000_001, 1), (3000, 4000)):
        with pytest.raises(ValueError, match=f"up to 10,000,000 elements, not {n * rows:,}"):
            gr.explain("sequential", n, rows=rows)


def wrapped_programs(folder: Path, before: str) -> Path:
    """Stand-ins for the compiler and addr2line that run a line of shell first.

    What they stand in for does not find them: a compiler that is a cache's looks for the next one.
    """
    found = shlex.quote(os.environ["PATH"])
    programs = folder / "bin"
    programs.mkdir()
    for name in ("g++", "addr2line"):
        program = programs / name
        program.write_text(f'#!/bin/sh\n{before}\nPATH={found} exec {shutil.which(name)} "$@"\n')
        program.chmod(0o755)
    return programs


@pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("g++", "addr2line")),
    reason="needs g++ and addr2line",
)
def test_what_compilers_write_is_in_a_folder_of_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    temporary, met = tmp_path / "tmp", tmp_path / "met"
    temporary.mkdir()
    look = f'stat -c "%a %n" "$TMPDIR" {temporary}/* {temporary}/*/* >> {met}'
    monkeypatch.setenv("PATH", f"{wrapped_programs(tmp_path, look)}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("GPUREDUCE_CACHE_BYTES", "0")
    monkeypatch.delenv("CXX", raising=False)
    gr.explain("sequential", block_size=32)
    modes = dict(line.split(maxsplit=1)[::-1] for line in met.read_text().splitlines())
    folders = [Path(name) for name, mode in modes.items() if mode == "700"]
    mine = [path for path in map(Path, modes) if path.parent == temporary]
    assert mine
    assert all(path in folders and path.name.startswith("gpureduce-explain-") for path in mine)
    assert any(path.name.startswith("gpureduce-emulator-") for path in folders)
    assert list(temporary.iterdir()) == []


@needs_compiler
@pytest.mark.parametrize("number", one([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], "signals"))
def test_a_signal_ends_the_compiler_and_leaves_no_folder(
    number: signal.Signals, tmp_path: Path
) -> None:
    temporary, begun = tmp_path / "tmp", tmp_path / "begun"
    temporary.mkdir()
    wait = f"echo $$ > {begun}.new; mv {begun}.new {begun}; sleep 600"
    programs = wrapped_programs(tmp_path, wait)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TMPDIR": str(temporary),
        "GPUREDUCE_CACHE_BYTES": "0",
        "CXX": str(programs / "g++"),
    }
    # What this run ignores, as under nohup, the child would ignore, too.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "for each in (signal.SIGTERM, signal.SIGHUP): signal.signal(each, signal.SIG_DFL)\n"
        "import gpureduce as gr; gr.explain('sequential')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    assert process.returncode == -number
    assert list(temporary.iterdir()) == []
    assert has_ended(int(begun.read_text()))


def has_ended(process: int) -> bool:
    """Whether a process that was killed is gone, or will be as soon as somebody asks for it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


@needs_compiler
def test_a_broken_rule_is_the_callers_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    text = gr.kernel_source("sequential").replace("__syncthreads(); // the next", "// the next")
    (overlay / "sequential.cuh").write_text(text)
    environment = explain.emulator_environment
    monkeypatch.setattr(
        explain,
        "emulator_environment",
        lambda directory, settings: (
            environment(directory, f"{settings},overlay={overlay}") | {"GPUREDUCE_CACHE_BYTES": "0"}
        ),
    )
    with pytest.raises(gr.CudaError, match="race"):
        gr.explain("sequential")


def test_a_wrong_result_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"kernel": "sequential", "n": 10, "rows": 2, "block_size": 64, "grid_size": None}
    monkeypatch.setattr(
        emulator_worker, "reduce_there", lambda array, *_: array.sum(axis=-1) + np.array([0, 1])
    )
    with pytest.raises(
        RuntimeError, match=r"kernel 'sequential' computed .* where NumPy has .*, in row 1"
    ):
        emulator_worker.answer(request | {"dtype": "int32", "op": "sum"})


def test_a_report_of_another_format_is_refused() -> None:
    with pytest.raises(RuntimeError, match="format 99"):
        report.read_report('{"format": 99}')


# ---------------------------------------------------------------- the command


@needs_compiler
def test_the_command_prints_the_table_and_the_source(
    strided: gr.Explanation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["explain", "interleaved_strided", "--block-size", "128", "--source"]) == 0
    out = capsys.readouterr().out
    assert out == f"{strided}\n{strided.annotated_source()}".replace("\n\n\n", "\n\n")


@needs_compiler
def test_the_command_writes_json_csv_and_html(trees: gr.Explanations, tmp_path: Path) -> None:
    done = run_command(
        *("explain", *TREES, "--block-size", "128", "--json"),
        *("--csv", str(tmp_path / "a.csv"), "--html", str(tmp_path / "a.html")),
    )
    written = f"wrote {tmp_path / 'a.csv'}\nwrote {tmp_path / 'a.html'}\n"
    assert (done.returncode, done.stderr) == (0, written)
    assert json.loads(done.stdout) == trees.to_dict()
    assert (tmp_path / "a.csv").read_text() == trees.to_csv()
    assert_balanced((tmp_path / "a.html").read_text())


@needs_compiler
def test_the_command_compares_several_kernels(
    capsys: pytest.CaptureFixture[str], trees: gr.Explanations
) -> None:
    assert command.main(["explain", *TREES, "--block-size", "128"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(str(trees).rstrip())
    assert f"gpureduce explain {TREES[0]} shows each step" in out
    assert len(out.splitlines()) < 24  # a terminal's lines
    assert command.main(["explain", *TREES, "--block-size", "128", "--source"]) == 0
    out = capsys.readouterr().out
    assert all(each.annotated_source().rstrip() in out for each in trees)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("explain",), 2, "KERNEL"),
        (("explain", "sequentia"), 2, "did you mean 'sequential'"),
        (("explain", "sequential", "-n", "many"), 2, "'many' is no number"),
        (("explain", "sequential", "-n", "-3"), 2, "n must be 1 or more"),
        (("explain", "sequential", "--dtype", "float33"), 2, "float33"),
        (("explain", "cub"), 1, "cannot be explained"),
    ],
)
def test_the_command_fails_in_one_line(
    arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = run_command(*arguments)
    assert done.returncode == status
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert done.stderr.startswith("gpureduce")


@needs_compiler
def test_the_command_fails_where_a_file_cannot_be_written(tmp_path: Path) -> None:
    done = run_command("explain", "sequential", "--csv", str(tmp_path / "nowhere" / "a.csv"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "No such file" in done.stderr


def test_the_documentation_defines_each_number() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    for _, word in figure_tables.FIGURE_WORDS:
        assert f"**{word}**" in text, word
    for kind in timeline.KINDS:
        assert kind.words in text, kind.words


def test_importing_the_package_brings_none_of_this_along() -> None:
    code = (
        "import gpureduce, sys; names = ('matplotlib', 'csv', 'subprocess', 'argparse', "
        "'gpureduce._explain')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", code.replace("gpureduce,", "numpy,")], capture_output=True, text=True
    )
    assert done.stdout == bare.stdout
    assert {"explain", "Explanation", "Explanations"} <= set(dir(gr))


@needs_compiler
def test_the_name_of_a_file_is_no_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    for result in (gr.explain("sequential", 100), gr.explain(["sequential", "fast"], 100)):
        with pytest.raises(TypeError, match=r"'x\.png' is the name of a file") as caught:
            result.plot("x.png")
        advice = str(caught.value).partition(": ")[2].partition(" saves")[0]
        eval(f"result.{advice}", {"result": result})
        assert Path("x.png").stat().st_size > 1000
        Path("x.png").unlink()
