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

# name: (files at most, stays at most or None). Trips marked "goal N" pass through more files than they should in the end: what they pass
# today is their ceiling, to be lowered with each change that shortens one, never raised.
CEILINGS: dict[str, tuple[int, int | None]] = {
    "a + b": (2, None),
    "Linear": (3, None),
    "softmax": (2, None),
    "backward of a * b": (5, None),
    'x.to("cuda")': (19, 77),  # goal 8 files in 20 stays
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
