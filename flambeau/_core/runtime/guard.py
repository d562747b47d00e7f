"""The transfer guard: code that must not move data between devices can say so."""

from __future__ import annotations

import functools
import sys
from contextvars import ContextVar
from typing import Any

from .. import forks, hooks
from ..errors import TransferError
from . import asking, dispatch, provenance

DIRECTIONS = {"host_to_device": "h2d", "device_to_host": "d2h", "device_to_device": "peer"}
LEVELS = ("allow", "log", "disallow")
_rules: ContextVar[tuple[tuple[frozenset[str], str, bool], ...]] = ContextVar("transfer_guard", default=())
_open = _exempting = 0
_observer: Any = None
_noting: Any = None  # the interpreter that notes who asks
_lock = forks.lock()


class transfer_guard:
    """A ``with`` block, or decorator, in which copies between devices are allowed, logged or an error.

    level: "allow", "log" (a line on stderr for each) or "disallow" (TransferError, before anything is copied).
    direction: "host_to_device", "device_to_host", "device_to_device", or None for all three.  exempt_explicit: what the
    program writes out as `.to`, `.cuda`, `.cpu`, `.type` or `.copy_` (of tensors, modules, storages) is allowed all the
    same, so that only hidden copies count (item, printing, indexing, an operation's or this package's own).  An inner
    block's word counts; blocks hold for the thread that opened them.

    ``transfer_guard("disallow")`` and ``transfer_guard("host_to_device", "disallow")`` are both understood.
    """

    def __init__(self, direction: str | None = None, level: str | None = None, *, exempt_explicit: bool = False) -> None:
        if level is None and direction in LEVELS:
            direction, level = None, direction
        if level not in LEVELS:
            raise ValueError(f"transfer_guard: level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
        if direction is not None and direction not in DIRECTIONS:
            raise ValueError(f"transfer_guard: direction must be None or one of {', '.join(map(repr, DIRECTIONS))}, got {direction!r}")
        which = frozenset(DIRECTIONS.values()) if direction is None else frozenset((DIRECTIONS[direction],))
        self._rule = (which, level, exempt_explicit)
        self._tokens: list[Any] = []

    def __enter__(self) -> transfer_guard:
        global _open, _observer, _exempting, _noting
        self._tokens.append(_rules.set((*_rules.get(), self._rule)))
        with _lock:
            _open += 1
            if _observer is None:
                _observer = dispatch.observe(copies=_check)
            if self._rule[2]:
                _exempting += 1
                asking.listen(1)
                if _noting is None:
                    _noting = hooks.note_who_asks()
        return self

    def __exit__(self, *exc: object) -> None:
        global _open, _observer, _exempting, _noting
        _rules.reset(self._tokens.pop())
        with _lock:
            if self._rule[2]:
                _exempting -= 1
                asking.listen(-1)
                if not _exempting:
                    _noting.close()
                    _noting = None
            _open -= 1
            if not _open and _observer is not None:
                _observer.close()
                _observer = None

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            again = transfer_guard(None, "allow")
            again._rule = self._rule
            with again:
                return function(*args, **kwargs)
        return call


def _check(record: dispatch.Copy) -> None:
    rule = next((r for r in reversed(_rules.get()) if record.direction in r[0]), None)
    if rule is None or rule[1] == "allow" or (rule[2] and asking.asked.get()):
        return
    way = next(k for k, v in DIRECTIONS.items() if v == record.direction)
    text = f"{way.replace('_', '-')} copy of {record.nbytes} bytes, {record.source} to {record.target}, at {provenance.caller()}"
    if rule[1] == "log":
        print(f"flambeau: {text}", file=sys.stderr)
        return
    raise TransferError(f"transfer_guard: a {text} is not allowed here; move the tensor before the guarded block, or allow it with "
                        "transfer_guard('allow')")

