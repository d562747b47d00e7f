"""Planned calls: what an operation does with operands of known layouts, ready to be carried out.

A family works out a plan once for each combination of layouts and constants; the engine makes of it a function of the operands that
allocates the results, calls the launch and puts the operation on the tape. That function is written for the plan's pattern (how many
operands, results, numbers, a workspace or none), so that a call does only what it must.

The launch is called with the addresses of the results, of the operands, of the workspace, and then with the numbers: those of the
call, and those that all calls have in common.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..kernels.cache import preparing
from ..kernels.calls import NEW, SAME, TURNED, VIEW, Block, Calls, Classes, Made
from ..kernels.llvm import sequence
from ..runtime import caches, versions
from ..tensor import METAS, NO_FREE, Lazy, Meta, Storage, Tensor, storage
from ..unknowns import NoTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..unknowns import Trace

Node = tape.Node
CODE = "<operation>"  # what tracebacks say of code that the engine wrote begins so
CALLS = Calls(Classes(Tensor, Storage, Meta, Lazy, dtypes.dtype, _grad, inplace.note, "f", "c", NO_FREE, versions.inference, versions.entered,
                      versions.UNTRACKED, inplace.UNSEEN, METAS))


class Saved:
    """How a call is differentiated: what its node keeps, and the function that uses it.

    backward: ``f(node, g)`` as the tape calls it (a list of gradients for several results).  keep: places of the operands that are
    saved.  results: places of the results that are saved.  numbers: places of the numbers that are.  info: what the call's nodes
    share; its `grad_name` is the name `grad_fn` shows.  first: of several results only the first has a gradient, which `backward` gets alone.
    The node's SAVED is ``(info, operands kept, their versions, results kept, numbers)``.
    """

    __slots__ = ("backward", "keep", "results", "info", "numbers", "first")

    def __init__(self, backward: Callable[[Node, Any], Any], keep: tuple[int, ...] = (), results: tuple[int, ...] = (), info: Any = None,
                 numbers: tuple[int, ...] = (), first: bool = False) -> None:
        self.backward, self.keep, self.results, self.info, self.numbers, self.first = backward, keep, results, info, numbers, first


class Facts(tape.Described):
    """An `info` of a name and of facts about the call."""

    __slots__ = ("facts",)

    def __init__(self, grad_name: str, *facts: Any) -> None:
        self.grad_name, self.facts = grad_name, facts


class Held:
    """A converter of numbers that raises for those that a type does not hold.  Small ones, which any type holds, need none."""

    __slots__ = ("dtype",)

    def __init__(self, d: dtypes.dtype) -> None:
        self.dtype = d

    def __call__(self, value: Any) -> Any:
        return dtypes.number(value, self.dtype)


class Plan:
    """One call but its addresses.

    outs: the results' metas.  launch: the bound launch; None where nothing is computed.  room: the workspace's meta.  numbers: a
    converter for each number that is passed to the launch (None: as it is).  fixed: numbers that are passed after those, at each call
    the same.  reads: whether the launch is given the operands' addresses.  saved: `Saved`, or a function that gives one for the
    operands that require grad (a tuple of truths); None where nothing is differentiable.  result: makes the call's result of the
    results' list (default: the tensor, or a tuple of several).  dense: of a loop program that a family says to be the same for dense operands of any one
    shape, but for the number of elements: it, and what gives `saved` for the operands and numbers of a call (None: nothing is differentiable).
    letters: the roles of what a call is given, where numbers among that are in the plan already ("" where there are none).
    """

    __slots__ = ("outs", "launch", "room", "numbers", "saved", "result", "fixed", "reads", "dense", "letters")

    def __init__(self, outs: Sequence[Meta], launch: Callable[..., Any] | None, room: Meta | None = None, numbers: Sequence[Any] = (), saved: Any = None,
                 result: Any = None, fixed: Sequence[Any] = (), reads: bool = True, dense: tuple[Any, Any] | None = None) -> None:
        self.dense, self.letters = dense, ""
        self.outs, self.launch, self.room, self.numbers, self.saved, self.result = tuple(map(under, outs)), launch, room, tuple(numbers), saved, result
        self.fixed, self.reads = tuple(fixed), reads

    def bind(self, roles: str) -> Callable[..., Any]:
        """The call as a function of its operands and numbers, by `roles`: a letter for each, "t" a tensor, "n" a number,
        "x" one that is absent (None)."""
        native, made = self._native(roles), self._call
        run: Callable[..., Any]
        if native is None:
            run = made(roles)
        elif self.taped:
            run = native(made(roles, quick=native(made(roles, taped=False), False)), True, self.result)
        else:
            run = native(made(roles), False, self.result)
        return run

    def once(self, roles: str) -> Callable[..., Any]:
        """What carries out one call, for which nothing is bound."""
        return self._call(roles)

    @property
    def taped(self) -> bool:
        """Whether calls may be recorded."""
        return self.saved is not None and any(m.dtype.kind in "fc8" for m in self.outs)

    def _call(self, roles: str, taped: bool = True, quick: Any = None) -> Callable[..., Any]:
        """The call in Python. taped: also where it must be recorded, and the results as a call gives them. quick: carries it out without the tape."""
        small, convert = tuple([m.sizes is not None for m in self.outs]), tuple([c is not None for c in self.numbers])
        make = _maker(roles, small, self.room is not None, convert, taped and self.taped, taped and self.result is not None, len(self.fixed),
                      None if self.launch is None else self.reads, quick is not None)
        return make(self, quick)  # type: ignore[no-any-return]

    def _native(self, roles: str) -> Callable[..., Any] | None:
        """``f(otherwise, watch, result)``, which gives the call in machine code (`Calls.builtin`); None where it cannot be had."""
        shared = self.launch is not None and sequence.header(self.launch) is None  # by the threads, beside which a call's Python does not count
        spec = None if shared or any(m.sizes is None for m in self._rooms) else self._words(roles)
        if spec is None:
            return None

        def made(otherwise: Callable[..., Any], watch: bool, result: Any = None) -> Callable[..., Any]:
            return CALLS.builtin(*spec, result or (None if len(self.outs) == 1 else tuple), otherwise, watch)
        return made

    def sized(self, roles: str, trace: Trace, sizes: int, bare: bool = False) -> Callable[..., Any]:
        """The call for all sizes, of a plan that was traced (`Calls.sized`).  bare: without what `result` makes, and whoever must record it.  Raises NoTrace
        where it cannot be had."""
        spec = self._words(roles)
        if spec is None:
            raise NoTrace("no machine code for this launch")
        gather = None if bare else self.result
        return CALLS.sized(trace, sizes, *spec, gather or (None if len(self.outs) == 1 else tuple), self.taped and not bare)

    @property
    def _rooms(self) -> tuple[Meta, ...]:
        return self.outs if self.room is None else (*self.outs, self.room)

    def _words(self, roles: str) -> tuple[str, list[Block], list[Any], list[Made]] | None:
        """The letters, blocks, steps and results of a call in machine code; None where there is none for it."""
        if not all(c is None or c is float or type(c) is Held and c.dtype.kind in "uif" for c in self.numbers):
            return None
        letters, steps = roles.replace("n", "x"), []
        if self.launch is not None:
            if not sequence.steppable(self.launch):
                return None
            count, at = len(self.outs), len(roles)
            args: list[tuple[int, Any]] = [(at + i, 0) for i in range(count)]
            args += [(i, 0) for i, role in enumerate(roles) if role == "t" and self.reads] + [(at + count, 0)] * (self.room is not None)
            letters, args = _arguments(self.launch, roles, args, self.numbers)
            steps.append(sequence.launch_step(self.launch, [*args, *[(-1, x) for x in self.fixed]]))
        blocks = [block_of(m, i < len(self.outs)) for i, m in enumerate(self._rooms)]
        return letters, blocks, steps, [Made(NEW, m, i) for i, m in enumerate(self.outs)]


def block_of(m: Meta, whole: bool) -> Block:
    """Memory for a meta, of which a result is made, or none."""
    unknown = m.sizes is None
    return Block(m if unknown else m.sizes.free, None if unknown else m.sizes.grow, m if whole else None)


def _arguments(launch: Any, roles: str, args: Sequence[tuple[int, Any]], numbers: Sequence[Any]) -> tuple[str, list[tuple[int, Any]]]:
    """The roles of a call's arguments as `Calls.builtin` has them; a launch's arguments, with those numbers of the call that it is given behind
    the addresses."""
    letters, args = list(roles), list(args)
    for i, convert in zip([i for i, role in enumerate(roles) if role == "n"], numbers, strict=False):
        letter = "f" if sequence.takes_float(launch, len(args)) else "i"
        letters[i] = letter.upper() if type(convert) is Held else letter
        args.append((i, 0))
    return "".join(letters).replace("n", "x"), args


class Unbound:
    """A plan as it is kept after its first call, which it carried out by itself: it is bound when it is called again.  Of layouts and constants that
    never come twice nothing is bound.

    bind: gives the bound call.  place: the cache, the key there and the epoch, so that the bound call takes this one's place.
    """

    __slots__ = ("bind", "place", "run")

    def __init__(self, bind: Callable[[], Callable[..., Any]], place: tuple[dict[Any, Any], Any, int]) -> None:
        self.bind, self.place = bind, place
        self.run: Callable[..., Any] | None = None

    def __call__(self, *given: Any) -> Any:
        run = self.run
        if run is None:
            with preparing():
                run = self.run = self.bind()
            caches.replace(*self.place, self, run)
        return run(*given)


class Later:
    """A plan as a function that binds it at its second call."""

    __slots__ = ("plan", "roles", "run", "called")

    def __init__(self, plan: Plan, roles: str) -> None:
        self.plan, self.roles, self.called = plan, roles, False
        self.run: Callable[..., Any] | None = None

    def __call__(self, *given: Any) -> Any:
        if self.run is None:
            if not self.called:
                self.called = True
                return self.plan.once(self.roles)(*given)
            with preparing():
                self.run = self.plan.bind(self.roles)
        return self.run(*given)


def under(m: Meta) -> Meta:
    """The meta of a plain tensor in the place of one of a class that answers for operations."""
    return m if m.plain else getattr(m, "under", m)


def roles(given: Sequence[Any]) -> str:
    """The roles of what a plan's call is given: see `Plan.bind`."""
    return "".join(["t" if isinstance(x, Tensor) else "x" if x is None else "n" for x in given])


