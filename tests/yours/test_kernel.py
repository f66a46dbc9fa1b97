"""gpureduce.Kernel: what a kernel's text says of its launch, and precise errors for the rest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from draws import SEED

import gpureduce as gr
from gpureduce._yours.device_text import device_text
from gpureduce._yours.kernel_form import C_TYPES, evaluate

FILE = """// a file
#include <cstdio>
typedef float real;
#define THREADS 128
static int host_table[] = {1, 2};
__device__ unsigned count = 0;
__device__ real twice(real x) { return 2 * x; }
__global__ void mine(const real *in, real *out, unsigned n)
{
    __shared__ real s[THREADS]; // } not the end
    s[threadIdx.x] = blockIdx.x * (THREADS * 4) < n ? in[0] : 0;
    out[blockIdx.x] = s[0];
}
int main() { mine<<<1, THREADS>>>(0, 0, 0); printf("}"); }
"""


def form(body: str, head: str = "const float *in, float *out, unsigned n", before: str = ""):
    return gr.Kernel(f"{before}__global__ void mine({head})\n{{\n{body}\n}}\n").form


# ---------------------------------------------------------------- the file -----------------------


def test_host_code_is_blanked_line_for_line() -> None:
    text = device_text(FILE)
    assert [len(line) for line in text.splitlines()] == [len(line) for line in FILE.splitlines()]
    kept = {i for i, line in enumerate(text.splitlines(), 1) if line.strip()}
    assert kept == {3, 4, 6, 7, 8, 9, 10, 11, 12, 13}


def test_a_file_says_its_launch() -> None:
    mine = gr.Kernel(FILE)
    assert (mine.name, mine.op, mine.dtypes) == ("mine", "sum", ("float32", "float32"))
    assert (mine.form.line, mine.form.block_size, mine.form.elements_per_thread) == (8, 128, 4)
    assert str(mine).splitlines() == [
        "mine (mine.cu:8)",
        "  computes   sum of float32",
        "  launch     as many blocks as n needs",
        "  result     each block stores a partial in out[blockIdx.x]",
        "  loads      4 elements per thread",
        "  block      128 threads",
    ]
    assert repr(mine) == "<Kernel: mine, sum of float32>"


def test_a_path_is_read_and_named(tmp_path: Path) -> None:
    file = tmp_path / "homework.cu"
    file.write_text(FILE)
    assert gr.Kernel(file).form.file == "homework.cu"
    assert gr.Kernel(str(file)).source == FILE
    with pytest.raises(FileNotFoundError):
        gr.Kernel(tmp_path / "nothing.cu")
    with pytest.raises(TypeError, match="text or a path, not int"):
        gr.Kernel(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the launch ---------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("out[blockIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];", ("cover", "partials", 1)),
        ("int b = blockIdx.x; out[b] = in[b * 2 * blockDim.x + threadIdx.x];",
         ("cover", "partials", 2)),
        ("*(out + blockIdx.x) = in[blockIdx.x * (blockDim.x * 8) + threadIdx.x];",
         ("cover", "partials", 8)),
        ("for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; "
         "i += blockDim.x * gridDim.x) atomicAdd(out, in[i]);", ("stride", "atomic", 1)),
        ("atomicAdd(&out[0], in[blockIdx.x * blockDim.x + threadIdx.x]);",
         ("cover", "atomic", 1)),
        ("float v = 0; for (int i = threadIdx.x; i < n; i += blockDim.x) v += in[i]; "
         "if (threadIdx.x == 0) out[0] = v;", ("one", "single", 1)),
        ("float v = 0; for (int i = 0; i < n; i++) v += in[i]; *out = v;",
         ("thread", "single", 1)),
        ("out[blockIdx.x] = in[blockIdx.x * blockDim.x]; if (atomicAdd(&count, 1u) == gridDim.x - "
         "1) out[0] = 1;", ("cover", "single", 1)),
        ("int w = blockIdx.x * 64 + threadIdx.x; out[blockIdx.x] = in[w];",
         ("cover", "partials", 1)),
    ],
)  # fmt: skip
def test_launches_are_concluded(body: str, expected: tuple[str, str, int]) -> None:
    found = form(body, before="__device__ unsigned count;\n")
    assert (found.cover, found.finish, found.elements_per_thread) == expected


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("atomicMax(out, in[threadIdx.x]);", "max"),
        ("out[blockIdx.x] = __reduce_min_sync(~0u, in[threadIdx.x]);", "min"),
        ("float m = in[0]; for (int i = 1; i < n; i++) if (in[i] > m) m = in[i]; *out = m;", "max"),
        ("float m = 1; for (int i = 0; i < n; i += 1) m *= in[i]; *out = m;", "prod"),
        ("float m = in[0]; for (int i = 1; i < n; i++) m = in[i] < m ? in[i] : m; *out = m;",
         "min"),
        ("float m = 0; for (int i = 0; i < min(n, 8u); i++) m += in[i]; *out = m;", "sum"),
    ],
)  # fmt: skip
def test_operators_are_concluded(body: str, op: str) -> None:
    assert form(body, "const int *in, int *out, unsigned n").op == op


def test_parameters_are_told_by_const_and_order() -> None:
    roles = [each.role for each in form("*out = *x;", "float *out, int count, const float *x").
             parameters]  # fmt: skip
    assert roles == ["out", "n", "in"]
    assert form("*b = *a;", "float *a, float *b, size_t n").name_of("in") == "a"
    mixed = gr.Kernel(
        "__global__ void k(const unsigned char *a, long long *b, int n)\n{ *b = *a; }"
    )
    assert mixed.dtypes == ("uint8", "int64")


def test_arguments_say_what_the_text_does_not() -> None:
    text = "__global__ void k(const float *a, float *b, int n)\n{ b[3 * blockIdx.x] = a[0]; }"
    with pytest.raises(ValueError, match=r"mine.cu:2: 'b\[3 \* blockIdx.x\]' is no place"):
        gr.Kernel(text)
    given = gr.Kernel(text, finish="partials", op="max", block_size=64, elements_per_thread=5).form
    assert (given.finish, given.op, given.block_size, given.elements_per_thread) == (
        "partials", "max", 64, 5,
    )  # fmt: skip
    two = text.replace("3 * ", "") + text.replace("3 * ", "").replace(" k(", " other(")
    with pytest.raises(ValueError, match=r"mine.cu:1: elements of 'a' are vectors: take float \*a"):
        gr.Kernel("__global__ void k(const float4 *a, float *b, int n) { atomicAdd(b, a[0].x); }")
    with pytest.raises(ValueError, match=r"several kernels, say which by name=: k \(line 1\), oth"):
        gr.Kernel(two)
    assert gr.Kernel(two, name="other").name == "other"


@pytest.mark.parametrize(
    ("head", "body", "most", "line"),
    [
        ("const int *a, int *b, int n", "*b = a[threadIdx.x];", 2**31 - 1, 1),
        ("const int *a, int *b, unsigned n", "int i = blockIdx.x * blockDim.x; *b = a[i];",
         2**31 - 1, 3),
        ("const int *a, int *b, size_t n", "size_t i = blockIdx.x * blockDim.x; *b = a[i];",
         2**32 - 1, 3),
        ("const int *a, int *b, size_t n",
         "size_t i = (size_t)blockIdx.x * blockDim.x; *b = a[i];", 2**63 - 1, None),
    ],
)  # fmt: skip
def test_the_longest_array_follows_from_types(
    head: str, body: str, most: int, line: int | None
) -> None:
    found = form(body, head).most_elements(1, 256)
    assert found[0] == most
    assert line is None or found[2] == line


STRIDE = 3 * 64


@pytest.mark.parametrize(
    ("head", "body", "most"),
    [
        ("unsigned long long n", "for (int i = blockIdx.x * blockDim.x + t; i < n;\n"
         "i += gridDim.x * blockDim.x) *b = a[i];", 2**31 - STRIDE),
        ("int n", "for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) *b = a[i];",
         2**31 - STRIDE),
        ("unsigned n", "unsigned i = blockIdx.x * blockDim.x + t, step = gridDim.x * blockDim.x;\n"
         "while (i < n) { *b = a[i]; i += step; }", 2**32 - STRIDE),
        ("unsigned n", "unsigned i = blockIdx.x * blockDim.x + t;\n"
         "while (i < n) { *b = a[i]; i = i + blockDim.x * gridDim.x; }", 2**32 - STRIDE),
        ("unsigned n", "for (size_t i = blockIdx.x * blockDim.x + t; i < n;\n"
         "i += gridDim.x * blockDim.x) *b = a[i];", 2**32 - 1),
        ("size_t n", "for (size_t i = blockIdx.x * blockDim.x + t; i < n;\n"
         "i += gridDim.x * blockDim.x) *b = a[i];", 2**63 - 1),
        ("unsigned n", "int i = blockIdx.x * blockDim.x + t;\n"
         "for (int h = 1; h < 4; h += blockDim.x) *b = a[i];", 2**31 - 1),
    ],
)  # fmt: skip
def test_the_stride_of_a_loop_is_added_once_more_than_n_allows(
    head: str, body: str, most: int
) -> None:
    body = f"unsigned t = threadIdx.x; {body}"
    assert form(body, f"const int *a, int *b, {head}").most_elements(3, 64)[0] == most


def test_the_index_of_one_block_steps_by_its_threads() -> None:
    body = "for (int i = threadIdx.x; i < n; i += blockDim.x) *b = a[i];"
    most, why, line = form(body, "const int *a, int *b, int n").most_elements(1, 256)
    assert (most, why) == (2**31 - 256, "i is an int to which the loop adds 256")
    assert line == 3


# ---------------------------------------------------------------- errors -------------------------


def test_a_header_that_is_not_read_is_named_before_the_store_that_it_has() -> None:
    text = (
        '#include <cstdio>\n#include "store.cuh"\n'
        "__global__ void k(const float *a, float *b, int n) { finish(a, b, n); }"
    )
    start = (
        r"mine.cu:3: line 2 includes store.cuh, which is not read: put .* into this file; no sto"
    )
    with pytest.raises(ValueError, match=start) as caught:
        gr.Kernel(text)
    assert "cstdio" not in str(caught.value)
    assert gr.Kernel(text, finish="single", op="sum").form.left_out == ((2, "store.cuh"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int main() {\n}", "mine.cu: there is no __global__ function"),
        ("__global__ void k(const float *a, float *b, float *c, int n) { *b = 1; }",
         "mine.cu:1: kernel 'k' has 3 pointers"),
        ("__global__ void k(const float *a,\n float scale, float *b, int n) { *b = 1; }",
         "mine.cu:2: parameter 'float scale' has no place"),
        ("__global__ void k(const __half *a, float *b, int n) { *b = 1; }",
         "mine.cu:1: elements of 'a' are __half"),
        ("__global__ void k(const Pair *a, Pair *b, int n) { *b = 1; }",
         "mine.cu:1: elements of 'a' are 'Pair'"),
        ("__global__ void k(const float *a, const float *b, int n) { }", "both pointers"),
        ("__global__ void k(const float *a, float *b, int n) { }", "no store to 'b' is seen"),
        ("__global__ void k(const float *a, float *b, int n) {\n *b = a[threadIdx.y]; }",
         "mine.cu:2: blocks and grids have one axis"),
        ("__global__ void k(const float *a, float *b, int n) {\n *b = __shfl_xor(a[0], 1); }",
         "mine.cu:2: GPUs of compute capability 7.0 and newer have no __shfl_xor"),
        ("__shared__ float s[3];\n__global__ void k(const float *a, float *b, int n) { *b = 1; }",
         "mine.cu:1: shared memory is declared outside functions"),
        ("template <int Q>\n__global__ void k(const float *a, float *b, int n) { *b = Q; }",
         "mine.cu:1: template parameter 'Q' of kernel 'k' needs a value"),
        ("__global__ void k(const float *a, float *b, int n) {\n cg::this_grid().sync(); *b = 1; }",
         "mine.cu:2: a barrier of the grid needs a cooperative launch"),
        ("__global__ void k(const float *a, float *b, int n) {\n cg::this_cluster(); *b = 1; }",
         "mine.cu:2: blocks in clusters need a launch"),
    ],
)  # fmt: skip
def test_other_kernels_are_refused_with_their_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        gr.Kernel(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"op": "mean"},
        {"finish": "somehow"},
        {"block_size": 0},
        {"elements_per_thread": -1},
        {"name": "yours"},
        {"template": {"Q": 1}},
    ],
)
def test_bad_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=str(next(iter(options.values()))).strip("{}'").split("'")[0]
    ):
        gr.Kernel(FILE, **options)  # type: ignore[arg-type]


def test_integer_expressions_have_the_values_of_c() -> None:
    rng = random.Random(SEED)
    for _ in range(50):
        a, b = rng.randrange(1, 1000), rng.randrange(1, 1000)
        names = {"A": a, "B": b}
        for text, value in {
            "A * (B + 2)": a * (b + 2),
            "A / B": a // b,
            "A - 1u": a - 1,
            "1 << 4": 16,
            "0x10 * B": 16 * b,
        }.items():
            assert evaluate(text, names) == value, f"seed {SEED}: {text}"
    for other in ("x", "f(2)", "1.5", "A ? 1 : 2", "1 / 0"):
        assert evaluate(other, {"A": 1}) is None


def test_every_c_type_is_a_dtype_of_the_package() -> None:
    from gpureduce import _core

    assert set(C_TYPES.values()) <= set(_core.DTYPES)
