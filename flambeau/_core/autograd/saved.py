"""Hooks on what operations keep for their gradients: `saved_tensors_hooks`, and `save_on_cpu` built from it.

While such hooks are set, the tensors in a node's SAVED are handed to the first of them as the node is recorded, and what it gives is kept
in their place; the node's BACKWARD is wrapped, so that the second gives the tensors back when they are needed.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import hooks
from ..runtime.asking import of_program, unasked
from ..tensor import Tensor, alias, wrap
from . import tape
from .mode import no_grad

if TYPE_CHECKING:
    from collections.abc import Callable

    Pair = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]

_pairs: ContextVar[tuple[Pair | str, ...]] = ContextVar("saved_tensors_hooks", default=())


class SavedTensor:
    """A tensor that a node keeps, as `grad_fn._raw_saved_...` shows it."""

    __slots__ = ("_name", "_node")
    _node: tape.Node
    _name: str | int  # of what a user's Function keeps, the number

    def __init__(self, *given: Any) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden")

    @staticmethod
    def of(node: tape.Node, name: str | int) -> SavedTensor:
        made: SavedTensor = object.__new__(SavedTensor)
        made._node, made._name = node, name
        return made

    def register_hooks(self, *given: Any) -> None:
        """``register_hooks(pack_hook, unpack_hook)`` has the node keep what the first makes of the tensor, and the second give it back.

        Raises RuntimeError where hooks were registered before, or the graph is freed; TypeError for what cannot be called with one argument."""
        from . import saved_names
        if len(given) != 2 or not all(map(callable, given)):
            raise TypeError(f"register_hooks(): incompatible function arguments: expected pack_hook and unpack_hook, which can be called, got {given}")
        node = self._node
        if tape.is_freed(node):
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are freed when you "
                               "call .backward() or autograd.grad().")
        kept = node[tape.SAVED][1] if isinstance(self._name, int) else None
        wanted = kept[self._name][0] if kept is not None else saved_names.find(node, unpacked(node[tape.SAVED]), str(self._name))
        if type(wanted) is Packed or (kept is None and _packed_within(node[tape.SAVED])):
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a "
                               "time.")
        if not isinstance(wanted, Tensor):
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if kept is not None:
            kept[self._name] = (Packed(wanted, given), *kept[self._name][1:])
            return
        name = tape.name_of(node)
        found = _packed(node[tape.SAVED], given, [wanted])
        if not isinstance(node[tape.BACKWARD], _Unpacking):
            node[tape.BACKWARD] = _Unpacking(node[tape.BACKWARD], name)
        node[tape.SAVED] = found
        node[tape.EXTRA] = {**(node[tape.EXTRA] or {}), "name": name}


class Packed:
    """What a hook made of a tensor, and the way back."""

    __slots__ = ("held", "unpack", "node", "version", "shares")

    def __init__(self, t: Tensor, pair: Pair) -> None:
        pack, self.unpack = pair
        self.node, self.version = t.node, t.store.version
        with no_grad():
            self.held = of_program(pack)(t.detach())
        self.shares = isinstance(self.held, Tensor) and self.held.store is t.store
        if t.store.version != self.version:
            raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
                               "modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need "
                               "to perform in-place operations on the input to a pack hook.")

    def tensor(self) -> Tensor:
        """The tensor, with the history it had.  Raises TypeError where the hook gives something else."""
        with no_grad():
            found = of_program(self.unpack)(self.held)
        if not isinstance(found, Tensor):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found).__name__}")
        if self.shares:
            made = alias(found, found.meta, found.ptr)
        else:  # other memory, as old as what was saved
            made = wrap(found.ptr, found.meta, found)
            made.store.version = self.version
        made.node = self.node
        return made


class _Unpacking:
    """A node's BACKWARD that first gets its saved tensors back."""

    __slots__ = ("backward", "grad_name")

    def __init__(self, backward: Any, name: str) -> None:
        self.backward, self.grad_name = backward, name

    def __call__(self, node: tape.Node, g: Any) -> Any:
        packed = node[tape.SAVED]
        node[tape.BACKWARD], node[tape.SAVED] = self.backward, unpacked(packed)
        try:
            return self.backward(node, g)
        finally:
            node[tape.BACKWARD], node[tape.SAVED] = self, packed


