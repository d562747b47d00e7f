"""The op table: every operation's names, in one place, from which functions, methods, in-place and `out=` forms come.

A pointwise operation is one call of `pointwise` (a formula); any other operation is a function under the decorator `op`.
`attach` gives the Tensor its methods; `flambeau.__init__` and the stub generator read `TABLE`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from .. import dtypes, hooks, interrupts
from ..autograd import tape
from ..autograd.mode import _grad
from ..engine import fields
from ..engine import lines as lines
from ..engine.fields import has
from ..engine.fronts import MISSING, NUMBER, OLD, SCALAR, TENSOR, Signature
from ..engine.operation import Operation, with_out
from ..engine.outs import Into
from ..engine.plans import Compose, Plan, Written, roles
from ..kernels.expr import Expr
from ..tensor import Tensor
from . import outputs
from .deprecated_signatures import OLD_ORDER
from .elementwise import Pointwise, _type_name

if TYPE_CHECKING:
    from collections.abc import Callable

Function = Any
F = TypeVar("F", bound=Any)
REQUIRED = object()
_PACKAGE = __name__.partition(".")[0]
_FLAG = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
_OUT = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")


class _Shown(inspect.Signature):
    """A function's signature as help and editors show it, worked out when somebody looks: there are hundreds."""

    __slots__ = ("_make",)
    _make: Callable[[], inspect.Signature]

    def __getattr__(self, name: str) -> Any:
        if name not in ("_parameters", "_return_annotation"):
            raise AttributeError(name)
        whole = self._make()
        inspect.Signature.__init__(self, list(whole.parameters.values()), return_annotation=whole.return_annotation,
                                   __validate_parameters__=False)
        return getattr(self, name)


def _shown(make: Callable[[], inspect.Signature]) -> inspect.Signature:
    lazy = _Shown.__new__(_Shown)
    lazy._make = make
    return lazy


class Row:
    """One operation: its function per namespace, and which forms it has."""

    __slots__ = ("name", "function", "method", "inplace", "out", "spaces", "aliases", "doc", "pointwise", "_signature")

    def __init__(self, name: str, function: Function, method: bool, inplace: Function | None, out: bool,
                 spaces: tuple[str, ...], aliases: tuple[str, ...], signature: str | Function, pointwise: Pointwise | None) -> None:
        """signature: its text, or the function that has it."""
        self.name, self.function, self.method, self.inplace, self.out = name, function, method, inplace, out
        self.spaces, self.aliases, self._signature, self.pointwise = spaces, aliases, signature, pointwise
        self.doc = function.__doc__ or ""

    @property
    def signature(self) -> str:
        if not isinstance(self._signature, str):
            self._signature = str(inspect.signature(self._signature))
        return self._signature


with_out.append(Into)
TABLE: dict[str, Row] = {}


def _register(row: Row) -> None:
    if row.name in TABLE and TABLE[row.name].spaces == row.spaces:
        raise ValueError(f"operation {row.name!r} is in the table twice")
    for function, name in ((row.function, row.name), (row.inplace, row.name + "_")):
        if function is not None and row.spaces:  # where a pickle finds it
            function.__qualname__ = name
            function.__module__ = _PACKAGE if row.spaces[0] == "torch" else f"{_PACKAGE}.{row.spaces[0]}"
    TABLE[row.name if row.name not in TABLE else f"{row.spaces[0]}.{row.name}"] = row


