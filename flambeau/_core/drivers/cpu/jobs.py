"""Jobs of linear algebra as launches of machine code.

A `Job` is a list of steps for each matrix of a batch: calls of LAPACK and BLAS by pointer, and of a few routines of our own
(`job_code`). Every argument is worked out when the job is made: sizes, letters and numbers lie in the launch's parameter block, which is
never written; matrices are the operands; what a routine wants beside them is workspace, a part for each chunk of the batch. So the
launch runs no Python, and any number of threads may call it.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native
from ...kernels.programs import PreparedLaunch
from . import blas, job_code
from .job_code import BLOCK, FEW, HEAD, MANY, MOST_OPERANDS, NUMBER, OPERANDS, STEP, WORKSPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype

LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_ALONE = 1 << 15  # operations in a batch up to which a launch keeps the interpreter's lock
_SHARED = 1 << 20  # from which it is worth several threads
_LARGE = 1 << 27  # operations of one call from which the library's own threads are worth waking
_STACK = 1 << 15  # bytes of workspace that are taken from the stack
_ALIGN = 64
_SOURCES = 64  # the base of the first source, until it is known how many operands come before
_alone = forks.lock()


class Place:
    """Bytes behind a base (see `job_code`) for the first matrix, and from matrix to matrix."""

    __slots__ = ("base", "offset", "step")

    def __init__(self, base: int, offset: int, step: int = 0) -> None:
        self.base, self.offset, self.step = base, offset, step

    def __add__(self, nbytes: int) -> Place:
        return Place(self.base, self.offset + nbytes, self.step)


When = tuple[Place, bool] | None  # where an int64 is, and whether that must be other than zero, or zero


class Asked:
    """Among a call's arguments: WORK, the workspace it asks for when called with length -1, and LENGTH, how much that is."""


WORK, LENGTH = Asked(), Asked()
ONE_LETTER = Place(NUMBER, 1)  # what Fortran passes behind all arguments for each letter: its length


