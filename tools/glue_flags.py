"""Print the compiler flags that find the headers of Python, NumPy and DLPack."""

from __future__ import annotations

import sysconfig

import numpy as np

print(
    f"-isystem {sysconfig.get_paths()['include']} -isystem {np.get_include()} -isystem csrc/vendor"
)
