"""Probability distributions (torch.distributions): sampling, densities, entropies, divergences, transforms.

Each class is in a module of its own, loaded at its first use.
"""

from __future__ import annotations

from typing import Any

_WHERE = {
    "bernoulli": "Bernoulli", "beta": "Beta", "binomial": "Binomial", "categorical": "Categorical", "cauchy": "Cauchy", "chi2": "Chi2",
    "constraint_registry": "biject_to transform_to", "continuous_bernoulli": "ContinuousBernoulli", "dirichlet": "Dirichlet",
    "distribution": "Distribution", "exp_family": "ExponentialFamily", "exponential": "Exponential", "fishersnedecor": "FisherSnedecor",
    "gamma": "Gamma", "generalized_pareto": "GeneralizedPareto", "geometric": "Geometric", "gumbel": "Gumbel",
    "half_cauchy": "HalfCauchy", "half_normal": "HalfNormal", "independent": "Independent", "inverse_gamma": "InverseGamma",
    "kl": "kl_divergence register_kl", "kumaraswamy": "Kumaraswamy", "laplace": "Laplace", "lkj_cholesky": "LKJCholesky",
    "log_normal": "LogNormal", "logistic_normal": "LogisticNormal", "lowrank_multivariate_normal": "LowRankMultivariateNormal",
    "mixture_same_family": "MixtureSameFamily", "multinomial": "Multinomial", "multivariate_normal": "MultivariateNormal",
    "negative_binomial": "NegativeBinomial", "normal": "Normal",
    "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough", "pareto": "Pareto", "poisson": "Poisson",
    "relaxed_bernoulli": "RelaxedBernoulli", "relaxed_categorical": "RelaxedOneHotCategorical", "studentT": "StudentT",
    "transformed_distribution": "TransformedDistribution", "uniform": "Uniform", "von_mises": "VonMises", "weibull": "Weibull",
    "wishart": "Wishart",
    "transforms": """AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform CumulativeDistributionTransform
     ExpTransform IndependentTransform LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform
     SoftplusTransform TanhTransform SoftmaxTransform StackTransform StickBreakingTransform Transform identity_transform""",
}
_LAZY = {name: module for module, names in _WHERE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    import importlib
    if name in _LAZY:
        value = globals()[name] = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
        return value
    if name in _WHERE or name in ("constraints", "utils"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'flambeau.distributions' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_WHERE, "constraints", "utils"})


__all__ = sorted(_LAZY)  # noqa: PLE0605 (filled from the table)
