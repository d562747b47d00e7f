"""Samples: their distributions by Kolmogorov and Smirnov's test and by moments, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports scipy.stats, a second's work, when it is first asked for

import flambeau as torch
import flambeau.distributions as D


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


# the distribution, and SciPy's of the same, from scipy.stats: made in the test, so that collecting it is nothing
ROWS = [
    ("Normal", lambda s: (D.Normal(t(0.5), t(2.0)), s.norm(0.5, 2))), ("LogNormal", lambda s: (D.LogNormal(t(0.2), t(0.7)), s.lognorm(0.7, scale=np.exp(0.2)))),
    ("HalfNormal", lambda s: (D.HalfNormal(t(2.0)), s.halfnorm(0, 2))), ("Cauchy", lambda s: (D.Cauchy(t(1.0), t(2.0)), s.cauchy(1, 2))),
    ("HalfCauchy", lambda s: (D.HalfCauchy(t(2.0)), s.halfcauchy(0, 2))), ("Uniform", lambda s: (D.Uniform(t(-1.0), t(2.0)), s.uniform(-1, 3))),
    ("Laplace", lambda s: (D.Laplace(t(1.0), t(2.0)), s.laplace(1, 2))), ("Gumbel", lambda s: (D.Gumbel(t(1.0), t(2.0)), s.gumbel_r(1, 2))),
    ("Weibull", lambda s: (D.Weibull(t(2.0), t(0.8)), s.weibull_min(0.8, scale=2))), ("Pareto", lambda s: (D.Pareto(t(1.5), t(2.5)), s.pareto(2.5, scale=1.5))),
    ("Exponential", lambda s: (D.Exponential(t(3.0)), s.expon(scale=1 / 3))), ("Gamma", lambda s: (D.Gamma(t(0.3), t(2.0)), s.gamma(0.3, scale=0.5))),
    ("Gamma", lambda s: (D.Gamma(t(30.0), t(2.0)), s.gamma(30, scale=0.5))),
    ("InverseGamma", lambda s: (D.InverseGamma(t(3.0), t(2.0)), s.invgamma(3, scale=2))), ("Chi2", lambda s: (D.Chi2(t(3.0)), s.chi2(3))),
    ("StudentT", lambda s: (D.StudentT(t(4.0), t(1.0), t(2.0)), s.t(4, 1, 2))), ("FisherSnedecor", lambda s: (D.FisherSnedecor(t(4.0), t(7.0)), s.f(4, 7))),
    ("Beta", lambda s: (D.Beta(t(0.4), t(2.0)), s.beta(0.4, 2))), ("VonMises", lambda s: (D.VonMises(t(0.5), t(3.0)), s.vonmises(3, 0.5))),
    ("VonMises", lambda s: (D.VonMises(t(0.0), t(1e-7)), s.uniform(-np.pi, 2 * np.pi))),
    ("GeneralizedPareto", lambda s: (D.GeneralizedPareto(t(1.0), t(2.0), t(0.2)), s.genpareto(0.2, 1, 2))),
]


@pytest.mark.parametrize("pair", [r[1] for r in ROWS], ids=[r[0] + str(i) for i, r in enumerate(ROWS)])
def test_continuous_samples(pair) -> None:
    d, oracle = pair(scipy.stats)
    torch.manual_seed(7)
    x = d.sample((20_000,))
    assert x.shape == (20_000,) and x.dtype is torch.float64 and not x.requires_grad
    assert scipy.stats.kstest(x.numpy(), oracle.cdf).pvalue > 1e-3


DISCRETE = [
    ("Poisson", lambda s: (D.Poisson(t(3.5)), s.poisson(3.5))), ("Bernoulli", lambda s: (D.Bernoulli(t(0.3)), s.bernoulli(0.3))),
    ("Binomial", lambda s: (D.Binomial(9, t(0.3)), s.binom(9, 0.3))), ("Geometric", lambda s: (D.Geometric(t(0.3)), s.geom(0.3, loc=-1))),
    ("NegativeBinomial", lambda s: (D.NegativeBinomial(4, t(0.3)), s.nbinom(4, 0.7))),
    ("Categorical", lambda s: (D.Categorical(t([0.1, 0.2, 0.3, 0.4])), s.rv_discrete(values=(range(4), [0.1, 0.2, 0.3, 0.4])))),
]


@pytest.mark.parametrize("pair", [r[1] for r in DISCRETE], ids=[r[0] for r in DISCRETE])
def test_discrete_samples(pair) -> None:
    d, oracle = pair(scipy.stats)
    torch.manual_seed(3)
    x = d.sample((20_000,)).numpy()
    values, counts = np.unique(x, return_counts=True)
    wanted = oracle.pmf(values) * x.size
    keep = wanted > 5
    assert scipy.stats.chisquare(counts[keep], wanted[keep] * counts[keep].sum() / wanted[keep].sum()).pvalue > 1e-3


@pytest.mark.parametrize(("d", "dims"), [
    (D.MultivariateNormal(t([0.5, -1.0]), t([[2.0, 0.3], [0.3, 1.0]])), 1), (D.LowRankMultivariateNormal(t([0.5, -1.0]), t([[1.0], [0.3]]), t([0.5, 1.0])), 1),
    (D.Dirichlet(t([0.5, 2.0, 3.0])), 1), (D.Multinomial(6, t([0.2, 0.3, 0.5])), 1), (D.OneHotCategorical(t([0.2, 0.3, 0.5])), 1), (D.Wishart(t(5.0),
    t([[2.0, 0.3], [0.3, 1.0]])), 2),
    (D.MixtureSameFamily(D.Categorical(t([0.3, 0.7])), D.Independent(D.Normal(t([[0.0, 1.0], [2.0, 3.0]]), t([[1.0, 2.0], [0.5, 1.0]])), 1)), 1)],
    ids=lambda d: type(d).__name__)
def test_moments(d, dims: int) -> None:
    torch.manual_seed(5)
    n = 40_000
    x = d.sample((n,))
    assert x.shape == (n, *d.event_shape)
    np.testing.assert_allclose(x.mean(0).numpy(), d.mean.numpy(), atol=5 * float((d.variance.max() / n) ** 0.5))
    np.testing.assert_allclose(x.var(0).numpy(), d.variance.numpy(), rtol=0.08, atol=0.01)


def test_correlations_of_lkj() -> None:
    torch.manual_seed(1)
    d = D.LKJCholesky(3, t(1.5))
    factor = d.sample((20_000,))
    assert bool(D.constraints.corr_cholesky.check(factor).all())
    m = factor @ factor.mT
    # each correlation is 2 Beta(a, a) - 1 with a = concentration + (dim - 2) / 2
    for i, j in ((1, 0), (2, 0), (2, 1)):
        assert scipy.stats.kstest((m[:, i, j].numpy() + 1) / 2, scipy.stats.beta(2.0, 2.0).cdf).pvalue > 1e-3


# ------------------------------------------------------------------------------------------------------------- gradients
@pytest.mark.parametrize("a", [0.02, 0.3, 1.0, 7.0, 200.0, 3e5])
def test_gamma_samples_differentiate_at_their_rank(a: float) -> None:
    """A sample moves with its parameter as the quantile of its rank does."""
    torch.manual_seed(0)
    shape = t(np.full(50, a)).requires_grad_()
    x = torch._standard_gamma(shape)
    x.sum().backward()
    values = x.detach().numpy()
    keep = values > 1e-250
    h = a * 1e-4
    f = scipy.special.gammainc if a < 1e3 else lambda s, v: scipy.special.gammainc(s, v)

    def slope(s):
        return (8 * (f(s + h, values) - f(s - h, values)) - (f(s + 2 * h, values) - f(s - 2 * h, values))) / (12 * h)
    density = np.exp((a - 1) * np.log(values) - values - scipy.special.gammaln(a))
    rtol = 1e-5 if a < 1e5 else 2e-4  # a difference of two values near 1
    central = keep & (scipy.special.gammaincc(a, values) > 1e-4)
    np.testing.assert_allclose(shape.grad.numpy()[central], (-slope(a) / density)[central], rtol=rtol)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.5, 4.0), (3.0, 0.4), (30.0, 50.0), (1000.0, 2.0)])
def test_beta_samples_differentiate_at_their_rank(a: float, b: float) -> None:
    torch.manual_seed(0)
    a1, b1 = t(np.full(40, a)).requires_grad_(), t(np.full(40, b)).requires_grad_()
    x = D.Beta(a1, b1, validate_args=False).rsample()
    x.sum().backward()
    v = x.detach().numpy()
    keep = (v > 1e-8) & (v < 1 - 1e-6)
    h = 1e-4 * a, 1e-4 * b

    def five(f, s):
        return (8 * (f(s) - f(-s)) - (f(2 * s) - f(-2 * s))) / (12 * s)
    density = scipy.stats.beta.pdf(v, a, b)
    np.testing.assert_allclose(a1.grad.numpy()[keep], (-five(lambda e: scipy.special.betainc(a + e, b, v), h[0]) / density)[keep], rtol=1e-5)
    np.testing.assert_allclose(b1.grad.numpy()[keep], (-five(lambda e: scipy.special.betainc(a, b + e, v), h[1]) / density)[keep], rtol=1e-5)


def test_dirichlet_gradients_have_the_right_mean() -> None:
    """E[x_i] = a_i / sum(a): the mean of the samples' gradients is its gradient."""
    torch.manual_seed(2)
    a = t([0.7, 2.0, 3.5]).requires_grad_()
    n = 50_000
    x = torch._sample_dirichlet(a.expand(n, 3))
    (x * t([1.0, 2.0, -1.0])).sum(-1).mean().backward()
    exact = a.detach().clone().requires_grad_()
    ((exact / exact.sum()) * t([1.0, 2.0, -1.0])).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), exact.grad.numpy(), atol=0.01)


