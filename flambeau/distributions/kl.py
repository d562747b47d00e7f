"""Kullback-Leibler divergences: `kl_divergence`, and `register_kl` to add pairs."""

from __future__ import annotations

from collections.abc import Callable  # programs evaluate these annotations
from typing import Any, TypeVar

from .._core.errors import warn
from .distribution import Distribution

F = TypeVar("F")
__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Any] = {}
_found: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[F], F]:
    """A decorator: the function gives KL(p, q) of these classes, and of their subclasses where nothing fits better.

    Raises TypeError for what is no class.
    """
    for name, t in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(t, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {t}")

    def register(function: F) -> F:
        _KL_REGISTRY[type_p, type_q] = function
        _found.clear()
        return function
    return register


def _distance(cls: type, base: type) -> int:
    return cls.__mro__.index(base)


def _dispatch(type_p: type, type_q: type) -> Any:
    """The function of the nearest pair of base classes, that of p first; None without any."""
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return None
    by_p = min(matches, key=lambda m: (_distance(type_p, m[0]), _distance(type_q, m[1])))
    by_q = min(matches, key=lambda m: (_distance(type_q, m[1]), _distance(type_p, m[0])))
    if _KL_REGISTRY[by_p] is not _KL_REGISTRY[by_q]:
        warn(f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({by_p[0].__name__}, "
             f"{by_q[1].__name__})", RuntimeWarning)
    return _KL_REGISTRY[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """KL(p ‖ q) = E_p[log p(x) - log q(x)], one number a batch element.

    Raises NotImplementedError where no function is registered for the pair.
    """
    from . import kl_pairs  # noqa: F401 (registers the usual ones)
    key = type(p), type(q)
    if key not in _found:
        _found[key] = _dispatch(*key)
    function = _found[key]
    if function is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")
    return function(p, q)
