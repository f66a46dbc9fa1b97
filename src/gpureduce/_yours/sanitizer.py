"""A kernel of the user's own on a GPU under NVIDIA's compute-sanitizer: ``check(sanitizer=True)``.

Each of the four tools runs the process that makes first launches
(:mod:`gpureduce._yours.trial_worker`), over a few lengths; what it writes is read by line of the
user's file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import _core
from .._exceptions import DeviceUnavailableError
from .._temporary import temporary_folder
from .check_report import Finding
from .findings import Place, Trouble
from .kernel import Kernel
from .launching import compile_for, device_of, run_trial
from .program_text import blocks_for, dtypes_of, shown_name

__all__ = ["sanitize"]

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_TOOLKIT = Path("/usr/local/cuda/bin")
_KINDS = {
    "racecheck": "block race",
    "synccheck": "divergent barrier",
    "initcheck": "output unwritten",
}
_LINE = re.compile(r"^========= (?P<indent> *)(?P<text>\S.*)$")
_MOST_LOOPING_BLOCKS = 8


def _find_program() -> str:
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(_TOOLKIT))
    if found is None:
        raise DeviceUnavailableError(
            f"a check by {PROGRAM} needs NVIDIA's program of that name, which is not on PATH: "
            "install the CUDA toolkit, and add its bin folder to PATH"
        )
    return found


def sanitize(
    kernel: Kernel, blocks: Sequence[int], types: Sequence[str | None], time_limit: float
) -> list[Finding]:
    """Run a kernel on a GPU under the four tools, and return what they find, each once.

    Raises
    ------
    DeviceUnavailableError
        There is no GPU, or no compute-sanitizer.
    """
    if (why := _core.why_no_cuda()) is not None:
        raise DeviceUnavailableError(f"a check by {PROGRAM} runs the kernel on a GPU: {why}")
    program, form = _find_program(), kernel.form
    device = device_of(form, None)
    images: list[Any] = []
    cases: list[dict[str, Any]] = []
    for dtype in types:
        element, _ = dtypes_of(form, dtype)
        for block in blocks[:2]:
            image = compile_for(form, device.compute_capability, dtype, block, line_info=True)
            tile = block * form.elements_per_thread
            lengths = [1, tile - 1] if form.takes_n else [tile]
            if form.takes_n and form.cover not in ("one", "thread"):
                lengths.append(2 * tile + 17)
            cases += [
                {
                    "image": len(images),
                    "n": n,
                    "block_size": block,
                    "grid_size": None,
                    "dtype": element,
                    "device": device.ordinal,
                    "grid": blocks_for(form, n, block, _MOST_LOOPING_BLOCKS),
                }
                for n in lengths
                if n > 0
            ]
            images.append(image)
    found: dict[tuple[str, int], Finding] = {}
    with temporary_folder("gpureduce-sanitizer-") as folder:
        for tool in TOOLS:
            for number, case in enumerate(cases):
                log = folder / f"{tool}-{number}"
                shown = case | {"block": case["block_size"], "in": case["dtype"]}
                shown["schedule"] = f"{PROGRAM} {tool}"
                before = [program, "--tool", tool, "--log-file", str(log), "--print-limit", "20"]
                reply = run_trial(form, images, [case], time_limit, before)
                if '"hang"' in reply:  # it would hang under the other tools too
                    said = f"the launch under {PROGRAM} had not ended after {time_limit:g} seconds"
                    here = Place(form.line, kernel.source.splitlines()[form.line - 1].rstrip())
                    return [*found.values(), Finding.of(Trouble("hang", said, here), shown)]
                text = log.read_text(encoding="utf-8") if log.exists() else ""
                for trouble in read_log(tool, text, kernel):
                    key = trouble.kind, trouble.where.line
                    found.setdefault(key, Finding.of(trouble, shown))
    return list(found.values())


def read_log(tool: str, text: str, kernel: Kernel) -> Iterator[Trouble]:
    """What a tool's log says, as far as it names a line of the user's file."""
    lines = kernel.source.splitlines()
    pattern = re.compile(rf"\bin (?:\S*/)?{re.escape(shown_name(kernel.file))}:(\d+)")
    blocks: list[list[str]] = []
    for match in filter(None, map(_LINE.match, text.splitlines())):
        if not match["indent"]:
            blocks.append([])
        if blocks:
            blocks[-1].append(match["text"])
    for title, *more in filter(None, blocks):
        places = [int(each) for each in pattern.findall("\n".join([title, *more]))]
        if not places:
            continue
        numbers = [number for number in places if number <= len(lines)]
        here, *others = [Place(number, lines[number - 1].rstrip()) for number in numbers]
        thread = next((each for each in more if each.startswith("by thread")), "")
        other = others[0] if others else Place(0)
        yield Trouble(
            _kind(tool, title),
            f"{PROGRAM} {tool}: {title.split(' at ')[0]}{', ' if thread else ''}{thread}",
            here,
            "and another access" if others else "",
            other,
        )


def _kind(tool: str, title: str) -> str:
    if "misaligned" in title.lower():
        return "misaligned"
    if tool == "initcheck" and "__shared__" in title:
        return "shared unwritten"
    return _KINDS.get(tool, "bounds")
