"""`capture`: a function captured once for each layout of its arguments, and replayed without Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import Lock
from typing import Any

from .. import collector
from ..runtime import capture as captures
from ..runtime import dispatch
from ..runtime.device import CPU, device
from ..tensor import Tensor
from . import trees
from .check import State, Watched, compare
from .passes import shortened
from .record import Recording, Refused
from .replay import Planned, Shown, bind

_MOST = 64  # layouts


def recorded(work: Callable[[], Any], recording: Recording) -> tuple[Any, list[Shown]]:
    """What `work` asks for while it is carried out, and what it gives: a tree, and its tensors. Raises RuntimeError, with the user's line, where it
    cannot be replayed."""
    try:
        with collector.held(), recording:  # what is collected meanwhile would be given out again, and not be known as free
            found: list[Tensor] = []
            tree = trees.taken(work(), found)
            if recording.others:
                raise Refused("another thread launches work meanwhile")
    except Refused as refused:
        raise RuntimeError(f"capture: {refused.why}" + (f" (at {refused.line})" if refused.line else "")) from None
    shown = []
    for t in found:
        if not t.meta.plain:
            raise RuntimeError(f"capture: a result of class {type(t).__name__}, which is not a plain tensor")
        shown.append(Shown(t.store, t.meta, t.ptr))
    return tree, shown


def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Tensor]]:
    """What a function is called with: a tree, and the tensors in it. Raises RuntimeError for a tensor that no record takes."""
    tensors: list[Tensor] = []
    tree = trees.taken((args, kwargs), tensors)
    for i, t in enumerate(tensors):
        if t.node is not None:
            raise RuntimeError(f"capture: tensor {i} among the arguments requires grad; pass it detached, and call requires_grad_() inside")
        if not t.meta.plain or t.meta.device.type not in ("cpu", "cuda") or t.meta.device != tensors[0].meta.device:
            raise RuntimeError(f"capture: tensor {i} among the arguments is a {type(t).__name__} on {t.meta.device}; only plain tensors, all on the CPU or "
                               "all on one GPU, are taken")
    return tree, tensors


def on_gpu(work: Callable[[list[Tensor]], Any], tensors: list[Tensor], dev: device) -> Callable[..., Any]:
    """The same for a GPU."""
    from .captured_gpu import GpuCaptured
    with collector.held():
        return GpuCaptured(work, tensors, dev)


def _tensor(r: Shown) -> Tensor:
    t: Tensor = object.__new__(Tensor)
    t.meta, t.store, t.ptr, t.node, t.base = r.meta, r.store, r.ptr, None, None
    return t


class Captured:
    """What `capture` gives: call it as the function.  `records`: what was captured, by layout."""

    def __init__(self, f: Callable[..., Any], check: bool = False) -> None:
        if not callable(f):
            raise TypeError(f"capture: expected a function, got {type(f).__name__}")
        functools.update_wrapper(self, f, updated=())
        self._f, self._check = f, check
        self._found: dict[Any, Callable[..., Any]] = {}
        self._warm: dict[Any, device] = {}  # where each kind of call works
        self._lock = Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and not self._check:
            try:
                found = self._found[tuple([a.meta for a in args])]
            except (KeyError, AttributeError, TypeError):
                pass
            else:
                return found(*args)
        return self._slow(args, kwargs)

    @property
    def records(self) -> list[Planned]:
        return [f.plan for f in self._found.values() if hasattr(f, "plan")]

    def reset(self) -> None:
        """Forgets what was captured."""
        self._found.clear()
        self._warm.clear()

    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tree, tensors = given(args, kwargs)
        plain = not kwargs and len(tensors) == len(args)
        # constants are compared by value, so they must have a hash
        key: Any = tuple([t.meta for t in tensors]) if plain else (trees.key(tree), *[t.meta for t in tensors])
        found = self._found.get(key)
        if found is not None and not self._check:
            return found(*tensors)
        if key not in self._warm:  # what is made at the first call, such as an optimizer's state, is not part of the step
            if tensors:
                made = self._f(*args, **kwargs)
                self._warm[key] = tensors[0].meta.device
            else:
                seen: set[device] = set()
                with dispatch.observe(lambda dev, *launch: seen.add(dev)):
                    made = self._f(*args, **kwargs)
                self._warm[key] = seen.pop() if len(seen) == 1 else CPU
            return made
        if captures.active:
            return self._f(*args, **kwargs)
        if len({id(t.store) for t in tensors}) < len(tensors):
            raise RuntimeError("capture: two of the arguments share memory")
        with self._lock:
            if len(self._found) >= _MOST:
                self._found.clear()
            where = self._warm[key]
            if where.type == "cuda":
                if self._check:
                    raise RuntimeError("capture: check=True holds launches of the CPU against the function; these are a GPU's")

                def work(those: list[Tensor]) -> Any:
                    again, named = trees.put(tree, those.__getitem__)
                    return self._f(*again, **named)
                made = self._found[key] = on_gpu(work, tensors, where)
                return made(*tensors)
            return self._captured(key, tensors, lambda: self._f(*args, **kwargs), found)

    def _captured(self, key: Any, tensors: list[Tensor], work: Callable[[], Any], before: Any) -> Any:
        """What the function gives while it is captured.  before: what was captured earlier, which is held against that."""
        recording = Watched() if self._check else Recording()
        held = None if before is None else State(before.plan, tensors)
        tree, shown = recorded(work, recording)
        if held is not None:
            after = State(before.plan, tensors)
            held.restore()
            try:
                compare(before.plan, recording, tensors)  # type: ignore[arg-type]
                wrong = after.differs()
            finally:
                after.restore()
            if wrong is not None:
                raise RuntimeError(f"capture: the replay leaves other values than the function in memory of {wrong.meta.nbytes} bytes that lives on")
        try:
            plan = Planned(recording, tensors, tree, shown)
            if plan.device.type == "cuda":
                raise Refused(f"work on {plan.device}, where no argument is")
            steps = plan.steps if self._check else shortened(plan)
            if not self._check:
                plan.release(steps)
            found: Any = bind(plan, steps)
        except Refused as refused:
            raise RuntimeError(f"capture: {refused.why}") from None
        self._found[key] = found
        made = trees.put(tree, lambda i: _tensor(shown[i]))
        plan.results = []  # what was given now is the program's
        return made


def capture(f: Callable[..., Any] | None = None, *, check: bool = False) -> Any:
    """A function that does what `f` did, without its Python: `f` is called twice with arguments of a layout, and from then on what it asked of the
    CPU is asked again, as one native loop, or of a GPU, as a graph of its driver's (`cuda.CUDAGraph`).  Also a decorator.

    The contract, as a CUDA graph's: what `f` does follows from the layouts of the tensors among its arguments, from its other arguments (compared by
    value) and from the contents of tensors.  It may change tensors in place (parameters, buffers, an optimizer's state), run `backward()` and step an
    optimizer of those that say they can be (`torch.optim`'s but for Adafactor, LBFGS, Muon and SparseAdam; RAdam's must be captured once its steps are
    rectified); tensors that it leaves behind, such as gradients, lie where they lay when it was captured.
    Python is not run again: lists are not appended to, nothing is printed, and what changes in Python is not seen, but for the options of a parameter
    group that are numbers.  Random draws are draws of their generators.  Results are new tensors, detached.

    check: each call runs `f` too, holds what was captured before against it launch by launch, on the same contents of memory, gives what `f` gives, and
    raises RuntimeError that names the first launch that differs.  It is slow, and finds state that Python replaces.

    Raises RuntimeError, with the line, where `f` looks at a tensor's values (`item`, a branch), copies between devices, or seeds a generator; on
    a GPU also where it works on another device, and for arguments that share memory with what it writes.
    """
    if f is None:
        return lambda f: Captured(f, check)
    return Captured(f, check)
