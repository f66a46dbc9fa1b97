"""Print the compiler flags that find Python's and NumPy's headers."""

from __future__ import annotations

import sysconfig

import numpy as np

print(f"-isystem {sysconfig.get_paths()['include']} -isystem {np.get_include()}")
