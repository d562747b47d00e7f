"""What every test may ask for: devices, and the marker of tests that need real hardware."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib import util
from typing import Any

import pytest

# The machine's own settings are not what is tested; a test that wants one sets it.
for _name in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS", "FLAMBEAU_KERNELS", "OPENBLAS_CORETYPE"):
    os.environ.pop(_name, None)

# The parity suite compares with PyTorch, and lies idle where PyTorch is not.
collect_ignore = [] if util.find_spec("torch") else ["parity"]


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _has_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


def simulated(**options: Any) -> None:
    """Asks for simulated GPUs, two of them unless told otherwise; skips the test while the package has none."""
    import flambeau

    if util.find_spec("flambeau.simulated") is None:
        pytest.skip("the simulated driver is not in this tree")
    flambeau.simulate(**{"gpus": 2, **options})


@pytest.fixture
def sim_gpus() -> None:
    """Two simulated GPUs, cuda:0 and cuda:1."""
    simulated()


@pytest.fixture(params=["cpu", "cuda:0", "cuda:1", pytest.param("real", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of each device in turn: the CPU, two simulated GPUs, and a real one where there is one."""
    if request.param == "real":
        yield "cuda:0"
        return
    if request.param != "cpu":
        simulated()
    yield request.param
