"""`DTensor`: one tensor in parts on the processes of a mesh.

It holds this process's piece, an ordinary tensor, on which its operations work and which the tape knows; so a leaf's gradient is that of its piece.
What the engine itself sees of it is a tensor of the whole's shape without memory (of the meta device): whatever asks for its type or shape has it,
and nothing reads memory that is not here.  `propagation.py` carries operations out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import tensor as tensors
from ..._core.runtime.asking import unasked
from ..._core.runtime.device import device as Device
from ..._core.tensor import Tensor, _new
from ...autograd import no_grad
from ...interop.overriding import Overridable, prepare
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh, current
from . import moving
from .placement_types import Partial, Placement, Replicate, Shard
from .spec import DTensorSpec, TensorMeta, local_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

prepare()


def checked_placements(placements: Any, mesh: DeviceMesh, ndim: int, name: str) -> tuple[Any, ...]:
    """One placement for each axis of the mesh, Replicate() without; axes of shards count from the front.

    Raises ValueError for another number of them, RuntimeError for what is none."""
    found = [Replicate()] * mesh.ndim if placements is None else list(placements)
    if len(found) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(found)}, and device_mesh.ndim: "
                         f"{mesh.ndim}.")
    for i, p in enumerate(found):
        if not isinstance(p, Placement):
            raise RuntimeError(f"{name}: placements must be Shard, Replicate or Partial, got {p!r}")
        if isinstance(p, Shard):
            if not -max(ndim, 1) <= p.dim < max(ndim, 1):
                raise IndexError(f"{name}: {p!r} names an axis that a tensor of {ndim} axes does not have")
            if p.dim < 0:
                found[i] = with_dim(p, p.dim + ndim)
    return tuple(found)


def with_dim(p: Any, dim: int) -> Any:
    """A shard of the same kind along another axis."""
    return type(p)(dim, p.split_factor) if hasattr(p, "split_factor") else type(p)(dim)


def _strides(local: Tensor, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The whole's strides: in the order of the piece's; None for contiguous."""
    if local.dim() != len(shape) or local.is_contiguous():
        return None
    order = sorted(range(len(shape)), key=lambda d: -local.meta.strides[d])
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step *= max(shape[d], 1)
    return tuple(found)


def make(local: Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: Sequence[int], cls: Any = None) -> Any:
    """A DTensor of this piece; what its arguments say is not looked at again."""
    m = tensors.meta(tuple(shape), _strides(local, shape), local.meta.dtype, _META)
    bare = tensors.new(m)
    made = _new(cls or DTensor)
    made.meta, made.store, made.ptr, made.node, made.base = m, bare.store, bare.ptr, None, None
    made._local_tensor, made._mesh, made._placed = local, mesh, tuple(placements)
    return made


_META = Device("meta")