# ----------------------------------------------------------------------------------------------------------- general ops
def op(*, method: bool = True, inplace: Any = False, out: bool | None = False, spaces: tuple[str, ...] = ("torch",),
       aliases: tuple[str, ...] = (), name: str | None = None, learns: bool = True, renames: bool = True, gives: str = "",
       kinds: dict[str, str] | None = None, straight: Callable[..., bool] | None = None, writes: Callable[..., bool] | None = None,
       **fields: Any) -> Callable[[F], F]:
    """Registers a function as an operation.

    method: also a Tensor method of the same name.  inplace: also `name_`, which writes the result into `input` (a general
    form that computes and copies; a function given here is used instead).  straight: what the general form asks first where nothing is
    recorded: it writes the result into `input` itself, or gives False.  out: takes `out=` (a tensor, or a
    tuple for several results), resized to fit; None means that the function handles `out=` itself.  writes: what that form asks first, as `straight`,
    with `out` before the arguments.  spaces: where the function is exported: "torch", "nn.functional", "special", "linalg", "fft".  aliases: other
    names of the same thing, "special.x" for another namespace.
    learns: see `Operation`; it is False for what does more than work out its result.  renames: takes NumPy's names of
    parameters, where it is exported or takes `out=`; False for PyTorch's functions that are written in Python.  gives: what help says that
    a call gives, where the body gives plans.  kinds: of parameters, where the annotations do not tell them.  fields: see `engine.fields`.
    """
    def register(function: F) -> F:
        named = name or function.__name__
        has(named, **fields)
        if gives:
            function.__annotations__["return"] = gives

        def again(*args: Any, **kwargs: Any) -> Any:
            return final.__operation__.started().direct(*args, **kwargs)
        final: Any = Operation(named, function, learns=learns, kinds=kinds, shown=function.__name__,
                               out=out_form(named, again, writes) if out is True else None,
                          signature=Signature.of(function).with_old() if named in OLD_ORDER else None,
                          renames=renames and (out is True or "torch" in spaces)).function
        made = inplace if callable(inplace) else _inplace_of(function, again, straight) if inplace else None
        if out is True:
            final.__signature__ = _shown(lambda: _plus_out(inspect.signature(function)))
        if made is not None:
            whole = made if callable(inplace) else function
            written = Signature.of(made) if callable(inplace) or named in OLD_ORDER else None  # else it is read at the first call
            if written is not None:
                written = written.named_as(Signature.of(function))
                written = written.with_old() if named in OLD_ORDER else written
            made = Operation(named + "_", made, learns=learns, signature=written,
                             renames=final.__operation__.renames).function
            made.__doc__ = made.__doc__ or f"`{named}`, in place."
            made.__signature__ = _shown(lambda: inspect.signature(whole))
        _register(Row(named, final, method, made, out is not False, spaces, aliases, function, None))
        return final  # type: ignore[no-any-return]
    return register


def planned(name: str, plan: Callable[..., Any], *, inplace: Callable[..., Any] | None = None, out: Callable[..., Any] | None = None, method: bool = True,
            spaces: tuple[str, ...] = ("torch",), aliases: tuple[str, ...] = (), signature: Signature | None = None,
            inplace_signature: Signature | None = None, kinds: dict[str, str] | None = None, renames: bool = True, gives: str = "", **fields: Any) -> Any:
    """Registers an operation whose calls are planned. Returns its function.

    plan: gives the plan of a call: see `Operation`.  inplace: gives that of `name_`.  out: carries out the form with `out=`.
    kinds: of parameters, where the annotations do not tell them.  gives: what help says that a call gives, as `plan` gives plans.
    fields: see `engine.fields`.
    """
    has(name, **fields)
    if gives:
        plan.__annotations__["return"] = gives
    renames = renames and (out is not None or "torch" in spaces)  # methods have no name for what they are called on
    made = Operation(name, plan, planned=True, out=out, signature=signature, kinds=kinds, renames=renames)
    made.function.__signature__ = _shown(lambda: _plus_out(inspect.signature(plan)) if out is not None else inspect.signature(plan))
    written = None
    if inplace is not None:
        written = Operation(name + "_", inplace, planned=True, signature=inplace_signature, kinds=kinds, renames=renames).function
        written.__doc__ = f"`{name}`, in place."
    _register(Row(name, made.function, method, written, out is not None, spaces, aliases, plan, None))
    return made.function


def _plus_out(signature: inspect.Signature) -> inspect.Signature:
    """A signature with `out=` at its end, as help and editors show it."""
    parameters = list(signature.parameters.values())
    place = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    parameters.insert(place, _OUT)
    return inspect.Signature(parameters, return_annotation=signature.return_annotation, __validate_parameters__=False)


