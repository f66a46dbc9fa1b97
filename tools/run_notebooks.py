"""Run notebooks from top to bottom, each in a kernel of its own, and store their output.

    python tools/run_notebooks.py                              # all of notebooks/
    python tools/run_notebooks.py --to build/notebooks notebooks/3-accuracy.ipynb

With a GPU they are stored in place. Without one they go to build/notebooks, and the outputs of the
GPU that notebooks/ contains stay.

What is stored can be published: cells' run times and the interpreter's version are left out, and an
output that names this machine, its user or a folder of it is an error, as is one on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

import gpureduce as gr

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
WITHOUT_GPU = ROOT / "build" / "notebooks"
CELL_SECONDS = 300
START_SECONDS = 120
"""Machines that do much else take longer than the minute that is usual."""
KERNEL_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
LEAST_NAME = 4
"""Characters of a host's or user's name below which it would be found in ordinary words."""
COMMON_NAMES = ("localhost", "root", "user")
"""Names that tell nobody anything, and are ordinary words."""


def texts(outputs: list[Any]) -> Iterator[str]:
    """All text in outputs."""
    for output in outputs:
        yield output.get("text", "")
        yield from (
            value
            for kind, value in output.get("data", {}).items()
            if not kind.startswith("image/png")
        )


def private_words() -> dict[str, str]:
    """Words that identify a machine, and what they are."""
    folders = {
        str(ROOT): "this tree's folder",
        str(Path.home()) + os.sep: "the home folder",
        tempfile.gettempdir() + os.sep: "the folder for temporary files",
        sys.prefix + os.sep: "the interpreter's folder",
    }
    names = {platform.node(): "the host's name"}
    with contextlib.suppress(KeyError, OSError):  # a user without a name
        names[getpass.getuser()] = "the user's name"
    told = {
        name: what
        for name, what in names.items()
        if len(name) >= LEAST_NAME and name not in COMMON_NAMES
    }
    return folders | told


def complaints(notebook: Any) -> list[str]:
    """Words that must not be stored."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                found.append(f"cell {number} writes to stderr: {output['text'].strip()}")
        for text in texts(cell.get("outputs", ())):
            found += [
                f"cell {number} shows {what}, {word!r}"
                for word, what in private_words().items()
                if word in text
            ]
    return found


def sockets_in(folder: str) -> dict[str, str]:
    """What a kernel is reached by: files of a folder, where the system has such sockets.

    Ports are chosen before the kernel opens them, and another kernel may do so in between.
    """
    if os.name == "nt":
        return {}
    return {"transport": "ipc", "ip": str(Path(folder, "kernel"))}


def run(path: Path) -> Any:
    """A notebook with the outputs of this machine."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            config=Config({"KernelManager": sockets_in(home)}),
            extra_arguments=["--log-level=ERROR"],
            startup_timeout=START_SECONDS,
            timeout=CELL_SECONDS,
            record_timing=False,
            resources={"metadata": {"path": str(FOLDER)}},
        )
        # Progress bars and IPython's history are not for stored output.
        client.execute(env=os.environ | {"TQDM_DISABLE": "1", "IPYTHONDIR": home})
    notebook.metadata = nbformat.from_dict(KERNEL_METADATA)
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ by default")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help="where they are stored (default: in place with a GPU, else build/notebooks)",
    )
    options = parser.parse_args()
    to = options.to or (None if gr.devices() else WITHOUT_GPU)
    failed = False
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = time.monotonic()
        try:
            notebook = run(path)
        except CellExecutionError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = True
            continue
        wrong = complaints(notebook)
        for each in wrong:
            print(f"{path.name}: {each}", file=sys.stderr)
        failed = failed or bool(wrong)
        if not wrong:
            place = to or path.parent
            place.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, place / path.name)
            print(f"{place / path.name}: {time.monotonic() - start:.1f} s")
    if to is WITHOUT_GPU:
        print("there is no GPU: notebooks/ keeps its outputs of one")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