class DTensor(Overridable):
    """A tensor in parts: `distribute_tensor` and `DTensor.from_local` make it.

    `placements` says for each axis of `device_mesh` how the parts lie; `shape` is the whole's, `to_local()` the piece of this process, `full_tensor()` the
    whole.  Operations on DTensors give DTensors; those that mix them with plain tensors raise RuntimeError, but for numbers and tensors of no axes.
    """

    _local_tensor: Tensor
    _mesh: DeviceMesh
    _placed: tuple[Any, ...]

    def __class_getitem__(cls, item: Any) -> Any:
        return cls  # an annotation

    def __new__(cls, local_tensor: Any = None, spec: Any = None, *, requires_grad: bool = False) -> Any:
        if not isinstance(local_tensor, Tensor) or not isinstance(spec, DTensorSpec):
            raise TypeError("DTensor is made by distribute_tensor and DTensor.from_local")
        made = make(local_tensor.detach(), spec.mesh, spec.placements, spec.shape)
        return made.requires_grad_(requires_grad)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from .propagation import carry_out
        return carry_out(func, args, kwargs or {})

    # ------------------------------------------------------------------------------------------------ what it is
    @property
    def placements(self) -> tuple[Any, ...]:
        """How it lies along each axis of the mesh."""
        return self._placed

    @property
    def device_mesh(self) -> DeviceMesh:
        """Its mesh."""
        return self._mesh

    @property
    def _spec(self) -> DTensorSpec:
        return DTensorSpec(self._mesh, self._placed, TensorMeta(self.meta.shape, self.meta.strides, self.meta.dtype))

    shape = property(lambda self: self.meta.shape)
    dtype = property(lambda self: self.meta.dtype)
    ndim = property(lambda self: len(self.meta.shape))
    device = property(lambda self: self._local_tensor.device)
    is_cuda = property(lambda self: self._local_tensor.is_cuda)
    is_cpu = property(lambda self: self._local_tensor.is_cpu)
    is_meta = property(lambda self: self._local_tensor.is_meta)
    is_leaf = property(lambda self: self._local_tensor.is_leaf)
    grad_fn = property(lambda self: self._local_tensor.grad_fn)
    _version = property(lambda self: self._local_tensor._version)
    retains_grad = property(lambda self: self._local_tensor.retains_grad)

    T = property(lambda self: self.permute(*reversed(range(self.ndim))))
    mT = property(lambda self: self.transpose(-2, -1))

    def __hash__(self) -> int:
        return id(self)

    # ------------------------------------------------------------------------------------------------ gradients
    @property
    def requires_grad(self) -> bool:
        """Whether gradients are recorded for it."""
        return bool(self._local_tensor.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._local_tensor.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Has gradients recorded for it, or not."""
        self._local_tensor.requires_grad_(requires_grad)
        return self

    def _like(self, local: Tensor) -> Any:
        """A gradient of this tensor, of which this is the piece."""
        return make(local, self._mesh, moving.dual(self._placed), self.meta.shape)

    @property
    def grad(self) -> Any:
        """The gradient, a DTensor; that of a part of a sum is replicated."""
        g = self._local_tensor.grad
        if g is None:
            return None
        known = self.__dict__.get("_kept_grad")
        if known is None or known._local_tensor is not g:
            known = self.__dict__["_kept_grad"] = self._like(g)
        return known

    @grad.setter
    def grad(self, value: Any) -> None:
        self.__dict__.pop("_kept_grad", None)
        if isinstance(value, DTensor):
            value = value.redistribute(self._mesh, moving.dual(self._placed))._local_tensor.detach()
        self._local_tensor.grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> Any:
        """The same tensor off the tape."""
        return make(self._local_tensor.data, self._mesh, self._placed, self.meta.shape)

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor):
            raise RuntimeError(f"the data of a DTensor must be a DTensor, got {type(value).__name__}")
        self._local_tensor.data = value._local_tensor
        self._mesh, self._placed, self.meta = value._mesh, value._placed, value.meta.under
        self.store, self.ptr = value.store, value.ptr

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Gradients of all leaves; `gradient` is a DTensor, which may be left out for one element."""
        if isinstance(gradient, DTensor):
            gradient = gradient.redistribute(self._mesh, moving.dual(self._placed))._local_tensor
        if inputs is not None:
            inputs = [i._local_tensor if isinstance(i, DTensor) else i for i in ([inputs] if isinstance(inputs, Tensor) else inputs)]
        self._local_tensor.backward(gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Any) -> Any:
        """Calls `hook(grad)` with the gradient as a DTensor."""
        def on_piece(g: Any) -> Any:
            made = hook(self._like(g))
            return made.redistribute(self._mesh, moving.dual(self._placed))._local_tensor if isinstance(made, DTensor) else made
        return self._local_tensor.register_hook(on_piece)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Calls `hook(self)` after a leaf's gradient has been accumulated."""
        return self._local_tensor.register_post_accumulate_grad_hook(lambda _: hook(self))

    def retain_grad(self) -> None:
        """Keeps the gradient of a computed tensor in `.grad` too."""
        self._local_tensor.retain_grad()

    def detach(self) -> Any:
        """The same tensor off the tape."""
        return make(self._local_tensor.detach(), self._mesh, self._placed, self.meta.shape)

    def detach_(self) -> Any:
        """Takes it off the tape."""
        self._local_tensor.detach_()
        return self

    # ------------------------------------------------------------------------------------------------ pieces and wholes
    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Any = None, *, run_check: bool = False, shape: Any = None,
                   stride: Any = None, grad_placements: Any = None) -> Any:
        """The tensor whose piece here is `local_tensor`; gradients go on into it.

        Without `shape` all pieces are taken to have this one's size.  run_check: replicated axes get the values of their first process.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError("the local_tensor argument only accepts torch.Tensor but got DTensor value.")
        if not isinstance(local_tensor, Tensor):
            raise TypeError(f"from_local: local_tensor must be a Tensor, got {type(local_tensor).__name__}")
        mesh = current() if device_mesh is None else device_mesh
        placed = checked_placements(placements, mesh, local_tensor.dim(), "from_local")
        whole = list(local_tensor.shape)
        if shape is None:
            for i, p in enumerate(placed):
                if p.is_shard():
                    whole[p.dim] *= mesh.shape[i]
        else:
            whole = list(shape)
        if run_check and mesh.get_coordinate() is not None:
            from .. import collectives
            for i, p in enumerate(placed):
                if p.is_replicate():
                    with no_grad():
                        local_tensor = local_tensor.contiguous()
                        collectives.broadcast(local_tensor.detach(), group=mesh.get_group(i), group_src=0)
        return make(local_tensor if local_tensor.requires_grad else local_tensor.detach(), mesh, placed, whole)

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """This process's piece, with gradients.

        grad_placements: how the gradient will come; where it says Partial() for an axis along which the tensor is replicated, the processes' gradients are
        added up.
        """
        local = self._local_tensor
        if grad_placements is not None and local.requires_grad:
            wanted = checked_placements(grad_placements, self._mesh, self.ndim, "to_local")
            return moving.vary(local, self._mesh, [i for i, (p, q) in enumerate(zip(self._placed, wanted)) if p.is_replicate() and q.is_partial()])
        return local

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Any = None, *, async_op: bool = False, forward_dtype: Any = None,
                     backward_dtype: Any = None) -> Any:
        """The same tensor in other parts.  Raises RuntimeError for a part of a sum that is wanted of what is in pieces, NotImplementedError for another
        mesh."""
        if device_mesh is not None and device_mesh != self._mesh:
            raise NotImplementedError("redistribute: from one mesh to another is not there; both must be the same")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        wanted = checked_placements(placements, self._mesh, self.ndim, "redistribute")
        if wanted == self._placed:
            return self
        for p, q in zip(self._placed, wanted):
            if q.is_partial() and p != q:
                raise RuntimeError("Can not redistribute to Partial, redistributing to Partial is for internal use only!")
        return moved(self, wanted)

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """The whole, on every process."""
        found: Tensor = self.redistribute(self._mesh, [Replicate()] * self._mesh.ndim).to_local(grad_placements=grad_placements)
        return found

    # ------------------------------------------------------------------------------------------------ as a value
    def item(self) -> Any:
        """The number that it is."""
        return self.full_tensor().item()

    def tolist(self) -> Any:
        """The whole's numbers."""
        return self.full_tensor().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The whole as an array."""
        return self.full_tensor().numpy(force=force)

    def data_ptr(self) -> int:
        """The address of the piece."""
        return self._local_tensor.data_ptr()

    def is_contiguous(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the piece is contiguous."""
        return bool(self._local_tensor.is_contiguous(*args, **kwargs))

    def untyped_storage(self) -> Any:
        """The piece's storage."""
        return self._local_tensor.untyped_storage()

    def __bool__(self) -> bool:
        return bool(self.full_tensor())

    def __float__(self) -> float:
        return float(self.full_tensor())

    def __int__(self) -> int:
        return int(self.full_tensor())

    def __index__(self) -> int:
        return self.full_tensor().__index__()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DTensor(local_tensor={self._local_tensor!r}, device_mesh={self._mesh!r}, placements={self._placed!r})"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        from copy import deepcopy
        made = memo[id(self)] = make(deepcopy(self._local_tensor, memo), self._mesh, self._placed, self.meta.shape, type(self))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return again, (self._local_tensor.detach(), self._mesh, self._placed, tuple(self.meta.shape), self.requires_grad, isinstance(self, Parameter))

    def _parameter(self, requires_grad: bool) -> Any:
        """What `nn.Parameter` makes of it."""
        made = make(self._local_tensor.detach(), self._mesh, self._placed, self.meta.shape, ParameterInParts)
        return made.requires_grad_(requires_grad)


