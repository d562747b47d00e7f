"""Replays: a record with its memory planned, as one function without Python between its launches.

What the step allocated and gave back is its own, at the addresses of the recording until the plan of memory (`memory.py`) puts it elsewhere.
What it gives is allocated anew at each replay. Everything else that it touches lived before, or is kept by the program, and is found where it was.
"""

from __future__ import annotations

import sys
from ctypes import string_at
from threading import Lock
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..engine.plans import Text, maker
from ..kernels.llvm import sequence as sequences
from ..runtime import capture, dispatch
from ..runtime.device import CPU
from ..tensor import NO_FREE, Storage, Tensor, alias, meta, storage
from . import blocks
from .owners import Living
from .record import Ask, Launch, Recording, Refused, Slot
from .trees import Leaf, put

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ..runtime.device import device


class Spot:
    """Bytes from the start of the argument ("a") or the result's storage ("p") of a number."""

    __slots__ = ("of", "number", "offset")

    def __init__(self, of: str, number: int, offset: int) -> None:
        self.of, self.number, self.offset = of, number, offset

    @property
    def base(self) -> str:
        return f"a{self.number}.ptr" if self.of == "a" else f"p{self.number}"


class Shown:
    """A result: a tensor of a layout at `ptr` in `store`, the storage whose memory it is: of ``x.data`` the one of x."""

    __slots__ = ("store", "meta", "ptr")

    def __init__(self, store: Storage, m: Any, ptr: int) -> None:
        while store.free is NO_FREE and isinstance(getattr(store, "keep", None), Storage):
            store = store.keep
        self.store, self.meta, self.ptr = store, m, ptr


