"""Forward-mode differentiation: tangents through operations, views, writes in place, gradients, batches and functions of one's own."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import flambeau as fb
import flambeau.autograd.forward_ad as fw
from flambeau import func
from flambeau.autograd import Function, gradcheck, gradgradcheck
from flambeau.nn import functional as F

RNG = np.random.default_rng(3)


def t(*shape, seed=0, device="cpu", d=np.float64):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape)
    return fb.tensor((a + 1j * rng.standard_normal(shape) if np.issubdtype(d, np.complexfloating) else a).astype(d), device=device)


def along(f, *pairs):
    """The value and the tangent of a function at (point, tangent) pairs."""
    with fw.dual_level():
        return fw.unpack_dual(f(*[fw.make_dual(x, v) for x, v in pairs]))


def slope(f, x, v, eps=1e-6):
    """The derivative along v by central differences."""
    with fb.no_grad():
        return (f(x + eps * v) - f(x - eps * v)) / (2 * eps)


FUNCTIONS = {
    "pointwise": lambda x: (x.sin() * x.exp() + 2 - x / 3) ** 2, "broadcast": lambda x: x * x[0] + x[:, :1],
    "rows": lambda x: x.softmax(-1) + x.log_softmax(0),
    "norm": lambda x: F.layer_norm(x, (4,), x[0], x[1]), "moments": lambda x: x.var(0) + x.std(1, keepdim=True), "product": lambda x: x @ x.mT @ x,
    "linear": lambda x: F.linear(x, x[:2] * 2, x[0, :2]),
    "views": lambda x: x.mT.reshape(-1)[2:8].view(2, 3).unsqueeze(0).expand(2, 2, 3),
    "lists": lambda x: fb.cat([x, x * 2, fb.ones(1, 4, dtype=x.dtype, device=x.device)]).split(2)[1],
    "select": lambda x: x.sort(-1).values + x.max(-1, True).values,
    "gather": lambda x: x[:, [0, 2, 2]].index_select(0, fb.tensor([1, 1], device=x.device)), "scan": lambda x: x.cumsum(0) + x.cumprod(1),
    "loss": lambda x: F.cross_entropy(x, fb.tensor([0, 3, 1], device=x.device)), "where": lambda x: fb.where(x > 0, x * 2, x.exp()),
    "clamp": lambda x: fb.clamp(fb.zeros_like(x), min=x),
    "norms": lambda x: x.norm() + x.abs().max(),
    "inverse": lambda x: fb.linalg.inv(x[:, :3] + 4 * fb.eye(3, dtype=x.dtype, device=x.device)),
    "transform": lambda x: fb.fft.rfft(x).abs(),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None] * 2, x[None, None].sin()),
    "convolution": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2], x[0, :1], padding=1),
    "pool": lambda x: F.max_pool2d(x[None], 2) * F.avg_pool2d(x[None], 2),
    "einsum": lambda x: fb.einsum("ij,kj,i->ik", x, x, x[:, 0]),
    "embedding": lambda x: F.embedding(fb.tensor([0, 2, 2], device=x.device), x), "padding": lambda x: F.pad(x, (1, 1), value=3.0) + F.pad(x, (2, 0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_slopes(name, device):
    f = FUNCTIONS[name]
    x, v = t(3, 4, device=device), t(3, 4, seed=1, device=device)
    value, tangent = along(f, (x, v))
    np.testing.assert_allclose(value.cpu().numpy(), f(x).cpu().numpy(), rtol=1e-12)
    assert tangent.shape == value.shape and tangent.device == value.device and tangent.dtype == value.dtype
    np.testing.assert_allclose(tangent.cpu().numpy(), slope(f, x, v).cpu().numpy(), rtol=1e-6, atol=1e-8)
    assert not value.requires_grad and not tangent.requires_grad


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_have_tangents(name):
    x = t(3, 4).requires_grad_()
    assert gradcheck(FUNCTIONS[name], (x,), check_forward_ad=True, check_batched_forward_grad=True)
    assert gradgradcheck(FUNCTIONS[name], (x,), atol=1e-4, check_fwd_over_rev=True, check_rev_over_rev=False)


@pytest.mark.parametrize("d", [np.float32, np.complex64, np.complex128])
def test_types(d):
    x, v = t(3, 3, d=d), t(3, 3, seed=1, d=d)
    for f in (lambda x: x.exp() @ x, lambda x: x.abs() + x.real, lambda x: x.conj() * x.sin() + x.angle(), lambda x: x * 2.0,
              lambda x: x.to(fb.complex128).imag):
        value, tangent = along(f, (x, v))
        exact = slope(f, x.to(fb.complex128 if x.is_complex() else fb.float64), v.to(fb.complex128 if x.is_complex() else fb.float64))
        assert value.dtype == tangent.dtype == f(x).dtype
        np.testing.assert_allclose(tangent.numpy(), exact.numpy(), rtol=1e-4, atol=1e-5)


def test_a_level_and_what_is_made_in_it():
    x, v = t(3), t(3, seed=1)
    with pytest.raises(RuntimeError, match="no level exists"):
        fw.make_dual(x, v)
    with pytest.raises(RuntimeError, match="positive"):
        fw.exit_dual_level()
    assert fw.unpack_dual(x) == (x, None) or fw.unpack_dual(x).tangent is None
    with fw.dual_level() as level:
        assert level == 0
        y = fw.make_dual(x, v)
        assert type(y) is fb.Tensor and y._is_view() and y.data_ptr() == x.data_ptr()
        primal, tangent = fw.unpack_dual(y)
        assert tangent is v and fw.unpack_dual(primal).tangent is None and isinstance(fw.unpack_dual(y), fw.UnpackedDualTensor)
        assert "tangent=tensor(" in repr(y) and "tangent" not in repr(y.detach()) and "tangent" not in repr(y.data)
        z = y * 2
        assert fw.unpack_dual(z).tangent.tolist() == (v * 2).tolist() and fw.unpack_dual(x * 2).tangent is None
        assert y[0].item() == x[0].item() and y.tolist() == x.tolist() and bool((y == x).all()) and (y > 0).dtype == fb.bool
        assert fw.unpack_dual(fb.zeros_like(y)).tangent is None and fw.unpack_dual(y.long()).tangent is None
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            fw.enter_dual_level()
        with pytest.raises(RuntimeError, match=r"size \[3\] while the given forward gradient is of size \[2\]"):
            fw.make_dual(x, v[:2])
        with pytest.raises(ValueError, match=r"primal .* torch.int64"):
            fw.make_dual(fb.arange(3), v)
        with pytest.raises(ValueError, match=r"tangent .* torch.int64"):
            fw.make_dual(x, fb.arange(3))
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fw.make_dual(y, v)
        with pytest.raises(RuntimeError, match="itself has a forward gradient"):
            fw.make_dual(x, y)
        with pytest.raises(RuntimeError, match="Invalid level"):
            fw.make_dual(x, v, level=2)
        with pytest.raises(RuntimeError, match="not the last one"):
            fw.exit_dual_level(level=4)
    assert fw.unpack_dual(z).tangent is None and z.meta.plain and y.meta.plain and (z + y).meta.plain

    @fw.dual_level()
    def whole(x):
        return fw.unpack_dual(fw.make_dual(x, v).exp()).tangent
    np.testing.assert_allclose(whole(x).numpy(), (x.exp() * v).numpy())


def test_no_mode_takes_tangents_away_but_its_own():
    x, v = t(3), t(3, seed=1)
    with fw.dual_level():
        y = fw.make_dual(x, v)
        with fb.no_grad():
            assert fw.unpack_dual(y.sin()).tangent is not None
        with fb.inference_mode():
            assert fw.unpack_dual(y.sin()).tangent is None
        with fw._set_fwd_grad_enabled(False):
            assert not fw._is_fwd_grad_enabled() and fw.unpack_dual(y.sin()).tangent is None
        assert fw._is_fwd_grad_enabled() and fw.unpack_dual(y.sin()).tangent is not None


def test_out_is_refused():
    x = t(3)
    with fw.dual_level():
        y = fw.make_dual(x, x)
        for call in (lambda: fb.add(y, x, out=fb.empty_like(x)), lambda: fb.sum(x, out=y), lambda: fb.matmul(y, x, out=fb.zeros((), dtype=fb.float64))):
            with pytest.raises(NotImplementedError, match="it is an out= function"):
                call()


def written(x):
    """Writes of every kind, in place."""
    y = x.clone()
    y[1:].mul_(2)
    y[0] = y[1] * x[2]
    z = y.view(2, 6)
    z[0].add_(x.reshape(-1)[:6], alpha=3)
    z[1, 0] = 5.0
    y.t_().unsqueeze_(0)
    w = fb.zeros(12, dtype=x.dtype, device=x.device)
    part = w[2:6]
    w[:6].copy_(x.reshape(-1)[:6])
    w.index_put_((fb.tensor([7, 8], device=x.device),), x[0, :2])
    w.masked_fill_(w > 1, 0.25).sin_()
    F.relu(w, inplace=True)
    w.clamp_(max=0.9)
    w[10:].normal_()
    w[10:].fill_(1).zero_()
    return y.sum(0).mT * part.prod() + part * w[6:10]


def test_writes_in_place(device):
    x, v = t(3, 4, device=device), t(3, 4, seed=1, device=device)
    exact = slope(written, x, v).cpu().numpy()
    np.testing.assert_allclose(along(written, (x, v)).tangent.cpu().numpy(), exact, rtol=1e-5, atol=1e-7)
    with fb.no_grad():
        np.testing.assert_allclose(along(written, (x, v)).tangent.cpu().numpy(), exact, rtol=1e-5, atol=1e-7)
    x.requires_grad_()
    np.testing.assert_allclose(along(written, (x, v)).tangent.detach().cpu().numpy(), exact, rtol=1e-5, atol=1e-7)


def test_writes_in_place_have_gradients_of_tangents():
    def f(x):
        y = x * 1
        y[0] = x[1] * x[2]
        y[1:].add_(x[:2].exp())
        w = fb.zeros(8, dtype=x.dtype)
        w[2:6].copy_(x[0] ** 2)
        return y * y + w[2:6].sin()
    x, v = t(3, 4).requires_grad_(), t(3, 4, seed=1)
    assert gradcheck(lambda x: along(f, (x, v)).tangent, (x,))
    assert gradgradcheck(f, (x,), check_fwd_over_rev=True)


def test_writes_reach_bases_and_views():
    v = t(4, seed=1)
    with fw.dual_level():
        y = fb.zeros(4, dtype=fb.float64)
        before, after = y[:2], None
        y.add_(fw.make_dual(t(4), v))
        after = y[1:]
        assert fw.unpack_dual(before).tangent.tolist() == v[:2].tolist() and fw.unpack_dual(after).tangent.tolist() == v[1:].tolist()
        after.mul_(3)
        assert fw.unpack_dual(y).tangent.tolist() == fb.cat([v[:1], 3 * v[1:]]).tolist() and fw.unpack_dual(before).tangent[1] == 3 * v[1]
        y.zero_()
        assert fw.unpack_dual(before).tangent.tolist() == [0, 0]
        row = fb.zeros(2, 2, dtype=fb.float64)
        row[1] = fw.make_dual(t(2), v[:2])
        assert fw.unpack_dual(row).tangent.tolist() == [[0, 0], v[:2].tolist()]
        kept = t(2)
        z = fw.make_dual(fb.ones(2, dtype=fb.float64), kept)
        z.mul_(2)
        assert kept.tolist() == (2 * t(2)).tolist()  # PyTorch keeps the tangent given, and writes to it too
        leaf = t(3).requires_grad_()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            leaf.add_(fw.make_dual(t(3), t(3)))


def test_reverse_over_forward_and_the_other_way():
    def f(x):
        return (x.sin() @ x.mT).softmax(-1).pow(2).sum() + F.layer_norm(x, (4,)).prod()
    x, v = t(3, 4), t(3, 4, seed=1)
    hessian = fb.autograd.functional.hessian(f, x)
    want = (hessian.reshape(12, 12) @ v.reshape(-1)).reshape(3, 4).numpy()
    x.requires_grad_()
    with fw.dual_level():
        y = fw.make_dual(x, v)
        out = f(y)
        (g,) = fb.autograd.grad(out, y, retain_graph=True)
        np.testing.assert_allclose(fw.unpack_dual(g).tangent.numpy(), want, rtol=1e-9)
        (h,) = fb.autograd.grad(fw.unpack_dual(out).tangent, x, retain_graph=True)
        np.testing.assert_allclose(h.numpy(), want, rtol=1e-9)
        out.backward()
        assert x.grad.meta.plain
        np.testing.assert_allclose(x.grad.numpy(), fw.unpack_dual(g).primal.numpy())
    x = x.detach()
    np.testing.assert_allclose(func.jvp(func.grad(f), (x,), (v,))[1].numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(func.grad(lambda x: func.jvp(f, (x,), (v,))[1])(x).numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(func.hessian(f)(x).numpy(), hessian.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fb.autograd.functional.hessian(f, x, vectorize=True, outer_jacobian_strategy="forward-mode").numpy(), hessian.numpy(),
                               rtol=1e-9, atol=1e-12)


def test_levels_nest():
    x = fb.tensor(0.3, dtype=fb.float64)
    one = fb.ones_like(x)

    def d(f, v=one):
        return lambda x: func.jvp(f, (x,), (v(x) if callable(v) else v,))[1]
    assert float(d(d(d(fb.sin)))(x)) == pytest.approx(-np.cos(0.3))
    assert float(d(d(d(lambda x: x ** 4)))(x)) == pytest.approx(24 * 0.3)
    assert float(d(d(fb.exp, lambda x: x ** 2))(x)) == pytest.approx(np.exp(0.3) * (0.3 ** 2 + 0.6))  # (e^x x^2)'
    a, v = t(3, 3), t(3, 3, seed=1)
    second = func.jvp(lambda a: func.jvp(lambda a: a.softmax(-1) @ a.exp(), (a,), (v,))[1], (a,), (v,))[1]
    step = 1e-4
    numeric = [(lambda b: b.softmax(-1) @ b.exp())(a + k * step * v) for k in (-1, 0, 1)]
    np.testing.assert_allclose(second.numpy(), ((numeric[0] - 2 * numeric[1] + numeric[2]) / step ** 2).numpy(), rtol=1e-4, atol=1e-6)


def test_batches():
    w, x, v = t(4, 4), t(4), t(5, 4, seed=1)

    def f(x):
        return (w @ x).tanh() * x.exp()
    jacobian = fb.autograd.functional.jacobian(f, x)
    np.testing.assert_allclose(func.vmap(lambda v: func.jvp(f, (x,), (v,))[1])(v).numpy(), (v @ jacobian.T).numpy(), rtol=1e-12)
    np.testing.assert_allclose(func.jvp(func.vmap(f), (v,), (v,))[1].numpy(), func.vmap(lambda x: func.jvp(f, (x,), (x,))[1])(v).numpy(), rtol=1e-12)
    np.testing.assert_allclose(func.jacfwd(f)(x).numpy(), jacobian.numpy(), rtol=1e-12)
    np.testing.assert_allclose(func.jacfwd(func.jacfwd(f))(x).numpy(), func.jacrev(func.jacrev(f))(x).numpy(), rtol=1e-9, atol=1e-12)
    both, aux = func.jacfwd(lambda a, b: ({"product": a * b}, a.sum()), argnums=(0, 1), has_aux=True)(x, v[0])
    np.testing.assert_allclose(both["product"][1].numpy(), np.diag(x.numpy()))
    assert float(aux) == pytest.approx(float(x.sum()))
    assert func.jacfwd(lambda x: x * 2)(fb.ones(0)).shape == (0, 0)
    np.testing.assert_allclose(func.jacfwd(lambda x: x.clone() if x[0].item() < 9 else x)(x).numpy(), np.eye(4))  # one by one


def test_jvp_says_what_is_wrong():
    x = t(3)
    for call, text in ((lambda: func.jvp(fb.sin, x, (x,)), "Expected primals to be a tuple"),
                       (lambda: func.jvp(fb.sin, (x,), x), "Expected tangents to be a tuple"),
                       (lambda: func.jvp(fb.sin, (x,), (x, x)), "same python structure"), (lambda: func.jvp(fb.sin, (), ()), "at least one Tensor"),
                       (lambda: func.jvp(fb.sin, (1.0,), (x,)), "only contain Tensors"), (lambda: func.jvp(lambda x: 3, (x,), (x,)), "return only tensors"),
                       (lambda: func.jvp(fb.sin, (x,), (x[:2],)), "different size"), (lambda: func.jvp(fb.sin, (x,), (x,), has_aux=True), r"\(output, aux\)"),
                       (lambda: func.jvp(lambda x: fb.ones(2), (x,), (x,), strict=True), "independent of the inputs")):
        with pytest.raises(RuntimeError, match=text):
            call()
    assert func.jvp(lambda x: fb.ones(2), (x,), (x,))[1].tolist() == [0, 0]


class Cube(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.factor = factor
        return x ** 3 * factor

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2 * ctx.factor, None

    @staticmethod
    def jvp(ctx, v, none):
        assert none is None
        return v * 3 * ctx.saved_tensors[0] ** 2 * ctx.factor


class Backward(Cube):
    jvp = Function.jvp


def test_functions_of_ones_own():
    x = t(3).requires_grad_()
    assert gradcheck(lambda x: Cube.apply(x, 2.0) * x, (x,), check_forward_ad=True)
    assert gradgradcheck(lambda x: Cube.apply(x, 2.0) * x, (x,), check_fwd_over_rev=True)
    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        along(lambda x: Backward.apply(x, 1.0), (x, x.detach()))

    class Two(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2, x.long()

        @staticmethod
        def jvp(ctx, vx, vy):
            assert vy is None or not vy.any()
            return vx * 2, None
    assert along(lambda x: Two.apply(x, fb.ones(3))[0], (x.detach(), x.detach())).tangent.tolist() == (2 * x).tolist()

    class Few(Two):
        @staticmethod
        def jvp(ctx, vx, vy):
            return vx
    with pytest.raises(RuntimeError, match="expected 2 but got 1"):
        along(lambda x: Few.apply(x, x)[0], (x.detach(), x.detach()))


def test_modules_and_their_parameters():
    fb.manual_seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(4, 8), fb.nn.GELU(), fb.nn.LayerNorm(8), fb.nn.Linear(8, 3)).double()
    x, labels = t(5, 4), fb.tensor([0, 1, 2, 0, 1])
    point = {k: p.detach() for k, p in model.named_parameters()}
    moves = {k: t(*p.shape, seed=2) for k, p in point.items()}

    def loss(p):
        return F.cross_entropy(func.functional_call(model, p, (x,)), labels)
    value, tangent = func.jvp(loss, (point,), (moves,))
    slopes = func.grad(loss)(point)
    assert float(tangent) == pytest.approx(sum(float((slopes[k] * moves[k]).sum()) for k in point))
    assert float(value) == pytest.approx(float(loss(point)))


def test_nothing_is_left_behind():
    from flambeau.autograd import duals
    x = t(3)
    level = duals.Level()
    y = fw.dual(x, x, level)
    z = [y.exp() for _ in range(5)]
    assert len(level.members) >= 6
    del z
    gc.collect()
    assert len(level.members) == 1
    level.end()
    assert y.meta is x.meta and not level.members


def test_sparse_tensors_have_none():
    with fw.dual_level(), pytest.raises(NotImplementedError, match="sparse"):
        fb.sparse_coo_tensor(fb.tensor([[0, 1]]), fw.make_dual(fb.ones(2), fb.ones(2)), (3,))


def test_gradients_that_are_no_adjoints():
    # a row of padding gets no gradient, and frequent ones smaller gradients; the function itself is linear
    x, v, places = t(3, 2), t(3, 2, seed=1), fb.tensor([0, 2, 2])
    tangent = along(lambda x: F.embedding(places, x, padding_idx=0, scale_grad_by_freq=True), (x, v)).tangent
    assert tangent.tolist() == v[places].tolist()


def test_masked_factors_are_finite_at_zero():
    z, v = fb.zeros(3, dtype=fb.float64), fb.ones(3, dtype=fb.float64)
    assert along(lambda x: fb.pow(x, x), (z, v)).tangent.tolist() == [0, 0, 0]
    assert along(lambda x: fb.hypot(x, x), (z, v)).tangent.tolist() == [0, 0, 0]
    for p in (1, 2, 3, float("inf")):
        for d in (fb.float64, fb.complex128):
            assert along(lambda x, p=p: fb.linalg.vector_norm(x, p), (z.to(d), v.to(d))).tangent.item() == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_modules_do_beside_operations(device):
    # steps of recurrent networks, and a layer and its activation as one, look their operands up themselves
    with fb.simulate(gpus=1):
        fb.manual_seed(0)
        deep = fb.nn.Sequential(fb.nn.Linear(32, 300), fb.nn.ReLU(), fb.nn.Linear(300, 2))
        for model, x, width in ((fb.nn.LSTM(4, 6), t(3, 5, 4), 6), (fb.nn.GRU(4, 6, num_layers=2), t(3, 5, 4), 6), (deep, t(400, 32), 2)):
            model = model.double().to(device)
            x = x.to(device)
            point = {k: p.detach() for k, p in model.named_parameters()}
            moves = {k: fb.ones_like(p) * 0.3 for k, p in point.items()}

            def f(p, x, model=model):
                made = func.functional_call(model, p, (x,))
                return made[0] if isinstance(made, tuple) else made
            value, tangent = func.jvp(f, (point, x), (moves, x.cos()))
            near = [f({k: p + s * moves[k] for k, p in point.items()}, x + s * x.cos()) for s in (1e-6, -1e-6)]
            assert value.shape[-1] == width
            np.testing.assert_allclose(tangent.cpu().numpy(), ((near[0] - near[1]) / 2e-6).detach().cpu().numpy(), rtol=1e-5, atol=1e-6)


def test_a_function_made_linear():
    x, v = t(3), t(3, seed=1)
    value, push = func.linearize(lambda x: x.sin() * x, x)
    np.testing.assert_allclose(push(v).numpy(), func.jvp(lambda x: x.sin() * x, (x,), (v,))[1].numpy())
    for given, text in (((v, v), "same argspec"), ((v[:2],), "doesn't match the shape"), ((v.float(),), "doesn't match the dtype")):
        with pytest.raises(RuntimeError, match=text):
            push(*given)


class Labelled(fb.Tensor):
    pass


def test_classes_checkpoints_and_types():
    x, v = t(3), t(3, seed=1)
    value, tangent = along(lambda x: x * 2, (x.as_subclass(Labelled), v))
    assert type(value) is Labelled and tangent.tolist() == (2 * v).tolist()
    x.requires_grad_()
    assert along(lambda x: fb.utils.checkpoint.checkpoint(lambda x: x * 2, x, use_reentrant=False), (x, v)).tangent.tolist() == (2 * v).tolist()
    assert along(lambda x: x + fb.ones(3, dtype=fb.float64), (x.detach().float(), v.float())).tangent.dtype == fb.float64
    with fb.autocast("cpu", dtype=fb.bfloat16):
        made = along(lambda x: F.linear(x[None], fb.eye(3)), (x.detach().float(), v.float()))
    assert made.tangent.dtype == made.primal.dtype == fb.bfloat16
    with fw.dual_level():
        (g,) = fb.autograd.grad(x ** 2, x, fw.make_dual(x.detach(), v))
        np.testing.assert_allclose(fw.unpack_dual(g).tangent.numpy(), (2 * x.detach() * v).numpy())


def test_hooks_see_a_call_once():
    seen = []

    class Mode(fb.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            seen.append(f.__name__)
            return f(*args, **(kwargs or {}))
    with fw.dual_level():
        y = fw.make_dual(t(3), t(3))
        with Mode():
            z = (y * 2).sin()
        assert fw.unpack_dual(z).tangent is not None and [n for n in seen if n in ("sin",)] == ["sin"]


class Doubled(Function):
    """Twice the input, written over it, or not, by a jvp that does as it is told."""

    @staticmethod
    def forward(ctx, x, way):
        ctx.way = way
        if way == "no gradient":
            made = x * 2
            ctx.mark_non_differentiable(made)
            return made
        if way.startswith("in place"):
            ctx.mark_dirty(x)
            return x.mul_(2)
        return x

    @staticmethod
    def vjp(ctx, g):
        return g * (2 if ctx.way.startswith("in place") else 1), None

    @staticmethod
    def jvp(ctx, v, _):
        if ctx.way == "in place":
            return v.mul_(2)
        return v.view_as(v) if ctx.way == "as it is" else v * 2


def test_a_jvp_does_as_its_forward():
    x, v = fb.rand(3, dtype=fb.float64), fb.rand(3, dtype=fb.float64)
    with fw.dual_level():
        made = fw.unpack_dual(Doubled.apply(fw.make_dual(x.clone(), v.clone()), "in place"))
        assert fb.equal(made.tangent, 2 * v) and fb.equal(made.primal, 2 * x)
        kept = fw.unpack_dual(Doubled.apply(fw.make_dual(x, v), "as it is")).tangent
        assert kept._base is v and fb.equal(kept, v)
        for way, text in (("in place, elsewhere", "not modifying the forward mode gradients inplace"), ("a copy", "but the jvp is not returning a view"),
                          ("no gradient", "You should return None at that position instead")):
            with pytest.raises(RuntimeError, match=text):
                Doubled.apply(fw.make_dual(x.clone(), v.clone()), way)


def test_backward_is_also_called_vjp():
    x = fb.rand(3, dtype=fb.float64, requires_grad=True)
    Doubled.apply(x * 1, "in place").sum().backward()
    assert x.grad.tolist() == [2.0] * 3

    class Both(Doubled):
        @staticmethod
        def backward(ctx, g):
            return g, None
    with pytest.raises(RuntimeError, match="only implement one of them"):
        Both.apply(x * 1, "in place").sum().backward()


def test_a_jvp_of_a_function_in_place_writes_to_its_tangent():
    def function(along):
        class Doubles(fb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                made = x.mul_(2)
                ctx.mark_dirty(made)
                return made

            @staticmethod
            def jvp(ctx, v):
                return along(v)
        return Doubles
    for requires_grad in (True, False):
        with fw.dual_level():
            x, v = fb.ones((), requires_grad=requires_grad).clone(), fb.ones(())
            with pytest.raises(RuntimeError, match="jvp function must modify the corresponding gradient inplace"):
                function(lambda v: v).apply(fw.make_dual(x, v))
            dual = fw.make_dual(x, v)
            made = function(lambda v: v.mul_(2)).apply(dual)
            assert made is dual and fw.unpack_dual(made).tangent.item() == 2
