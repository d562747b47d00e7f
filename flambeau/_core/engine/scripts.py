"""Scripts: what a captured call did, with places instead of addresses.

A capture (`runtime.capture`) has the addresses of one call. Here each becomes a *place*: in an operand, in a gradient that came in, or in
a block that the call allocated. With the places of another call put in, the same launches do that call.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

from .. import layout
from ..dtypes import uint8
from ..errors import warn
from ..runtime import capture, cpu_memory
from ..runtime.device import CPU
from ..tensor import Meta, Storage, Tensor, storage, wrap
from ..tensor import meta as make_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERAND, BLOCK, GRADIENT, EARLIER = "operand", "block", "gradient", "earlier"
_LEAST = 1 << 16  # no block lies so low: a smaller integer is a number


class Place:
    """Bytes from the start of something: operand `number`'s first element, block `number` of this script (BLOCK) or of the script that
    went before (EARLIER), a gradient's first element."""

    __slots__ = ("of", "number", "offset")

    def __init__(self, of: str, number: int, offset: int) -> None:
        self.of, self.number, self.offset = of, number, offset


class Drawn:
    """A number of draw `number` of a script: its seed (part 0) or position (1), or the address of its stream (0)."""

    __slots__ = ("number", "part")

    def __init__(self, number: int, part: int) -> None:
        self.number, self.part = number, part


class Step:
    """Something done in order: `call(*args)`, whose arguments are places and numbers.  Without a `call` it writes bytes, or, where `expected`
    is something, these must be the bytes at a place, or the script does not fit.  what: "draw" of one whose `args` are its number and
    its count; "stream" of one whose `call` is a generator, and its argument its number; "warn" of one that warns."""

    __slots__ = ("call", "args", "expected", "outputs", "what")

    def __init__(self, call: Any, args: tuple[Any, ...], expected: Any = None, outputs: int = 0, what: str = "") -> None:
        self.call, self.args, self.expected, self.outputs, self.what = call, args, expected, outputs, what


class Block:
    """Memory that a script allocates. store: the meta of the storage when a result lies in it, else None (it is scratch)."""

    __slots__ = ("base", "size", "store", "held")

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size = base, size
        self.store: Meta | None = None
        self.held: Any = None  # keeps the block from being given out again


class Result:
    """A tensor among the results: what it shows. made: of a view of an operand, its place among several views.  detached: it shows an
    operand's memory and is no view."""

    __slots__ = ("place", "meta", "made", "detached")

    def __init__(self, place: Place, m: Meta, made: Any = None, detached: bool = False) -> None:
        self.place, self.meta, self.made, self.detached = place, m, made, detached


class Many:
    """A tuple, a list or a tuple with names among the results."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type, parts: list[Any]) -> None:
        self.kind, self.parts = kind, parts


class Same:
    """An operand itself."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Constant:
    """A result that is no tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Script:
    """What a call does: `steps`; `blocks`; `result`, a tree of Result, Same, Constant, Many; `written`: operands that it writes, each with how
    much its version rises; `owners` of memory with constants."""

    __slots__ = ("steps", "blocks", "result", "written", "owners")

    def __init__(self, steps: list[Step], blocks: list[Block], result: Any, written: dict[int, int] | None = None,
                 owners: Sequence[Any] = ()) -> None:
        self.steps, self.blocks, self.result, self.written, self.owners = steps, blocks, result, written or {}, tuple(owners)

    def results(self) -> list[Result]:
        """All results that are new tensors, in order."""
        found: list[Result] = []

        def walk(x: Any) -> None:
            if isinstance(x, Result):
                found.append(x)
            elif isinstance(x, Many):
                for part in x.parts:
                    walk(part)
        walk(self.result)
        return found


class Owner:
    """Which of some tensors an address lies in."""

    __slots__ = ("spans",)

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.spans = []
        for t in tensors:
            start, nbytes = reach(t.meta)
            self.spans.append((t.ptr + start, t.ptr + start + nbytes, t.ptr))

    def find(self, address: int) -> tuple[int, int] | None:
        """The tensor's number, and how far behind its first element the address is."""
        for i, (start, end, at) in enumerate(self.spans):
            if start <= address < end or address == at:
                return i, address - at
        return None


class Fresh:
    """Tells blocks that were free when this was made, or did not exist, from those that were somebody's."""

    __slots__ = ("before", "runs", "large")

    def __init__(self) -> None:
        self.before, self.runs = cpu_memory.free_blocks()
        self.large = cpu_memory.large_in_use()

    def whole(self, address: int) -> tuple[int, int] | None:
        """Where the block around an address begins, and its size; None where there is none."""
        return cpu_memory.whole(address)

    def block(self, address: int) -> tuple[int, int]:
        """Where the block around an address begins, and its size. Raises Unrepeatable where it is no new block."""
        found = cpu_memory.span(address)
        if found is None:
            large = cpu_memory.whole(address)
            if large is None or large[0] in self.large:
                raise capture.Unrepeatable("memory that is neither an operand's nor new")
            return large
        base, size, run = found
        if run < self.runs and base not in self.before:
            raise capture.Unrepeatable("memory that is neither an operand's nor new")
        return base, size


