"""Bodies traced with unknown sizes: a call whose operation gives no plan is watched once for all shapes of its kind.

The body is carried out on tensors of unknown sizes, of which there is no memory, while a capture notes what it launches and keeps it from being done.  Sizes
and addresses go through its Python as unknown numbers (`unknowns`) and as addresses of which nothing can be read; what it allocates is such an address
too.  The launches, with the conditions that sizes must meet, become one builtin in machine code (`Calls.sized`), which draws from the generators' own
streams.  What follows from values, and what Python writes or warns of, is left to the body.

An unknown number is no int: code that asks so takes another turn than with the number itself.  So the body is watched a second time, on operands whose sizes
are known, and must ask for the same, word by word, before anything is launched; then what the builtin gives for the example is held against what the
body gives, bit by bit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..autograd.mode import _grad, no_grad
from ..kernels.calls import DETACHED, NEW, OBJECT, SAME, VIEW, Block, Made
from ..kernels.llvm import sequence
from ..kernels.native import Words
from ..runtime import caches, capture, cpu_memory, dispatch
from ..runtime.device import CPU
from ..tensor import Meta, Storage, Tensor
from ..unknowns import FIRST_ROOM, Address, NoTrace, Trace, Unknown
from . import general
from .plans import CALLS, block_of
from .scripts import BLOCK, OPERAND, Fresh, Owner, Place, copied
from .trials import attempted, captured, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.random_blocks import Block as Random
    from .operation import Operation

    Values = tuple[Any, ...]

_LEAST = 1 << 16  # no block lies so low: a smaller integer is a number
_MOST_BYTES = 1 << 20  # of an example's operand, of which copies are made
_MOST_STEPS = 32


def try_kind(operation: Operation, values: Values, passed: Sequence[int], key: Any, least: Any, env: dict[str, Any]) -> None:
    """Has the kind of a call traced that the body carried out, if it is time to.

    passed: the places among the arguments of what a call of a kind is given; key, least: see `general.kind_of`; env: where the operation's caches are.
    """
    epoch, renewed = caches.epoch, caches.renewed
    given = [values[i] for i in passed]
    kin = general.kind_of(key, least)
    if kin is None:
        return
    operands = [t for v in given for t in (v if type(v) in (tuple, list) else (v,)) if isinstance(t, Tensor)]
    recorded = _grad.get() and any(t.node is not None for t in operands)
    try:
        due = general.due(env["kinds"], kin, epoch, general.WAIT_BODY, env["fresh"], recorded)
    except TypeError:  # a part without a hash
        return
    if due is None:
        return
    made = None
    if all(t.meta.device is CPU and t.meta.plain and t.meta.nbytes <= _MOST_BYTES for t in operands):
        if recorded:
            from . import recorded as of_recorded
            made = attempted(operation.name + " (recorded)", CPU, lambda: of_recorded.traced(operation, values, passed, operands, least, kin[1]))
        else:
            made = attempted(operation.name + " (traced)", CPU, lambda: _traced(operation, values, passed, operands, least, kin[1]))
    if made is None or made[1]:
        due.failures[recorded] += 1  # what holds for one number only seldom helps
    if made is not None and renewed == caches.renewed:
        (due.recorded if recorded else due.native).append(made[0])


def _traced(operation: Operation, values: Values, passed: Sequence[int], operands: list[Tensor], least: Any,
            sizes: tuple[int, ...]) -> tuple[Callable[..., Any], bool]:
    """The builtin of a kind, by an example, and whether it holds for some number of it only."""
    with no_grad():
        found = Watched(operation, values, passed, operands, least, sizes)
    ours, theirs = ([copied(t) for t in operands] for _ in range(2))
    streams, tried = found.streams()
    with no_grad():
        expected = capture.redrawn(streams, lambda: operation.as_they_are(with_operands(values, iter(theirs))))
        given = found.script(tried).builtin(found.taken, found.made)(sizes, *flat(with_operands(values, iter(ours)), passed))
    if given is NotImplemented:
        raise NoTrace("it does not hold for its example")
    compare(expected, given)
    for a, b in zip(theirs, ours, strict=True):
        compare(a, b)
    run = found.script().builtin(found.taken, found.made)
    if streams:
        run = partial(_from_streams, run)
    return run, found.example.trace.stuck > 0


def _from_streams(run: Callable[..., Any], *given: Any) -> Any:
    """A call that draws, unless one is made again with the numbers it had."""
    return NotImplemented if capture.redrawing else run(*given)


class Watched:
    """A body that was watched with unknown sizes, and asked for the same as with known ones.

    made: what it gave, made_so: what with known sizes; taken: what it launched; roles: of what a call of a kind is given.  prepare: is given the operands
    before the body is.
    """

    def __init__(self, operation: Operation, values: Values, passed: Sequence[int], operands: list[Tensor], least: Any, sizes: tuple[int, ...],
                 prepare: Callable[[list[Tensor]], None] = lambda _: None) -> None:
        self.example = example = _Body(sizes)
        stood = tuple([example.argument(v, least if least.__class__ is int else least[i] if i < len(least) else 0, least.__class__ is int)
                       for i, v in enumerate(values)])
        pattern = [values[i] for i in passed]
        self.roles = "".join(["t" * len(_listed(v)) or ("t" if isinstance(v, Tensor) else "x") for v in pattern])
        if len(example.operands) != len(operands):
            raise NoTrace("operands elsewhere")
        self.fresh = fresh = Fresh()
        example.trace.hashes = True
        theirs = [copied(t) for t in operands]
        for each in (example.operands, theirs):
            prepare(each)
        try:
            self.taken, self.made = captured(lambda _: operation.as_they_are(stood), example.operands, 0, dry=CPU)
            known = Fresh()
            taken_so, self.made_so = captured(lambda copies: operation.as_they_are(with_operands(values, iter(copies))), theirs, 0, dry=CPU)
        finally:
            caches.drop(caches.DRY)
            example.trace.hashes = False
        _agree(_told(self.taken, self.made, example.operands, fresh, example.trace), _told(taken_so, self.made_so, theirs, known, None))

    def script(self, streams: dict[int, Random] | None = None) -> Script:
        """What it did.  streams: for the addresses of those it was lent, others to draw from than the generators' own."""
        lent = [s for s in self.taken.steps if isinstance(s, capture.Lent)]
        return Script(self.example, self.fresh, self.roles, streams or {s.block.address: s.generator.block for s in lent})

    def streams(self) -> tuple[list[Random], dict[int, Random]]:
        """The streams it was lent as they were before, and for the address of each another copy."""
        lent = [s for s in self.taken.steps if isinstance(s, capture.Lent)]
        return [s.begin for s in lent], {s.block.address: s.begin.copy() for s in lent}


