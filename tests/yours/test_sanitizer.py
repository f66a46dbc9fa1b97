"""check(sanitizer=True): a kernel under compute-sanitizer, or under a stand-in for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_own_kernel_calls import SUM, emulated, needs_compiler

import gpureduce as gr
from gpureduce._yours.sanitizer import read_log

LOG = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at mine(const int *, int *, int)+0x90 in mine.cu:5
=========     by thread (31,0,0) in block (3,0,0)
=========     Access at 0x7f21c1a00c80 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at mine(const int *)+0x1b0 in /tmp/mine.cu:4
=========     and Read access at mine(const int *)+0x1c0 in /tmp/mine.cu:5 [248 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
STAND_IN = """#!/usr/bin/env python3
import subprocess, sys
words = sys.argv[1:]
tool, log = words[words.index("--tool") + 1], words[words.index("--log-file") + 1]
status = subprocess.run(words[words.index("--print-limit") + 2:]).returncode
with open(log, "w") as out:
    out.write({"memcheck": LOG, "racecheck": RACE}.get(tool, "========= COMPUTE-SANITIZER\\n"))
sys.exit(status)
"""


def test_logs_are_read_by_lines_of_the_file() -> None:
    mine = gr.Kernel(SUM)
    (found,) = read_log("memcheck", LOG, mine)
    assert (found.kind, found.where.line) == ("bounds", 5)
    assert "Invalid __global__ read of size 4 bytes, by thread (31,0,0) in block" in found.what
    (race,) = read_log("racecheck", RACE, mine)
    assert (race.kind, race.where.line, race.other_where.line) == ("block race", 4, 5)
    assert list(read_log("synccheck", "========= COMPUTE-SANITIZER\n", mine)) == []


@needs_compiler
def test_what_the_tools_find_is_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "compute-sanitizer").write_text(
        STAND_IN.replace("import subprocess", f"LOG = {LOG!r}; RACE = {RACE!r}\nimport subprocess")
    )
    (tmp_path / "compute-sanitizer").chmod(0o755)
    code = f"""
import os
os.environ['PATH'] = {str(tmp_path)!r} + os.pathsep + os.environ['PATH']
report = gr.check(gr.Kernel(SUM), block_sizes=[64], sizes=[10], sanitizer=True)
print(json.dumps([report.right, [[each.kind, each.line, each.case] for each in report.findings]]))
"""
    right, findings = emulated(code, tmp_path)  # type: ignore[misc]
    assert not right
    assert [each[:2] for each in findings] == [["bounds", 5], ["block race", 4]]
    assert (
        findings[0][2] == "1 element of int32, 1 block of 64 threads, by compute-sanitizer memcheck"
    )


@needs_compiler
def test_without_a_gpu_or_the_program_the_error_says_so(tmp_path: Path) -> None:
    if not gr.devices():
        with pytest.raises(gr.DeviceUnavailableError, match="compute-sanitizer runs the kernel"):
            gr.check(gr.Kernel(SUM), block_sizes=[64], sizes=[10], sanitizer=True)
    code = """
from gpureduce._yours import sanitizer
sanitizer.shutil.which = lambda *words, **more: None
kernel = gr.Kernel(SUM)
print(json.dumps(refused(lambda: sanitizer.sanitize(kernel, [64], [None], 60))))
"""
    error = emulated(code, tmp_path)
    assert isinstance(error, str)
    assert error.startswith(
        "DeviceUnavailableError: a check by compute-sanitizer needs NVIDIA's pro"
    )


@pytest.mark.gpu
def test_on_a_gpu_the_sanitizer_agrees_with_the_emulator() -> None:
    right = gr.check(gr.Kernel(SUM), block_sizes=[64], sizes=[100], sanitizer=True)
    assert right.right, str(right)
