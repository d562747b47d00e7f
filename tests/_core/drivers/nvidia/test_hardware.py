"""What runs the device tests on hardware survives what hardware does: on the fake libcuda, with faults planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import hardware
from .running import ROOT, on_fake

PLANTED = "tests/_core/drivers/nvidia/planted_faults.py"


def run(tmp_path: Path, *options: str, rest: tuple[str, ...] = (PLANTED,), **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")}
    return subprocess.run([sys.executable, "-m", "tests._core.drivers.nvidia.hardware", "--out", str(tmp_path), *options, "--", *rest], cwd=ROOT,
                          capture_output=True, text=True, timeout=300, env=env | environment, check=False)


@pytest.mark.slow
@on_fake
@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_planted_faults(tmp_path: Path, order: str) -> None:
    done = run(tmp_path, "--workers", "2", "--each", "4", "--plugin", "tests._core.drivers.nvidia.fake_gpu", FAKE_ORDER=order)
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads((tmp_path / "test-gpu.json").read_text())
    found = {r["name"].split("::")[1]: r for r in told["results"]}
    assert len(found) == told["tests"] == 15
    want = dict.fromkeys(["test_that_passes[0]", "test_that_passes[1]", "test_that_passes[2]", "test_that_passes[3]", "test_alone"], "passed")
    want |= {"test_that_is_skipped": "skipped", "test_that_fails": "failed", "test_that_fails_alike": "failed", "test_fault_in_a_fixture_that_goes": "failed"}
    want |= {"test_illegal_address": "died", "test_illegal_address_that_nobody_waits_for": "died", "test_kernel_that_never_ends": "hung",
             "test_that_sleeps": "hung", "test_that_kills_its_process": "crashed", "test_that_leaves": "crashed"}
    assert {n: r["outcome"] for n, r in found.items()} == want
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in found["test_illegal_address"]["cause"] and "launching 'add'" in found["test_illegal_address"]["cause"]
    assert "CUDA_ERROR_LAUNCH_FAILED (719)" in found["test_illegal_address_that_nobody_waits_for"]["cause"]
    assert "test_that_sleeps" in found["test_that_sleeps"]["cause"] and "test_kernel_that_never_ends" in found["test_kernel_that_never_ends"]["cause"]
    assert "SIGABRT" in found["test_that_kills_its_process"]["cause"] and "status 7" in found["test_that_leaves"]["cause"]
    assert "2 x [failed] AssertionError: five is not" in done.stdout and "5 passed" in done.stdout and "workers had to be replaced" in done.stdout
    page = (tmp_path / "test-gpu.md").read_text()
    assert "five is not" in page and "CUDA_ERROR_ILLEGAL_ADDRESS" in page and "cuda-bindings" in page


@on_fake
def test_the_time_is_kept(tmp_path: Path) -> None:
    """A run whose time is over tells what it had."""
    done = run(tmp_path, "--workers", "1", "--limit", "7", "--plugin", "tests._core.drivers.nvidia.fake_gpu", rest=(f"{PLANTED}::test_that_passes[0]",
               f"{PLANTED}::test_that_sleeps", f"{PLANTED}::test_that_passes[1]"))
    assert done.returncode == 1 and "1 cut off, 1 passed, 1 not reached" in done.stdout, done.stdout + done.stderr
    assert "under way when the time was over" in (tmp_path / "test-gpu.md").read_text()
    before = tmp_path / "before.json"
    (tmp_path / "test-gpu.json").rename(before)
    done = run(tmp_path, "--workers", "1", "--again", str(before), "--plugin", "tests._core.drivers.nvidia.fake_gpu",
               rest=(f"{PLANTED}::test_that_passes[0]", f"{PLANTED}::test_that_passes[1]"))
    assert done.returncode == 0 and "1 tests of 1 files" in done.stdout and "1 passed, 0 not reached" in done.stdout, done.stdout + done.stderr


@on_fake
def test_kernels_run_through_the_driver(tmp_path: Path) -> None:
    """The kernels' own tests, with operands in the GPU's memory between guards."""
    done = run(tmp_path, "--workers", "1", "--plugin", "tests._core.drivers.nvidia.fake_gpu",
               rest=("tests/_core/kernels/cuda_c/test_scatter.py", "-k", "some_outputs or rows_that_are_not_apart"))
    assert done.returncode == 0 and "2 passed, 0 not reached" in done.stdout, done.stdout + done.stderr


def test_without_a_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--workers", "1", rest=(PLANTED,))
    if "skipped, because" not in done.stdout:
        pytest.skip("there is a GPU here")
    assert done.returncode == 0 and "no NVIDIA driver here" in done.stdout


@on_fake
def test_workers_that_cannot_begin(tmp_path: Path) -> None:
    done = run(tmp_path, "--workers", "1", "--plugin", "tests._core.drivers.nvidia.absent_plugin")
    assert done.returncode == 1 and "workers end before they have run anything" in done.stdout, done.stdout + done.stderr


def test_turns_and_causes() -> None:
    assert hardware.by_turns(["a::1", "a::2", "a::3", "b::1", "c::1", "c::2"]) == ["a::1", "b::1", "c::1", "a::2", "c::2", "a::3"]
    results = [hardware.Result(str(k), "failed", 0.0, f"AssertionError: {k / 3} is not near {k} at 0x{k:x}") for k in range(5)]
    results.append(hardware.Result("b", "failed", 0.0, "ValueError: no"))
    assert [(cause[:14], len(those)) for cause, those in hardware.gathered(results)] == [("AssertionError", 5), ("ValueError: no", 1)]
    stack = 'Current thread 0x7 (most recent call first):\n  File "/a/b.py", line 3 in wait\n  File "/a/t.py", line 9 in test_x\n'
    assert hardware.stack_top(stack) == "b.py:3 wait < t.py:9 test_x"


def test_the_tests_of_kernels_that_go_to_a_gpu_are_there() -> None:
    from .gpu_kernels import FILES
    folder = ROOT / "tests" / "_core" / "kernels" / "cuda_c"
    assert not [name for name in FILES if not (folder / f"{name}.py").is_file()]
