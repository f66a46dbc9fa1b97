"""Operators that are Python functions: results of left-to-right folds, as of those that are text,
on the CPU, on the emulator and on GPUs; programs for a GPU; errors.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import SEED, one, some
from operator_cases import CASES, check, random_call, reference
from test_operator_on_gpu import BEGIN, END, emulated

import gpureduce as gr
from gpureduce import _core
from gpureduce._yours import numba_device
from gpureduce._yours.numba_device import device_code, link
from gpureduce._yours.operator_device_program import LINKED, OPTIONS
from gpureduce._yours.operator_gpu import gpu_text
from gpureduce._yours.operator_text import OperatorTypes
from gpureduce._yours.python_fingerprint import fingerprint

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="Numba is not installed"
)
pytestmark = needs_numba


@pytest.fixture(scope="module")
def compiler_for_gpus() -> None:
    """Skips what needs one where Numba's is missing, or fails at a function that does nothing."""
    try:
        from numba import cuda

        cuda.compile(lambda a: a, "int32(int32)", abi="c", cc=(9, 0), output="ltoir")
    except Exception as error:  # what the import of a library raises may be anything
        pytest.skip(f"Numba compiles nothing for GPUs here: {type(error).__name__}: {error}")


ADD = (
    "struct add { static T identity() { return 0; } static T combine(T a, T b) { return a + b; } };"
)


@gr.operator(identity=0, commutative=True)
def add(a: Any, b: Any) -> Any:
    return a + b


# ---------------------------------------------------------------- results ------------------------


@pytest.mark.parametrize("name", one(["run", "total"], "Python, layouts"))
def test_any_layout_is_folded_in_order(name: str) -> None:
    rng = np.random.default_rng([SEED, len(name)])
    case = CASES[name]
    operator = case.operator("Python")
    dtype = None
    for number in range(120):
        a, arguments = random_call(case, rng, 3000)
        if a.dtype.newbyteorder("=") != (dtype or a.dtype.newbyteorder("=")):
            continue  # one dtype: a program each takes its time
        dtype = a.dtype.newbyteorder("=")
        got = gr.reduce(a, operator, device="cpu", **arguments)
        what = f"seed {SEED}: call {number}, {a.dtype} {a.shape} {a.strides} {arguments}"
        check(got, reference(case, a, **arguments), what)


@pytest.mark.parametrize("name", one(["hash", "gcd", "largest"], "Python, long rows"))
def test_long_rows_are_folded_by_many_tasks(name: str) -> None:
    rng = np.random.default_rng([SEED, len(name)])
    case = CASES[name]
    a = (6 * rng.integers(0, 3, (2, 300_000 + int(rng.integers(1000))))).astype("int32")
    a[a == 12] = 1 if name != "gcd" else 12
    got = gr.reduce(a, case.operator("Python"), axis=1, device="cpu")
    check(got, reference(case, a, 1), f"seed {SEED}")


def test_columns_of_many_tasks_and_threads() -> None:
    rng = np.random.default_rng(SEED)
    case = CASES["affine"]
    a = rng.integers(-3, 4, (150_000, 3))
    want = reference(case, a, 0)
    before = gr.limits().cpu_threads
    try:
        for threads in (1, 5):
            gr.set_limits(cpu_threads=threads)
            check(gr.reduce(a, case.operator("Python"), axis=0, device="cpu"), want, f"seed {SEED}")
    finally:
        gr.set_limits(cpu_threads=before)


def test_elements_states_and_results_may_be_structures() -> None:
    rng = np.random.default_rng(SEED)

    @gr.operator
    def heaviest(a: Any, b: Any) -> Any:
        return b if b.mass > a.mass else a

    @gr.operator(
        lift=lambda x: (x.mass, x.mass, np.int64(x.charge)),
        result=[("low", "f8"), ("high", "f8"), ("charge", "i8")],
        commutative=True,
    )
    def box(a: Any, b: Any) -> Any:
        return (min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2])

    a = np.zeros((30, 14), [("mass", "f8"), ("charge", "i2"), ("half", "f2"), ("alive", "?")])
    a["mass"] = rng.integers(0, 50, a.shape)
    a["charge"] = rng.integers(-3, 4, a.shape)
    a["half"] = rng.standard_normal(a.shape)
    a["alive"] = rng.random(a.shape) < 0.5
    for part in (a[:, ::2], a):
        got = gr.reduce(part, heaviest, 1, device="cpu")
        assert got.dtype == a.dtype
        places = np.argmax(part["mass"], 1)
        assert (got == part[np.arange(30), places]).all(), f"seed {SEED}"
        found = gr.reduce(part, box, 1, device="cpu")
        assert found.dtype.names == ("low", "high", "charge")
        for name, want in (("low", np.min), ("high", np.max)):
            np.testing.assert_array_equal(found[name], want(part["mass"], 1))
        np.testing.assert_array_equal(found["charge"], part["charge"].sum(1))


