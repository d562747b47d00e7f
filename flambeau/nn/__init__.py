"""Layers, losses, containers and what they are built from: PyTorch's `torch.nn`."""

from __future__ import annotations

from typing import Any
