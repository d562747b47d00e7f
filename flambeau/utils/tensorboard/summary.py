"""`torch.utils.tensorboard.summary`: encoded Summaries, for the `add_summary` of a writer's file, which loggers of libraries call."""

from __future__ import annotations

import time
from typing import Any

from . import events, pictures


def number(value: Any, what: str) -> float:
    """The one number in a value.  Raises ValueError for several."""
    a = pictures.array(value)
    if a.size != 1:
        raise ValueError(f"{what}: one number is expected, got shape {a.shape}")
    return float(a.reshape(()))


def hparams(hparam_dict: Any = None, metric_dict: Any = None, hparam_domain_discrete: Any = None) -> tuple[bytes, bytes, bytes]:
    """What was chosen for a run, when it began, and that it ended: three Summaries.

    Values are bool, int, float, str, None (left out) or tensors of one element.  Raises TypeError for what is no dict.
    """
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    values = {k: v if isinstance(v, (bool, str)) else number(v, f"hparams {k!r}") for k, v in hparam_dict.items() if v is not None}
    chosen, began, ended = events.hparams(values, metric_dict, time.time())
    return chosen, began, ended


def scalar(name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False) -> bytes:
    """One number."""
    return (events.scalar_tensor if new_style else events.scalar)(name, number(tensor, f"scalar {name!r}"))


def text(tag: str, text: str) -> bytes:
    """A text (Markdown)."""
    return events.text(tag, text)


__all__ = ["hparams", "scalar", "text"]
