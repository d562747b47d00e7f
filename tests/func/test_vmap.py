"""`vmap` runs a function once, for the whole batch; what it cannot do at once it does example by example, or refuses."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.func import batching, grad, hessian, jacfwd, jacrev, vmap

X = np.random.default_rng(0).standard_normal((5, 3, 4))


@pytest.fixture
def looped(monkeypatch):
    """The operations that were done example by example."""
    seen = []
    by_examples = batching.by_examples
    monkeypatch.setattr(batching, "by_examples", lambda level, func, *rest: seen.append(func.__name__) or by_examples(level, func, *rest))
    return seen


def test_runs_once_on_what_looks_like_an_example(looped):
    calls = []

    def f(x):
        calls.append((tuple(x.shape), x.ndim, len(x), x.dtype, x.requires_grad, isinstance(x, torch.Tensor)))
        return (x.T @ x).softmax(-1).sum(0)
    found = vmap(f)(torch.tensor(X))
    gram = np.einsum("bij,bik->bjk", X, X)
    weights = np.exp(gram - gram.max(-1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), (weights / weights.sum(-1, keepdims=True)).sum(1), rtol=1e-10)
    assert calls == [((3, 4), 2, 3, torch.float64, False, True)] and looped == []


def test_operations_without_a_rule_go_one_by_one(looped):
    x = torch.tensor(X @ X.transpose(0, 2, 1))
    found = vmap(lambda a: torch.linalg.lstsq(a, a)[0])(x)
    np.testing.assert_allclose(found.numpy(), np.broadcast_to(np.eye(3), (5, 3, 3)), atol=1e-6)
    assert looped


def test_branches_on_values_are_refused():
    x = torch.tensor(X)
    for f in (lambda a: a if a.sum() > 0 else -a, lambda a: a * a.sum().item(), lambda a: a[a > 0], lambda a: torch.nonzero(a), lambda a: a.numpy()):
        with pytest.raises(RuntimeError, match="^vmap: "):
            vmap(f)(x)


def test_what_all_share_is_not_written_to():
    shared = torch.zeros(3, 4)
    for f in (lambda a: shared.add_(a), lambda a: shared.__setitem__(0, a[0])):
        with pytest.raises(RuntimeError, match="share"):
            vmap(f)(torch.tensor(X).float())
    assert float(shared.abs().sum()) == 0


def test_derivatives_within(looped):
    w, x = torch.tensor(X[0, 0]), torch.tensor(X[:, 0])
    each = vmap(grad(lambda w, x: (w * x).sum() ** 3), in_dims=(None, 0))(w, x)
    np.testing.assert_allclose(each.numpy(), 3 * (x @ w).square()[:, None].numpy() * x.numpy(), rtol=1e-10)
    np.testing.assert_allclose(vmap(jacrev(lambda v: v ** 2))(x).numpy(), np.stack([np.diag(2 * r) for r in x.numpy()]), rtol=1e-12)
    np.testing.assert_allclose(vmap(hessian(lambda v: (v ** 3).sum()))(x).numpy(), np.stack([np.diag(6 * r) for r in x.numpy()]), rtol=1e-12)
    np.testing.assert_allclose(jacfwd(vmap(lambda v: v.sum() * v))(x).shape, (5, 4, 5, 4))
    assert looped == []


def test_a_jacobian_is_one_batch():
    calls = []

    def f(v):
        calls.append(0)
        return (v.sin().outer(v)).flatten()
    v = torch.tensor(X[0, 0])
    assert jacrev(f)(v).shape == (16, 4) and len(calls) == 2
    branching = jacrev(lambda v: v * 2 if float(v.sum()) > 1e9 else v ** 2)(v)
    np.testing.assert_allclose(branching.numpy(), np.diag(2 * X[0, 0]))


def test_on_a_simulated_gpu(looped, sim_gpus):
    x = torch.tensor(X, device="cuda")
    found = vmap(grad(lambda a: (a.exp() * a).mean()))(x)
    assert found.device.type == "cuda" and looped == []
    np.testing.assert_allclose(found.cpu().numpy(), np.exp(X) * (1 + X) / 12, rtol=1e-10)
    different = vmap(lambda a: a * 0 + torch.rand(4, device="cuda", dtype=torch.float64), randomness="different")(x)
    assert not torch.equal(different[0], different[1])


def test_an_example_shows_itself():
    seen = []
    vmap(lambda a: seen.append((repr(a), f"{a}")) or a)(torch.zeros(2, 1))
    assert all("Batched" in text for text in seen[0])


def test_ensembles_and_chunks():
    from flambeau import nn
    models = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)
    x = torch.randn(6, 4)
    for size in (None, 1, 2):
        out = vmap(lambda p, b: torch.func.functional_call(models[0], (p, b), (x,)), chunk_size=size)(params, buffers)
        assert out.shape == (3, 6, 2)
        for i, m in enumerate(models):
            np.testing.assert_allclose(out[i].detach().numpy(), m(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    out.sum().backward()
    assert params["0.weight"].grad.shape == (3, 8, 4)


def test_an_example_has_no_memory_of_its_own():
    def f(x):
        for name in ("ptr", "store", "base"):
            with pytest.raises(AttributeError):
                getattr(x, name)
        with pytest.raises(AttributeError):
            _ = x.meta.strides
        return x
    vmap(f)(torch.ones(2, 3))
    for kind in (batching.Batched, batching._Layout):
        assert not {"ptr", "store", "base", "strides"} & vars(kind).keys()  # slots that are empty, no properties that raise


@pytest.mark.parametrize("f", [
    lambda x: torch.rot90(x), lambda x: torch.inner(x, x), lambda x: torch.tensordot(x, x, 2), lambda x: torch.frexp(x)[0], lambda x: x.sum().cummax(0)[0],
    lambda x: x.sum().max(0)[0], lambda x: x.sum().argmin(), lambda x: x.sum().prod(0), lambda x: x.sum().logcumsumexp(0), lambda x: (x > 0).all().any(0),
    lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x @ x.T + 3), x), lambda x: torch.cov(x), lambda x: torch.searchsorted(x[0].sort()[0], x[1]),
    lambda x: torch.index_reduce(x, 0, torch.tensor([0, 2]), x[:2], "amax"), lambda x: torch.gradient(x)[0], lambda x: torch.pairwise_distance(x, x + 1),
    lambda x: torch.cdist(x, x + 1), lambda x: x.sum_to_size(1, 4), lambda x: torch.trapezoid(x), lambda x: torch.linalg.pinv(x)],
    ids="""rot90 inner tensordot frexp cummax max argmin prod logcumsumexp all lu_solve cov searchsorted index_reduce gradient pairwise_distance cdist
 sum_to_size trapezoid pinv""".split())
def test_what_looks_into_memory_is_done_example_by_example(f):
    x = torch.tensor(X)
    want = torch.stack([f(e) for e in x])
    np.testing.assert_allclose(vmap(f)(x).numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("f", [
    lambda x: torch.trace(x), lambda x: torch.meshgrid(x[0], x[1, :2], indexing="xy")[1], lambda x: torch.atleast_3d(x), lambda x: torch.hstack([x, x]),
    lambda x: torch.kron(x, x[:2]), lambda x: torch.fliplr(x), lambda x: torch.linalg.vecdot(x, x + 1), lambda x: torch.dist(x, x + 1),
    lambda x: torch.vdot(x[0], x[1]),
    lambda x: torch.block_diag(x, x), lambda x: torch.diag(x), lambda x: torch.linalg.cross(x[:, :3], x[:, 1:]), lambda x: x.ravel()],
    ids="trace meshgrid atleast_3d hstack kron fliplr vecdot dist vdot block_diag diag cross ravel".split())
def test_what_is_made_of_other_operations_is_done_at_once(f, looped):
    x = torch.tensor(X)
    want = torch.stack([f(e) for e in x])
    np.testing.assert_allclose(vmap(f)(x).numpy(), want.numpy(), rtol=1e-9, atol=1e-12)
    assert looped == []


class Pair:
    """A container that programs register as a tree."""

    def __init__(self, x, y):
        self.x, self.y = x, y


@pytest.fixture
def pairs():
    from flambeau.utils import _pytree
    _pytree.register_pytree_node(Pair, lambda p: ([p.x, p.y], "kept"), lambda kids, kept: Pair(*kids))
    yield Pair(torch.tensor(X[0]), torch.tensor(X[1]))
    _pytree._deregister_pytree_node(Pair)


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_registered_containers_are_arguments_and_results(pairs, chunk):
    made = vmap(lambda p: Pair(p.x.sum(), p.y * 2), chunk_size=chunk)(pairs)
    assert isinstance(made, Pair)
    np.testing.assert_allclose(made.x, X[0].sum(1))
    np.testing.assert_allclose(made.y, X[1] * 2)
    apart = vmap(lambda p: Pair(p.x + p.y, p.y), in_dims=(Pair(1, None),), out_dims=Pair(1, None))(Pair(pairs.x, torch.tensor(X[2, :, 0])))
    np.testing.assert_allclose(apart.x, X[0] + X[2, :, :1])
    assert apart.y.shape == (3,)
    slope = grad(lambda p: (p.x * p.y).sum())(pairs)
    np.testing.assert_allclose(slope.x, X[1])
    np.testing.assert_allclose(slope.y, X[0])
    np.testing.assert_allclose(torch.func.jvp(lambda p: p.x * p.y, (pairs,), (pairs,))[1], 2 * X[0] * X[1])


def test_the_three_steps_are_those_that_libraries_replace(monkeypatch):
    from flambeau._functorch import vmap as steps
    assert steps.vmap is vmap

    class Box:
        """No tree: what it holds is batched by the library's own steps."""

        def __init__(self, x):
            self.x = x

    looked, made, taken = steps._process_batched_inputs, steps._create_batched_inputs, steps._unwrap_batched
    monkeypatch.setattr(steps, "_process_batched_inputs", lambda dims, args, func: looked(dims, tuple(a.x for a in args), func))
    monkeypatch.setattr(steps, "_create_batched_inputs", lambda *args: [Box(x) for x in made(*args)])
    monkeypatch.setattr(steps, "_unwrap_batched", lambda out, *args: Box(taken(out.x, *args)))
    found = vmap(lambda a: Box(a.x @ a.x.T))(Box(torch.tensor(X)))
    np.testing.assert_allclose(found.x, X @ X.transpose(0, 2, 1))


