"""CUDA_VISIBLE_DEVICES: which GPUs a process sees."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flambeau._core.drivers.simulated.driver import uuid_of
from flambeau._core.runtime.visible_devices import visible

IDS = ["aaaa1111", "aaaa2222", "bbbb3333", "cccc4444"]


@pytest.mark.parametrize(("text", "expected"), [
    (None, [0, 1, 2, 3]), ("", []), (" ", []), ("-1", []), ("0", [0]), ("2,0", [2, 0]), (" 3 , 1 ", [3, 1]),
    ("0,1,2,3", [0, 1, 2, 3]),
    ("0,-1,2", [0]), ("1,7,2", [1]), ("1,x,2", [1]), ("1,,2", [1]), ("x", []), ("4", []), ("0,0", []), ("1,2,1", []),
    ("2gpu", [2]),
    ("+1", [1]), ("0,1,0,9", []), ("0,9,0", [0]),
    ("GPU-bbbb3333", [2]), ("GPU-c,GPU-bb", [3, 2]), ("GPU-aaaa", []), ("GPU-aaaa2,GPU-aaaa1", [1, 0]),
    ("GPU-bbbb,GPU-zzz,GPU-c", [2]),
    ("GPU-bbbb,0", [2]), ("0,GPU-bbbb", [0]), ("GPU-b,GPU-bb", []), ("GPU-", []), ("MIG-GPU-bbbb", []),
])
def test_rules(text: str | None, expected: list[int]) -> None:
    assert visible(IDS, text) == expected


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS",
                                                              "FLAMBEAU_SIM_MODEL")}
    return subprocess.run([sys.executable, "-c", script], env=clean | env, capture_output=True, text=True, timeout=100)


SHOW = """
import flambeau as torch
c = torch.cuda
print(c.is_available(), [c.get_device_properties(i).uuid[:8] for i in range(c.device_count())])
"""


@pytest.mark.parametrize(("env", "physical"), [
    ({}, None), ({"FLAMBEAU_SIM_GPUS": "0"}, None), ({"FLAMBEAU_SIM_GPUS": "3"}, [0, 1, 2]),
    ({"FLAMBEAU_SIM_GPUS": "3", "CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]), ({"FLAMBEAU_SIM_GPUS": "3",
                                                                           "CUDA_VISIBLE_DEVICES": ""}, None),
    ({"FLAMBEAU_SIM_GPUS": "3", "CUDA_VISIBLE_DEVICES": "-1"}, None), ({"FLAMBEAU_SIM_GPUS": "3",
                                                                        "CUDA_VISIBLE_DEVICES": "1,5,0"}, [1]),
    ({"FLAMBEAU_SIM_GPUS": "3", "CUDA_VISIBLE_DEVICES": "GPU-" + uuid_of(2)}, [2]),
])
def test_a_process_sees_what_its_environment_says(env: dict[str, str], physical: list[int] | None) -> None:
    out = run(SHOW, **env)
    expected = [uuid_of(i)[:8] for i in physical or []]
    assert out.stdout.strip() == f"{physical is not None} {expected}", out.stderr


def test_setting_it_before_the_first_look_counts_and_later_warns() -> None:
    out = run("""
import os, warnings
import flambeau as torch
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
assert torch.cuda.device_count() == 1
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert torch.cuda.device_count() == 1 and torch.cuda.device_count() == 1
assert len(caught) == 1 and "too late" in str(caught[0].message), caught
""", FLAMBEAU_SIM_GPUS="2")
    assert out.returncode == 0, out.stderr


def test_the_model_and_memory_come_from_the_environment() -> None:
    out = run("import flambeau as t; print(t.cuda.get_device_name(), t.cuda.mem_get_info()[1])",
              FLAMBEAU_SIM_GPUS="1", FLAMBEAU_SIM_MODEL="l4", FLAMBEAU_SIM_MEMORY="2GiB")
    assert out.stdout.split() == ["NVIDIA", "L4", str(2 << 30)], out.stderr
    assert "FLAMBEAU_SIM_GPUS: expected a number" in run("import flambeau as t; t.cuda.is_available()",
                                                         FLAMBEAU_SIM_GPUS="many").stderr
    hidden = run("import flambeau as t; t.ones(1, device='cuda')", FLAMBEAU_SIM_GPUS="2", CUDA_VISIBLE_DEVICES="")
    assert "2 GPUs are hidden by CUDA_VISIBLE_DEVICES=''" in hidden.stderr
