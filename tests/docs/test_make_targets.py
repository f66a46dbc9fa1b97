"""Targets of the Makefile: each is known here with what it must do, and runs in a clean clone.

All of them take an hour and more, so an ordinary run checks what makes them fail at once;
``GPR_TEST_ALL=1`` runs each.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import environment_without_pytest
from draws import EVERYTHING

ROOT = Path(__file__).parents[2]
SECONDS = 3600

# Output of each target, as a pattern, or the file that it makes.
TARGETS: dict[str, str | Path] = {
    "help": r"demo +the main job",
    "prepare": Path(".venv/bin/ruff"),
    "build": Path(".venv/bin/gpureduce"),
    "demo": r"All sums agree\.",
    "bench": r"\d+ passed",
    "bench-all": Path("benchmarks/results"),
    "notebooks": r"1-staircase\.ipynb: [\d.]+ s",
    "test": r"\d+ passed",
    "test-numpy": r"\d+ passed",
    "emu": r"\d+ passed",
    "lint": r"All checks passed",
    "format": r"files? left unchanged",
    "docs": Path("build/docs/index.html"),
    "ctest": r"== \w+",
    "asan": r"\d+ passed",
    "tsan": r"== \w+",
    "coverage": Path("build/coverage/html/index.html"),
    "wheels": r"\d+ wheels built, installed and tried",
    "lib": Path("build/lib/libgpureduce.so"),
    "install": Path("build/prefix/include/gpureduce.h"),
    "clean": r"",
    "distclean": r"",
}
# Those that stay, need a GPU or another processor's compiler, or are others in turn, with tests of
# their own.
ELSEWHERE = {"lab", "gpu-check", "nightly", "test-aarch64"}
VARIABLES = {"bench-all": ["BENCH_FLAGS=--quick cpu"], "install": ["PREFIX={clone}/build/prefix"]}

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or not (ROOT / "Makefile").exists(), reason="needs make"
)


def environment_of_a_user() -> dict[str, str]:
    """Without what asks for longer tests: a target's own tests would take hours."""
    return {
        name: value
        for name, value in environment_without_pytest().items()
        if name != "GPR_TEST_ALL"
    }


def make(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=environment_of_a_user(),
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed files, in a folder of their own."""
    folder = tmp_path_factory.mktemp("clone") / "gpureduce"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    return folder


def test_every_target_that_help_lists_is_known() -> None:
    listed = re.findall(r"^  ([a-z0-9-]+) ", make("help").stdout, re.MULTILINE)
    assert set(listed) == {*TARGETS, *ELSEWHERE}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_pages_name_targets_that_there_are(page: str) -> None:
    named = set(
        re.findall(
            r"\bmake ([a-z][a-z0-9-]+)\b(?=[` \n]*(?:#|`|PREFIX|\n))", (ROOT / page).read_text()
        )
    )
    assert named
    assert named <= {*TARGETS, *ELSEWHERE}


def plugins(extra: str) -> list[str]:
    """Names of pytest's plugins among an extra's requirements."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "extra.py", extra],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [re.split(r"[<>=;\[ ]", line)[0] for line in done.stdout.split("\n") if line]
    found = []
    for name in names:
        try:
            points = importlib.metadata.distribution(name).entry_points
        except importlib.metadata.PackageNotFoundError:  # of another platform, or none of tests
            continue
        found += [point.value for point in points if point.group == "pytest11"]
    return found


@pytest.mark.parametrize(("extra", "folder"), [("test", "tests/tools"), ("bench", "benchmarks")])
def test_an_extra_has_the_plugins_that_pytest_is_configured_for(extra: str, folder: str) -> None:
    given = [word for plugin in plugins(extra) for word in ("-p", plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *given, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment_without_pytest() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ tests? collected", done.stdout)


def changes(clone: Path) -> str:
    """Files that differ from the committed ones."""
    return subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(
    not EVERYTHING, reason="takes an hour and more: GPR_TEST_ALL=1 runs each target"
)
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_does_what_it_says_in_a_clean_clone(target: str, clone: Path) -> None:
    words = [word.format(clone=clone) for word in VARIABLES.get(target, [])]
    before = changes(clone)  # bench-all writes new figures
    done = make(target, *words, folder=clone)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    promised = TARGETS[target]
    if isinstance(promised, Path):
        assert (clone / promised).exists()
    else:
        assert re.search(promised, done.stdout)
    assert changes(clone) == before or target == "bench-all", changes(clone)


SANITIZER = """#!/bin/sh
while [ "$1" != "$FAKE_PYTHON" ]; do shift; done
exec echo sanitized "$@"
"""


def test_gpu_check_takes_an_installed_package_without_an_index(tmp_path: Path) -> None:
    """No environment is made, and nothing is installed: the tools are run by that Python."""
    fake = tmp_path / "compute-sanitizer"
    fake.write_text(SANITIZER)
    fake.chmod(0o755)
    # One folder's GPU tests are enough: all would take as long to collect as the run's own.
    flags = "--collect-only -q -o addopts= --ignore-glob='tests/[!i]*'"
    done = subprocess.run(
        ["make", "gpu-check", "INSTALLED=1", f"PYTHON={sys.executable}", f"VENV={tmp_path}/venv",
         f"PYTEST_FLAGS={flags}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment_without_pytest()
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "FAKE_PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert not (tmp_path / "venv").exists()
    assert done.stdout.count(f"sanitized {sys.executable} tools/run_every_kernel.py") == 8


def test_gpu_check_names_the_version_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "gpureduce.py").write_text("__version__ = '0.0.0'\n")
    done = subprocess.run(
        ["make", "gpu-check", "INSTALLED=1", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=environment_without_pytest() | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode != 0
    assert "0.0.0 is installed" in done.stderr


@pytest.mark.skipif(not EVERYTHING, reason="installs JupyterLab: GPR_TEST_ALL=1 opens it")
def test_the_lab_serves_notebooks_and_the_pages_that_they_link_to(clone: Path) -> None:
    flags = "--allow-root --no-browser --port=0 --IdentityProvider.token=word"
    server = subprocess.Popen(
        ["make", "lab", f"LAB_FLAGS={flags}"],
        cwd=clone,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment_without_pytest(),
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        address = next(
            found[0] for line in server.stdout if (found := re.search(r"http://127[^/]+/", line))
        )
        deadline = time.monotonic() + 60
        links = {
            target
            for path in (clone / "notebooks").glob("*.ipynb")
            for cell in json.loads(path.read_text())["cells"]
            for target in re.findall(r"\]\((?!http)([^)#]+)", "".join(cell["source"]))
        }
        assert links
        for link in links:
            name = os.path.normpath(Path("notebooks") / link)
            request = f"{address}api/contents/{name}?content=0&token=word"
            while True:
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        assert answer.status == 200, link
                    break
                except ConnectionError:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
    finally:
        os.killpg(server.pid, 15)
        server.wait(60)