def test_levels_by_number():
    from flambeau._C import _functorch as core
    x = torch.tensor(X)
    level = core._vmap_increment_nesting(5, "error")
    try:
        one = core._add_batch_dim(x, 0, level)
        inner = core._vmap_increment_nesting(4, "error")
        assert (level, inner) == (1, 2)
        two = core._add_batch_dim(one, 1, inner)
        assert one.shape == (3, 4) and two.shape == (3,) and core.is_batchedtensor(two) and not core.is_batchedtensor(x)
        assert core.maybe_get_level(two) == 2 and core.maybe_get_bdim(two) == 0 and core.get_unwrapped(core.get_unwrapped(two)).shape == (5, 4, 3)
        back = core._remove_batch_dim(two.sum(), inner, 4, 0)
        assert core._vmap_decrement_nesting() == 2
        np.testing.assert_allclose(core._remove_batch_dim(back, level, 5, 1), X.sum(1).T)
        same = core._remove_batch_dim(torch.ones(2), level, 5, 0)
        assert same.shape == (5, 2)
    finally:
        assert core._vmap_decrement_nesting() == 1
    assert core.maybe_get_level(x) == -1 and core.get_unwrapped(x) is x


def test_a_debugger_sees_the_whole_batch() -> None:
    x, seen = torch.arange(6.0).reshape(2, 3), []

    def f(row):
        seen.append(torch.func.debug_unwrap(row).tolist())

        def g(y):
            seen.extend([torch.func.debug_unwrap(y).shape, torch.func.debug_unwrap(y, recurse=False).shape])
            return y
        return vmap(g)(row)
    vmap(f)(x)
    assert seen[0] == x.tolist() and torch.func.debug_unwrap(x) is x
    assert seen[1] == (3, 2) or seen[1] == (2, 3)
    assert seen[2] == (3,)
    with pytest.raises(TypeError):
        torch.func.debug_unwrap(3)


