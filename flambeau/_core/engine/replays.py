"""Replays: functions written for a script, which do a captured call again on other operands.

A replay allocates what the captured call allocated (scratch memory as one block), makes its launches in their order, and gives what it gave.
Where a value that Python looked at is another one than it was, it leaves the call to the operation's body.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..errors import warn
from ..kernels import expr as E
from ..kernels.calls import DETACHED, NEW, OBJECT, SAME, VIEW, Block, Made
from ..kernels.llvm import sequence as sequences
from ..kernels.programs import Map
from ..runtime import capture, dispatch, versions
from ..tensor import Meta, Storage, Tensor, alias, storage
from ..tensor import meta as make_meta
from .plans import CALLS, Text, View, _alias, maker
from .scripts import BLOCK, EARLIER, GRADIENT, OPERAND, Constant, Drawn, Many, Place, Result, Same, Script, Step, placed, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ALIGN = 64


def layout_of(script: Script) -> tuple[dict[int, int], int]:
    """Where in one block of scratch memory each block lies in which no result does, and the bytes of it all."""
    at: dict[int, int] = {}
    end = 0
    for i, b in enumerate(script.blocks):
        if b.store is None:
            at[i] = end
            end += -(-b.size // _ALIGN) * _ALIGN
    return at, end


class Writer(Text):
    """Writes the function of a script.

    poison: new memory is filled with something; a list: and these are the numbers and streams of the draws.  again: the draws may be made
    again, so the streams are kept as they were before.
    """

    def __init__(self, script: Script, dev: Any, earlier: Script | None = None, poison: Any = False, again: bool = False) -> None:
        super().__init__()
        self.script, self.earlier, self.device, self.poison, self.again = script, earlier, dev, poison, again
        self._lent: tuple[int, str] | None = None  # from which line on scratch memory is used that is given back, and to which list
        self.scratch, self.size = layout_of(script)
        self.before = layout_of(earlier)[0] if earlier is not None else {}

    def allocate(self, kept: bool = True) -> None:
        """The lines that allocate the script's blocks: s0, s1, ... storages of results at p0, p1, ...; w for the rest.

        kept: the rest outlives the call, as the backward pass reads it; if not, `returned` gives it back.
        """
        if self.size:
            m = make_meta((self.size,), None, dtypes.uint8, self.device)
            if kept or m.sizes is None or self.poison:
                self.block("w", m, "q")
            else:
                free = self.constant(m.sizes.free)
                self.lines += [f"  try: q = {free}.pop()", f"  except IndexError: q = {self.constant(m.sizes.grow)}()"]
                self._lent = len(self.lines), free
        for i, b in enumerate(self.script.blocks):
            if b.store is not None:
                self.block(f"s{i}", b.store, f"p{i}")

    def returned(self, result: str) -> None:
        """The line that returns the results, and those that give scratch memory back."""
        self.lines.append(f"  return {result}")
        if self._lent is not None:
            start, free = self._lent
            self.lines[start:] = ["  try:", *[" " + line for line in self.lines[start:]], f"  finally: {free}.append(q)"]

    def block(self, s: str, m: Any, p: str) -> None:
        """The lines that allocate a storage under one name, with its address under another."""
        name = self.constant(m)
        if m.sizes is not None and not self.poison:
            sizes = self.constant(m.sizes.free), self.constant(m.sizes.grow)
            self.lines += [f"  {s} = S(); {s}.version = first() if entered else 0; {s}.meta = {name}; {s}.free = {sizes[0]}",
                           f"  try: {p} = {s}.ptr = {sizes[0]}.pop()",
                           f"  except IndexError: {p} = {s}.ptr = {sizes[1]}()"]
        else:
            self.lines.append(f"  {s} = storage({name}); {p} = {s}.ptr")
            if self.poison:
                self.lines.append(f"  poison({p}, 0xa5, {m.nbytes})")

    def base(self, of: str, i: int, offset: int) -> tuple[str, int]:
        """The text of an address from which a place is so many bytes away."""
        if of == OPERAND:
            return f"a{i}.ptr", offset
        if of == GRADIENT:
            return f"g{i}.ptr", offset
        if of == BLOCK:
            return ("q", offset + self.scratch[i]) if i in self.scratch else (f"p{i}", offset)
        assert of == EARLIER
        return ("e.ptr", offset + self.before[i]) if i in self.before else (f"e{i}.ptr", offset)

    def address(self, place: Place) -> str:
        """The text of an address."""
        base, offset = self.base(place.of, place.number, place.offset)
        return f"{base} + {offset}" if offset else base

    def text(self, x: Any) -> str:
        """The text of an argument."""
        return self.address(x) if isinstance(x, Place) else f"d{x.number}_{x.part}" if isinstance(x, Drawn) else self.constant(x)

    def sequence(self, steps: list[Step], otherwise: str) -> None:
        """The line of steps one after another, which are taken from the list.  otherwise: as in `steps`."""
        if len(steps) == 1 and type(steps[0].call) is tuple:
            self.lines.append(f"  {self.constant(dispatch.direct(*steps[0].call))}({', '.join(map(self.text, steps[0].args))})")
        elif steps:
            bases: dict[str, int] = {}
            parts = []

            def base(x: Any) -> tuple[int, Any]:
                if not isinstance(x, (Place, Drawn)):
                    return -1, x
                text, offset = (self.base(x.of, x.number, x.offset) if isinstance(x, Place) else (self.text(x), 0))
                return bases.setdefault(text, len(bases)), offset
            parts += [step_words(step, None if step.call is None else dispatch.direct(*step.call), base) for step in steps]
            call = f"{self.constant(sequences.joined(len(bases), parts))}({', '.join(bases)})"
            told = any(step.expected is not None for step in steps)
            self.lines.append(f"  if not {call}: return {otherwise}" if told else f"  {call}")
        steps.clear()

    def steps(self, otherwise: str) -> None:
        """The lines of the script's steps. otherwise: what is returned where a value read is another one."""
        # what goes wrong is worded by the body; a call that writes its operands cannot be made twice
        guarded = bool(self.script.steps) and not self.script.written
        start = len(self.lines)
        together: list[Step] = []  # that one builtin may do
        warnings: list[Step] = []  # that the body would give again where a value read is another one
        last = max((i for i, step in enumerate(self.script.steps) if step.expected is not None), default=-1)
        for i, step in enumerate(self.script.steps):
            if warnings and i > last:
                self.warn(warnings, together, otherwise)
            if step.what == "draw":
                self.sequence(together, otherwise)
                number, count = step.args
                made = self.constant(self.poison[number]) if self.poison else f"{self.constant(step.call)}({count})"
                self.lines.append(f"  d{number}_0, d{number}_1 = {made}")
            elif step.what == "stream":
                (number,) = step.args
                if self.poison:
                    block = self.poison[number].copy()
                    made = f"d{number}_0, d{number}_1 = {self.constant(block.address)}, {self.constant(block)}"
                elif self.again:
                    self.sequence(together, otherwise)  # which may draw from the stream that is kept as it is now
                    made = f"d{number}_0, d{number}_1 = {self.constant(step.call)}.placed()"
                else:
                    made = f"d{number}_0 = {self.constant(step.call)}.place() if REDRAWING else {self.constant(step.call.block.address)}"
                self.lines.append("  " + made)
            elif step.what == "warn":
                warnings.append(step)
            elif step.call is None or sequences.header(dispatch.direct(*step.call)) is not None:
                together.append(step)
            else:
                self.sequence(together, otherwise)
                args = [self.text(x) for x in step.args]
                self.lines.append(f"  {self.constant(dispatch.direct(*step.call))}({', '.join(args)})")
        if warnings:
            self.warn(warnings, together, otherwise)
        self.sequence(together, otherwise)
        if guarded:
            self.lines[start:] = ["  try:", *[" " + line for line in self.lines[start:]], f"  except Exception: return {otherwise}"]

    def warn(self, warnings: list[Step], before: list[Step], otherwise: str) -> None:
        """The lines that warn, after those of the steps `before`; both are taken from their lists."""
        self.sequence(before, otherwise)
        if not self.poison:  # a trial is not the program's call
            self.lines += [f"  {self.constant(step.call)}({', '.join(map(self.constant, step.args))})" for step in warnings]
        warnings.clear()

    def results(self) -> tuple[str, list[str]]:
        """The lines that make the results; the text of what is returned, and the names of the new tensors."""
        made: list[str] = []

        def walk(x: Any) -> str:
            if isinstance(x, Same):
                return f"a{x.number}"
            if isinstance(x, Constant):
                return self.constant(x.value)
            if isinstance(x, Many):
                parts = "".join(f"{walk(part)}, " for part in x.parts)
                return f"({parts})" if x.kind is tuple else f"[{parts}]" if x.kind is list else f"{self.constant(x.kind)}({parts})"
            assert isinstance(x, Result)
            made.append(r := f"r{len(made)}")
            m = self.constant(x.meta)
            if x.detached:
                self.lines.append(f"  {r} = alias(a{x.place.number}, {m}, {self.address(x.place)})")
                return r
            if x.place.of == OPERAND:
                self.lines.append(f"  {r} = {self.constant(_viewer(x))}(a{x.place.number})")
                return r
            if x.place.of == GRADIENT:
                g = f"g{x.place.number}"
                itself = "" if x.place.offset else f"{g} if {g}.meta is {m} else "
                self.lines.append(f"  {r} = {itself}alias({g}, {m}, {self.address(x.place)})")
                return r
            self.lines.append(f"  {r} = new(T); {r}.meta = {m}; {r}.store = s{x.place.number}; {r}.ptr = {self.address(x.place)}; {r}.node = {r}.base = None")
            return r
        return walk(self.script.result), made

    def function(self, head: str) -> Callable[..., Any]:
        """The function: `head` is its first line."""
        names = ", ".join(f"c{i}" for i in range(len(self.constants)))
        lines = ["def make(constants):", *([f" {names}, = constants"] if names else []), " new, T, S, grad_on = object.__new__, Tensor, Storage, _grad.get",
                 f" {head}", *self.lines, " return call"]
        found: Any = _made("\n".join(lines))(self.constants)
        found.owners = self.script.owners  # no line names them, and their memory is read
        return found  # type: ignore[no-any-return]


