"""An exception on its way from a worker, or from the pinning thread, to the loop that reads the batches."""

from __future__ import annotations

import pickle

from .._core.errors import text_of


class _Verbatim(str):
    """A KeyError shows the repr of its argument; this one's repr is itself, so that the traceback has its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Failure:
    """The type of an exception and its message with the traceback of where it happened."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.where = where
        self.kind: type[BaseException] = type(error)
        self.text = text_of(error)
        try:  # a type made inside a function cannot be sent
            if pickle.loads(pickle.dumps(self.kind)) is not self.kind:
                raise TypeError
        except Exception:
            self.kind = RuntimeError
        self.name = type(error).__name__

    def throw(self) -> None:
        """Raises an exception of the same type; a RuntimeError if the type wants other arguments than a message."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:
            raise KeyError(_Verbatim(message))
        if issubclass(self.kind, StopIteration):  # would end the reader's loop as if all were well
            raise RuntimeError(message)
        try:
            if getattr(self.kind, "message", None):
                error = self.kind(message=message)  # type: ignore[call-arg]
            else:
                error = self.kind(message)
        except Exception:
            raise RuntimeError(message) from None
        try:
            raise error
        finally:
            del error  # else the exception, its traceback and this frame keep each other, and the loader, alive