class Job:
    """The steps for one matrix of a batch of so many, of a type; `letter` is LAPACK's for it (none for whole numbers), `real` that of its real numbers.

    An argument of a call is a `Place`; an int, float or complex for the address of a number of 64 bits (the job's type for the others); or a
    letter (bytes).

    lanes: the steps are for so many matrices at once (see `lane_code`); `left` is how many there are left.  sources: of the matrices that the
    job is about, in order, how far their elements lie from each other downwards, to the right, and from matrix to matrix; they are operands
    behind all others. Without them, operands hold packed copies.
    """

    def __init__(self, d: dtype, batch: int, lanes: int = 1, sources: Sequence[tuple[int, int, int]] = ()) -> None:
        self.sources, self._taken = sources, 0
        self.lanes, self.left = lanes, Place(NUMBER, batch, -lanes)
        batch = -(-batch // lanes)
        self.dtype, self.batch, self.letter, self.item = d, batch, LETTER.get(d.name, ""), d.itemsize
        self.real = {"c": "s", "z": "d"}.get(self.letter, self.letter)
        self.parts = 2 if d.is_complex else 1  # real numbers in one of the type
        self._operands = self._own = self._room = 0
        self._constants: list[bytes] = []
        self._steps: list[tuple[int, list[Place], Place | None, int, float]] = []

    # ------------------------------------------------------------------------------------------------------------- memory
    def operand(self, nbytes: int) -> Place:
        """The next operand, of which each matrix has so many bytes."""
        self._operands += 1
        return Place(OPERANDS + self._operands - 1, 0, nbytes * self.lanes)

    def matrix(self, m: int, n: int) -> Place:
        """The next operand, of the job's type, packed."""
        return self.operand(m * n * self.item)

    def over(self, m: int, n: int) -> Place:
        """The next operand, in which results take the place of a matrix that the job is about."""
        return self._filled(m, n, self.matrix(m, n)) if self.sources else self.matrix(m, n)

    def lost(self, m: int, n: int) -> Place:
        """A matrix that the job is about, which nobody wants afterwards: workspace if there are sources, else the next operand."""
        return self._filled(m, n, self.values(m * n)) if self.sources else self.matrix(m, n)

    def source(self) -> tuple[Place, tuple[int, int, int]]:
        """The next matrix that the job is about, and how it lies."""
        laid = self.sources[self._taken]
        self._taken += 1
        return Place(_SOURCES + self._taken - 1, 0, laid[2] * self.item * self.lanes), laid

    def _filled(self, m: int, n: int, to: Place) -> Place:
        source, (down, right, _) = self.source()
        if m and n:
            self.call(f"copy{self.item}", m, n, down, right, source, to)
        return to

    def laid(self, m: int, n: int, step: int | None) -> Place:
        """The next operand, of the job's type: so many elements from matrix to matrix, or packed."""
        return self.operand((m * n if step is None else step) * self.item)

    def room(self, nbytes: int) -> Place:
        """Workspace, the same for each matrix."""
        at = self._room
        self._room += -(-nbytes // _ALIGN) * _ALIGN
        return Place(WORKSPACE, at)

    def values(self, count: int) -> Place:
        """Workspace for numbers of the job's type."""
        return self.room(count * self.item)

    def constant(self, value: Any, letter: str = "") -> Place:
        """A number of a type, the job's own by default."""
        packed = struct.pack("<" + {"s": "f", "d": "d", "c": "ff", "z": "dd", "i": "q"}[letter or self.letter],
                             *((value.real, value.imag) if (letter or self.letter) in "cz" else (value,)))
        return self._constant(packed)

    def _constant(self, data: bytes) -> Place:
        data = data.ljust(16, b"\0")
        if data not in self._constants:
            self._constants.append(data)
        return Place(BLOCK, 16 * self._constants.index(data))

    # -------------------------------------------------------------------------------------------------------------- steps
    def call(self, name: str, *args: Any, flops: float = 0, when: When = None) -> None:
        """Calls a routine: one of `job_code`'s by its name, else LAPACK's by its name without the type's letter, where "?" stands for it.

        flops: how many operations that is.  when: the condition on which it is called.
        """
        own = job_code.functions().get(name)
        address = own or blas.address(name.replace("?", self.letter) + "_")
        places = [self._place(x) for x in args if x is not WORK and x is not LENGTH]
        if WORK in args:
            size = self._asked(address, args)
            places.insert(args.index(WORK), self.values(size))
            places.insert(args.index(LENGTH), self._place(size))
        if own is None:
            places += [ONE_LETTER for x in args if type(x) is bytes]
        if len(places) > MANY:
            raise ValueError(f"{name}: {len(places)} arguments, and a step has at most {MANY}")
        self._steps.append((address, places, when and when[0], -1 if when is None else int(when[1]), flops * self.lanes))

    def tell(self, code: Place | int, info: Place, when: When = None) -> None:
        """What a routine said (int64) as an operation tells it (int32)."""
        self.call("narrow", 1, code, info, when=when)

    def _place(self, x: Any) -> Place:
        if isinstance(x, Place):
            return x
        if type(x) is bytes:
            return self._constant(x)
        return self.constant(x, "i" if type(x) is int else "")

    def _asked(self, address: int, args: tuple[Any, ...]) -> int:
        """The numbers of workspace a routine asks for when called with length -1."""
        answer = ctypes.create_string_buffer(16)
        boxes: list[Any] = []
        for x in args:
            if x is WORK:
                boxes.append(answer)
            elif isinstance(x, Place):
                boxes.append(ctypes.create_string_buffer(16))  # its own: further lengths are told in some
            else:
                boxes.append(ctypes.create_string_buffer(self._constants[self._place(-1 if x is LENGTH else x).offset // 16], 16))
        given = [ctypes.addressof(x) for x in boxes] + [1] * (MANY - len(boxes))
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * MANY)(address)(*given)
        # float32 cannot hold every length: a little more than it says
        size: float = struct.unpack_from("<f" if self.real == "s" else "<d", answer)[0]
        return max(1, int(size * (1 + 1e-6)) + 1)

    # ------------------------------------------------------------------------------------------------------------- launch
    def launch(self) -> tuple[Callable[..., None], int]:
        """The builtin and the bytes of workspace it wants: its arguments are the operands' addresses, and the workspace's where it wants any."""
        self._own, self._operands = self._operands, self._operands + self._taken
        if self._operands > MOST_OPERANDS:
            raise ValueError(f"{self._operands} operands, and a job has at most {MOST_OPERANDS}")
        threads, batch = native.get_num_threads(), self.batch
        flops = sum(step[4] for step in self._steps)
        single = batch == 1 and threads > 1 and any(step[4] > _LARGE for step in self._steps)
        on_stack = self._room <= _STACK
        chunk = batch
        if batch * flops >= _SHARED and threads > 1:
            chunk = -(-batch // min(batch, threads * (8 if on_stack else 1)))
        block = self._block(threads if single else 0, -1 if on_stack else self._operands, chunk)
        workspace = 0 if on_stack else self._room * -(-batch // chunk)
        entry = native.make_entry([(job_code.functions()["job"], batch, chunk)], block, self._operands + (workspace > 0),
                                  parallel=batch * flops > _ALONE)
        return _one_at_a_time(entry) if single else entry, workspace

    def _block(self, threads: int, where: int, chunk: int) -> list[int]:
        """The parameter block; threads: how many large calls set the library to, 0 where they leave it."""
        steps = []
        setting = ctypes.cast(blas.library().scipy_openblas_set_num_threads64_, ctypes.c_void_p).value or 0
        for address, places, when, sense, flops in self._steps:
            step = (address, places, when, sense)
            if threads and flops > _LARGE:
                steps += [(setting, [Place(NUMBER, threads)], None, -1), step, (setting, [Place(NUMBER, 1)], None, -1)]
            else:
                steps.append(step)
        widths = [FEW if len(places) <= FEW else MANY for _, places, _, _ in steps]
        constants = 8 * (HEAD + sum(STEP + 3 * width for width in widths))
        words = [len(steps), self._operands, where, self._room, chunk, 0]

        def put(place: Place) -> None:
            base = place.base if place.base < _SOURCES else OPERANDS + self._own + place.base - _SOURCES
            words.extend((8 * base, place.offset + (constants if place.base == BLOCK else 0), place.step))
        for (address, places, when, sense), width in zip(steps, widths, strict=True):
            words.append(address)
            put(when or Place(NUMBER, 0))
            words += (sense, width)
            for place in places + [Place(NUMBER, 0)] * (width - len(places)):
                put(place)
        words += struct.unpack(f"<{2 * len(self._constants)}q", b"".join(self._constants))
        return words

    def prepared(self, name: str, nbytes: int, flops: int) -> PreparedLaunch:
        """The launch, priced."""
        entry, workspace = self.launch()
        return PreparedLaunch(name, entry, workspace=workspace, nbytes=nbytes, flops=flops)


def _one_at_a_time(entry: Callable[..., None]) -> Callable[..., None]:
    """A launch that sets how many threads the library uses, which is the library's setting and not the caller's."""
    def launch(*args: int) -> None:
        with _alone:
            entry(*args)
    return launch
