"""check names mistakes with clusters and grid barriers, in kernels that are made of ours.

The kernels are exports of cluster and cooperative with one place changed.
"""

from __future__ import annotations

import shutil

import pytest
from draws import one, some

import gpureduce as gr

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
]
FIRST = "    cluster_barrier(); // the partials of all blocks are there\n"
LAST = "    cluster_barrier(); // no block ends before its partial has been read\n"
LOAD = "lane < cluster_blocks() ? *shared_of(&partial, lane) : Traits::identity()"
MEET = "        grid_barrier(scratch.tickets + row.index, row.blocks);\n"
MISTAKES = {
    "no barrier before the first access": (
        "cluster",
        (FIRST, ""),
        "missing cluster barrier (race)",
        LOAD,
    ),
    "a block barrier": (
        "cluster",
        (FIRST, "    __syncthreads();\n"),
        "missing cluster barrier (race)",
        LOAD,
    ),
    "no barrier after the last access": (
        "cluster",
        (LAST, ""),
        "shared memory of a block that may have returned",
        LOAD,
    ),
    "a barrier of the first block alone": (
        "cluster",
        (LAST, f"    if (cluster_rank() == 0) {LAST.strip()}\n"),
        "shared memory of a block that may have returned",
        LOAD,
    ),
    "a barrier of some threads": (
        "cluster",
        (FIRST, f"    if (threadIdx.x < warp_lanes) {FIRST.strip()}\n"),
        "cluster barrier that not all threads reach",
        "",
    ),
    "a rank too many": (
        "cluster",
        (LOAD, "lane <= cluster_blocks() ? *shared_of(&partial, lane) : Traits::identity()"),
        "shared memory of a block that may have returned",
        "",
    ),
    "a block that does not come": (
        "cooperative",
        (MEET, "        if (row.block == 1) return;\n" + MEET),
        "wait for a block that does not come",
        "",
    ),
    "a launch that is not cooperative": (
        "cooperative",
        (MEET, "        meet(scratch.tickets + row.index, row.blocks);\n"),
        "wait for a block that does not come",
        "",
    ),
    "threads that do not come": (
        "cooperative",
        (MEET, f"        if (threadIdx.x < warp_lanes) {MEET.strip()}\n"),
        "barrier that not all threads reach",
        "",
    ),
}


def export(kernel: str) -> str:
    return gr.kernel_source(kernel, standalone=True, op="sum", dtype="float32", block_size=64)


@pytest.mark.parametrize("name", some(MISTAKES, 1 / 2, "mistakes of blocks"))
def test_mistakes_of_several_blocks_have_advice_of_their_own(name: str) -> None:
    kernel, (old, new), title, at = MISTAKES[name]
    text = export(kernel)
    assert text.count(old) == 1
    text = text.replace(old, new)
    if "meet(" in new:  # a barrier that the file does not call by its name
        text = text.replace("GPR_DEVICE void grid_barrier(", "GPR_DEVICE void meet(")
    report = gr.check(gr.Kernel(text), sizes=[64, 2_000])
    shown = str(report)
    assert report.findings
    assert f". {title}" in shown, shown
    assert f"Read: gpureduce kernels --source {kernel}" in shown or title.startswith("barrier")
    if at:
        (line,) = [i for i, each in enumerate(text.splitlines(), 1) if at in each]
        assert f"{title}, line {line}" in shown, shown


@pytest.mark.parametrize("kernel", one(["cluster", "cooperative"], "right blocks"))
def test_exports_of_kernels_whose_blocks_meet_are_right(kernel: str) -> None:
    made = gr.Kernel(export(kernel))
    report = gr.check(made)
    assert not report.findings, str(report)
    assert f"in {'clusters of up to 8' if kernel == 'cluster' else 'a cooperative launch'}" in str(
        report
    )