class Compose:
    """A plan that consists of other operations: `run(*operands)`."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def bind(self, roles: str) -> Callable[..., Any]:
        return self.run


class View:
    """A plan that shows the operand's memory with another layout: `meta` from `offset` bytes after its first element on.

    backward: ``f(node, g)`` as the tape calls it; None where nothing is recorded.  saved: the node's SAVED.  name: what `grad_fn` shows.
    """

    __slots__ = ("meta", "offset", "backward", "saved", "name")

    def __init__(self, meta: Meta, offset: int, backward: Callable[[Node, Any], Any] | None, saved: Any = None, name: str = "") -> None:
        self.meta, self.offset, self.backward, self.saved, self.name = under(meta), offset, backward, saved, name

    def bind(self, roles: str) -> Callable[..., Any]:
        run = self._call()
        return CALLS.builtin("t" + "x" * (len(roles) - 1), (), (), [Made(VIEW, self.meta, 0, self.offset)], None, run, False)

    def sized(self, roles: str, trace: Trace, sizes: int) -> Callable[..., Any]:
        """As that of a `Plan`."""
        return CALLS.sized(trace, sizes, "t" + "x" * (len(roles) - 1), (), (), [Made(VIEW, self.meta, 0, self.offset)], None, False)

    def once(self, roles: str) -> Callable[..., Any]:
        """What carries out one call, for which nothing is bound."""
        call = self._call()
        return lambda t, *constants: call(t)

    def _call(self) -> Callable[..., Any]:
        """The call in Python."""
        return _view(self.meta, self.offset, self.backward, self.saved, self.name)


def _view(m: Meta, offset: int, backward: Any, saved: Any, name: str) -> Callable[[Tensor], Tensor]:
    def run(t: Tensor, _: Any = None) -> Tensor:  # what else a call is given is in its key
        return view_of(t, m, offset, backward, saved, name)
    return run


def view_of(t: Tensor, m: Meta, offset: int, backward: Any, saved: Any, name: str) -> Tensor:
    """What a `View` gives."""
    r: Tensor = _new(Tensor)
    r.meta = m
    r.store = t.store
    r.ptr = t.ptr + offset
    r.node = None
    base = t.base
    if base is None:
        base = t
    elif "_made" in t.__dict__:
        r.__dict__["_made"] = t.__dict__["_made"]
    r.base = base
    node = t.node
    if _grad_on():
        history = base.node
        if (history is None or history[0]) and base.meta.dtype.kind in "fc":
            inplace.note(base, r)
        if node is not None and backward is not None:
            r.node = tape.new(backward, (node,), saved, {"name": name} if name else None)
            if tape.anomaly.on:
                tape.anomaly.note(r.node)
    else:
        inplace.note_unseen(base, r)
    return r


_new, _grad_on = object.__new__, _grad.get


class Turned:
    """A plan that shows the operand's conjugates or negatives.  meta: what those views' metas are like, without an address.  general: carries out any
    such call, also one that must be recorded."""

    __slots__ = ("meta", "general")

    def __init__(self, meta: Lazy, general: Callable[[Tensor], Tensor]) -> None:
        self.meta, self.general = meta, general

    def bind(self, roles: str) -> Callable[..., Any]:
        return CALLS.builtin(roles, (), (), [Made(TURNED, self.meta)], None, self.general, False)


class Relaid:
    """A plan that gives the operand itself the layout of a view of it.

    view: that one's plan.  general: carries out a call that must be recorded and whose view has no history of its own.
    """

    __slots__ = ("view", "general")

    def __init__(self, view: View, general: Callable[[Tensor], Tensor]) -> None:
        self.view, self.general = view, general

    def bind(self, roles: str) -> Callable[..., Any]:
        view, general, grad_on = self.view, self.general, _grad.get
        m, offset, backward, saved = view.meta, view.offset, view.backward, view.saved
        extra = {"name": view.name} if view.name else None

        def run(t: Tensor, *_: Any) -> Tensor:
            if (t.node is not None or t.base is not None) and grad_on() and inplace.check(t, (t,)):
                if backward is None:
                    return general(t)
                t.node = tape.new(backward, (t.node,), saved, None if extra is None else extra.copy())
                if tape.anomaly.on:
                    tape.anomaly.note(t.node)
            t.store.version += 1
            t.meta = m
            t.ptr += offset
            return t
        return run


# ------------------------------------------------------------------------------------------------------------- the patterns
class Text:
    """A function that is being written: `lines`, whose names c0, c1, ... stand for `constants`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[Any] = []
        self._names: dict[int, str] = {}  # by identity

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        found = self._names.get(id(value))
        if found is None:
            found = self._names[id(value)] = f"c{len(self.constants)}"
            self.constants.append(value)
        return found