@pytest.mark.parametrize("make", [
    lambda p: D.Normal(p[0], p[1]), lambda p: D.Laplace(p[0], p[1]), lambda p: D.Gumbel(p[0], p[1]), lambda p: D.Gamma(p[0], p[1]), lambda p: D.Beta(p[0],
    p[1]),
    lambda p: D.Weibull(p[0], p[1]), lambda p: D.Uniform(p[0], p[0] + p[1]), lambda p: D.LogNormal(p[0], p[1]), lambda p: D.StudentT(p[0] + 2, p[1], p[0]),
    lambda p: D.InverseGamma(p[0] + 2, p[1]), lambda p: D.Kumaraswamy(p[0], p[1]), lambda p: D.FisherSnedecor(p[0] + 1, p[1] + 5)])
def test_log_prob_and_samples_have_gradients(make) -> None:
    p = t([0.7, 1.3]).requires_grad_()
    torch.manual_seed(0)
    x = make(p).rsample((4,))
    assert x.requires_grad
    (g,) = torch.autograd.grad(x.sum(), p)
    assert bool(torch.isfinite(g).all()) and float(g.abs().sum()) > 0
    torch.manual_seed(0)
    at = make(p.detach()).sample((4,))
    assert torch.autograd.gradcheck(lambda q: make(q).log_prob(at), (p,), atol=1e-5)


