"""The ufunc of NumPy's whose rules and whose name in messages each fold has."""

import numpy as np

__all__ = ["UFUNCS"]

UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "nansum": np.add,
    "nanprod": np.multiply,
    "nanmin": np.fmin,
    "nanmax": np.fmax,
    "any": np.logical_or,
    "all": np.logical_and,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "logical_xor": np.logical_xor,
}
