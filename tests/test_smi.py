"""`flambeau smi`: programs that tell what they hold, real GPUs by a stand-in for NVIDIA's management library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flambeau import smi
from flambeau._core.runtime import publishing

PROGRAM = """
import sys, time
import flambeau as torch
x = torch.ones(1 << 18, device="cuda")
held = [torch.ones(1 << 20, device="cuda") for _ in range(2)]
print("ready", flush=True)
sys.stdin.readline()
"""


def _run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flambeau", "smi", *arguments], capture_output=True, text=True, env=env, timeout=120)


def test_a_program_tells_what_it_holds_and_for_which_lines(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "FLAMBEAU_SIM_GPUS": "1", "FLAMBEAU_SIM_MODEL": "A100"}
    script = tmp_path / "holds.py"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**env, "FLAMBEAU_SMI": "1"}) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        told: Any = None
        for _ in range(40):
            told = json.loads(_run("--json", env=env).stdout)
            if told["programs"] and told["programs"][0]["gpus"][0]["allocated"] == 9 << 20:
                break
        said = _run(env=env).stdout
        found, = told["programs"]
        gpu, = found["gpus"]
        assert found["pid"] == program.pid and gpu["name"] == "NVIDIA A100-SXM4-80GB" and gpu["simulated"]
        assert gpu["lines"][0] == [f"{script}:5", 8 << 20, 2]
        assert [line for line, _, _ in gpu["lines"]][1] in (f"{script}:4", "")
        assert f"process {program.pid}: {script}" in said and f"8.0 MiB in 2 blocks: {script}:5" in said and "simulated: tensors 9.0 MiB" in said
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.wait(60) == 0
    after = _run(env=env)
    assert after.returncode == 0 and "No program tells what it holds. Start one with FLAMBEAU_SMI=1" in after.stdout


def test_files_of_programs_that_are_gone_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "folder", lambda: str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = tmp_path / f"{ended.pid}.json"
    gone.write_text("{}")
    (tmp_path / f"{os.getpid()}.json").write_text("not JSON")
    (tmp_path / "notes.txt").write_text("")
    assert publishing.others() == [] and not gone.exists()


def test_watching_ends_by_an_interrupt(tmp_path: Path) -> None:
    import signal
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-m", "flambeau", "smi", "--watch", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as p:  # a shell's background commands ignore it
        assert p.stdout is not None and p.stderr is not None
        assert sum("No program tells" in p.stdout.readline() for _ in range(12)) >= 2
        p.send_signal(signal.SIGINT)
        assert p.wait(60) == 130 and p.stderr.read() == "flambeau: stopped\n"
    wrong = _run("--watch", "0", env=env)
    assert wrong.returncode == 2 and "'0' is not a number of seconds from 0.1 to 86400" in wrong.stderr


class NVMLError(Exception):
    """As the library's."""


def _library() -> Any:
    n = types.ModuleType("pynvml")

    def refuses(*args: Any) -> Any:
        raise NVMLError("Not Supported")
    n.NVMLError, n.nvmlInit, n.nvmlDeviceGetCount = NVMLError, lambda: None, lambda: 1
    n.nvmlDeviceGetHandleByIndex = lambda i: ("index", i)
    n.nvmlDeviceGetName, n.nvmlDeviceGetUUID = lambda h: b"NVIDIA H200", lambda h: "GPU-1"
    n.nvmlDeviceGetMemoryInfo = lambda h: types.SimpleNamespace(total=100 << 30, used=25 << 30)
    n.nvmlDeviceGetUtilizationRates = lambda h: types.SimpleNamespace(gpu=73, memory=20)
    n.nvmlDeviceGetTemperature, n.nvmlDeviceGetPowerUsage = refuses, lambda h: 345678
    n.nvmlDeviceGetComputeRunningProcesses = lambda h: [types.SimpleNamespace(pid=os.getpid(), usedGpuMemory=3 << 30)]
    return n


def test_real_gpus_are_asked_by_the_management_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(publishing, "folder", lambda: str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", _library())
    told = smi.facts()
    said = smi.text(told)
    assert "GPU 0  NVIDIA H200: 25.0 GiB of 100.0 GiB, 73% busy, 346 W" in said and " C," not in said
    assert f"  process {os.getpid()}: 3.0 GiB  " in said and told["gpus"][0]["temperature"] is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in smi.text(smi.facts())
