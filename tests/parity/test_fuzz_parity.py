"""The fuzzers' own comparison: what it finds, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]


def test_a_training_program_finds_a_planted_fault():
    """No difference as it is, and one at the right line once an optimizer is wrong."""
    code = """
import flambeau
from tools.fuzz import models_process as m
from tools.fuzz.models_generator import gen
program = ({"x0": ("float64", (3, 4), 1), "y0": ("float64", (3, 2), 2)}, [
    "h = x0", "l0 = fill(T.nn.Linear(4, 2, dtype=T.float64, device=D), 3)", "h = l0(h)", "e = T.nn.functional.mse_loss(h, y0)",
    "ps = [p for p in l0.parameters()]", "!e.backward()", "o = T.optim.SGD(ps, lr=0.1)", "!o.step()"])
flambeau.simulate(gpus=1, memory="1GiB", queue="lazy")
assert m.differences(program) == [], m.differences(program)
whole = flambeau.optim.SGD.__init__
flambeau.optim.SGD.__init__ = lambda self, p, lr: whole(self, p, lr=lr * 1.001)
found = m.differences(program)
assert [(c[0], c[1], n) for c, n, _ in found] == [("cpu value", "step", 7), ("cuda value", "step", 7)], found
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
