"""A kernel as one CUDA file that needs nothing else: :func:`standalone_source`.

The declarations are slices of the files that run (:mod:`gpureduce._source_slices`); this module
adds the comment above them and the program below: ``main`` launches the kernel as the library does,
compares the result with a loop on the host and times the launch.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, _exceptions
from ._core import __version__
from ._dtypes import is_float
from ._kernel_sources import shown_rule
from ._source_slices import slice_program

__all__ = ["standalone_source"]

_WIDTH = 100
_WHY_NOT = {
    "cub": "it is NVIDIA's code: a program of your own calls cub::DeviceReduce",
    "fast": "it has a program for each layout, whose parameters the library computes per call",
    "exact": "it has several programs, and the library rounds what they store",
}
_WHY_NOT["auto"] = _WHY_NOT["fast"]


@dataclass(frozen=True)
class _Check:
    """How the host computes what the kernel should: C++ expressions and statements.

    Elements are made of small whole numbers ``x``, so that float results are exact as well.
    """

    draw: str
    """The number, from ``bits``."""
    start: str
    step: str
    want: str
    """The expected result, from the variables that ``start`` declares and ``n``."""
    got: str
    """The kernel's result, from ``value``, the accumulator."""
    second: tuple[str, str] | None = None
    """Expected and returned value of a second result."""


_SIGNED, _UNSIGNED, _BITS = "bits % 9 - 4", "bits % 9", "bits % 8 + 8"
_TOTAL = ("long long total = 0;", "total += x;")
_EXTREMES = {
    "min": ("int best = 1000;", "if (x < best) best = x;", "best", "number(value)"),
    "max": ("int best = -1000;", "if (x > best) best = x;", "best", "number(value)"),
    "argmin": (
        "int best = 1000;\nlong long place = 0;",
        "if (x < best) {\n    best = x;\n    place = static_cast<long long>(i);\n}",
        "place",
        "value.position",
    ),
    "argmax": (
        "int best = -1000;\nlong long place = 0;",
        "if (x > best) {\n    best = x;\n    place = static_cast<long long>(i);\n}",
        "place",
        "value.position",
    ),
}


def _check_of(op: str, dtype: str) -> _Check:
    """The check of an operator for elements of a dtype."""
    draw = _UNSIGNED if dtype[0] in "ub" and not is_float(dtype) else _SIGNED
    if dtype == "bool":
        draw = "bits % 2"
    if op in _EXTREMES:
        return _Check(draw, *_EXTREMES[op])
    if op == "sum":
        return _Check(draw, *_TOTAL, "total", "number(value)")
    if op == "mean":
        return _Check(draw, *_TOTAL, "double(total) / n", "number(value) / n")
    if op == "prod":
        signs = "bits % 2 == 0 ? -1 : 1" if draw == _SIGNED else "1"
        twos = signs if dtype == "bool" else f"i < 6 ? 2 : {signs}"
        return _Check(twos, "long long total = 1;", "total *= x;", "total", "number(value)")
    if op in ("any", "all"):
        some = "any" if op == "any" else "every"
        start, step = (
            ("bool any = false;", "any = any || x != 0;")
            if op == "any"
            else ("bool every = true;", "every = every && x != 0;")
        )
        return _Check(
            "i == n / 2" if op == "any" else "i != n / 2", start, step, some, "number(value)"
        )
    if op == "count_nonzero":
        return _Check(draw, "long long count = 0;", "count += x != 0;", "count", "number(value)")
    if op == "logical_xor":
        return _Check(draw, "bool odd = false;", "odd = odd != (x != 0);", "odd", "number(value)")
    if op in ("ptp", "minmax"):
        start = "int low = 1000, high = -1000;"
        step = "if (x < low) low = x;\nif (x > high) high = x;"
        if op == "ptp":
            return _Check(draw, start, step, "high - low", "number(value.high) - number(value.low)")
        return _Check(draw, start, step, "low", "number(value.low)", ("high", "number(value.high)"))
    if op in ("var", "std"):
        start = "long long total = 0, squares = 0;"
        parts = "2.0 * " if dtype.startswith("complex") else ""  # of x - ix
        # Of a standard deviation the square is compared: the root is taken by the library.
        want = f"{parts}(squares - double(total) * total / n) / n"
        got = "value.squares / n"
        return _Check(draw, start, "total += x;\nsquares += x * x;", want, got)
    start, symbol = {
        "bitwise_and": ("long long bits_of_all = ~0ll;", "&"),
        "bitwise_or": ("long long bits_of_all = 0;", "|"),
        "bitwise_xor": ("long long bits_of_all = 0;", "^"),
    }[op]
    if dtype == "bool":
        draw, start = "bits % 2", start.replace("~0ll", "1")
    else:
        draw = _BITS
    got = "number(value)" if dtype == "bool" else "number(static_cast<First::In>(value))"
    return _Check(draw, start, f"bits_of_all {symbol}= x;", "bits_of_all", got)


