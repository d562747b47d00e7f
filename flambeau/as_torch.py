"""``import flambeau.as_torch``: from here on, in this process and those it starts, ``import torch`` gives Flambeau.

For programs and tests that are not run by ``flambeau run``: imported first, it makes ``import torch``, ``import torchvision``,
``importlib.util.find_spec("torch")`` and ``importlib.metadata.version("torch")`` answer, with or without PyTorch in the environment.

Raises RuntimeError when the real torch was imported already.  `undo` gives the names back.
"""

from __future__ import annotations

from .script.importer import install, installed, uninstall

__all__ = ["install", "installed", "undo"]

undo = uninstall
install()
