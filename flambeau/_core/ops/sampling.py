"""Gamma and Dirichlet samples that can be differentiated in their concentrations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd import tape
from ..tensor import Tensor, alias, empty
from .axis_views import broadcast_tensors
from .casts import to_dtype
from .checks import of_kinds
from .draws import generator_of
from .elementwise import saved_tensor
from .random import sampled
from .special import _host
from .table import op


def _gammas(rng: Any, shapes: Any) -> Any:
    """Gamma numbers by NumPy's generator, which refuses all where one shape is below 0: that one's number is NaN, as a stream's is."""
    good = shapes >= 0
    return np.where(good, rng.standard_gamma(np.where(good, shapes, 0)), np.nan)


_gamma = sampled("gamma", lambda rng, v: _gammas(rng, v[0]))


def _dirichlet_rows(rng: Any, values: list[Any]) -> Any:
    """Rows of gamma numbers over their sum, in logarithms: small concentrations give gamma numbers that no double holds."""
    a = values[0].astype(np.float64)
    with np.errstate(all="ignore"):
        # a Gamma(a) number is a Gamma(a + 1) number times u^(1 / a)
        logs = np.log(_gammas(rng, a + 1.0)) + np.log1p(-rng.random(a.shape)) / a
        weights = np.exp(logs - logs.max(-1, keepdims=True, initial=-math.inf))
        return weights / weights.sum(-1, keepdims=True)


_counted_dirichlet = sampled("dirichlet", _dirichlet_rows)


def _output(node: tape.Node) -> tuple[Tensor, Tensor]:
    """The concentration and the sample that a node saved."""
    (a, va), (x, vx) = node[tape.SAVED]
    return saved_tensor(a, va, node), saved_tensor(x, vx, node)


def _gamma_back(node: tape.Node, g: Tensor) -> Any:
    a, x = _output(node)
    return (g * _standard_gamma_grad(a, x),)


@op(method=False, name="_standard_gamma")
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:  # noqa: A002
    """Gamma numbers of the shapes in `input` and scale 1, differentiable (once) in the shapes.  Raises NotImplementedError for a type that is not
    floating."""
    of_kinds("gamma_cpu", input, "f")
    out = _gamma(empty(input.meta.shape, input.meta.dtype, input.meta.device), [input], generator)
    return tape.record(out, _gamma_back, (input,), ((input, input.store.version), (alias(out, out.meta, out.ptr), out.store.version)), "StandardGammaBackward0")


@op(method=False, name="_standard_gamma_grad")
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:  # noqa: A002
    """The derivative in the shapes `input` of gamma numbers `output`, at a fixed rank."""
    a, x = broadcast_tensors(*(to_dtype(t.detach(), dtypes.float64) for t in (input, output)))

    def slope(a: Any, x: Any, psi: Any) -> Any:
        from ..kernels.implicit import gamma_slope
        with np.errstate(all="ignore"):
            return gamma_slope(a, x, psi).reshape(a.shape)
    made = _host("_standard_gamma_grad", slope, (a, x, a.digamma()), (dtypes.float64,))[0]
    return to_dtype(made, output.meta.dtype)


def _dirichlet_back(node: tape.Node, g: Tensor) -> Any:
    a, x = _output(node)
    slope = _dirichlet_grad(x, a, a.sum(-1, keepdim=True).expand(a.meta.shape))
    return (slope * (g - (x * g).sum(-1, keepdim=True)),)


@op(method=False, name="_sample_dirichlet")
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:  # noqa: A002
    """Points of the simplex with the concentrations in the last axis of `input`, differentiable (once) in them.  Raises
    NotImplementedError for a type that is not floating."""
    of_kinds("dirichlet", input, "f")
    m = input.meta
    if generator_of(m.device, generator).counts:
        out = _counted_dirichlet(empty(m.shape, m.dtype, m.device), [input], generator)
        out = out.clamp(min=dtypes.finfo(m.dtype).tiny)  # so that every share has a logarithm
    else:
        limits = dtypes.finfo(m.dtype)
        weights = _gamma(empty(m.shape, dtypes.float64, m.device), [input], generator)
        out = to_dtype(weights / weights.sum(-1, keepdim=True), m.dtype).clamp(limits.tiny, 1.0 - limits.eps / 2)
    return tape.record(out, _dirichlet_back, (input,),
                       ((input, input.store.version), (alias(out, out.meta, out.ptr), out.store.version)), "SampleDirichletBackward0")


@op(method=False, name="_dirichlet_grad")
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of each share x, a Beta(alpha, total - alpha) number, in its alpha, over 1 - x."""
    x64, a, b = broadcast_tensors(*(to_dtype(t.detach(), dtypes.float64) for t in (x, alpha, total - alpha)))

    def slope(x: Any, a: Any, b: Any, psi_a: Any, psi_ab: Any) -> Any:
        from ..kernels.implicit import beta_slope
        with np.errstate(all="ignore"):
            found = beta_slope(x, a, b, psi_a, psi_ab).reshape(x.shape)
            return np.where(x < 1.0, found / (1.0 - x), 0.0)
    made = _host("_dirichlet_grad", slope, (x64, a, b, a.digamma(), (a + b).digamma()), (dtypes.float64,))[0]
    return to_dtype(made, x.meta.dtype)
