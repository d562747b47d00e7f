"""Writing LLVM IR as text: modules, fresh names, constants, loops, loads and stores.

A value is its name in the text ("%12" or a constant).  A value of a type and a number of lanes has the LLVM type
`ty(dtype, lanes)`: a vector, or the plain type for one lane.  In registers bool is i1 and bfloat16 is its bits in an
i16; in memory bool is one byte.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...dtypes import bfloat16, bool_, float16, float32, float64, int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...dtypes import dtype
    from ..expr import Number

_REGISTER = {bool_: "i1", float16: "half", bfloat16: "i16", float32: "float", float64: "double"}


def base(d: dtype) -> str:
    """The LLVM type of one element in a register."""
    return _REGISTER.get(d) or f"i{8 * d.itemsize}"


def base_memory(d: dtype) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if d is bool_ else base(d)


def vec(t: str, lanes: int) -> str:
    return t if lanes == 1 else f"<{lanes} x {t}>"


def ty(d: dtype, lanes: int) -> str:
    return vec(base(d), lanes)


def _float_bits(v: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', v))[0]:016X}"


def number(v: Number, d: dtype) -> str:
    """One element's constant, without its type."""
    if d is bool_:
        return "true" if v else "false"
    if d.kind in "ui":
        return str(int(v.real))
    x = float(v.real)
    if d is float64:
        return _float_bits(x)
    if d is float16:
        try:
            half = struct.unpack("<H", struct.pack("<e", x))[0]
        except OverflowError:
            half = 0x7C00 if x > 0 else 0xFC00
        return f"0xH{half:04X}"
    try:
        single = struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        single = float("inf") if x > 0 else float("-inf")
    if d is bfloat16:
        bits = struct.unpack("<I", struct.pack("<f", single))[0]
        return str(0x7FC0 if single != single else bits + 0x7FFF + (bits >> 16 & 1) >> 16)
    return _float_bits(single)


def constant(v: Number, d: dtype, lanes: int) -> str:
    """A constant in every lane, without its type."""
    return splat(number(v, d), base(d), lanes)


def splat(value: str, t: str, lanes: int) -> str:
    """The constant `value` of element type `t` in every lane."""
    return value if lanes == 1 else f"splat ({t} {value})"


class Module:
    """Functions, the outside functions they need, and shared helper functions, as one text."""

    def __init__(self) -> None:
        from .compile import has_masks, is_x86
        self.masks = has_masks()  # whether masked loads and stores of every type are single instructions
        self.x86 = is_x86()
        self.declared: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.functions: list[str] = []

    def declare(self, name: str, signature: str) -> None:
        """An outside function (libm's or an intrinsic): ``declare("expf", "float (float)")``."""
        if name not in self.declared:
            result, _, params = signature.partition("(")
            self.declared[name] = f"declare {result.strip()} @{name}({params}"

    def helper(self, name: str, text: str) -> str:
        """Adds a whole function or global, once."""
        self.helpers.setdefault(name, text)
        return name

    def text(self) -> str:
        return "\n".join([*self.declared.values(), *self.helpers.values(), *self.functions, ""])


class Loop:
    """A loop in the making: `i` (i64), `vars` (values carried in), `next` (to be set to the values carried on), `step` (i64).

    After the loop, `vars` hold the final values.
    """

    __slots__ = ("i", "vars", "next", "step")

    def __init__(self, i: str, carried: list[str], step: str) -> None:
        self.i, self.vars, self.next, self.step = i, carried, list(carried), step


