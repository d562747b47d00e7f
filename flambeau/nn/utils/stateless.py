"""A module called with other parameters and buffers than its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def functional_call(module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in the place of its parameters and buffers.

    Args:
        parameters_and_buffers: a dict from dotted names to tensors, or a tuple of such dicts.
        args: the arguments, a tuple or a single one.
        tie_weights: give a value to every name that shares one parameter.
        strict: raise RuntimeError unless exactly the module's names are given.

    The module is as before afterwards.  Raises ValueError for different values of tied names.
    """
    given: dict[str, Any] = {}
    for part in (parameters_and_buffers if isinstance(parameters_and_buffers, (tuple, list)) else (parameters_and_buffers,)):
        if not isinstance(part, dict):
            raise ValueError(f"Expected parameters_and_buffers to be a dict, or a list/tuple of dicts, but got {type(part)}")
        twice = given.keys() & part.keys()
        if twice:
            raise ValueError(f"{sorted(twice)[0]} appears in multiple dictionaries; behavior of functional call is ambiguous")
        given.update(part)
    places = {name: (store, key) for name, store, key in _places(module)}
    if strict:
        missing, unexpected = places.keys() - given.keys(), given.keys() - places.keys()
        if tie_weights:
            held = {id(places[n][0][places[n][1]]) for n in given.keys() & places.keys()}
            missing = {n for n in missing if id(places[n][0][places[n][1]]) not in held}
        problems = [f"{what} key(s): {', '.join(sorted(names))}." for what, names in (("Unexpected", unexpected), ("Missing", missing)) if names]
        if problems:
            raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    if tie_weights:
        given = _tied(places, given)
    arguments = () if args is None else tuple(args) if isinstance(args, tuple) else (args,)
    with _in_place_of(places, given):
        return module(*arguments, **(kwargs or {}))


@contextmanager
def _in_place_of(places: dict[str, tuple[Any, str]], given: dict[str, Any]) -> Iterator[None]:
    """Within the block, the named tensors stand in the places of a module's; names that it has not are left out."""
    kept: list[tuple[Any, str, Any]] = []
    try:
        for name, value in given.items():
            if name in places:
                store, key = places[name]
                kept.append((store, key, store[key]))
                store[key] = value
        yield
    finally:
        for store, key, value in reversed(kept):
            store[key] = value


@contextmanager
def _reparametrize_module(module: Any, parameters_and_buffers: dict[str, Any], *, tie_weights: bool = False, strict: bool = False,
                          stack_weights: bool = False) -> Iterator[None]:
    """Within the block, the module has other parameters and buffers than its own.  The arguments are those of `functional_call`."""
    places = {name: (store, key) for name, store, key in _places(module)}
    if strict and places.keys() != parameters_and_buffers.keys():
        raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}: the names given are not exactly the module's: "
                           f"{sorted(places.keys() ^ parameters_and_buffers.keys())}")
    with _in_place_of(places, _tied(places, parameters_and_buffers) if tie_weights else parameters_and_buffers):
        yield


def _places(module: Any) -> Any:
    """Every parameter and buffer: its dotted name, the dict that holds it, its key there."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        for store in (part._parameters, part._buffers):
            for key, value in store.items():
                if value is not None:
                    yield (prefix + "." if prefix else "") + key, store, key


def _tied(places: dict[str, tuple[Any, str]], given: dict[str, Any]) -> dict[str, Any]:
    """With the names that share a parameter with a given one."""
    groups: dict[int, list[str]] = {}
    for name, (store, key) in places.items():
        groups.setdefault(id(store[key]), []).append(name)
    out = dict(given)
    for names in groups.values():
        values = [given[n] for n in names if n in given]
        if not values or len(names) == 1:
            continue
        if any(v is not values[0] for v in values):
            raise ValueError(f"functional_call got multiple values for keys {names}, which are tied. Consider using tie_weights=False")
        out.update(dict.fromkeys(names, values[0]))
    return out
