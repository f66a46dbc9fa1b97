"""gpureduce.check: what it finds beside the gallery's mistakes, that nothing takes the process with
it, and its report in each form."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from draws import SEED, one, some

import gpureduce as gr
from gpureduce._cli import command
from gpureduce._yours import check_worker, device_text, findings
from gpureduce._yours.check import SCHEDULES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

TREE = """
__global__ void tree(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned h = blockDim.x / 2; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""
ATOMIC = """
__global__ void add(const int *in, int *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}
"""


def kinds(source: str, **options: object) -> tuple[str, ...]:
    return gr.check(source, **options).kinds  # type: ignore[arg-type]


# ---------------------------------------------------------------- what is found ------------------


def test_a_right_kernel_is_right_in_every_block_size_that_it_takes() -> None:
    report = gr.check(TREE, block_sizes=[32, 64, 128, 1024])
    assert report.right
    assert report.findings == ()
    assert report.blocks == (32, 64, 128, 1024)
    assert {0, 1, 31, 33, 1023, 1025} <= set(report.sizes)
    assert report.runs % len(SCHEDULES) == 0


def test_the_smallest_case_and_the_two_lines_are_named() -> None:
    broken = TREE.replace("    __syncthreads();\n    for", "    for")
    (finding,) = gr.check(broken, block_sizes=[64]).findings
    assert (finding.kind, finding.line, finding.other_line) == ("block race", 8, 6)
    assert finding.text == broken.splitlines()[7]
    assert (finding.n, finding.block_size, finding.grid_size) == (1, 64, 1)
    assert "thread" in finding.what
    assert "s[" in finding.what
    assert "wrote" in finding.other
    assert finding.read in [each.name for each in gr.kernels()]


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        ("out[0] += in[i];", "output unwritten", "read of out[0]"),
        ("out[0] = in[(int)i - 1];", "bounds", "reads in[-1], before the first element"),
        ("out[0] = in[i + 1];", "bounds", "reads in[1], where in has 1 element"),
    ],
)
def test_an_array_is_named_also_where_another_has_as_many_bytes(
    body: str, kind: str, word: str
) -> None:
    source = ATOMIC.replace("BODY", f"if (i == 0) for (; i < n; i++) {{ {body} }}")
    (finding,) = gr.check(source, sizes=[1], block_sizes=[32]).findings
    assert finding.kind == kind
    assert word in finding.what
    assert ("below 0" in finding.remedy) == ("before" in word)


def test_left_out_elements_are_counted_and_named() -> None:
    rng = random.Random(SEED)
    gap = rng.randrange(2, 30)
    report = gr.check(ATOMIC.replace("BODY", f"if (i < n && i != {gap}) atomicAdd(out, in[i]);"))
    assert report.findings[0].n == 31, f"seed {SEED}"
    assert f"element {gap} is left out" in report.findings[0].what, f"seed {SEED}"
    report = gr.check(ATOMIC.replace("BODY", "if (i + 3 < n) atomicAdd(out, in[i]);"), sizes=[100])
    assert "the last 3, from element 97 on, are left out" in report.findings[0].what
    report = gr.check(ATOMIC.replace("BODY", "if (i < n) atomicAdd(out, in[i] + (i == 5));"))
    assert report.kinds == ("result",)


def test_a_wrong_identity_is_told_from_missing_elements() -> None:
    report = gr.check(TREE.replace("in[i] : 0", "in[i] : 2"), block_sizes=[64])
    assert "threads without an element bring 2 each" in report.findings[0].what
    # One element of two is lost, and not a part of one by each thread without any.
    report = gr.check(
        ATOMIC.replace(
            "BODY",
            "int v = i < n ? in[i] : 0;"
            "for (int d = 16; d > 1; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);"
            "if (threadIdx.x % 32 == 0) atomicAdd(out, v);",
        )
    )
    assert "bring" not in report.findings[0].what, report.findings[0].what
    assert "left out" in report.findings[0].what, report.findings[0].what


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("if (i < n) atomicAdd(out, in[i] / (n - n));", "crash"),
        ("if (i < n) atomicAdd(out, *(const int *)((const char *)in + 1 + 4 * (i / 2)));",
         "misaligned"),
        ("unsigned x = i + 1; while (x != 0) x = x * 3 + (x % 2 == 0); if (i < n) "
         "atomicAdd(out, in[i] + (int)x);", "hang"),
    ],
    ids=["crash", "misaligned", "hang"],
)  # fmt: skip
def test_what_no_tutorial_has_is_found_and_the_process_lives(body: str, kind: str) -> None:
    report = gr.check(ATOMIC.replace("BODY", body), block_sizes=[64], time_limit=1.0)
    assert report.kinds == (kind,)


