"""Threads with small stacks: every function works in 64 KiB, of which Python takes its part."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import threading
    import numpy as np
    import gpureduce as gr

    base = np.random.default_rng().standard_normal((60, 64))
    layouts = {
        "rows of four": base.reshape(-1, 4),
        "C": base,
        "Fortran": np.asfortranarray(base),
        "strided": base[::2, ::3],
        "reversed": base[::-1, ::-1],
        "swapped": base.astype(base.dtype.newbyteorder()),
        "float16": base.astype(np.float16),
        "complex": base + 1j,
        "integers": (8 * base).astype(np.int32),
        "repeated": np.broadcast_to(base[:, :1], base.shape),
        "large": np.tile(base, (60, 1)),
    }
    floats = ("mean", "var", "std", "nanmean", "nanvar", "nanstd", "nansum", "nanprod", "nanmin",
              "nanmax", "nanargmin", "nanargmax", "sum", "prod", "min", "max", "any", "all",
              "argmin", "argmax", "ptp", "count_nonzero", "minmax", "logical_xor")
    wrong = []

    def run():
        for layout, array in layouts.items():
            for name in floats:
                for axis in (None, 0, 1):
                    options = {} if name == "logical_xor" and axis is None else {"axis": axis}
                    getattr(gr, name)(array, device="cpu", **options)
            if array.dtype.kind != "c":
                state = gr.ExactSum(array.dtype)
                state.update(array)
                gr.ExactSum.from_bytes(state.to_bytes()).result()
            gr.dot(array.ravel(), array.ravel(), device="cpu")
            mask = np.ones(array.shape, bool)
            gr.sum(array, where=mask, device="cpu")
            gr.var(array, axis=0, where=mask, device="cpu")
        done.append(True)

    done = []
    run()
    threading.stack_size(64 * 1024)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True, True]
    """
)


def test_every_function_works_in_a_thread_of_64_kib() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
