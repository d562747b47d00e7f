"""Hooks on saved tensors: what they get, what comes back, gradients of any order, in-place checks, other threads, other devices."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as fb
from flambeau._core.autograd import tape
from flambeau._core.autograd.graph import disable_saved_tensors_hooks, register_multi_grad_hook, save_on_cpu, saved_tensors_hooks
from flambeau._core.autograd.saved import SavedTensor

F = fb.nn.functional


def loss(x, w):
    y = (x.sin() * x).exp() @ w
    h = F.layer_norm(F.linear(y, w), (4,))
    a = F.scaled_dot_product_attention(h[None], h[None], h[None])[0]
    return (F.softmax(y, -1).log().sum() + y.pow(2).mean() + a.tanh().sum() + y.cumsum(0).amax(1).sum() + F.cross_entropy(y, y.detach().argmax(1))
            + fb.bmm(x[None], w[None]).relu().sum() + x[:, [0, 2]].prod() + fb.linalg.det(y @ y.transpose(0, 1) + fb.eye(3, device=x.device)))


def inputs(device="cpu", dtype=None):
    dtype = dtype or fb.float64
    x = fb.linspace(0.1, 1, 12, dtype=dtype).reshape(3, 4).to(device).requires_grad_()
    w = fb.linspace(-1, 1, 20, dtype=dtype).reshape(4, 5).to(device).requires_grad_()
    return x, w


def test_what_the_hooks_keep_gives_the_same_gradients():
    packed = []

    def pack(t):
        assert not t.requires_grad and not fb.is_grad_enabled()
        packed.append(t.numpy().copy())
        return packed[-1]

    def unpack(held):
        assert isinstance(held, np.ndarray) and not fb.is_grad_enabled()
        return fb.from_numpy(held)
    x, w = inputs(dtype=fb.float32)
    expected = fb.autograd.grad(loss(x, w), (x, w))
    with saved_tensors_hooks(pack, unpack):
        made = loss(x, w)
    count = len(packed)
    assert count > 20
    found = fb.autograd.grad(made, (x, w), retain_graph=True)
    for a, b in zip(found, expected, strict=True):
        assert fb.equal(a, b)
    for kept in packed:
        kept *= 0  # the values come from what was kept, and again in each pass
    assert not fb.equal(fb.autograd.grad(made, x)[0], expected[0])
    assert len(packed) == count
    with pytest.raises(RuntimeError, match="second time"):
        fb.autograd.grad(made, x)


def test_gradients_of_gradients():
    x, w = inputs()
    plain = fb.autograd.grad(loss(x, w), (x, w), create_graph=True)
    expected = fb.autograd.grad(plain[0].pow(2).sum() + plain[1].sum(), (x, w))
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        first = fb.autograd.grad(loss(x, w), (x, w), create_graph=True)
        found = fb.autograd.grad(first[0].pow(2).sum() + first[1].sum(), (x, w))
    for a, b in zip(found, expected, strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-9)
    with saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        assert fb.autograd.gradcheck(loss, inputs())


def test_the_innermost_hooks_run_and_only_within_their_block():
    seen = []

    def hooks(name):
        return saved_tensors_hooks(lambda t: (seen.append(name), t)[1], lambda t: t)
    a = fb.ones(3, requires_grad=True)
    with hooks("outer"):
        a * a
        with hooks("inner"):
            b = a.exp()
        a.sin()
    a.cos()
    assert seen == ["outer", "outer", "inner", "outer"]
    both = hooks("twice")
    with both, both:
        a.sin()
    assert seen[4:] == ["twice"] and not fb.is_anomaly_enabled()
    a.sin()
    assert len(seen) == 5
    assert b.grad_fn.name() == "ExpBackward0" and fb.equal(b.grad_fn.saved_tensors[0] if b.grad_fn.saved_tensors else b, b)


def test_hooks_are_of_one_thread():
    seen = []
    a = fb.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: (seen.append(1), t)[1], lambda t: t):
        other = threading.Thread(target=lambda: (a * a).sum().backward())
        other.start()
        other.join()
    assert seen == [] and a.grad.tolist() == [2, 2, 2]


def test_a_function_of_the_user():
    class Exp(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y, None)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y, nothing = ctx.saved_tensors
            assert nothing is None
            return g * y
    kept = []
    a = fb.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: (kept.append(t), t * 2)[1], lambda t: t / 2):
        y = Exp.apply(a)
    y.sum().backward()
    assert len(kept) == 2 and np.allclose(a.grad.numpy(), np.e)


def test_wrong_hooks_are_told():
    a = fb.ones(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: t, lambda t: 3):
        b = a * a
    with pytest.raises(TypeError, match="expected to be a Tensor but got result of type int"):
        b.sum().backward()
    with saved_tensors_hooks(lambda t: t.add_(1), lambda t: t), pytest.raises(RuntimeError, match="modifying its input in place"):
        (a * 1).sin()
    assert not tape.anomaly.on
    with disable_saved_tensors_hooks("not in here"), pytest.raises(RuntimeError, match="not in here"), saved_tensors_hooks(lambda t: t, lambda t: t):
        pass
    with saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="none"), disable_saved_tensors_hooks("none"):
        pass


def test_a_change_in_place_is_still_noticed():
    a = fb.ones(3, requires_grad=True)
    b = a * 2
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        c = (b * b).sum()
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        d = (b * b).sum()
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.backward()
    d.backward()  # what was kept is a copy of the old values
    assert a.grad.tolist() == [8, 8, 8]


@pytest.mark.parametrize("pinned", [False, True])
def test_saved_on_the_cpu(sim_gpus, pinned):
    x, w = inputs("cuda")
    expected = fb.autograd.grad(loss(x, w), (x, w))
    with save_on_cpu(pin_memory=pinned):
        made = loss(x, w)
    for a, b in zip(fb.autograd.grad(made, (x, w)), expected, strict=True):
        assert a.device == x.device and fb.equal(a, b)
    big = fb.ones(1 << 20, device="cuda", requires_grad=True)
    fb.cuda.synchronize()
    before = fb.cuda.memory_allocated()
    with save_on_cpu(pin_memory=pinned):
        y = big.sin().cos().exp()
    fb.cuda.synchronize()
    assert fb.cuda.memory_allocated() - before < 3 * big.nbytes  # the result, but not what came between
    y.sum().backward()
    e = np.sin(1)
    assert np.allclose(big.grad.cpu().numpy()[:3], np.exp(np.cos(e)) * -np.sin(e) * np.cos(1), rtol=1e-5)


def test_a_hook_on_several_gradients():
    a, b, c = (fb.ones(2, requires_grad=True) for _ in range(3))
    d = fb.ones(2)
    got = []
    handle = register_multi_grad_hook((a, d, b, c), lambda gs: got.append([None if g is None else g.tolist() for g in gs]))
    (a * b).sum().backward()  # c gets none: told at the end of the pass
    (a * b * c * 3).sum().backward()
    assert got == [[[1, 1], None, [1, 1], None], [[3, 3], None, [3, 3], [3, 3]]]
    handle.remove()
    (a * b).sum().backward()
    assert len(got) == 2
    with register_multi_grad_hook((a, b), lambda g: got.append(g.tolist()), mode="any"):
        (a * b * 2).sum().backward()
        (a * b * 4).sum().backward()
    assert got[2:] == [[2, 2], [4, 4]]
    with pytest.raises(ValueError, match="'all', 'any'"):
        register_multi_grad_hook((a,), print, mode="some")
    v = a._version
    fb.autograd.graph.increment_version([a, d])
    assert a._version == v + 1


def _index(*values):
    return fb.tensor(values)


def _both(gives):
    """gives: a function of a leaf and positions, whose result's gradient needs the positions."""
    def make(device):
        x, i = fb.arange(1.0, 5.0, device=device).requires_grad_(), _index(0, 1).to(device)
        return gives(x * 1, i), i
    return make


