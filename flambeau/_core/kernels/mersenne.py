"""Random numbers in PyTorch's order on the CPU: the Mersenne twister, and the block of memory that is a generator's stream.

M. Matsumoto, T. Nishimura, "Mersenne twister: a 623-dimensionally equidistributed uniform pseudo-random number generator", ACM TOMACS 8
(1998), 3-30: 624 words of 32 bits are renewed together, and tempered one by one as they are given out.  Seeding is that of the authors'
revision of 2002.  A word is 32 random bits; where 64 are asked for, the first word is the upper half.

Machine code does the work (`llvm/handwritten/draws/`); the functions here do the same with NumPy, for where there is none and for the tests.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

WORDS, SHIFT = 624, 397
MASK64 = (1 << 64) - 1
UPPER, LOWER, TWIST = 0x80000000, 0x7FFFFFFF, 0x9908B0DF
TEMPER = (0x9D2C5680, 0xEFC60000)
MULTIPLIER = 1812433253

# The block: the words; how many are left, those of the next renewal counted as one more; the next one's place; the lock (1: somebody draws);
# whether a second normal number is kept, and it; the same of float32, which PyTorch keeps and never uses; the seed.  All in bytes.
LEFT, NEXT, LOCK, KEPT, NORMAL, SINGLE_KEPT, SINGLE, SEED = 2496, 2500, 2504, 2508, 2512, 2520, 2524, 2528
BYTES = 2560

_REST = struct.Struct("<iiiidifQ")  # what is behind the words
_HEAD = struct.Struct("<QiiQ")  # PyTorch's state: the seed, what is left, whether it is seeded, the next place
_TAIL = struct.Struct("<dddixxxxf?xxx")  # behind the words: x, y and rho of a normal number, whether y is kept; of float32 the same
STATE_BYTES = _HEAD.size + 8 * WORDS + _TAIL.size


def _view(address: int, kind: Any, offset: int, count: int = 1) -> Any:
    memory: Any = (ctypes.c_char * BYTES).from_address(address)
    return np.frombuffer(memory, kind, count, offset)


def seed(address: int, number: int) -> None:
    """Begins the stream of a 64-bit seed, of which the lower 32 bits count."""
    state = _view(address, np.uint32, 0, WORDS)
    x = number & 0xFFFFFFFF
    for k in range(WORDS):
        if k:
            x = (MULTIPLIER * (x ^ x >> 30) + k) & 0xFFFFFFFF
        state[k] = x
    _view(address, np.int32, LEFT, 4)[:] = 1, 0, 0, 0
    _view(address, np.int32, SINGLE_KEPT)[0] = 0
    _view(address, np.uint64, SEED)[0] = number


def _renew(state: Any) -> None:
    """The next 624 words."""
    mixed = np.empty(WORDS, np.uint32)
    for begin, end, shift in ((0, WORDS - SHIFT, SHIFT), (WORDS - SHIFT, 2 * (WORDS - SHIFT), SHIFT - WORDS),
                              (2 * (WORDS - SHIFT), WORDS - 1, SHIFT - WORDS), (WORDS - 1, WORDS, SHIFT - WORDS)):
        after = state[begin + 1:end + 1] if end < WORDS else state[:1]
        y = state[begin:end] & np.uint32(UPPER) | after & np.uint32(LOWER)
        mixed[begin:end] = y >> np.uint32(1) ^ np.where(y & np.uint32(1), np.uint32(TWIST), np.uint32(0))
        state[begin:end] = state[begin + shift:end + shift] ^ mixed[begin:end]


def words(address: int, count: int) -> Any:
    """The next `count` words, as uint32."""
    state, at = _view(address, np.uint32, 0, WORDS), _view(address, np.int32, LEFT, 2)
    given = np.empty(count, np.uint32)
    done = 0
    while done < count:
        have = int(at[0]) - 1
        if not have:
            _renew(state)
            have = WORDS
        n = min(have, count - done)
        y = state[WORDS - have:WORDS - have + n].copy()
        y ^= y >> np.uint32(11)
        y ^= y << np.uint32(7) & np.uint32(TEMPER[0])
        y ^= y << np.uint32(15) & np.uint32(TEMPER[1])
        given[done:done + n] = y ^ y >> np.uint32(18)
        done += n
        at[:] = have - n + 1, WORDS - (have - n)
    return given


def kept(address: int) -> float | None:
    """The second of two normal numbers, where it is still to be given."""
    return float(_view(address, np.float64, NORMAL)[0]) if _view(address, np.int32, KEPT)[0] else None


def keep(address: int, number: float | None) -> None:
    _view(address, np.int32, KEPT)[0] = number is not None
    if number is not None:
        _view(address, np.float64, NORMAL)[0] = number


def state(address: int) -> bytes:
    """The stream as PyTorch's `get_state` has it, 5056 bytes."""
    raw = ctypes.string_at(address, BYTES)
    left, place, _, normal_kept, normal, single_kept, single, number = _REST.unpack_from(raw, LEFT)
    head = _HEAD.pack(number, left, 1, place)
    tail = _TAIL.pack(0.0, normal if normal_kept else 0.0, 0.0, bool(normal_kept), single if single_kept else 0.0, bool(single_kept))
    between: bytes = np.frombuffer(raw, np.uint32, WORDS).astype(np.uint64).tobytes()
    return head + between + tail


def set_state(address: int, raw: bytes) -> None:
    """Takes what `state`, or PyTorch, gave.  Raises RuntimeError for bytes that are no state."""
    if len(raw) != STATE_BYTES:
        raise RuntimeError(f"RNG state is wrong size: expected {STATE_BYTES} bytes, got {len(raw)}")
    number, left, seeded, place = _HEAD.unpack_from(raw)
    _, y, _, normal_kept, single, single_kept = _TAIL.unpack_from(raw, _HEAD.size + 8 * WORDS)
    if seeded != 1 or not 0 < left <= WORDS or place > WORDS or (left > 1 and place != WORDS + 1 - left):
        raise RuntimeError(f"Invalid mt19937 state: of {WORDS} words it says that {left} are left and that word {place} is the next")
    _view(address, np.uint32, 0, WORDS)[:] = np.frombuffer(raw, np.uint64, WORDS, _HEAD.size).astype(np.uint32)
    _view(address, np.int32, LEFT, 2)[:] = left, place
    _view(address, np.uint64, SEED)[0] = number
    keep(address, y if normal_kept else None)
    _view(address, np.int32, SINGLE_KEPT)[0] = single_kept
    _view(address, np.float32, SINGLE)[0] = single
