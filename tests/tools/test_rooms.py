"""The house has no circles, and the check that says so finds those that are put in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import check_rooms
import pytest

ROOT = Path(check_rooms.__file__).parent.parent


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_text_of_the_house_has_no_circles_and_no_use_against_its_direction() -> None:
    assert not list(check_rooms.findings(ROOT, None))


def test_every_c_file_stands_in_a_room() -> None:
    graph = check_rooms.includes(ROOT)
    assert not [file for file in graph if check_rooms.room_of(file) is None]


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        (
            {"csrc/lib/base/low.h": '#include "lib/run/high.h"\n', "csrc/lib/run/high.h": ""},
            "csrc/lib/base/low.h uses csrc/lib/run/high.h",
        ),
        (
            {
                "csrc/kernels/core/low.cuh": '#include "fast/high.cuh"\n',
                "csrc/kernels/fast/high.cuh": "",
            },
            "csrc/kernels/core/low.cuh uses csrc/kernels/fast/high.cuh",
        ),
        (
            {"csrc/kernels/fast/one.cuh": '#include "fast/two.cuh"\n'}
            | {"csrc/kernels/fast/two.cuh": '#include "one.cuh"\n'},
            "files include each other: csrc/kernels/fast/one.cuh, csrc/kernels/fast/two.cuh",
        ),
        (
            {"csrc/lib/run/a.h": '#include "cpu/b.h"\n', "csrc/cpu/b.h": ""}
            | {"csrc/cpu/c.h": '#include "lib/run/a.h"\n'},
            "folders include each other: csrc/cpu, csrc/lib/run",
        ),
        (
            {"csrc/emu/other.h": '#include "lib/driver/cache.h"\n', "csrc/lib/driver/cache.h": ""},
            "csrc/emu/other.h uses csrc/lib/driver/cache.h",
        ),
        (
            {"csrc/cpu/twin.h": "", "csrc/lib/base/twin.h": ""},
            "one name for several files: csrc/cpu/twin.h, csrc/lib/base/twin.h",
        ),
    ],
)  # fmt: skip
def test_what_does_not_belong_in_text_is_found(
    tmp_path: Path, files: dict[str, str], finding: str
) -> None:
    write(tmp_path, files)
    assert any(one.startswith(finding) for one in check_rooms.findings(tmp_path, None))


def test_calls_in_a_circle_and_against_the_direction_are_found(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or shutil.which("nm") is None:
        pytest.skip("needs a C compiler and nm")
    write(
        tmp_path,
        {
            "csrc/cpu/one.c": "int two(void); int one(void) { return two(); }",
            "csrc/cpu/two.c": "int three(void); int two(void) { return three(); }",
            "csrc/cpu/three.c": "int one(void); int three(void) { return one(); }",
            "csrc/lib/base/low.c": "int one(void); int low(void) { return one(); }",
            "csrc/lib/base/lower.c": "int low(void); int lower(void) { return low(); }",
            "csrc/include/gpureduce.h": "int gpr_public(void);",
            "csrc/cpu/all.c": "int own(void) { return 0; } int gpr_public(void) { return 0; }",
            "csrc/python/glue.c": "int gpr_public(void); int own(void);"
            " int glue(void) { return gpr_public() + own(); }",
            "csrc/python/calls.c": "int gpr_public(void); int call(void) { return gpr_public(); }",
        },
    )
    for source in sorted(tmp_path.rglob("*.c")):
        made = tmp_path / "objects" / source.relative_to(tmp_path / "csrc").with_suffix(".o")
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-c", str(source), "-o", str(made)], check=True)
    assert list(check_rooms.findings(tmp_path, tmp_path / "objects")) == [
        "csrc/lib/base/low.c uses csrc/cpu/one.c, whose folder does not stand before its own",
        "csrc/python/glue.c uses csrc/cpu/all.c, whose folder does not stand before its own",
        "files call each other: csrc/cpu/one.c, csrc/cpu/three.c, csrc/cpu/two.c",
    ]


def test_a_file_without_an_object_is_found(tmp_path: Path) -> None:
    write(tmp_path, {"csrc/cpu/new.c": "", "csrc/include/gpureduce.h": ""})
    (tmp_path / "objects").mkdir()
    (finding,) = check_rooms.findings(tmp_path, tmp_path / "objects")
    assert finding.startswith("csrc/cpu/new.c has no object")