def out_form(name: str, function: Function, writes: Callable[..., bool] | None = None) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]:
    """The form with `out=`: it computes, and copies, where `writes` does not."""
    def write(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = (*args, *kwargs.values())
        outputs.lie_apart(name, out, given)
        outputs.forbid_recording(name, given, out)
        if writes is not None and type(out) is Tensor:
            with contextlib.suppress(AttributeError):  # of what is no tensor: the function says so
                if writes(out, *args, **kwargs):
                    return out
        return interrupts.within(_grad, False, lambda: outputs.write(name, out, function(*args, **kwargs), given))
    return write


_READS_APART, _BATCH = fields.of("reads_apart"), fields.of("batch")


def _inplace_of(body: Function, function: Function, straight: Callable[..., bool] | None = None) -> Function:
    """The form in place of an operation: it computes, and copies, where `straight` does not.  body: has its parameters."""
    name = body.__name__ + "_"

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        from ..autograd import inplace
        from .checks import may_write, no_overlap, no_partial_overlap
        from .copies import assign, clone
        others = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if _grad.get():
            inplace.check(self, (self, *others))
        may_write(self)
        if body.__name__ in _READS_APART:
            no_overlap(self, *others)
        elif _BATCH.get(body.__name__) == "pointwise":
            no_partial_overlap(self, *others)
        # under autograd the body's own graph, of a copy, as what the gradient reads of self is about to be overwritten
        recorded = tape.recording(self, *others)
        if straight is not None and not recorded and straight(self, *args, **kwargs):
            self.store.version += 1
            return self
        result = body(clone(self), *args, **kwargs) if recorded else None
        if not isinstance(result, Tensor):  # nothing is recorded, or the body gave a plan
            result = function(clone(self) if recorded else self, *args, **kwargs)
        if result is self:  # which has its values
            self.store.version += 1
            return self
        if result.meta.shape != self.meta.shape:
            raise RuntimeError(f"{name}: the result has shape {list(result.meta.shape)}, which does not fit into "
                               f"{list(self.meta.shape)} in place")
        if not dtypes.can_cast(result.meta.dtype, self.meta.dtype):
            raise RuntimeError(f"result type {_type_name(result.meta.dtype)} can't be cast to the desired output type "
                               f"{_type_name(self.meta.dtype)}")
        return assign(self, result)
    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__wrapped__ = f"`{body.__name__}`, in place.", body  # type: ignore[attr-defined]
    return call


# ----------------------------------------------------------------------------------------------------------- pointwise
def pointwise(name: str, operands: str, formula: Callable[..., Any], *, promote: str = "default", apart: tuple[int, ...] = (),
              grad: Callable[..., Any] | None = None, accept: str = "buifc", numbers: dict[str, Any] | None = None,
              consts: dict[str, Any] | None = None, keyword: tuple[str, ...] = (), method: bool = True, inplace: bool = True,
              out: bool = True, spaces: tuple[str, ...] = ("torch",), aliases: tuple[str, ...] = (), flag: bool = False, tensors: int = 1,
              check: Callable[..., None] | None = None, alike: bool = False, types: Callable[..., None] | None = None, lacks: str = "",
              doc: str = "", **fields: Any) -> Pointwise:
    """One row: a pointwise operation from its formula, with function, method, `name_`, `out=` and gradients of any order.

    operands: names of the tensor parameters.  formula: ``(*operands, *numbers, **consts)`` of expressions.  numbers:
    parameters passed at launch, name to default (`REQUIRED` for none).  consts: parameters fixed in the kernel.  keyword:
    those of them that are keyword-only.  flag: the function takes ``inplace=False``, as nn.functional's do.
    tensors: how many of the operands, from the first, must be tensors; the others may be numbers.  check: raises for numbers
    that make no sense.
    See `elementwise.Pointwise` for promote, apart, grad, accept, alike, types and lacks, and `engine.fields` for the fields.
    """
    has(name, **{"batch": "pointwise", **fields})
    names = tuple(operands.split())
    made = Pointwise(name, formula, len(names), promote, apart, grad, accept, alike, types, lacks)
    params = (*[(n, d, True) for n, d in (numbers or {}).items()], *[(n, d, False) for n, d in (consts or {}).items()])
    run, run_inplace = _forms(made, name, names, params, keyword, tensors, check, flag, out)
    text = f"{doc or name + ', element by element.'}"

    def whole(more: bool) -> inspect.Signature:
        shown = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        shown += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY if n in keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                    default=d if d is not REQUIRED else inspect.Parameter.empty) for n, d, _ in params]
        shown += ([_FLAG] if flag and more else []) + ([_OUT] if out and more else [])
        return inspect.Signature(sorted(shown, key=lambda p: p.kind), __validate_parameters__=False)
    for f, suffix in ((run, ""), (run_inplace, "_")):
        f.__doc__ = text if not suffix else f"`{name}`, in place."
        f.__signature__ = _shown(functools.partial(whole, not suffix))
    listed = list(names) + [f"{n}={d!r}" if d is not REQUIRED else n for n, d, _ in params if n not in keyword]
    rest = [f"{n}={d!r}" for n, d, _ in params if n in keyword] + (["out=None"] if out else [])
    if flag:
        listed.append("inplace=False")
    signature = "(" + ", ".join(listed + (["*", *rest] if rest else [])) + ")"
    _register(Row(name, run, method, run_inplace if inplace else None, out, spaces, aliases, signature, made))
    return made


