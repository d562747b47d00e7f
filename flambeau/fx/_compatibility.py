"""A mark that PyTorch's own code puts on functions (torch.fx._compatibility)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that gives its function or class back."""
    return lambda f: f