@lru_cache(4096)
def _made(text: str) -> Callable[[list[Any]], Callable[..., Any]]:
    space = {"Tensor": Tensor, "Storage": Storage, "_grad": _grad, "storage": storage, "alias": alias, "held": _alias, "move": ctypes.memmove,
             "poison": ctypes.memset, "tape": tape, "next_seq": tape.next_seq, "refresh": inplace.refresh, "renew": inplace.renew,
             "first": versions.first, "entered": versions.entered, "ever": versions.ever, "NOW": capture.now, "REDRAWING": capture.redrawing,
             "DEFAULT": dtypes._default}
    return maker(text, space)


def _viewer(result: Result) -> Callable[[Tensor], Tensor]:
    """Makes a view of an operand, not recorded."""
    show = View(result.meta, result.place.offset, None).bind("t")
    if result.made is None:
        return show

    def one_of_several(t: Tensor) -> Tensor:
        r: Tensor = show(t)
        r.__dict__.setdefault("_made", result.made)
        return r
    return one_of_several


# --------------------------------------------------------------------------------------------------------------- functions
Pattern = tuple[int, ...] | None


def unpack(pattern: Sequence[Pattern]) -> tuple[str, list[str], int]:
    """For what a call is given (None: a tensor; else the places of tensors in a sequence; (): no tensor): the parameters, the lines that name
    the operands a0, a1, ..., and how many there are."""
    names: list[str] = []
    lines: list[str] = []
    n = 0
    for i, places in enumerate(pattern):
        if places is None:
            names.append(f"a{n}")
            n += 1
            continue
        names.append(f"x{i}")
        lines += [f"  a{n + k} = x{i}[{at}]" for k, at in enumerate(places)]
        n += len(places)
    return ", ".join(names), lines, n