def _element(dtype: str, op: str) -> str:
    """C++ that makes an element of the int ``x``."""
    if dtype == "bool":
        return "First::In{static_cast<unsigned char>(x != 0)}"
    if dtype == "float16":
        return "First::In{__half_as_ushort(__int2half_rn(x))}"
    if dtype == "bfloat16":
        return "First::In{__bfloat16_as_ushort(__int2bfloat16_rn(x))}"
    if dtype.startswith("complex"):
        part = dtype.replace("complex64", "float").replace("complex128", "double")
        return f"First::In{{{part}(x), {part}({'0' if op == 'prod' else '-x'})}}"
    return "static_cast<First::In>(x)"


def _number(acc: str, op: str) -> str:
    """The host function that reads a number of an accumulator."""
    if acc.startswith("complex"):
        # Of x - ix the imaginary part repeats the real one; of a product it is 0.
        imaginary = "0" if op == "prod" else "-x.re"
        return f"""static double number(gpr::dt_{acc} x)
{{
    return x.im == {imaginary} ? x.re : NAN;
}}
"""
    if acc == "uint64":  # integers are summed modulo 2^64: of signed elements it is negative
        return """static double number(unsigned long long x)
{
    return static_cast<double>(static_cast<long long>(x));
}
"""
    return """template <class Number> static double number(Number x)
{
    return static_cast<double>(x);
}
"""


def _comment(text: str) -> str:
    return "\n".join(
        f"// {line}".rstrip()
        for paragraph in text.split("\n")
        for line in (textwrap.wrap(paragraph, _WIDTH - 3) or [""])
    )


_COOPERATIVE = """\
// Reduces in[0 .. n) and returns where on the device the result is. Each block stores a partial and
// waits for all others at a barrier: the launch is a cooperative one, whose blocks run together.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{
    const gpr::Rows rows = {n, 1, 0, blocks_for(n)};
    gpr::Scratch<First::Acc> scratch;
    cudaLaunchAttribute together = {};
    cudaLaunchConfig_t launch = {};

    static_cast<gpr_scratch_params &>(scratch) = {memory.partials, memory.ticket};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    launch.gridDim = rows.blocks;
    launch.blockDim = block_size;
    launch.attrs = &together;
    launch.numAttrs = 1;
    must(cudaLaunchKernelEx(
        &launch, gpr::NAME<First, block_size>, in, memory.out, rows, scratch));
    return memory.out;
}
"""
_CLUSTERS = """\
// Reduces in[0 .. n) and returns where on the device the result is. The blocks of a cluster, which
// is a part of the launch, fold into one output by an atomic, so it holds the identity before.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{
    unsigned blocks = blocks_for(n), cluster = 1;
    int resident = 0; // clusters that the GPU holds at once: others would begin after them
    cudaLaunchAttribute together = {};
    cudaLaunchConfig_t launch = {};

    while (cluster < SIZE && 2 * cluster <= blocks) cluster *= 2;
    blocks -= blocks % cluster;
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim = {cluster, 1, 1};
    launch.gridDim = blocks;
    launch.blockDim = block_size;
    launch.attrs = &together;
    launch.numAttrs = 1;
    must(cudaOccupancyMaxActiveClusters(&resident, gpr::NAME<First, block_size>, &launch));
    if (resident > 0 && blocks > resident * cluster) blocks = resident * cluster;
    launch.gridDim = blocks;
    gpr::fill_identity<First><<<1, 1>>>(memory.out, 1);
    must(cudaLaunchKernelEx(&launch, gpr::NAME<First, block_size>, in, memory.out,
                            gpr::Rows{n, 1, 0, blocks}, gpr::Scratch<First::Acc>{}));
    return memory.out;
}
"""
_TOGETHER = re.compile(r"^clusters of (\d+)$")