def maker(text: str, space: dict[str, Any]) -> Callable[..., Any]:
    """The function `make` of a text of the engine's own, into which only counts and offsets enter; space: the names that it uses."""
    space.setdefault("__name__", __name__)  # it is no line of the user's
    exec(compile(text, CODE, "exec"), space)
    made: Callable[..., Any] = space["make"]
    space.pop("make", None)  # which would hold the space that holds it, and with it all that the text uses
    return made


def _recorder(plan: Plan, roles: str) -> Callable[..., Any]:
    """Makes what puts a call on the tape, ``f(results, edges, operands and numbers)``, from the edges of its first call of a kind: they
    hold None for what requires no grad."""
    return lambda edges: recorder(plan.saved, plan.outs, roles, edges)


def recorder(saved: Any, outs: Sequence[Any], roles: str, edges: tuple[Any, ...]) -> Callable[..., None]:
    """What `_recorder` makes. saved: as in `Plan`; outs: of as many results."""
    saved = saved(tuple([e is not None for e in edges])) if callable(saved) else saved
    if len(outs) > 1:
        return _several(saved)
    put: Callable[..., None] = _putter(len(roles), tuple([(i, roles[i] == "t") for i in saved.keep]), bool(saved.results), saved.numbers)(saved)
    return put


@lru_cache(1024)
def _putter(count: int, keep: tuple[tuple[int, bool], ...], results: bool, numbers: tuple[int, ...]) -> Callable[[Saved], Any]:
    """A function that makes what puts a call with one result on the tape, for nodes that keep these operands and numbers."""
    kept = "".join(f"a{i}, " for i, _ in keep)
    versions = "".join(f"+a{i}.store.version, " if tensor else "0, " for i, tensor in keep)
    state = f"(info, ({kept}), ({versions}), {'(alias(r), ),' if results else '(),'} ({''.join(f'a{i}, ' for i in numbers)}))"
    constant = not (keep or results or numbers)
    lines = ["def make(saved):",
             " backward, info, next_seq, anomaly = saved.backward, saved.info, tape.next_seq, tape.anomaly",
             *([" alone = (info, (), (), (), ())"] if constant else []),
             f" def put(r, edges, {''.join(f'a{i}, ' for i in range(count))}):",
             f"  r.node = {tape.text('backward', 'edges', 'alone' if constant else state)}",
             "  if anomaly.on: anomaly.note(r.node)",
             " return put"]
    return maker("\n".join(lines), {"tape": tape, "alias": _alias})


