"""How a pointwise formula becomes an operation: promotion, broadcasting, a prepared launch, and its place on the tape.

`Pointwise` is one formula.  The first call on operands of some layouts makes a `Plan` (everything that can be worked out
ahead); later calls look it up, allocate and launch.  The gradient of a formula is another `Pointwise`, derived from it, so
gradients of any order are fused kernels too.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks, layout
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..engine import fields
from ..engine.fronts import NUMBER, SCALAR, WORD, Signature, exact
from ..engine.operation import Operation
from ..engine.plans import Compose, Plan, Saved, Written, roles, writing
from ..kernels import derive
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.formulas import plain
from ..kernels.programs import Map
from ..runtime import caches, dispatch
from ..tensor import Meta, Tensor, alias, meta
from . import checks, launch, outputs
from .unsupported import SparseMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..runtime.device import device

_holes = count()


def hole(d: dtype) -> Expr:
    """A leaf like no other, to be replaced: derivations nest, so two of them must never share one."""
    return E.make("hole", d, (), next(_holes))


all_formulas: list[Pointwise] = []


class Tape:
    """What the backward pass of a formula needs: which operands to save, and the formula that uses them.

    grads[i] is the place of operand i's gradient in `op`'s outputs, "same" when the arriving gradient is it unchanged, or
    None when there is none.
    """

    __slots__ = ("op", "grads", "saved", "save_out", "given")

    def __init__(self, op: Pointwise | None, grads: tuple[Any, ...], saved: tuple[int, ...], save_out: bool,
                 given: tuple[int, ...]) -> None:
        self.op, self.grads, self.saved, self.save_out, self.given = op, grads, saved, save_out, given


class Info(tape.Described):
    """The part of a tape node that every call on the same layouts shares."""

    __slots__ = ("op", "tape", "metas", "consts")

    def __init__(self, op: Pointwise, t: Tape, metas: tuple[Meta | None, ...], consts: tuple[Any, ...]) -> None:
        self.op, self.tape, self.metas, self.consts, self.grad_name = op, t, metas, consts, op.grad_name


_ON_LEAVES = fields.of("on_leaves")
_LIES = fields.of("gradient_lies")


class Pointwise:
    """One formula as an operation.

    name: the public name.  formula: from expressions (operands in the computation's type, then the `numbers`), with the
    `consts` as keywords, to an expression or a tuple of them.  arity: how many operands.  promote: "default" (the
    operands' common type), "float" (the same, integers becoming the default float type) or "none" (each operand keeps its
    own type).  apart: operands that take no part in promotion (conditions).  grad: optional formula
    ``(g, *operands, out, *numbers, **consts)`` for the operands' gradients where the derived one would be less accurate.
    accept: the kinds of common type it is defined for.  alike: tensors of one type only.  types: called with the operands, raises for types that
    it does not take together.  lacks: for what PyTorch has no derivative, so that a backward pass raises RuntimeError there: "" for nothing,
    "both" operands, the "first" (NotImplementedError), the second "of a number" and a tensor, or "complex" results, which are refused at once.
    divides: the second operand is a divisor, which may not be 0 among integers.  decides: the result jumps, so that numbers and 0-dim operands
    beside 16-bit tensors are rounded to their type first, as in PyTorch: an element that was written as 0.1 equals 0.1.
    """

    __slots__ = ("name", "grad_name", "formula", "arity", "promote", "apart", "grad", "accept", "alike", "types", "lacks", "divides", "decides", "calls", "env",
                 "tapes", "programs")

    def __init__(self, name: str, formula: Callable[..., Any], arity: int, promote: str = "default",
                 apart: tuple[int, ...] = (), grad: Callable[..., Any] | None = None, accept: str = "buifc", alike: bool = False,
                 types: Callable[..., None] | None = None, lacks: str = "") -> None:
        self.name, self.formula, self.arity, self.promote, self.apart, self.grad = name, formula, arity, promote, apart, grad
        self.accept, self.alike, self.types, self.lacks, self.divides = accept, alike, types, lacks, False
        self.decides = False
        self.grad_name = "".join(w.capitalize() for w in name.split("_")) + "Backward0"
        self.calls: dict[int, Any] = {}  # by the count of numbers
        self.env: dict[str, Any] = {}  # holds "into", the plans of calls that write into given tensors
        self.tapes: dict[Any, Tape] = {}
        self.programs: dict[Any, tuple[Map, tuple[Any, ...]]] = {}
        all_formulas.append(self)

    # -------------------------------------------------------------------------------------------------------- running
    def __call__(self, operands: tuple[Any, ...], numbers: tuple[Any, ...] = (), consts: tuple[Any, ...] = ()) -> Any:
        """The operation on tensors and numbers: one tensor, or a tuple where the formula gives several."""
        call = self.calls.get(len(numbers))
        if call is None:
            call = self.calls[len(numbers)] = _Formula(self, len(numbers)).started().direct
        return call(*operands, *numbers, consts)

    def planned(self, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...]) -> Any:
        """The plan of a call; or, among expressions, the formula's."""
        if any(isinstance(x, Expr) for x in operands):
            return self.formula(*operands, *numbers, **dict(consts))
        n = self.arity
        if checks.to_one_device(self.name, operands) is not operands:
            return Compose(lambda *given: self(checks.to_one_device(self.name, given[:n]), given[n:], consts))
        if any(isinstance(x, complex) for x in operands):
            def scalars_first(*given: Any) -> Any:
                like = next(x for x in given if isinstance(x, Tensor))
                return self(tuple([checks.scalar_tensor(x, like) if isinstance(x, complex) else x for x in given[:n]]), given[n:], consts)
            return Compose(scalars_first)
        return self.plan(operands, numbers, consts)

    def common(self, operands: Sequence[Any]) -> dtype:
        """The type the operation computes in, before half types are widened."""
        if self.types is not None:
            self.types(*operands)
        here = [x for i, x in enumerate(operands) if i not in self.apart]
        common = dtypes.result_of([x.meta.dtype for x in here if isinstance(x, Tensor) and x.meta.shape],
                                  [x.meta.dtype for x in here if isinstance(x, Tensor) and not x.meta.shape],
                                  [dtypes.of_scalar(x) for x in here if not isinstance(x, Tensor)])
        if self.promote == "float" and common.kind in "bui":
            common = dtypes.get_default_dtype()
        if self.alike:
            kinds = [x.meta.dtype for x in here if isinstance(x, Tensor)]
            if any(d.is_complex for d in kinds) and "c" not in self.accept:
                raise RuntimeError(f"{self.name} is not yet implemented for complex tensors.")
            common = kinds[0] if kinds[0].kind not in self.accept else common
            other = next((d for d in kinds if d is not kinds[0]), None)
            if other is not None:
                raise RuntimeError(f"{self.name} is not yet implemented for tensors with different dtypes. Got {dtypes.title(kinds[0])} and "
                                   f"{dtypes.title(other)}; .to(dtype) makes them one type.")
        if common.kind not in self.accept:
            raise NotImplementedError(f"\"{self.name}\" not implemented for '{_type_name(common)}'")
        return common

    def program(self, operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...],
                common: dtype, store: tuple[dtype, ...] | None) -> tuple[Map, tuple[Any, ...]]:
        """The loop program for operands of these types, and the converters of its numbers."""
        key = (tuple([x.meta.dtype if isinstance(x, Tensor) else None for x in operands]),
               tuple([type(x) for x in numbers]), exact(consts), common, store)
        found = self.programs.get(key)
        if found is None:
            found = self.programs[key] = self._build(operands, numbers, consts, common, store)
        return found

    def _build(self, operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...], common: dtype,
               store: tuple[dtype, ...] | None) -> tuple[Map, tuple[Any, ...]]:
        compute = common.opmath
        inputs: list[dtype] = []
        scalars: list[dtype] = []
        xs: list[Expr] = []

        def narrow(e: Expr) -> Expr:
            return E.cast(e, common) if self.decides and common.kind == "f" and common is not compute else e
        for i, x in enumerate(operands):
            if isinstance(x, Tensor):
                d = x.meta.dtype
                e = E.input(len(inputs), d)
                inputs.append(d)
                xs.append(e if i in self.apart or self.promote == "none" else E.cast(narrow(e) if d.kind == "f" else e, compute))
            else:
                xs.append(E.cast(narrow(E.scalar(len(scalars), compute)), compute))
                scalars.append(compute)
        for x in numbers:
            d = _number_type(x, compute)
            xs.append(E.cast(narrow(E.scalar(len(scalars), d)), d))
            scalars.append(d)
        made = self.formula(*xs, **dict(consts))
        outs = made if isinstance(made, tuple) else (made,)
        # a half type computes in float32 and is rounded once, at the end, also where it is written as a wider type
        if self.promote != "none" and common is not compute:
            rounded = {compute: common, compute.to_real(): common.to_real(), compute.to_complex(): common.to_complex()}
            outs = tuple(E.cast(e, rounded.get(e.dtype, e.dtype)) for e in outs)
        if store is not None:
            outs = tuple(E.convert(e, d) for e, d in zip(outs, store, strict=True))
        return Map(plain(outs), tuple(inputs), tuple(scalars)), tuple(_CONVERT[d.kind] for d in scalars)

    def strides(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """The strides of a result in new memory."""
        common = self.common(operands) if self.promote != "none" else None
        layouts = [(tuple(x.meta.shape), self._read(x.meta, common if i not in self.apart else None)) if isinstance(x, Tensor) else ((), ())
                   for i, x in enumerate(operands)]
        if isinstance(self.formula, _Derived) and self.formula.op.name in _LIES:
            arriving = sum(self.formula.given)
            layouts = layouts[arriving:] + layouts[:arriving]
        return layout.result_strides(tuple(layout.broadcast_shapes(*[s for s, _ in layouts])), layouts)

    @staticmethod
    def _read(m: Meta, common: dtype | None) -> tuple[int, ...]:
        """Strides by which an operand orders a result's axes.  On the CPU PyTorch first makes a dense copy of one of another type."""
        copied = common is not None and m.dtype is not common and m.device.type == "cpu"
        return layout.dense_like(tuple(m.shape), m.strides) if copied else m.strides

    def plan(self, operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...]) -> Plan:
        """The plan of a call whose operands are on one device."""
        common = self.common(operands)
        program, convert = self.program(operands, numbers, consts, common, None)
        metas = [x.meta for x in operands if isinstance(x, Tensor)]
        first, dev = metas[0], metas[0].device
        tensors = len(metas) == len(operands)  # beside a number strides of axes of one element count, as PyTorch broadcasts it
        if first.contiguous and all(m is first or m.contiguous and m.shape == first.shape for m in metas) and (tensors or 1 not in first.shape):
            shape: tuple[int, ...] = first.shape  # as most calls are
            strides = None
        else:
            shape, strides = layout.broadcast_shapes(*[m.shape for m in metas]), self.strides(operands)
        outs = tuple([meta(shape, strides, d, dev) for d in program.out_types])
        launch = self._launch(program, tuple(shape), [*outs, *metas], operands, common)
        given = [x for x in operands if not isinstance(x, Tensor)] + list(numbers)
        saving = partial(self._saving, numbers=len(numbers), consts=consts, many=len(outs) > 1)
        return Plan(outs, launch, numbers=[_exactly(c, x, dev) for c, x in zip(convert, given, strict=True)], saved=saving(operands),
                    dense=(program, saving) if strides is None and dev.type == "cpu" else None)

    def _launch(self, program: Map, shape: tuple[int, ...], metas: Sequence[Meta], operands: Sequence[Any], common: dtype) -> Callable[..., Any]:
        """The bound launch; where it divides integers on the CPU, one that first looks whether a divisor is 0."""
        dev = metas[0].device
        call = launcher(program, shape, metas, dev, self.name)
        if not self.divides or common.kind not in "ui" or dev.type != "cpu" or not layout.numel(shape):
            return call
        divisor = operands[1]
        if isinstance(divisor, Tensor):
            place = len(metas) - sum(isinstance(x, Tensor) for x in operands[1:])
            zeros: Any = launch.counter(divisor.meta, "zero divisors", lambda x: x == 0)
        else:
            place, seen = len(metas), (1 << 8 * common.itemsize) - 1  # of a number the kernel sees these bits
            zeros = lambda x: not x & seen  # noqa: E731

        def checked(*given: Any) -> None:
            if zeros(given[place]):
                raise RuntimeError("ZeroDivisionError")
            call(*given)
        return checked

    def _saving(self, operands: Sequence[Any], numbers: int, consts: tuple[Any, ...], many: bool) -> Callable[[tuple[bool, ...]], Saved]:
        """What the tape keeps of such a call, by which operands require grad."""
        n = self.arity
        metas = tuple([x.meta if isinstance(x, Tensor) else None for x in operands[:n]])
        params = tuple(range(n, n + numbers))

        def saved(needs: tuple[bool, ...]) -> Saved:
            info = self._info(needs[:n], metas, consts)
            if self._underived(needs, metas):
                return Saved(_no_derivative, info=info)
            t = info.tape
            linear = not t.saved and not t.save_out
            return Saved(_backward_linear if linear else _backward, t.saved, (0,) if t.save_out else (), info, params)

        def several(needs: tuple[bool, ...]) -> Saved:
            return Saved(_backward_many, tuple(range(n)), (), Several(self, needs[:n], consts), params)
        return several if many else saved

    def write(self, outs: tuple[Tensor, ...], operands: tuple[Any, ...], numbers: tuple[Any, ...] = (),
              consts: tuple[Any, ...] = ()) -> None:
        """Computes into existing tensors (of the broadcast shape); no recording, versions go up."""
        if not self.env:
            caches.cache(self.env, "into")
        if complex in [type(x) for x in operands]:
            operands = tuple([checks.scalar_tensor(x, outs[0]) if isinstance(x, complex) else x for x in operands])
        key = (*[o.meta for o in outs], *[x.meta if isinstance(x, Tensor) else type(x) for x in operands], *[type(x) for x in numbers],
               consts and exact(consts))
        found = self.env["into"].get(key)
        if found is None:
            moved = checks.to_one_device(self.name, operands, outs)
            if moved is not operands:
                self.write(outs, moved, numbers, consts)
                return
            since, found = caches.epoch, self.writing(tuple([o.meta for o in outs]), operands, numbers, consts)
            caches.keep_since(since, self.env["into"], key, found)
        launch, convert = found
        if len(outs) == 1:
            operands = checks.apart_from(outs[0], operands)
        given = [x for x in operands if not isinstance(x, Tensor)]
        given += numbers
        launch(*[o.ptr for o in outs], *[x.ptr for x in operands if isinstance(x, Tensor)],
               *[x if c is None else c(x) for c, x in zip(convert, given, strict=True)])
        for o in outs:
            o.store.version += 1

    def planned_out(self, out: Tensor, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...], passed: int) -> Callable[..., Any] | None:
        """What carries out further calls with `out=` on these layouts, given `out`, the operands, the numbers, and as much more that so many are `passed`;
        None where the operands have to be moved first."""
        if any(isinstance(x, complex) for x in operands) or checks.to_one_device(self.name, operands, (out,)) is not operands:
            return None
        launch, convert = self.writing((out.meta,), operands, numbers, consts)
        truth = self.program(operands, numbers, consts, self.common(operands), None)[0].out_types[0].kind == "b"
        n, tensors = self.arity, [i for i, x in enumerate(operands) if isinstance(x, Tensor)]
        rest = [i for i in range(n + len(numbers)) if i not in tensors]
        name = self.name

        def call(out: Tensor, *given: Any) -> Tensor:
            store, ptrs = out.store, [out.ptr]
            recorded = out.node is not None
            for i in tensors:
                x = given[i]
                recorded = recorded or x.node is not None
                if x is not out and x.store.ptr == store.ptr:
                    checks.apart_from(out, (x,))
                ptrs.append(x.ptr)
            if recorded and not truth:
                outputs.forbid_recording(name, given, out)
            launch(*ptrs, *[given[i] if c is None else c(given[i]) for i, c in zip(rest, convert, strict=True)])
            store.version += 1
            return out
        given = roles((*operands, *numbers))
        return writing(launch, "t" + given + "x" * (passed - len(given)), None, convert, call)

    def writing(self, outs: tuple[Meta, ...], operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """The launch that writes into tensors of these metas, and the converters of its numbers."""
        common = self.common(operands)
        program, convert = self.program(operands, numbers, consts, common, tuple(m.dtype for m in outs))
        metas = [x.meta for x in operands if isinstance(x, Tensor)]
        shape = layout.broadcast_shapes(*[m.shape for m in metas])
        if shape != tuple(outs[0].shape):
            raise RuntimeError(f"output with shape {list(outs[0].shape)} doesn't match the broadcast shape {list(shape)}")
        launch = self._launch(program, tuple(shape), [*outs, *metas], operands, common)
        given = [x for x in operands if not isinstance(x, Tensor)] + list(numbers)
        return launch, tuple([_exactly(c, x, outs[0].device) for c, x in zip(convert, given, strict=True)])

    def planned_inplace(self, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...]) -> Any:
        """The plan of ``t = formula(t, ...)`` in t's own memory, t the first operand."""
        t = operands[0]
        n = self.arity

        def general(*given: Any) -> Tensor:
            return self.inplace(given[0], given[:n], given[n:], consts)
        if _grad.get():
            self._recorded(t, operands)  # before what is wrong with the operands, as PyTorch does
        checks.may_write(t)
        if any(isinstance(x, complex) for x in operands) or checks.to_one_device(self.name, operands, (t,)) is not operands:
            return Compose(general)
        self._may_hold(t, operands, numbers, consts)
        launch, convert = self.writing((t.meta,), operands, numbers, consts)
        alike = t.meta.contiguous and all(x.meta.contiguous and x.meta.shape == t.meta.shape for x in operands if isinstance(x, Tensor))
        program = self.program(operands, numbers, consts, self.common(operands), (t.meta.dtype,))[0] if alike else None
        saving = None if self.name in _ON_LEAVES else self._saving(operands, len(numbers), consts, False)  # without, `general` records
        return Written(launch, convert, general, saving, _copy, program)

    def _recorded(self, t: Tensor, operands: tuple[Any, ...]) -> bool:
        """Whether a call in place is recorded.  Raises RuntimeError where PyTorch forbids it."""
        if self.name in _ON_LEAVES:  # the truth of another operand has no gradient
            return not inplace.of_leaf(t) and inplace.check(t, (t,))
        return inplace.check(t, operands)

    def _may_hold(self, t: Tensor, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...]) -> None:
        """Raises RuntimeError where the result's type does not fit into t's."""
        made = self.program(operands, numbers, consts, self.common(operands), None)[0].out_types[0]
        if self.name == "abs" and t.meta.dtype.is_complex:  # it would have to stay complex
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        if not dtypes.can_cast(made, t.meta.dtype):
            raise RuntimeError(f"result type {_type_name(made)} can't be cast to the desired output type {_type_name(t.meta.dtype)}")

    def inplace(self, t: Tensor, operands: tuple[Any, ...], numbers: tuple[Any, ...] = (), consts: tuple[Any, ...] = ()) -> Tensor:
        """``t = formula(t, ...)`` in t's own memory; `operands` includes t."""
        recording = _grad.get() and self._recorded(t, operands)
        checks.may_write(t)
        self._may_hold(t, operands, numbers, consts)
        if recording and self._saves(t, operands, consts):
            # the gradient needs what is about to be overwritten
            from .copies import dense_of
            before = dense_of(t)
        else:
            before = alias(t, t.meta, t.ptr)
        before.node = t.node
        version = t.store.version
        self.write((t,), operands, numbers, consts)
        if recording:
            seen = tuple([before if x is t else checks.scalar_tensor(x, t) if isinstance(x, complex) else x for x in operands])
            if self.name in _ON_LEAVES:
                seen = tuple([alias(x, x.meta, x.ptr) if isinstance(x, Tensor) and x is not before else x for x in seen])
            holder = alias(t, t.meta, t.ptr)
            self._record(seen, numbers, consts, holder, version)
            inplace.rebase(t, holder.node)
        return t

    # ------------------------------------------------------------------------------------------------------ recording
    def _underived(self, needs: Sequence[bool], metas: Sequence[Meta | None]) -> bool:
        """Whether there is no derivative for one of the operands in `needs`."""
        if self.lacks == "complex":
            if any(m is not None and m.dtype.is_complex for m in metas):
                raise RuntimeError(f"{self.name} does not support automatic differentiation for outputs with complex dtype.")
            return False
        return self.lacks == "both" or self.lacks == "of a number" and metas[0] is None or self.lacks == "first" and needs[0]

    def _saves(self, t: Tensor, operands: tuple[Any, ...], consts: tuple[Any, ...]) -> bool:
        """Whether the gradient of these operands is computed from the values of `t`."""
        needs = tuple([isinstance(x, Tensor) and x.node is not None for x in operands])
        info = self._info(needs, tuple([x.meta if isinstance(x, Tensor) else None for x in operands]), consts)
        return any(operands[i] is t for i in info.tape.saved)

    def _record(self, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...], out: Tensor, version: int) -> None:
        """Puts a call in place on the tape: an operand in `out`'s memory was saved as it was before the write, at `version`."""
        needs = tuple([isinstance(x, Tensor) and x.node is not None for x in operands])
        metas = tuple([x.meta if isinstance(x, Tensor) else None for x in operands])
        info = self._info(needs, metas, consts)
        if self._underived(needs, metas):
            out.node = tape.node(_no_derivative, tuple([x.node if isinstance(x, Tensor) else None for x in operands]), (info, (), (), (), numbers))
            return
        t = info.tape
        kept = tuple([operands[i] for i in t.saved])
        versions = tuple([0 if not isinstance(x, Tensor) else version if x.store is out.store and x.ptr == out.ptr else x.store.version for x in kept])
        results = ((alias(out, out.meta, out.ptr), out.store.version),) if t.save_out else ()
        edges = tuple([x.node if isinstance(x, Tensor) else None for x in operands])
        out.node = tape.node(_backward if kept or results else _backward_linear, edges, (info, kept, versions, results, numbers))

    def _info(self, needs: tuple[bool, ...], metas: tuple[Meta | None, ...], consts: tuple[Any, ...]) -> Info:
        kinds = tuple([m is not None and m.dtype.is_complex for m in metas])
        return Info(self, self.tape(needs, (True,), consts, kinds), metas, consts)

    def tape(self, needs: tuple[bool, ...], given: tuple[bool, ...], consts: tuple[Any, ...], kinds: tuple[bool, ...]) -> Tape:
        """How to differentiate for the operands in `needs`, from the gradients of the outputs in `given`; kinds: which operands
        are complex."""
        key = (needs, given, consts, kinds)
        found = self.tapes.get(key)
        if found is None:
            found = self.tapes[key] = self._derive(needs, given, consts, kinds)
        return found

    def _gradient_exprs(self, gs: Sequence[Expr | None], xs: Sequence[Expr], numbers: Sequence[Expr], consts: dict[str, Any],
                        needs: Sequence[bool], out: Expr | None) -> list[Expr | None]:
        """Gradients of the needed operands, with `out` standing for the first output where it occurs (None: not)."""
        made = self.formula(*xs, *numbers, **consts)
        ys = made if isinstance(made, tuple) else (made,)
        # promotion beside a complex operand made what belongs to a real output complex
        gs = [E.real(g) if g is not None and g.dtype.is_complex and not y.dtype.is_complex else g for g, y in zip(gs, ys)]
        if out is not None and out.dtype.is_complex and not ys[0].dtype.is_complex:
            out = E.real(out)
        if self.grad is not None:
            found = self.grad(gs[0], *xs, out if out is not None else ys[0], *numbers, **consts)
            found = list(found) if isinstance(found, tuple) else [found]
        else:
            leaves = [hole(x.dtype) for x in xs]
            made = self.formula(*leaves, *numbers, **consts)
            ys = made if isinstance(made, tuple) else (made,)
            got = derive.gradients(ys, gs, [x for x, n in zip(leaves, needs, strict=True) if n])
            queue = iter(got)
            found = [next(queue) if n else None for n in needs]
            back = dict(zip(leaves, xs, strict=True))
            if out is not None:
                back[ys[0]] = out
            present = tuple(e for e in found if e is not None)
            swapped = iter(E.rebuild(present, lambda e: back.get(e)))
            found = [None if e is None else next(swapped) for e in found]
        return [e if n else None for e, n in zip(found, needs, strict=True)]

    def _derive(self, needs: tuple[bool, ...], given: tuple[bool, ...], consts: tuple[Any, ...], kinds: tuple[bool, ...]) -> Tape:
        kw = dict(consts)
        types = [dtypes.complex64 if k else dtypes.float32 for k in kinds]
        xs = [hole(d) for d in types]
        numbers = [hole(dtypes.complex64 if True in kinds else dtypes.float32) for _ in range(_numbers_of(self, kw))]
        made = self.formula(*xs, *numbers, **kw)
        ys = made if isinstance(made, tuple) else (made,)
        gs = [hole(e.dtype) if here else None for e, here in zip(ys, given, strict=True)]
        y = hole(ys[0].dtype)
        best: tuple[list[Expr | None], tuple[int, ...], bool] | None = None
        tries = (None,) if len(given) > 1 else (y,) if self.grad is not None else (None, y)
        for out in tries:
            exprs = self._gradient_exprs(gs, xs, numbers, kw, needs, out)
            used = set(E.walk(tuple(e for e in exprs if e is not None)))
            saved = tuple(i for i, x in enumerate(xs) if x in used)
            uses_out = y in used
            # saving the output lets the operation be done in place, and often saves a tensor
            if best is None or (uses_out and (len(saved) + 1 < len(best[1]) or not saved)):
                best = (exprs, saved, uses_out)
        assert best is not None
        exprs, saved, uses_out = best
        single = gs[0] if len(given) == 1 else None
        grads: list[Any] = []
        place = 0
        # a result that does not vary has a gradient, of zeros; those of gradients may do without
        flat = single is not None and not isinstance(self.formula, _Derived)
        for e, needed in zip(exprs, needs, strict=True):
            if e is None and not (flat and needed):
                grads.append(None)
            elif single is not None and e is single:
                grads.append("same")
            else:
                grads.append(place)
                place += 1
        which = tuple(i for i, gr in enumerate(grads) if isinstance(gr, int))
        op = None
        if which:
            op = Pointwise(self.name + "_backward", _Derived(self, needs, given, saved, uses_out, which, kinds),
                           sum(given) + len(saved) + uses_out)
            op.grad_name = self.grad_name.replace("Backward", "BackwardBackward", 1)
        return Tape(op, tuple(grads), saved, uses_out, tuple(i for i, here in enumerate(given) if here))


