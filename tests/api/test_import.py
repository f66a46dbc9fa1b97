"""Importing is light: no driver, no compiler, no noticeable time; the package is complete."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest

import gpureduce as gr

MOST_OF_NUMPY = 0.75  # it takes about a third; both take longer on a machine that is busy


def run(code: str, **environment: str) -> str:
    """Standard output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_costs_less_than_numpys_own() -> None:
    code = (
        "import time; begin = time.process_time(); import numpy\n"
        "between = time.process_time(); import gpureduce\n"
        "print((time.process_time() - between) / (between - begin))"
    )
    run(code, PYTHONDONTWRITEBYTECODE="")  # writes the byte code
    patience = float(os.environ.get("GPR_TEST_PATIENCE", "1"))  # of a core under a sanitizer
    assert min(float(run(code)) for _ in range(5)) < patience * MOST_OF_NUMPY


def test_import_and_cpu_work_open_neither_driver_nor_compiler() -> None:
    code = (
        "import numpy as np, gpureduce as gr, sys\n"
        "gr.sum(np.ones(10), device='cpu')\n"
        "gr.sum(np.ones(10), device='cpu', kernel='sequential', block_size=64)\n"
        "maps = open('/proc/self/maps').read()\n"
        "print([word for word in ('libcuda', 'nvrtc') if word in maps])\n"
        "print([name for name in sys.modules if name.startswith('cuda') or 'ml_dtypes' in name])\n"
    )
    assert run(code).split() == ["[]", "[]"]


def test_nvrtc_is_not_looked_for_without_a_driver() -> None:
    code = (
        "import numpy as np, gpureduce as gr, sys\n"
        "gr.sum(np.ones(10)); gr.kernels(); gr.devices()\n"
        "print('gpureduce._locate' in sys.modules)\n"
    )
    assert run(code, GPUREDUCE_LIBCUDA="/nonexistent/libcuda.so").strip() == "False"


def test_version_is_the_metadata_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", gr.__version__)
    assert gr.__version__ == importlib.metadata.version("gpureduce")


def test_every_public_name_exists_and_is_documented() -> None:
    for name in gr.__all__:
        thing = getattr(gr, name)
        if name not in ("__version__", "KernelName"):  # which Python gives no docstring
            assert thing.__doc__, name
            prose = re.sub(r"^ *(?:>>>|\.\.\.).*$", "", thing.__doc__, flags=re.MULTILINE)
            prose = re.sub(r"code-block::.*?\n\n.*?\n\n", "", prose, flags=re.DOTALL)
            assert "{" not in re.sub(r'\{"[^}]*\}', "", prose), name


def test_package_is_marked_as_typed() -> None:
    assert (pathlib.Path(gr.__file__).parent / "py.typed").exists()


def test_stub_of_the_core_names_its_attributes() -> None:
    from gpureduce import _core

    stub = pathlib.Path(gr.__file__).parent / "_core.pyi"
    declared = {
        node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else node.target.id
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    }
    present = {name for name in dir(_core) if not name.startswith("__")} | {"__version__"}
    assert declared == present


def test_exceptions_record_what_failed_and_survive_pickling() -> None:
    import pickle

    error = gr.CudaError("it failed", "CUDA_ERROR_UNKNOWN", 999, "cuLaunchKernel", "line 1: no")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert str(each) == "it failed"
        assert (each.name, each.number) == ("CUDA_ERROR_UNKNOWN", 999)
        assert (each.call, each.log) == ("cuLaunchKernel", "line 1: no")
    assert isinstance(error, RuntimeError)
    assert issubclass(gr.DeviceUnavailableError, RuntimeError)
    assert issubclass(gr.KernelUnavailableError, RuntimeError)
    assert issubclass(gr.NoDeviceWarning, UserWarning)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_cpu_backend_works_after_fork() -> None:
    code = (
        "import os, numpy as np, gpureduce as gr\n"
        "a = np.ones(10_000_000, np.float32); gr.sum(a, device='cpu')\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(0 if gr.sum(a, device='cpu') == 10_000_000 else 1)\n"
        "print(os.waitpid(pid, 0)[1])\n"
    )
    assert run(code).strip() == "0"
