"""Shared by all tests: the seed, the reason to skip GPU tests, the environment of processes."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

# Set before anything imports the package: tests neither read nor fill the user's cache.
if "GPUREDUCE_CACHE_DIR" not in os.environ:
    os.environ["GPUREDUCE_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpureduce-test-cache-")
    atexit.register(shutil.rmtree, os.environ["GPUREDUCE_CACHE_DIR"], ignore_errors=True)

# Each process that imports NumPy would start a thread per core for its linear algebra, which spins
# before it sleeps: a third of the time of a process that imports the package and ends.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# JAX would take most of a GPU's memory, which the tests of several processes share.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Where processes share the tests of a machine with several GPUs, each has another one first.
worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if worker and "CUDA_VISIBLE_DEVICES" not in os.environ and shutil.which("nvidia-smi"):
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    gpus = range(listed.stdout.count("GPU "))
    first = int(worker.removeprefix("gw")) % max(len(gpus), 1)
    if len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, (*gpus[first:], *gpus[:first])))

# One seed for everything random; fresh in each run, set it to repeat one.
SEED = int(os.environ.setdefault("GPR_TEST_SEED", str(secrets.randbits(32))))

try:
    import hypothesis
except ImportError:  # tests that need it skip themselves
    hypothesis = None
else:
    EXAMPLES = int(os.environ.get("GPR_TEST_EXAMPLES", "50"))
    # derandomize: with CI set, hypothesis would draw the same examples in each run.
    hypothesis.settings.register_profile(
        "gpureduce",
        deadline=None,
        derandomize=False,
        print_blob=True,
        database=None,
        max_examples=EXAMPLES,
    )
    hypothesis.settings.load_profile("gpureduce")


class NameFailures:
    """Names each failure at once: a run that is cut off has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nFAILED {report.nodeid}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # who shares the tests out reports for all processes
        config.pluginmanager.register(NameFailures(config), "name-failures")
    if hypothesis is not None and not config.getoption("hypothesis_seed", default=None):
        config.option.hypothesis_seed = str(SEED)


def environment_without_pytest() -> dict[str, str]:
    """For a pytest of its own in a child, which must not take itself for a part of this run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def pytest_report_header() -> list[str]:
    reason = why_no_gpu()
    return [
        f"GPR_TEST_SEED={SEED}",
        f"GPU tests: {'run' if reason is None else 'skipped, ' + reason}",
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how to repeat a run that failed: the header is left out where runs are to be quiet."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"GPR_TEST_SEED={SEED} repeats this run's random data")


def why_no_gpu() -> str | None:
    """The reason why GPU tests cannot run, or None if they can."""
    from gpureduce import _core

    return _core.why_no_cuda()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Long tests begin first, so that no worker runs one at the end while others are idle.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = why_no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a pytest whose tests pytest-xdist cannot group: it does not say so itself."""
    is_grouped = getattr(item.config.option, "loadgroup", False)
    if is_grouped and item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
        pytest.fail(
            f"pytest {pytest.__version__} does not let pytest-xdist keep the tests of a group in "
            "one process: use pytest<9.2"
        )


@pytest.fixture
def rng() -> Any:
    """NumPy's generator, from the run's seed."""
    import numpy as np

    return np.random.default_rng(SEED)


@pytest.fixture(params=["avx512", "avx2", "baseline"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set of the CPU backend that this machine has."""
    from gpureduce import _core

    try:
        _core.set_cpu_isa(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    _core.set_cpu_isa(None)