class _Derived:
    """The formula of a gradient: from (gradients given, operands saved, output if saved, numbers) to the gradients."""

    __slots__ = ("op", "needs", "given", "saved", "out", "which", "kinds")

    def __init__(self, op: Pointwise, needs: tuple[bool, ...], given: tuple[bool, ...], saved: tuple[int, ...], out: bool,
                 which: tuple[int, ...], kinds: tuple[bool, ...]) -> None:
        self.op, self.needs, self.given, self.saved, self.out, self.which = op, needs, given, saved, out, which
        self.kinds = kinds

    def __call__(self, *args: Expr, **consts: Any) -> tuple[Expr, ...] | Expr:
        rest = list(args)
        gs = [rest.pop(0) if here else None for here in self.given]
        compute = args[0].dtype
        xs: list[Expr] = [hole(compute.to_complex() if k else compute.to_real()) for k in self.kinds]
        for i in self.saved:
            x = rest.pop(0)
            # promotion beside a complex gradient made a real operand complex
            xs[i] = x if self.kinds[i] else E.real(x)
        out = rest.pop(0) if self.out else None
        exprs = self.op._gradient_exprs(gs, xs, rest, consts, self.needs, out)
        found = []
        for i in self.which:
            e = exprs[i]
            found.append(E.const(0, compute) if e is None else e)
        return tuple(found) if len(found) > 1 else found[0]