def with_operands(values: Values, operands: Any) -> Values:
    """The arguments with other tensors."""
    return tuple([next(operands) if isinstance(v, Tensor) else type(v)([next(operands) if isinstance(x, Tensor) else x for x in v])
                  if type(v) in (tuple, list) else v for v in values])


def flat(values: Values, passed: Sequence[int]) -> list[Any]:
    """What the builtin is given: of lists that hold tensors those one by one."""
    return [x for i in passed for x in _listed(values[i]) or [values[i]]]


def _listed(v: Any) -> list[Tensor]:
    """The tensors that a list or tuple holds."""
    return [x for x in v if isinstance(x, Tensor)] if type(v) in (tuple, list) else []


def _told(taken: capture.Capture, made: Any, operands: Sequence[Tensor], fresh: Fresh, trace: Trace | None) -> tuple[list[Any], Any, list[int]]:
    """What a captured call asked for and gave, with the example's numbers for those that are unknown, as what `_agree` compares: the launches, each with how
    many of its arguments it writes, the result, and how often each operand was written."""
    owner = None if trace is not None else Owner(operands)
    lent = {s.block.address: k for k, s in enumerate(taken.steps) if isinstance(s, capture.Lent)}

    def place(x: Any) -> Any:
        if x.__class__ is int and x in lent:
            return "stream", lent[x]
        if x.__class__ is Address:
            if x.number < FIRST_ROOM:
                return "operand", x.number, value(x.offset)
            assert trace is not None
            return _Block(x.number), value(x.offset), cpu_memory.rounded(value(trace.rooms[x.number - FIRST_ROOM].nbytes))
        found = None if owner is None else owner.find(x)
        if found is not None:
            return "operand", *found
        base, size = fresh.block(x)
        return _Block(("known", base)), x - base, size

    def value(x: Any) -> Any:
        return x.value if x.__class__ is Unknown else x

    def header(prepared: Any) -> Any:
        entry = prepared.entry
        if entry.__class__ is Words:
            return b"".join([(value(w) & (1 << 64) - 1).to_bytes(8, "little") for w in entry.words])
        return entry.__self__ if sequence.native(entry) else id(entry)

    def launch(s: Any) -> Any:
        if isinstance(s, capture.Lent):
            return 0, "lent", id(s.generator)
        if not isinstance(s, capture.Launch):
            raise NoTrace(f"a {type(s).__name__}")
        prepared, numbers = s.prepared, s.args
        if prepared.condition is not None:
            counting, given = prepared.condition
            return 0, header(counting), place(s.args[0]), [repr(value(x)) for x in given], counting.workspace
        end = addresses(s)
        scratch = int(bool(prepared.workspace))  # the last address, which is written too
        args = [place(x) if is_address(x, i, end) else repr(value(x)) for i, x in enumerate(numbers)]
        n, last = prepared.outputs, end - scratch
        return n + scratch, header(prepared), *args[:n], *args[last:end], *args[n:last], *args[end:]

    def result(x: Any) -> Any:
        if isinstance(x, Tensor):
            m = x.meta
            return (place(x.ptr), tuple(map(value, m.shape)), tuple(map(value, m.strides)), m.dtype, value(m.numel), value(m.nbytes), m.contiguous,
                    next((i for i, t in enumerate(operands) if t.store is x.store), -1), x.base is None, repr(x.__dict__.get("_made")))
        return [type(x), *map(result, x)] if isinstance(x, (tuple, list)) else repr(value(x))
    return [launch(s) for s in taken.steps], result(made), [t.store.version for t in operands]


