"""Scripts of `tools` and `benchmarks` find what they import from the package.

Some need a GPU or a build of their own to do their work, so that nothing else runs them here.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tools", ROOT / "benchmarks")
SCRIPTS = sorted(
    path
    for folder in FOLDERS
    for path in folder.glob("*.py")
    if not path.name.startswith(("test_", "conftest"))
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_finds_what_it_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    try:
        module = importlib.import_module(path.stem)
    except ModuleNotFoundError as error:  # of an extra, as the tools of wheels
        if error.name is None or error.name.partition(".")[0] == "gpureduce":
            raise
        pytest.skip(f"needs {error.name}")
    assert module.__file__ == str(path)
