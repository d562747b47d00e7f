"""Distributions beside PyTorch's: same moments, densities, supports, printed forms, divergences, transforms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau
import flambeau.distributions as D

torch = pytest.importorskip("torch")
TD = torch.distributions

A, B, P = [0.5, 1.5], [1.5, 3.0], [[0.2, 0.7, 0.4], [1.0, 1.0, 2.0]]
COV = [[2.0, 0.3], [0.3, 1.0]]
CASES = [
    ("Normal", (A, B), {}), ("Normal", (0.0, 1.0), {}), ("LogNormal", (A, B), {}), ("HalfNormal", (B,), {}), ("HalfCauchy", (B,), {}), ("Cauchy", (A, B), {}),
    ("Uniform", (A, B), {}), ("Laplace", (A, B), {}), ("Gumbel", (A, B), {}), ("Weibull", (A, B), {}), ("Pareto", (A, B), {}), ("Kumaraswamy", (A, B), {}),
    ("VonMises", (A, B), {}), ("Exponential", (A,), {}), ("Gamma", (A, B), {}), ("InverseGamma", (A, B), {}), ("Chi2", (A,), {}), ("StudentT", (B, A, B), {}),
    ("FisherSnedecor", (A, [3.0, 7.0]), {}), ("Beta", (A, B), {}), ("Dirichlet", (P,), {}), ("Poisson", (A,), {}), ("LogisticNormal", (A, B), {}),
    ("MultivariateNormal", (A, COV), {}), ("LowRankMultivariateNormal", (A, [[2.0], [0.3]], B), {}), ("GeneralizedPareto", (A, B, [0.1, 0.0]), {}),
    ("Bernoulli", (), {"probs": [0.2, 0.7]}), ("Bernoulli", (), {"logits": A}), ("Geometric", (), {"probs": [0.2, 0.7]}), ("Binomial", (4,),
    {"probs": [0.2, 0.7]}),
    ("Binomial", (4,), {"logits": A}), ("NegativeBinomial", (4.0,), {"probs": [0.2, 0.7]}), ("Categorical", (), {"probs": P}), ("Categorical", (),
    {"logits": P}),
    ("OneHotCategorical", (), {"probs": P}), ("OneHotCategoricalStraightThrough", (), {"logits": P}), ("Multinomial", (5,), {"probs": P}),
    ("RelaxedBernoulli", (0.5,), {"probs": [0.2, 0.7]}), ("RelaxedOneHotCategorical", (0.5,), {"probs": P}), ("ContinuousBernoulli", (), {"probs": [0.2, 0.5]}),
    ("LKJCholesky", (3, A), {}), ("Wishart", (4.0, COV), {}),
]


def _made(mod, ns, case):
    name, args, kwargs = case

    def give(x):
        return mod.tensor(x) if isinstance(x, list) or (isinstance(x, float) and name.startswith("Relaxed")) else x
    return getattr(ns, name)(*map(give, args), **{k: give(v) for k, v in kwargs.items()})


def _result(f, *args):
    try:
        return f(*args)
    except Exception as error:  # the kind of error must be the same
        return type(error).__name__


def _same(mine, theirs, what):
    if hasattr(theirs, "detach"):
        assert hasattr(mine, "detach"), (what, mine)
        assert str(mine.dtype) == str(theirs.dtype) and tuple(mine.shape) == tuple(theirs.shape), (what, mine, theirs)
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=what)
    else:
        assert repr(mine) == repr(theirs), what


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0] + "-".join(c[2]))
def test_each(case) -> None:
    mine, theirs = _made(flambeau, D, case), _made(torch, TD, case)
    skip = {"mode"} if case[0] == "Kumaraswamy" else set()  # PyTorch's is NaN where the formula has a value
    for what in {"mean", "mode", "variance", "stddev", "batch_shape", "event_shape", "support", "has_rsample", "has_enumerate_support",
                 "arg_constraints"} - skip:
        _same(_result(getattr, mine, what), _result(getattr, theirs, what), what)
    torch.manual_seed(0)
    theirs_x = theirs.sample((4,))
    x = flambeau.tensor(theirs_x.numpy())
    for what in ("log_prob", "cdf"):
        _same(_result(lambda o, name: getattr(o, name)(x), mine, what), _result(lambda o, name: getattr(o, name)(theirs_x), theirs, what), what)
    if not theirs.event_shape:
        u = torch.rand(4, *theirs.batch_shape)
        _same(_result(lambda: mine.icdf(flambeau.tensor(u.numpy()))), _result(lambda: theirs.icdf(u)), "icdf")
    for what in ("entropy", "enumerate_support", "__repr__"):
        _same(_result(lambda o, name: getattr(o, name)(), mine, what), _result(lambda o, name: getattr(o, name)(), theirs, what), what)
    wide = (5, *theirs.batch_shape)
    _same(mine.expand(wide).log_prob(x[:1]), theirs.expand(wide).log_prob(theirs_x[:1]), "expand")
    sample = mine.sample((3, 2))
    assert tuple(sample.shape) == tuple(theirs.sample((3, 2)).shape) and str(sample.dtype) == str(theirs_x.dtype)
    assert bool(mine.support.check(sample).all())


def _divergence_cases(mod, ns):
    t = mod.tensor
    return [ns.Bernoulli(t([0.3, 0.8])), ns.Beta(t(A), t(B)), ns.Beta(t(B), t(A)), ns.Binomial(4, t([0.3, 0.8])), ns.Categorical(t([[0.3, 0.7], [0.2, 0.8]])),
            ns.Cauchy(t(A), t(B)), ns.Cauchy(t(B), t(A)), ns.ContinuousBernoulli(t([0.3, 0.8])), ns.ContinuousBernoulli(t([0.5, 0.1])), ns.Dirichlet(t([A, B])),
            ns.Dirichlet(t([B, A])), ns.Exponential(t(A)), ns.Exponential(t(B)), ns.Gamma(t(A), t(B)), ns.Gamma(t(B), t(A)), ns.Geometric(t([0.3, 0.8])),
            ns.Gumbel(t(A), t(B)), ns.Gumbel(t(B), t(A)), ns.HalfNormal(t(A)), ns.HalfNormal(t(B)), ns.Laplace(t(A), t(B)), ns.Laplace(t(B), t(A)),
            ns.Normal(t(A), t(B)),
            ns.Normal(t(B), t(A)), ns.Pareto(t(A), t(B)), ns.Pareto(t([0.2, 1.0]), t([2.5, 3.5])), ns.Poisson(t(A)), ns.Poisson(t(B)),
            ns.Uniform(t([0.2, 0.3]), t([0.5, 0.8])),
            ns.Uniform(t([0.1, -0.3]), t([0.6, 0.9])), ns.LogNormal(t(A), t(B)), ns.LogNormal(t(B), t(A)), ns.Independent(ns.Normal(t(A), t(B)), 1),
            ns.Chi2(t(A)),
            ns.MultivariateNormal(t(A), t(COV)), ns.MultivariateNormal(t(B), precision_matrix=t(COV)), ns.LowRankMultivariateNormal(t(A), t([[2.0], [0.3]]),
            t(B)),
            ns.LowRankMultivariateNormal(t(B), t([[1.0], [0.3]]), t(A)), ns.StudentT(t(B))]


@pytest.mark.filterwarnings("ignore")
def test_every_divergence() -> None:
    pairs = list(zip(_divergence_cases(flambeau, D), _divergence_cases(torch, TD), strict=True))
    found = 0
    for (p, tp), (q, tq) in itertools.product(pairs, repeat=2):
        mine, theirs = _result(D.kl_divergence, p, q), _result(TD.kl_divergence, tp, tq)
        if isinstance(theirs, str) or isinstance(mine, str):
            assert mine == theirs, (p, q)
            continue
        found += 1
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=2e-3, atol=1e-5, err_msg=f"{p} {q}")
    assert found > 250


def _transforms(mod, ns):
    t = mod.tensor
    return [ns.AbsTransform(), ns.AffineTransform(1.0, t([2.0, -3.0, 1.0])), ns.AffineTransform(t([1.0, 2.0, 3.0]), 2.0, event_dim=1), ns.ExpTransform(),
        ns.SigmoidTransform(),
            ns.SoftplusTransform(), ns.TanhTransform(), ns.SoftmaxTransform(), ns.StickBreakingTransform(), ns.CorrCholeskyTransform(),
            ns.ComposeTransform([ns.ExpTransform(), ns.AffineTransform(1.0, -2.0)]), ns.IndependentTransform(ns.ExpTransform(), 1),
            ns.CatTransform([ns.ExpTransform(), ns.SigmoidTransform()], dim=-1, lengths=[1, 2]), ns.ReshapeTransform((3,), (3, 1)),
            ns.StackTransform([ns.ExpTransform(), ns.SigmoidTransform(), ns.TanhTransform()], dim=-1), ns.CumulativeDistributionTransform(ns.Normal(0.0, 1.0))]


@pytest.mark.parametrize("i", range(16))
def test_each_transform(i: int) -> None:
    mine, theirs = _transforms(flambeau, D)[i], _transforms(torch, TD)[i]
    torch.manual_seed(i)
    tx = torch.randn(4, 3)
    x, ty = flambeau.tensor(tx.numpy()), theirs(tx)
    y = mine(x)
    _same(y, ty, "forward")
    np.testing.assert_allclose(mine.inv(y).numpy(), theirs.inv(ty).numpy(), rtol=1e-3, atol=1e-4)
    _same(_result(lambda: mine.log_abs_det_jacobian(x, y)), _result(lambda: theirs.log_abs_det_jacobian(tx, ty)), "jacobian")
    for what in ("domain", "codomain", "bijective", "event_dim"):
        _same(_result(getattr, mine, what), _result(getattr, theirs, what), what)
    assert tuple(mine.forward_shape((4, 3))) == tuple(theirs.forward_shape((4, 3)))
    assert tuple(mine.inverse_shape(tuple(ty.shape))) == tuple(theirs.inverse_shape(ty.shape))


def test_the_same_names() -> None:
    assert set(TD.__all__) <= set(dir(D)) | set(D.__all__)
    assert set(TD.constraints.__all__) <= set(dir(D.constraints))