class Planned:
    """A record whose memory is known.

    operands: the layouts and addresses of the tensors that it was given.  held: see `_only_results`.  tree, results: what it gave, its tensors as `Shown`.
    steps: those of the recording with `Spot`s where an address is another one at each replay.  kept: the storages that it touches and does not
    own; claimed: the blocks that are its own; fresh: storages, by identity, that are made anew at each replay.
    saved: storages that are made anew too, and given along with the results, for what comes later (None where nothing is asked for).
    """

    def __init__(self, recording: Recording, operands: Sequence[Tensor], tree: Any, results: list[Shown], held: dict[int, int] | None = None,
                 saved: Sequence[Storage] | None = None) -> None:
        recording.used()
        launched = {id(s.device): s.device for s in recording.launches()}
        if len(launched) > 1:
            raise Refused("it does work on more than one device")
        self.device = next(iter(launched.values()), CPU)
        self.stream: Any = next((s.stream for s in recording.launches()), None)  # of a GPU
        if any(s.stream is not self.stream for s in recording.launches()):
            raise Refused("it works on more than one stream")
        self.blocks = blocks.of(self.device)
        self.pool: Any = None  # where what it computes for itself lies, once that is planned (`memory.Pool`)
        self.sources, self.tree, self.results = recording.sources, tree, results
        self.operands = [(t.meta, t.ptr, t.store.ptr) for t in operands]
        self.streams = recording.streams
        self.foreign = [owner for *_, owner in recording.foreign]
        self.spans = [(start, end) for start, end, _ in recording.foreign]
        self.steps: list[Any] = list(recording.steps)
        self.kept: dict[int, Storage] = {}
        self.claimed: list[Any] = []
        self.left: set[int] = set()  # those of `kept` that the step itself made, such as gradients
        self.written: dict[int, tuple[Storage, int]] = {}  # how often each storage that lives on was written
        before = recording.before
        self.lasting: dict[int, int] = {}  # of addresses in storages that lived before, whose
        self.fresh = _only_results(results, {id(s) for s in before}, held or {})
        stores = {id(r.store): r.store for r in results}
        for s in saved or ():
            self.fresh.setdefault(id(s), len(self.fresh))
            stores[id(s)] = s
        self.saved = None if saved is None else [self.fresh[id(s)] for s in saved]
        self.metas = [stores[number].meta for number in self.fresh]  # of the storages that are made anew
        after = Living()
        inside = {id(t.store): i for i, t in enumerate(operands)}
        # before all others, as memory that NumPy was shown has two storages once it comes back as an argument
        given = Living([t.store for t in operands if t.store.meta.nbytes])
        own: dict[int, int] = {}  # addresses of blocks that were claimed, with their sizes
        wanted: dict[int, Storage] = {}
        for address in dict.fromkeys(x for s in self.steps for x in _touched(s)):
            found = given.find(address) or before.find(address)
            if found is not None:
                self.lasting[address] = id(found)
            else:
                found = after.find(address)
                if found is not None:
                    self.left.add(id(found))
            if found is not None:
                wanted[address] = found
                if id(found) not in inside:
                    self.kept[id(found)] = found
                continue
            if address in recording.streams or any(start <= address < end for start, end in self.spans):
                continue
            block = self.blocks.whole(address)
            if block is None:
                raise Refused(f"a launch is given an address of memory that nobody is known to own ({self._names(address)})")
            found = next((s for s in stores.values() if block[0] <= s.ptr < sum(block) and id(s) in self.fresh), None)
            if found is None:
                own[block[0]] = block[1]
            else:  # what was there before lay elsewhere in the block
                wanted[address] = found
        for start, size in own.items():
            claimed = self.blocks.claim(start, size)
            if claimed is None:
                raise Refused(f"another thread uses memory that the step gave back ({self._names(start)})")
            self.claimed.append(claimed)
        self.scratch = sum(own.values())
        for number in self.fresh:
            self.kept.pop(number, None)
        self.steps = [self._placed(s, wanted, inside) for s in self.steps]

    def release(self, steps: Sequence[Any]) -> None:
        """Gives back the blocks that these steps, done in the place of the record's, do not touch."""
        self.claimed = self.touched(steps)

    def touched(self, steps: Sequence[Any]) -> list[Any]:
        """The blocks of the step's own that these steps touch."""
        used = {block[0] for s in steps for x in _touched(s) if type(x) is int and (block := self.blocks.whole(x)) is not None}
        return [c for c in self.claimed if c.address in used]

    def launches(self) -> list[Launch]:
        return [s for s in self.steps if isinstance(s, Launch)]

    def _names(self, address: int) -> str:
        return ", ".join(sorted({s.prepared.name for s in self.launches() for _, x in s.addresses() if x == address}))

    def _placed(self, s: Any, wanted: dict[int, Storage], inside: dict[int, int]) -> Any:
        if isinstance(s, Launch):
            args = list(s.args)
            for i, x in s.addresses():
                found = wanted.get(x)
                if found is None:
                    continue
                if i < s.prepared.outputs and id(found) not in self.fresh and id(found) not in inside:
                    self.written[id(found)] = found, self.written.get(id(found), (found, 0))[1] + 1
                args[i] = self._spot(x, found, inside)
            return Launch(s.device, s.stream, s.prepared, tuple(args), s.line)
        if isinstance(s, capture.Read | capture.Write):
            found = wanted.get(s.address)
            at = s.address if found is None else self._spot(s.address, found, inside)
            return capture.Read(at, s.value, s.device) if isinstance(s, capture.Read) else capture.Write(at, s.data)
        return s

    def _spot(self, address: int, found: Storage, inside: dict[int, int]) -> Any:
        if id(found) in inside:
            i = inside[id(found)]
            return Spot("a", i, address - self.operands[i][1])
        if id(found) in self.fresh:
            return Spot("p", self.fresh[id(found)], address - found.ptr)
        return address


def _only_results(results: list[Shown], old: set[int], held: dict[int, int]) -> dict[int, int]:
    """The new storages, by identity, that nobody but these holds: with their numbers.  held: how many of the caller's tensors hold each."""
    counts = dict(held)
    for r in results:
        counts[id(r.store)] = counts.get(id(r.store), 0) + 1
    found: dict[int, int] = {}
    for r in results:
        s = r.store
        if s.free is NO_FREE and s.meta.nbytes:  # somebody else's memory, such as an array of NumPy's
            continue
        if id(s) not in old and id(s) not in found and sys.getrefcount(s) <= counts[id(s)] + 2:  # this name and the call's
            found[id(s)] = len(found)
    return found


def _touched(s: Any) -> list[int]:
    """The addresses of a step."""
    return [x for _, x in s.addresses()] if isinstance(s, Launch) else [] if isinstance(s, Ask) else [s.address]


class HalfWay(Exception):
    """A replay ended when it had changed something; its cause says why."""


