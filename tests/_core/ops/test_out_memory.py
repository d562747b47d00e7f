"""`out=` that shares memory with what is read, or is of another type, where PyTorch refuses it; numbers that make no sense."""

from __future__ import annotations

import pytest

import flambeau as fb


@pytest.mark.parametrize("call", [
    lambda x, i: fb.gather(x, 0, i, out=x), lambda x, i: fb.take(x, i[:3], out=x[2:5]), lambda x, i: fb.index_select(x, 0, i, out=x),
    lambda x, i: fb.masked_select(x, x > 0, out=x), lambda x, i: fb.kthvalue(x, 1, out=(x, fb.empty((), dtype=fb.int64)))])
def test_memory_that_is_read_is_not_written(call):
    x = fb.arange(1.0, 11.0)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        call(x, fb.zeros(10, dtype=fb.int64))
    assert x.tolist() == list(range(1, 11))


def test_expanded_memory_is_not_written():
    with pytest.raises(RuntimeError, match="more than one element"):
        fb.index_select(fb.rand(5), 0, fb.zeros(3, dtype=fb.int64), out=fb.zeros(1).expand(3))


def test_types_of_out():
    x = fb.rand(3)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32, but got float64"):
        fb.gather(x, 0, fb.tensor([0]), out=fb.empty(1, dtype=fb.float64))
    with pytest.raises(RuntimeError, match="dtype"):
        fb.complex(x.double(), x.double(), out=fb.empty(3, dtype=fb.complex64))
    with pytest.raises(RuntimeError, match="dtype"):
        fb.aminmax(x, out=(fb.empty((), dtype=fb.float64), fb.empty((), dtype=fb.float64)))


@pytest.mark.parametrize("call, kind, says", [
    (lambda: fb.nn.functional.softshrink(fb.ones(2), -0.5), RuntimeError, "zero or greater"),
    (lambda: fb.nn.functional.hardtanh(fb.ones(2), 2.0, 1.0), ValueError, "min_val cannot be greater"),
    (lambda: fb.linspace(0, 1, 2.5), TypeError, "'steps' must be int, not float"), (lambda: fb.logspace(0, 1, 2.5), TypeError, "'steps'"),
    (lambda: fb.rsub(1, fb.ones(2)), TypeError, "'input' .* must be Tensor, not int"),
    (lambda: fb.empty_permuted((2, 3), (0, 0)), RuntimeError, "Duplicate dim"), (lambda: fb.empty_permuted((2, 3), (0,)), RuntimeError, "Number of dimensions"),
    (lambda: fb.empty_permuted((2, 3), (0, 5)), RuntimeError, "between 0 and 1"),
    (lambda: fb.ones(1).addmv_(fb.ones(3, 2), fb.ones(2)), RuntimeError, "does not fit"),
    (lambda: fb.signal.windows.hann(5, layout="torch.sparse_coo"), ValueError, "strided tensors only")])
def test_numbers_that_make_no_sense(call, kind, says):
    with pytest.raises(kind, match=says):
        call()
