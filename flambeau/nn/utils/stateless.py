"""A module called with other parameters and buffers than its own."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._named_member_accessor import NamedMemberAccessor

if TYPE_CHECKING:
    from collections.abc import Iterator


def functional_call(module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """`torch.func.functional_call`, which is its name today, with a FutureWarning that says so."""
    warnings.warn("`torch.nn.utils.stateless.functional_call` is deprecated: use `torch.func.functional_call`, which takes the same arguments",
                  FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(module: Any, parameters_and_buffers: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True,
                     strict: bool = False) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in the place of its parameters and buffers.

    Args:
        parameters_and_buffers: a dict from dotted names to tensors or None; what the call assigns to these names is found here afterwards.
        args: the arguments, a tuple or a single one.
        tie_weights: give a value to every name that shares one parameter.
        strict: raise RuntimeError unless exactly the module's names are given.  Otherwise attributes may be named that the module lacks.

    The module is as before afterwards.  Raises ValueError for different values of tied names, TypeError for what is no tensor.
    """
    arguments = () if args is None else tuple(args) if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*arguments, **(kwargs or {}))


@contextmanager
def _reparametrize_module(module: Any, parameters_and_buffers: dict[str, Any], *, tie_weights: bool = False, strict: bool = False,
                          stack_weights: bool = False) -> Iterator[None]:
    """Within the block, the module has other parameters and buffers than its own.  The arguments are those of `functional_call`; `stack_weights`
    puts the tensors back in the opposite order."""
    members = NamedMemberAccessor(module)
    given = _tied(members, parameters_and_buffers) if tie_weights else parameters_and_buffers
    if strict:
        missing, unexpected = members.check_keys(given)
        problems = [f"{what} key(s): {', '.join(map(repr, names))}." for what, names in (("Unexpected", unexpected), ("Missing", missing)) if names]
        if problems:
            raise RuntimeError(f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(problems))
    before, _ = members.swap_tensors_dict(given, allow_missing=True)
    try:
        yield
    finally:
        after, _ = members.swap_tensors_dict(dict(reversed(before.items())) if stack_weights else before, allow_missing=True)
        parameters_and_buffers.update({name: after[name] for name in parameters_and_buffers})


def _tied(members: NamedMemberAccessor, given: dict[str, Any]) -> dict[str, Any]:
    """With the names that share a parameter with a given one."""
    groups: dict[int, list[str]] = {}
    for name, value in members.named_tensors(remove_duplicate=False):
        groups.setdefault(id(value), []).append(name)
    out = dict(given)
    for names in groups.values():
        named = sorted(n for n in names if n in given)
        if not named or len(names) == 1:
            continue
        if any(given[n] is not given[named[0]] for n in named):
            raise ValueError(f"functional_call got multiple values for keys {named}, which are tied. Consider using tie_weights=False")
        out.update(dict.fromkeys(names, given[named[0]]))
    return out