def _binder(name: str, names: tuple[str, ...], params: tuple[tuple[str, Any, bool], ...], keyword: tuple[str, ...],
            tensors: int = 0, check: Callable[..., None] | None = None) -> Any:
    """From a call's arguments to (operands, numbers, consts).  tensors: so many operands may not be numbers."""
    positional = [*names, *[p[0] for p in params if p[0] not in keyword]]
    defaults = {n: d for n, d, _ in params}
    number_names = [n for n, _, is_number in params if is_number]
    const_names = [n for n, _, is_number in params if not is_number]

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        if len(args) > len(positional):
            raise TypeError(f"{name}() takes {len(positional)} positional arguments but {len(args)} were given")
        got = dict(zip(positional, args, strict=False))
        for k, v in kwargs.items():
            if k in got:
                raise TypeError(f"{name}() got multiple values for argument '{k}'")
            if k not in defaults and k not in names:
                raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")
            got[k] = v
        got = {n: v for n, v in got.items() if v is not MISSING}
        for place, n in enumerate(names):
            if n not in got:
                raise TypeError(f"{name}() missing 1 required positional arguments: \"{n}\"")
            v = got[n]
            if not isinstance(v, (Tensor, int, float, complex, Expr)):
                if place < tensors:
                    raise TypeError(f"{name}(): argument '{n}' (position {place + 1}) must be Tensor, not {type(v).__name__}")
                v = got[n] = _number(name, n, v)
        for place, n in enumerate(names[:tensors]):
            v = got[n]
            # inside a formula of the user's a number is as good as an expression
            if not isinstance(v, (Tensor, Expr)) and not (place and any(isinstance(got[x], Expr) for x in names)):
                raise TypeError(f"{name}(): argument '{n}' (position {place + 1}) must be Tensor, not {type(v).__name__}")
        if not any(isinstance(got[n], (Tensor, Expr)) for n in names):
            got[names[0]] = of_numbers(name, names[0], got[names[0]])
        for n, d in defaults.items():
            if n not in got:
                if d is REQUIRED:
                    raise TypeError(f"{name}() missing 1 required positional arguments: \"{n}\"")
                got[n] = d
        nums = []
        for n in number_names:
            v = got[n]
            if isinstance(v, Tensor):
                v = v.item()
            if not isinstance(v, (int, float, complex)) and not isinstance(v, Expr):
                v = _number(name, n, v)
            nums.append(v)
        for n in const_names:
            v = got[n]
            if isinstance(v, Tensor) and type(defaults[n]) in (float, int):  # a number in a tensor is that number
                if v.node is not None or v.meta.numel != 1:
                    raise TypeError(f"{name}(): argument '{n}' must be {type(defaults[n]).__name__}, not Tensor")
                got[n] = v.item()
        if check is not None:
            check(*nums)
        return tuple([got[n] for n in names]), tuple(nums), tuple([(n, got[n]) for n in const_names])
    return bind


