"""What pytest-benchmark's results say of the machine: the environment of all other results."""

from __future__ import annotations

from typing import Any

import pytest

from gpureduce._bench.environment import environment


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    machine_info["gpureduce"] = environment()