class ParameterInParts(DTensor, Parameter):  # type: ignore[misc]
    """A DTensor that is a module's parameter."""

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        return data._parameter(requires_grad)

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Parameter containing:\n{DTensor.__repr__(self)}"


def again(local: Tensor, mesh: DeviceMesh, placements: Any, shape: Any, requires_grad: bool, parameter: bool = False) -> Any:
    """An unpickled DTensor."""
    made = make(local, mesh, placements, shape, ParameterInParts if parameter else DTensor)
    return made.requires_grad_(requires_grad)


def moved(t: DTensor, placements: tuple[Any, ...]) -> Any:
    """`redistribute` to any placements; the result remembers what it was gathered from."""
    if placements == t._placed:
        return t
    local = moving.redistribute(t._local_tensor, t._mesh, t._placed, placements, t.meta.shape)
    made = make(local, t._mesh, placements, t.meta.shape)
    if t._local_tensor.requires_grad and not any(p.is_partial() for p in (*placements, *t._placed)):
        made.__dict__["_origin"] = t._local_tensor, t._placed
    return made


def entering(t: DTensor, placements: tuple[Any, ...], out: Sequence[Any]) -> Tensor:
    """The piece that an operation works on whose operand shall lie so, and its result `out`: where the tensor is replicated and the result is not, the
    gradients of all are added up on the way back."""
    t = moved(t, placements)
    local = t._local_tensor
    if not local.requires_grad:
        return local
    axes = tuple(i for i, (p, q) in enumerate(zip(placements, out)) if p.is_replicate() and not q.is_replicate() and t._mesh.shape[i] > 1)
    if not axes:
        return local
    known = t.__dict__.get("_varied")
    if known is not None and known[0] == axes and known[1] == local._version:
        varied: Tensor = known[2]
        return varied
    origin = t.__dict__.get("_origin")
    if origin is not None and any(origin[1][i].is_shard() for i in axes):
        varied = moving.gathered(local, origin[0], t._mesh, origin[1], axes, placements, t.meta.shape)
    else:
        varied = moving.vary(local, t._mesh, axes)
    if not local.is_leaf:
        t.__dict__["_varied"] = axes, local._version, varied
    return varied


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Any = None, *, src_data_rank: int | None = 0) -> Any:
    """A leaf in parts, of a whole tensor that process `src_data_rank` of each axis has; None: of that which every process has itself.

    Raises RuntimeError for Partial(), ValueError for placements that do not fit, or for a DTensor that lies otherwise.
    """
    mesh = current() if device_mesh is None else device_mesh
    if not isinstance(tensor, Tensor):
        raise TypeError(f"distribute_tensor: tensor must be a Tensor, got {type(tensor).__name__}")
    placed = checked_placements(placements, mesh, tensor.dim(), "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}.")
        if tensor.placements != placed:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placed}. do you want to call "
                             "`redistribute` instead?")
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    if any(p.is_partial() for p in placed):
        raise RuntimeError("distribute_tensor: Partial() is what operations give; distribute by Shard and Replicate")
    if tensor.device.type not in (mesh.device_type, "meta"):
        tensor = unasked(tensor.detach().to)(mesh.device_type).requires_grad_(tensor.requires_grad)
    with no_grad():
        whole = tensor.detach()
        if src_data_rank is not None and whole.device.type != "meta" and mesh.get_coordinate() is not None and mesh.size() > 1:
            from .. import collectives
            whole = whole.clone()
            for i in range(mesh.ndim):
                if mesh.shape[i] > 1:
                    collectives.broadcast(whole, group=mesh.get_group(i), group_src=min(src_data_rank, mesh.shape[i] - 1))
        local = whole
        sizes, starts = local_piece(tuple(whole.shape), mesh, placed)
        for d, (n, start) in enumerate(zip(sizes, starts)):
            if n != whole.shape[d]:
                local = local.narrow(d, start, n)
        if mesh.get_coordinate() is None:
            local = whole.new_empty((0,))
        if any(p.is_shard() for p in placed):
            local = local.clone()
    made = make(local.contiguous(), mesh, placed, tuple(tensor.shape))
    return made._parameter(tensor.requires_grad) if isinstance(tensor, Parameter) else made.requires_grad_(tensor.requires_grad)


__all__ = ["DTensor", "Partial", "distribute_tensor"]
