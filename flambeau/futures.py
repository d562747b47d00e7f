"""Results that come later (torch.futures), for code of one process."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]


T = TypeVar("T")


class Future(Generic[T]):
    """A value that somebody sets, and others wait for."""

    def __init__(self, *, devices: Any = None) -> None:
        self._inner: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether it was set, to a value or an exception."""
        return self._inner.done()

    def wait(self) -> Any:
        """The value, when it comes; raises the exception it was set to."""
        return self._inner.result()

    def value(self) -> Any:
        """The value that is there.  Raises RuntimeError when none is yet."""
        if not self.done():
            raise RuntimeError("Future: value() before it is set; wait() waits for it")
        return self._inner.result()

    def set_result(self, result: Any) -> None:
        """Sets the value.  Raises RuntimeError the second time."""
        self._once()
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Sets an exception, which `wait` raises."""
        self._once()
        self._inner.set_exception(result)

    def _once(self) -> None:
        if self.done():
            raise RuntimeError("Future can only be marked completed once")

    def then(self, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
        """A future of what ``callback(this)`` gives once this is done."""
        made: Future[Any] = Future()

        def run(_: Any) -> None:
            try:
                made.set_result(callback(self))
            except BaseException as error:
                made.set_exception(error)
        self._inner.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Callable[[Future[Any]], Any]) -> None:
        """Calls ``callback(this)`` once this is done."""
        self._inner.add_done_callback(lambda _: callback(self))


def collect_all(futures: list[Future[Any]]) -> Future[Any]:
    """A future of the list of futures, done when all of them are."""
    made: Future[Any] = Future()
    left = [len(futures)]
    if not futures:
        made.set_result([])

    def one(_: Future[Any]) -> None:
        left[0] -= 1
        if not left[0]:
            made.set_result(list(futures))
    for f in futures:
        f.add_done_callback(one)
    return made


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all, when they have come."""
    return [f.wait() for f in futures]