_OF_NUMBERS = frozenset(("add", "sub", "mul", "div"))  # what PyTorch's functions take numbers alone for; the result is a tensor


def of_numbers(name: str, param: str, v: Any) -> Tensor:
    """The first of a call's operands, none of which is a tensor, as a tensor.  Raises TypeError where an operation wants one.  No plan is kept
    of such a call: its operands are not what it was given."""
    if name not in _OF_NUMBERS:
        raise TypeError(f"{name}(): argument '{param}' must be Tensor, not {type(v).__name__}")
    made: Tensor = hooks.full((), v, dtype=dtypes.of_scalar(v))
    return made


def _number(name: str, param: str, v: Any) -> Any:
    """NumPy's scalars as Python numbers.  Raises TypeError for anything else."""
    import numpy as np
    if isinstance(v, np.generic):
        return v.item()
    raise TypeError(f"{name}(): argument '{param}' must be Tensor or Number, not {type(v).__name__}")


def _forms(made: Pointwise, name: str, names: tuple[str, ...], params: tuple[tuple[str, Any, bool], ...], keyword: tuple[str, ...], tensors: int,
           check: Callable[..., None] | None, flag: bool, out: bool) -> tuple[Any, Any]:
    """The function and the one in place."""
    bind = _binder(name, names, params, keyword, tensors, check)
    kinds = {n: TENSOR if i < tensors else NUMBER for i, n in enumerate(names)} | {n: SCALAR for n, _, is_number in params if is_number}
    positional = [p for p in params if p[0] not in keyword]
    # what is required is looked for when the plan is made, so that the error is in PyTorch's words
    defaults = [MISSING for _ in names] + [MISSING if d is REQUIRED else d for _, d, _ in positional]
    kwdefaults = {n: MISSING if d is REQUIRED else d for n, d, _ in params if n in keyword}

    def signature(*more: tuple[str, Any]) -> Signature:
        return Signature((*names, *[p[0] for p in positional], *[n for n, _ in more]), keyword, (*defaults, *[d for _, d in more]), kwdefaults,
                         {**kinds, "old": OLD}, "old")

    def plan(*args: Any, **kwargs: Any) -> Any:
        if flag and args[-1]:
            return plan_inplace(*args[:-1], **kwargs)
        operands, numbers, consts = bind(args[:-1] if flag else args, kwargs)
        if not _as_given(operands, args, kwargs, numbers):
            return made(operands, numbers, consts)
        found = made.planned(operands, numbers, consts)
        return found if check is None else _checked(check, found, operands, numbers)

    def plan_inplace(*args: Any, **kwargs: Any) -> Any:
        into = args[0] if args else kwargs.get(names[0])
        if not isinstance(into, Tensor):
            raise TypeError(f"{name}_(): argument 'self' must be Tensor, not {type(into).__name__}")
        operands, numbers, consts = bind(args, kwargs)
        if not _as_given(operands, args, kwargs, numbers):
            return made.inplace(operands[0], operands, numbers, consts)
        found = made.planned_inplace(operands, numbers, consts)
        return found if check is None else _checked(check, found, operands, numbers)

    def told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Told:
        return made, *bind(args[:-1] if flag and len(args) > len(names) + len(positional) else args,
                           {k: v for k, v in kwargs.items() if k != "inplace" or not flag})
    # numbers are passed behind the operands, and looked at by `check` each time
    write = writing(told, check is None and not any(is_number for n, _, is_number in params if n in keyword))
    home = str(getattr(made.formula, "__module__", __name__))
    plan.__module__ = plan_inplace.__module__ = __name__ if ".kernels." in home else home
    run = Operation(name, plan, planned=True, signature=signature(("inplace", False)) if flag else signature(), out=write if out else None,
                    renames=True)
    written = Operation(name + "_", plan_inplace, planned=True, signature=signature(), renames=True)
    return run.function, written.function


