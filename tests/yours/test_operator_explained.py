"""Kernels with operators of users' own: explained, checked and compared."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from operator_cases import CASES
from test_operator_on_gpu import BEGIN, emulated

import gpureduce as gr
from gpureduce._bench.correctness import Verdict, check_own, own_reference

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
ADD = gr.Operator(
    "add",
    "struct add {"
    " static T identity() { return 0; } static T combine(T a, T b) { return a + b; } };",
    commutative=True,
)
HASH = CASES["hash"].operator()


@needs_compiler
def test_an_operator_that_adds_does_what_the_sum_does() -> None:
    kernel = "sequential"
    own = gr.explain(kernel, op=ADD, dtype="int64", block_size=64)
    built_in = gr.explain(kernel, op="sum", dtype="int64", block_size=64)
    for one, other in zip(own.launches, built_in.launches, strict=False):
        assert one.stage == other.stage
        if one.stage != "finish":
            assert one.entry == other.entry
            assert asdict(one.figures) == asdict(other.figures)
    assert own.main.lines
    assert (own.op, own.dtype, own.block_size) == ("add", "int64", 64)
    assert own.launches[-1].stage == "finish"
    assert "Traits::combine" in own.annotated_source()


@needs_compiler
def test_kernels_of_operators_are_explained_by_their_own_file() -> None:
    found = gr.explain("auto", op=HASH, dtype="int32", rows=2, n=5000)
    assert (found.kernel, found.file, found.block_size) == ("fast", "custom_kernels.cuh", 256)
    assert found.main.entry == "gpr::custom_rows<256u>"
    assert found.figures.shuffles > 0
    title = "fast, chosen by auto: hash of 2 rows of 5,000 int32, blocks of 256 threads"
    assert str(found).startswith(title)
    assert found.line_counts()


@needs_compiler
def test_structures_are_explained() -> None:
    point = np.dtype([("x", "f8"), ("n", "i4")], align=True)
    heaviest = gr.Operator(
        "heaviest",
        "struct heaviest { static T combine(T a, T b) { return b.x > a.x ? b : a; } };",
        dtypes=[point],
    )
    found = gr.explain("single_warp_ordered", op=heaviest)
    assert found.dtype == str(point)
    assert found.n == 128


@needs_compiler
def test_what_cannot_be_explained_says_why() -> None:
    with pytest.raises(ValueError, match="kernel 'sequential' reorders operands, and operator 'h"):
        gr.explain("sequential", op=HASH)
    with pytest.raises(gr.KernelUnavailableError, match="it takes no operators of your own"):
        gr.explain("cub", op=ADD)
    with pytest.raises(ValueError, match="operator 'add' takes blocks of 32, 64, 128 or 256"):
        gr.explain("auto", op=ADD, block_size=48)
    wrong = gr.Operator(
        "wrong", "struct wrong {\n static T combine(T a, T b) { return a + c; }\n};"
    )
    with pytest.raises(gr.CompileError, match=r"wrong\.cu, line 2") as found:
        gr.explain("auto", op=wrong)
    assert found.value.line == 2
    assert "not declared" in found.value.log or "undeclared" in found.value.log
    first = gr.Operator(
        "first",
        "struct first { static T combine(T a, T b) { return a - b; } };",
        commutative=True,
    )
    with pytest.raises(RuntimeError, match="operator 'first': is its combine associative"):
        gr.explain("sequential", op=first, dtype="int64")
    mine = gr.Kernel(
        "__global__ void mine(const int *in, int *out, unsigned n)"
        "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(out, in[i]); }"
    )
    with pytest.raises(TypeError, match="kernel 'mine' computes sum: operators of your own take"):
        gr.explain(mine, op=ADD)


# ---------------------------------------------------------------- check --------------------------


@needs_compiler
def test_an_operator_that_keeps_its_promises_is_right() -> None:
    kernel, op = "last_block_ordered", "hash"
    report = gr.check(kernel, op=CASES[op].operator(), sizes=[1, 33, 200], dtypes=["int64"])
    assert report.right
    assert report.runs == 9  # three sizes by three schedules
    assert (report.kernel, report.op, report.sizes) == (kernel, op, (1, 33, 200))
    assert not report.limits
    assert f"{op}.cu: {kernel} is right" in str(report)


MINUS = """struct minus {
    static T identity() { return 1; }
    static T combine(T a, T b) { return a - b; }
};"""


@needs_compiler
def test_promises_that_are_not_kept_are_shown_by_elements() -> None:
    operator = gr.Operator("minus", MINUS, commutative=True)
    report = gr.check("sequential", op=operator, dtypes=["int32"])
    assert not report.right
    assert report.runs == 0
    assert report.kinds == ("not associative", "no identity", "not commutative")
    assert [each.line for each in report.findings] == [3, 2, 3]
    for each in report.findings:
        elements = dict(re.findall(r"([xyz]) = (-?\d+)", each.what))
        x, y, z = (int(elements.get(name, 0)) for name in "xyz")
        said = [int(number) for number in re.findall(r"is (-?\d+)", each.what)]
        assert (
            said
            == {
                "not associative": [x - y - z, x - (y - z)],
                "no identity": [1 - x, x - 1, x],
                "not commutative": [x - y, y - x],
            }[each.kind]
        )
        assert each.schedule == ""
    assert "combine is not associative, line 3" in str(report)


@needs_compiler
def test_an_operator_that_does_not_compile_for_all_dtypes_is_checked_for_the_others() -> None:
    report = gr.check("single_warp", op=CASES["gcd"].operator(), sizes=[40])
    assert report.dtypes == ("int32",)
    assert [each.text.split(":")[0] for each in report.limits] == [
        "it does not compile for float32"
    ]
    wrong = gr.Operator(
        "wrong", "struct wrong {\n static T combine(T a, T b) { return a + c; }\n};"
    )
    with pytest.raises(gr.CompileError, match=r"wrong\.cu, line 2"):
        gr.check("auto", op=wrong)


def test_arguments_of_checks_of_operators() -> None:
    for arguments, error, words in (
        ({"kernel": "sequential", "op": HASH}, ValueError, "kernel 'sequential' reorders operands"),
        ({"kernel": "auto", "op": "sum"}, TypeError, "op is an Operator of your own, not str"),
        ({"kernel": "auto", "op": ADD, "sizes": [0]}, ValueError, "sizes are from 1 to"),
        ({"kernel": "auto", "op": ADD, "dtypes": []}, ValueError, "name one dtype at least"),
        ({"kernel": "auto", "op": ADD, "block_sizes": []}, ValueError, "name one size at least"),
        ({"kernel": "auto", "op": ADD, "sanitizer": True}, ValueError, "for kernels of your own"),
        ({"kernel": "auto", "op": ADD, "time_limit": 0}, ValueError, "time_limit must be above"),
        ({"kernel": "shfl_xor", "op": ADD, "block_sizes": [7]}, ValueError, "takes a block size"),
    ):
        with pytest.raises(error, match=words):
            gr.check(**arguments)


# ---------------------------------------------------------------- compare ------------------------

QUICK = {"device": "cpu", "seconds": 0.005, "ceiling": False, "progress": False}


@needs_compiler
def test_a_comparison_is_checked_beside_the_cpu() -> None:
    a = np.arange(5000) % 7
    found = gr.compare(a, ["auto", "sequential"], HASH, **QUICK)
    assert (found.op, found.break_even) == ("hash", None)
    assert found["auto"].right
    assert found["auto"].ran_on == "cpu"
    assert found["auto"].host is not None
    assert "it runs on GPUs only" in found["sequential"].absent
    assert [row.name for row in found] == ["auto", "sequential"]
    point = np.zeros(9, np.dtype([("x", "f8"), ("n", "i4")], align=True))
    point["x"] = np.arange(9)
    heaviest = gr.Operator(
        "heaviest", "struct heaviest { static T combine(T a, T b) { return b.x > a.x ? b : a; } };"
    )
    assert own_reference(heaviest, point, None)[0]["x"] == 8
    assert check_own(point[8], own_reference(heaviest, point, None)).right
    assert not check_own(point[7], own_reference(heaviest, point, None)).right
    right = own_reference(HASH, a, None)
    assert check_own(right[0], right) == Verdict(True, 0.0)
    assert not check_own(right[0] + np.uint64(1), right).right


def test_what_is_not_compared_with_operators_of_ones_own() -> None:
    a = np.arange(5)
    with pytest.raises(ValueError, match="baselines have no operators of your own: numpy cannot"):
        gr.compare(a, op=HASH, baselines=["numpy"], **QUICK)
    with pytest.raises(ValueError, match="profile is for the package's operators"):
        gr.compare(a, op=HASH, profile=True, **QUICK)


@needs_compiler
def test_named_kernels_are_compared_on_the_emulator(tmp_path: Path) -> None:
    code = """
found = gr.compare(np.arange(700) % 5, ["last_block_ordered", "sequential", "exact"],
                   CASES["hash"].operator(), device="cuda", block_size=64, seconds=0.005,
                   ceiling=False, progress=False)
print(json.dumps([[row.name, row.right, row.block_size, row.ran_on, row.host is not None,
                   row.on_device is not None, row.absent] for row in found]))
"""
    first, *refused = emulated(BEGIN + code, tmp_path)
    assert first == ["last_block_ordered", True, 64, "cuda:0", True, True, ""]
    for row, words in zip(refused, ("reorders operands", "takes no operators"), strict=True):
        assert words in row[-1]
        assert not row[4]