def bind(plan: Planned, steps: Sequence[Any], late: Container[int] = ()) -> Callable[..., Any]:
    """The replay, ``f(*operands)``, of a record, as these steps, which may be others that do the same.

    late: by identity, the steps that raise `HalfWay` for whatever Python raises in them.
    """
    return _Writer(plan, steps, late).function()


class _Writer(Text):
    def __init__(self, plan: Planned, steps: Sequence[Any], late: Container[int]) -> None:
        super().__init__()
        self.plan, self.steps, self.late = plan, steps, late
        self.together: list[Any] = []
        self.calls = 0  # of Python's between launches

    def function(self) -> Callable[..., Any]:
        plan = self.plan
        given = ", ".join(f"a{i}" for i in range(len(plan.operands)))
        left = {s for n, s in plan.kept.items() if n in plan.left}
        head = [f"  if a{i}.store in left or a{i}.store.free is NO_FREE: a{i} = apart(a{i}, {i})" for i in range(len(plan.operands)) if left]
        head += [f"  s{i} = storage({self.constant(m)}); p{i} = s{i}.ptr" for i, m in enumerate(plan.metas)]
        for s in self.steps:
            self.step(s)
        self.sequence()
        for s, count in plan.written.values():
            self.lines.append(f"  {self.constant(s)}.version += {count}")
        body = self.lines
        if self.calls:  # other threads may run between: the memory is one replay's at a time
            body = ["  with lock:", *[" " + line for line in body]]
        tail: list[str] = []
        text = self.result(plan.tree, tail)
        after = "" if plan.saved is None else f", ({''.join(f's{i}, ' for i in plan.saved)})"
        names = ", ".join(f"c{i}" for i in range(len(self.constants)))
        lines = ["def make(constants):", *([f" {names}, = constants"] if names else []), " new, T = object.__new__, Tensor",
                 f" def call({given}):", *head, *body, *tail, f"  return {text}{after}", " return call"]
        space = {"Tensor": Tensor, "storage": storage, "alias": alias, "lock": Lock(), "wrong": _wrong, "left": left, "NO_FREE": NO_FREE,
                 "apart": _Apart(plan, left), "HalfWay": HalfWay, "look": _look}
        made: Any = maker("\n".join(lines), space)(self.constants)
        made.plan = plan
        return made  # type: ignore[no-any-return]

    def step(self, s: Any) -> None:
        if isinstance(s, Ask):
            source = self.plan.sources[s.number]
            self.sequence()
            self.calls += 1
            names = "".join(f"n{s.number}_{k}, " for k in range(len(source.values)))
            self.lines.append(f"  {names}= {self.constant(source.take)}()")
        elif isinstance(s, Launch):
            bound = dispatch.direct(s.device, s.prepared)  # while somebody looks on, no replay is called
            if s.device.type == "cpu" and sequences.header(bound) is not None:
                self.together.append((s, bound))
            else:
                self.sequence()
                self.calls += 1
                line = f"{self.constant(bound)}({', '.join(map(self.text, s.args))})"
                self.lines += ["  try: " + line, "  except Exception as e: raise HalfWay from e"] if id(s) in self.late else ["  " + line]
        elif isinstance(s, capture.Read) and s.device is not None:
            self.sequence()
            self.calls += 1
            self.lines.append(f"  if look({self.constant(s.device)}, {self.text(s.address)}, {len(s.value)}) != {self.constant(s.value)}: wrong()")
        else:
            self.together.append((s, None))

    def text(self, x: Any) -> str:
        if isinstance(x, Spot):
            return f"{x.base} + {x.offset}" if x.offset else x.base
        if isinstance(x, Slot):
            return f"n{x.source}_{x.part}"
        return repr(x) if type(x) is int else self.constant(x)

    def sequence(self) -> None:
        """The line that carries out what was gathered."""
        if not self.together:
            return
        bases: dict[str, int] = {}
        floats = 0

        def base(x: Any) -> tuple[int, Any]:
            nonlocal floats
            if isinstance(x, Spot):
                return bases.setdefault(x.base, len(bases)), x.offset
            if isinstance(x, Slot):
                at = bases.setdefault(f"n{x.source}_{x.part}", len(bases))
                if type(self.plan.sources[x.source].values[x.part]) is float:
                    if at >= 64:
                        raise Refused("more than 64 numbers at once")
                    floats |= 1 << at
                return at, 0
            return -1, x
        parts: list[tuple[list[int], Any]] = []
        checked = False
        for s, bound in self.together:
            if bound is not None:
                parts.append(sequences.launch_step(bound, [base(x) for x in s.args]))
                continue
            reads = isinstance(s, capture.Read)
            checked |= reads
            at, offset = base(s.address)
            if at < 0:
                at = bases.setdefault("0", len(bases))
            parts.append(sequences.bytes_step(sequences.SAME if reads else sequences.MOVE, at, offset, s.value if reads else s.data))
        call = f"{self.constant(sequences.joined(len(bases), parts, floats))}({', '.join(bases)})"
        self.lines.append(f"  if not {call}: wrong()" if checked else f"  {call}")
        self.together.clear()

    def result(self, tree: Any, lines: list[str]) -> str:
        plan = self.plan
        made: list[str] = []
        for i, r in enumerate(plan.results):
            m = self.constant(r.meta)
            at = plan.fresh.get(id(r.store))
            if at is not None:
                offset = r.ptr - r.store.ptr
                lines.append(f"  r{i} = new(T); r{i}.meta = {m}; r{i}.store = s{at}; r{i}.ptr = p{at} + {offset}; r{i}.node = r{i}.base = None")
            else:
                k = next((k for k, (_, _, ptr) in enumerate(plan.operands) if ptr == r.store.ptr), None)
                if k is None:
                    held = object.__new__(Tensor)
                    held.meta, held.store, held.ptr, held.node, held.base = r.meta, r.store, r.ptr, None, None
                    lines.append(f"  r{i} = alias({self.constant(held)}, {m}, {r.ptr})")
                else:
                    lines.append(f"  r{i} = alias(a{k}, {m}, a{k}.ptr + {r.ptr - plan.operands[k][1]})")
            made.append(f"r{i}")
        if type(tree) is Leaf:
            return made[tree.number]
        if tree is None:
            return "None"
        if not made:
            return self.constant(tree)
        if type(tree) in (tuple, list) and all(x is None or type(x) is Leaf for x in tree):
            parts = "".join("None, " if x is None else f"{made[x.number]}, " for x in tree)
            return f"({parts})" if type(tree) is tuple else f"[{parts}]"
        return f"{self.constant(lambda *rs: put(tree, rs.__getitem__))}({', '.join(made)})"