def _result(gives, which):
    """gives: a function of a matrix; its result of this number is needed for the gradient of the first."""
    def make(device):
        found = gives(fb.tensor([[1.0, 3.0, 2.0], [6.0, 4.0, 5.0]], device=device, requires_grad=True) * 1)
        found = found if isinstance(found, tuple) else (found,)
        return found[0], found[which]
    return make


NEEDED = {
    "index": _both(lambda x, i: x[i]), "index_select": _both(lambda x, i: x.index_select(0, i)), "gather": _both(lambda x, i: x.gather(0, i)),
    "take": _both(lambda x, i: x.take(i)), "index_put": _both(lambda x, i: fb.ones(4, device=x.device).index_put((i,), x[:2])),
    "setitem": _both(lambda x, i: _written(x, i)), "index_add": _both(lambda x, i: fb.ones(4, device=x.device).index_add(0, i, x[:2])),
    "index_copy": _both(lambda x, i: x.index_copy(0, i, x[:2])), "scatter": _both(lambda x, i: x.scatter(0, i, x[:2])),
    "scatter_add": _both(lambda x, i: x.scatter_add(0, i, x[:2])), "scatter_amax": _both(lambda x, i: x.scatter_reduce(0, i, x[:2], "amax")),
    "scatter_prod": _both(lambda x, i: x.scatter_reduce(0, i, x[:2], "prod")), "embedding": _both(lambda x, i: fb.nn.functional.embedding(i, x.reshape(2, 2))),
    "embedding_bag": _both(lambda x, i: fb.nn.functional.embedding_bag(i.reshape(1, 2), x.reshape(2, 2))),
    "nll_loss": _both(lambda x, i: fb.nn.functional.nll_loss(x.reshape(2, 2), i)),
    "cross_entropy": _both(lambda x, i: fb.nn.functional.cross_entropy(x.reshape(2, 2), i)),
    "multi_margin_loss": _both(lambda x, i: fb.nn.functional.multi_margin_loss(x.reshape(2, 2), i)),
    "cumprod": _result(lambda x: x.cumprod(1), 0), "logcumsumexp": _result(lambda x: x.logcumsumexp(1), 0), "std": _result(lambda x: x.std(1), 0),
    "norm": _result(lambda x: x.norm(dim=1), 0), "cummax": _result(lambda x: tuple(x.cummax(1)), 1), "cummin": _result(lambda x: tuple(x.cummin(1)), 1),
    "sort": _result(lambda x: tuple(x.sort(1)), 1), "topk": _result(lambda x: tuple(x.topk(2)), 1), "kthvalue": _result(lambda x: tuple(x.kthvalue(2)), 1),
    "median": _result(lambda x: tuple(x.median(1)), 1), "mode": _result(lambda x: tuple(x.mode(1)), 1), "max": _result(lambda x: tuple(x.max(1)), 1),
    "median of all": _result(lambda x: x.median(), 0), "frexp": _result(lambda x: tuple(x.frexp()), 1),
    "max_pool1d": _result(lambda x: fb.nn.functional.max_pool1d(x, 2, return_indices=True), 1),
}


