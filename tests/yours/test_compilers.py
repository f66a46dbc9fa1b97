"""The compilers that the docs name: kernels and operators run alike by g++ and by clang++."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from draws import SEED

import gpureduce as gr

GALLERY = Path(__file__).parent / "gallery"
COMPILERS = ["g++", "clang++"]


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    monkeypatch.setenv("CXX", request.param)
    return str(request.param)


def test_a_kernel_is_checked_and_explained(compiler: str) -> None:
    assert gr.check(GALLERY / "unrolled_template.cu", block_sizes=[64]).right
    assert gr.check(GALLERY / "barrier_in_loop_missing.cu").kinds == ("block race",)
    assert gr.check(GALLERY / "adds_to_garbage.cu", block_sizes=[64]).kinds == ("output unwritten",)
    assert gr.explain("interleaved_strided", block_size=64).figures.bank_conflicts > 0


def test_an_operator_is_compiled_for_the_cpu(compiler: str) -> None:
    last = gr.Operator(
        f"last_{compiler[0]}",
        source=f"struct last_{compiler[0]} {{ static T identity() {{ return 0; }} "
        "static T combine(T l, T r) { return r != 0 ? r : l; } };",
        commutative=False,
    )
    a = np.random.default_rng(SEED).integers(1, 1000, 10_000)
    assert gr.reduce(a, last, device="cpu") == a[-1], f"seed {SEED}"


def test_a_compiler_that_knows_fewer_options_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "older-c++"
    option = "-ftrivial-auto-var-init=pattern"  # of GCC 12 and later
    older.write_text(
        f"""#!/bin/sh
case "$*" in *{option}*)
  echo "older-c++: error: unrecognized command-line option '{option}'" >&2; exit 1
esac
echo "$*" >> "{tmp_path}/taken"
exec g++ "$@"
"""
    )
    older.chmod(older.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(older))
    monkeypatch.setenv("GPUREDUCE_CACHE_DIR", str(tmp_path / "cache"))
    assert gr.explain("sequential", block_size=64).figures.bank_conflicts == 0
    taken = (tmp_path / "taken").read_text()
    assert "-fno-thread-jumps" in taken
    assert option not in taken


def test_a_compiler_that_fails_is_named_with_its_first_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "my-c++"
    broken.write_text("#!/bin/sh\necho 'my-c++: error: out of luck' >&2\nexit 3\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("GPUREDUCE_CACHE_DIR", str(tmp_path / "cache"))  # else nothing is compiled
    with pytest.raises(gr.CudaError) as caught:
        gr.explain("sequential", block_size=64)
    text = str(caught.value)
    assert f"the emulator's C++ compiler, {broken}, cannot compile" in text
    assert "my-c++: error: out of luck" in text
    assert "NVRTC" not in text
    done = subprocess.run(
        [sys.executable, "-m", "gpureduce", "explain", "sequential", "--block-size", "64"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "out of luck" in done.stderr
    assert "exception" not in done.stderr