def _checked(check: Callable[..., None], plan: Any, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    """The plan of a call whose numbers are looked at each time."""
    if not isinstance(plan, (Plan, Written, Compose)):
        return plan
    count = len(operands)
    run = plan.bind(roles(operands + numbers))

    def call(*given: Any) -> Any:
        check(*given[count:])
        return run(*given)
    return Compose(call)


def _as_given(operands: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], numbers: tuple[Any, ...]) -> bool:
    """Whether the operands and numbers are what the call was given, so that a plan can be called with that: NumPy's numbers and
    tensors in the place of numbers are not."""
    given = (*args, *kwargs.values())
    return all(any(x is y for y in given) for x in (*operands, *numbers))


Told = tuple[Pointwise, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


def writing(told: Callable[[tuple[Any, ...], dict[str, Any]], Told], plans: bool = True) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]:
    """The form with `out=` of formulas: see `Operation`.  told: gives a call's formula, with its operands, numbers and constants.  plans: whether
    further calls on the same layouts are planned."""
    def write(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made, operands, numbers, consts = told(args, kwargs)
        return write_out(made, out, operands, numbers, consts)

    def plan(out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], passed: int) -> Any:
        made, operands, numbers, consts = told(args, kwargs)
        as_given = all(x is y for x, y in zip((*operands, *numbers), (*args, *kwargs.values()), strict=False))
        return made.planned_out(out, operands, numbers, consts, passed) if as_given else None
    if plans:
        write.plan = plan  # type: ignore[attr-defined]
    return write


def write_out(made: Pointwise, out: Any, operands: tuple[Any, ...], numbers: tuple[Any, ...], consts: tuple[Any, ...]) -> Any:
    """The `out=` form of a formula."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{made.name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    from .. import layout
    from .checks import may_write, to_one_device
    from .device_errors import mismatch
    tensors = [x for x in operands if isinstance(x, Tensor)]
    operands = to_one_device(made.name, operands)
    anchor = next((x for x in operands if isinstance(x, Tensor)), out)
    if anchor.meta.device is not out.meta.device:
        raise mismatch(made.name, [out, *tensors], [out], operands)
    common = made.common(operands)
    (result,) = made.program(operands, numbers, consts, common, None)[0].out_types
    if result.kind != "b":
        outputs.forbid_recording(made.name, operands, out)
    outputs.formula_must_hold(made.name, out, result, common)
    outputs.resize(out, tuple(layout.broadcast_shapes(*[x.meta.shape for x in tensors])), made.strides(operands))
    may_write(out)
    made.write((out,), operands, numbers, consts)
    return out


# ------------------------------------------------------------------------------------------------------------- namespaces
def attach(target: type) -> None:
    """Gives the Tensor class its methods and in-place methods."""
    for row in TABLE.values():
        for name in (row.name, *row.aliases):
            if "." in name or name.startswith("_") and not name.startswith("__"):
                continue
            if row.method and name not in target.__dict__:
                setattr(target, name, row.function)
            if row.inplace is not None and row.method and name + "_" not in target.__dict__:
                setattr(target, name + "_", row.inplace)


def namespace(space: str) -> dict[str, Any]:
    """The functions exported from one namespace, by name."""
    found: dict[str, Any] = {}
    for row in TABLE.values():
        if space in row.spaces:
            for name in (row.name, *row.aliases):
                if "." not in name:
                    found[name] = row.function
                    if row.inplace is not None:
                        found[name + "_"] = row.inplace
        for name in row.aliases:
            if name.startswith(space + "."):
                found[name[len(space) + 1:]] = row.function
    return found


def find(space: str, name: str) -> Function | None:
    """One function of `namespace(space)`, or None; the others are not made for it."""
    count, found = _found.get((space, name), (0, None))
    if count != len(TABLE):
        count = len(TABLE)
        _found[space, name] = count, (found := _search(space, name))
    return found


_found: dict[tuple[str, str], tuple[int, Function | None]] = {}  # what was found in a table of so many rows


def _search(space: str, name: str) -> Function | None:
    found: Function | None = None
    stem, qualified = name.removesuffix("_"), f"{space}.{name}"
    for row in TABLE.values():
        aliases = row.aliases
        if row.name == name or name in aliases:
            if space in row.spaces and "." not in name:
                found = row.function
        elif (row.name == stem or stem in aliases) and row.inplace is not None and space in row.spaces:
            found = row.inplace
        if qualified in aliases:
            found = row.function
    return found
