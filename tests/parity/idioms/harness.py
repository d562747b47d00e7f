"""Runs the cases of the modules beside it and writes the numbers they give as JSON: `harness.py OUT [--gpu] [names]`.

It imports torch, whichever that is: the real one, or Flambeau under `flambeau run`.  All random numbers that matter come
from NumPy.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
import warnings

import numpy as np
import torch

DEV = torch.device("cuda:0" if "--gpu" in sys.argv else "cpu")
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def fill(module, seed=0):
    """The module with parameters from NumPy, on the device."""
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for p in module.parameters():
            scale = 1.0 / math.sqrt(max(p.shape[-1] if p.dim() > 1 else 10, 1))
            p.copy_(torch.from_numpy(np.asarray(rng.randn(*p.shape) * scale).astype("float32")))
    return module.to(DEV)


def T(rng, *shape):
    """A tensor of normal numbers on the device."""
    return torch.from_numpy(rng.randn(*shape).astype("float32")).to(DEV)


def main():
    import models
    import training
    assert models.case is training.case is case
    warnings.filterwarnings("ignore")
    picked = [a for a in sys.argv[2:] if not a.startswith("--")]
    found = {}
    for name, function in CASES.items():
        if not picked or name in picked:
            torch.manual_seed(0)
            try:
                found[name] = [float(v) for v in function()]
            except Exception as error:
                traceback.print_exc()
                found[name] = f"{type(error).__name__}: {error}"
    with open(sys.argv[1], "w") as f:
        json.dump(found, f)


if __name__ == "__main__":
    sys.modules["harness"] = sys.modules["__main__"]
    main()
