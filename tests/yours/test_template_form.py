"""What ``kernels --export`` writes is taken back, as it is and after a student has changed it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from draws import SEED, some
from test_own_kernel_calls import elements, emulated, needs_compiler
from test_with_nvrtc import needs_nvrtc

import gpureduce as gr
from gpureduce import _core
from gpureduce._yours.launching import compile_for

NOT_ONE_FILE = ("cub", "exact", "fast", "auto")
KERNELS = [kernel.name for kernel in gr.kernels() if kernel.name not in NOT_ONE_FILE]
OPERATORS = ("sum", "prod", "min", "max")
DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
PROGRAM = re.compile(r"^#if defined\(__CUDACC__\).*", re.MULTILINE | re.DOTALL)
each_kernel = pytest.mark.parametrize("name", KERNELS)


def some_kernels(family: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", some(KERNELS, 0.4, family))


def export(name: str, op: str = "sum", dtype: str = "float32", **options: int) -> str:
    return gr.kernel_source(name, standalone=True, op=op, dtype=dtype, **options)


def drawn(name: str) -> tuple[str, str]:
    """An operator and a dtype that the kernel folds."""
    rng = random.Random(f"{SEED} {name}")
    while True:
        op, dtype = rng.choice(OPERATORS), rng.choice(DTYPES)
        try:
            _core.write_program(name, op, dtype, 0)
        except (TypeError, ValueError):
            continue
        return op, dtype


# ---------------------------------------------------------------- what the text says -------------


@some_kernels("launches of exports")
def test_the_launch_is_the_registrys_also_without_the_program(name: str) -> None:
    text = export(name)
    found = re.search(
        r"// cover: (\w+), finish: (\w+)", _core.write_program(name, "sum", "float32", 0)
    )
    assert found is not None
    cover, finish = found.groups()
    for form in (gr.Kernel(text).form, gr.Kernel(PROGRAM.sub("", text)).form):
        assert form.name == name
        assert form.cover == cover
        assert form.has_scratch == (finish == "ticket")
        if cover != "one":
            expected = {"passes": "partials", "atomic": "atomic", "ticket": "single"}[finish]
            assert form.finish == expected
        row = next(kernel for kernel in gr.kernels() if kernel.name == name)
        assert form.block_size == row.block_size


def test_types_and_constants_are_the_files() -> None:
    mine = gr.Kernel(export("shfl_two_pass_vec", "max", "int16", block_size=64))
    assert (mine.op, mine.dtypes, mine.form.block_size) == ("max", ("int16", "int32"), 64)
    assert mine.form.elements_per_thread > 1
    assert "Next" in mine.form.traits
    assert gr.Kernel(export("sequential", "sum", "int8")).dtypes == ("int8", "int64")
    assert "shfl_two_pass_vec" in str(mine)


def test_what_is_no_kernel_of_this_form_is_refused() -> None:
    text = export("sequential")
    using = re.search(r"^using First = [^;]*;", text, re.MULTILINE)
    assert using is not None
    for source, message in (
        (
            export("sequential", "argmax"),
            r"mine.cu:\d+: First is of fold_\w+: kernels of your own co",
        ),
        (
            export("sequential", "sum", "complex64"),
            "First is of complex64: kernels of your own take",
        ),
        (export("sequential", "sum", "bfloat16"), "First is of bfloat16: kernels of your own take"),
        (text.replace(using[0], ""), "in template form, and its types are not there: using First"),
        (text.replace("Scratch<typename Traits::Acc>)", "int, int)"), "has 5 parameters: the tem"),
    ):
        with pytest.raises(ValueError, match=message):
            gr.Kernel(source)
    for given in ({"block_size": 64}, {"finish": "atomic"}):
        with pytest.raises(ValueError, match="in template form, whose"):
            gr.Kernel(text, **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------- on the emulator ----------------


@needs_compiler
@pytest.mark.long
@some_kernels("exports on the emulator")
def test_each_export_is_right_as_it_is(name: str) -> None:
    op, dtype = drawn(name)
    kernel = gr.Kernel(export(name, op, dtype))
    tile = (kernel.form.block_size or 1) * kernel.form.elements_per_thread
    n = random.Random(SEED).randrange(1, 3 * tile)
    report = gr.check(kernel, sizes=[n])
    assert report.right, f"seed {SEED}: {op} of {dtype}\n{report}"


@needs_compiler
def test_exports_reduce_arrays_as_numpy(tmp_path: Path) -> None:
    """Also by further launches over accumulators, and by the last block."""
    rng = random.Random(SEED)
    cases = [
        ("sequential", "sum", "int8"), ("shfl_two_pass", "max", "float16"),
        ("last_block", "sum", "int32"), ("shfl_atomic", "min", "int16"),
        ("single_block", "prod", "uint8"), (name := rng.choice(KERNELS), *drawn(name)),
    ]  # fmt: skip
    cases = some(cases, 1 / 2, "exports as NumPy")
    code = f"""
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
import os
os.environ['GPR_TEST_SEED'] = '{SEED}'
from test_own_kernel_calls import elements
rng = np.random.default_rng({SEED})
found = []
for name, op, dtype in {cases!r}:
    kernel = gr.Kernel(gr.kernel_source(name, standalone=True, op=op, dtype=dtype))
    a = elements(kernel, rng, int(rng.integers(1, 5000)))
    got, want = getattr(gr, op)(a, kernel=kernel), getattr(np, op)(a)
    found.append([name, op, dtype, len(a), float(got), float(want), gr.last_run().launches])
