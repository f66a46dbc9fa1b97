"""Runs tasks, each in a fork of this process, which has not opened the driver.

A line of JSON on standard input is a task, a line on standard output its result: "" or the error.
With a task as its argument it runs just that, in this process.

A task is ``{"do": "module.function", "emulator": {option: value, ...}, "slow_float64": whether
exact sums are those of GPUs that are slow at it, "limit": seconds, "over_broken": seconds, ...}``;
the function gets it all.

A task ends by its limit. One whose overlay may make a kernel run for ever says ``over_broken``: if
it has not ended after so many seconds, the same task is run over the kernels as they are, and it
may take some times as much CPU time.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

from emu import (
    cases,
    environment,
    exact_axes,
    exact_edges,
    exact_layouts,
    exact_products,
    exact_states,
    exact_sums,
    exact_tiles,
    exact_variances,
    layouts,
    means,
    operators,
    several,
)
from gpureduce import _locate

MODULES = {
    "cases": cases,
    "exact_axes": exact_axes,
    "exact_edges": exact_edges,
    "exact_layouts": exact_layouts,
    "exact_products": exact_products,
    "exact_states": exact_states,
    "exact_sums": exact_sums,
    "exact_tiles": exact_tiles,
    "exact_variances": exact_variances,
    "layouts": layouts,
    "means": means,
    "operators": operators,
    "several": several,
}
LIMIT = 60.0  # seconds
# Kernels of this project wait for no thread that has returned, and read no undefined value.
STRICT = 7
# A broken kernel may take so many times what it takes as it is, and the seconds of ``over_broken``.
PATIENCE = 4


def perform(task: dict[str, Any]) -> str:
    """Run a task in this process."""
    module, function = task["do"].split(".")
    options = {"strict": STRICT, **task.get("emulator", {})}
    os.environ["GPUREDUCE_EMULATOR"] = ",".join(f"{key}={value}" for key, value in options.items())
    os.environ["GPUREDUCE_SLOW_FLOAT64"] = "1" if task.get("slow_float64") else "0"
    # Tasks over the kernels as they are share the run's cache, whose keys leave overlays out. Not
    # those that are timed, compilers included.
    if "overlay" not in options and "over_broken" not in task:
        os.environ["GPUREDUCE_CACHE_BYTES"] = ""  # the default
    try:
        getattr(MODULES[module], function)(task)
    except AssertionError as error:
        return str(error) or traceback.format_exc()
    except BaseException:
        return traceback.format_exc()
    return ""


class Child:
    """A task in a fork of this process that may crash or hang: a process group of its own."""

    def __init__(self, task: dict[str, Any], folder: str) -> None:
        self.text = b""
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                os.close(self.pipe)
                os.environ["TMPDIR"] = folder
                with os.fdopen(write, "w") as pipe:
                    pipe.write(json.dumps(perform(task)))
            finally:
                os._exit(0)  # whatever happened: there is one worker
        os.setpgid(self.pid, self.pid)  # here too: whoever comes first
        os.close(write)

    def ends_within(self, seconds: float) -> bool:
        """Whether it has answered, or died, within so many seconds."""
        end = time.monotonic() + seconds
        while select.select([self.pipe], [], [], max(end - time.monotonic(), 0))[0]:
            part = os.read(self.pipe, 1 << 16)
            if not part:
                return True
            self.text += part
        return False

    def allow(self, seconds: int) -> None:
        """End it after so much CPU time."""
        resource.prlimit(self.pid, resource.RLIMIT_CPU, (seconds, seconds))

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> tuple[int, float]:
        """How it ended, as wait() says it, and the CPU time that it and its compilers took."""
        os.close(self.pipe)
        _, status, usage = os.wait4(self.pid, 0)
        return status, usage.ru_utime + usage.ru_stime


def time_without_overlay(task: dict[str, Any], folder: str) -> float | None:
    """CPU time of the task over the kernels as they are; None if that does not end either."""
    options = {key: value for key, value in task.get("emulator", {}).items() if key != "overlay"}
    child = Child({**task, "emulator": options}, folder)
    ended = child.ends_within(task.get("limit", LIMIT))
    if not ended:
        child.kill()
    _, seconds = child.end()
    return seconds if ended else None


def perform_in_fork(task: dict[str, Any]) -> str:
    """The same in a child, in no more than its time."""
    limit, least = task.get("limit", LIMIT), task.get("over_broken")
    taken = allowed = None
    with tempfile.TemporaryDirectory(prefix="gpureduce-task-") as folder:
        child = Child(task, folder)
        ended = False
        if least is not None and not (ended := child.ends_within(least)):
            taken = time_without_overlay(task, folder)
            if taken is not None:
                allowed = math.ceil(least + PATIENCE * taken)
                child.allow(allowed)
        ended = ended or child.ends_within(limit)
        if not ended:
            child.kill()
        status, _ = child.end()
    if not ended:
        return f"it did not end within {limit} seconds"
    if child.text:
        return json.loads(child.text)
    if allowed is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return (
            f"it did not end within {allowed} seconds of CPU time; the kernel as it is takes "
            f"{taken:.1f}"
        )
    return f"the process ended with status {status}"


def main() -> None:
    if len(sys.argv) > 1:  # by hand, to repeat what failed
        os.environ.update(environment())
        sys.exit(perform(json.loads(sys.argv[1])) or 0)
    # The forks need not look again, which is what their first work on a device would begin with.
    _locate.locate()
    for line in sys.stdin:
        print(json.dumps(perform_in_fork(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
