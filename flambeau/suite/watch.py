"""What is seen of a test beside its outcome: waits that its text does not show, and device memory that it keeps."""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.drivers.simulated.driver import SimulatedDriver
from .._core.runtime import caches, dispatch, gpus, provenance
from .._core.tensor import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watch:
    """Watches one test after another.

    waits: (line, device, reason): how often, and in which tests.  `own_files` are those of the tests, whose waits are their asserts.
    """

    def __init__(self) -> None:
        self.waits: dict[tuple[str, str, str], dict[str, int]] = {}
        self.own_files: set[str] = set()
        self.test = ""
        self._known: weakref.WeakSet[Storage] = weakref.WeakSet()
        self._kept: dict[str, list[weakref.ref[Storage]]] = {}
        self._before = 0
        self._observer = dispatch.observe(None, None, self._wait)

    def _wait(self, wait: dispatch.Wait) -> None:
        line = provenance.caller()
        if line is None or not self.test:
            return
        path = Path(line.rpartition(":")[0])
        if str(path) in self.own_files or path.name == "conftest.py" or "_pytest" in path.parts:  # asserts, and how pytest shows a failure
            return
        tests = self.waits.setdefault((line, str(wait.device), wait.reason), {})
        tests[self.test] = tests.get(self.test, 0) + 1

    def begin(self, test: str) -> None:
        """A test begins."""
        self.test, self._before = test, _allocated()

    def end(self) -> None:
        """It is over, its fixtures too."""
        test, self.test = self.test, ""
        if _allocated() <= self._before:
            return
        gc.collect()
        if _allocated() > self._before:
            new = [s for s in living() if s not in self._known]
            self._known.update(new)
            self._kept.setdefault(test, []).extend(weakref.ref(s) for s in new)

    def settle(self) -> None:
        """What lives now is nobody's leak: modules of tests may make tensors when they are imported."""
        self._known.update(living())

    def leaks(self) -> dict[str, list[tuple[str, int]]]:
        """By test, the device and bytes of each block that it began and that still lives, after the last fixture is gone."""
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # errors hold their frames' tensors
            vars(sys).pop(name, None)
        caches.forget()  # plans may hold a constant's tensor
        gc.collect()
        found = {}
        for test, refs in self._kept.items():
            held = [(str(s.meta.device), s.meta.nbytes) for s in [r() for r in refs] if s is not None]
            if held:
                found[test] = held
        return found

    def close(self) -> None:
        """Sees no more."""
        self._observer.close()


def living() -> list[Storage]:
    """All storages on GPUs."""
    # those of traces have no memory
    return [o for o in gc.get_objects() if type(o) is Storage and hasattr(o, "meta") and o.meta.device.type == "cuda" and type(o.ptr) is int]


def _allocated() -> int:
    system = gpus._system  # not `gpus.system()`: asking must not make one
    return 0 if system is None else sum(g.pool.current("allocated_bytes") for g in system.gpus)


@contextmanager
def in_order() -> Iterator[None]:
    """Within the block, simulated GPUs do each piece of work before the call that queues it returns, whatever their queues are else."""
    driver = gpus.start().driver
    assert isinstance(driver, SimulatedDriver)
    driver.prompt = True
    try:
        yield
    finally:
        driver.prompt = False