print(json.dumps(found))
"""
    found = emulated(code, tmp_path)
    assert isinstance(found, list)
    for name, op, dtype, n, got, want, _ in found:
        assert got == want, f"seed {SEED}: {name}, {op} of {n} {dtype}"


@needs_compiler
def test_a_changed_export_is_checked_and_explained_by_its_own_lines(tmp_path: Path) -> None:
    text = export("sequential", block_size=64)
    barrier = "__syncthreads(); // the next step reads what this one wrote"
    assert text.count(barrier) == 1
    file = tmp_path / "mine.cu"
    file.write_text(text.replace(barrier, barrier.split("; ")[1]))
    report = gr.check(file)
    assert not report.right
    assert report.findings[0].title.endswith("(race)")
    line = file.read_text().splitlines()[report.findings[0].line - 1]
    assert "Traits::combine(partial[tid], partial[tid + s])" in line
    file.write_text(text)
    told, course = gr.explain([gr.Kernel(file), "sequential"], 256, block_size=64)
    assert told.main.figures == course.main.figures
    assert "Traits::combine" in told.annotated_source()


def as_product(text: str, identity: bool = True) -> str:
    """An exported sum whose fold multiplies, as its header says how to."""
    assert text.count("return GPR_COMBINE_sum(a, b)") == 1
    assert text.count("return element_of<Acc>(0);") == 1
    text = text.replace("return GPR_COMBINE_sum(a, b)", "return a * b")
    return text.replace("element_of<Acc>(0)", "element_of<Acc>(1)") if identity else text


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_another_operator_in_an_export_is_named_and_can_be_said(dtype: str) -> None:
    text = as_product(export("sequential", "sum", dtype))
    assert "check compares with the operator of --computes" in text
    report = gr.check(gr.Kernel(text), block_sizes=[256])
    assert report.kinds == ("operator",)
    assert "results are those of prod, not of sum" in report.findings[0].what
    said = gr.check(gr.Kernel(text, op="prod"), block_sizes=[256])
    assert said.op == "prod"
    assert said.right, said
    assert "left out" not in str(said)


@needs_compiler
def test_no_element_is_named_where_no_partial_sum_is_the_result() -> None:
    text = as_product(
        export("sequential", "sum", "int32"), identity=False
    )  # 0 remains its identity
    report = gr.check(gr.Kernel(text), block_sizes=[256])
    assert report.kinds == ("result",)
    assert "the kernel computes 0" in report.findings[0].what
    for words in ("left out", "taken", "bring"):
        assert words not in report.findings[0].what


@needs_compiler
def test_an_export_is_compared_with_the_kernel_that_it_was(tmp_path: Path) -> None:
    code = """
mine = gr.Kernel(gr.kernel_source('first_add', standalone=True, dtype='int32'))
c = gr.compare(np.arange(5000, dtype='i4'), [mine, 'first_add'], baselines=[], seconds=0.02,
               ceiling=False, break_even=False, progress=False)
print(json.dumps([[row.name, row.right, row.on_device is not None] for row in c]))
"""
    assert emulated(code, tmp_path) == [
        ["first_add in mine.cu", True, True],
        ["first_add", True, True],
    ]


# ---------------------------------------------------------------- by NVRTC, and on a GPU ---------


@needs_nvrtc
@pytest.mark.long
def test_each_export_compiles_by_nvrtc() -> None:
    failed = []
    for name in some(KERNELS, 0.4, "exports by NVRTC"):
        op, dtype = drawn(name)
        kernel = gr.Kernel(export(name, op, dtype))
        try:
            compile_for(kernel.form, (9, 0), None, kernel.form.block_size or 1)
        except gr.CudaError as error:
            failed.append(f"seed {SEED}: {name}, {op} of {dtype}: {error}")
    assert failed == []


@pytest.mark.gpu
@each_kernel
def test_each_export_reduces_as_numpy_on_a_gpu(name: str) -> None:
    rng = np.random.default_rng(SEED)
    for op, dtype in (("sum", "float32"), drawn(name)):
        kernel = gr.Kernel(export(name, op, dtype))
        for n in (1, int(rng.integers(2, 100_000))):
            a = elements(kernel, rng, n)
            got, want = getattr(gr, op)(a, kernel=kernel), getattr(np, op)(a)
            # A kernel writes what it holds: sums of float16 are float32.
            assert want.dtype.type(got) == want, f"seed {SEED}: {op} of {n} {dtype}"
