"""`out=` that shares memory with what is read, or is of another type, where PyTorch refuses it; numbers that make no sense."""

from __future__ import annotations

import numpy as np
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


M, V, I = fb.eye(3) + 1, fb.ones(3), fb.arange(3)
OWN_TYPE = {
    "mm": lambda o: fb.mm(M, M, out=o), "bmm": lambda o: fb.bmm(M[None], M[None], out=o), "addmm": lambda o: fb.addmm(M, M, M, out=o),
    "dot": lambda o: fb.dot(V, V, out=o), "matmul": lambda o: fb.matmul(M, M, out=o), "norm": lambda o: fb.norm(M, out=o),
    "amax": lambda o: fb.amax(M, 0, out=o),
    "softmax": lambda o: fb.softmax(M, 0, out=o), "tril": lambda o: fb.tril(M, out=o), "index_select": lambda o: fb.index_select(M, 0, I, out=o),
    "take": lambda o: fb.take(M, I, out=o), "inv": lambda o: fb.linalg.inv(M, out=o), "neg": lambda o: fb.neg(M, out=o), "abs": lambda o: fb.abs(M, out=o),
    "floor": lambda o: fb.floor(M, out=o), "clamp": lambda o: fb.clamp(M, 0, out=o), "where": lambda o: fb.where(M > 1, M, M, out=o)}


@pytest.mark.parametrize("name", OWN_TYPE)
def test_operations_that_write_their_own_type_only(name):
    assert OWN_TYPE[name](fb.empty(0)).dtype is fb.float32
    for d in (fb.float64, fb.int64, fb.complex64):
        with pytest.raises(RuntimeError, match="dtype"):
            OWN_TYPE[name](fb.empty(0, dtype=d))


def test_positions_and_truths_are_written_as_such():
    for call in (fb.sort, lambda x, out: fb.topk(x, 2, out=out), lambda x, out: fb.max(x, 0, out=out), lambda x, out: fb.mode(x, out=out)):
        with pytest.raises(RuntimeError, match="int64"):
            call(V, out=(fb.empty(0), fb.empty(0)))
    for call in (fb.argmax, fb.nonzero):
        with pytest.raises(RuntimeError, match="int64"):
            call(V, out=fb.empty(0))
    for call in (fb.isposinf, fb.signbit, fb.any):
        with pytest.raises(RuntimeError, match="bool"):
            call(V, out=fb.empty(0))
    assert fb.any(V, out=fb.empty(0, dtype=fb.uint8)).item() == 1


def test_operations_that_cast():
    wide, narrow = fb.empty(0, dtype=fb.float64), fb.empty(0, dtype=fb.int32)
    assert fb.sum(V, 0, out=narrow).item() == 3 and fb.cumsum(V * 1.5, 0, out=fb.empty(0, dtype=fb.int64)).tolist() == [1, 3, 4]
    for call in (lambda o: fb.outer(V, V, out=o), lambda o: fb.mean(V, 0, out=o), lambda o: fb.cat([V, V], out=o), lambda o: fb.sin(V, out=o),
                 lambda o: fb.add(V, 1, out=o), lambda o: fb.eq(V, 1, out=o)):
        assert call(wide.resize_(0)).dtype is fb.float64
    with pytest.raises(TypeError, match="can't be cast to the desired output type Int"):
        fb.cat([V, V], out=narrow)
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Int"):
        fb.sin(V, out=narrow)


@pytest.mark.parametrize("call", [
    lambda o: fb.add(V, 1, out=o), lambda o: fb.sin(V, out=o), lambda o: fb.where(V > 0, V, V, out=o), lambda o: fb.lerp(V, V, 0.5, out=o),
    lambda o: fb.clamp(V, 0, out=o), lambda o: fb.pow(V, 2, out=o), lambda o: fb.angle(V, out=o), lambda o: fb.arange(3.0, out=o),
    lambda o: fb.linspace(0, 1, 3, out=o), lambda o: fb.randn(3, out=o), lambda o: o.__setitem__(slice(None), 1), lambda o: fb.sum(M, 0, out=o),
    lambda o: fb.sort(V, out=(o, fb.empty(0, dtype=fb.int64)))])
def test_no_operation_writes_into_expanded_memory(call):
    with pytest.raises(RuntimeError, match="more than one element"):
        call(fb.zeros(1).expand(3))
    assert fb.full((3,), 2.0, out=fb.zeros(1).expand(3)).tolist() == [2, 2, 2] == fb.zeros(1).expand(3).fill_(2).tolist()


def test_what_is_read_and_written_in_part():
    y = fb.arange(5.0)
    for call in (lambda: fb.cumsum(y[1:], 0, out=y[:4]), lambda: fb.sort(y[1:], out=(y[:4], fb.empty(0, dtype=fb.int64))), lambda: fb.sin(y[1:], out=y[:4])):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("call", [
    lambda r: fb.cat([r], out=fb.empty(0)), lambda r: fb.add(V, 1, out=r), lambda r: fb.zeros(3, out=r), lambda r: fb.arange(3.0, out=r),
    lambda r: fb.randn(3, out=r), lambda r: fb.max(r, 0, out=(fb.empty(()), fb.empty((), dtype=fb.int64))), lambda r: fb.stack([V], out=r),
    lambda r: fb.sort(V, out=(r, fb.empty(0, dtype=fb.int64)))])
def test_nothing_recorded_goes_through_out(call):
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(fb.ones(3, requires_grad=True))
    with fb.no_grad():
        call(fb.ones(3, requires_grad=True))


