"""The record of a step: what a function asked of its devices, in order, with what each launch reads and writes."""

from __future__ import annotations

from ctypes import string_at
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..runtime import capture, provenance
from .owners import Living

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.programs import PreparedLaunch
    from ..runtime.device import device

LEAST = 1 << 16  # no memory lies so low: a smaller integer is a number


class Refused(capture.Unrepeatable):
    """Ends the recording of a step: `why`, and the user's line."""

    def __init__(self, why: str) -> None:
        self.why, self.line = why, provenance.caller()
        super().__init__(why)


class Slot:
    """A number that is another one at each replay: part `part` of what source `source` gives."""

    __slots__ = ("source", "part")

    def __init__(self, source: int, part: int) -> None:
        self.source, self.part = source, part


class Source:
    """What gives numbers at each replay: `take()`, a tuple of them.  values: those of the recording.  ordered: it draws from a stream that
    launches draw from too, so it stands among them.  generator: whose numbers they are, and which can be put back (None: they are worked out anew)."""

    __slots__ = ("take", "values", "ordered", "generator")

    def __init__(self, take: Callable[[], tuple[Any, ...]], values: tuple[Any, ...], ordered: bool, generator: Any = None) -> None:
        self.take, self.values, self.ordered, self.generator = take, values, ordered, generator


class Ask:
    """A step of a record: source `number` is asked here."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Launch:
    """A step of a record: a launch, whose `args` are addresses, numbers and `Slot`s.  line: the user's."""

    __slots__ = ("device", "stream", "prepared", "args", "line")

    def __init__(self, dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...], line: str | None) -> None:
        self.device, self.stream, self.prepared, self.args, self.line = dev, stream, prepared, args, line

    @property
    def addressed(self) -> int:
        """How many of its arguments may be addresses: those before the numbers."""
        p = self.prepared.program
        return len(self.args) if p is None else self.prepared.outputs + len(p.inputs) + bool(self.prepared.workspace)

    def addresses(self) -> list[tuple[int, int]]:
        """(place among the arguments, address) of each."""
        return [(i, x) for i, x in enumerate(self.args[:self.addressed]) if type(x) is int and x >= LEAST]

    @property
    def writes(self) -> tuple[int, ...]:
        """The addresses at which it writes; its workspace is not among them."""
        return tuple([x for i, x in self.addresses() if i < self.prepared.outputs])

    @property
    def reads(self) -> tuple[int, ...]:
        """The addresses from which it reads."""
        end = self.addressed - bool(self.prepared.workspace) if self.prepared.program is not None else self.addressed
        return tuple([x for i, x in self.addresses() if self.prepared.outputs <= i < end])


class _Small(int):
    """An integer that is itself and no other of its value."""


class Recording(capture.Capture):
    """A ``with`` block: what this thread asks of its devices meanwhile, really done, and noted in `steps` (Launch, Ask, `capture.Write`,
    `capture.Read` of what a check found).  Draws are the generators' own.  What cannot be replayed raises Refused.

    before: the storages that lived when it began, which it keeps alive, so that no address of theirs is given out again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[Source] = []
        self.streams: dict[int, Any] = {}  # the generator of each stream that launches draw from, by its address
        self.others = False  # whether another thread launched something meanwhile
        self._slots: dict[int, tuple[Any, Slot]] = {}  # by the identity of the number that was given

    def __enter__(self) -> Recording:
        self._begin()
        super().__enter__()
        return self

    def _begin(self) -> None:
        self.before = Living()

    def slot(self, x: Any) -> Slot | None:
        """The place of a number that is another one at each replay; None for anything else."""
        found = self._slots.get(id(x))
        return None if found is None else found[1]

    def refuse(self, why: str) -> None:
        raise Refused(why)

    def read(self, address: int, nbytes: int, check: bool) -> None:
        if not check:
            raise Refused("Python looks at a tensor's values, which a replay would not do")
        self.steps.append(capture.Read(address, string_at(address, nbytes)))

    def draw(self, generator: Any, count: int) -> tuple[int, int]:
        return self._source(lambda: generator.take(count), self.real(generator, count), not generator.counts, generator)

    def real(self, generator: Any, count: int) -> tuple[int, int]:
        """A draw of the generator itself."""
        del capture.active[self.thread]
        try:
            found: tuple[int, int] = generator.take(count)
        finally:
            capture.active[self.thread] = self
        return found

    def lend(self, generator: Any) -> int:
        address: int = generator.block.address
        self.streams[address] = generator
        return address

    def numbers(self, values: tuple[Any, ...], again: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        return self._source(again, values, True)

    def warned(self, message: str, category: type[Warning]) -> bool:
        return False

    def _source(self, take: Callable[[], tuple[Any, ...]], values: tuple[Any, ...], ordered: bool, generator: Any = None) -> tuple[Any, ...]:
        number = len(self.sources)
        # each a number of its own, known again by its identity
        own = tuple([x * 1.0 if type(x) is float else _Small(x) if -LEAST < x < LEAST else int(str(x)) for x in values])
        self._slots.update({id(x): (x, Slot(number, part)) for part, x in enumerate(own)})
        self.sources.append(Source(take, own, ordered, generator))
        self.steps.append(Ask(number))
        return own

    def _launched(self, dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        if get_ident() != self.thread:
            self.others = True
            return
        if not prepared.lasting:
            self.refuse(f"{prepared.name} is a launch that may not be kept")
        made = tuple([self.slot(x) or x for x in args])
        self.steps.append(Launch(dev, stream, prepared, made, provenance.caller()))

    def _copied(self, copy: Any) -> None:
        if get_ident() == self.thread:
            self.refuse(f"a copy between {copy.source} and {copy.target}")

    def launches(self) -> list[Launch]:
        """The launches, in order."""
        return [s for s in self.steps if isinstance(s, Launch)]

    def used(self) -> None:
        """Raises Refused where numbers that were given reached no launch, so that no replay could put others there."""
        seen = {x.source for s in self.launches() for x in s.args if isinstance(x, Slot)}
        if len(seen) < len(self.sources):
            raise Refused("numbers were drawn or worked out anew that are passed to no launch as they are")
