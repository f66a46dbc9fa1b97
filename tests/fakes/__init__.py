"""A fake driver and a fake NVRTC, and Python processes that use them.

The library opens whatever ``GPUREDUCE_LIBCUDA`` and ``GPUREDUCE_LIBNVRTC`` name, once per process.
So each test runs a script in a process of its own: :func:`run`. The script finds ``np``, ``gr``,
and the fakes as the ctypes libraries ``cuda`` and ``nvrtc`` (see the C files for their functions).
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parent.parent / "csrc"

PRELUDE = """
import contextlib, ctypes, gc, os, signal, sys, threading, time, warnings
import numpy as np
import gpureduce as gr

gc.freeze()  # modules: a sixth of the process's time is looking through them at its end

def _open(variable):
    path = os.environ.get(variable, "")
    return ctypes.CDLL(path) if os.path.exists(path) else None

cuda = _open("GPUREDUCE_LIBCUDA")
nvrtc = _open("GPUREDUCE_LIBNVRTC")
if cuda is not None and hasattr(cuda, "fake_failed"):
    for name in ("fake_failed", "fake_violation"):
        getattr(cuda, name).restype = ctypes.c_char_p
    for name in ("fake_bytes", "fake_peak", "fake_watched", "fake_pageable"):
        getattr(cuda, name).restype = ctypes.c_uint64
    cuda.fake_set_memory.argtypes = [ctypes.c_uint64, ctypes.c_uint64]

def raises(kind, *parts):
    '''Context that demands an exception of exactly this class, whose text has all the parts.'''
    @contextlib.contextmanager
    def context():
        holder = []
        try:
            yield holder
        except BaseException as error:
            assert type(error) is kind, f"{type(error).__name__}: {error}"
            for part in parts:
                assert part in str(error), f"no {part!r} in: {error}"
            holder.append(error)
        else:
            raise AssertionError(f"no {kind.__name__}")
    return context()

def in_child(work, *arguments):
    '''Whether work(*arguments), in a process of its own, says that something failed.'''
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            failed = work(*arguments)
        except BaseException as error:
            print(f"{arguments}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(77 if failed else 0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 77), f"{arguments}: exit status {status}"
    return status == 77

def works(device="cuda"):
    '''A call that needs nothing special gives the right answer on that device.'''
    a = np.arange(200_000, dtype=np.int32)
    assert gr.sum(a, device=device) == 19999900000
    assert gr.last_run().device == ("cpu" if device == "cpu" else "cuda:0")

"""

EPILOGUE = """
if cuda is not None and hasattr(cuda, "fake_violation"):
    assert cuda.fake_violation() == b"", cuda.fake_violation()
"""


@functools.cache
def directory() -> Path:
    """Build both fakes, once per test run, and say where they are."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fakes are C: no compiler is installed")
    place = Path(tempfile.mkdtemp(prefix="gpureduce-fakes-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    includes = [f"-I{CSRC / folder}" for folder in (".", "include", "registry")]
    options = ["-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread"]
    options += ['-DGPR_VERSION="fake"']
    library = [
        str(path)
        for room in ("base", "exact", "rules")
        for path in sorted((CSRC / "lib" / room).glob("*.c"))
    ]

    def run_compiler(*arguments: str) -> None:
        subprocess.run([compiler, *options, *includes, *arguments], check=True)

    def link(name: str, source: str, *more: str) -> None:
        shared = ("-shared", "-Wl,-z,defs", *more)
        run_compiler(*shared, source, "-lm", "-o", str(place / name))

    driver = str(place / "driver.o")
    sources = [*map(str, sorted((CSRC / "emu").glob("driver_*.c"))), str(HERE / "contract.c")]
    run_compiler("-r", *sources, *library, "-o", driver)
    link("libfakecuda.so", driver)
    link("libfakenvrtc.so", str(HERE / "fake_nvrtc.c"))
    # A driver from before one of the functions was there.
    script = place / "hide"
    script.write_text("{ global: *; local: cuDeviceGetUuid_v2; };")
    link("libincomplete.so", driver, f"-Wl,--version-script={script}")
    return place


def environment(
    tmp_path: Path, cuda: str = "", nvrtc: str = "", **more: str | None
) -> dict[str, str]:
    """Make a process's environment: the fakes with these settings, and a cache of its own."""
    fakes = directory()
    settings: dict[str, str | None] = {
        "GPUREDUCE_LIBCUDA": str(fakes / "libfakecuda.so"),
        "GPUREDUCE_LIBNVRTC": str(fakes / "libfakenvrtc.so"),
        "GPUREDUCE_CACHE_DIR": str(tmp_path / "cache"),
        "GPUREDUCE_CACHE_BYTES": None,
        "GPUREDUCE_DEVICE_BYTES": None,
        "GPUREDUCE_PINNED_BYTES": None,
        "FAKE_CUDA": cuda,
        "FAKE_NVRTC": nvrtc,
        **more,
    }
    result = dict(os.environ)
    for name, value in settings.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def start(script: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a script; for tests of several processes at once."""
    text = PRELUDE + textwrap.dedent(script) + EPILOGUE
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", text],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 60) -> str:
    """Wait for a script, demand that it ended well, and return what it printed."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(6)  # faulthandler says where it hangs
        out, err = process.communicate(timeout=10)
    assert process.returncode == 0, f"exit status {process.returncode}\n{out}\n{err}"
    return out


def module_path(*folders: str) -> str:
    """``PYTHONPATH`` of a process that imports the tests' modules, also of folders of theirs."""
    tests = HERE.parent
    paths = [os.environ.get("PYTHONPATH"), str(tests), *(str(tests / each) for each in folders)]
    return os.pathsep.join(filter(None, paths))


def run(
    script: str,
    tmp_path: Path,
    cuda: str = "",
    nvrtc: str = "",
    timeout: float = 60,
    **more: str | None,
) -> str:
    """Run a script over the fakes and return what it printed; it must end well."""
    return finish(start(script, environment(tmp_path, cuda, nvrtc, **more)), timeout)
