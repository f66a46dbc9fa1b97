"""Write src/gpureduce/_kernel_names.py from the registry of kernels.

    python tools/kernel_names.py

Type checkers read the file: the registry is compiled, so that they cannot read it.
"""

from __future__ import annotations

from pathlib import Path

import gpureduce as gr

FILE = Path(__file__).parents[1] / "src" / "gpureduce" / "_kernel_names.py"
HEAD = '''"""Names and aliases of kernels, for type checkers; written by tools/kernel_names.py."""

from typing import Literal

__all__ = ["KernelName"]

KernelName = Literal[
'''


def text() -> str:
    """The file's text: the names in the order of the catalogue, each before its aliases."""
    names = [name for info in gr.kernels() for name in (info.name, *info.aliases)]
    return HEAD + "".join(f'    "{name}",\n' for name in names) + "]\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