def test_out_is_a_tensor_or_as_many_as_there_are_results():
    for wrong in ([fb.empty(0)], (fb.empty(0),), 3):
        with pytest.raises(TypeError, match="'out' must be Tensor"):
            fb.add(V, 1, out=wrong)
        with pytest.raises(TypeError, match="'out' must be Tensor"):
            fb.mm(M, M, out=wrong)
    for wrong in (fb.empty(0), (fb.empty(0),), (fb.empty(0), fb.empty(0, dtype=fb.int64), fb.empty(0))):
        with pytest.raises(TypeError, match="tuple of 2 tensors"):
            fb.max(V, 0, out=wrong)


def test_what_pytorch_says_of_a_type_that_does_not_fit():
    x = fb.ones(4)
    for call, said in (
            (lambda: fb.all(x, out=fb.ones(())), "all only supports bool tensor for result, got: float32"),
            (lambda: fb.mode(x, out=(x.double(), fb.ones(4, dtype=fb.int64))), "expected scalar type float32 but got float64 for values"),
            (lambda: fb.mode(x, out=(x.clone(), fb.ones(4, dtype=fb.int8))), "expected scalar type int64 but got int8 for indices"),
            (lambda: fb.quantile(x, 0.5, out=x.double()), r"quantile\(\) out tensor must be same dtype as the input tensor"),
            (lambda: fb.frexp(x, out=(x.double(), fb.ones(4, dtype=fb.int32))), r"torch.frexp\(\) expects mantissa to have dtype float32 but got float64"),
            (lambda: fb.float_power(x, 2, out=x.clone()), "operation's result requires dtype float64"),
            (lambda: fb.histogram(x, 3, out=(x.double(), x.clone())), "input tensor and hist tensor should have the same dtype")):
        with pytest.raises(RuntimeError, match=said):
            call()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "nextafter", "maximum"])
def test_a_formula_s_further_calls_into_a_tensor_are_planned(name, device):
    """What is planned by layouts alone asks each call's tensors the same things."""
    call, oracle = getattr(fb, name), getattr(np, {"sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power"}.get(name, name))
    for shape in ((3, 4), (3, 1), (4,)):
        for _ in range(4):
            a, b = np.random.rand(3, 4).astype("float32") + 1, np.random.rand(*shape).astype("float32") + 1
            x, y, out = fb.tensor(a, device=device), fb.tensor(b, device=device), fb.zeros(3, 4, device=device)
            version, address = out._version, out.data_ptr()
            assert call(x, y, out=out) is out and out.data_ptr() == address and out._version == version + 1
            assert np.allclose(out.cpu().numpy(), oracle(a, b), rtol=1e-6)
            into_own = call(x, y, out=x)
            assert into_own is x and np.allclose(x.cpu().numpy(), oracle(a, b), rtol=1e-6)
    memory = fb.rand(5, 4, device=device) + 1
    with pytest.raises(RuntimeError, match="single memory location|some elements"):
        call(memory[1:4], y, out=memory[:3])
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        call(x, y.clone().requires_grad_(), out=out)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        call(x, y, out=out.clone().requires_grad_())
    with fb.no_grad():
        call(x, y.clone().requires_grad_(), out=out)
    with pytest.raises(TypeError, match="out"):
        call(x, y, out=3)
    with pytest.raises(RuntimeError, match="cast"):
        call(x, y, out=fb.zeros(3, 4, dtype=fb.int64, device=device))
    strided = fb.zeros(4, 3, device=device).T
    for _ in range(3):
        call(x, y, out=strided)
    assert fb.equal(strided, call(x, y))
    assert call(x, y, out=fb.empty(0, device=device)).shape == (3, 4)


def test_numbers_are_those_of_each_call_into_a_tensor(device):
    x, out = fb.arange(6.0, device=device), fb.empty(6, device=device)
    for k in (2, 3.5, 1, 1, 2, -1.0, 0):
        assert fb.add(x, x, alpha=k, out=out).tolist() == pytest.approx([i + k * i for i in range(6)])
        assert fb.mul(x, k, out=out).tolist() == [i * k for i in range(6)]
        assert fb.mul(k, x, out=out).tolist() == [i * k for i in range(6)]
        assert fb.pow(x + 1, k, out=out).tolist() == pytest.approx([(i + 1) ** k for i in range(6)])
        assert fb.sub(k, x, out=out).tolist() == [k - i for i in range(6)]
    for mode in ("floor", "trunc", None, "floor"):
        assert fb.div(x, -4, rounding_mode=mode, out=out).tolist() == fb.div(x, -4, rounding_mode=mode).tolist()
    for mask in ([True, False] * 3, [False] * 6):
        assert fb.where(fb.tensor(mask, device=device), x, 7.0, out=out).tolist() == [i if m else 7.0 for i, m in enumerate(mask)]
    with pytest.raises(RuntimeError, match="floating"):
        for _ in range(3):
            fb.add(x.long(), x.long(), alpha=0.5, out=fb.empty(6, dtype=fb.int64, device=device))


@pytest.mark.parametrize("name", ["igamma", "igammac", "mul", "atan2"])
def test_memory_that_is_partly_read_is_not_written(name):
    f = getattr(fb, name)
    x, other = fb.rand(6, dtype=fb.float64) + 1, fb.rand(3, dtype=fb.float64) + 1
    for write in (lambda: getattr(x[1:4], name + "_")(x[:3]), lambda: f(other, x[:3], out=x[1:4]), lambda: f(x[2:5], other, out=x[1:4])):
        with pytest.raises(RuntimeError, match="single memory location"):
            write()
    want = f(x[:3], x[:3])
    assert fb.equal(f(x[:3], x[:3], out=x[:3]), want)
