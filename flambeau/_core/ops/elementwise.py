"""How a pointwise formula becomes an operation: promotion, broadcasting, a prepared launch, and its place on the tape.

`Pointwise` is one formula.  The first call on operands of some layouts makes a `Plan` (everything that can be worked out
ahead); later calls look it up, allocate and launch.  The gradient of a formula is another `Pointwise`, derived from it, so
gradients of any order are fused kernels too.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..kernels import derive
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.programs import Map
from ..runtime import door, provenance
from ..tensor import Meta, Storage, Tensor, alias, meta, new, on_forget, storage
from . import arguments, autocast, checks
from .unsupported import SparseMeta, instead, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..runtime.device import device

_MOST_PLANS = 1 << 14
_holes = count()


def hole(d: dtype) -> Expr:
    """A leaf like no other, to be replaced: derivations nest, so two of them must never share one."""
    return E.make("hole", d, (), next(_holes))


_all: list[Pointwise] = []


class Plan:
    """Everything about one call but its addresses: the outputs' metas, the bound launch, how numbers are passed."""

    __slots__ = ("outs", "launch", "convert", "tensors")

    def __init__(self, outs: tuple[Meta, ...], launch: Callable[..., Any], convert: tuple[Any, ...],
                 tensors: tuple[int, ...]) -> None:
        self.outs, self.launch, self.convert, self.tensors = outs, launch, convert, tensors


class Tape:
    """What the backward pass of a formula needs: which operands to save, and the formula that uses them.

    grads[i] is the place of operand i's gradient in `op`'s outputs, "same" when the arriving gradient is it unchanged, or
    None when it is zero everywhere.
    """

    __slots__ = ("op", "grads", "saved", "save_out", "given", "quick")

    def __init__(self, op: Pointwise | None, grads: tuple[Any, ...], saved: tuple[int, ...], save_out: bool,
                 given: tuple[int, ...]) -> None:
        self.op, self.grads, self.saved, self.save_out, self.given = op, grads, saved, save_out, given
        # the gradient of a formula that saves one tensor is a two-operand call
        self.quick = fast_binary(op, lambda a, b: op((a, b))) if op is not None and op.arity == 2 else None


class Info:
    """The part of a tape node that every call on the same layouts shares."""

    __slots__ = ("op", "tape", "metas", "consts", "grad_name", "quick")

    def __init__(self, op: Pointwise, t: Tape, metas: tuple[Meta | None, ...], consts: tuple[Any, ...]) -> None:
        self.op, self.tape, self.metas, self.consts, self.grad_name = op, t, metas, consts, op.grad_name
        self.quick: dict[Meta, tuple[int, Plan]] = {}  # by the arriving gradient's meta: `_forgotten` then, and the backward formula's plan

    def __call__(self, node: Any, g: Any) -> Any:
        return tape.freed(node, g)


tape.described.add(Info)


