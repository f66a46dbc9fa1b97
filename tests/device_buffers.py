"""Arrays in the memory of the first GPU, or of the emulated one, as the package's own buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpureduce import _core


def device(values: Any) -> Any:
    """A copy in device memory."""
    buffer = _core.DeviceBuffer(values.shape, values.dtype.name, 0, None)
    _core.upload(0, buffer.memory.pointer, np.ascontiguousarray(values))
    return buffer


def host(buffer: Any) -> Any:
    """A copy in host memory."""
    values = np.empty(buffer.shape, buffer.dtype)
    _core.download(0, buffer.memory.pointer, values, buffer.stream)
    return values