def _several(saved: Saved) -> Callable[..., None]:
    backward, keep, results, info, numbers, first = saved.backward, saved.keep, saved.results, saved.info, saved.numbers, saved.first

    def put(outs: tuple[Tensor, ...], edges: tuple[Any, ...], *given: Any) -> None:
        held = tuple([given[i] for i in keep])
        kept = tuple([+x.store.version if isinstance(x, Tensor) else 0 for x in held])
        state = (info, held, kept, tuple([_alias(outs[i]) for i in results]), tuple([given[i] for i in numbers]))
        if first:
            outs[0].node = tape.node(backward, edges, state)
        else:
            tape.spread(outs, backward, edges, state)
    return put


def _alias(t: Tensor) -> tuple[Tensor, int]:
    """A result as its own node may hold it: without that node, which would be a circle; and its version."""
    r = object.__new__(Tensor)
    r.meta, r.store, r.ptr, r.node, r.base = t.meta, t.store, t.ptr, None, None
    return r, +t.store.version


@lru_cache(1024)
def _maker(roles: str, small: tuple[bool, ...], room: bool, convert: tuple[bool, ...], taped: bool, result: bool, fixed: int,
           reads: bool | None, quick: bool = False) -> Callable[..., Any]:
    """A function that makes the call of a plan of this pattern. reads: as in `Plan`; None where there is no launch. quick: it is given what carries
    out the call without the tape, too."""
    names = [f"a{i}" for i in range(len(roles))]
    lines = ["def make(plan, quick=None):",
             " launch = plan.launch",
             " new, T, S, grad_on = object.__new__, Tensor, Storage, _grad.get"]
    lines += [f" m{i} = plan.outs[{i}]" for i in range(len(small))]
    lines += [f" free{i}, grow{i} = m{i}.sizes.free, m{i}.sizes.grow" for i, s in enumerate(small) if s]
    lines += [f" c{i} = plan.numbers[{i}]" for i, c in enumerate(convert) if c]
    lines += [f" f{i} = plan.fixed[{i}]" for i in range(fixed)]
    if room:
        lines.append(" work = plan.room")
    if result:
        lines.append(" result = plan.result")
    if taped:
        lines += [f" record = _recorder(plan, {roles!r})", f" puts = [None] * {1 << roles.count('t')}"]
    lines.append(f" def call({', '.join(names)}):")
    if quick:
        lines.append(f"  {', '.join(f'r{i}' for i in range(len(small)))} = quick({', '.join(names)})")
    else:
        lines += _carried_out(names, roles, small, room, convert, fixed, reads)
    outs = "".join(f"r{i}, " for i in range(len(small)))
    tensors = [(i, n) for i, (n, role) in enumerate(zip(names, roles)) if role == "t"]
    if taped and tensors:
        nodes = {i: f"n{i}" for i, _ in tensors}
        lines += [f"  n{i} = {n}.node" for i, n in tensors]
        some = " or ".join(f"{v} is not None" for v in nodes.values())
        edges = "".join(f"{nodes.get(i, 'None')}, " for i in range(len(names)))
        kind = " + ".join(f"({1 << k} if {v} is not None else 0)" for k, v in enumerate(nodes.values()))
        lines += [f"  if ({some}) and grad_on():",
                  f"   put = puts[{kind}]",
                  f"   if put is None: put = puts[{kind}] = record(({edges}))",
                  f"   put({'r0' if len(small) == 1 else f'({outs})'}, ({edges}), {', '.join(names)})"]
    lines.append(f"  return result(({outs}))" if result else "  return r0" if len(small) == 1 else f"  return ({outs})")
    lines.append(" return call")
    return maker("\n".join(lines), {"Tensor": Tensor, "Storage": Storage, "_grad": _grad, "storage": storage, "_recorder": _recorder, "first": versions.first,
                                    "entered": versions.entered})


