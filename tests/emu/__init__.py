"""Many small tasks over the emulator, each in a process of its own, on all cores.

What the emulator finds poisons the process, as a bad access poisons a context on a GPU; and
options such as ``overlay`` hold for a process. So tasks go to workers (``worker.py``), which have
imported everything and fork for each.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
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
    """Environment of a process that finds the emulator as driver and NVRTC, and these modules."""
    path = library()
    ours = ("GPUREDUCE_EMULATOR", "PYTEST_CURRENT_TEST")  # of this task, and of this test
    result = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    result.update(
        GPUREDUCE_LIBCUDA=path,
        GPUREDUCE_LIBNVRTC=path,
        GPUREDUCE_CACHE_BYTES="0",  # but for tasks without an overlay (worker.py)
        PYTHONPATH=os.pathsep.join(paths),
        OPENBLAS_NUM_THREADS="1",
        **more,
    )
    return result


class Worker:
    """A process that does one task after another."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.process = subprocess.Popen(
            [sys.executable, "-m", "emu.worker"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, task: dict[str, Any]) -> str | None:
        """The task's error, "" if it succeeded; None if the worker itself has died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(json.dumps(task), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return None
        answer = self.process.stdout.readline()
        return str(json.loads(answer)) if answer else None

    def end(self) -> None:
        self.process.communicate()  # it reads no more tasks, and ends


# Idle workers. They take long to start, and most tests have few tasks.
idle: list[Worker] = []
lock = threading.Lock()


@atexit.register
def end_workers() -> None:
    while idle:
        idle.pop().end()


def do(task: dict[str, Any]) -> str:
    """Run a task and return its error; "" if it succeeded."""
    env = environment()
    with lock:
        worker = next((each for each in idle if each.env == env), None)
        if worker is not None:
            idle.remove(worker)
    worker = worker or Worker(env)
    answer = worker.do(task)
    if answer is None:
        worker.end()
        return "the worker has died"
    with lock:
        idle.append(worker)
    return answer


def run(tasks: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Run tasks on all cores and return, for each, what went wrong. The order is the tasks'."""
    there = list(tasks)
    with ThreadPoolExecutor(CORES) as pool:
        return list(zip(there, pool.map(do, there), strict=True))


def failures(tasks: Iterable[dict[str, Any]]) -> list[str]:
    """Run tasks; for each that failed its error, and the command that repeats it."""
    return [
        f"{error}\n  again: {AGAIN} '{json.dumps(task)}'" for task, error in run(tasks) if error
    ]
