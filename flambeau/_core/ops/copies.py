"""Copies: between layouts and types on one device by a generated kernel, between devices through dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..engine.fields import has
from ..engine.plans import Compose, Plan, Saved
from ..errors import warn_once
from ..kernels import expr as E
from ..kernels.programs import Map
from ..tensor import NO_FREE, Tensor, alias, empty, meta, storage
from . import checks, launch
from .determinism import fill_unfilled
from .elementwise import fit, launcher
from .memory_format import channels_last, channels_last_3d
from .table import op, planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype
    from ..tensor import Meta

_programs: dict[Any, Map] = {}


def cast_program(source: dtype, target: dtype) -> Map:
    found = _programs.get((source, target))
    if found is None:
        found = _programs[source, target] = Map((E.convert(E.input(0, source), target),), (source,))
    return found


def copy_into(out: Tensor, source: Tensor, non_blocking: bool = False) -> None:
    """out = source (broadcast, cast, moved as needed), outside the tape; out's version goes up."""
    if source.meta.device is not out.meta.device:
        from .transfer import move
        move(out, source, non_blocking)
    else:
        if checks.overlap(out, source):
            source = dense_of(source)
        shape = tuple(out.meta.shape)
        strides = [out.meta.strides, layout.expand_strides(source.meta.shape, source.meta.strides, shape)]
        launch.run(cast_program(source.meta.dtype, out.meta.dtype), shape, [out], [source], strides, name="copy")
    out.store.version += 1


def dense_of(t: Tensor) -> Tensor:
    """The elements of `t` in fresh contiguous memory, outside the tape."""
    out = empty(t.meta.shape, t.meta.dtype, t.meta.device)
    launch.run(cast_program(t.meta.dtype, t.meta.dtype), tuple(t.meta.shape), [out], [t], name="copy")
    return out


def assign(self: Tensor, result: Tensor) -> Tensor:
    """Writes a differentiable result into `self`, which takes over its history.  Raises RuntimeError where that may not be recorded."""
    node = result.node
    if _grad.get():
        inplace.check(self, (self, result))
    checks.may_write(self)
    copy_into(self, result)
    if node is not None and _grad.get():
        inplace.rebase(self, _through(node, self, result))
    elif self.node is not None and _grad.get():
        inplace.rebase(self, None) if self.base is None else inplace.rebase(self, _nothing())
    return self


def _through(node: Any, self: Tensor, result: Tensor) -> Any:
    if result.meta.dtype is self.meta.dtype and result.meta.shape == self.meta.shape and result.meta.device is self.meta.device:
        return node
    m = result.meta
    return tape.node(_fit_back, (node,), m, "CopyBackwards")


def _nothing() -> Any:
    return tape.node(lambda node, g: (), (), None, "CopyBackwards")


def _fit_back(node: Any, g: Tensor) -> Any:
    return (fit(g, node[tape.SAVED]),)


def _clone(input: Tensor, *, memory_format: Any = None) -> Any:  # noqa: A002
    """A copy with its own memory; the layout is kept when dense (`memory_format` chooses another).  Differentiable."""
    m = input.meta
    return _copying(m, strides_for(m.shape, m.strides, memory_format), "clone")


def _copying(m: Meta, strides: tuple[int, ...] | None, name: str) -> Plan:
    """The plan of a copy of a tensor into fresh memory with these strides."""
    out, program = meta(m.shape, strides, m.dtype, m.device), cast_program(m.dtype, m.dtype)
    return Plan((out,), launcher(program, tuple(m.shape), [out, m], m.device, name), saved=Saved(_same), dense=(program, lambda given: Saved(_same)))


@tape.keeps_nothing
def _same(node: Any, g: Tensor) -> Any:
    return (g,)


_same.grad_name = "CloneBackward0"
clone: Callable[..., Tensor] = planned("clone", _clone, gives="Tensor")


def strides_for(shape: Any, strides: tuple[int, ...], memory_format: Any) -> tuple[int, ...]:
    """The strides a copy in `memory_format` has.  Raises RuntimeError for channels-last with the wrong number of axes."""
    name = getattr(memory_format, "name", None)
    if name in (None, "preserve_format"):
        return layout.dense_like(tuple(shape), strides)
    if name == "channels_last" or name == "channels_last_3d":
        axes = 4 if name == "channels_last" else 5
        if len(shape) != axes:
            raise RuntimeError(f"required rank {axes} tensor to use {name} format")
        return layout.channels_last_strides(shape)
    return layout.contiguous_strides(shape)


def laid_as(made: Tensor, image: Tensor) -> Tensor:
    """The result of an operation on images, with its channels innermost where those of `image` are.  Recorded."""
    return laid_by(made, image.meta)


def laid_by(made: Tensor, like: Meta) -> Tensor:
    """`laid_as` images of this meta."""
    m = made.meta
    if like.contiguous or len(m.shape) != len(like.shape) or not layout.wants_channels_last(like.shape, like.strides):
        return made
    if m.strides == layout.channels_last_strides(m.shape):
        return made
    return clone(made, memory_format=channels_last if len(m.shape) == 4 else channels_last_3d)


