"""The closed forms of KL(p ‖ q) for the usual pairs.

Normal, gamma, beta and Dirichlet families: M. Gil, "On Rényi divergence measures for continuous alphabet sources", 2011;
the others follow from E_p[log p - log q] with p's moments, which is how they are written here.
"""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import EULER, Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal, lowrank_log_det
from .multivariate_normal import MultivariateNormal, batch_mahalanobis, half_log_det
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import sum_rightmost

_ops: Any = ops


# ------------------------------------------------------------------------------------------------- p outside the support of q
def _infinite_like(x: Any) -> Any:
    return _ops.full_like(x, math.inf)


def _never(p_class: type, parameter: str, *q_classes: type) -> None:
    """q gives no mass to some of what p does: infinite everywhere."""
    for q_class in q_classes:
        register_kl(p_class, q_class)(lambda p, q: _infinite_like(getattr(p, parameter)))


_never(Beta, "concentration1", Pareto)
_never(ContinuousBernoulli, "probs", Pareto)
_never(Exponential, "rate", Beta, ContinuousBernoulli, Pareto, Uniform)
_never(Gamma, "concentration", Beta, ContinuousBernoulli, Pareto, Uniform)
_never(Gumbel, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_never(Laplace, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_never(Normal, "loc", Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_never(Pareto, "scale", Beta, ContinuousBernoulli, Uniform)
_never(Poisson, "rate", Bernoulli, Binomial)


def _cross_to_exponential(p: Any, q: Any) -> Any:
    """-E_p[log q] of an exponential q."""
    return q.rate * p.mean - q.rate.log()


def _cross_to_normal(p: Any, q: Any) -> Any:
    """-E_p[log q] of a normal q."""
    return 0.5 * (p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2) + q.scale.log() + 0.5 * math.log(2 * math.pi)


def _cross_to_gamma(p: Any, q: Any, mean_log: Any) -> Any:
    """-E_p[log q] of a gamma q."""
    return q.concentration.lgamma() - q.concentration * q.rate.log() - (q.concentration - 1) * mean_log + q.rate * p.mean


def _cross_to_beta(q: Any, mean_log: Any, mean_log1m: Any) -> Any:
    """-E_p[log q] of a beta q."""
    a, b = q.concentration1, q.concentration0
    return a.lgamma() + b.lgamma() - (a + b).lgamma() - (a - 1) * mean_log - (b - 1) * mean_log1m


# -------------------------------------------------------------------------------------------------------------- discrete
@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Any, q: Any) -> Any:
    from ..nn.functional import softplus
    hit = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    miss = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    # an impossible outcome of p adds nothing; one impossible only in q makes it infinite
    hit = _ops.where(p.probs == 0, 0.0, _ops.where(q.probs == 0, math.inf, hit))
    return hit + _ops.where(p.probs == 1, 0.0, _ops.where(q.probs == 1, math.inf, miss))


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Any, q: Any) -> Any:
    if bool((p.total_count < q.total_count).any()):  # whose expectation of a logarithm of a factorial has no closed form
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    impossible = p.total_count > q.total_count
    return _ops.where(impossible, math.inf, kl)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Any, q: Any) -> Any:
    each = p.probs * (p.logits - q.logits)
    each = _ops.where((q.probs == 0).expand(each.shape), math.inf, each)
    return _ops.where((p.probs == 0).expand(each.shape), 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_one_hot(p: Any, q: Any) -> Any:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


# ------------------------------------------------------------------------------------------------------- p of a finite range
@register_kl(Beta, Beta)
def _beta_beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    total_p, total_q = a + b, c + d
    return (c.lgamma() + d.lgamma() + total_p.lgamma() - total_q.lgamma() - a.lgamma() - b.lgamma()
            + (a - c) * a.digamma() + (b - d) * b.digamma() + (total_q - total_p) * total_p.digamma())


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_constant()


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
def _to_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() + _cross_to_exponential(p, q)


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Any:
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return -p.entropy() + _cross_to_gamma(p, q, mean_log)


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _cross_to_normal(p, q)


def _within_unit(kl: Any, q: Any) -> Any:
    """Infinite unless q, a uniform distribution, covers [0, 1]."""
    return _ops.where((q.high < 1) | (q.low > 0), math.inf, kl)


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_uniform(p: Any, q: Any) -> Any:
    return _within_unit(-p.entropy() + (q.high - q.low).log(), q)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_continuous(p: Any, q: Any) -> Any:
    return (p.mean * (p.logits - q.logits) + p._log_constant() + (-p.probs).log1p() - q._log_constant() - (-q.probs).log1p())


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    front = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return front + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Any, q: Any) -> Any:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return _ops.where((q.low > p.low) | (q.high < p.high), math.inf, kl)


