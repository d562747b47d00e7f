"""`flambeau.data` under the name `torch.utils.data` has."""

from __future__ import annotations

from ...data import *  # noqa: F403
from ...data import __all__ as _names
from . import _utils, dataloader, dataset, distributed, sampler

__all__ = [*_names, "_utils", "dataloader", "dataset", "distributed", "sampler"]  # noqa: PLE0604
