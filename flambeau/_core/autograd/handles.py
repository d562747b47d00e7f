"""What registering a hook gives, of a tensor, of a node of the graph and of a module: the handle that takes it away again."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any


class RemovableHandle:
    """What a `register_*_hook` gives back: `remove()` takes the hook away, and so does leaving a `with` over it.

    hooks_dict: where the hook is to stand under the handle's `id`: an OrderedDict, which can be referred to weakly, since a handle must not keep
    what is hooked alive.  extra_dict: others that hold something of that id, or a list of them.
    """

    next_id = 0

    def __init__(self, hooks_dict: dict[int, Any], *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self) -> None:
        """Removes the hook; doing it twice does no harm."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.remove()


def register(hooks: dict[Any, Any], hook: Any) -> RemovableHandle:
    """Puts a hook behind the others of an OrderedDict."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def among(extra: dict[str, Any], name: str) -> dict[Any, Any]:
    """The hooks of a kind that a node's EXTRA holds, in the order in which they are called."""
    found: dict[Any, Any] = extra.setdefault(name, OrderedDict())
    return found
