"""Optimizers and learning-rate schedulers: PyTorch's `torch.optim`."""

from __future__ import annotations

from . import lr_scheduler, optimizer
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .adaptive import Adadelta, Adagrad, RMSprop, Rprop
from .optimizer import Optimizer
from .sgd import ASGD, SGD

__all__ = ["ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop",
           "Rprop", "lr_scheduler", "optimizer"]