def _launch(name: str, program: dict[str, str], has_next: bool) -> str:
    """C++ of ``reduce``, which launches as the library does."""
    cover = program["cover"]
    later = "Next" if has_next else "First"
    blocks = {
        "cover": (
            "every element has its place in one of them",
            "return static_cast<unsigned>((n + per_block - 1) / per_block);",
        ),
        "stride": (
            "as many as fill the GPU, which loop over elements; fewer for few elements",
            """const unsigned long long needed = (n + per_block - 1) / per_block;
    int device = 0, multiprocessors = 0, resident = 0;
    must(cudaGetDevice(&device));
    must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, gpr::NAME<First, block_size>, block_size, 0));
    const unsigned long long most = static_cast<unsigned long long>(multiprocessors) * resident;
    return static_cast<unsigned>(needed < most ? needed : most);""",
        ),
        "one": ("one, which loops over the elements", "return n > 0 ? 1 : 0;"),
    }[cover]
    per_block = ""
    if cover != "one":
        per_block = "const unsigned long long per_block = block_size * elements_per_thread;\n    "
    grid = f"""// Blocks for n elements: {blocks[0]}.
static unsigned blocks_for(unsigned long long n)
{{
    {per_block}{blocks[1]}
}}
"""
    run = {
        "one": """\
// Reduces in[0 .. n) and returns where on the device the result is.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{
    const gpr::Rows rows = {n, 1, 0, blocks_for(n)};

    gpr::NAME<First, block_size><<<rows.blocks, block_size>>>(in, memory.out, rows, {});
    return memory.out;
}
""",
        "passes": f"""\
// Reduces in[0 .. n) and returns where on the device the result is. Each block stores a partial;
// the kernel reduces those again until one is left.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{{
    gpr::Rows rows = {{n, 1, 0, blocks_for(n)}};
    First::Acc *from = memory.partials, *to = memory.out;

    gpr::NAME<First, block_size><<<rows.blocks, block_size>>>(in, from, rows, {{}});
    while (rows.blocks > 1) {{
        rows.n = rows.blocks;
        rows.blocks = blocks_for(rows.n);
        gpr::NAME<{later}, block_size><<<rows.blocks, block_size>>>(from, to, rows, {{}});
        std::swap(from, to);
    }}
    return from;
}}
""",
        "atomic": """\
// Reduces in[0 .. n) and returns where on the device the result is. Blocks fold into one output by
// atomics, so it holds the identity before.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{
    const gpr::Rows rows = {n, 1, 0, blocks_for(n)};

    gpr::fill_identity<First><<<1, 1>>>(memory.out, 1);
    gpr::NAME<First, block_size><<<rows.blocks, block_size>>>(in, memory.out, rows, {});
    return memory.out;
}
""",
        "ticket": """\
// Reduces in[0 .. n) and returns where on the device the result is. Each block stores a partial and
// takes a ticket; the last one combines the partials.
static const First::Acc *reduce(const First::In *in, unsigned long long n, const Memory &memory)
{
    const gpr::Rows rows = {n, 1, 0, blocks_for(n)};
    gpr::Scratch<First::Acc> scratch;

    static_cast<gpr_scratch_params &>(scratch) = {memory.partials, memory.ticket};
    gpr::NAME<First, block_size><<<rows.blocks, block_size>>>(in, memory.out, rows, scratch);
    return memory.out;
}
""",
        "cooperative": _COOPERATIVE,
        "clusters": _CLUSTERS,
    }[_launch_kind(program)]
    if clusters := _TOGETHER.match(program["launch"]):
        run = run.replace("SIZE", clusters[1])
    found = (grid + "\n" + run).replace("NAME", name)
    # Launches that a long name makes too long for a line.
    return re.sub(
        rf"^( *)(gpr::[^\n]*?)(<<<[^\n]*)$(?<=[^\n]{{{_WIDTH + 1}}})",
        r"\1\2\n\1    \3",
        found,
        flags=re.M,
    )


