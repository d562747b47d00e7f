"""The first minutes on a GPU, tried on the fake libraries: every step passes there, and one that does not keeps none of the others back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from . import first_steps
from .running import ROOT, on_fake


def run(out: Path, *options: str, plant: str = "") -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    env = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")} | {"FIRST_PLANT": plant}
    done = subprocess.run([sys.executable, "-m", "tests._core.drivers.nvidia.first_run", "--fake", "--steps", "--out", str(out), *options], cwd=ROOT,
                          capture_output=True, text=True, timeout=580, env=env, check=False)
    return done, json.loads((out / "first.json").read_text())["results"]


@on_fake
def test_every_step_passes(tmp_path: Path) -> None:
    """With time to compile the kernels by g++."""
    done, results = run(tmp_path / "first", "--each", "120")
    assert done.returncode == 0 and list(results) == first_steps.STEPS, done.stdout + done.stderr
    assert {r["outcome"] for r in results.values()} == {"passed"}
    with tarfile.open(tmp_path / "first.tar.gz") as archive:
        assert {"first/first.json", "first/kernel.log"} <= set(archive.getnames())


@on_fake
def test_one_that_fails_is_told_and_done_again(tmp_path: Path) -> None:
    only = ("--only", "import,context,allocation", "--each", "120")
    for how, outcome, cause in (("error", "failed with status 1", "ValueError: planted"), ("crash", "ended by SIGABRT", "first_steps.py")):
        out = tmp_path / how
        done, results = run(out, *only, plant=f"context:{how}")
        assert done.returncode == 1 and "2 of 3 passed" in done.stdout, done.stdout + done.stderr
        assert results["context"]["outcome"] == outcome and cause in results["context"]["cause"]
    done, results = run(tmp_path / "crash", "--again", *only)
    assert done.returncode == 0 and "context: passed" in done.stdout and "allocation" not in done.stdout and results["context"]["outcome"] == "passed"


@on_fake
def test_one_that_hangs_shows_where(tmp_path: Path) -> None:
    done, results = run(tmp_path / "first", "--only", "context", "--each", "15", plant="context:hang")
    assert done.returncode == 1 and results["context"]["outcome"] == "hung: more than 15 s" and "in main" in results["context"]["cause"], done.stdout


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_SIM_GPUS"} | {"CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, "-m", "tests._core.drivers.nvidia.first_run", "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, env=env, check=False)
    assert done.returncode == 2 and "gpu-first: skipped, because" in done.stdout
