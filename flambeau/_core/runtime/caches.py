"""The engine's plan caches: one registry, one epoch, three worlds, and a dictionary for each default type.

A plan holds bound launches and interned metas. Both can become stale: devices change, backend flags change, metas are dropped.
Every cache of plans is made here, so that `forget()` empties all of them at once.

A cache is a plain dictionary that a module (or a public function) reads as a global variable. While somebody observes launches,
the variable holds another dictionary, that of the observed world, whose plans were bound past the observers. Entering and leaving
that world changes variables only: nothing is planned again, and while nobody observes nothing is paid. The default type of floating
point numbers is in few keys and decides the types of many results, so another one has dictionaries of its own too.  A third world is that of
calls which are made for their launches only, of which none is carried out (`capture`): what is planned there is dropped when it ends, since it
may hold a tensor that nothing was written to.

A long process has many thousand caches, most of them empty. So a dictionary that nothing was put into is shown in every world, and what changes, or
is emptied, are those that were filled: it belongs to the world in which that happens. The functions here alone fill one, therefore.
"""

from __future__ import annotations

from collections import deque
from functools import wraps
from itertools import count, starmap
from operator import call, getitem, setitem
from typing import TYPE_CHECKING, Any, TypeVar

from .. import dtypes, forks
from . import versions

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

PLAIN, OBSERVED, DRY = 0, 1, 2
MOST = 1 << 14  # plans in one dictionary; a program whose shapes never repeat starts over

_lock = forks.lock()
# of each cache the namespace that it is a variable of, and the variable's name
_spaces: list[dict[str, Any]] = []
_names: list[str] = []
_numbers_of: dict[tuple[int, str], int] = {}  # a cache's place in those, by the identity of its namespace and its name
_shown: dict[int, int] = {}  # the same by the identity of the dictionary that it shows
_filled: set[int] = set()  # the caches whose dictionaries hold plans of this world and default type
# the dictionaries of the others, of caches that were filled there
_away: dict[tuple[int, Any], dict[int, dict[Any, Any]]] = {}
world = PLAIN  # the one that caches show now
_default: Any = dtypes.get_default_dtype()  # the default type under which they show it
renewed = 0  # how often all caches were emptied
epoch = 0  # how often what is bound became stale; who keeps a bound launch elsewhere than in a cache compares this
_then: list[Callable[[], None]] = []


def cache(space: dict[str, Any], name: str) -> dict[Any, Any]:
    """A new cache, kept as the variable `name` of the namespace `space` (a module's `globals()`). Read it by that name only."""
    with _lock:
        made: dict[Any, Any] = {}
        number = _numbers_of[id(space), name] = _shown[id(made)] = len(_spaces)
        _spaces.append(space)
        _names.append(name)
        _filled.discard(number)
        space[name] = made
    return made


def keep_since(since: int, cached: dict[Any, Any], key: Any, plan: Any, most: int | None = None) -> None:
    """Puts a plan into a cache, which starts over when `most` (`MOST`) are in it.

    since: the epoch in which the plan was begun; where that has ended, the plan is not kept: what it binds may have become stale, or belong to the other
    world.  Another thread may end an epoch at any moment, so the epoch is read before anything is bound, and the cache's variable after it.
    """
    with _lock:
        if epoch == since:
            if len(cached) >= (most or MOST):
                cached.clear()
            cached[key] = plan
            number = _shown.get(id(cached))
            if number is not None:
                _filled.add(number)


def put(renewals: int, default: Any, space: dict[str, Any], name: str, key: Any, plan: Any) -> None:
    """Puts what binds nothing but the plain world's launches into that world's dictionary of a default type, whichever is shown, unless all were
    emptied since they had been so often (`renewed`)."""
    with _lock:
        if renewed == renewals:
            number = _numbers_of[id(space), name]
            if world == PLAIN and default is _default:
                cached = space[name]
                _filled.add(number)
            else:
                cached = _away.setdefault((PLAIN, default), {}).setdefault(number, {})
            if len(cached) >= MOST:
                cached.clear()
            cached[key] = plan


def replace(cached: dict[Any, Any], key: Any, since: int, old: Any, plan: Any) -> None:
    """Puts a plan into the place of another, unless that is not there any more or the epoch is no longer `since`."""
    with _lock:
        if epoch == since and cached.get(key) is old:
            cached[key] = plan


_kept: dict[str, Any] = {}
cache(_kept, "plans")  # of all functions that are kept, by their numbers: one variable to change, however many they are
_numbers = count()


def kept(f: F) -> F:
    """A function of layouts and constants whose results are plans: each is kept by the arguments until the epoch ends."""
    number = next(_numbers)

    @wraps(f)
    def find(*args: Any) -> Any:
        try:
            return _kept["plans"][number][args]
        except KeyError:
            since = epoch
        except TypeError:  # what has no hash is no layout and no number: f says so
            return f(*args)
        with versions.tracked():  # it outlives inference mode
            made = f(*args)
        with _lock:  # which is re-entrant
            if epoch == since:
                plans = _kept["plans"]
                mine = plans.get(number)
                if mine is None:
                    keep_since(since, plans, number, mine := {})
                keep_since(since, mine, args, made)  # a finalizer may have ended the epoch in between
        return made
    return find  # type: ignore[return-value]


def enter(to: int) -> None:
    """Makes every cache show its dictionary of a world."""
    _show(to, _default)


def _of_default(d: Any) -> None:
    _show(world, d)


dtypes.on_default.append(_of_default)


def _show(to: int, default: Any) -> None:
    with _lock:
        if to != world or default is not _default:
            filled = list(_filled)
            here = dict(zip(filled, map(getitem, map(_spaces.__getitem__, filled), map(_names.__getitem__, filled)), strict=True))
            there = _away.get((to, default), {})
            shown = dict.fromkeys(here)
            shown.update(there)
            # loops in C
            spaces, names = list(map(_spaces.__getitem__, shown)), list(map(_names.__getitem__, shown))
            cached = [{} if x is None else x for x in shown.values()]
            before = list(map(id, map(getitem, spaces, names)))
            # all of it, or nothing: within a call of C no handler of a signal runs, whose exception would leave caches of two worlds
            deque(starmap(call, [
                (_away.__setitem__, (world, _default), here), (_away.pop, (to, default), None),
                (globals().update, {"world": to, "_default": default, "epoch": epoch + 1}),
                (deque, map(_shown.__delitem__, before), 0), (deque, map(setitem, spaces, names, cached), 0),
                (_shown.update, zip(map(id, cached), shown, strict=True)), (_filled.clear,), (_filled.update, there)]), 0)


def observed() -> bool:
    """Whether somebody observes launches."""
    return world != PLAIN


def drop(of: int) -> None:
    """Empties all dictionaries of a world."""
    with _lock:
        for key in [key for key in _away if key[0] == of]:
            del _away[key]
        if world == of:
            _empty()


def _empty() -> None:
    for n in _filled:
        _spaces[n][_names[n]].clear()
    _filled.clear()


def forget() -> None:
    """The next epoch: empties every cache, in all worlds."""
    global epoch, renewed
    with _lock:
        epoch, renewed = epoch + 1, renewed + 1
        _empty()
        for away in _away.values():
            for cached in away.values():
                cached.clear()
        _away.clear()
        for clear in _then:
            clear()


def on_forget(clear: Callable[[], None]) -> None:
    """Registers what else holds bound launches and must let go of them."""
    _then.append(clear)