def _numbers_of(op: Pointwise, consts: dict[str, Any]) -> int:
    """How many numbers a formula takes after its operands."""
    f = op.formula
    if isinstance(f, _Derived):
        return _numbers_of(f.op, consts)
    code = getattr(f, "__code__", None)
    if code is None:
        return int(getattr(f, "numbers", 0))
    return int(code.co_argcount - op.arity - sum(1 for c in consts if c in code.co_varnames[:code.co_argcount]))


def _number_type(x: Any, compute: dtype) -> dtype:
    """A number parameter has the computation's type, unless that is integral and the number is not."""
    return dtypes.get_default_dtype() if isinstance(x, float) and compute.kind in "bui" else compute


def _whole(x: Any) -> int:
    """A number as an integer of 64 bits.  Raises OverflowError where it is larger."""
    found = int(x)
    if not -0x8000000000000000 <= found <= 0xffffffffffffffff:
        raise OverflowError(f"int too big to convert: {found} has more than 64 bits")
    return found


_CONVERT: dict[str, Any] = {"b": int, "u": _whole, "i": _whole, "f": float, "c": complex}


_type_name = dtypes.title


def _copy(t: Tensor) -> Tensor:
    """The values of a tensor in memory of their own, outside the tape."""
    from .copies import clone
    made: Tensor = clone(alias(t, t.meta, t.ptr))
    return made