def test_an_output_that_nobody_stores_is_found() -> None:
    broken = TREE.replace("if (t == 0) out", "if (t == 0 && i + 1 < n) out")
    report = gr.check(broken, block_sizes=[64])
    assert report.kinds == ("no store",)
    assert "the output is not stored" in report.findings[0].what


def test_another_operator_is_named() -> None:
    report = gr.check(gr.Kernel(TREE.replace("s[t] += s[t + h]", "s[t] = max(s[t], s[t + h])")))
    assert report.op == "max"
    assert report.kinds == ("result",)  # its identity is 0
    mistaken = gr.Kernel(TREE, op="max")
    assert gr.check(mistaken, block_sizes=[64]).kinds == ("operator",)


def test_the_operator_is_the_one_that_explains_every_case() -> None:
    """Two elements may have one product and one maximum: all cases together tell them apart."""
    maximum = TREE.replace("s[t] += s[t + h]", "s[t] = max(s[t], s[t + h])").replace("float", "int")
    mistaken = gr.Kernel(maximum, op="sum")
    cases = ({}, {"sizes": range(2, 9)}, {"block_sizes": [64], "sizes": [2, 31]})
    for options in some(cases, 2 / 3, "cases of an operator"):
        (finding,) = gr.check(mistaken, **options).findings  # type: ignore[arg-type]
        assert finding.kind == "operator"
        assert finding.what == "results are those of max, not of sum"
    report = gr.check(mistaken, block_sizes=[64], sizes=[2])
    assert re.fullmatch(r"results are those of [\w ]*max, not of sum", report.findings[0].what)


SHARED = """
__global__ void total(const int *x, int *out, int n)
{
    __shared__ int total, best[2];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t == 0) total = best[0] = 0;
    __syncthreads();
    BODY
    __syncthreads();
    if (t == 0) out[blockIdx.x] = total + best[0];
}
"""


@pytest.mark.parametrize(
    ("body", "word"),
    some(
        [
            ("if (i < n) total += x[i];", "&total"),
            ("if (i < n) total = total + x[i];", "&total"),
            ("if (i < n) ++total;", "&total"),
            ("if (i < n) best[0] += x[i];", "&best[0]"),
            ("if (i < n && x[i] > best[0]) best[0] = x[i];", "&best[0]"),
            ("total = 0;", ""),
            ("if (i < n) best[0] = x[i];", ""),
        ],
        0.4,
        "one word",
    ),
)
def test_one_word_of_all_threads_needs_no_barrier(body: str, word: str) -> None:
    """Neither __syncwarp() nor __syncthreads() orders threads at one line."""
    (finding,) = gr.check(gr.Kernel(SHARED.replace("BODY", body), op="sum")).findings
    assert (finding.kind, finding.line, finding.other_line) == ("one word", 8, 8)
    assert "__syncwarp" not in finding.remedy
    if word:
        assert f"atomicAdd({word}, ...)" in finding.remedy
        assert "tree" in finding.remedy
    else:
        assert "Let one thread store it, if (threadIdx.x == 0)" in finding.remedy


@pytest.mark.parametrize(
    ("op", "said"),
    one(
        [("max", "atomicMax(&best, ...)"), ("min", "atomicMin(&best, ...)"), ("prod", "")],
        "atomic operation",
    ),
)
def test_the_atomic_operation_is_the_operators(op: str, said: str) -> None:
    update = {"max": "if (x[i] > best) best = x[i]", "min": "if (x[i] < best) best = x[i]"}
    source = f"""
__global__ void one(const int *x, int *out, int n)
{{
    __shared__ int best;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t == 0) best = x[blockIdx.x * blockDim.x];
    __syncthreads();
    if (t > 0 && i < n) {update.get(op, "best *= x[i]")};
    __syncthreads();
    if (t == 0) out[blockIdx.x] = best;
}}
"""
    finding = gr.check(gr.Kernel(source, op=op)).findings[0]
    assert finding.kind == "one word"
    assert said in finding.remedy
    assert "slot of its own" in finding.remedy
    assert ("atomic" in finding.remedy) == bool(said)


