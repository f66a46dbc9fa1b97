"""The command: subcommands' output, JSON and status, files in every state, one line an error.

``explain`` has its tests in test_explain.py.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import some
from outputs import assert_balanced, run_command

import gpureduce as gr
from gpureduce import _core, _functions
from gpureduce._bench import session
from gpureduce._cli import (
    array_commands,
    command,
    explain_command,
    measure_commands,
    npy_files,
    options,
    reduce_command,
)


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Status, output and errors of the command, in this process."""
    status = command.main(arguments)
    return status, *capsys.readouterr()


def succeed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    status, out, err = run(*arguments, capsys=capsys)
    said = [line for line in err.splitlines() if not line.startswith("wrote ")]
    assert (status, said) == (0, [])
    return out


@pytest.fixture
def saved(tmp_path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", values)
    return str(tmp_path / "a.npy"), values


# ---------------------------------------------------------------- reductions


@pytest.mark.parametrize("name", reduce_command.reductions())
def test_every_reduction_reads_a_file(
    name: str, saved: tuple[str, np.ndarray[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, values = saved
    out = json.loads(succeed(name, path, "--device", "cpu", "--json", capsys=capsys))
    result = getattr(gr, name)(values, device="cpu")
    assert out["result"] == reduce_command.as_json(result)
    assert (out["op"], out["elements"], out["bytes"], out["device"]) == (name, 24, 96, "cpu")


def test_all_of_the_packages_reductions_are_there() -> None:
    assert {"sum", "prod", "min", "max", "mean", "any", "all"} <= set(reduce_command.reductions())
    assert set(reduce_command.reductions()) <= set(_functions.__all__)


def test_a_result_prints_alone(
    saved: tuple[str, np.ndarray[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, values = saved
    assert succeed("sum", path, "--device", "cpu", capsys=capsys) == f"{values.sum()}\n"
    along = succeed("max", path, "--axis", "0,2", "--device", "cpu", capsys=capsys)
    assert along == f"{values.max(axis=(0, 2))}\n"
    assert (
        succeed("max", path, "--axis=-1", "--device", "cpu", capsys=capsys)
        == f"{values.max(axis=-1)}\n"
    )
    floats = json.loads(
        succeed("sum", path, "--dtype", "float32", "--device", "cpu", "--json", capsys=capsys)
    )
    assert (floats["dtype"], floats["result"]) == ("float32", 276.0)


def test_a_long_result_is_printed_whole_into_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", np.ones((3000, 2)))
    out = succeed("sum", str(tmp_path / "a.npy"), "--axis", "1", "--device", "cpu", capsys=capsys)
    assert "..." not in out
    assert out.count("2.") == 3000


def test_a_result_is_written_to_a_file(
    saved: tuple[str, np.ndarray[Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, values = saved
    out = str(tmp_path / "out")
    assert (
        succeed("sum", path, "--axis", "1", "--output", out, "--device", "cpu", capsys=capsys) == ""
    )
    assert np.array_equal(np.load(out), values.sum(axis=1))


def test_a_dash_writes_the_result_to_standard_output(
    monkeypatch: pytest.MonkeyPatch,
    saved: tuple[str, np.ndarray[Any, Any]],
) -> None:
    path, values = saved
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # with which the stream has no buffer
    command = [sys.executable, "-m", "gpureduce", "sum", path, "--device", "cpu", "--output", "-"]
    done = subprocess.run([*command, "--axis", "0"], capture_output=True, check=True)
    assert np.array_equal(np.load(io.BytesIO(done.stdout)), values.sum(axis=0))
    several = [*command[:3], "reduce", path, "--op", "sum,min", "--device", "cpu", "--output", "-"]
    done = subprocess.run(several, capture_output=True, check=True)
    found = np.load(io.BytesIO(done.stdout))
    assert (found["sum"], found["min"]) == (values.sum(), values.min())
    done = subprocess.run([*command, "--json"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"only one of --output, --json" in done.stderr


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, saved: tuple[str, np.ndarray[Any, Any]]
) -> None:
    path, values = saved
    with open(path, "rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "gpureduce", "sum", "-", "--device", "cpu"],
            stdin=file,
            capture_output=True,
            text=True,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{values.sum()}\n", "")
    through_pipe = subprocess.run(
        [sys.executable, "-m", "gpureduce", "sum", "-", "--device", "cpu"],
        input=Path(path).read_bytes(), capture_output=True,
    )  # fmt: skip
    assert through_pipe.stdout == f"{values.sum()}\n".encode()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<i2", ">u4", "?", "<f2"])
def test_files_of_any_order_and_byte_order_are_mapped(
    dtype: str, order: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(0).integers(0, 9, (30, 20)).astype(dtype, order=order)
    np.save(tmp_path / "a.npy", values)
    array, path = npy_files.load(str(tmp_path / "a.npy"))
    assert path == tmp_path / "a.npy"
    assert type(array) is np.ndarray
    assert isinstance(array.base, np.memmap)
    out = json.loads(
        succeed("sum", str(path), "--axis", "0", "--device", "cpu", "--json", capsys=capsys)
    )
    assert out["result"] == values.sum(axis=0).tolist()


def test_bfloat16_comes_back_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")
    np.save(tmp_path / "a.npy", np.arange(10).astype(ml_dtypes.bfloat16))
    out = json.loads(
        succeed("sum", str(tmp_path / "a.npy"), "--device", "cpu", "--json", capsys=capsys)
    )
    assert (out["result"], out["dtype"]) == (45.0, "bfloat16")


def file_of(shape: str) -> bytes:
    """An .npy file of 80 bytes of float64 whose header says another shape, or none."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(11 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80)


WRONG_SHAPES = (
    *("(-5,)", "(11,)", "(2000000000000,)", f"({10**30},)", "(1 << 62,)", f"({2**62}, 4)"),
    *("(3.5,)", "('x',)", "10", "(10,", "(True, None)", "_"),
)


@pytest.mark.parametrize("shape", WRONG_SHAPES)
def test_headers_of_files_that_cannot_be_are_errors_in_one_line(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(file_of(shape))
    status, out, err = run("sum", str(path), "--device", "cpu", capsys=capsys)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"gpureduce sum: {path} cannot be read: ")


@pytest.mark.parametrize("shape", some(WRONG_SHAPES, 1 / 2, "headers in a pipe"))
def test_headers_in_a_pipe_that_cannot_be_are_errors_in_one_line(shape: str) -> None:
    command = [sys.executable, "-m", "gpureduce", "sum", "-", "--device", "cpu"]
    done = subprocess.run(command, input=file_of(shape), capture_output=True)
    # An array that does not fit into memory is no wrong file, where its end is not known.
    assert done.returncode in (1, 2)
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("gpureduce sum: standard input cannot be read: ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "words",
    [
        "cat a.npy | gr sum /dev/stdin",
        "gr sum /dev/stdin < a.npy",
        "gr sum <(cat a.npy)",
        "cat a.npy > fifo & gr sum fifo",
    ],
)
def test_pipes_are_read(words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000))
    define = f'gr() {{ {sys.executable} -m gpureduce "$@" --device cpu; }}'
    os.mkfifo(tmp_path / "fifo")
    done = subprocess.run(
        ["bash", "-c", f"{define}; {words}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("4999950000\n", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [("sum - <&-", "standard input is closed"), ("sum a.npy >&-", "standard output is closed")],
)
def test_what_is_closed_is_an_error_in_one_line(words: str, complaint: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    command = f"{sys.executable} -m gpureduce {words}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"gpureduce sum: {complaint}\n")


def test_an_empty_file_is_reduced_as_numpy_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    path = str(tmp_path / "a.npy")
    assert succeed("sum", path, "--device", "cpu", capsys=capsys) == "0.0\n"
    status, out, err = run("max", path, "--device", "cpu", capsys=capsys)
    assert (status, out) == (2, "")
    assert (
        err
        == "gpureduce max: zero-size array to reduction operation maximum which has no identity\n"
    )
    status, out, err = run("mean", path, "--device", "cpu", capsys=capsys)
    assert (status, out) == (0, "nan\n")
    assert "gpureduce: warning: Mean of empty slice\n" in err


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64("nan"), "nan"),
        (np.float32("-inf"), "-inf"),
        (np.array([[1, 2]], np.uint64), [[1, 2]]),
        (np.bool_(True), True),
        (np.complex64(1 + 2j), [1.0, 2.0]),
        (np.datetime64("2020-01-02"), "2020-01-02"),
        ((np.int8(1), np.int8(2)), [1, 2]),
    ],
)
def test_results_are_json_that_json_has(value: Any, plain: Any) -> None:
    assert json.loads(json.dumps(reduce_command.as_json(value), allow_nan=False)) == plain


@pytest.mark.parametrize(
    ("content", "arguments", "status", "message"),
    [
        (
            b"hello",
            (),
            2,
            "is no .npy file, but a text file in which NumPy finds no table of numbers",
        ),
        (b"\x00\xff", (), 2, "is no .npy file, nor a text file"),
        (b"", (), 2, "is no .npy file: it is empty"),
        (np.array([{}]), (), 2, "Python objects"),
        (np.array(["a"]), (), 2, "not supported"),
        (np.ones(3), ("--axis", "1"), 2, "axis 1 is out of bounds"),
        (np.ones(3), ("--axis", "x"), 2, "'x' is no axis"),
        (np.ones(3), ("--kernel", "sequentia"), 2, "did you mean 'sequential'?"),
        (np.ones(3), ("--device", "gpu"), 2, "gpu"),
        (np.ones(3), ("--dtype", "float33"), 2, "float33"),
        (np.ones(3), ("--kernel", "sequential", "--block-size", "100"), 2, "power of two"),
        (np.ones(3), ("--output", "/nonexistent/a.npy"), 1, "No such file"),
    ],
)
def test_an_error_is_one_line(
    content: Any, arguments: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    done = run_command("sum", str(path), *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("gpureduce sum: ")
    assert message in done.stderr


def test_files_that_are_cut_or_missing_are_one_line(
    saved: tuple[str, np.ndarray[Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = saved
    content = Path(path).read_bytes()
    for length in (7, 20, 100, len(content) - 1):
        cut = tmp_path / "cut.npy"
        cut.write_bytes(content[:length])
        status, out, err = run("sum", str(cut), capsys=capsys)
        assert (status, out) == (2, ""), length
        assert len(err.splitlines()) == 1
    status, out, err = run("sum", str(tmp_path / "none.npy"), capsys=capsys)
    assert (status, out) == (1, "")
    assert "No such file" in err


TEXTS = (
    ("n.csv", "1,2\n3,4\n", 10),
    ("heading.csv", "x,y\n1,2\n3,4\n", 10),
    ("gap.csv", "x,y\n1,\n3,4\n5,6\n", 19),
    ("names.csv", "name,age\nann,3\nbob,4\n", 7),
    ("semicolons.csv", "1;2\n3;4\n", 10),
    ("spaces.txt", "1 2\n3 4\n", 10),
    ("heading.txt", "a b\n1 2\n", 3),
    ("tabs.tsv", "1\t2\n3\t4\n", 10),
    ("column.txt", "# a comment\n5\n6\n", 11),
    ("it's.npy", "1,2\n3,4\n", 10),
)


@pytest.mark.parametrize(("name", "text", "total"), TEXTS)
def test_the_line_that_an_error_gives_for_a_text_file_works_on_it(
    name: str,
    text: str,
    total: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    _expect_working_line(name, total, capsys)
    assert Path(name).read_text() == text  # the line replaces no file


def _expect_working_line(name: str, total: float, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("nansum", name, capsys=capsys)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    line = err.rstrip("\n").partition("in Python, this makes one of ")[2].partition(": ")[2]
    assert line.startswith("import numpy; numpy.save(")
    subprocess.run([sys.executable, "-c", line], check=True)
    (made,) = (each for each in Path().glob("*.npy") if each.name != name)
    assert float(succeed("nansum", str(made), "--device", "cpu", capsys=capsys)) == total


def test_the_line_for_an_archive_names_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("several.npz", first=[1, 2], second=[9])
    _, _, err = run("sum", "several.npz", capsys=capsys)
    assert "but a .npz file of the arrays first, second; in Python, this makes one of" in err
    _expect_working_line("several.npz", 3, capsys)
    Path("several.npy").unlink()
    np.savez("one.npz", np.arange(4))
    _expect_working_line("one.npz", 6, capsys)
    shutil.make_archive("other", "zip", tmp_path, "one.npz")
    assert "an archive without arrays" in run("sum", "other.zip", capsys=capsys)[2]


def test_a_file_without_its_ending_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    np.save("data/big.npy", [1, 2])
    for word in ("data/big", "data/bgi.npy"):
        status, _, err = run("sum", word, capsys=capsys)
        assert status == 1
        assert "No such file or directory (did you mean data/big.npy?)" in err
    assert "did you mean" not in run("sum", "data/other", capsys=capsys)[2]


def test_standard_input_that_is_no_npy_file_is_said(tmp_path: Path) -> None:
    for content, said in ((b"1,2\n", "is no .npy file"), (b"", "is empty")):
        (tmp_path / "in").write_bytes(content)
        with (tmp_path / "in").open("rb") as file:
            command = [sys.executable, "-m", "gpureduce", "sum", "-"]
            done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"standard input {said}" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("sum", "1", "2", "3"),
            "unexpected 2 3: sum reads one .npy file; in Python, gpureduce.sum(",
        ),
        (("compare", "--n", "1e5"), "unknown option --n; did you mean -n?"),
        (("bench", "--n=1e5"), "unknown option --n; did you mean -n?"),
        (("compare", "auto", "numpy", "-n", "10"), "'numpy' is a library, not a kernel: compare"),
        (("bench", "numpy", "-n", "10"), "'numpy' is a library, not a kernel: compare"),
    ],
)
def test_a_slip_is_told_from_other_mistakes(words: tuple[str, ...], said: str) -> None:
    done = run_command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("name", array_commands.ARRAY_FUNCTIONS)
def test_every_function_of_arrays_reads_files(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(5).random((40, 3))
    if "dot" in name:
        values = values[:, 0].copy()
    np.save(tmp_path / "a.npy", values)
    files = [str(tmp_path / "a.npy")] * (2 if "dot" in name else 1)
    axis = [] if "dot" in name else ["--axis", "0"]
    arguments = (name, *files, *axis, "--device", "cpu")
    expected = getattr(gr, name)(*[values] * len(files), **({"axis": 0} if axis else {}))
    found = json.loads(succeed(*arguments, "--json", capsys=capsys))
    if name == "describe":
        assert {each: found[each] for each in expected._fields} == {
            each: reduce_command.as_json(value) for each, value in expected._asdict().items()
        }
        assert succeed(*arguments, capsys=capsys) == f"{expected}\n"
    else:
        assert found["result"] == reduce_command.as_json(expected)
        assert succeed(*arguments, capsys=capsys) == f"{expected}\n"
    target = tmp_path / "out"
    assert succeed(*arguments, "--output", str(target), capsys=capsys) == ""
    stored = np.load(target)
    for each, value in expected._asdict().items() if name == "describe" else ():
        assert np.array_equal(stored[each], value)
    assert name == "describe" or np.array_equal(stored, expected)


def test_functions_of_arrays_take_their_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, weights = np.array([3.0, -4.0]), np.array([1.0, 3.0])
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "w.npy", weights)
    file, cpu = str(tmp_path / "a.npy"), ("--device", "cpu")
    assert succeed("norm", file, *cpu, capsys=capsys) == "5.0\n"
    assert succeed("norm", file, "--ord", "inf", *cpu, capsys=capsys) == "4.0\n"
    assert succeed("norm", file, "--ord", "1", "--keepdims", *cpu, capsys=capsys) == "[7.]\n"
    weighted = ("--weights", str(tmp_path / "w.npy"))
    assert succeed("average", file, *weighted, *cpu, capsys=capsys) == "-2.25\n"
    described = json.loads(succeed("describe", file, "--ddof", "1", "--json", capsys=capsys))
    assert described["std"] == gr.std(values, ddof=1)
    narrow = ("--dtype", "float32")
    dot = succeed("dot", file, file, *narrow, "--json", *cpu, capsys=capsys)
    assert json.loads(dot)["dtype"] == "float32"


def test_max_takes_no_dtype(
    saved: tuple[str, np.ndarray[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run("max", saved[0], "--dtype", "float32", capsys=capsys)
    assert status == 2
    assert "max takes no --dtype" in err


def test_a_gpu_that_is_not_there_fails_with_status_1(
    saved: tuple[str, np.ndarray[Any, Any]],
) -> None:
    done = run_command(
        "sum", saved[0], "--device", "cuda", GPUREDUCE_LIBCUDA="/nonexistent/libcuda.so"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_kernel_that_the_cpu_replaces_is_a_warning_in_one_line(
    saved: tuple[str, np.ndarray[Any, Any]],
) -> None:
    done = run_command(
        "sum", saved[0], "--kernel", "reduce0", GPUREDUCE_LIBCUDA="/nonexistent/libcuda.so"
    )
    assert (done.returncode, done.stdout) == (0, "276\n")
    assert done.stderr.startswith("gpureduce: warning: the named kernel needs a GPU")
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupt_is_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    info = command.SUBCOMMANDS["info"]
    monkeypatch.setitem(
        command.SUBCOMMANDS, "info", command.Subcommand(info.summary, info.add_arguments, interrupt)
    )
    assert run("info", capsys=capsys) == (130, "", "gpureduce info: interrupted\n")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    code = f"{sys.executable} -m gpureduce kernels --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("[")


# ---------------------------------------------------------------- progress


def check_shares(shares: list[float]) -> None:
    assert shares
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] > shares[0]


def windows(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Ones in windows that overlap: many elements, of which few are in memory."""
    return np.lib.stride_tricks.as_strided(np.ones(4096, np.float32), shape, (4,) * len(shape))


@pytest.mark.parametrize("kernel", ["fast", "exact"])
def test_progress_rises_while_the_cpu_works(kernel: str) -> None:
    """It is shown once in a while: a machine that is done by then gets more to do."""
    shares: list[float] = []
    threads = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=2)
    try:
        for planes in (1 << power for power in range(9, 15)):
            values = windows((planes, 1 << 10, 1 << 10))
            shares.clear()
            with reduce_command.showing_progress(shares.append):
                assert gr.sum(values, kernel=kernel, device="cpu") == planes << 20
            if len(shares) > 1:
                break
        check_shares(shares)
        count = len(shares)
        gr.sum(values, kernel=kernel, device="cpu")
    finally:
        gr.set_limits(cpu_threads=threads)
    assert len(shares) == count, "progress is shown after its end"


def test_progress_rises_while_chunks_are_uploaded(tmp_path: Path) -> None:
    import fakes

    code = """
import json
import os
import numpy as np, gpureduce as gr
from gpureduce._cli.reduce_command import showing_progress

gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
shares = []
with showing_progress(shares.append):
    gr.max(np.ones(1 << 26, np.int8), device="cuda")
assert gr.last_run().chunks > 100
print(json.dumps(shares))
"""
    check_shares(json.loads(fakes.run(code, tmp_path)))


def test_an_error_of_who_shows_progress_ends_the_reduction() -> None:
    def fail(share: float) -> None:
        raise LookupError(f"at {share}")

    with reduce_command.showing_progress(fail), pytest.raises(LookupError, match="at 0"):
        gr.sum(windows((1 << 10, 1 << 10, 1 << 10)), device="cpu")
    with pytest.raises(TypeError, match="a callable, or None"):
        _core.watch_progress(1)  # type: ignore[arg-type]


def test_a_bar_changes_no_result(
    saved: tuple[str, np.ndarray[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm", reason="needs tqdm")
    status, out, err = run("sum", saved[0], "--progress", "--device", "cpu", capsys=capsys)
    assert (status, out) == (0, "276\n")
    assert "sum a.npy" in err
    assert succeed("sum", saved[0], "--no-progress", "--device", "cpu", capsys=capsys) == "276\n"


# ---------------------------------------------------------------- what there is


def test_info_prints_devices_versions_and_missing_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out = succeed("info", capsys=capsys)
    assert gr.__version__ in out
    assert np.__version__ in out
    found = json.loads(succeed("info", "--json", capsys=capsys))
    assert found["environment"]["gpureduce"] == gr.__version__
    assert len(found["devices"]) == len(gr.devices())
    assert ("GPU" in found["missing"]) == (not gr.devices())


def test_info_over_a_device_names_it(tmp_path: Path) -> None:
    import fakes

    out = fakes.run("from gpureduce import _cli; assert _cli.main(['info']) == 0", tmp_path)
    assert "cuda:0" in out
    assert "Fake 0, compute capability 9.0" in out
    assert "no GPU" not in out


def test_info_prints_how_to_install_missing_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = succeed("info", capsys=capsys)
    for words in (
        "gpureduce[cu13]",
        "gpureduce[bf16]",
        "gpureduce[plot]",
        "gpureduce[progress]",
        "install g++",
    ):
        assert words in out


def test_the_catalogue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    out = succeed("kernels", capsys=capsys)
    for info in gr.kernels():
        assert any(
            line.split()[0] == info.name and info.summary in line
            for line in out.splitlines()
            if line
        )
    found = json.loads(succeed("kernels", "--json", capsys=capsys))
    assert [each["name"] for each in found] == [info.name for info in gr.kernels()]
    one = succeed("kernels", "reduce0", capsys=capsys)
    assert one.startswith("interleaved_modulo: ")
    assert "power of two" in one


def test_kernels_say_where_they_run_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    code = (
        "import warnings, numpy as np, gpureduce as gr\n"
        "warnings.simplefilter('error', gr.NoDeviceWarning)\n"
        "for each in gr.kernels():\n"
        "    try: gr.sum(np.ones(3), kernel=each.name); print(each.name)\n"
        "    except gr.NoDeviceWarning: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [each.name for each in gr.kernels()]
    blocks = succeed("kernels", *names, capsys=capsys).rstrip("\n").split("\n\n")
    assert blocks == [str(each) for each in gr.kernels()]
    assert all(len(repr(each)) < 120 for each in gr.kernels())  # a list of them is legible
    assert not any("not here" in block for block in blocks)
    served = [block.partition(":")[0] for block in blocks if "on the CPU yes" in block]
    assert sorted(served) == sorted(done.stdout.split())


def test_a_kernels_source_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert succeed("kernels", "--source", "reduce2", capsys=capsys) == gr.kernel_source(
        "sequential"
    )
    found = json.loads(succeed("kernels", "--source", "reduce2", "--json", capsys=capsys))
    assert found == {"kernel": "sequential", "source": gr.kernel_source("sequential")}
    status, out, err = run("kernels", "--source", "sequentia", capsys=capsys)
    assert (status, out) == (2, "")
    assert "did you mean" in err


def test_in_a_terminal_a_source_names_the_option_for_its_helpers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, err = run("kernels", "--source", "shfl_atomic", capsys=capsys)
    assert (status, out) == (0, gr.kernel_source("shfl_atomic"))
    assert "--with-helpers" in err
    assert "shfl_down_sync" in succeed(
        "kernels", "--source", "shfl_atomic", "--with-helpers", capsys=capsys
    )


@pytest.mark.parametrize("name", ["fast", "exact", "sequential", "async_copy"])
def test_in_a_terminal_a_source_explains_the_projects_words(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Traits" not in run("kernels", "--source", name, capsys=capsys)[2]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, err = run("kernels", "--source", name, capsys=capsys)
    assert (status, out) == (0, gr.kernel_source(name))
    explained = re.findall(r"^([A-Z]\w+) {2,}\w", err, re.MULTILINE)
    assert {"Traits", "Rows", "BLOCK"} <= set(explained)
    assert ("Layout" in explained) == (name in ("fast", "exact"))
    code = re.sub(r"//.*", "", out)
    assert [word for word in explained if not re.search(rf"\b{word}\b", code)] == []


def test_kernels_exports_a_kernel_as_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = gr.kernel_source("last_block", standalone=True, dtype="int16", op="max", block_size=64)
    arguments = ("--dtype", "int16", "--op", "max", "--block-size", "64")
    assert succeed("kernels", "--export", "last_block", *arguments, capsys=capsys) == wanted
    found = json.loads(succeed("kernels", "--export", "reduce2", "--json", capsys=capsys))
    assert found["kernel"] == "sequential"
    assert found["source"] == gr.kernel_source("sequential", standalone=True)
    for wrong, said in (
        (("--export", "auto"), "cannot be exported"),
        (("--export", "sequential", "--op", "median"), "unknown operator"),
        (("--export", "sequential", "--source", "sequential"), "no --source"),
        (("--source", "sequential", "--dtype", "int8"), "belong to --export"),
    ):
        status, out, err = run("kernels", *wrong, capsys=capsys)
        assert (status != 0, out) == (True, "")
        assert said in err


def test_the_cache_is_shown_and_cleared(tmp_path: Path) -> None:
    import fakes

    env = fakes.environment(tmp_path)
    cache = tmp_path / "cache"

    def cache_command(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "gpureduce", "cache", *arguments, "--json"],
            env=env,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    fakes.run("works()", tmp_path)
    shown = cache_command()
    assert (shown["directory"], shown["entries"]) == (str(cache), 1)
    assert cache_command("clear")["entries"] == 0
    assert cache_command("show")["entries"] == 0
    off = run_command("cache", GPUREDUCE_CACHE_BYTES="0")
    assert off.stdout.startswith("off: ")


# ---------------------------------------------------------------- measuring

QUICK = ("--device", "cpu", "--seconds", "0.01")


@pytest.fixture
def cheap_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read ceiling that is not measured: the commands have no option against it."""
    monkeypatch.setattr("gpureduce._bench.roofline.host_read_ceiling", lambda threads: 1e10)


@pytest.mark.usefixtures("cheap_ceiling")
def test_bench_times_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = succeed("bench", "-n", "5000", "--op", "max", "--dtype", "int16", *QUICK, capsys=capsys)
    assert out.startswith("CPU backend: max of 5,000 int16 on cpu\n")
    files = [f"--{kind}={tmp_path / kind}" for kind in ("csv", "html")]
    found = json.loads(
        succeed("bench", "reduce0", "-n", "5000", *QUICK, *files, "--json", capsys=capsys)
    )
    assert (found["kernel"], found["bytes"]) == ("interleaved_modulo", 20_004)
    assert_balanced((tmp_path / "html").read_text())
    assert "seconds" in (tmp_path / "csv").read_text().splitlines()[0]


@pytest.mark.usefixtures("cheap_ceiling")
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "-n", "100", *QUICK),
        ("compare", "auto", "-n", "100", *QUICK, "--baselines", "numpy", "--no-break-even"),
        ("explain", "sequential"),
    ],
)
def test_a_dash_prints_a_file_and_nothing_else(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(csv.reader(io.StringIO(succeed(*words, "--csv", "-", capsys=capsys))))
    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(rows[0])}
    assert succeed(*words, "--html", "-", capsys=capsys).startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cheap_ceiling")
def test_compare_compares(
    saved: tuple[str, np.ndarray[Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("compare", "--file", saved[0], *QUICK, "--baselines", "numpy", "--no-break-even")
    out = succeed(*arguments, capsys=capsys)
    assert "sum of 2 x 3 x 4 int32" in out
    assert "numpy" in out
    found = json.loads(succeed(*arguments, "--sizes", "3", "24", "--json", capsys=capsys))
    assert [row["elements"] for row in found["rows"]] == [3, 3, 24, 24]
    assert succeed(*arguments, "--markdown", capsys=capsys).startswith("**sum of")


@pytest.mark.usefixtures("cheap_ceiling")
def test_a_run_is_compared_against_a_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ("compare", "auto", "-n", "1000", *QUICK, "--baselines", "--no-break-even")
    axes = ("--dtype", "float32", "int16", "--sizes", "10", "1e3")
    status, out, err = run(*common, *axes, "--save", "before", capsys=capsys)
    assert (status, err) == (0, "saved in .gpureduce/before.json\n")
    assert "int16, 1,000 elements" in out
    saved = json.loads(Path(".gpureduce/before.json").read_text())
    assert {(each["dtype"], each["elements"]) for each in saved["rows"]} == {
        *(("float32", 10), ("float32", 1000), ("int16", 10), ("int16", 1000)),
    }
    for each in saved["rows"]:  # as if that run had taken no time: everything is slower now
        each["host"]["samples"] = [1e-12] * 12
    Path("fast.json").write_text(json.dumps(saved))
    there = (*common, *axes, "--against", "fast.json")
    status, out, _ = run(*there, "--fail-if-slower", "10", capsys=capsys)
    assert status == options.SLOWER
    assert "this run against the earlier run 'fast.json'" in out
    assert "0 faster, 4 slower, 0 level" in out
    found = json.loads(succeed(*there, "--json", capsys=capsys))
    assert {each["outcome"] for each in found["against"]["changes"]} == {"slower"}
    assert "| slower |" in succeed(*there, "--markdown", capsys=capsys)


@pytest.mark.usefixtures("cheap_ceiling")
def test_pictures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    quick = (*QUICK, "-n", "1000")
    succeed("bench", *quick, "--plot", str(tmp_path / "stages.png"), capsys=capsys)
    compare = ("compare", *quick, "--baselines", "numpy", "--no-break-even", "--plot")
    succeed(*compare, str(tmp_path / "bars.png"), capsys=capsys)
    succeed(*compare, str(tmp_path / "roofline.svg"), "--kind", "roofline", capsys=capsys)
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("words", "expected", "message"),
    [
        (("bench", "--csv", "nowhere/t.csv"), 1, "No such file or directory: 'nowhere'"),
        (("compare", "--html", "nowhere/t.html"), 1, "No such file or directory: 'nowhere'"),
        (("bench", "--plot", "picture.jpog"), 2, "a picture's name ends with one of"),
        (("compare", "--kind", "pie"), 2, "kind must be one of"),
        (("bench", "--csv", "-", "--json"), 2, "only one of --csv, --json can be printed"),
        (("explain", "reduce0", "--html", "-", "--csv", "-"), 2, "only one of --csv, --html can"),
        (("bench", "--plot", "-"), 2, "a picture's name ends with one of"),
        (("explain", "sequential", "--plot", "picture"), 2, "a picture's name ends with one of"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_measured(
    words: tuple[str, ...],
    expected: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    for module, name in (
        (explain_command, "explained"),
        (measure_commands, "bench"),
        (measure_commands, "contest"),
    ):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it was measured"))
    status, out, err = run(*words, capsys=capsys)
    assert (status, out) == (expected, "")
    assert message in err


def test_without_matplotlib_no_picture_is_promised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(measure_commands, "contest", lambda *_: pytest.fail("it was measured"))
    status, _, err = run("compare", "--plot", "x.png", capsys=capsys)
    assert status == options.FAILED
    assert "pip install 'gpureduce[plot]'" in err


@pytest.mark.usefixtures("cheap_ceiling")
def test_a_wrong_kernel_is_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "gpureduce._bench.session.BenchmarkSession.reduction",
        lambda *_: lambda array: gr.sum(array, device="cpu") * 2,
    )
    arguments = ("compare", "-n", "1000", *QUICK, "--baselines", "numpy", "--no-break-even")
    status, out, _ = run(*arguments, capsys=capsys)
    assert status == options.WRONG_ANSWER
    assert "WRONG" in out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("bench", "sequentia"), 2, "did you mean"),
        (("bench", "-n", "0"), 2, "-n must be 1 or more"),
        (("bench", "--file", "a.npy", "-n", "3"), 2, "exclude --file"),
        (("compare", "a.npy"), 2, "the array is given by --file a.npy"),
        (("bench", "-n", "10", "--device", "cpu", "--profile"), 1, "there is nothing to profile"),
        (("bench", "-n", "10", "--cache", "warm"), 2, "cache must be one of"),
        (("compare", "-n", "10", "--baselines", "jax"), 2, "unknown baseline 'jax'"),
        (("compare", "-n", "10", "--sizes", "11"), 2, "sizes must be from 1"),
        (("compare", "--against", "nothing"), 1, "no saved run 'nothing'; save one by"),
        (("compare", "--save", "a/b"), 2, "a run is saved under a name like 'before'"),
        (("compare", "--save", "nowhere/b.json"), 1, "No such file or directory: 'nowhere'"),
        (("compare", "--fail-if-slower", "5"), 2, "needs the run to compare with: --against"),
        (("cache", "cler"), 2, "unknown action 'cler'; did you mean 'clear'?"),
        (("smu", "a.npy"), 2, "unknown command 'smu'; did you mean 'sum'"),
        (("bench", "reduce7"), 2, "did you mean 'reduce6'"),
        (("bench", "--dtype", "flot32"), 2, "did you mean 'float32'"),
        (("compare", "--dtype", "in32", "-n", "10"), 2, "did you mean 'int32'"),
        (("explain", "reduce0", "--dtype", "bflot16"), 2, "did you mean 'bfloat16' or 'float16'"),
        (("compare", "-n", "10", "--baselines", "nmupy"), 2, "did you mean 'numpy'"),
        (("compare", "-n", "10", "--baselines", "scipy"), 2, "the baselines are numpy, cub"),
        (("bench", "fastest_of_all"), 2, "'gpureduce kernels'"),
        (("bench", "-n", "1.5"), 2, "'1.5' is no number of elements"),
        (("sum",), 2, "FILE.npy"),
    ],
)
def test_measuring_fails_in_one_line(
    arguments: tuple[str, ...],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        found = command.main(arguments)
    except SystemExit as end:  # of a parser, which the command leaves to end the process
        found = end.code
    out, err = capsys.readouterr()
    assert (found, out) == (status, "")
    assert len(err.splitlines()) == 1, err
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("bench", "--dtpye", "int8"),
            "gpureduce bench: unknown option --dtpye; did you mean --dtype?",
        ),
        (
            ("sum", "a.npy", "--axes=0"),
            "gpureduce sum: unknown option --axes; did you mean --axis?",
        ),
        (("info", "--xyz"), "gpureduce info: unknown option --xyz (see gpureduce info --help)"),
        (("--verison",), "unknown option --verison; did you mean --version?"),
        (("--",), "gpureduce: "),
        (("info", "more"), "gpureduce info: unexpected more (see gpureduce info --help)"),
        (("reduce", "a.npy", "sum", "max"), "operators are given by --op sum,max (see"),
        (("explain", "reduce0", "-n", "9", "reduce1"), "unexpected reduce1: write all words"),
        (("bench", "-n", "1e"), "'1e' is no number of elements; write 1000000 or 1e6"),
        (("bench", "-n", "1.5"), "'1.5' is no number of elements"),
        (("bench", "-n", "nan"), "'nan' is no number of elements"),
        (("sum", "a.npy", "--axis", "x"), "'x' is no axis; write 0, or 0,1"),
    ],
)
def test_a_wrong_word_of_the_command_line_is_named_with_what_is_near(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (options.WRONG_USAGE, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("columns", [70, 80, 300])
def test_help_fits_the_terminal_and_is_no_wider_than_a_page(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("compare", "sum"):
        with pytest.raises(SystemExit):
            command.main([name, "--help"])
        lines = capsys.readouterr().out.split("examples:")[0].splitlines()
        widest = max(map(len, lines))
        assert widest <= columns
        assert widest <= options.MOST_COLUMNS
        assert columns < options.MOST_COLUMNS or widest > 80


def test_headings_of_help_are_bold_in_a_terminal_and_plain_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def shown() -> str:
        with pytest.raises(SystemExit):
            command.main(["bench", "--help"])
        return capsys.readouterr().out

    plain = shown()
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    bold = shown()
    assert bold.count("\x1b[") >= 8
    assert re.sub(r"\x1b\[[0-9;]*m", "", bold) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown() == plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shown() == bold
    monkeypatch.setenv("TERM", "dumb")
    assert shown() == plain


# ---------------------------------------------------------------- completion


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpureduce", "exp"], {"explain"}),
        (["gpureduce", "sum", "--ax"], {"--axis"}),
        (
            ["gpureduce", "sum", "--kernel", "interleaved_"],
            {"interleaved_modulo", "interleaved_strided"},
        ),
        (["gpureduce", "kernels", "--source", "warp_"], {"warp_registers"}),
        (["gpureduce", "cache", "cl"], {"clear"}),
        (
            ["gpureduce", "bench", "--op", "me"],
            {op for op in session.operators() if op.startswith("me")},
        ),
    ],
)
def test_the_completion_script_completes(
    words: list[str], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(words, capsys) == expected


def complete(words: list[str], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Completions that bash offers for the last of these words."""
    script = succeed("completion", capsys=capsys)
    typed = " ".join(f"'{word}'" for word in words)
    tail = (
        f"\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _gpureduce; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script + tail], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["bench", "--dtype", "float"], "float"),
        (["bench", "--cache", "c"], "cold"),
        (["compare", "--kind", ""], "bars"),
        (["compare", "--baselines", ""], "numpy"),
        (["bench", "block_"], "block_atomic"),
    ],
)
def test_an_option_completes_with_its_own_values(
    words: list[str], start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = complete(["gpureduce", *words], capsys)
    assert any(each.startswith(start) for each in found)
    kernels = {info.name for info in gr.kernels()} - {"cub"}  # which is a library, too
    assert not found & kernels or words[-1] == "block_"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("option", ["--csv", "--file", "--plot", "-n", "--block-size"])
def test_files_and_numbers_do_not_complete_with_kernels(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(["gpureduce", "bench", option, "block_"], capsys) == set()


@pytest.mark.parametrize("text", ["2000", "2e3", "2_000"])
def test_numbers_of_elements_are_read_as_people_write_them(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = command._parser().parse_args(["compare", "-n", text, "--sizes", text, "1e2"])
    assert (asked.n, asked.sizes) == (2000, [2000, 100])
    assert command._parser().parse_args(["explain", "reduce0", "-n", text]).n == 2000


def test_a_reduction_takes_its_functions_own_arguments(
    saved: tuple[str, np.ndarray[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, values = saved
    there = ("--device", "cpu", "--json")
    for words, expected in (
        (("std", path, "--ddof", "1"), values.std(ddof=1)),
        (("sum", path, "--initial", "7"), values.sum(initial=7)),
        (("max", path, "--axis", "0", "--keepdims"), values.max(axis=0, keepdims=True)),
    ):
        found = json.loads(succeed(*words, *there, capsys=capsys))["result"]
        assert np.shape(found) == np.shape(expected)
        assert np.allclose(found, expected, rtol=1e-12)
    done = run_command("max", path, "--ddof", "1")
    assert done.returncode == 2
    assert "--ddof" in done.stderr


def test_bare_words_print_the_help() -> None:
    done = run_command()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run_command("--help").stdout
    assert "examples:" in done.stdout


@pytest.mark.parametrize(
    "words", [("bench", "-n", "1000", *QUICK), ("compare", "-n", "1000", *QUICK)]
)
@pytest.mark.usefixtures("cheap_ceiling")
def test_csv_has_no_two_columns_of_one_name(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    succeed(*words, "--csv", str(tmp_path / "out.csv"), capsys=capsys)
    head = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert len(set(head)) == len(head)


def test_help_lists_every_subcommand() -> None:
    done = run_command("--help")
    assert done.returncode == 0
    for name in command.SUBCOMMANDS:
        assert name in done.stdout


# ---------------------------------------------------------------- operators

GCD = """
// The greatest common divisor.
struct gcd {
    static T identity() { return 0; }
    static T combine(T a, T b)
    {
        while (b != 0) { const T rest = a % b; a = b; b = rest; }
        return a;
    }
};
"""


@pytest.fixture
def operator_file(tmp_path: Path) -> str:
    (tmp_path / "divisor.cu").write_text(GCD)
    return str(tmp_path / "divisor.cu")


def test_reduce_has_results_of_several_operators(
    saved: tuple[str, np.ndarray[Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, values = saved
    cpu = ("--device", "cpu")
    out = succeed("reduce", file, "--op", "sum,min,argmax", *cpu, capsys=capsys)
    assert out == "sum: 276\nmin: 0\nargmax: 23\n"
    found = json.loads(
        succeed("reduce", file, "--op", "max,minmax", "--axis", "1", "--json", *cpu, capsys=capsys)
    )
    assert found["results"]["max"] == {"result": values.max(1).tolist(), "dtype": "int32"}
    assert found["results"]["minmax"]["result"] == [values.min(1).tolist(), values.max(1).tolist()]
    assert succeed("reduce", file, "--op", "prod", *cpu, capsys=capsys) == "0\n"
    target = tmp_path / "all.npz"
    arguments = ("--op", "std,mean", "--ddof", "1", "--keepdims", "--output", str(target))
    assert succeed("reduce", file, *arguments, *cpu, capsys=capsys) == ""
    with np.load(target) as stored:
        assert stored["std"].tobytes() == gr.std(values, ddof=1, keepdims=True).tobytes()
        assert stored["mean"].shape == (1, 1, 1)


def test_reduce_takes_an_operator_of_a_file(
    saved: tuple[str, np.ndarray[Any, Any]],
    operator_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, _ = saved
    cpu = ("--device", "cpu")
    for text in (operator_file, f"{operator_file}:gcd"):
        own = ("--operator", text, "--commutative")
        assert succeed("reduce", file, *own, *cpu, capsys=capsys) == "1\n"
    out = succeed("reduce", file, "--op", "max", "--operator", operator_file, *cpu, capsys=capsys)
    assert out == "max: 23\ngcd: 1\n"
    (tmp_path / "both.cu").write_text(GCD + "struct lcm { static T combine(T a, T b); };")
    for arguments, said in (
        (("--operator", f"{operator_file}:lcm"), "divisor.cu has no structure lcm"),
        (("--operator", str(tmp_path / "both.cu")), "name the operator's, as --operator both.cu:"),
        (("--operator", str(tmp_path / "none.cu")), "No such file"),
        (("--commutative", "--op", "sum"), "--operator FILE"),
        ((), "no operator is named"),
        (("--op", "sum,"), "commas between"),
        (("--op", "sum,median"), "median"),
        (("--op", "sum,sum"), "named twice"),
    ):
        status, out, err = run("reduce", file, *arguments, *cpu, capsys=capsys)
        assert (status != 0, out) == (True, "")
        assert said in err, arguments


@pytest.mark.usefixtures("cheap_ceiling")
def test_bench_times_several_operators_and_those_of_a_file(
    operator_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, name in (
        (("--op", "sum,min"), "sum, min"),
        (("--operator", operator_file), "gcd"),
        (("--op", "max", "--operator", f"{operator_file}:gcd", "--commutative"), "max, gcd"),
    ):
        found = json.loads(
            succeed(
                "bench", "-n", "3000", "--dtype", "int32", *arguments, "--json", *QUICK,
                capsys=capsys,
            )
        )  # fmt: skip
        assert (found["op"], found["function"], found["device"]) == (name, "reduce", "cpu")
        assert found["bytes"] >= 12000
    status, out, _ = run("bench", "mine.cu", "--op", "sum,min", "-n", "10", capsys=capsys)
    assert (status != 0, out) == (True, "")


def test_compare_takes_an_operator_of_a_file_and_no_tuple(
    operator_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run("compare", "--op", "sum,min", "-n", "10", *QUICK, capsys=capsys)
    assert (status != 0, out) == (True, "")
    assert "one operator" in err
