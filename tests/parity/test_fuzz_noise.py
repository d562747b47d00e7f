"""Training programs: what PyTorch differs from itself in, when last places change, is noise; anything else is a difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tools.fuzz import models_process


@pytest.mark.parametrize(("kind", "last_line", "changed", "noise"), [
    ("float64", "h = x0 * 2", 1e-3, False), ("float64", "h = (x0 * 1e12).sin()", 1e-3, True), ("float32", "h = x0 * 2", 1e-3, False),
    ("float32", "h = (x0 * 1e7).sin()", 1e-1, True), ("float64", "h = (x0 * 1e7).sin()", 1e-1, False)])
def test_noise_is_what_pytorch_shows_too(kind: str, last_line: str, changed: float, noise: bool) -> None:
    program: Any = ({"x0": (kind, (3,), 1)}, ["h = x0", last_line])
    theirs = models_process.run(torch, "cpu", program)
    ours: Any = [[(name, k, a * (1 + changed) if hasattr(a, "dtype") else a) for name, k, a in line] for line in theirs if isinstance(line, list)]
    assert models_process.difference(theirs[1], ours[1], 0.0) is not None
    assert models_process.is_noise(program, theirs, ours, 1, kind) is noise
    assert not models_process.is_noise(program, theirs, ours, 0, kind)