class Pointwise:
    """One formula as an operation.

    name: the public name.  formula: from expressions (operands in the computation's type, then the `numbers`), with the
    `consts` as keywords, to an expression or a tuple of them.  arity: how many operands.  promote: "default" (the
    operands' common type), "float" (the same, integers becoming the default float type) or "none" (each operand keeps its
    own type).  apart: operands that take no part in promotion (conditions).  grad: optional formula
    ``(g, *operands, out, *numbers, **consts)`` for the operands' gradients where the derived one would be less accurate.
    accept: the kinds of common type it is defined for.
    """

    __slots__ = ("name", "grad_name", "formula", "arity", "promote", "apart", "grad", "accept", "plans", "into", "settled", "pairs", "tapes",
                 "programs", "heeds")

    def __init__(self, name: str, formula: Callable[..., Any], arity: int, promote: str = "default",
                 apart: tuple[int, ...] = (), grad: Callable[..., Any] | None = None, accept: str = "buifc") -> None:
        self.name, self.formula, self.arity, self.promote, self.apart, self.grad = name, formula, arity, promote, apart, grad
        self.accept = accept
        self.grad_name = "".join(w.capitalize() for w in name.split("_")) + "Backward0"
        self.plans: dict[Any, Plan] = {}
        self.into: dict[Any, Plan] = {}
        self.settled: dict[Any, Plan] = {}  # of `into`: what has been written in place before, and may be
        self.pairs: dict[Meta, dict[Any, Any]] = {}  # of `settled`: launches with one other operand, by its meta
        self.tapes: dict[Any, Tape] = {}
        self.programs: dict[Any, tuple[Map, tuple[Any, ...]]] = {}
        self.heeds = autocast.named(name)  # whether `autocast` has a say in its types
        _all.append(self)

    def heeded(self, x: Tensor) -> bool:
        """Whether a call on `x` must look for an autocast region, so that no quick plan may skip that."""
        d = x.meta.dtype
        return self.heeds and (d.opmath is not d or autocast.lowers(self.name))

    # -------------------------------------------------------------------------------------------------------- running
    def __call__(self, operands: tuple[Any, ...], numbers: tuple[Any, ...] = (), consts: tuple[Any, ...] = ()) -> Any:
        """The operation on tensors and numbers: one tensor, or a tuple where the formula gives several."""
        if self.heeds and autocast.regions[0] and autocast.current.get():
            return autocast.under(self.name, lambda *xs: self(xs, numbers, consts), operands, {})
        key = (*[x.meta if isinstance(x, Tensor) else type(x) for x in operands], *[type(x) for x in numbers], consts)
        plan = self.plans.get(key)
        if plan is None:
            found = self._first(operands, numbers, consts)
            if not isinstance(found, Plan):
                return found
            if len(self.plans) > _MOST_PLANS:
                self.plans.clear()
            plan = self.plans[key] = found
        outs = [new(m) for m in plan.outs]
        plan.launch(*[o.ptr for o in outs], *self._arguments(plan, operands, numbers))
        if _grad.get():
            for x in operands:
                if isinstance(x, Tensor) and x.node is not None:
                    self._record(operands, numbers, consts, outs)
                    break
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _arguments(self, plan: Plan, operands: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        args = [operands[i].ptr for i in plan.tensors]
        args += [c(v) for c, v in zip(plan.convert, [x for x in operands if not isinstance(x, Tensor)] + list(numbers),
                                      strict=True)]
        return args

    def _first(self, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...]) -> Any:
        """The plan of a first call, or, where operands must be changed first, the result."""
        if any(isinstance(x, Expr) for x in operands):
            return self.formula(*operands, *numbers, **dict(consts))
        sparse = next((x.meta for x in operands if isinstance(x, Tensor) and isinstance(x.meta, SparseMeta)), None)
        if sparse is not None:
            return instead(self.name, (*operands, *numbers), dict(consts), refusal(self.name, sparse.layout))
        moved = checks.to_one_device(self.name, operands)
        if moved is not operands:
            return self(moved, numbers, consts)
        complexes = [i for i, x in enumerate(operands) if isinstance(x, complex)]
        if complexes:
            like = next(x for x in operands if isinstance(x, Tensor))
            return self(tuple(checks.scalar_tensor(x, like) if isinstance(x, complex) else x for x in operands), numbers, consts)
        return self.plan(operands, numbers, consts)

    def common(self, operands: Sequence[Any]) -> dtype:
        """The type the operation computes in, before half types are widened."""
        here = [x for i, x in enumerate(operands) if i not in self.apart]
        common = dtypes.result_of([x.meta.dtype for x in here if isinstance(x, Tensor) and x.meta.shape],
                                  [x.meta.dtype for x in here if isinstance(x, Tensor) and not x.meta.shape],
                                  [dtypes.of_scalar(x) for x in here if not isinstance(x, Tensor)])
        if self.promote == "float" and common.kind in "bui":
            common = dtypes.get_default_dtype()
        if common.kind not in self.accept:
            raise NotImplementedError(f"\"{self.name}\" not implemented for '{_type_name(common)}'")
        return common

    def program(self, operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...],
                common: dtype, store: tuple[dtype, ...] | None) -> tuple[Map, tuple[Any, ...]]:
        """The loop program for operands of these types, and the converters of its numbers."""
        key = (tuple([x.meta.dtype if isinstance(x, Tensor) else None for x in operands]),
               tuple([type(x) for x in numbers]), consts, common, store)
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
        for i, x in enumerate(operands):
            if isinstance(x, Tensor):
                d = x.meta.dtype
                e = E.input(len(inputs), d)
                inputs.append(d)
                xs.append(e if i in self.apart or self.promote == "none" else E.cast(e, compute))
            else:
                xs.append(E.scalar(len(scalars), compute))
                scalars.append(compute)
        for x in numbers:
            xs.append(E.scalar(len(scalars), _number_type(x, compute)))
            scalars.append(_number_type(x, compute))
        made = self.formula(*xs, **dict(consts))
        outs = made if isinstance(made, tuple) else (made,)
        if store is None:
            # a half type computes in float32 and is rounded once, at the end
            if self.promote != "none" and common is not compute:
                outs = tuple(E.cast(e, common) if e.dtype is compute else e for e in outs)
        else:
            outs = tuple(E.cast(E.real(e) if e.dtype.is_complex and not d.is_complex else e, d)
                         for e, d in zip(outs, store, strict=True))
        return Map(outs, tuple(inputs), tuple(scalars)), tuple(_CONVERT[d.kind] for d in scalars)

    def plan(self, operands: Sequence[Any], numbers: Sequence[Any], consts: tuple[Any, ...],
             into: tuple[Meta, ...] | None = None) -> Plan:
        tensors = tuple(i for i, x in enumerate(operands) if isinstance(x, Tensor))
        metas = [operands[i].meta for i in tensors]
        common = self.common(operands)
        program, convert = self.program(operands, numbers, consts, common,
                                        None if into is None else tuple(m.dtype for m in into))
        shape = layout.broadcast_shapes(*[m.shape for m in metas])
        dev = metas[0].device
        if into is None:
            strides = layout.result_strides(tuple(shape), [(tuple(m.shape), m.strides) for m in metas])
            outs = tuple(meta(shape, strides, d, dev) for d in program.out_types)
        else:
            outs = into
            if shape != tuple(outs[0].shape):
                raise RuntimeError(f"output with shape {list(outs[0].shape)} doesn't match the broadcast shape {list(shape)}")
        launch = launcher(program, tuple(shape), [*outs, *metas], dev, self.name)
        return Plan(outs, launch, convert, tensors)

    def write(self, outs: tuple[Tensor, ...], operands: tuple[Any, ...], numbers: tuple[Any, ...] = (),
              consts: tuple[Any, ...] = ()) -> None:
        """Computes into existing tensors (of the broadcast shape); no recording, versions go up."""
        key = (*[o.meta for o in outs], *[x.meta if isinstance(x, Tensor) else type(x) for x in operands],
               *[type(x) for x in numbers], consts)
        plan = self.into.get(key)
        if plan is None:
            operands = checks.to_one_device(self.name, operands, outs)
            key = (*[o.meta for o in outs], *[x.meta if isinstance(x, Tensor) else type(x) for x in operands],
                   *[type(x) for x in numbers], consts)
            operands = tuple(checks.scalar_tensor(x, outs[0]) if isinstance(x, complex) else x for x in operands)
            plan = self.into[key] = self.plan(operands, numbers, consts, tuple(o.meta for o in outs))
        elif complex in key:
            operands = tuple(checks.scalar_tensor(x, outs[0]) if isinstance(x, complex) else x for x in operands)
        if len(outs) == 1:
            operands = checks.apart_from(outs[0], operands)
        plan.launch(*[o.ptr for o in outs], *self._arguments(plan, operands, numbers))
        for o in outs:
            o.store.version += 1

    def inplace(self, t: Tensor, operands: tuple[Any, ...], numbers: tuple[Any, ...] = (), consts: tuple[Any, ...] = ()) -> Tensor:
        """``t = formula(t, ...)`` in t's own memory; `operands` includes t."""
        if len(operands) == 2 and not numbers and self.inplace_pair(t, operands[1]):
            return t
        key = self._settled_key(t, operands, numbers) if not consts else None
        plan = self.settled.get(key)
        if plan is not None:
            plan.launch(t.ptr, *self._arguments(plan, operands, numbers))
            t.store.version += 1
            return t
        from ..autograd import inplace
        recording = _grad.get() and inplace.check(t, operands)
        checks.may_write(t)
        common = self.common(operands)
        made = self.program(operands, numbers, consts, common, None)[0].out_types[0]
        if self.name == "abs" and t.meta.dtype.is_complex:  # it would have to stay complex
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        if not dtypes.can_cast(made, t.meta.dtype):
            raise RuntimeError(f"result type {_type_name(made)} can't be cast to the desired output type {_type_name(t.meta.dtype)}")
        if recording and self._saves(t, operands, consts):
            # the gradient needs what is about to be overwritten
            from .copies import dense_of
            before = dense_of(t)
        else:
            before = alias(t, t.meta, t.ptr)
        before.node = t.node
        versions = t.store.version
        self.write((t,), operands, numbers, consts)
        if recording:
            seen = tuple(before if x is t else checks.scalar_tensor(x, t) if isinstance(x, complex) else x for x in operands)
            holder = alias(t, t.meta, t.ptr)
            self._record(seen, numbers, consts, [holder], versions)
            inplace.rebase(t, holder.node)
        elif key is not None:
            plan = self.into.get((*key, consts))
            if plan is not None and complex not in key:
                if len(self.settled) > _MOST_PLANS:
                    self.settled.clear()
                self.settled[key] = plan
                if len(operands) == 2 and not numbers and operands[0] is t and len(plan.tensors) == 2 and not plan.convert:
                    self.pairs.setdefault(t.meta, {})[operands[1].meta] = plan.launch
        return t

    def inplace_pair(self, t: Tensor, other: Any) -> bool:
        """``t = formula(t, other)`` where that has been done before and nothing is to be recorded or looked at again; False, and
        nothing done, otherwise."""
        try:
            launch = self.pairs[t.meta][other.meta]
        except (KeyError, AttributeError):
            return False
        if other.store is t.store and other is not t:
            return False
        if (t.node is not None or other.node is not None or getattr(t, "base", None) is not None) and _grad.get():
            return False
        launch(t.ptr, t.ptr, other.ptr)
        t.store.version += 1
        return True

    def _settled_key(self, t: Tensor, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """What `inplace` knows a call by that needs no look at histories, shared memory or types again; None where it does."""
        if not t.meta.contiguous:
            return None
        recorded = _grad.get()
        key: list[Any] = [t.meta]
        for x in operands:
            if isinstance(x, Tensor):
                if (recorded and x.node is not None) or (x.store is t.store and x is not t):
                    return None
                key.append(x.meta)
            else:
                key.append(type(x))
        if recorded:
            base = getattr(t, "base", None)
            if base is not None and base.node is not None:
                return None
        key += [type(x) for x in numbers]
        return tuple(key)

    # ------------------------------------------------------------------------------------------------------ recording
    def _saves(self, t: Tensor, operands: tuple[Any, ...], consts: tuple[Any, ...]) -> bool:
        """Whether the gradient of these operands is computed from the values of `t`."""
        needs = tuple([isinstance(x, Tensor) and x.node is not None for x in operands])
        info = self._info(needs, tuple([x.meta if isinstance(x, Tensor) else None for x in operands]), consts)
        return any(operands[i] is t for i in info.tape.saved)

    def _record(self, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...], outs: list[Tensor],
                version: int | None = None) -> None:
        needs = tuple([isinstance(x, Tensor) and x.node is not None for x in operands])
        if len(outs) > 1:
            tape.record_many(outs, _backward_many, [x if isinstance(x, Tensor) else None for x in operands],
                             (self, operands, [x.store.version if isinstance(x, Tensor) else 0 for x in operands], numbers, consts, needs),
                             self.grad_name)
            return
        out = outs[0]
        if out.meta.dtype.kind not in "fc":
            return
        info = self._info(needs, tuple([x.meta if isinstance(x, Tensor) else None for x in operands]), consts)
        t = info.tape
        kept = tuple([operands[i] for i in t.saved])
        versions = tuple([x.store.version if isinstance(x, Tensor) else 0 for x in kept])
        if version is not None:  # in place: the operand was saved as it was before the write
            versions = tuple(version if isinstance(x, Tensor) and x.store is out.store and x.ptr == out.ptr else v
                             for x, v in zip(kept, versions, strict=True))
        saved_out = (alias(out, out.meta, out.ptr), out.store.version) if t.save_out else None
        out.node = [tape.next_seq(), None, _backward if kept or saved_out else _backward_linear,
                    tuple([x.node if isinstance(x, Tensor) else None for x in operands]),
                 (info, kept, versions, saved_out, numbers), None]
        if tape.anomaly.on:
            tape.anomaly.note(out.node)

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
        for e in exprs:
            if e is None:
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


