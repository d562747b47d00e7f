"""Captures: what a call asked devices to do, in order, so that it can be done again without the Python that decided it.

A capture belongs to a thread. While one is open, dispatch shows it every launch; those who look at values from Python (`item`), write to
memory from Python or draw random numbers tell it themselves, here. A value that was looked at becomes a condition of doing the same
again; what cannot be repeated ends the capture at once, by an exception that no handler of errors takes for one.
"""

from __future__ import annotations

import os
from ctypes import string_at
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from . import caches, dispatch
from .random_blocks import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..kernels.programs import PreparedLaunch
    from .device import device


Made = TypeVar("Made")
_MASK = (1 << 64) - 1
_FEW = 256  # bytes that may be a condition


class Now:
    """watched: whether somebody looks at the calls that an operation is made of, or a switch is not where it usually is. It is in the key
    of learned plans, so that none is found meanwhile. A tuple says what changes those calls, and all of it: plans are learned with that in their key."""

    __slots__ = ("watched", "holders")

    def __init__(self) -> None:
        self.watched: Any = False
        self.holders = 0

    def hold(self, change: int) -> None:
        """One more who keeps learned plans from being found (1), or one less (-1)."""
        self.holders += change
        _put(self, self.holders > 0)


_put: Any = Now.__dict__["watched"].__set__
now = Now()


class Unrepeatable(BaseException):
    """Ends a capture: what the call does next cannot be done again from its operands' layouts alone."""