def test_relaxed_samples_have_gradients() -> None:
    logits = t([0.3, -0.2, 1.0]).requires_grad_()
    for d in (D.RelaxedOneHotCategorical(t(0.5), logits=logits), D.RelaxedBernoulli(t(0.5), logits=logits), D.OneHotCategoricalStraightThrough(logits=logits)):
        x = d.rsample((6,))
        (g,) = torch.autograd.grad((x * t([1.0, 2.0, 3.0])).sum(), logits)
        assert g.shape == (3,) and float(g.abs().sum()) > 0
    x = D.OneHotCategoricalStraightThrough(logits=logits).rsample((100,))
    assert set(np.unique(np.round(x.detach().numpy(), 9))) == {0.0, 1.0}


def test_small_concentrations_stay_on_the_simplex() -> None:
    x = D.Dirichlet(torch.full((200, 4), 1e-4)).sample()
    assert bool(torch.isfinite(x.log()).all())
    np.testing.assert_allclose(x.sum(-1).numpy(), 1.0, rtol=1e-5)


def test_the_seed_decides() -> None:
    for d in (D.Normal(0.0, 1.0), D.Gamma(t(0.5), t(1.0)), D.Beta(0.5, 0.5), D.Poisson(3.0), D.Binomial(5, t(0.5)), D.VonMises(t(0.0), t(1.0))):
        torch.manual_seed(11)
        first, second = d.sample((5,)), d.sample((5,))
        torch.manual_seed(11)
        assert torch.equal(first, d.sample((5,))) and not torch.equal(first, second)
