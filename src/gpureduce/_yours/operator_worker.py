"""The process in which a kernel with an operator of the user's own is checked: reads a request and
writes an answer, both JSON.

:mod:`gpureduce._yours.operator_check` starts it, with the emulator as libcuda and NVRTC.
"""

from __future__ import annotations

import base64
import ctypes
import os
import pickle
from typing import Any

import numpy as np

from .._calls import NoValue, OwnCall
from .._emulator_process import reply
from .._exceptions import CudaError
from .operator_laws import Laws, agree, some_elements


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run cases until one is wrong; how many ran, and what is wrong with the last one."""
    operator, text, dtype = pickle.loads(base64.b64decode(request["operator"]))
    laws = Laws(text, dtype)
    settings = ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"])
    rng = np.random.default_rng(request["seed"])
    for number, case in enumerate(request["cases"]):
        settings.fake_set(b"schedule", case["schedule"].encode())
        settings.fake_set(b"seed", str(number + 1).encode())
        array = some_elements(rng, dtype, (case["n"],))
        call = OwnCall(
            array, None, None, None, False, NoValue, True, request["kernel"], "cuda",
            case["block"], None, None,
        )  # fmt: skip
        try:
            got = np.asarray(operator.reduce_array(call))
        except CudaError as error:
            return {"runs": number + 1, "finding": str(error)}
        want = laws.fold(array)
        if not agree(got, want):
            return {"runs": number + 1, "got": str(got.item()), "want": str(want.item())}
    return {"runs": len(request["cases"])}


if __name__ == "__main__":
    reply(run)
