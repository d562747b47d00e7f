"""What the programs of this folder share: numbers that come from NumPy, the same for Flambeau and PyTorch, and a table of what came out.

A program is an ordinary PyTorch program: `python with_x.py` runs it on PyTorch, `flambeau run with_x.py` on Flambeau. Each of its cases
gives numbers; one line of JSON a case is printed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

DEVICE = os.environ.get("LIBRARIES_DEVICE", "cpu")
os.environ.update(KERAS_BACKEND="torch", KERAS_TORCH_DEVICE=DEVICE)  # read where keras is imported
_cases: list[tuple[str, Callable[[], Any]]] = []


def case(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A decorator: the function is a case of this name; it returns numbers, tensors, texts or lists of them."""
    def keep(function: Callable[[], Any]) -> Callable[[], Any]:
        _cases.append((name, function))
        return function
    return keep


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers by NumPy, on the device in use."""
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(scale)
    return torch.from_numpy(np.asarray(made)).to(DEVICE)


def integers(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Integers below `high` by NumPy."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, high, shape)).to(DEVICE)


def fill(module: Any, scale: float = 0.05) -> Any:
    """Gives every parameter of a module numbers that depend on its name alone, and takes the module to the device."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.is_floating_point():
                made = numbers(*p.shape, seed=zlib.crc32(name.encode()), scale=scale).to(p.device)
                norm_weight = name.endswith("weight") and p.dim() == 1
                p.copy_(made + 1 if norm_weight else made)
    return module.to(DEVICE)


def steps(module: Any, loss: Callable[[], Any], count: int = 3, optimizer: Any = None) -> list[float]:
    """The losses of a few training steps."""
    made = optimizer or torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(count):
        made.zero_grad()
        value = loss()
        value.backward()
        made.step()
        losses.append(float(value))
    return losses


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().float().cpu().tolist() if value.is_floating_point() else value.detach().cpu().tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.floating, np.integer)):
        return value.item()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def main() -> None:
    """Runs the cases that the command line names, all by default, and prints what each gave."""
    chosen = sys.argv[1:]
    for name, function in _cases:
        if chosen and name not in chosen:
            continue
        torch.manual_seed(0)
        start = time.perf_counter()
        try:
            said: dict[str, Any] = {"case": name, "gave": _plain(function())}
        except Exception as error:
            said = {"case": name, "error": f"{type(error).__name__}: {error}"[:600], "where": traceback.format_exc()[-3000:]}
        said["seconds"] = round(time.perf_counter() - start, 2)
        print("CASE " + json.dumps(said), flush=True)