class FreshOnGpu:
    """`Fresh` for a GPU's memory."""

    __slots__ = ("pool", "before", "segments")

    def __init__(self, dev: Any) -> None:
        from ..runtime import gpus
        self.pool = gpus.gpu(dev).pool
        self.before, self.segments = self.pool.free_blocks(), [(begin, begin + size) for begin, (size, _) in list(self.pool.segments.items())]

    def whole(self, address: int) -> tuple[int, int] | None:
        """As that of `Fresh`."""
        return self.pool.span(address)

    def block(self, address: int) -> tuple[int, int]:
        """As that of `Fresh`."""
        found = self.pool.span(address)
        if found is None or (found[0] not in self.before and any(begin <= address < end for begin, end in self.segments)):
            raise capture.Unrepeatable("memory that is neither an operand's nor new")
        return found


class Places:
    """Turns addresses of a capture into places."""

    def __init__(self, operands: Sequence[Tensor], fresh: Fresh | FreshOnGpu, gradients: Sequence[Tensor] = (), earlier: Places | None = None,
                 foreign: Sequence[tuple[int, int, Any]] = (), dev: Any = None) -> None:
        self.device = CPU if dev is None else dev
        self.operands, self.gradients, self.fresh = Owner(operands), Owner(gradients), fresh
        self.earlier = {b.base: i for i, b in enumerate(earlier.blocks if earlier is not None else ())}
        self.forbidden = frozenset(earlier.drawn if earlier is not None else ())
        self.foreign = foreign
        self.blocks: list[Block] = []
        self.drawn: dict[int, Drawn] = {}
        self.draws = 0
        self._at: dict[int, int] = {}

    def argument(self, address: int) -> Place | int:
        """An address that a launch was given; one of constants stays as it is."""
        if any(start <= address < end for start, end, _ in self.foreign):
            return address
        return self.place(address)

    def place(self, address: int) -> Place:
        """Raises Unrepeatable for an address of which nobody knows whose it is."""
        found = self.operands.find(address)
        if found is not None:
            return Place(OPERAND, *found)
        found = self.gradients.find(address)
        if found is not None:
            return Place(GRADIENT, *found)
        before = self.fresh.whole(address) if self.earlier else None
        if before is not None and before[0] in self.earlier:
            return Place(EARLIER, self.earlier[before[0]], address - before[0])
        base, size = self.fresh.block(address)
        if base not in self._at:
            self._at[base] = len(self.blocks)
            self.blocks.append(Block(base, size))
        return Place(BLOCK, self._at[base], address - base)

    def steps(self, captured: Sequence[Any]) -> list[Step]:
        """A capture's steps, with places. Launches are not bound yet."""
        made: list[Step] = []
        used: set[int] = set()
        for s in captured:
            if isinstance(s, capture.Launch):
                if s.device is not self.device and (s.device.type != "cpu" or self.device.type != "cpu"):
                    raise capture.Unrepeatable("a launch on another device")
                if not self.forbidden.isdisjoint([x for x in s.args if type(x) is int]):
                    raise capture.Unrepeatable("the numbers drawn are used again")
                if not s.prepared.lasting or s.prepared.settling:
                    raise capture.Unrepeatable("a launch that may not be kept")
                if s.prepared.condition is not None and not _writes(made):
                    made += self._asked(s.device, s.prepared.condition, s.args[0])
                    continue
                p = s.prepared.program
                end = len(s.args) if p is None else s.prepared.outputs + len(p.inputs) + bool(s.prepared.workspace)
                args = tuple([x if type(x) is not int or x < _LEAST else self.drawn.get(x) or (self.argument(x) if i < end else x)
                              for i, x in enumerate(s.args)])
                used.update([x.number for x in args if isinstance(x, Drawn)])
                for x in args[:s.prepared.outputs]:
                    if not isinstance(x, Place) or x.of in (EARLIER, GRADIENT) or (x.of == OPERAND and self.gradients.spans):
                        raise capture.Unrepeatable("a write to what is not the call's own")
                made.append(Step((s.device, s.prepared), args, None, s.prepared.outputs))
            elif isinstance(s, capture.Draw):
                if self.gradients.spans:
                    raise capture.Unrepeatable("a backward pass that draws")
                self.drawn |= {x: Drawn(self.draws, part) for part, x in enumerate(s.made)}
                made.append(Step(s.generator.take, (self.draws, s.count), what="draw"))
                self.draws += 1
            elif isinstance(s, capture.Lent):
                if self.gradients.spans:
                    raise capture.Unrepeatable("a backward pass that draws")
                self.drawn[s.block.address] = Drawn(self.draws, 0)
                made.append(Step(s.generator, (self.draws,), what="stream"))
                self.draws += 1
            elif isinstance(s, capture.Warned):
                made.append(Step(warn, (s.message, s.category), what="warn"))
            elif isinstance(s, capture.Read):
                if _writes(made):  # where the value is another one, the body makes the call, with the operands as they were
                    raise capture.Unrepeatable("Python looks at values when an operand was written")
                made.append(Step(None, (self.place(s.address),), s.value))
            else:
                made.append(Step(None, (self.place(s.address), s.data), None, 1))
        if len(used) < self.draws:  # some routine holds them, where nobody can put others
            raise capture.Unrepeatable("numbers that were drawn and are passed to no launch")
        return made

    def _asked(self, dev: Any, condition: Any, source: int) -> list[Step]:
        """What a launch that may raise asks first: where the answer is another one than it was, the body makes the call, and raises. So it may not come
        after what writes an operand."""
        counting, numbers = condition
        count, *room = [self._room(n) for n in (8, counting.workspace) if n]
        return [Step((dev, counting), (count, self.argument(source), *room, *numbers), None, 1), Step(None, (count,), bytes(8))]

    def _room(self, size: int) -> Place:
        """Memory that the script needs beyond what the call allocated."""
        self.blocks.append(Block(-len(self.blocks) - 1, size))
        return Place(BLOCK, len(self.blocks) - 1, 0)

    def tree(self, x: Any, operands: Sequence[Tensor]) -> Any:
        """The results of a call, with places. Raises Unrepeatable for what cannot be made again."""
        if isinstance(x, Tensor):
            for i, t in enumerate(operands):
                if x is t:
                    return Same(i)
            return self._result(x, operands)
        if isinstance(x, (tuple, list)) and (type(x) in (tuple, list) or hasattr(x, "_fields")):
            return Many(type(x), [self.tree(part, operands) for part in x])
        if x is None or type(x) in _CONSTANTS:
            return Constant(x)
        raise capture.Unrepeatable(f"a result of class {type(x).__name__}")

    def _result(self, x: Tensor, operands: Sequence[Tensor]) -> Result:
        if type(x) is not Tensor or not x.meta.plain:
            raise capture.Unrepeatable("a result of a class of its own")
        # by its storage: a view without elements may begin where an operand ends
        place = next((Place(OPERAND, i, x.ptr - t.ptr) for i, t in enumerate(operands) if x.store is t.store), None) or self.place(x.ptr)
        base = x.base
        if place.of == OPERAND:
            if base is None and x.node is None:
                return Result(place, x.meta, detached=True)
            if base is not operands[place.number]:
                raise capture.Unrepeatable("a view of another view")
            return Result(place, x.meta, x.__dict__.get("_made"))
        if not x.__dict__.keys() <= {"_views"}:
            raise capture.Unrepeatable("a result that more is said of")
        if place.of == BLOCK:
            self.blocks[place.number].store = x.store.meta
        return Result(place, x.meta)


