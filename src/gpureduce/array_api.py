"""NumPy's namespace with this package's reductions in it, for code written to the array API
standard.

The standard's reductions are this package's functions, everything else is NumPy's. Its conformance
suite runs them::

    ARRAY_API_TESTS_MODULE=gpureduce.array_api pytest array_api_tests/test_statistical_functions.py

Examples
--------
>>> import gpureduce.array_api as xp
>>> x = xp.asarray([[1.0, 2.0], [3.0, 5.0]])
>>> xp.var(x, axis=1, correction=1)
array([0.5, 2. ])
>>> xp.sum(xp.sqrt(x * x))
np.float64(11.0)
"""

from typing import Any

import numpy as _numpy

from ._functions import all, any, argmax, argmin, count_nonzero, max, mean, min, prod, std, sum, var

__all__ = [
    "REDUCTIONS",
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]

REDUCTIONS = tuple(name for name in __all__ if name != "REDUCTIONS")
"""Those statistical, searching and utility functions of the standard that this package has."""


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_numpy)})
