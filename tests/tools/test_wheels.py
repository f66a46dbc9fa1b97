"""The Pythons that wheels are built for."""

from __future__ import annotations

from pathlib import Path

import pytest
import wheels


def make_python(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_pythons_are_those_of_path_and_of_pyenv_each_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = make_python(tmp_path / "bin/python3.13", "echo .cpython-313-x86_64-linux-gnu.so")
    make_python(tmp_path / "bin/python3.14", "echo 'pyenv: not in use' >&2; exit 127")  # a shim
    versions = tmp_path / "pyenv/versions"
    make_python(versions / "3.10.1/bin/python3.10", "echo .cpython-310-x86_64-linux-gnu.so")
    make_python(versions / "3.13.9/bin/python3.13", "echo .cpython-313-x86_64-linux-gnu.so")
    with_gil = make_python(
        versions / "3.14.2/bin/python3.14", "echo .cpython-314-x86_64-linux-gnu.so"
    )
    without = make_python(
        versions / "3.14.2t/bin/python3.14t", "echo .cpython-314t-x86_64-linux-gnu.so"
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(wheels.sys, "executable", str(on_path))
    found = [each for each in wheels.interpreters([]) if each.is_relative_to(tmp_path)]
    assert found == [on_path, with_gil, without]


def test_a_python_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SystemExit, match=r"there is no python3\.14t on PATH"):
        wheels.interpreters(["python3.14t"])
