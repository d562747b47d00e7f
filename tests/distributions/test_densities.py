"""Densities, distribution functions, moments and entropies against SciPy, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # which imports scipy.stats, a second's work, when it is first asked for

import flambeau as torch
import flambeau.distributions as D

A, B = np.array([0.5, 1.5, 4.0]), np.array([2.0, 0.7, 5.0])


def t(x, device="cpu"):
    return torch.tensor(np.asarray(x, dtype=np.float64), device=device)


# the distribution's class and parameters, and SciPy's of the same, from scipy.stats
CONTINUOUS = [
    ("Normal", (A, B), lambda s: s.norm(A, B)), ("LogNormal", (A / 4, B / 5), lambda s: s.lognorm(B / 5, scale=np.exp(A / 4))),
    ("HalfNormal", (B,), lambda s: s.halfnorm(0, B)), ("HalfCauchy", (B,), lambda s: s.halfcauchy(0, B)), ("Cauchy", (A, B), lambda s: s.cauchy(A, B)),
    ("Uniform", (A, A + B), lambda s: s.uniform(A, B)), ("Laplace", (A, B), lambda s: s.laplace(A, B)), ("Gumbel", (A, B), lambda s: s.gumbel_r(A, B)),
    ("Weibull", (B, A), lambda s: s.weibull_min(A, scale=B)), ("Pareto", (B, A + 2), lambda s: s.pareto(A + 2, scale=B)),
    ("Exponential", (B,), lambda s: s.expon(scale=1 / B)),
    ("Gamma", (A, B), lambda s: s.gamma(A, scale=1 / B)), ("InverseGamma", (A + 2, B), lambda s: s.invgamma(A + 2, scale=B)),
    ("Chi2", (A,), lambda s: s.chi2(A)),
    ("StudentT", (A + 2, B, A), lambda s: s.t(A + 2, B, A)), ("FisherSnedecor", (A, B + 4), lambda s: s.f(A, B + 4)), ("Beta", (A, B), lambda s: s.beta(A, B)),
    ("GeneralizedPareto", (A, B, np.array([0.3, 0.0, -0.4])), lambda s: s.genpareto(np.array([0.3, 0.0, -0.4]), A, B)),
    ("VonMises", (A / 2, B), lambda s: s.vonmises(B, A / 2)),
]
DISCRETE = [
    ("Poisson", {"rate": B}, lambda s: s.poisson(B)), ("Bernoulli", {"probs": np.array([0.1, 0.5, 0.8])}, lambda s: s.bernoulli(np.array([0.1, 0.5, 0.8]))),
    ("Binomial", {"total_count": 7, "probs": np.array([0.1, 0.5, 0.8])}, lambda s: s.binom(7, np.array([0.1, 0.5, 0.8]))),
    ("Geometric", {"probs": np.array([0.1, 0.5, 0.8])}, lambda s: s.geom(np.array([0.1, 0.5, 0.8]), loc=-1)),
    ("NegativeBinomial", {"total_count": 4, "probs": np.array([0.1, 0.5, 0.8])}, lambda s: s.nbinom(4, 1 - np.array([0.1, 0.5, 0.8]))),
]
WITHOUT_CDF = {"StudentT", "FisherSnedecor", "Beta", "VonMises"}
WITHOUT_MOMENTS = {"Cauchy", "HalfCauchy", "VonMises"}


def _scalars(case):
    name, params, oracle = case
    return getattr(D, name)(*[t(p) for p in params]), oracle(scipy.stats)


@pytest.mark.parametrize("case", CONTINUOUS, ids=[c[0] for c in CONTINUOUS])
def test_continuous(case) -> None:
    name = case[0]
    d, oracle = _scalars(case)
    x = np.stack([oracle.ppf(q) for q in (0.02, 0.3, 0.5, 0.9, 0.999)])
    np.testing.assert_allclose(d.log_prob(t(x)).numpy(), oracle.logpdf(x), rtol=1e-9, atol=1e-10)
    if name not in WITHOUT_CDF:
        np.testing.assert_allclose(d.cdf(t(x)).numpy(), oracle.cdf(x), rtol=1e-8, atol=1e-10)
    if name not in WITHOUT_MOMENTS:
        np.testing.assert_allclose(d.mean.numpy(), oracle.mean(), rtol=1e-9)
        np.testing.assert_allclose(d.variance.numpy(), oracle.var(), rtol=1e-8)
        np.testing.assert_allclose(d.stddev.numpy(), oracle.std(), rtol=1e-8)
    if name not in ("VonMises", "FisherSnedecor"):
        np.testing.assert_allclose(d.entropy().numpy(), oracle.entropy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", [c for c in CONTINUOUS if c[0] not in WITHOUT_CDF | {"Gamma", "Chi2", "InverseGamma"}], ids=lambda c: c[0])
def test_inverse_distribution_function(case) -> None:
    d, oracle = _scalars(case)
    q = np.array([[0.01], [0.4], [0.5], [0.97]]) * np.ones(3)
    np.testing.assert_allclose(d.icdf(t(q)).numpy(), oracle.ppf(q), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", DISCRETE, ids=[c[0] for c in DISCRETE])
def test_discrete(case) -> None:
    name, params, oracle = case
    oracle = oracle(scipy.stats)
    d = getattr(D, name)(**{k: t(v) if isinstance(v, np.ndarray) else v for k, v in params.items()})
    x = np.arange(2 if name == "Bernoulli" else 8)[:, None] * np.ones(3)
    np.testing.assert_allclose(d.log_prob(t(x)).numpy(), oracle.logpmf(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(d.mean.numpy(), oracle.mean(), rtol=1e-9)
    np.testing.assert_allclose(d.variance.numpy(), oracle.var(), rtol=1e-8)
    if name in ("Bernoulli", "Binomial", "Geometric"):
        np.testing.assert_allclose(d.entropy().numpy(), oracle.entropy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["Bernoulli", "Geometric", "Categorical", "OneHotCategorical"])
def test_chances_and_log_odds_agree(name: str) -> None:
    p = t([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    by_probs = getattr(D, name)(probs=p)
    by_logits = getattr(D, name)(logits=by_probs.logits)
    np.testing.assert_allclose(by_logits.probs.numpy(), p.numpy(), rtol=1e-12)
    x = by_probs.sample((20,))
    np.testing.assert_allclose(by_logits.log_prob(x).numpy(), by_probs.log_prob(x).numpy(), rtol=1e-9)
    with pytest.raises(ValueError, match="not both"):
        getattr(D, name)(probs=p, logits=p)
    with pytest.raises(ValueError, match="not both"):
        getattr(D, name)()


def test_vectors_against_scipy() -> None:
    rng = np.random.default_rng(0)
    factor = np.tril(rng.standard_normal((4, 4))) * 0.4 + np.eye(4)
    cov, loc, x = factor @ factor.T, rng.standard_normal(4), rng.standard_normal((6, 4))
    oracle = scipy.stats.multivariate_normal(loc, cov)
    for form in ({"covariance_matrix": t(cov)}, {"precision_matrix": t(np.linalg.inv(cov))}, {"scale_tril": t(np.linalg.cholesky(cov))}):
        d = D.MultivariateNormal(t(loc), **form)
        np.testing.assert_allclose(d.log_prob(t(x)).numpy(), oracle.logpdf(x), rtol=1e-8)
        np.testing.assert_allclose(d.entropy().numpy(), oracle.entropy(), rtol=1e-9)
        np.testing.assert_allclose(d.covariance_matrix.numpy(), cov, rtol=1e-8)
        np.testing.assert_allclose(d.precision_matrix.numpy(), np.linalg.inv(cov), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(d.variance.numpy(), np.diag(cov), rtol=1e-9)
    w, diagonal = rng.standard_normal((4, 2)), rng.uniform(0.5, 2, 4)
    low = D.LowRankMultivariateNormal(t(loc), t(w), t(diagonal))
    whole = scipy.stats.multivariate_normal(loc, w @ w.T + np.diag(diagonal))
    np.testing.assert_allclose(low.log_prob(t(x)).numpy(), whole.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(low.entropy().numpy(), whole.entropy(), rtol=1e-9)
    np.testing.assert_allclose((low.scale_tril @ low.scale_tril.mT).numpy(), w @ w.T + np.diag(diagonal), rtol=1e-9)
    np.testing.assert_allclose(low.precision_matrix.numpy(), np.linalg.inv(w @ w.T + np.diag(diagonal)), rtol=1e-8, atol=1e-10)
    wishart = D.Wishart(t(6.5), covariance_matrix=t(cov))
    at = cov * 3 + np.eye(4)
    np.testing.assert_allclose(wishart.log_prob(t(at)).numpy(), scipy.stats.wishart(6.5, cov).logpdf(at), rtol=1e-9)
    np.testing.assert_allclose(wishart.entropy().numpy(), scipy.stats.wishart(6.5, cov).entropy(), rtol=1e-9)
    concentration, point = np.array([0.5, 2.0, 3.5]), np.array([0.2, 0.3, 0.5])
    dirichlet = D.Dirichlet(t(concentration))
    np.testing.assert_allclose(dirichlet.log_prob(t(point)).numpy(), scipy.stats.dirichlet(concentration).logpdf(point), rtol=1e-10)
    np.testing.assert_allclose(dirichlet.entropy().numpy(), scipy.stats.dirichlet(concentration).entropy(), rtol=1e-10)
    np.testing.assert_allclose(dirichlet.variance.numpy(), scipy.stats.dirichlet(concentration).var(), rtol=1e-10)
    counts, p = np.array([1.0, 4.0, 2.0]), np.array([0.2, 0.5, 0.3])
    multinomial = D.Multinomial(7, t(p))
    np.testing.assert_allclose(multinomial.log_prob(t(counts)).numpy(), scipy.stats.multinomial(7, p).logpmf(counts), rtol=1e-10)
    np.testing.assert_allclose(multinomial.entropy().numpy(), scipy.stats.multinomial(7, p).entropy(), rtol=1e-9)


@pytest.mark.parametrize(("d", "low", "high"), [
    (D.Kumaraswamy(t(1.5), t(3.0)), 0, 1), (D.ContinuousBernoulli(t(0.3)), 0, 1), (D.ContinuousBernoulli(t(0.5)), 0, 1),
    (D.RelaxedBernoulli(t(0.7), t(0.3)), 0, 1), (D.HalfNormal(t(2.0)), 0, 30), (D.VonMises(t(0.5), t(3.0)), -math.pi, math.pi),
    (D.MixtureSameFamily(D.Categorical(t([0.3, 0.7])), D.Normal(t([-1.0, 2.0]), t([0.5, 1.0]))), -12, 14)],
    ids=lambda d: type(d).__name__ if isinstance(d, D.Distribution) else None)
def test_densities_integrate_to_one(d, low: float, high: float) -> None:
    n = 200_000
    x = t(low + (np.arange(n) + 0.5) * (high - low) / n)
    mass = d.log_prob(x).exp() * ((high - low) / n)
    assert float(mass.sum()) == pytest.approx(1.0, abs=2e-4)
    if type(d).__name__ not in ("RelaxedBernoulli", "VonMises"):
        assert float((mass * x).sum()) == pytest.approx(float(d.mean), abs=1e-3)
        assert float((mass * (x - d.mean) ** 2).sum()) == pytest.approx(float(d.variance), rel=2e-3)
    if type(d).__name__ in ("Kumaraswamy", "ContinuousBernoulli", "HalfNormal"):
        assert float(-(mass * d.log_prob(x)).sum()) == pytest.approx(float(d.entropy()), abs=2e-3)
    if type(d).__name__ in ("Kumaraswamy", "ContinuousBernoulli", "HalfNormal", "MixtureSameFamily"):
        cut = n // 3
        assert float(mass[:cut + 1].sum()) == pytest.approx(float(d.cdf(x[cut])), abs=1e-4)


def test_the_mode_has_the_highest_density() -> None:
    for d in (D.Kumaraswamy(t(1.5), t(3.0)), D.Beta(t(2.0), t(3.0)), D.Gamma(t(2.5), t(3.0)), D.Weibull(t(2.0), t(1.7)), D.LogNormal(t(0.3), t(0.6)),
              D.FisherSnedecor(t(5.0), t(6.0)), D.InverseGamma(t(2.0), t(3.0)), D.Gumbel(t(0.2), t(0.4)), D.Pareto(t(1.0), t(2.0))):
        x = torch.linspace(0.001, 5, 4001, dtype=torch.float64)
        x = x[d.support.check(x)]
        best = x[d.log_prob(x).argmax()]
        assert abs(float(best - d.mode)) < 3e-3, type(d).__name__


def test_on_every_device(device: str) -> None:
    d = D.Normal(t([0.0, 1.0], device), 2.0)
    assert d.sample((3,)).device.type == device.split(":")[0]
    np.testing.assert_allclose(d.log_prob(t([0.5, 0.5], device)).cpu().numpy(), scipy.stats.norm([0, 1], 2).logpdf(0.5))
    g = D.Gamma(t([0.4, 3.0], device).requires_grad_(), t(2.0, device))
    x = g.rsample((5,))
    x.sum().backward()
    assert x.shape == (5, 2) and bool((x > 0).all()) and g.concentration.grad is not None  # itself, as it had the shape
    b = D.Beta(t([0.4, 3.0], device), t(2.0, device)).sample((1000,))
    assert b.device.type == device.split(":")[0] and 0 < float(b.mean()) < 1
    assert float(D.VonMises(t(0.0, device), t(4.0, device)).sample((50,)).abs().max()) <= math.pi