def test_plain_additions_to_one_result_need_atomics() -> None:
    (finding,) = gr.check(ATOMIC.replace("BODY", "if (i < n) *out += in[i];")).findings
    assert finding.kind == "output unwritten"
    assert "atomicAdd" in finding.remedy


def test_a_race_of_a_warp_that_other_warps_have_too_needs_a_block_barrier() -> None:
    """Its smallest case is in one warp, where __syncwarp() would do."""
    report = gr.check(
        SHARED.replace("__syncthreads();\n    BODY", "if (i < n) atomicAdd(&total, 1);")
    )
    assert report.kinds == ("block race",)
    assert (report.findings[0].line, report.findings[0].n) == (7, 2)
    assert "__syncthreads()" in report.findings[0].remedy
    of_warp = TREE.replace(
        "    __syncthreads();\n    for", "    if (t < 32) s[t] += s[t ^ 1] * 0;\n    for"
    )
    of_warp = of_warp.replace("s[t] = i", "s[t] = 0; __syncthreads(); s[t] = i")
    assert "block race" in gr.check(of_warp, block_sizes=[64]).kinds


@pytest.mark.parametrize(
    ("load", "condition"),
    some(
        [
            ("s[t] = 0;\n    if (i < n) {\n s[t] = in[i];\n __syncthreads();\n }", "i < n"),
            ("s[t] = i < n ? in[i] : 0;\n    if (t % 2 == 0) __syncthreads();", "t % 2 == 0"),
            (
                "s[t] = 0;\n for (; i < n; i += n) {\n s[t] += in[i];\n __syncthreads();\n }",
                "i < n",
            ),
            (
                "s[t] = 0;\n while (i < n) {\n s[t] += in[i]; i += n;\n __syncthreads();\n }",
                "i < n",
            ),
        ],
        1 / 2,
        "barrier in a branch",
    ),
)
def test_a_barrier_in_a_branch_is_not_a_missing_one(load: str, condition: str) -> None:
    source = TREE.replace("s[t] = i < n ? in[i] : 0;\n    __syncthreads();", load)
    assert source != TREE
    (finding,) = gr.check(source).findings
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "__sync" in text)
    assert (finding.kind, finding.line) == ("divergent barrier", line)
    assert finding.what == f"not all threads come to this barrier, only those with {condition}"
    assert "Move the barrier out of the branch" in finding.remedy


def test_a_barrier_that_a_loop_lacks_is_missing_also_where_threads_loop_unequally() -> None:
    """The loop around its other barrier is around both accesses, too."""
    pairs = """
__global__ void shared_turns(const float *in, float *out, unsigned n)
{
    __shared__ float s[64];
    unsigned t = threadIdx.x;
    float sum = 0;
    for (unsigned base = 0; base < n; base += 64) {
        s[t] = base + t < n ? in[base + t] : 0;
        __syncthreads();
        if (t % 2 == 0) sum += s[t] + s[t + 1];
    }
    atomicAdd(out, sum);
}
"""
    for source, kind in ((pairs, "warp race"), (pairs.replace("t + 1", "63 - t"), "block race")):
        (finding,) = gr.check(source, block_sizes=[64]).findings  # in either order of its two lines
        assert (finding.kind, {finding.line, finding.other_line}) == (kind, {8, 10})