def _shared(k: int, n: int) -> str:
    """The end of a condition: or another of n operands lies in the storage of operand k."""
    return "".join(f" or a{i}.store is a{k}.store" for i in range(n) if i != k)


def forward(script: Script, pattern: Sequence[Pattern], dev: Any, rest: Any, plain: Any, taped: dict[int, Any] | None, first: Any, poison: Any = False,
            apart: bool = False) -> Callable[..., Any]:
    """The replay of a call that is not recorded.

    rest: carries out a call in the ordinary way since the replay does not fit; plain: for another reason.  taped: by which operands
    require grad (bits), the replays of recorded calls; `first` makes one and carries it out.  None where nothing is ever recorded.
    apart: it is found by a key that tells neither the default type nor whether somebody looks on, and asks itself.
    """
    w = Writer(script, dev, poison=poison)
    given, lines, n = unpack(pattern)
    if apart:
        w.lines.append(f"  if NOW.watched or DEFAULT.dtype is not {w.constant(dtypes._default.dtype)}: return {w.constant(plain)}({given})")
    w.lines += lines
    if taped is not None and n:
        need = " or ".join(f"a{i}.node is not None" for i in range(n))
        kind = " | ".join(f"({1 << i} if a{i}.node is not None else 0)" for i in range(n))
        w.lines += [f"  if ({need}) and grad_on():",
                    f"   kind = {kind}",
                    f"   run = {w.constant(taped)}.get(kind)",
                    f"   return {w.constant(first)}(kind, {given}) if run is None else run({given})"]
    for k in script.written:
        history = f"(a{k}.node is not None or a{k}.base is not None) and grad_on()"
        w.lines.append(f"  if {history}{_shared(k, n)}: return {w.constant(plain)}({given})")
    w.allocate(kept=False)
    w.steps(f"{w.constant(rest)}({given})")
    w.lines += [f"  a{k}.store.version += {rise}" for k, rise in script.written.items()]
    w.returned(w.results()[0])
    run = w.function(f"def call({given}):")
    return run if poison or apart else native(script, pattern, dev, run, taped is not None)


