"""`flambeau.data` under the name `torch.utils.data` has."""

from __future__ import annotations

from ...data import *  # noqa: F403
from ...data import __all__ as __all__
from . import distributed

__all__ = [*__all__, "distributed"]