def _writes(steps: Sequence[Step]) -> bool:
    """Whether some of these write an operand."""
    return any(isinstance(x, Place) and x.of == OPERAND for s in steps for x in s.args[:s.outputs])


_CONSTANTS: frozenset[type] = frozenset((bool, int, float, complex, str, layout.Size))


SHIFT = 64  # bytes, which keep an address aligned


def copied(t: Tensor, shift: int = 0) -> Tensor:
    """A tensor of the same layout and values in memory of its own, outside autograd.  shift: so many bytes of something come before."""
    start, nbytes = reach(t.meta)
    s = storage(make_meta((nbytes + shift,), None, uint8, t.meta.device))
    if shift:
        ctypes.memset(s.ptr, 0x5a, shift)
    if nbytes > 0:
        ctypes.memmove(s.ptr + shift, t.ptr + start, nbytes)
    return laid(t.meta, s, shift)


def placed(m: Meta) -> Tensor:
    """A tensor of a layout in memory of its own, with no values."""
    return laid(m, storage(make_meta((reach(m)[1],), None, uint8, m.device)), 0)


def bare(t: Tensor, shift: int = 0) -> Tensor:
    """A tensor of the same layout on memory that nobody has touched, and that costs nothing as long as nobody does.  shift: as in `copied`."""
    nbytes = reach(t.meta)[1] + shift
    room = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    whole = wrap(ctypes.addressof(ctypes.c_char.from_buffer(room)), make_meta((nbytes,), None, uint8, t.meta.device), room)
    return laid(t.meta, whole.store, shift)


def reach(m: Meta) -> tuple[int, int]:
    """Where the lowest element begins, in bytes from the first one, and the bytes from there to the end of the highest."""
    low, high = layout.extent(m.shape, m.strides)
    return low * m.dtype.itemsize, (high - low + 1) * m.dtype.itemsize


def laid(m: Meta, s: Storage, shift: int = 0) -> Tensor:
    """A tensor of a layout whose lowest element is so many bytes behind the begin of a storage."""
    r: Tensor = object.__new__(Tensor)
    r.meta, r.store, r.ptr, r.node, r.base = m, s, s.ptr + shift - reach(m)[0], None, None
    return r