# ---------------------------------------------------------------------------------------------------------- backward
def saved_tensor(x: Any, version: int, node: tape.Node) -> Any:
    if isinstance(x, Tensor) and x.store.version != version:
        tape.changed(x, version, node)
    return x


@tape.keeps_nothing
def _no_derivative(node: tape.Node, g: Tensor) -> Any:
    op = node[tape.SAVED][0].op
    if op.lacks == "first":
        raise NotImplementedError(f"the derivative for '{op.name}' is not implemented.")
    raise RuntimeError(f"derivative for aten::{op.name} is not implemented")


def _backward(node: tape.Node, g: Tensor) -> list[Tensor | None]:
    info, kept, versions, results, numbers = node[tape.SAVED]
    t = info.tape
    made: Any = ()
    if t.op is not None:
        args = [g]
        for x, v in zip(kept, versions, strict=True):
            if type(x) is not float and isinstance(x, Tensor) and x.store.version != v:
                tape.changed(x, v, node)
            args.append(x)
        for y, v in results:
            if y.store.version != v:
                y.node = node
                tape.changed(y, v, node)
            if _grad.get():  # the output's own history, for gradients of gradients
                y = alias(y, y.meta, y.ptr)
                y.node = node
            args.append(y)
        if g.meta.dtype.itemsize == 2 and any(m is not None and m.shape != g.meta.shape for m in info.metas):
            # what is summed over broadcast axes is rounded once, after the sum
            from .casts import to_dtype
            args[0] = to_dtype(g, g.meta.dtype.opmath)
        made = t.op(args, numbers, info.consts)
        if type(made) is Tensor:
            made = (made,)
    found = []  # type: ignore[var-annotated]
    for gr, m in zip(t.grads, info.metas):  # noqa: B905 (equal lengths by construction; this is the hot path)
        if gr is None or m is None:
            found.append(None)
        else:
            x = g if gr == "same" else made[gr]
            found.append(x if x.meta is m else fit(x, m))
    return found


