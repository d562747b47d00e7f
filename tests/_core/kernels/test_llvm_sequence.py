"""Launches one after another as one builtin."""

import gc

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.llvm import prepare, sequence
from flambeau._core.kernels.programs import Map

F = dtypes.float32


def _scaled_sum(n):
    """A launch: out = a * number + b."""
    e = E.input(0, F) * E.scalar(0, F) + E.input(1, F)
    return prepare(Map((e,), (F, F), (F,)), (n,), ((1,), (1,), (1,))).entry


def test_steps_are_done_in_order_on_the_addresses_given():
    launch = _scaled_sum(5)
    x, y, work, out = np.arange(5, dtype=np.float32), np.ones(5, np.float32), np.zeros(16, np.float32), np.zeros(5, np.float32)
    three = np.full(5, 3, np.float32).tobytes()
    run = sequence.joined(4, [
        sequence.launch_step(launch, [(2, 16), (0, 0), (1, 0), (-1, 2)]),  # work[4:] = 2 x + y
        sequence.bytes_step(sequence.SAME, 2, 20, np.array([3, 5], np.float32).tobytes()),
        sequence.bytes_step(sequence.MOVE, 2, 40, three),
        sequence.launch_step(launch, [(3, 0), (2, 16), (2, 40), (-1, -1.5)])])  # out = -1.5 work[4:] + 3
    del three, launch
    gc.collect()
    p = [a.ctypes.data for a in (x, y, work, out)]
    assert run(*p) is True
    np.testing.assert_array_equal(out, -1.5 * (2 * x + y) + 3)
    x[1] = 9
    out[:] = 7
    assert run(*p) is False and (out == 7).all()  # nothing is done after the condition
    with pytest.raises(TypeError, match="takes 4 addresses, but got 1"):
        run(0)
    with pytest.raises(TypeError):
        run("0", 0, 0, 0)


def test_numbers_are_what_the_launch_would_have_been_given():
    e = E.cast(E.input(0, dtypes.int64) * E.scalar(0, dtypes.int64), dtypes.int64)
    launch = prepare(Map((e,), (dtypes.int64,), (dtypes.int64,)), (3,), ((1,), (1,))).entry
    x, out = np.array([1, -2, 3]), np.zeros(3, np.int64)
    for number in (-5, 2**40, True):
        assert sequence.joined(2, [sequence.launch_step(launch, [(0, 0), (1, 0), (-1, number)])])(out.ctypes.data, x.ctypes.data)
        np.testing.assert_array_equal(out, x * int(number))


def test_what_is_no_small_native_launch_has_no_header():
    assert sequence.header(len) is None and sequence.header(lambda: 0) is None and sequence.header(print) is None
    assert sequence.header(_scaled_sum(1 << 22)) is None  # whose work the threads share