class _Apart:
    """Arguments that lie in what a replay leaves behind, such as its own gradients of the last time, as copies: a replay makes those anew where they lay,
    and has other values there before, while the function's own new ones lie elsewhere."""

    def __init__(self, plan: Planned, left: set[Storage]) -> None:
        self._spans = [(s.ptr, s.ptr + s.meta.nbytes) for s in left]
        self._written = {x.number for s in plan.launches() for x in s.args[:s.prepared.outputs] if isinstance(x, Spot) and x.of == "a"}

    def __call__(self, t: Tensor, number: int) -> Tensor:
        old = t.store
        start, end = old.ptr, old.ptr + old.meta.nbytes
        if not any(start < stop and begin < end for begin, stop in self._spans):
            return t
        if number in self._written:
            raise RuntimeError(f"capture: argument {number} lies in memory that an earlier call left behind, such as a gradient, and the function writes to "
                               "it; pass a copy of it")
        made = alias(t, t.meta, t.ptr)
        made.store = new = storage(old.meta)
        dev = old.meta.device
        dispatch.copy(dev, new.ptr, dev, old.ptr, old.meta.nbytes, blocking=False)
        made.ptr = new.ptr + t.ptr - old.ptr
        return made


def _look(dev: device, address: int, nbytes: int) -> bytes:
    """A few bytes of a GPU's memory, for which the host waits."""
    here = storage(meta((nbytes,), None, dtypes.uint8, CPU))
    dispatch.note_wait(dev, "item")
    dispatch.copy(CPU, here.ptr, dev, address, nbytes, blocking=True)
    return string_at(here.ptr, nbytes)


def _wrong() -> None:
    raise RuntimeError("capture: a check of arguments that passed when the step was captured fails now; call the function itself to see its error")
