"""Through how many files a warm call passes: what somebody who reads the trip has to open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())

# name: (files at most, stays at most or None), to be lowered with each change that shortens a trip, never raised.
CEILINGS: dict[str, tuple[int, int | None]] = {
    "a + b": (0, None),
    "Linear": (3, None),
    "softmax": (2, None),
    "backward of a * b": (5, None),
    'x.to("cuda")': (8, 20),
    "x.cuda()": (8, 20),
    "x.cpu()": (7, 20),
    "cuda to half": (7, 20),
    "cuda:0 to cuda:1": (9, 46),
    "copy_ up": (8, 20),
    "copy_ down": (8, 20),
    "copy_ across": (8, 43),
}


@pytest.fixture(scope="module")
def trips() -> dict[str, dict[str, Any]]:
    """Counted in a process of its own: what other tests left behind (a subclass of Tensor, a mode) may lengthen a trip."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLAMBEAU_", "CUDA_", "COVERAGE_"))}
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops" / "trips.py"), "--json"], capture_output=True, text=True,
                          env=environment | {"PYTHONPATH": str(ROOT)}, timeout=120, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", CEILINGS)
def test_a_trip_passes_few_files(trips: dict[str, dict[str, Any]], name: str) -> None:
    files, stays = CEILINGS[name]
    trip = trips[name]
    assert trip["files"] <= files and (stays is None or trip["stays"] <= stays), "\n".join([f"{trip['files']} files, {trip['stays']} stays", *trip["path"]])
