"""`flambeau.data` under the name `torch.utils.data` has."""

from __future__ import annotations

from ...data import *  # noqa: F403
from ...data import __all__ as _names
from . import _utils, dataloader, dataset, distributed, sampler
from .dataloader import _DatasetKind

__all__ = [*_names, "_DatasetKind", "_utils", "dataloader", "dataset", "distributed", "sampler"]  # noqa: PLE0604
