"""Scripts in the idioms of public ones, as PyTorch runs them and as `flambeau run` does: the same losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).parent / "idioms" / "harness.py"


def numbers(folder: Path, *command: str, arguments: tuple[str, ...] = ()) -> dict[str, list[float]]:
    out = folder / f"{len(os.listdir(folder))}.json"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_SIM")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = subprocess.run([sys.executable, *command, str(SCRIPT), str(out), *arguments], env={**kept, "PYTHONPATH": path}, capture_output=True,
                          text=True, check=False, timeout=300)
    assert made.returncode == 0, made.stderr
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    found = numbers(tmp_path_factory.mktemp("torch"))
    assert len(found) >= 18 and all(isinstance(v, list) for v in found.values()), found
    return found


@pytest.mark.parametrize("gpus", [0, 2])
def test_the_losses_are_pytorchs(tmp_path: Path, expected: dict[str, list[float]], gpus: int) -> None:
    got = numbers(tmp_path, "-m", "flambeau", "run", "--sim-gpus", str(gpus), arguments=("--gpu",) if gpus else ())
    assert got.keys() == expected.keys()
    for name, theirs in expected.items():
        ours = got[name]
        assert isinstance(ours, list), f"{name}: {ours}"
        # amp_loop rounds its losses itself, and computes in other types on a GPU
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=0.11 if name == "amp_loop" else 1e-4, err_msg=name)