def _carried_out(names: Sequence[str], roles: str, small: tuple[bool, ...], room: bool, convert: tuple[bool, ...], fixed: int,
                 reads: bool | None) -> list[str]:
    """The lines that allocate, launch and make the results r0, r1, ..."""
    lines: list[str] = []
    for i, s in enumerate(small):
        if s:
            lines += [f"  s{i} = S(); s{i}.version = first() if entered else 0; s{i}.meta = m{i}; s{i}.free = free{i}",
                      f"  try: p{i} = s{i}.ptr = free{i}.pop()",
                      f"  except IndexError: p{i} = s{i}.ptr = grow{i}()"]
        else:
            lines.append(f"  s{i} = storage(m{i}); p{i} = s{i}.ptr")
    args = [f"p{i}" for i in range(len(small))] + [f"{n}.ptr" for n, role in zip(names, roles) if role == "t" and reads]
    if room:
        lines.append("  scratch = storage(work)")
        args.append("scratch.ptr")
    numbers = [n for n, role in zip(names, roles) if role == "n"]
    args += [f"c{i}({n})" if c else n for i, (n, c) in enumerate(zip(numbers, convert))]
    args += [f"f{i}" for i in range(fixed)]
    if reads is not None:
        lines.append(f"  launch({', '.join(args)})")
    for i in range(len(small)):
        lines.append(f"  r{i} = new(T); r{i}.meta = m{i}; r{i}.store = s{i}; r{i}.ptr = p{i}; r{i}.node = r{i}.base = None")
    return lines