def _mean_log_uniform(p: Any) -> Any:
    """E[log x] of a uniform x of a positive range."""
    return (_ops.xlogy(p.high, p.high) - _ops.xlogy(p.low, p.low)) / (p.high - p.low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    low, high = 1 - p.high, 1 - p.low
    mean_log1m = (_ops.xlogy(high, high) - _ops.xlogy(low, low)) / (high - low) - 1
    kl = -p.entropy() + _cross_to_beta(q, _mean_log_uniform(p), mean_log1m)
    return _ops.where((p.high > 1) | (p.low < 0), math.inf, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous(p: Any, q: Any) -> Any:
    kl = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_constant()
    return _ops.where((p.high > 1) | (p.low < 0), math.inf, kl)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Any:
    return _ops.where(p.low < 0, math.inf, -p.entropy() + _cross_to_exponential(p, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Any:
    return _ops.where(p.low < 0, math.inf, -p.entropy() + _cross_to_gamma(p, q, _mean_log_uniform(p)))


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Any:
    low, high = (p.low - q.loc) / q.scale, (p.high - q.loc) / q.scale
    tail = (_ops.exp(-high) - _ops.exp(-low)) / (p.high - p.low) * q.scale
    return (q.scale / (p.high - p.low)).log() + (high + low) / 2 - tail


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    kl = -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _mean_log_uniform(p)
    return _ops.where(p.low < q.scale, math.inf, kl)


# --------------------------------------------------------------------------------------------------------- p of a half line
@register_kl(Exponential, Exponential)
def _exponential_exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    return -p.entropy() + _cross_to_gamma(p, q, -EULER - p.rate.log())


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Any:
    scaled = p.rate * q.scale
    at = q.loc / q.scale
    return scaled.log() - at + at.exp() * scaled / (scaled + 1) + 1 / scaled - 1


@register_kl(Gamma, Gamma)
def _gamma_gamma(p: Any, q: Any) -> Any:
    return (q.concentration * (p.rate / q.rate).log() + q.concentration.lgamma() - p.concentration.lgamma()
            + (p.concentration - q.concentration) * p.concentration.digamma() + (q.rate - p.rate) * (p.concentration / p.rate))


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Any:
    # E[exp(-x / s)] = (1 + 1 / (rate s))^-concentration
    at = q.loc / q.scale
    return (-p.entropy() + q.scale.log() + p.mean / q.scale - at
            + (at - p.concentration * (1 + 1 / (p.rate * q.scale)).log()).exp())


@register_kl(HalfNormal, HalfNormal)
def _half_half(p: Any, q: Any) -> Any:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Any, q: Any) -> Any:
    scale, alpha = p.scale / q.scale, q.alpha / p.alpha
    kl = q.alpha * scale.log() - alpha.log() + alpha - 1
    return _ops.where(p.scale < q.scale, math.inf, kl)


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Any:
    return _ops.where(p.alpha <= 1, math.inf, -p.entropy() + _cross_to_exponential(p, q))


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Any:
    mean_log = p.scale.log() + p.alpha.reciprocal()
    return _ops.where(p.alpha <= 1, math.inf, -p.entropy() + _cross_to_gamma(p, q, mean_log))


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Any:
    return _ops.where(p.alpha <= 2, math.inf, -p.entropy() + _cross_to_normal(p, q))


# -------------------------------------------------------------------------------------------------------- p of the real line
@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Any, q: Any) -> Any:
    # Chyzak & Nielsen, "A closed-form formula for the Kullback-Leibler divergence between Cauchy distributions", 2019
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel_gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - away + ratio * EULER + (away + (1 + ratio).lgamma()).exp() - (1 + EULER)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Any:
    away, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale).pow(2)
    return -p.entropy() + q.scale.log() + away + (-away + 0.5 * ratio).exp()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    # E|x - m| of a normal x is that of a folded normal number
    away = p.loc - q.loc
    z = away / p.scale
    mean_abs = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.pow(2)).exp() + away * _ops.erf(math.sqrt(0.5) * z)
    return -p.entropy() + (2 * q.scale).log() + mean_abs / q.scale


