"""Calls with sparse tensors, carried out on their parts by operations that the engine learns.

The indices and values of sparse tensors are ordinary tensors. `on_parts` hands those of a call's operands to an operation of its own, whose body puts
the sparse tensors together, makes the call, and gives the parts of what comes out: calls with parts of the same layouts are learned and replayed
like any others, and what Python read meanwhile, such as how many elements are not 0, is a condition.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from ..engine import fields
from ..engine.fronts import constant
from ..engine.operation import Operation
from ..engine.plans import Unbound
from ..runtime import caches, capture
from ..tensor import Tensor
from . import compressed
from .sparse import Coo, Sparse, make
from .unsupported import first, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST = 4096
_FIELD = fields.of("sparse")
_recipes: dict[Any, int] = {}  # by the form's name, and of each argument what its parts do not tell
_runs: dict[Any, tuple[Callable[..., Any], int]] = caches.cache(globals(), "_runs")  # what is learned, by a call's own key, and the number of its recipe
_steps: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}  # by number, none of which comes again: a form, and how each argument is put together
_numbers = itertools.count()
_operations: dict[str, Operation] = {}
caches.on_forget(_recipes.clear)


def on_parts(name: str, form: Callable[..., Any], args: Sequence[Any]) -> Any:
    """``form(*args)``, of tensors, sparse ones, lists of them, and constants; name: of the form, which tells it from others."""
    if capture.now.watched:
        return form(*args)
    parts: list[Tensor] = []
    key: list[Any] = [name]
    try:
        _take(args, parts, key)
        at = tuple(key)
        found = _runs.get(at)
    except TypeError:  # an argument that is in no key
        return form(*args)
    made = _first(name, form, args, parts, at) if found is None else found[0](parts, found[1])
    if made.__class__ is tuple:
        kind, known, shape, *indices, values = made
        return make(_KINDS[kind], tuple(indices), values, shape, known)
    return made


def _take(args: Sequence[Any], parts: list[Tensor], key: list[Any]) -> None:
    """Adds the tensors that arguments are made of to `parts`, and what is to be known of them to `key`.  Raises TypeError where that is in no key."""
    for a in args:
        if isinstance(a, Sparse):
            held = a.__dict__
            indices, values = held["_parts"]
            key += a.meta, held["_known"], values.meta
            for i in indices:
                parts.append(i)
                key.append(i.meta)
            parts.append(values)
        elif isinstance(a, Tensor):
            parts.append(a)
            key += None, a.meta
        elif a.__class__ is list or a.__class__ is tuple:
            key += a.__class__, len(a)
            _take(a, parts, key)
        else:
            key += "constant", constant(a)


def _told(a: Any) -> tuple[Any, ...]:
    """What an argument is besides its parts; for a constant, what stands for it in a key."""
    if isinstance(a, Sparse):
        return type(a), len(a.__dict__["_parts"][0]), a.meta.shape, a.__dict__["_known"]
    if isinstance(a, Tensor):
        return (Tensor,)
    if a.__class__ is list or a.__class__ is tuple:
        return a.__class__, tuple([_told(x) for x in a])
    return None, constant(a)


def _how(told: tuple[Any, ...], a: Any) -> tuple[Any, ...]:
    """The same, with the constant itself: how the argument is put together again."""
    if told[0] is None:
        return None, a
    return (told[0], tuple([_how(t, x) for t, x in zip(told[1], a, strict=True)])) if told[0] in (list, tuple) else told


def _first(name: str, form: Callable[..., Any], args: Sequence[Any], parts: list[Tensor], at: tuple[Any, ...]) -> Any:
    """A call by the form's operation, which counts and learns it; once it is learned, its run is found by the call's own key."""
    for p in parts:
        if not p.meta.plain:
            return form(*args)
    epoch = caches.epoch
    told = tuple([_told(a) for a in args])
    found = _recipes.get((name, told))
    if found is None:
        if len(_steps) > _MOST:
            _recipes.clear()
            for old in list(_steps)[:_MOST // 2]:  # not those of calls that are being made
                _steps.pop(old, None)
        found = next(_numbers)
        _steps[found] = form, tuple([_how(t, a) for t, a in zip(told, args, strict=True)])
        _recipes[name, told] = found
        if name not in _operations:
            _operations[name] = Operation(f"sparse.{name}", _carry_out, shown=f"sparse_{name}")
    operation = _operations[name]
    made = operation.function(parts, found)
    learner = operation.learner
    run = None if learner is None else operation.env["plans"].get(learner.key((parts, found)))
    if run is not None and type(run) is not Unbound:
        caches.keep_since(epoch, _runs, at, (run, found))
    return made


def _carry_out(parts: list[Tensor], recipe: int) -> Any:
    """The call of a recipe on parts; a sparse result as a tuple: its kind, whether it is coalesced, its shape, its parts."""
    form, how = _steps[recipe]
    rest = iter(parts)
    made = form(*[_together(x, rest) for x in how])
    if isinstance(made, Sparse):
        indices, values = made.__dict__["_parts"]
        return type(made).__name__, made.__dict__["_known"], made.meta.shape, *indices, values
    return made


def _together(how: tuple[Any, ...], parts: Iterator[Tensor]) -> Any:
    """An argument, of the next parts."""
    kind = how[0]
    if kind is None:
        return how[1]
    if kind is Tensor:
        return next(parts)
    if kind is list or kind is tuple:
        return kind([_together(x, parts) for x in how[1]])
    _, count, shape, known = how
    indices = tuple([next(parts) for _ in range(count)])
    return make(kind, indices, next(parts), shape, known)


def answer(operation: Operation, values: tuple[Any, ...], out: Any = None) -> Any:
    """A call of an operation with sparse operands, by its form for them; calls with the same layouts are then found by the operation itself.
    NotImplemented for one that is made of others.  Raises Unsupported for one that has no form."""
    from .sparse_ops import form_of, into
    name, learner = operation.name, operation.learner
    args, kwargs = operation._signature().as_written(values)
    if out is not None:
        return into(name, out, operation.function(*args, **kwargs))
    form = form_of(name)
    if form is None:
        if _FIELD.get(name) == "composite":
            return NotImplemented
        raise refusal(name, first((args, kwargs)).layout)
    if kwargs or name[-1] == "_":
        return form(*args, **kwargs)
    since, made = caches.epoch, on_parts(name, form, args)
    if learner is not None and not operation.planned:
        with contextlib.suppress(AttributeError, TypeError, RuntimeError, ValueError):  # arguments that are in no key
            caches.keep_since(since, operation.env["plans"], learner.key(values), _again(name, form, args, learner.passed))
    return made


def _again(name: str, form: Callable[..., Any], args: Sequence[Any], passed: Sequence[int]) -> Callable[..., Any]:
    """What carries out such a call on other operands; passed: the places of what it is given, which are arguments or have their defaults."""
    count = len(args)
    if passed[:count] == tuple(range(count)):
        return lambda *given: on_parts(name, form, given[:count])
    rest = {i: k for k, i in enumerate(passed) if i < count}
    return lambda *given: on_parts(name, form, [given[rest[i]] if i in rest else a for i, a in enumerate(args)])


_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Coo, compressed.Csr, compressed.Csc, compressed.Bsr, compressed.Bsc)}