def test_results_of_type_t_have_the_arrays_dtype() -> None:
    rng = np.random.default_rng(SEED)
    for dtype in one(("float16", "complex64", "bfloat16"), "Python, type T"):
        if dtype == "bfloat16":
            kind = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
        else:
            kind = np.dtype(dtype)
        a = rng.integers(-9, 9, 400).astype("float32").astype(kind)
        got = gr.reduce(a, add, device="cpu")
        assert got.dtype == kind
        wide = np.complex64 if kind.kind == "c" else np.float32
        assert got == np.sum(a.astype(wide)).astype(kind), f"seed {SEED} {dtype}"


def test_every_float16_is_read() -> None:
    """Subnormal ones, infinities and nan too; of which results are."""

    @gr.operator
    def last(a: Any, b: Any) -> Any:
        return b

    a = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    got = gr.reduce(np.stack([a, a], 1), last, 1, device="cpu")
    np.testing.assert_array_equal(got, a)


def test_numpys_arguments() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    for axis in (None, 0, (0, 2), ()):
        want = np.sum(a, axis=axis, keepdims=True)
        np.testing.assert_array_equal(gr.reduce(a, add, axis, keepdims=True, device="cpu"), want)
    mask = a % 3 != 1
    got = gr.reduce(a, add, 1, where=mask, initial=7, device="cpu")
    np.testing.assert_array_equal(got, np.sum(a, 1, where=mask, initial=7))
    out = np.zeros((3, 4))
    assert gr.reduce(a, add, 0, out=out, device="cpu") is out
    np.testing.assert_array_equal(out, a.sum(0))
    conversions = (
        (np.array([200, 100], "u1"), "int64", 300),
        (np.array([2049, 1], "f2"), "float64", 2049),
        (np.array([2, 0.5]), "int32", 2),
        (np.array([1, 2j]), "complex64", 1 + 2j),
    )
    for given, dtype, want in one(conversions, "Python, conversions"):
        got = gr.reduce(given, add, dtype=dtype, device="cpu")
        assert (got, got.dtype) == (want, np.dtype(dtype))
    assert gr.reduce(np.zeros(0, int), add, device="cpu") == 0
    assert gr.reduce(np.zeros((0, 3), int), add, 1, device="cpu").shape == (0,)
    assert add(2, 3) == 5
    assert add.__name__ == add.name == "add"


def test_a_state_is_widened_until_combine_returns_nothing_wider() -> None:
    square = gr.operator(
        lambda a, b: (a[0] + b[0],), lift=lambda x: (x,), identity=(0,), finish=lambda s: s[0],
        name="wide",
    )  # fmt: skip
    a = np.full(1000, 100, "int8")
    got = gr.reduce(a, square, device="cpu")
    assert got == 100_000
    assert got.dtype == np.int64


# ---------------------------------------------------------------- the emulator -------------------


@needs_compiler
def test_kernels_call_the_hosts_machine_code_on_the_emulator(tmp_path: Path) -> None:
    calls = (
        ("run", ["auto"]), ("run", ["last_block_ordered"]), ("gcd", ["auto", "shfl_two_pass"]),
    )  # fmt: skip
    code = (
        f"CALLS = {one(calls, 'Python, emulator')}"
        + """
for name, kernels in CALLS:
    case = CASES[name]
    a = (6 * rng.integers(0, 3, (3, 700))).astype("int32")
    for kernel in kernels:
        got = gr.reduce(a, case.operator("Python"), 1, device="cuda", kernel=kernel)
        check(got, reference(case, a, 1), kernel)
case = CASES["gcd"]
a = (6 * rng.integers(0, 3, (3, 700))).astype("int32")
mask = rng.random(a.shape) < 0.5
got = gr.reduce(a, case.operator("Python"), 0, device="cuda", where=mask, initial=6)
check(got, reference(case, a, 0, mask, 6), "masked")
complex_ = gr.operator(lambda a, b: a * b, identity=1, name="union")
z = rng.integers(-2, 3, 20) + 1j
assert gr.reduce(z, complex_, device="cuda") == gr.reduce(z, complex_, device="cpu")
"""
    )
    assert emulated(BEGIN + code + END, tmp_path) == "done"


