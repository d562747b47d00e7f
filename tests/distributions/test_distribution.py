"""What all distributions share: shapes, checks, expansion, repr; mixtures, transforms, constraints, divergences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch
import flambeau.distributions as D
from flambeau.distributions import constraints, transforms


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(2,\)\) of distribution Normal.* to satisfy the constraint "
                                         r"GreaterThan\(lower_bound=0.0\), but found invalid values"):
        D.Normal(t([0.0, 1.0]), t([1.0, -1.0]))
    D.Normal(t([0.0, 1.0]), t([1.0, -1.0]), validate_args=False)
    with pytest.raises(ValueError, match=r"to be within the support \(Boolean\(\)\) of the distribution Bernoulli"):
        D.Bernoulli(0.5).log_prob(torch.tensor(2.0))
    with pytest.raises(ValueError, match="must be a Tensor"):
        D.Normal(0.0, 1.0).log_prob(0.5)
    with pytest.raises(ValueError, match="not broadcastable"):
        D.Normal(t([0.0, 1.0]), t([1.0, 1.0])).log_prob(t([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="event_shape"):
        D.Dirichlet(t([1.0, 1.0])).log_prob(t([0.2, 0.3, 0.5]))
    with pytest.raises(ValueError, match="constraint LessThan"):
        D.Uniform(t(1.0), t(1.0))
    with pytest.raises(ValueError, match="instances of Number"):
        D.Normal("0", 1.0)
    with pytest.raises(NotImplementedError):
        D.Cauchy(0.0, 1.0).enumerate_support()


def test_the_default_of_checks() -> None:
    try:
        D.Distribution.set_default_validate_args(False)
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Distribution.set_default_validate_args("yes")


def test_shapes_and_expansion() -> None:
    d = D.Normal(torch.zeros(3, 1), torch.ones(2))
    assert d.batch_shape == (3, 2) and d.event_shape == () and d.sample((4, 5)).shape == (4, 5, 3, 2)
    e = d.expand((7, 3, 2))
    assert e.batch_shape == (7, 3, 2) and e.loc.data_ptr() == d.loc.data_ptr() and e.log_prob(torch.zeros(7, 3, 2)).shape == (7, 3, 2)
    i = D.Independent(e, 2)
    assert i.batch_shape == (7,) and i.event_shape == (3, 2) and i.log_prob(i.sample()).shape == (7,)
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(d) == "Normal(loc: torch.Size([3, 2]), scale: torch.Size([3, 2]))"

    class Mine(D.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)
    with pytest.raises(NotImplementedError, match="must also define a custom .expand"):
        Mine().expand((2,))


def test_a_distribution_of_the_users() -> None:
    class Flat(D.Distribution):
        arg_constraints = {}
        support = constraints.unit_interval

        def rsample(self, sample_shape=()):
            return torch.rand(tuple(self._extended_shape(sample_shape)))

        def log_prob(self, value):
            self._validate_sample(value)
            return torch.zeros_like(value)
    d = Flat((2,))
    assert d.sample((3,)).shape == (3, 2)
    with pytest.raises(ValueError, match="within the support"):
        d.log_prob(torch.tensor([0.5, 1.5]))


def test_enumerated_supports() -> None:
    assert D.Bernoulli(torch.full((2, 3), 0.5)).enumerate_support().shape == (2, 2, 3)
    assert D.Bernoulli(torch.full((2, 3), 0.5)).enumerate_support(expand=False).shape == (2, 1, 1)
    assert D.Categorical(torch.ones(4)).enumerate_support().tolist() == [0, 1, 2, 3]
    assert D.Binomial(3, t([0.5, 0.1])).enumerate_support().shape == (4, 2)
    assert torch.equal(D.OneHotCategorical(torch.ones(3)).enumerate_support(), torch.eye(3))
    d = D.Binomial(t([5.0, 2.0]), t([0.5, 0.1]))
    with pytest.raises(NotImplementedError, match="Inhomogeneous"):
        d.enumerate_support()
    p = D.Categorical(t([0.2, 0.3, 0.5]))
    assert float(p.log_prob(p.enumerate_support()).exp().sum()) == pytest.approx(1.0)


def test_policy_gradient_idiom() -> None:
    logits = torch.zeros(2, 4, requires_grad=True)
    d = D.Categorical(logits=logits)
    action = d.sample()
    loss = (-d.log_prob(action) * torch.tensor([1.0, 2.0])).sum() - 0.01 * d.entropy().mean()
    loss.backward()
    assert logits.grad.shape == (2, 4) and float(logits.grad.abs().sum()) > 0


# -------------------------------------------------------------------------------------------------------------- transforms
BIJECTIONS = [
    transforms.ExpTransform(), transforms.SigmoidTransform(), transforms.TanhTransform(), transforms.SoftplusTransform(), transforms.AffineTransform(1.0, -2.0),
    transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(0.0, 3.0)]),
    transforms.CumulativeDistributionTransform(D.Normal(t(0.0), t(1.0))),
    transforms.PowerTransform(t(1.7)),
]


@pytest.mark.parametrize("f", BIJECTIONS, ids=lambda f: type(f).__name__)
def test_a_map_of_numbers(f) -> None:
    x = t(np.linspace(0.1, 2.0, 9) if isinstance(f, transforms.PowerTransform) else np.linspace(-2, 2, 9)).requires_grad_()
    y = f(x)
    np.testing.assert_allclose(f.inv(y).detach().numpy(), x.detach().numpy(), rtol=1e-6, atol=1e-9)
    (slope,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(f.log_abs_det_jacobian(x, y).detach().numpy(), slope.abs().log().numpy(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(f.inv.log_abs_det_jacobian(y, x).detach().numpy(), -slope.abs().log().numpy(), rtol=1e-7, atol=1e-9)
    assert f.bijective and f.inv.inv is f and bool(f.codomain.check(y).all())
    assert int(f.sign) == int(slope.sign()[0])


@pytest.mark.parametrize(("f", "n"), [(transforms.StickBreakingTransform(), 4), (transforms.CorrCholeskyTransform(), 6)], ids=["stick", "corr"])
def test_a_map_of_vectors(f, n: int) -> None:
    rng = np.random.default_rng(1)
    x = t(rng.standard_normal(n))
    y = f(x)
    assert tuple(f.forward_shape(x.shape)) == tuple(y.shape) and tuple(f.inverse_shape(y.shape)) == (n,)
    np.testing.assert_allclose(f.inv(y).numpy(), x.numpy(), rtol=1e-8)
    assert bool(f.codomain.check(y))

    def free(v):
        z = f(v)
        return z[:-1] if n == 4 else z[torch.tril_indices(4, 4, -1)[0], torch.tril_indices(4, 4, -1)[1]]
    rows = []
    for i in range(n):
        v = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(free(v)[i], v)
        rows.append(g)
    want = float(torch.stack(rows).det().abs().log())
    assert float(f.log_abs_det_jacobian(x, y)) == pytest.approx(want, rel=1e-9)


def test_maps_of_parts() -> None:
    x = t(np.random.default_rng(0).standard_normal((2, 5)))
    cat = transforms.CatTransform([transforms.ExpTransform(), transforms.identity_transform], dim=-1, lengths=[2, 3])
    assert torch.equal(cat(x), torch.cat([x[:, :2].exp(), x[:, 2:]], -1))
    np.testing.assert_allclose(cat.inv(cat(x)).numpy(), x.numpy())
    assert torch.equal(cat.log_abs_det_jacobian(x, cat(x))[:, :2], x[:, :2])
    stack = transforms.StackTransform([transforms.ExpTransform(), transforms.TanhTransform()], dim=0)
    assert torch.equal(stack(x), torch.stack([x[0].exp(), x[1].tanh()]))
    shape = transforms.ReshapeTransform((2, 5), (10,))
    assert shape(x).shape == (10,) and shape.inv(shape(x)).shape == (2, 5)
    with pytest.raises(ValueError, match="different numbers"):
        transforms.ReshapeTransform((2,), (3,))


def test_the_cache_gives_the_very_tensor_back() -> None:
    f = transforms.TanhTransform(cache_size=1)
    x = t([30.0, -40.0])
    y = f(x)
    assert f.inv(y) is x and f(x) is y
    assert f.with_cache(0)._cache_size == 0 and f == transforms.TanhTransform()
    with pytest.raises(ValueError, match="0 or 1"):
        transforms.ExpTransform(cache_size=2)


def test_transformed_distributions() -> None:
    base = D.Normal(t(0.3), t(0.8))
    d = D.TransformedDistribution(base, [transforms.ExpTransform()])
    same = D.LogNormal(t(0.3), t(0.8))
    x = same.sample((5,))
    np.testing.assert_allclose(d.log_prob(x).numpy(), same.log_prob(x).numpy())
    falling = D.TransformedDistribution(base, transforms.AffineTransform(1.0, -2.0))
    want = D.Normal(t(1 - 0.6), t(1.6))
    np.testing.assert_allclose(falling.cdf(x).numpy(), want.cdf(x).numpy(), rtol=1e-9)
    np.testing.assert_allclose(falling.icdf(t([0.1, 0.9])).numpy(), want.icdf(t([0.1, 0.9])).numpy(), rtol=1e-9)
    np.testing.assert_allclose(falling.log_prob(x).numpy(), want.log_prob(x).numpy(), rtol=1e-9)
    wide = D.TransformedDistribution(base, transforms.AffineTransform(t([0.0, 1.0]), 1.0))
    assert wide.batch_shape == (2,) and wide.expand((3, 2)).sample().shape == (3, 2)
    event = D.TransformedDistribution(D.Normal(torch.zeros(3, 2), torch.ones(3, 2)), transforms.StickBreakingTransform())
    assert event.batch_shape == (3,) and event.event_shape == (3,)
    with pytest.raises(ValueError, match="Transform or list"):
        D.TransformedDistribution(base, "exp")


def test_squashed_policy_idiom() -> None:
    d = D.TransformedDistribution(D.Normal(torch.zeros(2), torch.ones(2)), [transforms.TanhTransform(cache_size=1)])
    x = d.rsample()
    assert bool(torch.isfinite(d.log_prob(x)).all())


def test_registries_reach_their_sets() -> None:
    rng = np.random.default_rng(0)
    for c, shape in ((constraints.positive, (4,)), (constraints.unit_interval, (4,)), (constraints.interval(-2.0, 3.0), (4,)),
        (constraints.greater_than(2.0), (4,)),
                     (constraints.less_than(-1.0), (4,)), (constraints.simplex, (4,)), (constraints.lower_cholesky, (3, 3)),
                     (constraints.positive_definite, (3, 3)),
                     (constraints.corr_cholesky, (6,)), (constraints.independent(constraints.positive, 1), (4,)), (constraints.real, (4,)),
                     (constraints.stack([constraints.positive, constraints.unit_interval], 0), (2, 3))):
        x = t(rng.standard_normal(shape))
        assert bool(c.check(D.transform_to(c)(x)).all()), c
        if type(c) not in (type(constraints.lower_cholesky), type(constraints.positive_definite)):
            f = D.biject_to(c)
            y = f(x)
            assert bool(c.check(y).all()) and f.bijective
            np.testing.assert_allclose(f.inv(y).numpy(), x.numpy(), rtol=1e-6, atol=1e-8)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(constraints.boolean)
    with pytest.raises(TypeError):
        D.biject_to.register("positive", lambda c: None)


def test_constraints_check_their_events() -> None:
    rows = [(constraints.boolean, [0.0, 1.0, 2.0], [True, True, False]), (constraints.positive, [0.0, 1.0, math.nan], [False, True, False]),
            (constraints.nonnegative_integer, [0.0, 1.5, -1.0], [True, False, False]), (constraints.half_open_interval(0.0, 1.0), [0.0, 1.0], [True, False]),
            (constraints.integer_interval(1, 3), [1.0, 2.5, 4.0], [True, False, False]), (constraints.real, [1.0, math.inf, math.nan], [True, True, False]),
            (constraints.simplex, [[0.2, 0.8], [0.5, 0.6], [-0.5, 1.5]], [True, False, False]), (constraints.one_hot, [[0.0, 1.0], [1.0, 1.0]], [True, False]),
            (constraints.lower_triangular, [[[1.0, 0.0], [2.0, 3.0]], [[1.0, 1.0], [2.0, 3.0]]], [True, False]),
            (constraints.positive_definite, [[[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]], [True, False]),
            (constraints.positive_definite, [[[2.0, 0.5], [0.4, 1.0]]], [False]), (constraints.multinomial(3), [[1.0, 2.0], [2.0, 2.0]], [True, False]),
            (constraints.positive_semidefinite, [[[1.0, 1.0], [1.0, 1.0]]], [True]), (constraints.square, [[[1.0, 2.0]]], [False])]
    for c, value, want in rows:
        assert c.check(t(value)).tolist() == want, c
    assert constraints.is_dependent(D.Uniform.support) and repr(D.Uniform.support) == "DependentProperty()"
    with pytest.raises(ValueError, match="Cannot determine validity"):
        constraints.dependent.check(t(0.0))


# ------------------------------------------------------------------------------------------------------------- divergences
def _pairs():
    rng = np.random.default_rng(4)
    one = [D.Normal(t(0.4), t(0.8)), D.Laplace(t(-0.3), t(0.9)), D.Gumbel(t(0.2), t(1.4))]
    half = [D.Gamma(t(2.5), t(1.3)), D.Exponential(t(0.8)), D.Gamma(t(1.2), t(0.7))]
    unit = [D.Beta(t(2.0), t(3.0)), D.Uniform(t(0.0), t(1.0)), D.ContinuousBernoulli(t(0.3)), D.Beta(t(1.5), t(1.2))]
    factor = np.tril(rng.standard_normal((3, 3))) * 0.3 + np.eye(3)
    vectors = [D.MultivariateNormal(t([0.1, 0.2, 0.3]), scale_tril=t(factor)), D.LowRankMultivariateNormal(t([0.0, 0.5, 0.1]),
        t(rng.standard_normal((3, 1))), t([0.5, 1.0, 0.7])),
               D.MultivariateNormal(t([0.4, 0.0, 0.3]), t(np.diag([1.0, 2.0, 0.5])))]
    others = [(D.Cauchy(t(0.0), t(1.0)), D.Cauchy(t(0.5), t(1.5))), (D.Pareto(t(1.5), t(4.0)), D.Pareto(t(1.0), t(3.0))), (D.Dirichlet(t([1.0, 2.0])),
        D.Dirichlet(t([2.0, 1.5]))),
              (D.Categorical(t([0.2, 0.8])), D.Categorical(t([0.5, 0.5]))), (D.Poisson(t(2.0)), D.Poisson(t(3.0))), (D.Geometric(t(0.4)), D.Geometric(t(0.3))),
              (D.Binomial(5, t(0.3)), D.Binomial(5, t(0.5))), (D.Bernoulli(t(0.3)), D.Poisson(t(0.8))), (D.HalfNormal(t(1.0)), D.HalfNormal(t(2.0))),
              (D.LogNormal(t(0.0), t(1.0)), D.LogNormal(t(0.3), t(1.5))), (D.Exponential(t(2.0)), D.Gumbel(t(0.5), t(1.0))), (D.Gamma(t(2.0), t(3.0)),
              D.Normal(t(0.5), t(1.0))),
              (D.Gamma(t(2.0), t(3.0)), D.Gumbel(t(0.3), t(0.7))), (D.Pareto(t(1.5), t(5.0)), D.Gamma(t(2.0), t(1.0))), (D.Pareto(t(1.5), t(5.0)),
              D.Exponential(t(1.0))),
              (D.Uniform(t(0.2), t(0.6)), D.Beta(t(2.0), t(1.5))), (D.Uniform(t(0.2), t(0.6)), D.Gumbel(t(0.1), t(0.8))), (D.Uniform(t(1.2), t(1.6)),
              D.Pareto(t(1.0), t(2.0))),
              (D.Beta(t(2.0), t(3.0)), D.Normal(t(0.5), t(1.0))), (D.Beta(t(2.0), t(3.0)), D.Gamma(t(1.5), t(1.0))), (D.Uniform(t(0.1), t(0.6)),
              D.Gamma(t(2.0), t(1.5))),
              (D.Chi2(t(3.0)), D.Gamma(t(2.0), t(1.0)))]
    return [(p, q) for group in (one, half, unit, vectors) for p in group for q in group
            if type(q) is not D.Uniform or type(p) is not D.Beta] + others


@pytest.mark.parametrize(("p", "q"), _pairs(), ids=lambda d: type(d).__name__)
def test_divergence_against_samples(p, q) -> None:
    torch.manual_seed(9)
    try:
        kl = D.kl_divergence(p, q)
    except NotImplementedError:
        assert {type(p), type(q)} <= {D.Laplace, D.Gumbel, D.Normal, D.Beta, D.Uniform, D.ContinuousBernoulli}
        return
    x = p.sample((60_000,))
    q = type(q)(*[getattr(q, n) for n in ("low", "high")], validate_args=False) if isinstance(q, D.Uniform) else q
    q._validate_args = False
    each = p.log_prob(x) - q.log_prob(x)
    error = float(each.std()) / math.sqrt(60_000)
    assert float(each.mean()) == pytest.approx(float(kl), abs=5 * error + 1e-9)


def test_divergence_outside_the_support_is_infinite() -> None:
    for p, q in ((D.Normal(0.0, 1.0), D.Gamma(torch.tensor(1.0), 1.0)), (D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0)), (D.Exponential(1.0), D.Beta(1.0, 1.0)),
                 (D.Pareto(torch.tensor(1.0), torch.tensor(1.0)), D.Pareto(torch.tensor(2.0), torch.tensor(1.0))), (D.Poisson(1.0), D.Bernoulli(0.5)),
                 (D.Categorical(torch.tensor([0.5, 0.5])), D.Categorical(torch.tensor([1.0, 0.0])))):
        assert float(D.kl_divergence(p, q)) == math.inf
    assert float(D.kl_divergence(D.Bernoulli(0.0), D.Bernoulli(0.5))) == pytest.approx(math.log(2))


def test_registering_a_divergence() -> None:
    class Odd(D.Normal):
        pass

    @D.register_kl(Odd, Odd)
    def odd(p, q):
        return torch.tensor(42.0)
    assert float(D.kl_divergence(Odd(0.0, 1.0), Odd(0.0, 1.0))) == 42.0
    assert float(D.kl_divergence(Odd(0.0, 1.0), D.Normal(0.0, 1.0))) == 0.0
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(1.0))
    with pytest.raises(TypeError):
        D.register_kl(3, D.Normal)


def test_families_by_their_normalizers() -> None:
    """The general forms for exponential families agree with the closed ones."""
    from flambeau.distributions.exp_family import ExponentialFamily
    from flambeau.distributions.kl_pairs import _family_family
    for p, q in ((D.Normal(t(0.4), t(0.8)), D.Normal(t(0.1), t(1.8))), (D.Gamma(t(2.5), t(1.3)), D.Gamma(t(1.5), t(0.3))), (D.Exponential(t(0.8)),
        D.Exponential(t(1.8))),
                 (D.Bernoulli(t(0.3)), D.Bernoulli(t(0.6))), (D.Poisson(t(0.3)), D.Poisson(t(0.6))), (D.Beta(t(2.5), t(1.3)), D.Beta(t(1.5), t(0.3))),
                 (D.Dirichlet(t([2.5, 1.3])), D.Dirichlet(t([1.5, 0.3])))):
        assert float(_family_family(p, q)) == pytest.approx(float(D.kl_divergence(p, q)), rel=1e-9)
    for p in (D.Normal(t(0.4), t(0.8)), D.Exponential(t(0.8)), D.Bernoulli(t(0.3)), D.Gamma(t(2.5), t(1.3))):
        assert float(ExponentialFamily.entropy(p)) == pytest.approx(float(p.entropy()), rel=1e-9)


def test_vectors_and_triangles() -> None:
    from flambeau.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
    x = t(np.arange(12.0).reshape(2, 6))
    m = vec_to_tril_matrix(x)
    assert m.shape == (2, 3, 3) and torch.equal(tril_matrix_to_vec(m), x) and float(m[0, 0, 1]) == 0
    assert vec_to_tril_matrix(x[:, :3], -1).shape == (2, 3, 3)
    with pytest.raises(ValueError, match="square"):
        vec_to_tril_matrix(x[:, :4])
    with pytest.raises(ValueError, match="outside"):
        tril_matrix_to_vec(m, 4)


def test_divergence_of_binomials_of_other_counts():
    few, many = (D.Binomial(n, torch.tensor(0.3)) for n in (5, 7))
    kl = D.kl_divergence
    assert kl(many, few).item() == float("inf")  # 6 and 7 cannot be had from 5
    with pytest.raises(NotImplementedError, match="total_count"):
        kl(few, many)
    p, q = (D.Binomial(5, torch.tensor(x, dtype=torch.float64)) for x in (0.3, 0.6))
    k = torch.arange(6, dtype=torch.float64)
    assert abs(kl(p, q).item() - (p.log_prob(k).exp() * (p.log_prob(k) - q.log_prob(k))).sum().item()) < 1e-12
