"""That the names exist which programs use: `names_in_use.txt` has those of PyTorch's that two or more of 120 repositories on GitHub name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

NAMES = Path(__file__).with_name("names_in_use.txt")
# what is absent, by how its name begins, and why
LEFT_OUT = {
    "torch.onnx": "left out: save the state dict, which PyTorch exports",
    "torch.distributed.nn.RemoteModule": "many processes: remote calls",
    "torch.numa": "many processes: which cores a rank is bound to",
    "torch._scaled_mm": "private: products of 8-bit floats, in which nothing is computed here",
    "torch._C._current_autograd_node": "private: which node runs",
    "Tensor._make_wrapper_subclass": "private: tensors without memory",
    "torch.utils.tensorboard.hparams": "a module of no public name",
}
_LOOK = """
import importlib, json, sys
import flambeau.as_torch, torch
import torch.optim.lr_scheduler as schedulers
ROOTS = {"torch": [torch], "Tensor": [torch.Tensor], "Module": [torch.nn.Module], "GradScaler": [torch.amp.GradScaler],
         "Optimizer": [torch.optim.Optimizer, schedulers.LRScheduler]}
def found(name):
    first, *rest = name.split(".")
    for value in ROOTS[first]:
        at = first
        try:
            for part in rest:
                at += "." + part
                try:
                    value = getattr(value, part)
                except AttributeError:
                    value = importlib.import_module(at)
            return True
        except (ImportError, AttributeError):
            pass
    return False
print(json.dumps([name for name in sys.stdin.read().split() if not found(name)]))
"""


def _excused(name: str) -> str | None:
    return next((start for start in LEFT_OUT if name == start or name.startswith(start + ".")), None)


def test_each_name_exists_or_is_left_out_by_name() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK], input=NAMES.read_text(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    missing = json.loads(done.stdout)
    assert [name for name in missing if _excused(name) is None] == []
    assert set(LEFT_OUT) == {_excused(name) for name in missing}, "what is here now needs no excuse"