def _tensors(roles: str) -> list[tuple[int, Any]]:
    return [(i, 0) for i, role in enumerate(roles) if role == "t"]


def _plainly(numbers: Sequence[Any]) -> bool:
    """Whether machine code can take numbers as these converters do."""
    return all(c is None or c is float for c in numbers)


def writing(launch: Any, roles: str, args: Sequence[tuple[int, Any]] | None, numbers: Sequence[Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """``f(*arguments)``, which has a launch write over the first argument, and gives it. args: which addresses the launch is given; None: those of all
    tensors.  otherwise: does the same, for arguments that share memory, and calls that are recorded."""
    if sequence.header(launch) is None or not _plainly(numbers):
        return otherwise
    letters, words = _arguments(launch, roles, _tensors(roles) if args is None else args, numbers)
    return CALLS.builtin(letters, (), [sequence.launch_step(launch, words)], [Made(SAME, None)], None, otherwise, True, [(0, 1)])


class Written:
    """A plan that writes its result over the first operand.

    launch: called with that operand's address twice, then as a `Plan`'s.  general: carries out any such call, also one that must be
    recorded or whose operands share memory.  saved: gives, for the operands that require grad, how the call is differentiated: that of a `Plan`
    that makes a new tensor; None where it is not told.  copy: gives a tensor's values in memory of their own.  dense: the loop program, where it is the
    same for dense operands of any one shape.  letters: as a `Plan`'s.
    """

    __slots__ = ("launch", "numbers", "general", "saved", "copy", "dense", "letters")

    def __init__(self, launch: Callable[..., Any], numbers: Sequence[Any], general: Callable[..., Any],
                 saved: Callable[[tuple[bool, ...]], Saved] | None = None, copy: Callable[[Tensor], Tensor] | None = None, dense: Any = None) -> None:
        self.dense, self.letters = dense, ""
        self.launch, self.numbers, self.general, self.saved, self.copy = launch, tuple(numbers), general, saved, copy

    def bind(self, roles: str) -> Callable[..., Any]:
        return writing(self.launch, roles, [(0, 0), *_tensors(roles)], self.numbers, self._call(roles))

    def sized(self, roles: str, trace: Trace, sizes: int) -> Callable[..., Any]:
        """As that of a `Plan`."""
        if not sequence.steppable(self.launch) or not _plainly(self.numbers):
            raise NoTrace("no machine code for this launch")
        letters, args = _arguments(self.launch, roles, [(0, 0), *_tensors(roles)], self.numbers)
        return CALLS.sized(trace, sizes, letters, (), [sequence.launch_step(self.launch, args)], [Made(SAME, None)], None, True, [(0, 1)])

    def once(self, roles: str) -> Callable[..., Any]:
        """What carries out one call, for which nothing is bound."""
        return self._call(roles)

    def _call(self, roles: str) -> Callable[..., Any]:
        """The call in Python."""
        return _writer(roles, tuple([c is not None for c in self.numbers]))(self)  # type: ignore[no-any-return]


def _recording(plan: Written, roles: str) -> Callable[..., Tensor]:
    """Carries out recorded calls of an in-place plan, on what is neither a leaf nor a view."""
    if plan.saved is None or plan.copy is None:
        return plan.general
    general, how, copy, launch = plan.general, plan.saved, plan.copy, plan.launch
    convert = iter([c or _as_it_is for c in plan.numbers])
    converters = [next(convert) if role == "n" else None for role in roles if role != "x"]
    absent = "x" in roles
    known: dict[tuple[bool, ...], Saved] = {}

    def call(*all_given: Any) -> Tensor:
        given = tuple([x for x, role in zip(all_given, roles, strict=True) if role != "x"]) if absent else all_given
        t: Tensor = given[0]
        node = t.node
        if t.base is not None or (t.meta.dtype.kind not in "fc" if node is None else
                                  not node[tape.SEQ] or node[tape.EXTRA] is not None and "retain" in node[tape.EXTRA]):
            return general(*all_given)  # type: ignore[no-any-return]
        edges = tuple([x.node if isinstance(x, Tensor) else None for x in given])
        needs = tuple([e is not None for e in edges])
        saved = known.get(needs)
        if saved is None:
            saved = known[needs] = how(needs)
        before = t
        if any(given[i] is t for i in saved.keep):  # the gradient needs what is about to be overwritten
            before = copy(t)
            before.node = node
        held = tuple([before if given[i] is t else given[i] for i in saved.keep])
        launch(t.ptr, *[x.ptr if c is None else c(x) for x, c in zip(given, converters, strict=True)])
        t.store.version += 1
        kept = tuple([+x.store.version if isinstance(x, Tensor) else 0 for x in held])
        state = (saved.info, held, kept, (_alias(t),) if saved.results else (), tuple([given[i] for i in saved.numbers]))
        t.node = tape.new(saved.backward, edges, state)
        if tape.anomaly.on:
            tape.anomaly.note(t.node)
        if "_views" in t.__dict__:
            inplace.refresh(t, t)
        return t
    return call


def _as_it_is(x: Any) -> Any:
    return x


@lru_cache(1024)
def _writer(roles: str, convert: tuple[bool, ...]) -> Callable[[Written], Any]:
    """A function that makes the call of an in-place plan of this pattern."""
    names = [f"a{i}" for i in range(len(roles))]
    others = [n for n, role in zip(names[1:], roles[1:]) if role == "t"]
    lines = ["def make(plan):",
             " launch, general, grad_on = plan.launch, plan.general, _grad.get",
             f" recorded = _recording(plan, {roles!r})"]
    lines += [f" c{i} = plan.numbers[{i}]" for i, c in enumerate(convert) if c]
    given = ", ".join(names)
    lines += [f" def call({given}):",
              "  s = a0.store"]
    if others:
        shared = " or ".join(f"({n}.store is s and {n} is not a0)" for n in others)
        lines.append(f"  if {shared}: return general({given})")
    recorded = " or ".join(f"{n}.node is not None" for n in ("a0", *others))
    lines += ["  if grad_on():",
              f"   if {recorded}: return recorded({given})",
              "   base = a0.base",
              f"   if base is not None and base.node is not None: return general({given})"]
    args = ["a0.ptr", "a0.ptr"] + [f"{n}.ptr" for n in others]
    numbers = [n for n, role in zip(names, roles) if role == "n"]
    args += [f"c{i}({n})" if c else n for i, (n, c) in enumerate(zip(numbers, convert))]
    lines += [f"  launch({', '.join(args)})",
              "  s.version += 1",
              "  return a0",
              " return call"]
    return maker("\n".join(lines), {"_grad": _grad, "_recording": _recording})
