"""The Mersenne twister as vector code: @words gives the next words of a stream; @hold and @release are its lock.

A renewal reads element i + 1 and element i + 397 before it writes element i, so neighbours are renewed together, in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import mersenne as mt
from .... import native
from ...emit import Module, vec
from ..code import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable

_LANES = 16
_functions: dict[str, dict[str, int]] = {}


def functions(kind: str, names: tuple[str, ...], write: Callable[[Module], None]) -> dict[str, int]:
    """The machine code of a module that draws; `write` adds its functions to the engine's."""
    found = _functions.get(kind)
    if found is None:
        from ... import compile as compiler

        def text() -> str:
            module = Module()
            write_engine(module)
            write(module)
            return module.text()
        found = _functions[kind] = compiler.functions(("draws", kind), names, text)
    return found


def write_engine(module: Module) -> None:
    _write_renewal(module)
    _write_words(module)
    _write_lock(module)


def _write_renewal(module: Module) -> None:
    """@renew(state): the next 624 words, not tempered."""
    c = Code(module, "internal void", "renew", "ptr")
    (state,) = c.given

    def step(at: Value, after: Value, far: int, lanes: int) -> None:
        kind = vec("i32", lanes)
        y = (at.load(kind) & mt.UPPER) | (after.load(kind) & mt.LOWER)
        odd = Value(c, kind, c.op(f"sub {kind} {c.constant(kind, 0).name}, {(y & 1).name}"))
        at.store((at + 4 * far).load(kind) ^ (y >> 1) ^ (odd & mt.TWIST))
    turn = mt.WORDS - mt.SHIFT
    for begin, end, far in ((0, turn, mt.SHIFT), (turn, mt.WORDS - 1, -turn)):
        whole = begin + (end - begin) // _LANES * _LANES
        for first, last, lanes in ((begin, whole, _LANES), (whole, end, 1)):
            with c.span(first, c.ints(last), step=lanes) as v:
                at = state + v.i * 4
                step(at, at + 4, far, lanes)
    step(state + 4 * (mt.WORDS - 1), state, -turn, 1)
    c.back()
    c.finish()


def _write_words(module: Module) -> None:
    """@words(state, to, n): the next n words, tempered."""
    c = Code(module, "internal void", "words", "ptr", "ptr", "i64")
    state, to, n = c.given

    def tempered(lanes: int, source: Value, target: Value) -> None:
        y = source.load(vec("i32", lanes))
        y = y ^ (y >> 11)
        y = y ^ ((y << 7) & mt.TEMPER[0])
        y = y ^ ((y << 15) & mt.TEMPER[1])
        target.store(y ^ (y >> 18))
    with c.leave_if(n.equals(0)):
        c.back()
    with c.repeat(to, n) as turn:
        at, wanted = turn.vars
        have = (state + mt.LEFT).load("i32").to("i64") - 1
        with c.when(have.equals(0), have) as fresh:
            c.function("void", "renew", state)
            fresh.next = [c.ints(mt.WORDS)]
        (have,) = fresh.vars
        many = c.least(wanted, have)
        source = state + (c.ints(mt.WORDS) - have) * 4
        whole = many & -_LANES
        with c.span(0, whole, step=_LANES) as v:
            tempered(_LANES, source + v.i * 4, at + v.i * 4)
        with c.span(whole, many) as v:
            tempered(1, source + v.i * 4, at + v.i * 4)
        left = have - many
        (state + mt.LEFT).store((left + 1).to("i32"))
        (state + mt.NEXT).store((c.ints(mt.WORDS) - left).to("i32"))
        turn.next = [at + many * 4, wanted - many]
        turn.more = turn.next[1].above(0)
    c.back()
    c.finish()


def _write_lock(module: Module) -> None:
    """@hold(state) waits until nobody else draws; @release(state)."""
    module.declare("sched_yield", "i32 ()")
    module.helper("hold", f"""define internal void @hold(ptr %state) #0 {{
entry:
  %lock = getelementptr i8, ptr %state, i64 {mt.LOCK}
  br label %again
again:
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %mine, label %done, label %wait
wait:
  %other = call i32 @sched_yield()
  br label %again
done:
  ret void
}}

define internal void @release(ptr %state) #0 {{
  %lock = getelementptr i8, ptr %state, i64 {mt.LOCK}
  store atomic i32 0, ptr %lock release, align 4
  ret void
}}""")


# ------------------------------------------------------------------------------------------- what generators ask for themselves
def stream() -> dict[str, Callable[..., None]]:
    """Builtins: "seed" (block, number), "words" (to, block, how many), "copy" (to, block): all but the lock.

    Each holds the lock while it works, with the GIL: nobody may hold a block's lock and wait for the GIL.
    """
    names = ("seed", "words", "copy")
    code = functions("stream", tuple("flambeau_stream_" + n for n in names), _write_stream)
    numbers = {"seed": 2, "words": 3, "copy": 2}
    return {n: native.make_entry([(code["flambeau_stream_" + n], 1, 1)], (), numbers[n]) for n in names}


def _write_stream(module: Module) -> None:
    c = Code(module, "void", "flambeau_stream_seed", "i64", "i64", "ptr", "ptr")
    args = c.given[2]
    state, number = c.address(args, 0), (args + 8).load("i64")
    c.function("void", "hold", state)
    state.store(number.to("i32"))
    with c.span(1, c.ints(mt.WORDS), number.to("i32")) as v:
        x = v.vars[0]
        x = (x ^ (x >> 30)) * mt.MULTIPLIER + v.i.to("i32")
        (state + v.i * 4).store(x)
        v.next = [x]
    for offset, value in ((mt.LEFT, 1), (mt.NEXT, 0), (mt.KEPT, 0), (mt.SINGLE_KEPT, 0)):
        (state + offset).store(value, "i32")
    (state + mt.SEED).store(number)
    c.function("void", "release", state)
    c.back()
    c.finish()

    c = Code(module, "void", "flambeau_stream_words", "i64", "i64", "ptr", "ptr")
    args = c.given[2]
    to, state, n = c.address(args, 0), c.address(args, 1), (args + 16).load("i64")
    c.function("void", "hold", state)
    c.function("void", "words", state, to, n)
    c.function("void", "release", state)
    c.back()
    c.finish()

    c = Code(module, "void", "flambeau_stream_copy", "i64", "i64", "ptr", "ptr")
    args = c.given[2]
    both = to, state = [c.address(args, k) for k in range(2)]
    for block in both:
        c.function("void", "hold", block)
    for begin, end in ((0, mt.LOCK), (mt.LOCK + 4, mt.BYTES)):
        with c.span(begin, c.ints(end), step=4) as v:
            (to + v.i).store((state + v.i).load("i32"))
    for block in both:
        c.function("void", "release", block)
    c.back()
    c.finish()
