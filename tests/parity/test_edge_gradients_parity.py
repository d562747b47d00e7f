"""Gradients where a function is defined by cases, against PyTorch's: its own samples of its operators with zeros, ties, infinities and NaN in the
place of their numbers.  Where results agree, gradients do, but for what `KNOWN` has a reason for.  And second derivatives of the samples as they are."""

from __future__ import annotations

import itertools
import warnings
import zlib

import numpy as np
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import flambeau as fb
from tests.parity.database import OWN, called, each, mine, outputs, resolve, translated

MOST = 2  # samples of an operator
SPECIAL = [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.0, 2.0, -2.0, 3.0, -0.5, 1e-30, -7.5, 100.0]
FILLS = ("zeros", "ties", "special", "one NaN", "one infinity")

_LANES = "PyTorch's differs from itself: NaN in a whole vector goes another way than in the rest of a row, or in another layout"
_OURS = "PyTorch's is NaN where the derivative is a number"
_SINGULAR = "of matrices that are singular or not finite LAPACK's leavings, or NaN"
_FREE = "which position among equals, or which of the derivatives at a corner"
KNOWN = {
    **dict.fromkeys("""nn.functional.celu nn.functional.elu nn.functional.selu nn.functional.hardshrink nn.functional.softshrink
     nn.functional.hardtanh nn.functional.relu6 nn.functional.hardswish special.i1 special.i1e logit""".split(), _LANES),
    **dict.fromkeys("""copysign hypot nn.functional.softsign nn.functional.kl_div nn.functional.poisson_nll_loss masked.std masked.var masked.prod
     prod masked.cumprod cumprod linalg.vander index_reduce-prod scatter_reduce-prod special.log_ndtr renorm cdist nn.functional.pdist""".split(), _OURS),
    **dict.fromkeys("""cholesky_inverse logdet lu lu_solve linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.slogdet linalg.svdvals
     linalg.det linalg.pinv-hermitian linalg.pinv-singular norm-nuc cholesky_solve linalg.eigvals linalg.lstsq
     linalg.lstsq-grad_oriented linalg.qr linalg.svd linalg.matrix_norm linalg.norm linalg.cond linalg.inv linalg.inv_ex""".split(), _SINGULAR),
    **{f"{name}_reduce-{how}": _FREE for name in ("index", "scatter") for how in ("amax", "amin")},
    **{f"_segment_reduce-{how}": _FREE for how in ("lengths", "offsets")},
    "acosh": "of -1, where there is no value", "as_strided_scatter": "docs/conformance.md",
    "digamma": "PyTorch's pole at -1 is a large number", "topk": _FREE,
    "nn.functional.binary_cross_entropy": "the logarithms' bound is in the target's gradient, as it is in the loss",
    "polar": "PyTorch's takes the sign of the result, which is 0 where the size is", "nanmean": "of no number but NaN",
    "nn.functional.multilabel_soft_margin_loss": "the weight's, of an infinite loss",
    "nn.functional.scaled_dot_product_attention": "infinite scores", "nn.functional.grid_sample": "coordinates that are no numbers",
    "__rdiv__": "0 / 0 of one division, which PyTorch makes a reciprocal and a product", "_softmax_backward_data": "an infinity beside 0",
    **{f"mvlgamma-mvlgamma_p_{p}": "at its poles, which PyTorch puts beside -0 and -1/2" for p in (1, 3, 5)},
    **{f"nn.functional.conv{n}d": "an infinite weight is multiplied by the 0 of a border" for n in (1, 2, 3)},
}
# what draws, and what cannot be asked: PyTorch's grid_sampler reads anywhere at coordinates that are no numbers
LEFT_OUT = set("""normal bernoulli rand_like randn_like uniform exponential log_normal cauchy geometric multinomial zero_ empty_like new_empty
 new_empty_strided empty
 nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu
 nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d grid_sampler_2d grid_sampler_3d svd_lowrank pca_lowrank
 nn.functional.triplet_margin_with_distance_loss nn.functional.linear_cross_entropy bfloat16 float half cfloat chalf""".split())
CASES = [op for op in op_db if op.supports_autograd and op.name not in LEFT_OUT and torch.float64 in op.supported_backward_dtypes("cpu")
         and (op.name in OWN or resolve(op.name) is not None)]


def filled(t, how, rng):
    if not (t.is_floating_point() or t.is_complex()) or t.layout is not torch.strided:
        return t
    n = t.numel()
    v = {"zeros": lambda: np.zeros(n), "ties": lambda: rng.integers(-1, 2, n).astype(float),
         "special": lambda: rng.permutation(np.resize(SPECIAL, max(n, len(SPECIAL))))[:n]}.get(how, lambda: t.detach().cpu().numpy().reshape(-1).copy())()
    if how.startswith("one") and n:
        v[rng.integers(n)] = np.nan if how == "one NaN" else np.inf
    return torch.tensor(v.reshape(tuple(t.shape))).to(t.dtype)


