"""The environment names code and files: a process with more rights than its caller ignores it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parent.parent.parent / "csrc"

PROGRAM = """
#include "lib/base/environment.h"
#include <stdio.h>

int main(void)
{
    const char *value = gpr_environment("GPUREDUCE_LIBCUDA");

    return puts(value != NULL ? value : "ignored") < 0;
}
"""


def test_nothing_else_reads_the_environment() -> None:
    files = [path for path in CSRC.rglob("*") if path.suffix in (".c", ".h")]
    plain = re.compile(r"\bgetenv\s*\(|\b__environ\b")
    readers = {
        path.relative_to(CSRC).as_posix() for path in files if plain.search(path.read_text())
    }
    assert readers == set()
    assert len(files) > 100


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a program another user's rights")
def test_a_program_with_its_owners_rights_ignores_the_callers_environment(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("programs get no rights in the folder for temporary files")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    environment_c = CSRC / "lib" / "base" / "environment.c"
    subprocess.run(
        ["cc", "-std=gnu11", f"-I{CSRC}", environment_c, source, "-o", program], check=True
    )

    def said() -> str:
        variables = os.environ | {"GPUREDUCE_LIBCUDA": "/somebody/libcuda.so"}
        return subprocess.run(
            [program], env=variables, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert said() == "/somebody/libcuda.so"
    os.chown(program, 12345, 12345)
    program.chmod(0o4755)
    assert said() == "ignored"