def _launch_kind(program: dict[str, str]) -> str:
    """How blocks depend on each other and become one."""
    if program["launch"]:
        return program["launch"].split()[0]
    return "one" if program["cover"] == "one" else program["finish"]


_MAIN = """int main(int argc, char **argv)
{
    const unsigned long long n = argc > 1 ? strtoull(argv[1], nullptr, 0) : LENGTH;
    std::vector<First::In> elements(n);
    START
    unsigned long long state = 1; // of a linear congruential generator

    for (unsigned long long i = 0; i < n; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const int bits = static_cast<int>(state >> 40);
        const int x = DRAW;
        elements[i] = ELEMENT;
        STEP
    }
    if (n == 0) {
        fprintf(stderr, "usage: %s [number of elements, 1 or more]\\n", argv[0]);
        return 2;
    }

    First::In *in = nullptr;
    Memory memory = {};
    const unsigned long long partials = blocks_for(n) * sizeof(First::Acc);
    must(cudaMalloc(&in, n * sizeof *in));
    must(cudaMalloc(&memory.out, partials));
    must(cudaMalloc(&memory.partials, partials));
    must(cudaMalloc(&memory.ticket, sizeof *memory.ticket));
    must(cudaMemset(memory.ticket, 0, sizeof *memory.ticket));
    must(cudaMemcpy(in, elements.data(), n * sizeof *in, cudaMemcpyHostToDevice));

    First::Acc value;
    const First::Acc *result = reduce(in, n, memory);
    must(cudaGetLastError());
    must(cudaMemcpy(&value, result, sizeof value, cudaMemcpyDeviceToHost));
    int wrong = !agree(GOT, WANT);
SECOND
    enum { REPEATS = 20 };
    cudaEvent_t begin, end;
    float milliseconds = 0;
    must(cudaEventCreate(&begin));
    must(cudaEventCreate(&end));
    must(cudaEventRecord(begin));
    for (int i = 0; i < REPEATS; i++) (void)reduce(in, n, memory);
    must(cudaEventRecord(end));
    must(cudaEventSynchronize(end));
    must(cudaEventElapsedTime(&milliseconds, begin, end));
    printf("NAME: %llu elements in %.4f ms, %.1f GB/s\\n",
           n, milliseconds / REPEATS, n * sizeof *in * 1e-6 * REPEATS / milliseconds);
    return wrong;
}
"""

_HELPERS = """// Ends the program where a call of the CUDA runtime has failed.
static void must(cudaError_t status)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s\\n", cudaGetErrorString(status));
    exit(1);
}

// Device memory: a result, partials of blocks, and a counter that is zero.
struct Memory {
    First::Acc *out, *partials;
    unsigned *ticket;
};

"""

_AGREE = """
// Prints both results and returns whether they are equalWITHIN.
static bool agree(double got, double want)
{
    const bool equal = TEST;
    printf("%s: %.17g on the GPU, %.17g on the host\\n", equal ? "right" : "WRONG", got, want);
    return equal;
}

"""


