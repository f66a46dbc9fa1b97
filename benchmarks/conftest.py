"""Store the environment of all other results in pytest-benchmark's results, too."""

from __future__ import annotations

from typing import Any

import pytest

from gpureduce._bench.environment import environment


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    machine_info["gpureduce"] = environment()
