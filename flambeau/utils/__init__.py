"""PyTorch's `torch.utils`."""

from __future__ import annotations

import importlib
import weakref
from typing import Any

from .._core.autograd import tape
from .._core.tensor import Tensor
from . import checkpoint, data

_LATER = frozenset(("_contextlib", "_device", "_foreach_utils", "_python_dispatch", "_pytree", "benchmark", "collect_env", "cpp_extension", "deterministic",
                    "dlpack", "flop_counter", "hooks", "model_zoo", "module_tracker", "tensorboard", "weak"))


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Each becomes the other wherever it is held: class, attributes, memory, layout and history change places.

    Raises RuntimeError where somebody holds one weakly (as the base of a view does); TypeError for classes that cannot change places.
    """
    for name, t in (("t1", t1), ("t2", t2)):
        own = t.node[tape.SAVED] if t.node is not None and not t.node[tape.SEQ] else None  # a leaf's node knows its tensor
        if any(ref is not own for ref in weakref.getweakrefs(t)):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    kinds = type(t1), type(t2)
    t1.__class__, t2.__class__ = kinds[1], kinds[0]
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for part in ("meta", "store", "ptr", "node", "base"):
        first, second = getattr(t1, part), getattr(t2, part)
        setattr(t1, part, second)
        setattr(t2, part, first)
    for t in (t1, t2):
        if t.node is not None and not t.node[tape.SEQ] and t.node[tape.SAVED] is not None:
            t.node[tape.SAVED] = weakref.ref(t)


__all__ = ["checkpoint", "data", "swap_tensors"]