def native(script: Script, pattern: Sequence[Pattern], dev: Any, otherwise: Callable[..., Any], watch: bool) -> Callable[..., Any]:
    """The replay of a call that is not recorded as machine code (`Calls.builtin`); `otherwise`, the same in Python, where it cannot be had.
    watch: recorded calls are left to that one."""
    parts = script.result.parts if isinstance(script.result, Many) else [script.result]
    warnings = [step.args for step in script.steps if step.what == "warn"]
    if any(step.what and step.what != "warn" for step in script.steps) or any(isinstance(x, Many) for x in parts):
        return otherwise
    if warnings and script.written:  # a warning may be an error, which comes before anything is written
        return otherwise
    apart = any(pattern)  # operands in lists, which it is given one by one
    roles = "t" * unpack(pattern)[2] if apart else "".join(["x" if places is not None else "t" for places in pattern])
    operands = [i for i, role in enumerate(roles) if role == "t"]  # the arguments that they are
    scratch, size = layout_of(script)
    kept = [i for i, b in enumerate(script.blocks) if b.store is not None]
    rooms = [(m, True) for b in script.blocks if (m := b.store) is not None] + [(make_meta((size,), None, dtypes.uint8, dev), False)] * bool(size)
    kept_steps = [step for step in script.steps if not step.what]
    launches = [None if step.call is None else dispatch.direct(*step.call) for step in kept_steps]
    if any(m.sizes is None for m, _ in rooms) or any(launch is not None and sequences.header(launch) is None for launch in launches):
        return otherwise

    def number(x: Place) -> tuple[int, int]:
        """The number of an argument or a block, and the bytes that are added."""
        if x.of == OPERAND:
            return operands[x.number], x.offset
        return (len(kept), scratch[x.number] + x.offset) if x.number in scratch else (kept.index(x.number), x.offset)

    def address(x: Any) -> tuple[int, Any]:
        if not isinstance(x, Place):
            return -1, x
        at, offset = number(x)
        return at + len(roles) * (x.of != OPERAND), offset

    def made(x: Any) -> Made:
        if isinstance(x, Result):
            what = NEW if x.place.of == BLOCK else DETACHED if x.detached else VIEW
            return Made(what, x.meta, *number(x.place), x.made if what == VIEW else None)
        return Made(SAME, None, operands[x.number]) if isinstance(x, Same) else Made(OBJECT, x.value)
    steps = [step_words(step, launch, address) for step, launch in zip(kept_steps, launches, strict=True)]
    blocks = [Block(m.sizes.free, m.sizes.grow, m if whole else None) for m, whole in rooms]
    written = [(operands[k], rise) for k, rise in script.written.items()]
    kind: Any = script.result.kind if isinstance(script.result, Many) else None
    gather = kind if kind in (None, tuple, list) else kind._make
    if warnings:
        gather = _warning(warnings, (lambda made: made[0]) if gather is None else gather)
    call = CALLS.builtin(roles, blocks, steps, [made(x) for x in parts], gather, _missed if apart else otherwise, watch, written)
    if call is _missed or not apart:
        return otherwise if call is _missed else call
    run: Callable[..., Any] = _unpacked(tuple(pattern))(call, otherwise, _MISSED)
    return run


