"""Runs tasks, each in a fork of this process, which has imported what they need and has not opened the driver.

A line of JSON on standard input is a task, a line on standard output its result: "" or the error. With a task as its
argument it runs just that, in this process.

A task is ``{"do": "module.function", "emulator": {option: value, ...}, "slow_float64": whether exact sums are those of
cards that are slow at it, "limit": seconds, ...}``; the function gets it all.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from emu import cells, exact_edges, exact_layouts, exact_products, exact_sums, exact_variances, layouts, means
from gpureduce import _core  # noqa: F401  the forks find it loaded

MODULES = {
    "cells": cells,
    "exact_edges": exact_edges,
    "exact_layouts": exact_layouts,
    "exact_products": exact_products,
    "exact_sums": exact_sums,
    "exact_variances": exact_variances,
    "layouts": layouts,
    "means": means,
}
LIMIT = 60.0  # seconds


def perform(task: dict[str, Any]) -> str:
    """Run a task in this process."""
    module, function = task["do"].split(".")
    options = task.get("emulator", {})
    os.environ["GPUREDUCE_EMULATOR"] = ",".join(f"{key}={value}" for key, value in options.items())
    os.environ["GPUREDUCE_SLOW_FLOAT64"] = "1" if task.get("slow_float64") else "0"
    try:
        getattr(MODULES[module], function)(task)
    except AssertionError as error:
        return str(error) or traceback.format_exc()
    except BaseException:
        return traceback.format_exc()
    return ""


def perform_in_fork(task: dict[str, Any]) -> str:
    """The same in a child, which may crash or hang."""
    limit = task.get("limit", LIMIT)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(perform(task)))
        os._exit(0)
    os.close(write)
    text = b""
    hangs = False
    while not hangs:
        hangs = not select.select([read], [], [], limit)[0]
        part = b"" if hangs else os.read(read, 1 << 16)
        if not part:
            break
        text += part
    os.close(read)
    if hangs:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if hangs:
        return f"it did not end within {limit} seconds"
    return json.loads(text) if text else f"the process ended with status {status}"


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit(perform(json.loads(sys.argv[1])))
    for line in sys.stdin:
        print(json.dumps(perform_in_fork(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