@tape.keeps_nothing
def _backward_linear(node: tape.Node, g: Tensor) -> list[Tensor | None]:
    """`_backward` of a formula whose gradient needs no operand."""
    return _backward(node, g)


class Several(tape.Described):
    """The part of a node that calls of a formula with several results share."""

    __slots__ = ("op", "needs", "consts")

    def __init__(self, op: Pointwise, needs: tuple[bool, ...], consts: tuple[Any, ...]) -> None:
        self.op, self.needs, self.consts, self.grad_name = op, needs, consts, op.grad_name


def _backward_many(node: tape.Node, gs: list[Tensor | None]) -> list[Tensor | None]:
    info, operands, versions, _, numbers = node[tape.SAVED]
    op, consts = info.op, info.consts
    given = tuple(g is not None for g in gs)
    t = op.tape(info.needs, given, consts, tuple(isinstance(x, Tensor) and x.meta.dtype.is_complex for x in operands))
    args: list[Any] = [g for g in gs if g is not None]
    for i in t.saved:
        args.append(saved_tensor(operands[i], versions[i], node))
    made: Any = ()
    if t.op is not None:
        made = t.op(tuple(args), numbers, consts)
        if isinstance(made, Tensor):
            made = (made,)
    return [None if gr is None or not isinstance(x, Tensor) else fit(args[0] if gr == "same" else made[gr], x.meta)
            for gr, x in zip(t.grads, operands, strict=True)]