def _written(x, i):
    y = x * 2
    y[i] = x[:2]
    return y


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_a_gradient_reads_must_not_be_written_meanwhile(name, device):
    for _ in range(5):  # learned calls too
        y, saved = NEEDED[name](device)
        with fb.no_grad():
            saved.mul_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        y, saved = NEEDED[name](device)
        y.sum().backward()


def test_operands_that_no_gradient_reads_may_be_written():
    x, w = fb.ones(2, 2, requires_grad=True), fb.ones(2, 2)
    for product in (lambda a, b: a @ b, lambda a, b: (a[None] @ b[None])[0], fb.nn.functional.linear, lambda a, b: a[0].dot(b[0]),
                    lambda a, b: fb.einsum("ij,jk->ik", a, b)):
        for _ in range(5):
            x.grad = None
            a = x * 1
            y = product(a, w)
            with fb.no_grad():
                a.zero_()
            y.sum().backward()
            assert x.grad.sum().item() == (2.0 if y.dim() == 0 else 8.0)


def test_the_error_tells_what_was_written():
    x, i = fb.ones(3, requires_grad=True), _index(0, 1)
    y = x[i]
    i.add_(1)
    with pytest.raises(RuntimeError, match=r"\[torch.LongTensor \[2\]\] is at version 1; expected version 0 instead"):
        y.sum().backward()


def test_hooks_on_one_saved_tensor():
    a, b = fb.tensor([2.0, 3.0], requires_grad=True), fb.tensor([5.0, 7.0], requires_grad=True)
    y = a * b
    seen = []
    raw = y.grad_fn._raw_saved_self
    assert isinstance(raw, SavedTensor)
    raw.register_hooks(lambda t: seen.append(t.tolist()) or (t * 10,), lambda held: held[0] / 10)
    assert seen == [[2, 3]] and y.grad_fn._saved_self.tolist() == [2, 3] and y.grad_fn._saved_other is b
    with pytest.raises(RuntimeError, match="already been set"):
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    y.sum().backward()
    assert a.grad.tolist() == [5, 7] and b.grad.tolist() == [2, 3] and seen == [[2, 3]]
    with pytest.raises(RuntimeError, match="freed"):
        raw.register_hooks(lambda t: t, lambda t: t)


def test_one_of_two_equal_operands_has_hooks():
    a = fb.tensor([1.0, 3.0], requires_grad=True)
    y = a * a
    y.grad_fn._raw_saved_self.register_hooks(lambda t: 2 * t, lambda t: t)
    y.sum().backward()
    assert a.grad.tolist() == [3, 9]  # the other is as it was


def test_what_a_hook_must_be():
    a = fb.ones(2, requires_grad=True)
    y = a * a
    with pytest.raises(TypeError, match="missing 1 required positional"):
        y.grad_fn._raw_saved_self.register_hooks(lambda t, u: t, lambda t: t)
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        (a * a).grad_fn._raw_saved_self.register_hooks(lambda t: t.mul_(2), lambda t: t)
    with pytest.raises(RuntimeError, match="forbidden"):
        SavedTensor()
    with pytest.raises(AttributeError, match="_saved_wrong"):
        y.grad_fn._raw_saved_wrong  # noqa: B018


def test_a_saved_result_keeps_its_history():
    a = fb.rand(3, requires_grad=True)
    y = a.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t + 1, lambda t: t - 1)
    assert fb.allclose(y.grad_fn._saved_result, y)
    y.sum().backward()
    assert fb.allclose(a.grad, a.exp())


def test_disabling_hooks_says_so():
    graph = fb.autograd.graph
    enabled = fb._C._autograd._saved_tensors_hooks_is_enabled
    with graph.disable_saved_tensors_hooks("told"):
        assert not enabled()
        with pytest.raises(RuntimeError, match="told"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="told"), graph.disable_saved_tensors_hooks("told"):
        pass
    assert enabled()
