"""The Mersenne twister in NumPy, against NumPy's own, and the state as PyTorch writes it."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from flambeau._core.kernels import mersenne as mt


def block(seed):
    memory = ctypes.create_string_buffer(mt.BYTES)
    address = ctypes.addressof(memory)
    mt.seed(address, seed)
    return memory, address


def numpys(seed):
    bits = np.random.MT19937()
    bits._legacy_seeding(seed & 0xFFFFFFFF)
    return bits


@pytest.mark.parametrize("seed", [0, 1, 5, 67280421310721, (1 << 64) - 1])
def test_words_are_those_of_numpys_twister(seed):
    memory, address = block(seed)
    theirs = numpys(seed)
    for n in (0, 1, 3, 620, 1, 624, 1300, 17):
        assert np.array_equal(mt.words(address, n), theirs.random_raw(n) if n else [])
    state = theirs.state["state"]
    assert np.array_equal(np.frombuffer(memory, np.uint32, 624), state["key"])
    assert np.frombuffer(memory, np.int32, 2, mt.LEFT).tolist() == [625 - state["pos"], state["pos"]]


def test_the_state_is_pytorchs():
    memory, address = block(5)
    raw = mt.state(address)
    assert len(raw) == mt.STATE_BYTES == 5056
    assert struct.unpack_from("<QiiQ", raw) == (5, 1, 1, 0)  # the seed, one word left before a renewal, seeded, the next place
    mt.words(address, 8)
    mt.keep(address, 0.5)
    raw = mt.state(address)
    assert struct.unpack_from("<QiiQ", raw) == (5, 617, 1, 8) and struct.unpack_from("<dddi", raw, 24 + 8 * 624) == (0.0, 0.5, 0.0, 1)
    other, there = block(0)
    mt.set_state(there, raw)
    assert mt.state(there) == raw and mt.kept(there) == 0.5 and np.array_equal(mt.words(there, 700), mt.words(address, 700))
    assert memory is not other


@pytest.mark.parametrize("raw", [b"", bytes(5055), bytes(5056), struct.pack("<QiiQ", 0, 625, 1, 0) + bytes(5032),
                                 struct.pack("<QiiQ", 0, 1, 1, 625) + bytes(5032),
                                 struct.pack("<QiiQ", 0, 100, 1, 3) + bytes(5032)])
def test_what_is_no_state_is_refused(raw):
    _, address = block(3)
    before = mt.state(address)
    with pytest.raises(RuntimeError, match="wrong size" if len(raw) != 5056 else "Invalid mt19937 state"):
        mt.set_state(address, raw)
    assert mt.state(address) == before