def fit(g: Tensor, m: Meta) -> Tensor:
    """A gradient in the shape, type and device of its operand: broadcast axes summed, complex made real."""
    gm = g.meta
    if gm is m:
        return g
    if gm.shape != m.shape:
        from .reductions import sum_to
        g = sum_to(g, m.shape)
        gm = g.meta
    if gm.dtype is not m.dtype:
        from .casts import to_dtype
        if gm.dtype.is_complex and not m.dtype.is_complex:
            from .complexes import real
            g = real(g)
        g = to_dtype(g, m.dtype)
    if gm.device is not m.device:
        from .transfer import to_device
        g = to_device(g, m.device)
    return g


# ----------------------------------------------------------------------------------------------------------- launches
def launcher(program: Any, domain: tuple[int, ...], metas: Sequence[Meta], dev: device, name: str) -> Callable[..., Any]:
    """A bound launch of a map over `domain` on operands of these metas (outputs first), each broadcast to it."""
    strides = tuple([m.strides if m.shape == domain else layout.expand_strides(m.shape, m.strides, domain) for m in metas])
    prepared = dispatch.prepare(dev, program, domain, strides, [m.nbytes for m in metas])
    prepared.name = name
    return dispatch.bind(dev, prepared)


def _exactly(convert: Any, x: Any, dev: device) -> Any:
    """The converter of a number of x's type; None where launches take such numbers as they come."""
    # a launch on the CPU looks itself whether an integer is too large, and at once
    return None if (convert is float and type(x) is float) or (convert is _whole and type(x) is int and dev.type == "cpu") else convert


