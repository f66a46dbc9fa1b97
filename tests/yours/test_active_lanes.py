"""Kernels that ask which lanes are active: ``__activemask()`` and ``cg::coalesced_threads()``."""

from __future__ import annotations

import random
import shutil

import pytest
from draws import SEED

import gpureduce as gr

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

HEAD = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void mine(const int *in, int *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
"""
BY_MASK = """
        unsigned mask = __activemask();
        int sum = 0;
        for (unsigned left = mask; left != 0; left &= left - 1)
            sum += __shfl_sync(mask, x, __ffs(left) - 1);
        if (threadIdx.x % 32 == __ffs(mask) - 1) atomicAdd(out, sum);
"""
BY_GROUP = """
        cg::coalesced_group active = cg::coalesced_threads();
        int sum = 0;
        for (unsigned rank = 0; rank < active.size(); rank++) sum += active.shfl(x, rank);
        if (active.thread_rank() == 0) atomicAdd(out, sum);
        active.sync();
"""
PLACES = {
    "whole warps": "    int x = i < n ? in[i] : 0;\n    {SUM}\n}",
    "a partial warp": "    if (i >= n) return;\n    int x = in[i];\n    {SUM}\n}",
    "in a branch": "    if (i < n) {\n        int x = in[i];\n        {SUM}\n    }\n}",
    "in two branches": (
        "    if (i < n && i % CUT == 0) {\n        int x = in[i];\n        {SUM}\n    }\n"
        "    else if (i < n) {\n        int x = in[i];\n        {SUM}\n    }\n"
        "    __syncthreads();\n}"
    ),
    "in a loop": (
        "    for (unsigned j = i; j < n; j += gridDim.x * blockDim.x) {\n"
        "        int x = in[j];\n        {SUM}\n    }\n}"
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", [BY_MASK, BY_GROUP], ids=["activemask", "coalesced_threads"])
def test_active_lanes_reduce_as_a_group(way: str, place: str) -> None:
    cut = random.Random(SEED).randrange(2, 31)
    source = HEAD + PLACES[place].replace("{SUM}", way).replace("CUT", str(cut))
    report = gr.check(source, block_sizes=[32, 96])
    assert report.right, f"seed {SEED}: i % {cut}\n{report}"


def test_the_mask_names_exactly_the_lanes_that_come_together() -> None:
    rng = random.Random(SEED)
    lanes = rng.sample(range(32), rng.randrange(2, 32))
    mask = sum(1 << lane for lane in lanes)
    body = f"""
    int x = i < n ? in[i] : 0;
    if ({mask}u >> threadIdx.x % 32 & 1) {{
        if (__activemask() == {mask}u) atomicAdd(out, x);
    }} else if (__activemask() == ~{mask}u)
        atomicAdd(out, x);
}}"""
    report = gr.check(HEAD + body, block_sizes=[64])
    assert report.right, f"seed {SEED}: {mask:#x}\n{report}"
    off = gr.check(HEAD + body.replace(f"== {mask}u)", f"== {mask ^ (1 << lanes[0])}u)"))
    assert off.kinds == ("result",), f"seed {SEED}: {mask:#x}"


def test_a_kernel_with_active_lanes_is_explained() -> None:
    source = HEAD + PLACES["in a branch"].replace("{SUM}", BY_GROUP)
    told = gr.explain(gr.Kernel(source), 100, block_size=64)
    assert told.figures.atomics == 4
