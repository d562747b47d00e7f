"""Tensors without numbers, for tracing (torch._subclasses): nothing is one here; the device "meta" has shapes without memory."""

from __future__ import annotations

import contextlib
from typing import Any

from flambeau.interop import stand_ins

_WHY = "there is no tracing compiler here; tensors on the device 'meta' have shapes without memory"
globals().update(stand_ins.names(__name__, "FakeTensor FakeTensorMode", _WHY))


def _is_fake(x: Any) -> bool:
    return False


stand_ins.module(f"{__name__}.fake_tensor", {"FakeTensor": globals()["FakeTensor"], "FakeTensorMode": globals()["FakeTensorMode"], "is_fake": _is_fake,
                                                     "unset_fake_temporarily": contextlib.nullcontext},
                 "Names for `isinstance`; nothing is a fake tensor.")

__all__ = ["FakeTensor", "FakeTensorMode"]  # noqa: F822
