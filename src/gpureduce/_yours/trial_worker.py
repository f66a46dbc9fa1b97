"""The process in which a kernel of the user's own is launched on a GPU for the first time.

A kernel that reads beyond its arrays ends the CUDA context of its process, and one that does not
end cannot be stopped: both happen here instead of in the user's process.
:mod:`gpureduce._yours.launching` starts it, :mod:`gpureduce._yours.sanitizer` under
compute-sanitizer. It reads a request and writes a line of JSON per launch.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import threading
from typing import Any

import numpy as np

from .. import _core
from .._emulator_process import answers, error_record
from .check_worker import elements, expected
from .kernel_form import KernelForm
from .launching import LoadedKernel, device_of, program_key

__all__: list[str] = []


def launch(
    form: KernelForm, image: tuple[bytes, tuple[str, ...]], case: dict[str, Any], watch: Any
) -> Any:
    """Reduce random elements; the result, and NumPy's. `watch` is started before the launch."""
    ordinal, dtype, block = case["device"], case["dtype"], case["block_size"]
    programs = {program_key(form, ordinal, dtype, block): _core.load_image(ordinal, *image)}
    device = device_of(form, f"cuda:{ordinal}")
    sizes = case["n"], block, case["grid_size"]
    loaded = LoadedKernel(form, programs, device, dtype, *sizes, trial=0)
    values = elements(form.op, dtype, case["n"], "random", 0)
    pointer = _core.alloc_device(ordinal, values.nbytes)
    try:
        _core.upload(ordinal, pointer, values)
        watch.start()
        return loaded.reduce(pointer), expected(form.op, values, loaded.result)
    finally:
        _core.free_device(ordinal, pointer)


def give_up(seconds: float, out: Any) -> None:
    """End this process, with a launch that has not ended."""
    print(json.dumps({"hang": seconds}), file=out, flush=True)
    os._exit(0)


def answer(request: dict[str, Any], out: Any) -> None:
    """Launch all cases; an answer has ``got`` and ``want``, or an ``error``, which is the last, as
    is ``hang``, where a launch had not ended after that many seconds.
    """
    form, *images = pickle.loads(base64.b64decode(request["state"]))
    seconds = request["seconds"]
    for case in request["cases"]:
        watch = threading.Timer(seconds, give_up, (seconds, out))
        watch.daemon = True
        try:
            got, want = launch(form, images[case["image"]], case, watch)
            line: dict[str, Any] = {"got": float(got), "want": float(want)}
        except Exception as raised:
            error = raised.__cause__ or raised  # a context that is lost here is nobody's
            print(json.dumps(error_record(error)), file=out, flush=True)
            return
        finally:
            watch.cancel()
        print(json.dumps(line), file=out, flush=True)


def main() -> None:
    """Answer one request."""
    np.seterr(all="ignore")
    with answers() as out:
        answer(json.load(sys.stdin), out)


if __name__ == "__main__":
    main()