@pytest.mark.parametrize(
    "barrier", one(["__syncthreads()", "cg::this_thread_block().sync()"], "barrier of two")
)
def test_a_loop_with_one_barrier_of_two_lacks_the_one_at_its_end(barrier: str) -> None:
    source = f"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void tree(const int *in, int *out, int n)
{{
    extern __shared__ int s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, v = i < n ? in[i] : 0;
    for (int k = blockDim.x / 2; k > 0; k /= 2) {{
        s[t] = v;
        {barrier};
        if (t < k) v += s[t + k];
    }}
    if (t == 0) atomicAdd(out, v);
}}
"""
    (finding,) = gr.check(source, block_sizes=[64]).findings
    assert (finding.kind, {finding.line, finding.other_line}) == ("block race", {9, 11})
    assert "another __syncthreads() at the end of the loop's body" in finding.remedy
    mended = source.replace("v += s[t + k];", f"v += s[t + k];\n        {barrier};")
    assert gr.check(mended, block_sizes=[64]).right


def test_a_barrier_that_no_thread_of_the_block_reaches_is_a_missing_one() -> None:
    source = TREE.replace(
        "    __syncthreads();\n    for", "    if (BLOCK > 512) __syncthreads();\n    for"
    )
    source = source.replace("BLOCK", "blockDim.x")
    (finding,) = gr.check(source, block_sizes=[64]).findings
    assert (finding.kind, finding.line) == ("block race", 9)


def test_limits_are_not_mistakes() -> None:
    report = gr.check(TREE)
    assert report.right
    assert [each.text for each in report.limits if "of 96 not" in each.text]
    assert "4,294,967,295" in report.limits[0].text
    reads_first = ATOMIC.replace("BODY", "int first = in[0]; if (i < n) atomicAdd(out, in[i]);")
    report = gr.check(reads_first.replace("int first = in[0];", "volatile int x = in[0];"))
    assert report.right
    assert any(each.text.startswith("an empty array is not taken") for each in report.limits)


@pytest.mark.parametrize(("c_type", "bits"), [("int", 31), ("unsigned", 32)])
def test_a_limit_of_lengths_leaves_room_for_the_stride(c_type: str, bits: int) -> None:
    report = gr.check(
        ATOMIC.replace(
            "BODY",
            f"for ({c_type} j = i; j < n; j += gridDim.x * blockDim.x) atomicAdd(out, in[j]);",
        ),
        block_sizes=[64, 96],
    )
    assert report.right
    stride = 3 * 96  # of the largest launch that was checked
    assert report.limits[0].text.startswith(f"arrays of up to {2**bits - stride:,} elements: j is")


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float32", "float64"])
def test_no_element_can_be_left_out_or_taken_twice_unnoticed(op: str, dtype: str) -> None:
    rng = np.random.default_rng(SEED)
    for turn in range(2):
        n = int(rng.integers(2, 400))
        values = check_worker.elements(op, dtype, n, "random", turn)
        right = check_worker.expected(op, values, dtype)
        assert (values != 0).all()
        lost = int(values.argmin() if op == "min" else values.argmax())
        if op in ("sum", "prod"):
            lost = int(rng.integers(n))
            twice = check_worker.expected(op, np.append(values, values[lost]), dtype)
            assert twice != right, f"seed {SEED}"
        assert check_worker.expected(op, np.delete(values, lost), dtype) != right, f"seed {SEED}"


# ---------------------------------------------------------------- how it is said -----------------

LOOP_BARRIER = "        __syncthreads();\n    }"


def test_the_smallest_case_is_described_whichever_sizes_are_tried() -> None:
    """Elements first, then threads; sizes that are no power of two last."""
    broken = TREE.replace(LOOP_BARRIER, "    }")
    rng = random.Random(SEED)
    for blocks in one(([32, 64, 96, 256, 512], [96, 64, 128], [1024, 96]), "blocks tried"):
        tried = rng.sample(blocks, len(blocks))
        (finding,) = gr.check(broken, block_sizes=tried).findings
        powers = [block for block in blocks if block & (block - 1) == 0]
        assert (finding.n, finding.block_size) == (1, min(powers)), f"seed {SEED}: {tried}"
    (finding,) = gr.check(broken).findings
    assert (finding.n, finding.block_size, finding.schedule) == (1, 32, "forward")
    assert finding.kind == "block race"


def test_both_threads_of_a_race_are_sentences_of_their_own() -> None:
    (finding,) = gr.check(TREE.replace(LOOP_BARRIER, "    }"), block_sizes=[32]).findings
    assert finding.what == "thread 1 (warp 0, lane 1) of block 0 writes shared s[1]"
    assert finding.other == "thread 0 (warp 0, lane 0) read shared s[1] before"
    assert finding.missing == "no warp or block barrier lies between"
    assert finding.line == finding.other_line == 9


def test_a_barrier_that_a_loop_lacks_goes_to_its_end() -> None:
    report = gr.check(TREE.replace(LOOP_BARRIER, "    }"))
    assert "at the end of the loop's body, outside the if" in report.findings[0].remedy
    report = gr.check(TREE.replace("    __syncthreads();\n    for", "    for"), block_sizes=[64])
    assert "between the two lines" in report.findings[0].remedy
    once = TREE.replace("s[t] = i < n ? in[i] : 0;", "s[t] = i < n ? in[i] : 0;\n__syncthreads();\n"
                        "if (t + 32 < blockDim.x) s[t] = s[t + 32] * 0 + s[t];")  # fmt: skip
    report = gr.check(once, block_sizes=[128])
    assert "Read into a variable of the thread" in report.findings[0].remedy


def test_remedies_fit_their_case() -> None:
    def first(source: str, **options: object) -> gr.CheckReport:
        return gr.check(source, **options).findings[0]  # type: ignore[arg-type, return-value]

    bounds = first(TREE.replace("i < n", "i <= n"), block_sizes=[64])
    assert "i < n" in bounds.remedy
    assert "shared" not in bounds.remedy
    shared = first(TREE.replace("s[t + h]", "s[t + 2 * h]"), block_sizes=[64])
    assert shared.kind == "bounds"
    assert "i < n" not in shared.remedy
    maximum = TREE.replace("s[t] += s[t + h]", "s[t] = fmaxf(s[t], s[t + h])")
    wrong = first(maximum, block_sizes=[64])
    assert wrong.kind == "result"
    assert "0 is larger than every negative element" in wrong.remedy
    assert "added" not in wrong.remedy
    shuffle = ATOMIC.replace(
        "BODY", "int x = i < n ? in[i] : 0; x += __shfl_down_sync(MASK, x, 1); "
        "if (i % 2 == 0) atomicAdd(out, x);")  # fmt: skip
    narrow = first(shuffle.replace("MASK", "0xffff"), block_sizes=[64])
    assert narrow.kind == "warp mask"
    assert "branch" not in narrow.remedy
    assert "0xffffffff" in narrow.remedy
    branch = ATOMIC.replace(
        "BODY", "int x = i < n ? in[i] : 0; if (threadIdx.x % 32 < 16) "
        "x += __shfl_down_sync(~0u, x, 1); if (i < n) atomicAdd(out, x);")  # fmt: skip
    skipped = first(branch, block_sizes=[64])
    assert "which has skipped the call, or has returned" in skipped.what
    assert "outside the branch" in skipped.remedy


@pytest.mark.parametrize(
    ("code", "loops"),
    [
        ("for (;;)\n HERE;", True),
        ("for (int i = 0; i < 3; i++) {\n if (i) {}\n HERE;\n }", True),
        ("for (int i = 0; i < 3; i++) { x; }\n HERE;", False),
        ("for (int i = 0; i < 3; i++)\n if (i)\n HERE;", True),
        ("for (int i = 0; i < 3; i++)\n x;\n HERE;", False),
        ("do {\n HERE;\n } while (x);", True),
        ("do { x; } while (y);\n HERE;", False),
        ("if (x) {\n while (y)\n for (;;)\n HERE; }", True),
        ("if (x) { while (y) z; }\n { HERE; }", False),
    ],
)
def test_lines_of_loops_are_told_from_others(code: str, loops: bool) -> None:
    line = 1 + code[: code.index("HERE")].count("\n")
    assert device_text.is_in_loop(f"{{ {code} }}", line) is loops


PAGE = Path(__file__).parents[2] / "docs" / "your-kernel.md"


def test_the_page_shows_the_report_of_its_own_kernel() -> None:
    text = PAGE.read_text(encoding="utf-8")
    source = re.search(r'^source = """(.*?)^"""', text, re.MULTILINE | re.DOTALL)
    shown = re.search(r"^```text\n(mine\.cu: .*?)^```", text, re.MULTILINE | re.DOTALL)
    assert source is not None
    assert shown is not None
    assert str(gr.check(gr.Kernel(source[1]))).startswith(shown[1])


# ---------------------------------------------------------------- what is refused ----------------


def test_what_does_not_compile_is_an_error_with_the_users_line() -> None:
    with pytest.raises(gr.CudaError, match=r"mine.cu does not compile: mine.cu:4:\d+: error") as e:
        gr.check(TREE.replace("float s[]", "floot s[]"))
    assert e.value.log is not None
    assert "mine.cu:4:" in e.value.log


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="block sizes are from 1 to 1024"):
        gr.check(TREE, block_sizes=[2048])
    with pytest.raises(ValueError, match="sizes are from 0"):
        gr.check(TREE, sizes=[-1])
    with pytest.raises(ValueError, match="takes float32: dtypes are of kernels"):
        gr.check(TREE, dtypes=["int32"])
    with pytest.raises(ValueError, match="time_limit must be above 0"):
        gr.check(TREE, time_limit=0)
    template = TREE.replace("__global__", "template <class T> __global__").replace("float", "T")
    with pytest.raises(TypeError, match="take no complex64"):
        gr.check(template, dtypes=["complex64"])
    assert gr.check(template, dtypes=["int16"], block_sizes=[64]).right


def test_a_text_that_is_not_the_emulators_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="what this package does not know"):
        findings.read_finding("it burns", "mine.cu", [], None, {})


# ---------------------------------------------------------------- the report ---------------------


@pytest.fixture(scope="module")
def broken() -> gr.CheckReport:
    return gr.check(TREE.replace("i < n", "i <= n"), block_sizes=[64])


def test_the_report_prints_what_a_teacher_would_say(broken: gr.CheckReport) -> None:
    text = str(broken)
    for part in (
        "tree is wrong, 1 mistake",
        "access out of bounds, line 6",
        "     6 |     s[t] = i <= n ? in[i] : 0;",
        "in[1], where in has 1 element",
        "gpureduce kernels --source first_add",
    ):
        assert part in text
    assert "None" not in text
    assert repr(broken) == "<CheckReport: tree: wrong, 1 mistake: access out of bounds (line 6)>"
    assert max(map(len, text.splitlines())) <= 100


def test_the_report_is_exported(broken: gr.CheckReport) -> None:
    made = json.loads(broken.to_json())
    assert made["right"] is False
    assert made["findings"][0]["line"] == 6
    headings, row = broken.to_csv().splitlines()
    assert headings.startswith("kind,title,line")
    assert row.startswith("bounds,")
    html = broken._repr_html_()
    assert "i &lt;= n" in html
    assert "<script" not in html


def test_the_same_kernel_gives_the_same_report(broken: gr.CheckReport) -> None:
    assert gr.check(TREE.replace("i < n", "i <= n"), block_sizes=[64]) == broken


def test_the_command_prints_the_report_and_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "mine.cu", tmp_path / "report.html"
    file.write_text(TREE)
    assert command.main(["check", str(file), "--block-size", "64", "--html", str(page)]) == 0
    assert "tree is right, within limits" in capsys.readouterr().out
    assert "tree" in page.read_text()
    file.write_text(TREE.replace("i < n", "i <= n"))
    assert command.main(["check", str(file), "--block-size", "64", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "bounds"
    file.write_text("int main() {}")
    assert command.main(["check", str(file)]) == 2
    assert "no __global__ function" in capsys.readouterr().err
    file.write_text(TREE + TREE.replace("tree", "other"))
    assert command.main(["check", str(file)]) == 2
    assert "several kernels, say which by --name NAME: tree" in capsys.readouterr().err
    assert command.main(["check", str(file), "--name", "other", "--block-size", "64"]) == 0
    assert "other is right" in capsys.readouterr().out
    assert command.main(["check", str(file), "--template", "x"]) == 2


@pytest.mark.parametrize(
    ("c_type", "call", "hint"),
    [
        ("float", "atomicMax(out, in[i])", "atomicMax takes int, unsigned, long long and unsigned"),
        (
            "double",
            "atomicMin(out, in[i])",
            "atomicMin takes int, unsigned, long long and unsigned",
        ),
        (
            "long long",
            "atomicAdd(out, in[i])",
            "atomicAdd takes int, unsigned, unsigned long long,",
        ),
        ("uint64_t", "atomicAdd(out, in[i])", "atomicAdd takes int, unsigned, unsigned long long,"),
        ("int", "atomicInc((int *)out, 3)", "atomicInc takes unsigned"),
    ],
)
def test_atomics_that_no_gpu_has_are_refused_with_a_hint(c_type: str, call: str, hint: str) -> None:
    text = (
        f"__global__ void k(const {c_type} *in, {c_type} *out, unsigned n)\n{{\n"
        "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if (i < n) {call};\n}}\n"
    )
    with pytest.raises(gr.CudaError) as caught:
        gr.check(gr.Kernel(text, finish="atomic"))
    assert str(caught.value).startswith("mine.cu does not compile: mine.cu:4: error: static assert")
    assert hint in str(caught.value)
    assert "by atomicCAS" in str(caught.value)
