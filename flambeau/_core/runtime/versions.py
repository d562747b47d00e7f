"""Versions of storages: how often each was written to. Those of memory that was made in inference mode are counted for nobody but caches.

A storage begins at the version that `first` gives. Where that is an `Untracked`, the tensors on it are inference tensors: a write raises the version, which
is an error outside inference mode; and so is `+version`, as it stands where an operation saves a tensor for its gradient. So the mode is part of no plan's
key, and nobody pays for it who never was in it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

inference: ContextVar[bool] = ContextVar("inference", default=False)
entered: list[None] = []  # an element for each block of inference mode that runs, in any thread: while there is none, nobody asks the variable
ever: list[None] = []  # an element once one has begun


class Untracked(int):
    """The version of an inference tensor's storage: -1, and 1 less after each write."""

    __slots__ = ()

    def __add__(self, writes: Any) -> Untracked:
        if not inference.get():
            raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal tensor before "
                               "doing inplace update.")
        return Untracked(int(self) - writes)

    def __pos__(self) -> Untracked:
        raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by "
                           "autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
                           "`torch.no_grad()` instead of `torch.inference_mode()`.")


UNTRACKED = Untracked(-1)


def first() -> int:
    """The version of a storage that is made here."""
    return UNTRACKED if entered and inference.get() else 0


def may_save(saved: Any) -> None:
    """Raises RuntimeError where there is the version of an inference tensor among what a node is to save."""
    for x in saved if isinstance(saved, (tuple, list)) else ():
        if x.__class__ is Untracked:
            +x  # noqa: B018 (which raises)
        elif isinstance(x, (tuple, list)):
            may_save(x)


def apart(version: int) -> int:
    """The version that a tensor begins with which has its own on memory of this version."""
    return UNTRACKED if version < 0 else 0


def writes(version: int) -> int:
    """How often memory of this version was written to."""
    return version if version >= 0 else -1 - version


class tracked:
    """A block outside inference mode, for what the engine keeps beyond a call."""

    __slots__ = ("token",)

    def __enter__(self) -> None:
        self.token = inference.set(False)

    def __exit__(self, *exc: object) -> None:
        inference.reset(self.token)