class Inner(Operation):
    """An operation that others are made of: no user calls it, no class answers for it, no error is put into other words."""

    __slots__ = ()

    def ask(self, values: tuple[Any, ...]) -> Any:
        args, kwargs = self._signature().as_written(values)
        if any("_tangents" in x.__dict__ for x in args if isinstance(x, Tensor) and not x.meta.plain):
            return hooks.answer_of_duals(self, args, kwargs)
        if any(isinstance(x, Tensor) and isinstance(x.meta, SparseMeta) for x in args):
            return hooks.sparse_form(self.name, *self._sparse(args, kwargs))
        return self.as_they_are(values)

    def _sparse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    def tripped(self, error: Exception, values: tuple[Any, ...]) -> Any:
        raise error


class _Formula(Inner):
    """A formula as such an operation."""

    __slots__ = ("pointwise",)

    def __init__(self, pointwise: Pointwise, numbers: int) -> None:
        n = pointwise.arity
        names = [f"x{i}" for i in range(n)] + [f"number{i}" for i in range(numbers)] + ["consts"]
        kinds = {**{f"x{i}": NUMBER for i in range(n)}, **{f"number{i}": SCALAR for i in range(numbers)}, "consts": WORD}
        self.pointwise = pointwise
        super().__init__(pointwise.name, self._plan, planned=True, signature=Signature(names, kinds=kinds))

    def _plan(self, *values: Any) -> Any:
        n = self.pointwise.arity
        return self.pointwise.planned(values[:n], values[n:-1], values[-1])

    def _sparse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args[:-1], dict(args[-1])