@needs_compiler
def test_operators_are_explained_and_checked() -> None:
    found = gr.explain("last_block_ordered", op=CASES["hash"].operator("Python"), dtype="int32",
                       block_size=64)  # fmt: skip
    assert str(found).startswith("last_block_ordered: hash of 256 int32, blocks of 64 threads")
    minus = gr.operator(lambda a, b: a - b, identity=0, name="minus")
    minus_line = minus.text.functions.combine.__code__.co_firstlineno  # type: ignore[attr-defined]
    report = gr.check("last_block_ordered", op=minus, dtypes=["int32"])
    assert report.kinds == ("not associative", "no identity")
    assert [each.line for each in report.findings] == [minus_line] * 2


# ---------------------------------------------------------------- programs for a GPU -------------


def linked(operator: gr.Operator, dtype: str) -> bytes:
    """Machine code for compute capability 9.0; skips where a compiler or linker is missing."""
    types = OperatorTypes(np.dtype(dtype), np.dtype(dtype), False)
    text, entries = gpu_text(operator.text, types, 256, emulated=False)
    try:
        code = device_code(operator.text, types.compute, (9, 0))  # type: ignore[arg-type]
        image, _ = _core.compile_text("operator", text, entries, (*OPTIONS, LINKED), 90)
        return link(operator.text, [image, *code], (9, 0))  # type: ignore[arg-type]
    except (gr.DeviceUnavailableError, gr.KernelUnavailableError) as error:
        pytest.skip(str(error))


def test_what_a_gpu_lacks_is_said_with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        with pytest.raises(gr.KernelUnavailableError, match=r"pip install.*numba-cuda is not inst"):
            device_code(add.text, np.dtype("f4"), (9, 0))  # type: ignore[arg-type]
        return
    from numba import cuda

    def fails(*arguments: Any, **more: Any) -> None:
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(cuda, "compile", fails, raising=False)
    numba_device._import_cuda.cache_clear()
    dtype = np.dtype("f4")
    with pytest.raises(gr.KernelUnavailableError, match="pip install") as caught:
        device_code(add.text, dtype, (9, 0))  # type: ignore[arg-type]
    assert f"NumPy {np.__version__} are installed: AttributeError" in str(caught.value)
    assert "install an older numpy" in str(caught.value)
    numba_device._import_cuda.cache_clear()


