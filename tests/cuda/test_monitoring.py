"""What GPUs do: the virtual clock's figures of simulated ones, the management library's of real ones; waits that warn or raise."""

from __future__ import annotations

import os
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import cuda
from flambeau.cuda import monitoring


@pytest.fixture
def gpus() -> Iterator[None]:
    with torch.simulate(gpus=2, model="A100"):
        yield
        cuda.set_sync_debug_mode(0)


def test_a_simulated_gpu_is_busy_by_its_virtual_clock(gpus: None) -> None:
    assert cuda.utilization() == cuda.memory_usage() == 0
    a = torch.ones(1024, 1024, device="cuda")
    for _ in range(20):
        a = a @ a
    cuda.synchronize()
    assert 60 < cuda.utilization() <= cuda.memory_usage() <= 100 and cuda.utilization(1) == 0
    torch.ones(1 << 20).to("cuda:1")
    cuda.synchronize(1)
    assert cuda.utilization("cuda:1") < cuda.memory_usage("cuda:1")


def test_figures_that_a_simulated_gpu_has_not(gpus: None) -> None:
    for ask in (cuda.temperature, cuda.power_draw, cuda.clock_rate):
        with pytest.raises(RuntimeError, match=f"{ask.__name__}: cuda:1 is simulated .NVIDIA A100-SXM4-80GB. and has none"):
            ask(1)
    x = torch.ones(1 << 20, device="cuda")
    assert cuda.list_gpu_processes() == f"GPU:0 (simulated)\nprocess {os.getpid():>10d} uses {4.0:>12.3f} MB GPU memory" and x.numel()
    with pytest.raises(RuntimeError):
        cuda.utilization(7)


def test_a_real_gpu_is_asked_by_its_place_in_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    n = types.ModuleType("pynvml")
    asked: list[Any] = []
    n.nvmlInit = lambda: None  # type: ignore[attr-defined]
    n.nvmlDeviceGetHandleByPciBusId = lambda where: asked.append(where) or "h"  # type: ignore[attr-defined]
    n.nvmlDeviceGetUtilizationRates = lambda h: types.SimpleNamespace(gpu=70, memory=30)  # type: ignore[attr-defined]
    n.nvmlDeviceGetTemperature = lambda h, sensor: 41 + sensor  # type: ignore[attr-defined]
    n.nvmlDeviceGetPowerUsage = lambda h: 120500  # type: ignore[attr-defined]
    n.nvmlDeviceGetClockInfo = lambda h, which: {1: 1980}[which]  # type: ignore[attr-defined]
    n.nvmlDeviceGetComputeRunningProcesses = lambda h: [types.SimpleNamespace(pid=7, usedGpuMemory=None)]  # type: ignore[attr-defined]
    properties = types.SimpleNamespace(name="H200", pci_domain_id=0, pci_bus_id=0x1b, pci_device_id=0)
    real = types.SimpleNamespace(driver=types.SimpleNamespace(simulated=False), properties=properties, index=0, device="cuda:0")
    monkeypatch.setattr(monitoring.gpus, "gpu", lambda device=None: real)
    monkeypatch.setitem(sys.modules, "pynvml", n)
    figures = [cuda.utilization(), cuda.memory_usage(), cuda.temperature(), cuda.power_draw(), cuda.clock_rate()]
    assert figures == [70, 30, 41, 120500, 1980] and set(asked) == {"00000000:1b:00.0"}
    assert cuda.list_gpu_processes() == f"GPU:0\nprocess {7:>10d} uses {0.0:>12.3f} MB GPU memory"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ModuleNotFoundError, match="pip install nvidia-ml-py"):
        cuda.utilization()
    assert cuda.list_gpu_processes() == "pynvml module not found, please install nvidia-ml-py"


def test_waits_of_the_host_warn_or_raise(gpus: None) -> None:
    x = torch.arange(4.0).to("cuda")
    assert cuda.get_sync_debug_mode() == 0
    cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation: the host waits for a copy of 4 bytes from cuda:0 to cpu") as seen:
        x.sum().item()
    assert len(seen) == 1 and seen[0].filename == __file__
    with pytest.warns(UserWarning, match="synchronizing"):
        x.nonzero()
    cuda.set_sync_debug_mode("error")
    assert cuda.get_sync_debug_mode() == 2
    for wait in (lambda: x[0].item(), x.cpu, x.tolist, lambda: bool(x.sum() > 0), lambda: torch.ones(3).to("cuda")):
        with pytest.raises(RuntimeError, match=rf"synchronizing CUDA operation.*{os.path.basename(__file__)}:\d+"):
            wait()
    y = (x * 2).sum()  # nothing waits here
    torch.ones(3).pin_memory().to("cuda", non_blocking=True)
    cuda.set_sync_debug_mode(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y.item() == 12.0
    for wrong in ("loud", 3, -1, None, True):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
            cuda.set_sync_debug_mode(wrong)  # type: ignore[arg-type]


def test_each_launch_is_waited_for_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def line_of_the_error(blocking: bool) -> int:
        x, wrong = torch.ones(4, device="cuda"), torch.tensor([9], device="cuda")
        try:
            y = x[wrong]
            z = y + 1
            z.cpu()
        except RuntimeError as error:
            assert ("after its call had returned" in str(error)) is not blocking
            trace = error.__traceback__
            assert trace is not None
            return trace.tb_lineno - line_of_the_error.__code__.co_firstlineno
        return 0
    with torch.simulate(gpus=1):
        assert line_of_the_error(False) == 5  # when the host waits
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with torch.simulate(gpus=1):
        assert line_of_the_error(True) == 3