def _type_name(d: dtype) -> str:
    return {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
            "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
            "complex128": "ComplexDouble"}.get(d.name, d.name.capitalize())


# ---------------------------------------------------------------------------------------------------------- backward
def saved_tensor(x: Any, version: int, node: tape.Node) -> Any:
    if isinstance(x, Tensor) and x.store.version != version:
        tape.changed(x, version, node)
    return x


def _backward(node: tape.Node, g: Tensor) -> list[Tensor | None]:
    info, kept, versions, out, numbers = node[4]
    t = info.tape
    made: Any = ()
    if t.op is not None:
        args = [g]
        for x, v in zip(kept, versions, strict=True):
            if type(x) is not float and isinstance(x, Tensor) and x.store.version != v:
                tape.changed(x, v, node)
            args.append(x)
        if out is not None:
            y, v = out
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
        if t.quick is not None and not numbers and not info.consts:
            made = t.quick(*args)
        else:
            made = _again(info, args) if not numbers and not _grad.get() else None
            if made is None:
                made = t.op(tuple(args), numbers, info.consts)
                if not numbers:
                    _keep(info, args)
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


def _again(info: Info, args: list[Any]) -> list[Tensor] | None:
    """The backward formula on operands of which only the gradient's meta can differ from the last time's, outside the tape."""
    found = info.quick.get(args[0].meta)
    if found is None or found[0] != _forgotten:
        return None
    plan = found[1]
    outs = [new(m) for m in plan.outs]
    plan.launch(*[o.ptr for o in outs], *[x.ptr for x in args])
    return outs