class Emitter:
    """One function being written.  Call `finish` to add it to its module."""

    def __init__(self, module: Module, head: str) -> None:
        """head: ``"void @name(i64 %begin, i64 %end, ptr %args, ptr %block)"``."""
        self.module, self.head = module, head
        self.lines: list[str] = ["entry:"]
        self.current = "entry"  # the label of the block being written, which phi nodes name
        self.count = 0
        self._memo: dict[str, str] = {}
        self._counted: dict[str, str] = {}  # how many lanes a mask has, the first ones
        self._aside = 0  # bytes of memory for a vector that is read or written in part

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str, stem: str = "v") -> str:
        """An instruction that gives a value."""
        name = self.fresh(stem)
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A call of an outside function or intrinsic with (type, value) arguments; it is declared as needed."""
        self.module.declare(name, f"{result} ({', '.join(t for t, _ in args)})")
        given = ", ".join(f"{t} {v}" for t, v in args)
        if result == "void":
            self.line(f"call void @{name}({given})")
            return ""
        return self.op(f"call {result} @{name}({given})")

    def intrinsic(self, name: str, d: dtype, lanes: int, *args: str) -> str:
        """An intrinsic overloaded on one type, e.g. ``intrinsic("fma", float32, 16, a, b, c)``."""
        t = ty(d, lanes)
        return self.call(f"llvm.{name}.{suffix(base(d), lanes)}", t, *((t, a) for a in args))

    def label(self, stem: str) -> str:
        """A new label's name; `start` begins its block."""
        self.count += 1
        return f"{stem}{self.count}"

    def start(self, label: str) -> None:
        """Begins the block `label`; the block before it must have ended in a branch."""
        self.lines.append(label + ":")
        self.current = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def phi(self, t: str, *incoming: tuple[str, str]) -> str:
        """incoming: (value, label) pairs."""
        return self.op(f"phi {t} " + ", ".join(f"[ {v}, %{b} ]" for v, b in incoming))

    @contextmanager
    def loop(self, begin: str, end: str, step: str = "1", carried: list[tuple[str, str]] | None = None
             ) -> Iterator[Loop]:
        """``for i = begin; i < end; i += step`` (signed) with `carried` values as (type, initial value).  The loop's `step` may be another when its body is
        done."""
        carried = carried or []
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        before = self.current
        self.jump(head)
        self.start(head)
        at = len(self.lines)
        names = [self.fresh("i")] + [self.fresh("c") for _ in carried]
        self.lines.extend([""] * len(names))
        more = self.op(f"icmp slt i64 {names[0]}, {end}")
        self.branch(more, body, done)
        self.start(body)
        state = Loop(names[0], names[1:], step)
        yield state
        following = self.op(f"add nsw i64 {names[0]}, {state.step}")
        last = self.current
        self.jump(head)
        values = [("i64", begin, following)] + [(t, v, n) for (t, v), n in zip(carried, state.next, strict=True)]
        for k, (t, first, after) in enumerate(values):
            self.lines[at + k] = f"  {names[k]} = phi {t} [ {first}, %{before} ], [ {after}, %{last} ]"
        self.start(done)

    @contextmanager
    def only_if(self, condition: str) -> Iterator[None]:
        """The statements inside run only where `condition` (i1) holds; values made inside stay inside."""
        yes, on = self.label("then"), self.label("on")
        self.branch(condition, yes, on)
        self.start(yes)
        yield
        self.jump(on)
        self.start(on)

    def finish(self, attributes: str = "#0") -> None:
        if self._aside:
            self.lines.insert(1, f"  %aside = alloca [{self._aside} x i8], align 64")
        self.module.functions.append(f"define {self.head} {attributes} {{\n" + "\n".join(self.lines) + "\n}")

    # addresses and i64 arithmetic -----------------------------------------------------------------------------------
    def at(self, pointer: str, offset: str) -> str:
        """pointer + offset bytes."""
        return pointer if offset == "0" else self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}", "p")

    def word(self, block: str, index: int) -> str:
        """The i64 number `index` of a packed block."""
        return self.op(f"load i64, ptr {self.at(block, str(8 * index))}, align 8", "w")

    def pointer(self, args: str, index: int) -> str:
        """The address number `index` of a packed block."""
        return self.op(f"load ptr, ptr {self.at(args, str(8 * index))}, align 8", "p")

    def add(self, a: str, b: str) -> str:
        return b if a == "0" else a if b == "0" else self.op(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return a if b == "0" else self.op(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return "0" if "0" in (a, b) else b if a == "1" else a if b == "1" else self.op(f"mul i64 {a}, {b}")

    def smaller(self, a: str, b: str) -> str:
        return self.op(f"select i1 {self.op(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    # vectors --------------------------------------------------------------------------------------------------------
    def broadcast(self, value: str, t: str, lanes: int) -> str:
        """The scalar `value` of LLVM type `t` in every lane."""
        if lanes == 1:
            return value
        if not value.startswith("%"):
            return splat(value, t, lanes)
        one = self.op(f"insertelement <{lanes} x {t}> poison, {t} {value}, i64 0")
        return self.op(f"shufflevector <{lanes} x {t}> {one}, <{lanes} x {t}> poison, <{lanes} x i32> zeroinitializer")

    def lane_numbers(self, lanes: int) -> str:
        """The constant <0, 1, 2, ...> of i64."""
        return "0" if lanes == 1 else "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">"

    def ramp(self, start: str, lanes: int, step: str = "1") -> str:
        """start, start + step, ... as i64."""
        if lanes == 1:
            return start
        numbers, t = self.lane_numbers(lanes), f"<{lanes} x i64>"
        if step != "1":
            numbers = self.op(f"mul {t} {numbers}, {self.broadcast(step, 'i64', lanes)}")
        return self.op(f"add {t} {self.broadcast(start, 'i64', lanes)}, {numbers}")

    def first_lanes(self, n: str, lanes: int) -> str:
        """The mask of the first `n` (i64) lanes."""
        if lanes == 1:
            return self.op(f"icmp sgt i64 {n}, 0")
        # compared in 32 bits: n is at most `lanes` wherever a mask is of use
        count = self.smaller(n, str(lanes))
        small = self.op(f"trunc i64 {count} to i32")
        numbers = "<" + ", ".join(f"i32 {k}" for k in range(lanes)) + ">"
        mask = self.op(f"icmp slt <{lanes} x i32> {numbers}, {self.broadcast(small, 'i32', lanes)}")
        self._counted[mask] = count
        return mask

    # memory ---------------------------------------------------------------------------------------------------------
    def load(self, d: dtype, lanes: int, address: str, mask: str | None = None) -> str:
        """Neighbouring elements from `address`; lanes outside `mask` are 0."""
        t = vec(base_memory(d), lanes)
        if mask is None:
            v = self.op(f"load {t}, ptr {address}, align {d.itemsize}")
        else:
            v = self._masked_load(t, base_memory(d), lanes, d.itemsize, address, mask)
        return self.from_memory(v, d, lanes)

    def _masked_load(self, t: str, element: str, lanes: int, align: int, address: str, mask: str) -> str:
        nbytes = self._copied(mask, lanes, align)
        if nbytes:
            self.line(f"store {t} zeroinitializer, ptr %aside, align 64")
            self.call("memcpy", "ptr", ("ptr", "%aside"), ("ptr", address), ("i64", nbytes))
            return self.op(f"load {t}, ptr %aside, align 64")
        name = f"llvm.masked.load.{suffix(element, lanes)}.p0"
        return self.call(name, t, ("ptr", address), ("i32 immarg", str(align)), (vec("i1", lanes), mask),
                         (t, "zeroinitializer"))

    def _copied(self, mask: str, lanes: int, itemsize: int) -> str:
        """The bytes of a vector's first lanes where they are copied by way of memory; empty where an instruction takes the mask.

        Without masks of bytes and 16-bit words each lane would be a branch of its own: the code of a page, and slower.
        """
        count = self._counted.get(mask)
        if count is None or itemsize > 2 or self.module.masks:
            return ""
        self._aside = max(self._aside, lanes * itemsize)
        return self.mul(count, str(itemsize))

    def load_each(self, d: dtype, lanes: int, address: str, offsets: str, mask: str | None = None) -> str:
        """The elements at `address` + offsets[lane] bytes."""
        element = base_memory(d)
        if lanes == 1 and mask is None:
            v = self.op(f"load {element}, ptr {self.at(address, offsets)}, align {d.itemsize}")
        else:
            v = self._gather(element, lanes, d.itemsize, address, offsets, mask)
        return self.from_memory(v, d, lanes)

    def load_apart(self, d: dtype, lanes: int, address: str, step: str, mask: str | None = None) -> str:
        """The elements at `address` and every `step` bytes on.  Their places are worked out as single numbers: taken out of a vector again they would
        cost more than what is read."""
        if mask is not None or lanes == 1:
            return self.load_each(d, lanes, address, self.ramp("0", lanes, step), mask)
        element, v, place = base_memory(d), "poison", address
        for lane in range(lanes):
            place = self.at(place, step) if lane else address
            one = self.op(f"load {element}, ptr {place}, align {d.itemsize}")
            v = self.op(f"insertelement {vec(element, lanes)} {v}, {element} {one}, i64 {lane}")
        return self.from_memory(v, d, lanes)

    def store_apart(self, d: dtype, lanes: int, value: str, address: str, step: str, mask: str | None = None) -> None:
        """Elements to `address` and every `step` bytes on, in this order; see `load_apart`."""
        if mask is not None or lanes == 1:
            self.store_each(d, lanes, value, address, self.ramp("0", lanes, step), mask)
            return
        element, v, place = base_memory(d), self.to_memory(value, d, lanes), address
        for lane in range(lanes):
            place = self.at(place, step) if lane else address
            one = self.op(f"extractelement {vec(element, lanes)} {v}, i64 {lane}")
            self.line(f"store {element} {one}, ptr {place}, align {d.itemsize}")

    def _gather(self, element: str, lanes: int, align: int, address: str, offsets: str, mask: str | None) -> str:
        where = self.op(f"getelementptr i8, ptr {address}, {vec('i64', lanes)} {offsets}")
        t = vec(element, lanes)
        return self.call(f"llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0", t, (vec("ptr", lanes), where),
                         ("i32 immarg", str(align)), (vec("i1", lanes), mask or splat("true", "i1", lanes)),
                         (t, "zeroinitializer"))

    def steps_masked(self, d: dtype, how: str, mask: str) -> bool:
        """Whether `load_stepping` takes this mask: it is of the first lanes, and instructions take those of its parts."""
        return how != "r" and mask in self._counted and (d.itemsize > 2 or self.module.masks)

    def load_stepping(self, d: dtype, lanes: int, address: str, how: str, mask: str | None = None) -> str:
        """Elements from `address` in steps of class `how`, "2", "3", "4" or "r" (`loops.walk.step_class`); nothing beyond them is read."""
        element = base_memory(d)
        t = vec(element, lanes)
        if mask is not None:
            span = self.add(self.mul(self.sub(self._counted[mask], "1"), how), "1")  # of the elements, with what lies between
            parts = [self._masked_load(t, element, lanes, d.itemsize, self.at(address, str(k * lanes * d.itemsize)),
                                       self.first_lanes(self.sub(span, str(k * lanes)), lanes)) for k in range(int(how))]
            return self.from_memory(self._stepping(element, lanes, parts, [k * lanes for k in range(int(how))]), d, lanes)
        if how == "r":
            v = self.op(f"load {t}, ptr {self.at(address, str(-(lanes - 1) * d.itemsize))}, align {d.itemsize}")
            return self.from_memory(self._shuffle(element, lanes, v, "poison", range(lanes - 1, -1, -1)), d, lanes)
        step = int(how)
        begins = [k * lanes - (step - 1 if k else 0) for k in range(step)]  # so that the last vector ends with the last element
        parts = [self.op(f"load {t}, ptr {self.at(address, str(first * d.itemsize))}, align {d.itemsize}") for first in begins]
        return self.from_memory(self._stepping(element, lanes, parts, begins), d, lanes)

    def _stepping(self, element: str, lanes: int, parts: Sequence[str], begins: Sequence[int]) -> str:
        """Every so manieth element, as many as there are parts, of vectors that begin at these elements."""
        step, v = len(parts), parts[0]
        at: list[int | None] = [n * step if n * step < lanes else None for n in range(lanes)]  # where each lane is in `v`
        for following, first in zip(parts[1:], begins[1:], strict=True):
            places = [n * step - first for n in range(lanes)]
            here = [place if place is not None else lanes + p if 0 <= p < lanes else None for place, p in zip(at, places, strict=True)]
            v = self._shuffle(element, lanes, v, following, [place or 0 for place in here])
            at = [None if place is None else n for n, place in enumerate(here)]
        return v

    def _shuffle(self, element: str, lanes: int, a: str, b: str, places: Iterable[int]) -> str:
        numbers = ", ".join(f"i32 {n}" for n in places)
        return self.op(f"shufflevector <{lanes} x {element}> {a}, <{lanes} x {element}> {b}, <{numbers.count('i32')} x i32> <{numbers}>")

    def store_joined(self, d: dtype, lanes: int, values: Sequence[str], address: str) -> None:
        """The lanes of several values in turn, as neighbours from `address`."""
        element, parts = base_memory(d), [self.to_memory(v, d, lanes) for v in values]
        wide = lanes
        while len(parts) > 1 and len(parts) % 2 == 0:  # those that are half of all apart lie next to one another in the end
            half = len(parts) // 2
            turns = [n // 2 + wide * (n % 2) for n in range(2 * wide)]
            parts = [self._shuffle(element, wide, a, b, turns) for a, b in zip(parts[:half], parts[half:], strict=True)]
            wide *= 2
        self.line(f"store <{wide} x {element}> {parts[0]}, ptr {address}, align {d.itemsize}")

    def store(self, d: dtype, lanes: int, value: str, address: str, mask: str | None = None,
              streaming: bool = False) -> None:
        """Neighbouring elements to `address`; streaming: past the caches (the address is aligned to the vector)."""
        element, v = base_memory(d), self.to_memory(value, d, lanes)
        t = vec(element, lanes)
        nbytes = self._copied(mask, lanes, d.itemsize) if mask is not None else ""
        if nbytes:
            self.line(f"store {t} {v}, ptr %aside, align 64")
            self.call("memcpy", "ptr", ("ptr", address), ("ptr", "%aside"), ("i64", nbytes))
        elif mask is not None:
            self.call(f"llvm.masked.store.{suffix(element, lanes)}.p0", "void", (t, v), ("ptr", address),
                      ("i32 immarg", str(d.itemsize)), (vec("i1", lanes), mask))
        elif streaming:
            self.line(f"store {t} {v}, ptr {address}, align {min(64, lanes * d.itemsize)}, !nontemporal !0")
        else:
            self.line(f"store {t} {v}, ptr {address}, align {d.itemsize}")

    def store_each(self, d: dtype, lanes: int, value: str, address: str, offsets: str, mask: str | None = None) -> None:
        """Elements to `address` + offsets[lane] bytes, lane by lane in order."""
        element, v = base_memory(d), self.to_memory(value, d, lanes)
        if lanes == 1 and mask is None:
            self.line(f"store {element} {v}, ptr {self.at(address, offsets)}, align {d.itemsize}")
            return
        where = self.op(f"getelementptr i8, ptr {address}, {vec('i64', lanes)} {offsets}")
        self.call(f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0", "void", (vec(element, lanes), v),
                  (vec("ptr", lanes), where), ("i32 immarg", str(d.itemsize)),
                  (vec("i1", lanes), mask or splat("true", "i1", lanes)))

    def fence_streams(self) -> None:
        """Orders streaming stores before whatever follows (on x86 they are weakly ordered)."""
        if self.module.x86:
            self.call("llvm.x86.sse.sfence", "void")

    def from_memory(self, v: str, d: dtype, lanes: int) -> str:
        return self.op(f"icmp ne {vec('i8', lanes)} {v}, {splat('0', 'i8', lanes)}") if d is bool_ else v

    def to_memory(self, v: str, d: dtype, lanes: int) -> str:
        return self.op(f"zext {ty(d, lanes)} {v} to {vec('i8', lanes)}") if d is bool_ else v

    def parameter(self, d: dtype, args: str, index: int, lanes: int) -> str:
        """The Python number in slot `index`: floats come as the bits of a double, integers and bools as an int64."""
        from .casts import cast
        slot = float64 if d.kind == "f" else int64
        bits = self.op(f"load {base(slot)}, ptr {self.at(args, str(8 * index))}, align 8")
        return self.broadcast(cast(self, bits, slot, d, 1), base(d), lanes)


def suffix(element: str, lanes: int) -> str:
    """How an intrinsic's name spells a type: f32, v16f32, i1, ..."""
    short = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"
