"""`backward` and `grad`: the two ways to start a backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hooks
from ..errors import warn_once
from ..runtime import caches, memory
from ..runtime.asking import unasked
from ..tensor import Tensor, alias, new
from . import tape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tensor import Meta


def _listed(x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return list(x)
    return [x] if x is None or isinstance(x, Tensor) or not hasattr(x, "__iter__") else list(x)  # values(), a generator


def shapes_to_match(output: Tensor, grad: Tensor, batched: bool) -> tuple[Any, Any]:
    """The shapes of an output and of its gradient, without the axis of a batch of gradients."""
    shape = grad.meta.shape
    return output.meta.shape, shape[1:] if batched else shape


def _start(tensors: Sequence[Tensor], grads: Sequence[Any], create: bool) -> list[Tensor]:
    """The gradient each root starts with: ones for a scalar.  Raises RuntimeError as PyTorch does."""
    out: list[Tensor] = []
    for t, g in zip(tensors, grads, strict=True):
        if not isinstance(t, Tensor):
            raise TypeError(f"element 0 of tensors must be a Tensor, got {type(t).__name__}")
        if t.node is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if t.meta.numel != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if t.meta.dtype.is_complex:
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {t.meta.dtype}")
            g = _one(t) if t.meta.plain else hooks.gradient_of_values(t, _one(t))
        else:
            if not isinstance(g, Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
            g = hooks.resolved(g)
            if g.meta.shape != t.meta.shape:
                raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of {g.meta.shape} and output[0] has a shape of "
                                   f"{t.meta.shape}.")
            if not t.meta.plain:
                g = hooks.gradient_of_values(t, g)
            if g.meta.device is not t.meta.device:
                if g.meta.shape or g.meta.device.type != "cpu":
                    raise hooks.mismatch("backward", [t, g], [t], labels=("output", "gradient"), begins=(
                        f"invalid gradient at index {len(out)} - expected device {t.meta.device} but got {g.meta.device}"))
                g = unasked(g.to)(t.meta.device)
            if g.meta.dtype is not t.meta.dtype:
                g = g.to(t.meta.dtype)
            if not create:
                g = g.detach()
        out.append(g)
    return out


_ones: dict[Any, Tensor] = caches.cache(globals(), "_ones")


def _one(t: Tensor) -> Tensor:
    """The 1 a scalar's pass starts with; kept, unless somebody wrote to it."""
    key: Any = t.meta if t.meta.plain else getattr(t.meta, "under", t.meta)  # views of negatives have metas of their own
    if key.device.type == "cuda" and key.device not in memory.takes:  # for each stream, so that it is written on the one that reads it
        from ..runtime import gpus
        key = key, gpus.device_and_stream(key.device)[1]._handle
    one = _ones.get(key)
    if one is None or one.store.version or one.node is not None:
        since = caches.epoch
        one = _written(t.meta) if t.meta.device.type == "cuda" else hooks.full(t.meta.shape, 1, dtype=t.meta.dtype, device=t.meta.device)
        caches.keep_since(since, _ones, key, one)
    return alias(one, one.meta, one.ptr)


def _written(m: Meta) -> Tensor:
    """A 1 of its own."""
    one = new(m)
    _writer(m)(one.ptr, 1.0 if m.dtype.kind == "f" else 1)
    return one


@caches.kept
def _writer(m: Meta) -> Any:
    from ..kernels import expr as E
    from ..kernels.programs import Map
    program = Map((E.scalar(0, m.dtype),), (), (m.dtype,))
    return hooks.launch_plan(m.device, program, tuple(m.shape), [tuple(m.strides)], [m.nbytes], "fill")[0]


def begin(t: Tensor, retain: bool) -> bool:
    """The usual pass, from a real scalar to all leaves; False, and nothing done, where that is not what `t` is."""
    if t.node is None or t.meta.numel != 1 or t.meta.dtype.kind != "f":
        return False
    tape.backward((t.node,), (_one(t),), retain, False)
    return True


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             grad_variables: Any = None, inputs: Any = None) -> None:
    """Accumulates the gradients of `tensors` in the `.grad` of the leaves they were computed from.

    grad_tensors: one gradient a tensor; None stands for 1 for scalars.  retain_graph: keep saved values for another pass
    (default: create_graph).  create_graph: record this pass, so that gradients have gradients.  inputs: accumulate in
    these tensors only.
    """
    roots = _listed(tensors)
    given = _listed(grad_tensors) if grad_tensors is not None else [None] * len(roots)
    if len(given) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(given)} gradients")
    only = None
    if inputs is not None:
        only = _listed(inputs)
        if not only:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        for t in only:
            if t.node is None:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
    grads = _start(roots, given, create_graph)
    if create_graph:
        warn_once("Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient, which can keep "
                  "memory: autograd.grad() makes none, or set .grad to None after use.")
    retain = create_graph if retain_graph is None else retain_graph
    for t in only or ():
        if t.node[tape.SEQ]:
            t.retain_grad()
    tape.backward([t.node for t in roots], grads, retain, create_graph, leaves=None if only is None else [t.node for t in only])


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    An input the outputs do not depend on is an error, unless allow_unused (None for it) or materialize_grads (zeros).
    """
    roots, wanted = _listed(outputs), _listed(inputs)
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    given = _listed(grad_outputs) if grad_outputs is not None else [None] * len(roots)
    for t in (*roots, *wanted):
        if type(t) is not Tensor and (whole := getattr(type(t), "__grad_of_batch__", None)) is not None:  # examples of a batch
            made: tuple[Any, ...] = whole(grad, roots, wanted, given, retain_graph=retain_graph, create_graph=create_graph,
                                          allow_unused=allow_unused, is_grads_batched=is_grads_batched, materialize_grads=materialize_grads)
            return made
    if is_grads_batched:
        for i, (t, g) in enumerate(zip(roots, given, strict=False)):
            if isinstance(g, Tensor):
                want, got = shapes_to_match(t, g, True)
                if want != got:
                    raise RuntimeError(f"If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of "
                                       f"the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                                       f"grad_output[{i}] has a shape of {g.meta.shape} and output[{i}] has a shape of {t.meta.shape}.")
        rows = [grad(outputs, inputs, [g[i] for g in given], True, create_graph, True, True, False, True)  # type: ignore[index]
                for i in range(given[0].shape[0])]  # type: ignore[union-attr]
        return tuple(hooks.stack(list(column)) for column in zip(*rows, strict=True))
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    for t in (*roots, *wanted, *given):
        if isinstance(t, Tensor) and not t.meta.plain and "_tangents" in t.__dict__:
            found_: tuple[Any, ...] = hooks.grad_of_duals(roots, wanted, given, retain_graph=retain_graph, create_graph=create_graph,
                                                          allow_unused=allow_unused, materialize_grads=materialize_grads)
            return found_
    for t in wanted:
        if t.node is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    kept = [(t, g) for t, g in zip(roots, given, strict=True)]
    grads = _start([t for t, _ in kept], [g for _, g in kept], create_graph)
    capture = tape.Capture([t.node for t in wanted])
    retain = create_graph if retain_graph is None else retain_graph
    tape.backward([t.node for t in roots], grads, retain, create_graph, capture)
    found: list[Any] = [capture.got.get(id(t.node)) for t in wanted]
    if materialize_grads:
        found = [hooks.full(t.meta.shape, 0, dtype=t.meta.dtype, device=t.meta.device).requires_grad_(create_graph) if g is None else g
                 for t, g in zip(wanted, found, strict=True)]
    elif not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set allow_unused=True if this is the "
                                   "desired behavior.")
    return tuple(found)