def _keep(info: Info, args: list[Any]) -> None:
    """Notes the plan for `_again`."""
    op = info.tape.op
    if op is not None and not op.heeds and all(isinstance(x, Tensor) for x in args):
        plan = op.plans.get((*[x.meta for x in args], info.consts))
        if plan is not None and not plan.convert and len(plan.tensors) == len(args):
            info.quick[args[0].meta] = _forgotten, plan


@tape.keeps_nothing
def _backward_linear(node: tape.Node, g: Tensor) -> list[Tensor | None]:
    """`_backward` of a formula whose gradient needs no operand."""
    return _backward(node, g)


def _backward_many(node: tape.Node, gs: list[Tensor | None]) -> list[Tensor | None]:
    op, operands, versions, numbers, consts, needs = node[4]
    given = tuple(g is not None for g in gs)
    t = op.tape(needs, given, consts, tuple(isinstance(x, Tensor) and x.meta.dtype.is_complex for x in operands))
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
    strides = tuple([layout.expand_strides(m.shape, m.strides, domain) for m in metas])
    prepared = door.prepare(dev, program, domain, strides)
    prepared.name = name
    return door.bind(dev, prepared)


def forget() -> None:
    """Empties every plan: the door changed (observers, devices) or metas were dropped."""
    global _forgotten
    _forgotten += 1
    for op in _all:
        op.plans.clear()
        op.into.clear()
        op.settled.clear()
        op.pairs.clear()
    for clear in _fast_caches:
        clear()


