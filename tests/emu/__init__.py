"""Many small tasks over the emulator, each in a process of its own, on all cores.

What the emulator finds poisons the process, as a bad access poisons a context on a card; and options such as
``overlay`` hold for a process. So :func:`run` hands tasks to workers (``worker.py``), which have imported everything
and fork for each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CORES = len(os.sched_getaffinity(0))
# A child that prints a task's text can be started again by it.
AGAIN = "PYTHONPATH=tests python -m emu.worker"


def library() -> str:
    """Path of the emulator; skips the test if there is none, or nothing that compiles for it."""
    from gpureduce import _locate

    path = _locate.emulator()
    if path is None:
        pytest.skip("the emulator is not built")
    if not any(map(shutil.which, (os.environ.get("CXX") or "g++", "g++", "c++", "clang++"))):
        pytest.skip("the emulator compiles C++: no compiler is installed")
    return str(path)


def environment(**more: str) -> dict[str, str]:
    """Environment of a process that finds the emulator in place of driver and NVRTC, and these tests' modules."""
    path = library()
    result = {name: value for name, value in os.environ.items() if not name.startswith("GPUREDUCE_EMULATOR")}
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    result.update(
        GPUREDUCE_LIBCUDA=path,
        GPUREDUCE_LIBNVRTC=path,
        GPUREDUCE_CACHE_BYTES="0",  # its keys do not know of overlays
        PYTHONPATH=os.pathsep.join(paths),
        OPENBLAS_NUM_THREADS="1",
        **more,
    )
    return result


def run(tasks: Iterable[dict[str, Any]], workers: int = CORES) -> list[tuple[dict[str, Any], str]]:
    """Run tasks and return, for each, what went wrong; "" if nothing did. The order is the tasks'."""
    waiting: Iterator[tuple[int, dict[str, Any]]] = iter(list(enumerate(tasks)))
    lock = threading.Lock()
    done: dict[int, tuple[dict[str, Any], str]] = {}
    env = environment()

    def serve() -> None:
        with subprocess.Popen(
            [sys.executable, "-m", "emu.worker"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            while True:
                with lock:
                    number, task = next(waiting, (0, None))
                if task is None:
                    break
                print(json.dumps(task), file=worker.stdin, flush=True)
                answer = worker.stdout.readline()
                done[number] = task, json.loads(answer) if answer else "the worker has died"
                if not answer:
                    break
            worker.stdin.close()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leftover = [(task, "no worker was left to run it") for _, task in waiting]
    return [done[number] for number in sorted(done)] + leftover


def failures(tasks: Iterable[dict[str, Any]]) -> list[str]:
    """Run tasks; for each that failed its error, and the command that repeats it."""
    return [f"{error}\n  again: {AGAIN} '{json.dumps(task)}'" for task, error in run(tasks) if error]