class _Block:
    """A block of memory in `_told`."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key


def _agree(a: tuple[list[Any], Any, list[int]], b: tuple[list[Any], Any, list[int]]) -> None:
    """Raises NoTrace unless two calls asked for the same and gave the same.  A block that one of them let go of and took again may be two of the other's: which
    stands for which changes where one is written anew."""
    pairs: dict[Any, Any] = {}
    back: dict[Any, Any] = {}

    def same(x: Any, y: Any, written: bool) -> bool:
        if isinstance(x, _Block):
            if not isinstance(y, _Block):
                return False
            if pairs.get(x.key) == y.key and back.get(y.key) == x.key:
                return True
            pairs[x.key], back[y.key] = y.key, x.key
            return written
        if isinstance(x, (tuple, list)):
            return type(x) is type(y) and len(x) == len(y) and all(same(v, w, written) for v, w in zip(x, y, strict=True))
        return bool(x == y)
    for one, other in zip(a[0], b[0], strict=False):
        count = one[0] + 2
        if not same(one[:count], other[:count], True) or not same(one[count:], other[count:], False):
            raise NoTrace("it asks for something else where sizes are known")
    if len(a[0]) != len(b[0]) or not same(a[1], b[1], False) or a[2] != b[2]:
        raise NoTrace("it gives something else where sizes are known")


def addresses(s: capture.Launch) -> int:
    """How many of a launch's arguments, the first ones, may be addresses."""
    p = s.prepared.program
    return len(s.args) if p is None else s.prepared.outputs + len(p.inputs) + bool(s.prepared.workspace)


def is_address(x: Any, number: int, end: int) -> bool:
    return x.__class__ is Address or number < end and x.__class__ is int and x >= _LEAST