class Launch:
    """A launch: its arguments are addresses and numbers."""

    __slots__ = ("device", "prepared", "args")

    def __init__(self, dev: device, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        self.device, self.prepared, self.args = dev, prepared, args


class Read:
    """A look at memory from Python: the bytes at an address were `value`.  device: the GPU whose memory it is; None is the host's."""

    __slots__ = ("address", "value", "device")

    def __init__(self, address: int, value: bytes, dev: device | None = None) -> None:
        self.address, self.value, self.device = address, value, dev


class Write:
    """Bytes that Python put at an address, the same at each call."""

    __slots__ = ("address", "data")

    def __init__(self, address: int, data: bytes) -> None:
        self.address, self.data = address, data


class Draw:
    """Random numbers asked of a generator: so many from its stream, for which it was given `made`, a seed and a position of nobody's."""

    __slots__ = ("generator", "count", "made")

    def __init__(self, generator: Any, count: int, made: tuple[int, int]) -> None:
        self.generator, self.count, self.made = generator, count, made


class Lent:
    """A stream that a draw inside a capture was given in the place of its generator's; `begin`: the same before it was drawn from."""

    __slots__ = ("generator", "block", "begin")

    def __init__(self, generator: Any, block: Block) -> None:
        self.generator, self.block, self.begin = generator, block, block.copy()


class Warned:
    """A warning, which the program is to hear at each call."""

    __slots__ = ("message", "category")

    def __init__(self, message: str, category: type[Warning]) -> None:
        self.message, self.category = message, category


class Capture:
    """A ``with`` block whose launches, reads, writes and draws in this thread are `steps`.  Generators stay where they are.

    streams: the seeds and positions that draws are given, of which the n-th is the same for each capture of the same `streams`.
    bare: nothing may happen to memory: what would do anything ends the capture first.  dry: a GPU whose launches are noted and not carried out, so
    that the values of operands do not matter and the GPU goes on with what it does; what the host would read of it, or write to it, ends the capture.
    """

    def __init__(self, streams: int = 0, bare: bool = False, dry: Any = None) -> None:
        self.bare, self.dry = bare, dry
        self.steps: list[Any] = []  # Launch, Read, Write, Draw, Lent, Warned
        self.foreign: list[tuple[int, int, Any]] = []  # memory of others that became a tensor: where it begins and ends, its owner
        self._stream = streams

    def number(self) -> int:
        """A number that nothing else is likely to be: the next of splitmix64 (Steele, Lea, Flood, 2014), with bit 62 set."""
        self._stream = z = (self._stream + 0x9E3779B97F4A7C15) & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return (z ^ z >> 31) >> 1 | 1 << 62

    def __enter__(self) -> Capture:
        self.thread = get_ident()
        if self.thread in active:
            raise RuntimeError("captures of one thread do not nest")
        active[self.thread] = self
        self._observing = dispatch.observe(launches=self._launched, copies=self._copied, waits=None if self.dry is None else self._waited)
        if self.dry is not None:
            caches.enter(caches.DRY)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def refuse(self, why: str) -> None:
        """What comes next cannot be done again: ends the capture."""
        raise Unrepeatable(why)

    def read(self, address: int, nbytes: int, check: bool) -> None:
        """See `were_read`."""
        if nbytes > _FEW or self.dry is not None:
            raise Unrepeatable("Python looks at values")
        self.add(Read(address, string_at(address, nbytes)))

    def fetched(self, dev: device, address: int, fetch: Callable[[], bytes]) -> None:
        """See `fetched`."""
        fetch()

    def write(self, address: int, data: Any) -> None:
        """See `was_written`."""
        if self.dry is not None:
            raise Unrepeatable("Python writes memory")
        self.add(Write(address, bytes(data)))

    def draw(self, generator: Any, count: int) -> tuple[int, int]:
        """What a draw of `count` numbers is given."""
        made = self.number(), self.number()
        self.add(Draw(generator, count, made))
        return made

    def lend(self, generator: Any) -> int:
        """The address of the stream that a draw is given."""
        made = Lent(generator, Block(self.number()))
        self.add(made)
        return made.block.address

    def numbers(self, values: tuple[Any, ...], again: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """See `renewed`."""
        return values

    def warned(self, message: str, category: type[Warning]) -> bool:
        """Whether a warning is kept from the program now."""
        self.steps.append(Warned(message, category))
        return True

    def add(self, step: Any) -> None:
        """Notes what happens next."""
        if self.bare:
            raise Unrepeatable("work on much memory")
        self.steps.append(step)

    def close(self) -> None:
        """Notes nothing any more."""
        if self.dry is not None and caches.world != caches.DRY:  # a thread began to observe meanwhile, and may keep what was planned here
            caches.forget()
        self._observing.close()
        del active[self.thread]

    def _launched(self, dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> Any:
        if get_ident() != self.thread:
            return None
        if self.dry is not None and (dev is not self.dry or caches.world != caches.DRY):
            raise Unrepeatable("work elsewhere")
        self.add(Launch(dev, prepared, args))
        return None if self.dry is None else dispatch.INSTEAD

    def _waited(self, wait: dispatch.Wait) -> None:
        if get_ident() == self.thread:
            raise Unrepeatable(f"the host waits ({wait.reason})")

    def _copied(self, copy: dispatch.Copy) -> None:
        if get_ident() == self.thread:
            raise Unrepeatable(f"a copy {copy.direction}")


active: dict[int, Capture] = {}  # by thread; who looks at values asks only while there is any
# by thread: the numbers, or streams, that its next draws are given, and the capture that was open when that began: one that opens later has its own
redrawing: dict[int, tuple[Iterator[Any], Capture | None]] = {}
_repeating: dict[int, int] = {}  # the threads that make calls again, and how many such blocks each is in


def redrawn(numbers: Sequence[tuple[int, int] | Block], work: Callable[[], Made]) -> Made:
    """What `work` gives, in which this thread makes a call again: its draws are given these numbers, which were drawn before, or copies of these streams
    as they were, and what it warns of the program has heard."""
    me = get_ident()
    before, repeating = redrawing.get(me), _repeating.get(me, 0)
    try:
        _repeating[me] = repeating + 1
        if numbers:
            redrawing[me] = iter([x.copy() if isinstance(x, Block) else x for x in numbers]), active.get(me)
        return work()
    finally:  # all of it, whatever interrupts
        try:
            _put_back(_repeating, me, repeating)
        finally:
            _put_back(redrawing, me, before)


def _put_back(kept: dict[int, Any], me: int, before: Any) -> None:
    if before:
        kept[me] = before
    else:
        kept.pop(me, None)


def draws(steps: Sequence[Any]) -> list[Any]:
    """What the draws among a capture's steps were given: numbers, or streams as they were before."""
    return [s.made if isinstance(s, Draw) else s.begin for s in steps if isinstance(s, (Draw, Lent))]


def unrepeatable(why: str) -> None:
    """Ends the capture of this thread, if there is one."""
    found = active.get(get_ident())
    if found is not None:
        found.refuse(why)


def were_read(address: int, nbytes: int, check: bool = False) -> None:
    """Python looks at these bytes. Where they are many, what follows surely depends on them. check: they tell whether arguments are right, and
    the program does not see them."""
    found = active.get(get_ident())
    if found is not None:
        found.read(address, nbytes, check)


def fetched(dev: device, address: int, fetch: Callable[[], bytes]) -> None:
    """Python looks at an element of a GPU's memory by `fetch`, which waits for it and gives its bytes."""
    found = active.get(get_ident())
    if found is None:
        fetch()
    else:
        found.fetched(dev, address, fetch)


def renewed(values: tuple[Any, ...], again: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The numbers that launches are to be given, which are others when the work is done again: `again` does what Python does for that and gives them."""
    found = active.get(get_ident())
    return values if found is None else found.numbers(values, again)


def drawn(generator: Any, count: int) -> tuple[int, int] | None:
    """What a draw is given inside a capture of this thread, or where one is made again; None elsewhere."""
    numbers: tuple[int, int] | None = once_more()
    if numbers is not None:
        return numbers
    found = active.get(get_ident())
    return None if found is None else found.draw(generator, count)


def lent(generator: Any) -> int | None:
    """The address of the stream that a draw is given inside a capture of this thread, or where one is made again; None elsewhere."""
    block: Block | None = once_more()
    if block is not None:
        return block.address
    found = active.get(get_ident())
    return None if found is None else found.lend(generator)


def once_more() -> Any:
    """What a draw of this thread is given where it is made again; None elsewhere."""
    me = get_ident()
    found = redrawing.get(me)
    return None if found is None or found[1] is not active.get(me) else next(found[0])


def was_wrapped(address: int, nbytes: int, owner: Any) -> None:
    """Memory that is not Flambeau's became a tensor.  It holds constants: what was read from tensors has been told."""
    found = active.get(get_ident())
    if found is not None:
        found.foreign.append((address, address + nbytes, owner))


def _was_warned(message: str, category: type[Warning]) -> bool:
    """The program is warned: not by a capture, but by what is learned from it."""
    found = active.get(get_ident())
    return found is not None and found.warned(message, category)


errors.noting += [(active, _was_warned), (_repeating, lambda message, category: get_ident() in _repeating)]


def was_written(address: int, data: Any) -> None:
    """Python put these bytes at an address; what they are follows from what is not in any tensor."""
    found = active.get(get_ident())
    if found is not None:
        found.write(address, data)


def _in_child() -> None:
    """Captures of the parent's other threads, which the child has not."""
    for found in list(active.values()):
        if found.thread != get_ident():
            found.close()


os.register_at_fork(after_in_child=_in_child)