def _warning(warnings: Sequence[Any], gather: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What gives a call's results together, once it has warned."""
    def call(made: Any) -> Any:
        for said in warnings:
            warn(*said)
        return gather(made)
    return call


class _Missed:
    """Stands for the result of a call that is to be carried out otherwise."""


_MISSED = _Missed()


def _missed(*_: Any) -> Any:
    return _MISSED


@lru_cache(1024)
def _unpacked(pattern: tuple[Pattern, ...]) -> Callable[..., Any]:
    """A function that makes the call whose operands lie in lists of those that are given one by one."""
    given, lines, n = unpack(pattern)
    return maker("\n".join(["def make(call, otherwise, missed):",
                            f" def unpacked({given}):",
                            *lines,
                            f"  made = call({', '.join(f'a{i}' for i in range(n))})",
                            f"  if made is missed: return otherwise({given})",
                            "  return made",
                            " return unpacked"]), {})


def step_words(step: Step, launch: Any, base: Callable[[Any], tuple[int, Any]]) -> tuple[list[int], Any]:
    """A step of a sequence of machine code.  launch: its own, bound; base: the number of an address, and what is added to it."""
    if launch is not None:
        return sequences.launch_step(launch, [base(x) for x in step.args])
    data = step.args[1] if step.expected is None else step.expected
    return sequences.bytes_step(sequences.MOVE if step.expected is None else sequences.SAME, *base(step.args[0]), data)


def _given(name: str, node: str) -> str:
    """The text that gives a tensor its history: operands, which are written, may have one already."""
    return f"renew({name}, {node})" if name.startswith("a") else f"{name}.node = {node}"


def recorded(script: Script, pattern: Sequence[Pattern], dev: Any, rest: Any, info: Any, back: Any, nodes: Sequence[bool],
             outs: Sequence[int], heads: Sequence[int], olds: Sequence[tuple[int, Meta]], poison: Any = False) -> Callable[..., Any]:
    """The replay of a call that is recorded.

    back: the node's BACKWARD.  nodes: which of the new tensors have a node.  outs: which of them the backward pass reads.  heads: operands
    that are written and get a node.  olds: operands whose values are kept as they are before, with their metas.
    The node's SAVED is ``(info, operands, their versions, results kept, blocks, those values, numbers drawn)``.
    """
    w = Writer(script, dev, poison=poison, again=True)
    given, lines, n = unpack(pattern)
    w.lines += lines
    w.lines.append(f"  if tape.anomaly.on: return {w.constant(rest)}({given})")
    if n:  # what is saved of inference tensors is an error, which the general way knows
        some = " or ".join(f"a{i}.store.version < 0" for i in range(n))
        w.lines.append(f"  if ever and ({some}): return {w.constant(rest)}({given})")
    for k in script.written:
        leaf = f"(a{k}.node is not None and not a{k}.node[{tape.SEQ}])"
        w.lines.append(f"  if a{k}.base is not None or {leaf}{_shared(k, n)}: return {w.constant(rest)}({given})")
    for k, m in olds:
        start, nbytes = reach(m)
        w.block(f"o{k}", make_meta((nbytes,), None, dtypes.uint8, dev), f"u{k}")
        w.lines.append(f"  move(u{k}, a{k}.ptr + {start}, {nbytes})" if dev.type == "cpu" else
                       f"  {w.constant(_copying(dev, nbytes))}(u{k}, a{k}.ptr + {start})")
    w.allocate()
    w.steps(f"{w.constant(rest)}({given})")
    w.lines += [f"  a{k}.store.version += {rise}" for k, rise in script.written.items()]
    result, made = w.results()
    # what is written is kept without its node, which would be a circle
    operands = "".join(f"alias(a{i}, a{i}.meta, a{i}.ptr), " if i in script.written else f"a{i}, " for i in range(n))
    versions, edges = ("".join(f"a{i}{what}, " for i in range(n)) for what in (".store.version", ".node"))
    blocks = "".join(f"s{i}, " for i, b in enumerate(script.blocks) if b.store is not None)
    kept = "".join(f"held(r{i}), " for i in outs)
    values = "".join(f"o{k}, " for k, _ in olds)
    drawn = "".join(f"d{step.args[0]}_1, " if step.what == "stream" else f"(d{step.args[0]}_0, d{step.args[0]}_1), "
                    for step in script.steps if step.what in ("draw", "stream"))
    state = f"({w.constant(info)}, ({operands}), ({versions}), ({kept}), ({'w' if w.size else 'None'}, {blocks}), ({values}), ({drawn}))"
    with_node = [*[r for r, has in zip(made, nodes, strict=True) if has], *[f"a{k}" for k in heads]]
    if len(with_node) == 1:
        w.lines.append(f"  {_given(with_node[0], tape.text(w.constant(back), f'({edges})', state))}")
    else:
        extra = f'{{"outputs": {len(with_node)}, "name": {w.constant(info.names[0])}}}'
        w.lines.append(f"  node = {tape.text(w.constant(back), f'({edges})', state, extra)}")
        w.lines += ["  " + _given(r, tape.text("tape.to_output", "(node,)", str(i), f'{{"name": {w.constant(info.names[i])}}}'))
                    for i, r in enumerate(with_node)]
    w.lines += [f"  if '_views' in a{k}.__dict__: refresh(a{k}, a{k})" for k in heads]
    w.lines.append(f"  return {result}")
    return w.function(f"def call({given}):")


def _copying(dev: Any, nbytes: int) -> Callable[[int, int], Any]:
    """What copies so many bytes on a GPU, given two addresses."""
    d = next(d for d in (dtypes.int64, dtypes.int32, dtypes.uint8) if not nbytes % d.itemsize)
    return dispatch.direct(dev, dispatch.prepare(dev, Map((E.input(0, d),), (d,), ()), (nbytes // d.itemsize,), ((1,), (1,)), [nbytes, nbytes]))


def copied_there(t: Tensor) -> Tensor:
    """`scripts.copied` on a GPU."""
    r = placed(t.meta)
    start, nbytes = reach(t.meta)
    if nbytes > 0:
        _copying(t.meta.device, nbytes)(r.ptr + start, t.ptr + start)
    return r


def backward(script: Script, before: Script, count: int, gradients: int, dev: Any, slow: Any, reads: Sequence[int], outs: int,
             poison: Any = False) -> Callable[..., Any]:
    """The replay of a backward pass, ``f(node, gradients given...)``.

    before: the script of the call.  count: its operands.  reads: those of them that are read.  outs: how many results the node keeps.
    slow: carries out the pass in the ordinary way.
    """
    w = Writer(script, dev, earlier=before, poison=poison)
    gs = "".join(f", g{i}" for i in range(gradients))
    w.lines.append(f"  _, operands, versions, outs, blocks, _, _ = node[{tape.SAVED}]")
    if count:
        w.lines.append(f"  {''.join(f'a{i}, ' for i in range(count))} = operands")
    w.lines += [f"  if a{i}.store.version != versions[{i}]: tape.changed(a{i}, versions[{i}], node)" for i in reads]
    for i in range(outs):
        w.lines += [f"  t, v = outs[{i}]", "  if t.store.version != v:", "   t.node = node", "   tape.changed(t, v, node)"]
    kept = "".join(f", e{i}" for i, b in enumerate(before.blocks) if b.store is not None)
    w.lines.append(f"  e{kept}, = blocks")
    w.allocate(kept=False)
    w.steps(f"{w.constant(slow)}(node{gs})")
    w.returned(w.results()[0])
    return w.function(f"def call(node{gs}):")