# ------------------------------------------------------------------------------------------------------------ multivariate
def _mean_square(factor: Any, of: Any) -> Any:
    """The trace of (L Lᵀ)⁻¹ A Aᵀ, of broadcast batches: the squared norm of L⁻¹ A."""
    from .. import linalg
    solve: Any = linalg.solve_triangular
    return solve(factor, of, upper=False).square().sum((-2, -1))


def _same_size(p: Any, q: Any, kind: str) -> int:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between two {kind} with different event shapes cannot be computed")
    return int(p.event_shape[0])


@register_kl(MultivariateNormal, MultivariateNormal)
def _mvn_mvn(p: Any, q: Any) -> Any:
    n = _same_size(p, q, "Multivariate Normals")
    lp, lq = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    return (half_log_det(lq) - half_log_det(lp)
            + 0.5 * (_mean_square(lq, lp) + batch_mahalanobis(lq, q.loc - p.loc) - n))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _mvn_lowrank(p: Any, q: Any) -> Any:
    n = _same_size(p, q, "(Low Rank) Multivariate Normals")
    w, d, lp = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, p._unbroadcasted_scale_tril
    return _to_lowrank(p, q, n, 2 * half_log_det(lp), (lp.square() / d.unsqueeze(-1)).sum((-2, -1)),
                       _mean_square(q._capacitance_tril, (w.mT / d.unsqueeze(-2)) @ lp))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _lowrank_lowrank(p: Any, q: Any) -> Any:
    n = _same_size(p, q, "Low Rank Multivariate Normals")
    w, d = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    wp, dp = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    a = w.mT / d.unsqueeze(-2)
    direct = (dp / d).sum(-1) + (wp.square() / d.unsqueeze(-1)).sum((-2, -1))
    back = _mean_square(q._capacitance_tril, a * dp.sqrt().unsqueeze(-2)) + _mean_square(q._capacitance_tril, a @ wp)
    return _to_lowrank(p, q, n, lowrank_log_det(dp, p._capacitance_tril), direct, back)


def _to_lowrank(p: Any, q: Any, n: int, log_det_p: Any, direct: Any, back: Any) -> Any:
    """With the trace of Σq⁻¹ Σp as Woodbury's identity splits it: what D⁻¹ gives, less what the low rank takes back."""
    from .lowrank_multivariate_normal import lowrank_mahalanobis
    w, d, k = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q._capacitance_tril
    return 0.5 * (lowrank_log_det(d, k) - log_det_p + direct - back + lowrank_mahalanobis(w, d, q.loc - p.loc, k) - n)


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _lowrank_mvn(p: Any, q: Any) -> Any:
    n = _same_size(p, q, "(Low Rank) Multivariate Normals")
    lq = q._unbroadcasted_scale_tril
    log_det = 2 * half_log_det(lq) - lowrank_log_det(p._unbroadcasted_cov_diag, p._capacitance_tril)
    trace = _mean_square(lq, p._unbroadcasted_cov_factor) + _mean_square(lq, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    return 0.5 * (log_det + batch_mahalanobis(lq, q.loc - p.loc) + trace - n)


# -------------------------------------------------------------------------------------------------------------- general forms
@register_kl(ExponentialFamily, ExponentialFamily)
def _family_family(p: Any, q: Any) -> Any:
    """The Bregman divergence of the log-normalizer between natural parameters.  Raises NotImplementedError across families."""
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot be computed using Bregman "
                                  "divergences")
    from .._core.autograd.functions import grad
    from .._core.autograd.mode import enable_grad
    with enable_grad():
        natural = [x.detach().requires_grad_() for x in p._natural_params]
        log_normalizer = p._log_normalizer(*natural)
        slopes = grad(log_normalizer.sum(), natural, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - log_normalizer
    for x, y, g in zip(natural, q._natural_params, slopes, strict=True):
        result = result - sum_rightmost((y - x) * g, len(q.event_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL(p || q) of transformed distributions is implemented for equal transforms only")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent_independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL(p || q) of Independent distributions is implemented for equal reinterpreted_batch_ndims only")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
