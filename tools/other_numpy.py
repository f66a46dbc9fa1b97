"""Run the tests of NumPy's contract with other versions of NumPy than the environment's.

python tools/other_numpy.py oldest newest    # that pip gives for this Python
python tools/other_numpy.py 2.2.0
python tools/other_numpy.py dev              # of pip's indexes: PIP_EXTRA_INDEX_URL adds one

Each version is installed once, in build/numpy, and goes before the environment's own on the path.
The package is not compiled again: one build serves all versions from the oldest on. The
environment's own version is left out, because `make test` has run it.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "build" / "numpy"
TESTS = ("test_contract.py", "test_own_rules.py", "test_differential.py")
EXAMPLES = "60"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def supported() -> Requirement:
    """The versions that the package requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(
        one for one in map(Requirement, project["dependencies"]) if one.name.lower() == "numpy"
    )


def offered() -> list[Version]:
    """Versions that pip has for this Python, from the oldest on."""
    done = subprocess.run(
        [*PIP, "index", "versions", "numpy", "--only-binary=:all:"],
        capture_output=True,
        text=True,
        check=True,
    )
    (listed,) = (
        line.partition(":")[2] for line in done.stdout.split("\n") if line.startswith("Available")
    )
    return sorted(supported().specifier.filter(map(Version, listed.split(","))))


def choose(wanted: str, versions: list[Version]) -> Version:
    """The version that a word stands for."""
    return {"oldest": versions[0], "newest": versions[-1]}.get(wanted) or Version(wanted)


def install(requirement: str, *flags: str) -> pathlib.Path:
    """Install a NumPy, unless it is there; the folder is complete or absent."""
    place = FOLDER / requirement.partition("==")[2] if "==" in requirement else None
    if place is not None and place.exists():
        return place
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
    subprocess.run(
        [*PIP, "install", "--quiet", "--no-deps", "--only-binary=:all:", "--target", made, *flags,
         requirement],
        check=True,
    )  # fmt: skip
    if place is None:
        return made
    made.chmod(0o755)
    made.rename(place)
    return place


def run_tests(folder: pathlib.Path) -> int:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"GPR_TEST_EXAMPLES": EXAMPLES, **os.environ, "PYTHONPATH": path}
    shown = "import numpy; print('NumPy', numpy.__version__, flush=True)"
    subprocess.run([sys.executable, "-c", shown], env=environment, check=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         *(ROOT / "tests" / "api" / name for name in TESTS)],
        cwd=ROOT,
        env=environment,
        check=False,
    ).returncode  # fmt: skip


def main(words: list[str]) -> int:
    own = Version(importlib.metadata.version("numpy"))
    tested: set[Version] = {own}
    failed = 0
    for word in words:
        if word == "dev":
            failed |= run_tests(install("numpy", "--pre"))
            continue
        version = choose(word, offered())
        if version in tested:
            print(f"NumPy {version} has been tested" if version != own else f"NumPy {own}: own")
            continue
        tested.add(version)
        failed |= run_tests(install(f"numpy=={version}"))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