class _Body(general.Example):
    """Unknown arguments of a body."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes)
        self.operands: list[Tensor] = []

    def tensor(self, t: Tensor, number: int) -> Tensor:
        made = super().tensor(t, len(self.operands))
        made.store = s = Storage()
        s.ptr, s.version, s.meta, s.free = made.ptr, 0, made.meta, []
        self.operands.append(made)
        return made

    def argument(self, v: Any, least: int, deep: bool) -> Any:
        if deep:
            return self.all(v, 0)
        if isinstance(v, Tensor):
            return self.tensor(v, 0)
        return self.constant(v, least) if least else v


class Script:
    """What a traced body did, as the parts of a builtin.

    streams: what is drawn from, by the addresses that the body was lent.
    """

    def __init__(self, example: _Body, fresh: Fresh, roles: str, streams: dict[int, Random]) -> None:
        self.example, self.fresh, self.roles, self.streams = example, fresh, roles, streams
        self.arguments = [i for i, role in enumerate(roles) if role == "t"]
        self.rooms: list[Any] = []  # of the blocks: a meta of unknown sizes, or so many bytes
        self.kept: dict[int, Meta] = {}  # of blocks in which results lie, the meta of the storage
        self._at: dict[Any, int] = {}

    def place(self, x: Any) -> Place:
        """Where an address is.  Raises NoTrace where it is nobody's."""
        if x.__class__ is Address:
            if x.number < FIRST_ROOM:
                return Place(OPERAND, x.number, x.offset)
            return Place(BLOCK, self._block(x.number, self.example.trace.rooms[x.number - FIRST_ROOM]), x.offset)
        base, size = self.fresh.block(x)
        return Place(BLOCK, self._block(("known", base), size), x - base)

    def _block(self, key: Any, of: Any) -> int:
        found = self._at.get(key)
        if found is None:
            found = self._at[key] = len(self.rooms)
            self.rooms.append(of)
        return found

    def address(self, x: Any) -> tuple[int, Any]:
        if not isinstance(x, Place):
            return -1, x
        return (self.arguments[x.number] if x.of == OPERAND else len(self.roles) + x.number), x.offset

    def builtin(self, taken: capture.Capture, made: Any) -> Callable[..., Any]:
        """The builtin of what was captured, and of the results."""
        operands = self.example.operands
        steps, written = self.launches(taken)
        rises = {i: t.store.version for i, t in enumerate(operands) if t.store.version}
        if not written <= rises.keys():
            raise NoTrace("an operand is written and its version stays")
        parts: Any = made if type(made) in (tuple, list) or hasattr(made, "_fields") else [made]
        results = [self._result(x) for x in parts]
        if not steps and all(r.what in (SAME, OBJECT) for r in results):
            raise NoTrace("it gives no new tensor")
        gather = None if parts is not made else type(made) if type(made) in (tuple, list) else parts._make
        return CALLS.sized(self.example.trace, len(self.example.numbers), self.roles, self.blocks(), steps, results, gather,
                           any(t.meta.dtype.kind in "fc" for t in operands), [(self.arguments[i], rise) for i, rise in rises.items()])

    def launches(self, taken: capture.Capture) -> tuple[list[Any], set[int]]:
        """The steps of what was launched, and the operands that it writes."""
        if taken.foreign or len(taken.steps) > _MOST_STEPS:
            raise NoTrace("memory of others, or many launches")
        steps: list[Any] = []
        written: set[int] = set()
        for s in taken.steps:
            if isinstance(s, capture.Launch):
                steps += self._launch(s, written)
            elif not isinstance(s, capture.Lent):
                raise NoTrace(f"a {type(s).__name__}")
        return steps, written

    def blocks(self) -> list[Block]:
        return [self._room(i) for i in range(len(self.rooms))]

    def _launch(self, s: capture.Launch, written: set[int]) -> list[Any]:
        prepared = s.prepared
        if s.device is not CPU or not prepared.lasting or prepared.settling:
            raise NoTrace("a launch that may not be kept")
        if prepared.condition is not None:
            counting, numbers = prepared.condition
            if written:
                raise NoTrace("a check after a write")
            count, *room = [self._scratch(n) for n in (8, counting.workspace) if n]
            launch = self._step(counting, (count, self.place(s.args[0]), *room, *numbers))
            at, offset = self.address(count)
            return [launch, sequence.bytes_step(sequence.SAME, at, offset, bytes(8))]
        end = addresses(s)
        args = [self.streams[x].address if x.__class__ is int and x in self.streams else self.place(x) if is_address(x, i, end) else x
                for i, x in enumerate(s.args)]
        for x in args[:prepared.outputs]:
            if not isinstance(x, Place):
                raise NoTrace("a write to what is nobody's")
            if x.of == OPERAND:
                written.add(x.number)
        return [self._step(prepared, args)]

    def _step(self, prepared: Any, args: Sequence[Any]) -> Any:
        launch = dispatch.direct(CPU, prepared)
        if not sequence.steppable(launch):
            raise NoTrace(f"no machine code for {prepared.name}")
        words, kept = sequence.launch_step(launch, [self.address(x) for x in args])
        return words, (kept, prepared.keep, *self.streams.values())  # whose memory its words may hold

    def _scratch(self, size: Any) -> Place:
        if isinstance(size, Unknown):
            raise NoTrace("a check with a workspace")
        return Place(BLOCK, self._block(("scratch", len(self.rooms)), size), 0)

    def _room(self, number: int) -> Block:
        of, kept = self.rooms[number], self.kept.get(number)
        if isinstance(of, Meta):
            return block_of(of, kept is not None)
        if of > cpu_memory.MIDDLE:
            raise NoTrace("a large block of a known size")
        sizes = cpu_memory.size_class(of)
        return Block(sizes.free, sizes.grow, kept)

    def _result(self, x: Any) -> Made:
        if not isinstance(x, Tensor):
            if x is None or type(x) in (bool, int, float, complex, str):
                return Made(OBJECT, x)
            raise NoTrace(f"a result of class {type(x).__name__}")
        operands = self.example.operands
        for i, t in enumerate(operands):
            if x is t:
                return Made(SAME, None, self.arguments[i])
        if type(x) is not Tensor or not x.meta.plain or x.node is not None:
            raise NoTrace("a result of a class of its own")
        for i, t in enumerate(operands):
            if x.store is t.store:
                offset = x.ptr - t.ptr
                if x.base is None:
                    return Made(DETACHED, x.meta, self.arguments[i], offset)
                if x.base is not t:
                    raise NoTrace("a view of another view")
                return Made(VIEW, x.meta, self.arguments[i], offset, x.__dict__.get("_made"))
        return self.new(x)

    def new(self, x: Tensor) -> Made:
        """A tensor on memory that the body allocated."""
        place = self.place(x.ptr)
        if place.of != BLOCK or not x.__dict__.keys() <= {"_views"}:
            raise NoTrace("a result that more is said of")
        self.kept[place.number] = x.store.meta
        return Made(NEW, x.meta, place.number, place.offset)