def weighed(module, results, leaves, recorded):
    """The gradients of a sum of the results by fixed weights."""
    pairs = []
    for k, o in enumerate(results):
        rng = np.random.default_rng(k)
        pairs.append(module.tensor(rng.choice([-1.0, 1.0], tuple(o.shape)) * (0.5 + rng.random(tuple(o.shape)))).to(o.dtype))
    return module.autograd.grad(results, leaves, pairs, allow_unused=True, create_graph=recorded)


def gradients(module, function, args, make, second=False):
    """The results, and the gradients of a sum of theirs, or of those; None where nothing requires grad."""
    leaves = []

    def leaf(t):
        made = make(t).detach().clone()
        if made.is_floating_point() or made.is_complex():
            leaves.append(made.requires_grad_())
        return made
    given, named = each(args, leaf) if module is torch else translated(args, leaf)
    results = [o for o in outputs(function(*given, **named)) if o.requires_grad]
    if not results:
        return None
    found = weighed(module, results, leaves, second)
    if second:
        again = [g for g in found if g is not None and g.requires_grad]
        if not again:
            return None
        found = weighed(module, again, leaves, False)
    values = [np.asarray(o.detach().resolve_conj().tolist()) for o in results]
    return values, [np.zeros(tuple(x.shape)) if g is None else np.asarray((g + 0).tolist()) for g, x in zip(found, leaves)]


@pytest.mark.parametrize("op", CASES, ids=called)
def test_gradients_at_edges(op):
    if called(op) in KNOWN:
        pytest.skip(KNOWN[called(op)])
    ours_of = OWN.get(op.name) or resolve(op.name)
    rng = np.random.default_rng(zlib.crc32(called(op).encode()))
    samples = [s for s in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=False), 40)
               if isinstance(s.input, torch.Tensor) and s.input.layout is torch.strided and 0 < s.input.numel() < 2000]
    for sample, how in itertools.product(samples[::max(1, len(samples) // MOST)][:MOST], FILLS):
        args = each(((sample.input, *sample.args), sample.kwargs), lambda t, how=how: filled(t, how, rng))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                want = gradients(torch, op.op, args, lambda t: t)
            except (RuntimeError, ValueError):
                continue
            if want is None:
                continue
            got = gradients(fb, ours_of, args, mine)
            assert got is not None, (how, sample)
            if all(np.allclose(a, b, 1e-6, 1e-9, equal_nan=True) for a, b in zip(got[0], want[0], strict=True)):
                for a, b in zip(got[1], want[1], strict=True):
                    np.testing.assert_allclose(a, b, 1e-5, 1e-7, err_msg=f"{how}: {sample}"[:600])


KNOWN_SECOND = {
    **dict.fromkeys(("cholesky_inverse", "cholesky_solve"), "PyTorch's first derivatives are of a matrix that is no triangle, too"),
    "as_strided_scatter": "docs/conformance.md", "linalg.norm": "of an empty matrix",
    **dict.fromkeys(("linalg.det", "linalg.pinv-singular"), _SINGULAR),
    "linalg.norm-subgradients_at_zero": "PyTorch's is NaN at 0",
    "masked.prod": "PyTorch's is NaN where the derivative is a number", "masked.logaddexp": "PyTorch's is NaN of what is masked",
}


@pytest.mark.parametrize("op", [op for op in CASES if op.supports_gradgrad], ids=called)
def test_second_derivatives(op):
    if called(op) in KNOWN_SECOND:
        pytest.skip(KNOWN_SECOND[called(op)])
    ours_of = OWN.get(op.name) or resolve(op.name)
    samples = [s for s in itertools.islice(op.sample_inputs("cpu", torch.float64, requires_grad=False), 40) if isinstance(s.input, torch.Tensor)
               and s.input.layout is torch.strided and 0 < s.input.numel() < 2000]
    for sample in samples[::max(1, len(samples) // MOST)][:MOST]:
        args = (sample.input, *sample.args), sample.kwargs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = gradients(torch, op.op, args, lambda t: t, True)
            except RuntimeError:
                continue
            got = gradients(fb, ours_of, args, mine, True)
            if want is None or got is None:  # of what is linear there may be a graph that gives zeros, or none
                assert not any(np.any(g) for side in (want, got) if side for g in side[1]), sample
            elif all(np.allclose(a, b, 1e-6, 1e-9, equal_nan=True) for a, b in zip(got[0], want[0], strict=True)):
                for a, b in zip(got[1], want[1], strict=True):
                    np.testing.assert_allclose(a, b, 1e-5, 1e-6, err_msg=f"{sample}"[:600])