def as_images(image: Tensor) -> Tensor:
    """`image` for an operation that is made of others, which lay gradients in their own ways: its gradient has its channels innermost where it has."""
    m = image.meta
    if m.contiguous or image.node is None or not m.plain or "_tangents" in image.__dict__ or not layout.wants_channels_last(m.shape, m.strides):
        return image
    return tape.record(alias(image, m, image.ptr), _as_images, (image,), m, "CloneBackward0")


@tape.keeps_nothing
def _as_images(node: Any, g: Tensor) -> Any:
    return (laid_by(g, node[tape.SAVED]),)


def _contiguous(input: Tensor, *, memory_format: Any = None) -> Any:  # noqa: A002
    """`input` itself when it is contiguous in `memory_format` (row-major by default), else a copy that is."""
    name = getattr(memory_format, "name", None)
    if name in ("channels_last", "channels_last_3d"):
        if layout.is_channels_last(input.meta.shape, input.meta.strides) and len(input.meta.shape) == (4 if name == "channels_last" else 5):
            return Compose(itself)
        return Compose(lambda t: clone(t, memory_format=memory_format))
    return Compose(itself) if input.meta.contiguous else _copying(input.meta, None, "contiguous")


def itself(t: Tensor) -> Tensor:
    return t


contiguous: Callable[..., Tensor] = planned("contiguous", _contiguous, gives="Tensor")


@op(name="copy_", batch="pointwise", moves=True)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Writes `src` (a number, or a tensor of any type and device, broadcast) into `self`.  Recorded: gradients flow to `src`.

    non_blocking: between pinned host memory and a GPU the copy is queued; the first to read it on the host waits.
    """
    if isinstance(src, (int, float, complex)):
        src = hooks.full((), src, dtype=dtypes.of_scalar(src), device=self.meta.device)
    elif not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' must be Tensor, not {type(src).__name__}")
    if src.meta.device is not self.meta.device and src.meta.plain and self.meta.plain:
        return Compose(_across(self, src, bool(non_blocking)))  # type: ignore[return-value]  # the engine carries it out
    _may_copy(self, src)
    return _copy(self, src, non_blocking)


def warn_of_lost_part(of: dtypes.dtype, to: dtypes.dtype) -> None:
    """Says, once in a process, that complex numbers lose their imaginary part in a real type; a truth looks at both parts."""
    if of.is_complex and to.kind not in "cb":
        warn_once("Casting complex values to real discards the imaginary part")


def _may_copy(self: Tensor, src: Tensor) -> None:
    if not checks.same_view(self, src):
        checks.may_write(self, one=src.meta.numel == 1)
    warn_of_lost_part(src.meta.dtype, self.meta.dtype)
    shape = layout.broadcast_shapes(self.meta.shape, src.meta.shape)
    if shape != tuple(self.meta.shape):
        raise RuntimeError(f"output with shape {list(self.meta.shape)} doesn't match the broadcast shape {list(shape)}")


def _copy(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    recording = _grad.get() and inplace.check(self, (self, src))
    if not checks.same_view(self, src):
        checks.no_partial_overlap(self, src)
        copy_into(self, src, non_blocking)
    else:
        self.store.version += 1
    if recording:
        inplace.rebase(self, tape.node(_copied, (self.node, src.node), src.meta, "CopyBackwards"))
    return self


def _across(self: Tensor, src: Tensor, non_blocking: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """What copies from a tensor of one device to one of another, of these layouts."""
    from .transfer import carrier
    if _grad.get():
        inplace.check(self, (self, src))
    _may_copy(self, src)
    carry = carrier(self.meta, src.meta, non_blocking)

    def run(self: Tensor, src: Tensor) -> Tensor:
        base = self.base
        if (self.node is not None or src.node is not None or (base is not None and base.node is not None)) and _grad.get():
            return _copy(self, src, non_blocking)
        carry(self, src)
        self.store.version += 1
        return self
    return run


def _copied(node: Any, g: Tensor) -> Any:
    before, source = node[tape.EDGES]  # what was overwritten has a gradient too: 0
    return (None if before is None else hooks.zeros_like(g)), (None if source is None else fit(g, node[tape.SAVED]))


def resize(t: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Tensor:
    """Gives `t` another shape (row-major, or with these strides), keeping the elements that fit; its storage grows when it must."""
    m = meta(shape, strides, t.meta.dtype, t.meta.device)
    have = t.store.meta.nbytes - (t.ptr - t.store.ptr)
    if m.nbytes > have:
        if t.store.free is NO_FREE:  # an array of NumPy's, a mapped file: no more of it can be had
            raise RuntimeError(f"Trying to resize storage that is not resizable: shape {list(shape)} needs {m.nbytes} bytes, and the memory that the "
                               f"tensor shares with its owner has {have}")
        old = alias(t, t.meta, t.ptr)
        version = t.store.version
        t.store = storage(m)
        t.store.version = version
        t.ptr = t.store.ptr
        t.meta = m
        fill_unfilled(t)
        if old.meta.numel and old.meta.contiguous:
            keep = meta((old.meta.numel,), None, m.dtype, m.device)
            launch.run(cast_program(m.dtype, m.dtype), (old.meta.numel,), [alias(t, keep, t.ptr)], [alias(old, keep, old.ptr)])
    t.meta = m
    return t

has("clone contiguous", batch="same", tangent="linear")
