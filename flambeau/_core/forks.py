"""What a forked process needs: locks that nobody holds, and no import that is half done.

A child of `fork` has one thread, the one that forked.  A lock that another thread held is never released there, and a module that another
thread was importing is never finished, so both would be waited for without end.
"""

from __future__ import annotations

import _imp
import os
import signal
import threading
import time
import weakref
from importlib import _bootstrap
from typing import Any

_OURS = 30.0  # seconds that a fork waits for an import that this package began or needs
_SOON = 0.01  # seconds after a fork until an interrupt comes that fell into it
_OTHERS = 1.0  # and for any other: a program may run for hours inside an import of its own
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_waited_for: set[str] = set()  # imports that took longer: no fork waits for them again
_free: list[Any] = []  # locks that a fork takes
_here = threading.local()
_MODULE_LOCKS: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})  # weak references to the locks of modules that are being imported


def lock(free: bool = False) -> Any:
    """A lock that no child finds held by a thread that it has not.  Whoever holds it may take it again: a finalizer runs wherever Python collects
    garbage, so also in here, and one that computes comes to the same locks.

    free: no other thread may hold it at a fork: what it guards has locks that are not ours.  A fork waits some seconds for that.
    """
    made = _kept(threading.RLock())
    if free:
        _free.append(made)
    return made


def once() -> Any:
    """One that a thread which holds it does not get again, for who asks without waiting whether anybody is at work, itself included."""
    return _kept(threading.Lock())


def _kept(made: Any) -> Any:
    _locks.add(made)
    return made


def _importing() -> set[str]:
    """The modules that other threads are importing at this moment."""
    me = threading.get_ident()
    # a copy in one call: the table changes beneath us
    found = [(name, reference()) for name, reference in list(_MODULE_LOCKS.items())]
    return {name for name, held in found if getattr(held, "owner", None) not in (None, me)}


def _hold() -> None:
    """From now on a Ctrl-C is noted: Python ignores what is raised in a function that it calls at a fork, and the interrupt would be lost."""
    if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
        _here.noted = False
        _here.handler = signal.signal(signal.SIGINT, _note)


def _note(*signalled: Any) -> None:
    _here.noted = True


def _release(parent: bool) -> None:
    """Ctrl-C does again what it did, and one that was noted comes once the fork is over; in the child not one from before it, which is the parent's."""
    handler = _here.__dict__.pop("handler", None)
    if handler is not None:
        signal.signal(signal.SIGINT, handler)
        if _here.__dict__.pop("noted", False) and (parent or not _here.earlier):
            # by a thread of its own, since it would otherwise come while Python still calls functions such as this
            again = threading.Timer(_SOON, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
            again.daemon = True
            again.start()


def _before() -> None:
    """Waits until no other thread is importing, and lets none begin before the fork is made.  Takes the locks that must be free."""
    _hold()
    taken = _here.taken = []
    asked: list[Any] = []
    began = time.monotonic()
    while True:
        for each in list(_free):  # a module may have ended its import meanwhile, and made one
            if each not in asked:
                asked.append(each)
                if each.acquire(timeout=_OURS):
                    taken.append(each)
                began = time.monotonic()  # imports have a time of their own
        time.sleep(0)  # a turn of one's own just begins: no other thread runs between the look below and the fork
        _imp.acquire_lock()  # without it no thread gets at the lock of a module
        try:
            names = _importing() - _waited_for
        except BaseException:
            _imp.release_lock()
            raise
        waited = time.monotonic() - began
        late = {n for n in names if waited > (_OURS if n.partition(".")[0] in _NEEDED else _OTHERS)}
        if names <= late or _here.__dict__.get("noted"):
            _waited_for.update(late)
            _here.holds = True
            _here.earlier = _here.__dict__.get("noted")
            return
        _imp.release_lock()
        time.sleep(0.001)


_NEEDED = frozenset((__name__.partition(".")[0], "numpy", "llvmlite", "ctypes", "importlib", "inspect", "platform", "warnings"))


def _after(parent: bool = True) -> None:
    if getattr(_here, "holds", False):
        _here.holds = False
        _imp.release_lock()
    for each in _here.__dict__.pop("taken", ()):
        each.release()
    _release(parent)


def _in_child() -> None:
    _after(parent=False)
    for each in list(_locks):
        owned = getattr(each, "_is_owned", None)
        if owned is None or not owned():
            each._at_fork_reinit()


# first of all hooks of this package, so that of its hooks before a fork this is the last
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
