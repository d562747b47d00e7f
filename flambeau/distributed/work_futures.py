"""Futures of collectives, which wait for them when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..futures import Future

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .collectives import Work


class _Later(Future[Any]):
    """A value that is worked out when it is first waited for."""

    def __init__(self, make: Callable[[], Any], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._make, self._ready = make, ready

    def done(self) -> bool:
        return super().done() or (self._ready() and (self.wait(), True)[1])

    def wait(self) -> Any:
        if not self._inner.done():
            try:
                self._inner.set_result(self._make())
            except BaseException as error:
                self._inner.set_exception(error)
        return super().wait()

    def value(self) -> Any:
        return self.wait()

    def then(self, callback: Callable[[Future[Any]], Any]) -> Future[Any]:
        def make() -> Any:
            self.wait()
            return callback(self)
        return _Later(make, self._ready)


def of_works(works: Sequence[Work], result: Any) -> Future[Any]:
    """The future of several collectives, whose value is `result`."""
    def make() -> Any:
        for work in works:
            work.wait()
        return result
    return _Later(make, lambda: all(work.is_completed() for work in works))


def of_work(work: Work) -> Future[Any]:
    """The future of a collective's result."""
    def make() -> Any:
        work.wait()
        return work.result()
    return _Later(make, work.is_completed)