def _main(
    name: str, op: str, dtype: str, acc: str, program: dict[str, str], has_next: bool, family: str
) -> str:
    check = _check_of(op, dtype)
    includes = ["<cmath>", "<cstdio>", "<cstdlib>", "<utility>", "<vector>"]
    if dtype in ("float16", "bfloat16"):
        includes.insert(0, "<cuda_fp16.h>" if dtype == "float16" else "<cuda_bf16.h>")
    near = op in ("var", "std")
    agree = _AGREE.replace("WITHIN", ", but for rounding" if near else "").replace(
        "TEST", "std::fabs(got - want) <= 1e-9 * std::fabs(want)" if near else "got == want"
    )
    second = ""
    if check.second is not None:
        want, got = check.second
        second = f"    wrong |= !agree({got}, {want});\n"
    length = "1ull << 20" if family == "atomic" else "1ull << 24"
    main = _MAIN
    for key, text in {
        "LENGTH": length,
        "START": check.start.replace("\n", "\n    "),
        "DRAW": check.draw,
        "ELEMENT": _element(dtype, op),
        "STEP": check.step.replace("\n", "\n        "),
        "GOT": check.got,
        "WANT": check.want,
        "SECOND\n": second + "\n",
        "NAME": name,
    }.items():
        main = main.replace(key, text)
    if "bits" not in check.draw:
        for line in (
            "    unsigned long long state = 1; // of a linear congruential generator\n",
            "        state = state * 6364136223846793005ull + 1442695040888963407ull;\n",
            "        const int bits = static_cast<int>(state >> 40);\n",
        ):
            main = main.replace(line, "")
    title = "// ==== the program: launches the kernel, checks its result and times it "
    return "\n".join(
        [
            title + "=" * (_WIDTH - 1 - len(title)),
            "",
            "// Compilers that read kernels alone (NVRTC, the emulator's) end here.",
            "#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)",
            *(f"#include {each}" for each in includes),
            "",
            _HELPERS
            + _launch(name, program, has_next)
            + ("\n" + _number(acc, op) if "number(" in check.got else "")
            + agree
            + main
            + "#endif",
        ]
    )


def _preface(source: str) -> str:
    """The comment that a kernel's file begins with."""
    return source.split("#pragma once", 1)[0].rstrip()


def _top(
    info: dict[str, Any],
    program: dict[str, str],
    op: str,
    dtype: str,
    block: int,
    counts_elements: bool,
) -> str:
    """The comment above the declarations, and the constants of the launch."""
    name = info["name"]
    covers = {
        "cover": "as many blocks as the elements need",
        "stride": "as many blocks as fill the GPU",
        "one": "one block",
    }
    finishes = {
        "passes": "each block stores a partial, which the kernel reduces again",
        "atomic": "blocks fold into one output by atomics",
        "ticket": "the last block to finish combines the partials",
        "cooperative": "they wait at a barrier for all partials, and the first combines them",
        "clusters": "a cluster of them folds into one output by an atomic",
        "one": "it stores the result",
    }
    parts = [
        _comment(
            f"{name}, {op} of {dtype}: one file that needs nothing else, made from the sources of "
            f"gpureduce {__version__}. Kernel, helpers and comments are those that the library "
            "runs."
        ),
        "//",
        "//     nvcc -std=c++17 -arch=native mine.cu -o mine && ./mine",
        "//",
        _comment(
            f'The kernel is below the line "change here"; gpureduce check mine.cu finds mistakes, '
            f"gpureduce explain mine.cu {name} shows what a change does, both without a GPU."
        ),
        "//",
        "// Template parameters of the kernel:",
        *textwrap.wrap(
            f"First, below: {program['First']}.",
            _WIDTH,
            initial_indent="//   Traits  ",
            subsequent_indent="//           ",
        ),
        "//           Its In is the type of elements, Acc that of accumulators; identity(), lift()",
        "//           and combine() are the operator. To reduce something else, change those;",
        "//           gpureduce check compares with the operator of --computes (sum, prod, min,",
        "//           max), or else of First.",
        f"//   BLOCK   threads per block, here block_size = {block}; takes "
        f"{shown_rule(info['block_rule'])}.",
        "//",
        _comment(
            f"Launch of this program: {covers[program['cover']]}; "
            f"{finishes[_launch_kind(program)]}."
        ),
        "//",
        _preface(_core.sources()[_core.KERNEL_FILES[name]]),
        "",
        f"constexpr unsigned block_size = {block}; // threads per block",
    ]
    if counts_elements:
        number = info["elements_per_thread"]
        parts.append(f"constexpr unsigned elements_per_thread = {number}; // at least")
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines())


