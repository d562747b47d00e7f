"""Random numbers as PyTorch draws them on GPUs, as formulas: a Philox stream for each thread of a launch.

Thread t of a stream at `offset` begins at block offset / 4 of the subsequence t: of the four words of counter, block and thread take two
each, and a block gives four words.  How words become numbers is that of cuRAND's documentation: uniform ones lie in (0, 1], normal ones
come in pairs by Box and Muller's transformation, sine first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..dtypes import float32, float64, int32, uint64
from . import expr as E
from .expr import Expr, cast, const, make
from .philox import words

if TYPE_CHECKING:
    from ..dtypes import dtype

BLOCK = 256  # threads of a block in PyTorch's launches


def threads_of(n: int, processors: int, resident: int) -> int:
    """How many threads draw n elements on a GPU with so many multiprocessors of so many resident threads."""
    return BLOCK * min(processors * (resident // BLOCK), -(-n // BLOCK))


def consumed(n: int, threads: int, each: int) -> int:
    """By how much a draw of n elements moves the stream, where a block gives `each` of them."""
    return ((n - 1) // (threads * each) + 1) * 4


def _u64(a: Expr, op: str, b: int | Expr) -> Expr:
    return make(op, uint64, (cast(a, uint64), b if isinstance(b, Expr) else const(b, uint64)))


class Block:
    """A thread's block, of which the element takes the number `lane`: a number where it is known, else an expression."""

    def __init__(self, seed: Expr, offset: Expr, thread: Expr, block: Expr | int, lane: Expr | int) -> None:
        self.words = words(_u64(_u64(offset, "shr", 2), "add", cast(block, uint64) if isinstance(block, Expr) else block), seed, cast(thread, uint64))
        self.lane = lane

    def _pick(self, *given: Expr) -> Expr:
        if isinstance(self.lane, int):
            return given[self.lane]
        found = given[-1]
        for k in range(len(given) - 2, -1, -1):
            found = E.where(E.compare("eq", self.lane, const(k, self.lane.dtype)), given[k], found)
        return found

    def word(self) -> Expr:
        """32 bits: one of four."""
        return self._pick(*self.words)

    def long_word(self) -> Expr:
        """64 bits: one of two, the first word the higher."""
        x, y, z, w = self.words
        return self._pick(*[_u64(_u64(a, "shl", 32), "or", cast(b, uint64)) for a, b in ((x, y), (z, w))])

    def unit(self, d: dtype) -> Expr:
        """A number in (0, 1]: of float32 one of four, of float64 one of two."""
        if d is not float64:
            return _single(self.word())
        x, y, z, w = self.words
        return self._pick(_double(x, y), _double(z, w))

    def normal(self, d: dtype) -> Expr:
        """A standard normal number: of float32 one of four, of float64 one of two."""
        x, y, z, w = self.words
        if d is float64:
            size, turn = _radius(_double(x, y)), cast(_mixed(z, w), float64) * 2.0 ** -52 + 2.0 ** -53
            return self._pick(E.sin(turn * math.pi), E.cos(turn * math.pi)) * size
        sizes = [_radius(_single(a)) for a in (x, z)]
        angles = [cast(b, float32) * (2.0 ** -31 * math.pi) + 2.0 ** -32 * math.pi for b in (y, w)]
        return self._pick(*[part * size for size, angle in zip(sizes, angles, strict=True) for part in _circle(angle)])


def _single(word: Expr) -> Expr:
    return cast(word, float32) * 2.0 ** -32 + 2.0 ** -33


def _mixed(low: Expr, high: Expr) -> Expr:
    """53 bits of two words."""
    return _u64(low, "xor", _u64(high, "shl", 21))


def _double(low: Expr, high: Expr) -> Expr:
    return cast(_mixed(low, high), float64) * 2.0 ** -53 + 2.0 ** -54


_QUARTER = 1.5703125  # nearly half of pi, in so few bits that a small multiple is exact
_SINE = (-0.16666653752326965, 0.00833206344395876, -0.0001950213627424091)
_COSINE = (0.04166664183139801, -0.0013887184904888272, 2.4418126486125402e-05)


def _circle(angle: Expr) -> tuple[Expr, Expr]:
    """Sine and cosine of singles in [0, 2 pi]: the argument needs no care there, and both share its reduction.  The polynomials are
    least-maximum fits of this project's on an eighth of the circle (2^-27 and 2^-32)."""
    turns = E.round_(angle * (2.0 / math.pi))
    r = (angle - turns * _QUARTER) - turns * (math.pi / 2 - _QUARTER)
    z = r * r
    sine = r + r * z * (_SINE[0] + z * (_SINE[1] + z * _SINE[2]))
    cosine = 1.0 - 0.5 * z + z * z * (_COSINE[0] + z * (_COSINE[1] + z * _COSINE[2]))
    quarter = cast(turns, int32)

    def bit(of: Expr, mask: int) -> Expr:
        return E.compare("ne", make("and", int32, (of, const(mask, int32))), const(0, int32))
    odd = bit(quarter, 1)
    s, c = E.where(odd, cosine, sine), E.where(odd, sine, cosine)
    return E.where(bit(quarter, 2), -s, s), E.where(bit(quarter + 1, 2), -c, c)


def _radius(u: Expr) -> Expr:
    return E.sqrt(E.log(u) * -2.0)