def test_a_functionalized_function_does_the_same() -> None:
    def f(x):
        y = x * 2
        y.add_(1)
        return x.add_(y)
    x = torch.ones(2)
    assert torch.func.functionalize(f, remove="mutations_and_views")(x) is x and x.tolist() == [4, 4]
    assert torch.func.functionalize(f).__name__ == "f"
    with pytest.raises(RuntimeError, match="invalid argument for remove"):
        torch.func.functionalize(f, remove="all")


CALLS = {
    "std of all, by its first place": (lambda a: a.std(True), (4, 2, 3)), "variance and mean": (lambda a: torch.var_mean(a, False)[0], (4, 2, 3)),
    "adjoint": (lambda a: a.H, (4, 2, 3)), "copies of rows": (lambda a: torch.unbind_copy(a, 1)[2], (4, 2, 3)),
    "diagonals among the first axes": (lambda a: torch.diag_embed(a, 1, 2, 0), (4, 2, 3)),
    "diagonals of vectors": (lambda a: torch.diag_embed(a, 0, 1, 0), (4, 3)),
    "strides": (lambda a: a.as_strided((2, 2), (1, 1)), (4, 2, 3)), "strides, copied": (lambda a: torch.as_strided_copy(a, (2, 2), (3, 1)), (4, 2, 3)),
    "lists that lie apart": (lambda a: a[[0, 1], None, [0, 2]], (4, 2, 3)), "a list": (lambda a: a[[1, 0]], (4, 2, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_is_its_examples_one_by_one(name):
    function, shape = CALLS[name]
    x = torch.arange(float(np.prod(shape))).reshape(shape) ** 2
    want = np.stack([function(row).numpy() for row in x])
    np.testing.assert_allclose(torch.vmap(function)(x).numpy(), want, rtol=1e-6)
    apart = torch.vmap(function, in_dims=1)(x.movedim(0, 1))
    np.testing.assert_allclose(apart.numpy(), want, rtol=1e-6)


def test_an_offset_of_strides_is_that_of_the_first_example():
    """Of each example's own memory it would be the same elements for all."""
    x = torch.arange(24.0).reshape(4, 6)
    for function in (torch.as_strided, torch.as_strided_copy):
        found = vmap(lambda a, f=function: f(a, (2, 2), (1, 2), 1))(x)
        assert found.tolist() == [[[6 * i + 1, 6 * i + 3], [6 * i + 2, 6 * i + 4]] for i in range(4)]
