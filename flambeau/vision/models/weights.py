"""What `weights=` and `pretrained=` mean here."""

from __future__ import annotations

from typing import Any


def refuse(name: str, weights: Any, pretrained: Any) -> None:
    """Raises ValueError when weights are asked for: none are shipped, and none are fetched."""
    if weights is not None or pretrained:
        raise ValueError(f"{name}: no weights come with Flambeau. Make the model without weights= and load a state dict: "
                         f"model.load_state_dict(flambeau.load('{name}.pth'))")