def _packed_within(x: Any) -> bool:
    """Whether hooks have made something of a tensor in x."""
    return any(map(_packed_within, x)) if type(x) is tuple or type(x) is list else type(x) is Packed


def _packed(x: Any, pair: Pair, only: list[Tensor] | None = None) -> Any:
    """x with a Packed for each tensor in it; x itself where there is none.  only: for the first that is this one, or of its layout and place; it is
    taken off the list."""
    if isinstance(x, Tensor) and only is not None:
        if not only or not (x.store is only[0].store and x.meta is only[0].meta and x.ptr == only[0].ptr):
            return x
        only.clear()
    if type(x) is tuple or type(x) is list:
        made = [_packed(y, pair, only) for y in x]
        return x if all(a is b for a, b in zip(made, x, strict=True)) else type(x)(made)
    return Packed(x, pair) if isinstance(x, Tensor) and hasattr(x, "ptr") else x


def packed(x: Any) -> Any:
    """x with what the hooks made of each tensor in it; x itself where there are none."""
    pair = active()
    return x if pair is None else _packed(x, pair)


def unpacked(x: Any) -> Any:
    """x with each tensor as it was."""
    if type(x) is tuple or type(x) is list:
        made = [unpacked(y) for y in x]
        return x if all(a is b for a, b in zip(made, x, strict=True)) else type(x)(made)
    return x.tensor() if type(x) is Packed else x


def active() -> Pair | None:
    """The innermost hooks of this thread; None where there are none, or none may run."""
    found = _pairs.get()
    return None if not found or isinstance(found[-1], str) else found[-1]


def disabled() -> str | None:
    """The message of the block in which hooks are disabled; None outside of one."""
    found = _pairs.get()
    return found[-1] if found and isinstance(found[-1], str) else None


def note(node: tape.Node) -> None:
    """Lets the hooks have what a new node has saved."""
    pair = active()
    if pair is None or node[tape.BACKWARD] in tape.reusable:
        return
    name = tape.name_of(node)
    saved = _packed(node[tape.SAVED], pair)
    if saved is not node[tape.SAVED]:
        node[tape.BACKWARD], node[tape.SAVED] = _Unpacking(node[tape.BACKWARD], name), saved
        node[tape.EXTRA] = {**(node[tape.EXTRA] or {}), "name": name}


class _Scope:
    def __init__(self, what: Pair | str) -> None:
        self._what, self._tokens = what, []  # type: tuple[Pair | str, list[Any]]

    def __enter__(self) -> None:
        found = _pairs.get()
        if found and isinstance(found[-1], str) and not isinstance(self._what, str):
            raise RuntimeError(found[-1])
        if found and isinstance(self._what, str) and not isinstance(found[-1], str):
            raise RuntimeError(self._what)
        self._tokens.append(_pairs.set((*found, self._what)))
        tape.anomaly.watch(note, 1)

    def __exit__(self, *exc: object) -> None:
        tape.anomaly.watch(note, -1)
        _pairs.reset(self._tokens.pop())


class saved_tensors_hooks(_Scope):
    """Within the block, `pack_hook(tensor)` gets each tensor that an operation saves for its gradient, and may give anything; later
    `unpack_hook` gets that and must give a tensor of the same values, shape and type.  Of nested blocks the innermost one's hooks run;
    they are this thread's alone, and run without recording."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        super().__init__((pack_hook, unpack_hook))


class disable_saved_tensors_hooks(_Scope):
    """Within the block no hooks run, and setting some raises RuntimeError with `error_message`."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)


class save_on_cpu(saved_tensors_hooks):
    """Within the block, what operations on a GPU save for their gradients waits in the host's memory, and comes back when it is needed.

    pin_memory: in pinned memory, so that the copies overlap with the device's work.  `device_type` is PyTorch's; only "cuda" has meaning.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(t: Tensor) -> Any:
            if t.meta.device.type == "cpu":
                return t.meta.device, t
            if not pin_memory:
                return t.meta.device, unasked(t.cpu)()
            kept = hooks.empty(t.meta.shape, dtype=t.meta.dtype, pin_memory=True)
            unasked(kept.copy_)(t, non_blocking=True)
            return t.meta.device, kept

        def unpack(held: Any) -> Tensor:
            to, t = held
            found: Tensor = unasked(t.to)(to, non_blocking=pin_memory)
            return found
        super().__init__(pack, unpack)
