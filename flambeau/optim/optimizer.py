"""`Optimizer`: parameter groups, state, saving and loading, hooks; and the step that all formulas share.

An optimizer's update is one formula over an element of the parameter, its gradient and its state; it runs as one kernel
a parameter that reads each once and writes in place. State lies where its parameter does: a step after the model has moved
is refused, and `load_state_dict` puts the state where the parameters are.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from .._core import ops
from .._core.autograd.tape import GRAD, SEQ
from .._core.errors import warn
from .._core.ops import foreach
from .._core.runtime import caches, capture
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import enable_grad, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from .._core.ops.elementwise import Pointwise
from .._core.ops.sparse import Sparse

ParamsT: TypeAlias = "Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]"


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether an optimizer shall take its fused form, and whether the one over lists: neither, as plain code is one kernel here."""
    return False, False


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` during which gradients are recorded only if the optimizer's default `differentiable` says so."""
    @functools.wraps(func)
    def step(*args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(args[0].defaults["differentiable"]):
            return func(*args, **kwargs)
    return step


class _Required:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

_global_pre_hooks: dict[int, Any] = OrderedDict()
_global_post_hooks: dict[int, Any] = OrderedDict()


class _Handle:
    """Takes a hook away again."""

    next_id = 0

    def __init__(self, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self.hooks = hooks
        self.id = _Handle.next_id
        _Handle.next_id += 1
        hooks[self.id] = hook
        if prepend:
            hooks.move_to_end(self.id, last=False)  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Removes the hook; doing it twice does no harm."""
        self.hooks.pop(self.id, None)

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> _Handle:
    """Calls ``hook(optimizer, args, kwargs)`` before every optimizer's step."""
    return _Handle(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> _Handle:
    """Calls ``hook(optimizer, args, kwargs)`` after every optimizer's step."""
    return _Handle(_global_post_hooks, hook)


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with its hooks around it, and a note that it was called, which schedulers look for."""

    @functools.wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        if "_optimizer_step_pre_hooks" not in self.__dict__:  # a wrapper around an optimizer that never called __init__
            self._make_hooks()
        if not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _global_pre_hooks
                or _global_post_hooks):
            return step(self, *args, **kwargs)
        for hook in chain(_global_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
            answer = hook(self, args, kwargs)
            if answer is not None:
                if not (isinstance(answer, tuple) and len(answer) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got "
                                       f"{answer}.")
                args, kwargs = answer
        out = step(self, *args, **kwargs)
        for hook in chain(self._optimizer_step_post_hooks.values(), _global_post_hooks.values()):
            hook(self, args, kwargs)
        return out

    wrapper.hooked = True  # type: ignore[attr-defined]
    return wrapper


class Optimizer:
    """Base class of optimizers.

    Args:
        params: tensors, pairs of name and tensor, or dictionaries with "params" and options of their own.
        defaults: the options of groups that do not give their own.

    Raises TypeError or ValueError for parameters that are no leaf tensors, an empty list, or one given twice.
    """

    _optimizer_step_pre_hooks: dict[int, Any]
    _optimizer_step_post_hooks: dict[int, Any]
    _optimizer_state_dict_pre_hooks: dict[int, Any]
    _optimizer_state_dict_post_hooks: dict[int, Any]
    _optimizer_load_state_dict_pre_hooks: dict[int, Any]
    _optimizer_load_state_dict_post_hooks: dict[int, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = _hooked(step)  # type: ignore[method-assign]

    profile_hook_step = staticmethod(_hooked)

    def _patch_step_function(self) -> None:
        """Gives the class's step its hooks, where it was put there after the class was made: what wrappers of optimizers call by PyTorch's name."""
        if not getattr(type(self).step, "hooked", False):
            type(self).step = _hooked(type(self).step)  # type: ignore[method-assign]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{params.type()}")
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
                     "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
                     "_optimizer_load_state_dict_post_hooks"):
            self.__dict__.setdefault(name, OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # -- groups ------------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group: a dictionary with "params" and the options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            param_group["params"] = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        else:
            param_group["params"] = list(params)
        params = param_group["params"]
        if params and isinstance(params[0], tuple):
            if any(not (isinstance(p, tuple) and len(p) == 2) for p in params):
                raise TypeError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = [name for name, _ in params]
            param_group["params"] = params = [p for _, p in params]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + type(p).__name__)
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):

            warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause "
                 "an error; see github.com/pytorch/pytorch/issues/40967 for more information")
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every parameter's gradient, or sets it to zeros if `set_to_none` is false."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    if grad.requires_grad:
                        grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
                    grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; subclasses define it."""
        raise NotImplementedError

    # -- saving and loading ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of a parameter: its state}, "param_groups": groups with numbers for parameters}."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(number[id(k)] if isinstance(k, Tensor) else k): self._saved(v) for k, v in self.state.items()}
        made: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            answer = hook(self, made)
            if answer is not None:
                made = answer
        return made

    def _saved(self, state: Any) -> Any:
        """A parameter's state as it is saved: the step, a number here, is a 0-dim tensor there, as PyTorch has it."""
        if isinstance(state, dict) and isinstance(state.get("step"), float):
            return {k: ops.tensor(v, device="cpu") if k == "step" else v for k, v in state.items()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state that `state_dict` gave, onto the devices of this optimizer's parameters.

        Raises ValueError if the groups differ in number or size.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            answer = hook(self, state_dict)
            if answer is not None:
                state_dict = answer
        saved = deepcopy(state_dict["param_groups"])
        if len(self.param_groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(self.param_groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                             "group")
        mine = [p for group in self.param_groups for p in group["params"]]
        numbers = [n for group in saved for n in group["params"]]
        by_number = dict(zip(numbers, mine))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            p = by_number.get(key)
            state[key if p is None else p] = value if p is None else self._adapted(p, value)
        groups = []
        for group, new in zip(self.param_groups, saved):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
            groups.append(new)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _adapted(self, p: Tensor, value: Any, key: str | None = None) -> Any:
        """A saved value as part of the state of `p`: on its device and, if both are floating, of its type."""
        if isinstance(value, Tensor):
            if key == "step":
                return float(value) if value.numel() == 1 else value
            if p.is_floating_point() and value.is_floating_point():
                return unasked(value.detach().to)(p.device, p.dtype, copy=True)
            return unasked(value.detach().to)(p.device, copy=True)
        if isinstance(value, dict):
            return {k: self._adapted(p, v, k) for k, v in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self._adapted(p, v) for v in value)
        return float(value) if key == "step" and type(value) is int else deepcopy(value)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> _Handle:
        """Calls ``hook(optimizer, args, kwargs)`` before each step; it may return new (args, kwargs)."""
        return _Handle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> _Handle:
        """Calls ``hook(optimizer, args, kwargs)`` after each step."""
        return _Handle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> _Handle:
        """Calls ``hook(optimizer)`` before `state_dict`."""
        return _Handle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> _Handle:
        """Calls ``hook(optimizer, state_dict)`` after `state_dict`; what it returns, if not None, is given instead."""
        return _Handle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> _Handle:
        """Calls ``hook(optimizer, state_dict)`` before loading; what it returns, if not None, is loaded instead."""
        return _Handle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> _Handle:
        """Calls ``hook(optimizer)`` after loading."""
        return _Handle(self._optimizer_load_state_dict_post_hooks, hook, prepend)


class FormulaOptimizer(Optimizer):
    """An optimizer whose `_update` runs a formula for one parameter.  `renews`: it tells a capture how its numbers are worked out anew
    (`Updates.renewed`).  `counts`: the numbers of a parameter's state, which a step moves on.  `kind`: what of the formula follows from the number of the
    step, where anything does: ``kind(group, step)``."""

    renews = False
    counts: tuple[str, ...] = ("step",)
    kind: Callable[[dict[str, Any], float], Any] | None = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; `closure`, if given, computes the loss again first."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if capture.active and not self.renews:
            capture.unrepeatable(f"{type(self).__name__} works its numbers out in Python at each step")
        for group in self.param_groups:
            if group.get("differentiable"):
                token = _recording.set(True)
                try:
                    self._update_group(group)
                finally:
                    _recording.reset(token)
            else:
                self._update_group(group)
        return loss

    def _update_group(self, group: dict[str, Any]) -> None:
        states, update = self.state, self._update
        memo: dict[Any, Any] = {}
        for p in group["params"]:
            node = p.node
            # a leaf's gradient lies on its node; the attribute is for the other cases
            grad = node[GRAD] if node is not None and node[SEQ] == 0 else p.grad
            if grad is not None:
                state = states.get(p)
                if type(grad) is not Tensor and (isinstance(grad, Sparse) or hasattr(grad, "to_local")):
                    state = {} if state is None else state
                    (self._update_rows if isinstance(grad, Sparse) else self._update_piece)(group, p, grad, state, memo)
                    if state:
                        states[p] = state
                elif state is None:
                    state = {}
                    update(group, p, grad, state, memo)
                    if state:  # plain SGD has none
                        states[p] = state
                else:
                    update(group, p, grad, state, memo)
        for updates in memo.pop(Updates, ()):
            updates.run()

    def _reads(run: Any, self: Any, closure: Any = None) -> str | None:
        """Tells a run of `compile` what a step depends on. Returns why it cannot be known."""
        if closure is not None or not self.renews or not type(self).__module__.startswith(__name__.partition(".")[0]):
            return f"a step of {type(self).__name__} is not known"
        g, space = run.guards, self.__dict__
        if space.get("_opt_called") is not True:
            return "it is the optimizer's first step"
        g.shape(self, space)
        for name in ("_opt_called", "param_groups", "state", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            g.part(space, name, space[name])
        for hooks in (_global_pre_hooks, _global_post_hooks, self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks):
            g.empty(hooks)
            if hooks:
                return "the optimizer has hooks"
        g.attribute(type(self), "_update", type(self)._update)
        g.elements(self.param_groups)
        for group in self.param_groups:
            g.elements(group["params"])
            g.part(group, "params", group["params"])
            if not g.options({k: v for k, v in group.items() if k != "params"}, group, ("lr",)):
                return "an option of the optimizer is an object"
            steps: dict[Any, dict[str, Any]] = {}  # the first state of each number of steps
            for p in group["params"]:
                run.gradient(p)
                state = self.state.get(p)
                if p.grad is not None and type(p.grad) is not Tensor:
                    return f"a gradient is a {type(p.grad).__name__}"
                g.part(self.state, p, self.state.get(p, run.ABSENT))
                if p.grad is None or state is None:
                    continue
                g.line(("length", id(state)), f"len({g.inside(state)}) == {len(state)}")
                for key, value in state.items():
                    if isinstance(value, Tensor):
                        run.tensor(value)
                        g.part(state, key, value)
                    elif key not in self.counts or type(value) is not float:
                        return f"the optimizer's state has a {type(value).__name__}"
                found = {k: v for k, v in state.items() if k in self.counts}
                first = steps.setdefault(tuple(found.items()), state)
                if first is not state:
                    g.line(("step", id(state)), " and ".join([f"{g.name(state)}[{k!r}] == {g.name(first)}[{k!r}]" for k in found]) or "True")
                elif self.kind is not None and "step" in state:
                    g.attribute(type(self), "kind", self.kind)
                    now = self.kind(group, state["step"] + 1.0)
                    g.line(("kind", id(state)), f"{g.name(self.kind)}({g.name(group)}, {g.name(state)}['step'] + 1.0) == {g.name(now)}")
        return None

    step.__reads__ = _reads  # type: ignore[attr-defined]

    def _update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Any],
                memo: dict[Any, Any]) -> None:
        """Updates one parameter, or has `Updates` do it. `memo` lasts for one step of one group: what all its parameters share
        goes there."""
        raise NotImplementedError

    def _update_piece(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        """Updates this process's piece of a parameter in parts; what lies as the piece does is in parts too."""
        own = p.to_local()
        pieces = {k: v.to_local() if hasattr(v, "to_local") else v for k, v in state.items()}
        self._update(group, own, grad.redistribute(p.device_mesh, p.placements).to_local(), pieces, memo)
        for k, v in pieces.items():
            if not isinstance(v, Tensor) or v.shape != own.shape:
                state[k] = v
            elif k not in state or state[k].to_local() is not v:
                state[k] = type(grad).from_local(v, p.device_mesh, p.placements, shape=p.shape)

    def _update_rows(self, group: dict[str, Any], p: Any, grad: Any, state: dict[str, Any], memo: dict[Any, Any]) -> None:
        """Updates one parameter by a sparse gradient."""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead")


def zeros_for(p: Tensor) -> Tensor:
    """State of the parameter's shape, layout, type and device, at zero."""
    with no_grad():
        made: Tensor = ops.zeros_like(p)
    return made.detach()


def elsewhere(p: Tensor, state: dict[str, Any]) -> NoReturn:
    """Raises RuntimeError, as PyTorch does, for state that is not where its parameter is: the model has moved since the last step."""
    name, value = next((k, v) for k, v in state.items() if isinstance(v, Tensor) and v.device != p.device)
    raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {p.device} and {value.device}! The parameter of "
                       f"shape {tuple(p.shape)} is on {p.device}, the optimizer's {name!r} for it on {value.device}: move a model before its optimizer "
                       "steps, or load the optimizer's own state_dict() again, which puts the state where the parameters are")


_recording: ContextVar[bool] = ContextVar("differentiable", default=False)  # whether the group that is updated is differentiable


def recorded(formula: Pointwise, outs: tuple[Tensor, ...], grad: Tensor, numbers: tuple[float, ...], consts: tuple[tuple[str, Any], ...]) -> None:
    """`write` of a group with ``differentiable=True``: a step of the tape, so that what comes of the parameter has gradients for all that the step read."""
    def real(x: Any) -> Any:
        return ops.view_as_real(x) if x.is_complex() else x
    # copies, as what the formula saves of them is written to
    made = formula((*(real(o.clone()) for o in outs), real(grad)), numbers, consts)
    for o, value in zip(outs, made if isinstance(made, tuple) else (made,), strict=True):
        o.copy_(ops.view_as_complex(value) if o.is_complex() else value)


# Launches by formula, flags and layouts, so that a step of a small model is little more than its kernels; void when
# layouts are forgotten, and when devices or dispatch's observers change.
_launches: dict[Any, Callable[..., Any]] = caches.cache(globals(), "_launches")


def write(formula: Pointwise, outs: tuple[Tensor, ...], grad: Tensor, numbers: tuple[float, ...],
          consts: tuple[tuple[str, Any], ...] = ()) -> None:
    """Runs ``outs = formula(*outs, grad, *numbers)`` in place as one kernel, outside the tape but for differentiable groups; complex numbers are
    updated as pairs of real ones."""
    if _recording.get():
        recorded(formula, outs, grad, numbers, consts)
        return
    key = (formula, consts, grad.meta, *[o.meta for o in outs])
    launch = _launches.get(key)
    if launch is not None and grad.store is not outs[0].store:
        places = [o.ptr for o in outs]
        launch(*places, *places, grad.ptr, *numbers)
        for o in outs:
            o.store.version += 1
        return
    if outs[0].is_complex():
        pairs = tuple(ops.view_as_real(o.detach()) for o in outs)
        formula.write(pairs, (*pairs, ops.view_as_real(grad.detach())), numbers, consts)
        return
    formula.write(outs, (*outs, grad), numbers, consts)
    since = caches.epoch
    found, convert = formula.writing(tuple([o.meta for o in outs]), (*outs, grad), numbers, consts)
    if not any(convert):
        caches.keep_since(since, _launches, key, found)


def renewal(states: list[dict[str, Any]], consts: tuple[tuple[str, Any], ...],
            again: Callable[[list[dict[str, Any]]], tuple[Any, Any]]) -> Callable[[], tuple[float, ...]]:
    """What a step that is done again asks: the numbers, from `again`, which moves the states on; the formula must still be the one it was."""
    def numbers() -> tuple[float, ...]:
        found, now = again(states)
        if now != consts:
            raise RuntimeError("a captured optimizer's options are others than when it was captured, so it takes another kind of step: capture it again")
        return found  # type: ignore[no-any-return]
    return numbers


class Updates:
    """Updates of a group's parameters by one formula with the same numbers, kept until the group is through: then those of
    small parameters run as one launch.

    again: from the states of the parameters that are updated, the numbers and `consts` of the next step; it moves the states on."""

    __slots__ = ("formula", "numbers", "consts", "items", "states", "gathers")

    def __init__(self, formula: Pointwise, numbers: tuple[float, ...], consts: tuple[tuple[str, Any], ...],
                 memo: dict[Any, Any], again: Callable[[list[dict[str, Any]]], tuple[Any, Any]] | None = None) -> None:
        self.formula, self.numbers, self.consts, self.gathers = formula, numbers, consts, True
        if capture.active and again is not None:
            self.states: list[dict[str, Any]] = []  # of the parameters that are updated
            self.numbers = capture.renewed(numbers, renewal(self.states, consts, again))
        self.items: list[tuple[tuple[Tensor, ...], Tensor]] = []
        memo.setdefault(Updates, []).append(self)

    def add(self, outs: tuple[Tensor, ...], grad: Tensor) -> None:
        """See `write`."""
        if self.gathers and ((grad.meta.numel <= foreach.MOST and not _recording.get()) or foreach.takes_lists(grad.meta.device)):
            self.items.append((outs, grad))
        else:
            write(self.formula, outs, grad, self.numbers, self.consts)

    def run(self) -> None:
        """What `add` gathered."""
        items, launches, places = self.items, [], []
        if len(items) > 1 and foreach.takes_lists(items[0][1].meta.device):
            self._by_lists()
            return
        if len(items) > 1 and foreach.alike([outs[0] for outs, _ in items]):
            formula, consts, get = self.formula, self.consts, _launches.get
            for outs, grad in items:
                launch = get((formula, consts, grad.meta, *[o.meta for o in outs]))
                if launch is None or grad.store is outs[0].store:
                    break
                here = [o.ptr for o in outs]
                launches.append(launch)
                places.append([*here, *here, grad.ptr])
            else:
                foreach.run(launches, places, self.numbers)
                for outs, _ in items:
                    for o in outs:
                        o.store.version += 1
                return
        for outs, grad in items:  # the first step makes the launches
            write(self.formula, outs, grad, self.numbers, self.consts)

    def _by_lists(self) -> None:
        """All of a type and device by few launches, where there is a kernel for that."""
        kinds: dict[Any, list[tuple[tuple[Tensor, ...], Tensor]]] = {}
        for item in self.items:
            m = item[0][0].meta
            kinds.setdefault((m.dtype, m.device), []).append(item)
        for items in kinds.values():
            left: Any = items
            if len(items) > 1 and foreach.listed([outs[0] for outs, _ in items]) and all(g.store is not outs[0].store for outs, g in items):
                left = foreach.update(self.formula, items, self.numbers, self.consts)
            for outs, grad in left:
                write(self.formula, outs, grad, self.numbers, self.consts)


def _again(numbers: Callable[[dict[str, Any], float], tuple[Any, Any]], group: dict[str, Any], states: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The numbers of the step after that of these states."""
    step = states[0]["step"] + 1.0
    for state in states:
        state["step"] = step
    return numbers(group, step)


def together(formula: Pointwise, numbers: Callable[[dict[str, Any], float], tuple[Any, Any]], group: dict[str, Any], state: dict[str, Any],
             memo: dict[Any, Any], gathers: bool = False) -> Updates:
    """Counts a parameter's step, and gives the `Updates` of all that are at the same one.  numbers: the formula's numbers and `consts` at a step.
    gathers: whether they wait for one another outside a capture too."""
    state["step"] = step = float(state["step"]) + 1.0
    updates: Updates | None = memo.get(step)
    if updates is None:
        updates = memo[step] = Updates(formula, *numbers(group, step), memo, partial(_again, numbers, group) if capture.active else None)
        updates.gathers = gathers or bool(capture.active)
    if capture.active:
        updates.states.append(state)
    return updates


def _each(moved: Callable[[dict[str, Any], dict[str, Any]], tuple[Any, Any]], group: dict[str, Any], states: list[dict[str, Any]]) -> tuple[Any, Any]:
    return [moved(group, state) for state in states][0]


def alike(formula: Pointwise, moved: Callable[[dict[str, Any], dict[str, Any]], tuple[Any, Any]], group: dict[str, Any], state: dict[str, Any],
          memo: dict[Any, Any]) -> Updates:
    """`together` of optimizers that count more than steps.  moved: moves a state on, and gives the formula's numbers and `consts`."""
    numbers, consts = moved(group, state)
    key = numbers, consts, *[v for v in state.values() if type(v) is float]
    updates: Updates | None = memo.get(key)
    if updates is None:
        updates = memo[key] = Updates(formula, numbers, consts, memo, partial(_each, moved, group) if capture.active else None)
        updates.gathers = bool(capture.active)
    if capture.active:
        updates.states.append(state)
    return updates


def check_options(options: Iterable[tuple[str, Any, bool]]) -> None:
    """Raises ValueError for the first of (name, value, whether it is valid) that is not valid."""
    for name, value, valid in options:
        if not valid:
            raise ValueError(f"Invalid {name}: {value}")