def code_of(image: bytes) -> dict[str, bytes]:
    """Sections of a cubin that are machine code, by kernel."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    found = {}
    for section in sections:
        name = image[sections[names][4] + section[0] :].split(b"\0")[0].decode()
        if name.startswith(".text."):
            found[name] = image[section[4] : section[4] + section[5]]
    return found


def test_a_linked_program_has_the_machine_code_of_the_text() -> None:
    """Functions are inlined: instructions are those of an operator in CUDA C++."""
    code = code_of(linked(add, "float32"))
    types = OperatorTypes(np.dtype("f4"), np.dtype("f4"), False)
    text, entries = gpu_text(
        gr.Operator("add", ADD, commutative=True).text, types, 256, emulated=False
    )
    image, _ = _core.compile_text("operator", text, entries, OPTIONS, 90)
    assert len(code) == 4
    assert code == code_of(image)


def test_states_and_counts_are_linked() -> None:
    for name in one(("affine", "run"), "Python, states"):
        assert len(code_of(linked(CASES[name].operator("Python"), "int32"))) == 4


@pytest.mark.gpu
@pytest.mark.usefixtures("compiler_for_gpus")
@pytest.mark.parametrize("name", CASES)
def test_large_arrays_on_a_gpu_are_folded_as_on_the_cpu(name: str) -> None:
    rng = np.random.default_rng([SEED, len(name)])
    case = CASES[name]
    for shape, axis in (((10_000_019,), None), ((3001, 3001), 0), ((200_001, 33), 1)):
        a = (6 * rng.integers(0, 3, shape)).astype("int32")
        got = gr.reduce(a, case.operator("Python"), axis, device="cuda")
        np.testing.assert_array_equal(got, gr.reduce(a, case.operator(), axis, device="cpu"))


@pytest.mark.parametrize(
    "dtype", some(["int8", "int32", "int64", "float32"], 1 / 2, "Python, atomics")
)
def test_kernels_that_finish_by_atomics_take_what_a_gpus_atomics_swap(dtype: str) -> None:
    a = np.arange(10, dtype=dtype)
    for kernel in ("shfl_atomic", "naive_atomic"):
        assert gr.reduce(a, add, kernel=kernel, device="cpu") == 45
        wide = gr.operator(
            identity=(0,) * 9, lift=lambda x: (x, x, x, x, x, x, x, x, x), commutative=True
        )(lambda left, right: left)
        for refused in (wide, gr.operator(commutative=True)(lambda left, right: left)):
            with pytest.raises(ValueError, match="atomics, which swap 4 or 8 bytes"):
                gr.reduce(a, refused, kernel=kernel, device="cpu")


@pytest.mark.gpu
@pytest.mark.usefixtures("compiler_for_gpus")
def test_named_kernels_and_masks_on_a_gpu() -> None:
    rng = np.random.default_rng(SEED)
    a = rng.integers(0, 1000, (7, 10_007))
    mask = rng.random(a.shape) < 0.5
    for kernel in ("shfl_two_pass", "shfl_atomic", "last_block", "auto"):
        got = gr.reduce(a, add, 1, where=mask, kernel=kernel, device="cuda")
        np.testing.assert_array_equal(got, a.sum(1, where=mask))
    z = rng.integers(-3, 4, 1000) + 1j * rng.integers(-3, 4, 1000)
    assert gr.reduce(z, add, device="cuda") == z.sum()


@pytest.mark.gpu
@pytest.mark.usefixtures("compiler_for_gpus")
def test_functions_that_are_called_on_a_gpu() -> None:
    import numba

    @numba.njit
    def larger(a: float, b: float) -> float:
        return a if a > b else b

    @gr.operator
    def log_of_sum(a: Any, b: Any) -> Any:
        top = larger(a, b)
        return top + math.log(math.exp(a - top) + math.exp(b - top))

    a = np.random.default_rng(SEED).standard_normal(100_003)
    got = gr.reduce(a, log_of_sum, device="cuda")
    np.testing.assert_allclose(got, gr.logsumexp(a, device="cpu"), rtol=1e-12)
    np.testing.assert_allclose(got, gr.reduce(a, log_of_sum, device="cpu"), rtol=1e-12)


# ---------------------------------------------------------------- errors -------------------------


def test_what_numba_does_not_compile_is_refused_with_its_message_and_the_line() -> None:
    @gr.operator
    def wrong(a: Any, b: Any) -> Any:
        c = a + b
        return c.no_such_attribute

    line = wrong.text.functions.combine.__code__.co_firstlineno + 3  # type: ignore[attr-defined]
    with pytest.raises(gr.CompileError, match="operator 'wrong' does not compile") as caught:
        gr.reduce(np.zeros(3), wrong, device="cpu")
    assert caught.value.line == line
    assert f"test_python_operator.py, line {line}: " in str(caught.value)
    assert "Unknown attribute 'no_such_attribute' of type float64" in str(caught.value)
    assert str(caught.value).endswith("return c.no_such_attribute")
    assert "no_such_attribute" in caught.value.log


def test_results_that_lose_more_than_bits_are_refused() -> None:
    half = gr.operator(lambda a, b: (a + b) / 2, name="half")
    with pytest.raises(gr.CompileError, match="returns float64, and its state is int32"):
        gr.reduce(np.zeros(3, "i4"), half, device="cpu")
    text = gr.operator(lambda a, b: "ab", name="text")
    with pytest.raises(gr.CompileError, match="values of operators are numbers and tuples"):
        gr.reduce(np.zeros(3), text, device="cpu")
    more = gr.operator(lambda a, b: (a, b), name="more")
    with pytest.raises(gr.CompileError, match=r"returns \(float64, float64\), and its state is"):
        gr.reduce(np.zeros(3), more, device="cpu")
    far = gr.operator(lambda a, b: a + b, identity=300, name="far")
    with pytest.raises(ValueError, match="identity of operator 'far': 300 is no int8"):
        gr.reduce(np.zeros(3, "i1"), far, device="cpu")


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="combine of operator 'max' is a Python function, not buil"):
        gr.operator(max)
    with pytest.raises(TypeError, match=r"is combine\(left, right\), not <lambda>\(a\)"):
        gr.operator(lambda a: a)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match=r"finish of operator 'add' is finish\(state\) or finish"):
        gr.operator(lambda a, b: a, name="add", finish=lambda: 0)
    with pytest.raises(ValueError, match="name is an identifier, not 'a b'"):
        gr.operator(lambda a, b: a, name="a b")

    def refuses(a: Any, b: Any) -> Any:
        assert a == b
        return a

    with pytest.raises(ValueError, match="raises an exception in line"):
        gr.operator(refuses)
    with pytest.raises(ValueError, match="zero-size array to reduction operation operator"):
        gr.reduce(np.zeros(0), gr.operator(lambda a, b: a), device="cpu")
    with pytest.raises(ValueError, match="kernel 'sequential' reorders operands"):
        gr.reduce(np.zeros(3), gr.operator(lambda a, b: a), kernel="sequential", device="cpu")


def test_what_a_called_function_raises_is_an_error() -> None:
    import numba

    @numba.njit(error_model="python")  # divides as Python does, and raises
    def divided(a: int, b: int) -> int:
        return a // b

    operator = gr.operator(lambda a, b: divided(a, b), name="divided")
    caught = []
    before, sys.unraisablehook = sys.unraisablehook, lambda args: caught.append(args.exc_type)
    try:
        with pytest.raises(RuntimeError, match="operator 'divided' raised an exception"):
            gr.reduce(np.array([4, 0]), operator, device="cpu")
    finally:
        sys.unraisablehook = before
    assert caught == [ZeroDivisionError]


# ---------------------------------------------------------------- the cache ----------------------


def key_of(function: Any) -> str | None:
    return fingerprint(iter([("combine", function)]))


def test_a_key_is_what_functions_compute() -> None:
    def limited(limit: Any) -> Any:
        return lambda a, b: min(a + b, limit)

    assert key_of(limited(7)) == key_of(limited(7)) is not None
    keys = [key_of(limited(each)) for each in (7, 8, 7.0, np.int8(7), True, (7,), limited(7))]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key_of(lambda a, b: a + b) != key_of(lambda a, b: a - b)
    assert key_of(lambda a, b: np.minimum(a, b)) != key_of(lambda a, b: np.maximum(a, b))
    assert key_of(limited(np.arange(3))) != key_of(limited(np.arange(4)))
    for unknown in (object(), [7], np.zeros(100_000), sys, type("Own", (), {})):
        assert key_of(limited(unknown)) is None


def test_machine_code_is_cached_on_disk(tmp_path: Path) -> None:
    script = """
    import sys
    import numpy as np, gpureduce as gr
    by = int(sys.argv[1])
    shifted = gr.operator(lambda a, b: max(a, b) + by - by, name="shifted", state="i8")
    a = np.arange(300_000)
    assert gr.reduce(a, shifted, device="cpu") == a[-1]
    found = gr.cache_info()
    print(found.writes, found.hits)
    """
    environment = {**os.environ, "GPUREDUCE_CACHE_DIR": str(tmp_path / "cache")}

    def run(by: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(by)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert run(1) == "3 0"  # types, rows, ends of rows
    for by, found in one(((1, "0 3"), (2, "3 0")), "Python, cache"):
        assert run(by) == found


def test_operators_are_pickled_by_their_code() -> None:
    limit = 7
    operator = gr.operator(lambda a, b: min(a + b, limit), name="limited", commutative=True)
    other = pickle.loads(pickle.dumps(operator))
    assert other(5, 5) == limit
    assert repr(other) == "<Operator: limited>"
    assert other.commutative


def test_numba_is_imported_when_an_operator_is_used_and_its_lack_is_an_error() -> None:
    script = """
    import sys
    import numpy as np, gpureduce as gr
    add = gr.operator(lambda a, b: a + b, name="add")
    assert "numba" not in sys.modules
    sys.modules["numba"] = None
    try:
        gr.reduce(np.arange(3), add, device="cpu")
    except ImportError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert "pip install 'gpureduce[numba]'" in done.stdout


def test_numba_that_compiles_nothing_is_refused() -> None:
    script = """
    import numpy as np, gpureduce as gr
    try:
        gr.reduce(np.arange(3), gr.operator(lambda a, b: a + b), device="cpu")
    except RuntimeError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "NUMBA_DISABLE_JIT is set" in done.stdout
