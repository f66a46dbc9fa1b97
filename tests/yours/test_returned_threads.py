"""Barriers and operations of warps wait for the threads that have not returned, as CUDA's guide
says, and undefined values of shuffles may be read as long as nothing depends on them.
"""

from __future__ import annotations

import random
import shutil

import pytest
from draws import SEED, one, some

import gpureduce as gr

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

TREE = """
__global__ void tree(const int *in, int *out, unsigned n)
{
    extern __shared__ int s[];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    BEGIN
    for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        BARRIER
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""
CLEARED = "s[t] = 0; if (i >= n) return; s[t] = in[i]; BARRIER"
ATOMIC = """
__global__ void add(const TYPE *in, TYPE *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    BODY
}
"""
BALLOT = """TYPE v = i < n ? in[i] : 0;
    unsigned mask = __ballot_sync(~0u, i < n);
    if (i < n) {
        for (int o = 16; o > 0; o /= 2) {
            TYPE w = __shfl_down_sync(mask, v, o);
            v = USE;
        }
        if (lane == 0) COMBINE
    }"""
ADDED = "lane + o < __popc(mask) ? v + w : v"


def atomic(body: str, dtype: str = "int") -> str:
    return ATOMIC.replace("BODY", body).replace("TYPE", dtype)


# ---------------------------------------------------------------- barriers -----------------------


@pytest.mark.parametrize(
    "barrier", ["__syncthreads();", "cooperative_groups::this_thread_block().sync();"]
)
def test_a_barrier_waits_for_the_threads_that_have_not_returned(barrier: str) -> None:
    source = TREE.replace("BEGIN", CLEARED).replace("BARRIER", barrier)
    report = gr.check("#include <cooperative_groups.h>\n" + source, block_sizes=[64, 128])
    assert report.right, str(report)
    line = 1 + source[: source.index(barrier)].count("\n") + 1
    assert report.remarks == (
        f"threads have returned before the barrier in line {line}: it waits for all threads of the "
        "block that have not",
    )
    assert f"remarks\n  {report.remarks[0]}\n" in str(report)
    assert f"<h4>remarks</h4><ul><li>{report.remarks[0]}</li></ul>" in report._repr_html_()


def test_what_threads_do_not_do_after_their_return_is_a_mistake_of_its_own() -> None:
    begin = "if (i >= n) return; s[t] = in[i]; BARRIER"
    source = TREE.replace("BEGIN", begin).replace("BARRIER", "__syncthreads();")
    report = gr.check(source, block_sizes=[64])
    assert report.kinds == ("shared unwritten",), str(report)
    assert "Threads have returned before a barrier" in report.findings[0].remedy
    assert report.remarks == ()
    lost = "s[t] = i < n ? in[i] : 0; if (t % 2 == 1) return; BARRIER"
    report = gr.check(TREE.replace("BEGIN", lost).replace("BARRIER", "__syncthreads();"),
                      block_sizes=[64])  # fmt: skip
    assert report.kinds == ("result",), str(report)
    assert "Threads have returned before a barrier" in report.findings[0].remedy


@pytest.mark.parametrize(
    "loop",
    one(
        [
            "if (t < h) { s[t] += s[t + h]; __syncthreads(); }",
            "while (t < h) { s[t] += s[t + h]; __syncthreads(); break; }",
            "if (t < h) { step(s, t, h); }",
        ],
        "branches that not all take",
    ),
)
def test_a_barrier_in_a_branch_that_not_all_threads_take_is_a_mistake(loop: str) -> None:
    helper = (
        "__device__ void step(int *s, unsigned t, unsigned h)\n{\n    s[t] += s[t + h];\n"
        "    __syncthreads();\n}\n"
    )
    begin = "s[t] = i < n ? in[i] : 0; __syncthreads();"
    tree = TREE.replace("if (t < h) s[t] += s[t + h];\n        BARRIER", loop)
    report = gr.check((helper if "step" in loop else "") + tree.replace("BEGIN", begin))
    assert report.kinds == ("divergent barrier",), str(report)
    assert "may be in a branch only if all threads of the block take it" in " ".join(
        str(report).split()
    )


def test_a_barrier_in_a_branch_of_all_threads_is_right() -> None:
    begin = "s[t] = i < n ? in[i] : 0; if (blockDim.x >= 64) __syncthreads(); else __syncthreads();"
    report = gr.check(TREE.replace("BEGIN", begin).replace("BARRIER", "__syncthreads();"),
                      block_sizes=[32, 64])  # fmt: skip
    assert report.right, str(report)


@pytest.mark.parametrize(
    ("vote", "right"),
    some(
        [
            ("__syncthreads_count(1)", "n"),
            ("__syncthreads_and(1) ? n : 0", "n"),
            ("__syncthreads_or(i == 0) ? n : 0", "n"),
            ("__syncthreads_or(0) ? 0 : n", "n"),
        ],
        1 / 2,
        "predicates of a barrier",
    ),
)
def test_predicates_of_a_barrier_are_those_of_threads_that_have_not_returned(
    vote: str, right: str
) -> None:
    n = random.Random(SEED).randrange(1, 63)
    # One block: the result is 1 for each element where the predicates' result is the right one.
    body = f"if (i >= n) return; unsigned all = {vote}; if (all == {right}) atomicAdd(out, in[i]);"
    report = gr.check(atomic(body), block_sizes=[64], sizes=[n])
    assert report.right, f"seed {SEED}\n{report}"


# ---------------------------------------------------------------- warps --------------------------


def test_masks_may_name_lanes_that_have_returned() -> None:
    votes = (
        "if (i >= n) return; if (__all_sync(~0u, 1) && __popc(__ballot_sync(~0u, 1)) == "
        "__popc(__activemask())) { __syncwarp(); atomicAdd(out, in[i]); }"
    )
    report = gr.check(atomic(votes), block_sizes=[64])
    assert report.right, str(report)
    assert "lanes have returned that the mask in line 5 names" in str(report)
    reduced = (
        "if (i >= n) return; int sum = __reduce_add_sync(~0u, in[i]); "
        "if (lane == 0) atomicAdd(out, sum);"
    )
    report = gr.check(atomic(reduced), block_sizes=[64])
    assert report.right, str(report)


def test_a_warp_barrier_orders_what_lanes_did_before_they_returned() -> None:
    body = """extern __shared__ int s[];
    s[threadIdx.x] = i < n ? in[i] : 0;
    if (lane >= 16) return;
    __syncwarp();
    atomicAdd(out, s[threadIdx.x] + s[threadIdx.x + 16]);"""
    assert gr.check(atomic(body), block_sizes=[64]).right
    report = gr.check(atomic(body.replace("__syncwarp();", "")), block_sizes=[64])
    assert not report.right


def test_a_warp_operation_in_a_branch_that_not_all_lanes_take_is_a_mistake() -> None:
    body = (
        "int v = i < n ? in[i] : 0; v += __shfl_down_sync(~0u, v, 16); if (lane < 16)\n"
        "for (int o = 8; o > 0; o /= 2) v += __shfl_down_sync(~0u, v, o);\n"
        "if (lane == 0) atomicAdd(out, v);"
    )
    report = gr.check(atomic(body), block_sizes=[64])
    assert report.kinds == ("warp mask",), str(report)
    assert report.findings[0].line == 6


# ---------------------------------------------------------------- undefined values ---------------


@pytest.mark.parametrize(
    ("dtype", "op", "use"),
    some(
        [
            ("int", "sum", ADDED),
            ("float", "sum", ADDED),
            ("double", "sum", ADDED),
            ("unsigned", "min", "lane + o < __popc(mask) ? (w < v ? w : v) : v"),
            ("int", "max", "lane + o < __popc(mask) ? (w > v ? w : v) : v"),
        ],
        0.4,
        "undefined values",
    ),
)
@pytest.mark.parametrize("discards", [True, False])
def test_an_undefined_value_is_a_mistake_only_where_the_result_depends_on_it(
    dtype: str, op: str, use: str, discards: bool
) -> None:
    combine = f"atomic{'Add' if op == 'sum' else op.title()}(out, v);"
    if not discards:
        use = use.split("?", 1)[1].rsplit(":", 1)[0].strip()
    source = atomic(BALLOT.replace("USE", use).replace("COMBINE", combine), dtype)
    report = gr.check(gr.Kernel(source, op=op), block_sizes=[64])
    line = 1 + source[: source.index("__shfl_down_sync")].count("\n")
    if discards:
        assert report.right, str(report)
        (remark,) = report.remarks
        assert remark.startswith(f"the shuffle in line {line} reads lanes that take no part in it")
    else:
        assert report.kinds == ("warp mask",), str(report)
        assert report.findings[0].line == line
        assert "that reads lane" in report.findings[0].what


def test_a_shuffle_from_a_lane_that_has_returned_is_undefined() -> None:
    body = (
        "if (i >= n) return; int v = in[i]; for (int o = 16; o > 0; o /= 2) "
        "v += __shfl_down_sync(~0u, v, o); if (lane == 0) atomicAdd(out, v);"
    )
    report = gr.check(atomic(body), block_sizes=[64])
    assert report.kinds == ("warp mask",), str(report)
    assert "that reads lane" in report.findings[0].what


def test_an_undefined_index_is_a_mistake() -> None:
    body = (
        "int v = i < n ? in[i] : 0; unsigned mask = __ballot_sync(~0u, i < n); if (i < n) "
        "{ unsigned at = __shfl_down_sync(mask, i, 1); "
        "if (v < -in[at % n]) v = 1; atomicAdd(out, v); }"
    )
    assert gr.check(atomic(body), block_sizes=[64]).right  # no element is as small
    report = gr.check(atomic(body.replace("at % n", "at")), block_sizes=[64])
    assert report.kinds == ("bounds",), str(report)


def test_a_wrong_result_beside_unused_undefined_values_is_a_wrong_result() -> None:
    body = BALLOT.replace("USE", ADDED).replace("COMBINE", "atomicAdd(out, v + 1);")
    report = gr.check(atomic(body), block_sizes=[64])
    assert report.kinds == ("result",), str(report)


# ---------------------------------------------------------------- explain ------------------------


def test_explain_draws_warps_that_have_returned_before_a_barrier() -> None:
    begin = "s[t] = 0; if (t >= 64 || i >= n) return; s[t] = in[i]; BARRIER"
    source = TREE.replace("BEGIN", begin).replace("BARRIER", "__syncthreads();")
    source = source.replace("h = blockDim.x / 2", "h = 32")
    run = gr.explain(gr.Kernel(source), 64, block_size=128)
    assert [any(warp) for warp in zip(*run.main.map.there[1:], strict=True)] == [
        True, True, False, False,
    ]  # fmt: skip
    first, *others = (column.figures.slots for column in run.main.columns)
    # After the last barrier one warp is left.
    assert [first, *others] == [128, *[64] * (len(others) - 1), 32]