_forgotten = 0  # how often
_fast_caches: list[Callable[[], None]] = []
on_forget(forget)
door.on_change(forget)


def _how_saved(t: Tape) -> int:
    """Which operands a two-operand tape keeps: 0 none, 1 the first, 2 the second, 3 both; -1 for anything else."""
    if t.save_out:
        return -1
    return {(): 0, (0,): 1, (1,): 2, (0, 1): 3}.get(t.saved, -1)


def fast_binary(op: Pointwise, general: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The two-operand call with nothing in its way: a plan looked up by two identities, one allocation, one launch."""
    plans: dict[Any, dict[Any, Any]] = {}
    _fast_caches.append(plans.clear)
    make = object.__new__
    grad_on = _grad.get
    record = op._record
    next_seq = tape.next_seq
    anomaly = tape.anomaly

    def taped(a: Any, b: Any, r: Tensor, na: Any, nb: Any, infos: list[Any]) -> None:
        which = (na is not None) + 2 * (nb is not None)
        found = infos[which]
        if found is None:
            info = op._info((na is not None, nb is not None), (a.meta, b.meta), ())
            # the third is what a node keeps that needs no operand: one tuple for all
            found = infos[which] = (info, _how_saved(info.tape) if r.meta.dtype.kind in "fc" else -1, (info, (), (), None, ()))
        info, saves, alone = found
        if saves < 0 or anomaly.on:
            record((a, b), (), (), [r])
        elif saves == 3:
            r.node = [next_seq(), None, _backward, (na, nb), (info, (a, b), (a.store.version, b.store.version), None, ()), None]
        elif saves == 0:
            r.node = [next_seq(), None, _backward_linear, (na, nb), alone, None]
        else:
            x = a if saves == 1 else b
            r.node = [next_seq(), None, _backward, (na, nb), (info, (x,), (x.store.version,), None, ()), None]

    def call(a: Any, b: Any) -> Any:
        kind = type(b)
        number = kind is float or kind is int
        try:
            om, sizes, launch, infos, convert = plans[a.meta][kind if number else b.meta]
        except (KeyError, AttributeError):
            return first(a, b)
        if sizes is not None:
            s = Storage()
            s.version = 0
            s.meta = om
            free = s.free = sizes.free
            try:
                p = s.ptr = free.pop()
            except IndexError:
                p = s.ptr = sizes.grow()
        else:
            s = storage(om)
            p = s.ptr
        if number:
            launch(p, a.ptr, b if convert is None else convert(b))
        else:
            launch(p, a.ptr, b.ptr)
        r = make(Tensor)
        r.meta = om
        r.store = s
        r.ptr = p
        r.node = None
        na = a.node
        if number:
            if na is not None and grad_on():
                record((a, b), (), (), [r])
            return r
        nb = b.node
        if (na is not None or nb is not None) and grad_on():
            found = infos[(na is not None) + 2 * (nb is not None)]
            if found is not None and not found[1] and not anomaly.on:
                r.node = [next_seq(), None, _backward_linear, (na, nb), found[2], None]
            else:
                taped(a, b, r, na, nb, infos)
        return r

    def first(a: Any, b: Any) -> Any:
        result = general(a, b)
        if isinstance(a, Tensor) and type(result) is Tensor and not provenance.enabled() and not op.heeded(a):
            key = type(b) if type(b) in (float, int) else b.meta if isinstance(b, Tensor) else None
            plan = op.plans.get((a.meta, key, ()))
            # numbers reach a float computation as floats, and integers one of integers as they are; the others go the general way
            if plan is not None and (isinstance(b, Tensor) or (key in (float, int) and plan.convert == (float,)) or (
                    key is int and plan.convert == (_whole,))):
                # a launch on the CPU looks itself whether an integer is too large, and at once
                exact = key is float or isinstance(b, Tensor) or (key is int and plan.convert == (_whole,) and a.meta.device.type == "cpu")
                plans.setdefault(a.meta, {})[key] = (plan.outs[0], plan.outs[0].sizes, plan.launch, [None] * 4, None if exact else plan.convert[0])
        return result
    arguments.FIRST.add(call.__code__)
    return call


def fast_unary(op: Pointwise, general: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The one-operand call, in the same way."""
    plans: dict[Any, Any] = {}
    _fast_caches.append(plans.clear)
    make = object.__new__
    grad_on = _grad.get
    next_seq = tape.next_seq
    anomaly = tape.anomaly

    def call(a: Any) -> Any:
        try:
            om, sizes, launch, infos = plans[a.meta]
        except (KeyError, AttributeError):
            return first(a)
        if sizes is not None:
            s = Storage()
            s.version = 0
            s.meta = om
            free = s.free = sizes.free
            try:
                p = s.ptr = free.pop()
            except IndexError:
                p = s.ptr = sizes.grow()
        else:
            s = storage(om)
            p = s.ptr
        launch(p, a.ptr)
        r = make(Tensor)
        r.meta = om
        r.store = s
        r.ptr = p
        r.node = None
        na = a.node
        if na is not None and grad_on() and om.dtype.kind in "fc":
            info = infos[0]
            if info is None:
                info = infos[0] = op._info((True,), (a.meta,), ())
            t = info.tape
            kept, versions = ((a,), (a.store.version,)) if t.saved else ((), ())
            r.node = [next_seq(), None, _backward, (na,),
                   (info, kept, versions, (alias(r, om, p), 0) if t.save_out else None, ()), None]
            if anomaly.on:
                anomaly.note(r.node)
        return r

    def first(a: Any) -> Any:
        result = general(a)
        if isinstance(a, Tensor) and type(result) is Tensor and not provenance.enabled() and not op.heeded(a):
            plan = op.plans.get((a.meta, ()))
            if plan is not None:
                plans[a.meta] = (plan.outs[0], plan.outs[0].sizes, plan.launch, [None])
        return result
    arguments.FIRST.add(call.__code__)
    return call
