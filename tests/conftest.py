"""What every test may ask for: devices, and the marker of tests that need real hardware."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from importlib import util
from typing import Any

import pytest
from hypothesis import settings

# No test fails for being slow: the first example of a property makes kernels, and machines are busy.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# The machine's own settings are not what is tested; a test that wants one sets it.
for _name in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS", "FLAMBEAU_KERNELS", "OPENBLAS_CORETYPE"):
    os.environ.pop(_name, None)

# Containers set this to keep their layers small. Without its cache pytest rewrites the asserts of every test file each time, which takes
# three quarters of collecting them, and each process that a test starts compiles the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The parity suite compares with PyTorch, and lies idle where PyTorch is not.
collect_ignore = [] if util.find_spec("torch") else ["parity"]


def _has_gpu() -> bool:
    from flambeau._core.drivers.nvidia import probe
    return probe.look().count > 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Twenty thousand tests are made, 800,000 objects, and none of them is garbage: looking for some among them takes a tenth of the time of
    collecting, and from then on half a second at each full collection.  So the collector leaves them alone.  Only tensors and their storages
    must stay in sight: whose memory is whose is told by what the collector knows."""
    gc.disable()
    try:
        return (yield)
    finally:
        found = _tensors()
        gc.freeze()
        for x in found:
            for turn in (ctypes.pythonapi.PyObject_GC_UnTrack, ctypes.pythonapi.PyObject_GC_Track):
                turn(ctypes.py_object(x))
        gc.enable()


def _tensors() -> list[Any]:
    """The tensors and storages that live."""
    if "flambeau" not in sys.modules:
        return []
    from flambeau._core.compile.owners import instances
    from flambeau._core.tensor import Storage, Tensor
    return [*instances(Storage), *instances(Tensor)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _has_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


@pytest.fixture
def sim_gpus() -> Iterator[Any]:
    """Two simulated GPUs, cuda:0 and cuda:1, while the test runs."""
    import flambeau

    with flambeau.simulate(gpus=2) as system:
        yield system


@pytest.fixture(params=["cpu", "eager", "lazy", pytest.param("real", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of each device in turn: the CPU, a simulated GPU whose work runs at once, one whose work runs only when
    it is waited for (which shows a missing wait), and a real one where there is one."""
    import flambeau

    if request.param in ("cpu", "real"):
        yield "cpu" if request.param == "cpu" else "cuda:0"
        return
    with flambeau.simulate(gpus=2, queue=request.param):
        yield "cuda:0"
