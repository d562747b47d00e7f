"""`torch.nn.modules`: PyTorch's module paths of the layers, for programs that import by them.

``from torch.nn.modules.batchnorm import _BatchNorm`` finds the layer where this package has it.
"""

from __future__ import annotations

import importlib
import sys

from .. import *  # noqa: F403
from .. import __all__ as __all__

# PyTorch's name of a module and ours.
_PLACES = {"_functions": "norm", "activation": "activation", "adaptive": "adaptive_softmax", "batchnorm": "norm", "channelshuffle": "shapes",
           "container": "containers", "conv": "conv", "distance": "distance", "dropout": "dropout", "flatten": "shapes", "fold": "shapes",
           "instancenorm": "norm", "lazy": "lazy", "linear": "linear", "loss": "loss", "module": "module",
           "normalization": "norm", "padding": "padding", "pixelshuffle": "shapes", "pooling": "pooling", "rnn": "rnn",
           "sparse": "sparse", "transformer": "transformer", "upsampling": "upsampling", "utils": "sizes"}

for _name, _own in _PLACES.items():
    _module = importlib.import_module(f"..{_own}", __name__)
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _module
globals()["activation"].MultiheadAttention = globals()["MultiheadAttention"]  # where PyTorch has it
