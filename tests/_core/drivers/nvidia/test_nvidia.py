"""The NVIDIA driver, on a fake libcuda under the unmodified bindings, and looking for a driver where there is none.

The fake's streams run at once, as late as they may, or in random bits; device memory cannot be read by the host.  Each order
is one process, since a process has one libcuda.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.nvidia import blaslt, cuda_errors, libraries, probe

from .running import each_case, has_bindings, on_fake, run

test_case = each_case("cases.py")


@on_fake
@pytest.mark.parametrize("case, environment", [
    ("end_launch_failure", {}), ("end_lost_device", {}), ("end_passing_fault", {}), ("end_out_of_memory", {}),
    ("end_peer_refused", {"FAKE_NO_PEER": "1"}), ("end_fork", {}), ("end_idle_gpus", {}), ("end_nothing_visible", {"CUDA_VISIBLE_DEVICES": ""}),
    ("end_old_driver", {"FAKE_VERSION": "11040"}), ("end_no_device", {"FAKE_GPUS": "0"}),
    ("end_no_device", {"FAKE_GPUS": "0", "FAKE_NO_NVML": "1", "FAKE_NVML_BROKEN": "1"}),
], ids=lambda v: v if isinstance(v, str) else "+".join(v) or "plain")
def test_endings(case: str, environment: dict[str, str]) -> None:
    found = run("lazy", 1, case, **environment)
    assert not found.get(case, found[""]), found.get(case, found[""])


@on_fake
def test_host_time_of_an_operation() -> None:
    """Well under what PyTorch takes for one on a GPU, some 4 microseconds and more."""
    found = run("none", 0, "end_host_time")
    assert not found.get("end_host_time", found[""])
    assert found["told"]["microseconds"] < 60.0, found["told"]  # a busy machine takes its time; benchmarks/gpu measures it


# ------------------------------------------------------------------------------------------------------- without any driver
@pytest.mark.skipif(bool(probe.look().version), reason="there is a driver here")
def test_no_driver_is_told_at_once() -> None:
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    since = time.perf_counter()
    found = probe.look()
    assert time.perf_counter() - since < 0.1
    assert not found.count and "there is no NVIDIA driver here" in found.why
    # in a process of its own: here another test may have simulated GPUs and taken them away
    code = "import flambeau\nflambeau.zeros(1, device='cuda')"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_SIM")}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert told.returncode == 1 and re.search("RuntimeError: .*no NVIDIA driver here.*devices here are: cpu", told.stderr)


def test_versions_as_text() -> None:
    assert [probe.text(v) for v in (12040, 13000, 11080)] == ["12.4", "13.0", "11.8"]


@pytest.mark.skipif(not has_bindings, reason="cuda-bindings is not installed")
def test_the_first_fault_is_kept() -> None:
    # the names of errors are the driver's to tell, so a state that has failed is made by hand
    state = cuda_errors.State(3)
    assert not state.dead
    state.first = "CUDA_ERROR_ILLEGAL_ADDRESS (700), reported by launching 'add'"
    error = state.fail(1, "copying")
    assert "GPU 3" in str(error) and "since: CUDA_ERROR_ILLEGAL_ADDRESS" in str(error) and state.dead


@pytest.mark.parametrize("rows, cols, steps, expected", [
    (4, 5, (5, 1), (False, 5)), (4, 5, (1, 4), (True, 4)), (4, 5, (9, 1), (False, 9)), (4, 5, (10, 2), None), (1, 5, (0, 1), (False, 5)),
    (4, 1, (1, 1), (False, 1)), (4, 5, (0, 1), None), (1, 1, (7, 3), (False, 1))])
def test_orientation(rows: int, cols: int, steps: tuple[int, int], expected: Any) -> None:
    assert blaslt.orient(rows, cols, *steps) == expected


@pytest.mark.skipif(not os.path.isabs(libraries.find("cublasLt")), reason="nvidia-cublas is not installed")
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_descriptors_of_the_real_library(name: str) -> None:
    """NVIDIA's own library takes the descriptors; that needs no GPU."""
    import ctypes
    made = blaslt.Description(blaslt.load(), getattr(torch, name), 64, 32, 16, (16, 1, 1024), (1, 16, 512), (32, 1, 2048), 3, True)
    size, number = ctypes.c_size_t(), ctypes.c_uint64()
    lib = made.lib
    seen = []
    for layout in (made.first, made.second, made.third):
        for attribute in (2, 3):  # rows, columns
            assert lib.cublasLtMatrixLayoutGetAttribute(layout, attribute, ctypes.byref(number), 8, ctypes.byref(size)) == 0
            seen.append(number.value)
    assert seen == [16, 32, 16, 64, 32, 64]  # B (16, 32) has its columns in rows already, and is transposed
