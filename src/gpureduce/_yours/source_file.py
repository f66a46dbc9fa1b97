"""Files with a user's CUDA C++ or Python."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["read_source"]


def read_source(path: str | os.PathLike[str]) -> str:
    """The text of a file; ``ValueError`` names one that is no text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no source code, since it is not text in UTF-8") from error