def _with_mark(name: str, body: str) -> str:
    """The declarations, with a line above the kernel: what is above it need not be read first."""
    mark = "// ==== change here: the kernel; then run gpureduce check on this file "
    return re.sub(
        rf"^(?=template <[^\n]*>\n__global__[^;{{]*?\b{name}\()",
        f"{mark}{'=' * (_WIDTH - 1 - len(mark))}\n\n",
        body,
        count=1,
        flags=re.MULTILINE,
    )


def _program(text: str) -> dict[str, str]:
    """The facts of a program as `_core.write_program` writes it."""
    found = dict(re.findall(r"^using (\w+) = (.*);$", text, re.MULTILINE))
    # Nothing is skipped, which is the template's default.
    found["First"] = found["First"].removesuffix(", false>") + ">"
    found["entries"] = " ".join(re.findall(r"^// (gpr::.*)$", text, re.MULTILINE))
    match = re.search(r"^// cover: (\w+), finish: (\w+)$", text, re.MULTILINE)
    assert match is not None
    found["cover"], found["finish"] = match.groups()
    launch = re.search(r"^// launch: (.+)$", text, re.MULTILINE)
    found["launch"] = launch[1] if launch is not None else ""
    found |= dict(re.findall(r"^constexpr unsigned (\w+) = (.*;)$", text, re.MULTILINE))
    return found


def standalone_source(name: str, descr: np.dtype[Any], op: str, block_size: int | None) -> str:
    """A kernel with its helpers and a program around it, as one text.

    Parameters
    ----------
    name : str
        Name of a kernel.
    descr : numpy.dtype
        Of elements.
    op : str
        Name of an operator.
    block_size : int or None
        Threads per block; by default the kernel's own.

    Raises
    ------
    KernelUnavailableError
        The kernel is several programs, or not this project's code.
    ValueError, TypeError
        As a reduction's.
    """
    if name in _WHY_NOT:
        raise _exceptions.KernelUnavailableError(
            f"kernel '{name}' cannot be exported as one file: {_WHY_NOT[name]}. Kernels that can: "
            + ", ".join(each["name"] for each in _core.kernels() if each["name"] not in _WHY_NOT)
        )
    if op not in _core.OPERATORS:
        raise _exceptions.unknown_operator(op, _core.OPERATORS)
    one = np.ones(1, descr)  # a reduction's own errors
    options = (name, "cpu", block_size, None, None)
    _core.reduce(_core.OPERATORS[op], one, None, None, False, None, *options, False, 0.0)
    dtype = descr.name
    text = _core.write_program(name, _core.OPERATORS[op], dtype, block_size or 0)
    program = _program(text)
    info = next(each for each in _core.kernels() if each["name"] == name)
    has_next = "<Next," in program["entries"]
    kernels = {name} | ({"fill_identity"} if "fill_identity" in program["entries"] else set())
    start = program["First"] + (" Next" if has_next else "")
    dtypes = set(re.findall(r"gpr::dt_(\w+)", program["First"]))
    body, constants = slice_program(
        _core.KERNEL_FILES[name], kernels, start, dtypes, _core.sources()
    )
    block = block_size or info["block_size"]
    acc = program["First"].rsplit("gpr::dt_", 1)[1].split(">")[0].split(",")[0]
    counts_elements = program["cover"] != "one" or "per_thread" in constants
    lines = [_top(info, program, op, dtype, block, counts_elements)]
    if constants:
        lines += [
            "",
            "namespace gpr {",
            *(
                f"constexpr unsigned {each} = "
                + ("elements_per_thread;" if each == "per_thread" else program[each])
                for each in sorted(constants)
            ),
            "} // namespace gpr",
        ]
    lines += [
        "",
        _with_mark(name, body).rstrip(),
        "",
        *textwrap.wrap(
            f"using First = {program['First']};",
            _WIDTH,
            subsequent_indent=" " * len("using First = gpr::KernelTraits<"),
        ),
    ]
    if has_next:
        lines.append("using Next = gpr::Next<First>; // of the accumulators that blocks store")
    lines += [
        "",
        _main(
            name,
            op,
            dtype,
            acc,
            program,
            has_next,
            info["family"],
        ),
        "",
    ]
    return "\n".join(lines)
