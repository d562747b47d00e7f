"""Lists and dictionaries that do not change: what a node's arguments are made of, so that a graph hears of each change of them."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"'{type(self).__name__}' object does not support mutation: to change the arguments of a torch.fx.Node, make a copy "
                    "(list(node.args[0]), dict(node.kwargs)), change that, and assign it to node.args or node.kwargs")


class immutable_list(list):  # type: ignore[type-arg]
    """A list whose methods that would change it raise TypeError."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict):  # type: ignore[type-arg]
    """A dictionary whose methods that would change it raise TypeError."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


__all__ = ["immutable_dict", "immutable_list"]
