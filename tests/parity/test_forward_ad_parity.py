"""Forward derivatives against PyTorch's, operation by operation: PyTorch's own samples of its operators, every differentiable argument with a
random tangent."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as theirs
from torch.testing._internal.common_methods_invocations import op_db

import flambeau as fb
import flambeau.autograd.forward_ad as ours
from tests.parity.database import OWN, called, each, mine, outputs, resolve, translated

MOST = 6  # samples of an operator
# what PyTorch's samples cannot be asked of both, and why
LEFT_OUT = {
    **dict.fromkeys(("empty_like", "empty", "new_empty", "new_empty_strided"), "no values"),
    **{f"nn.functional.max_unpool{n}d": "two values may go to one place" for n in (1, 2, 3)},
    "nn.functional.triplet_margin_with_distance_loss": "its samples hold modules of PyTorch's",
    "cholesky_inverse": "PyTorch's takes the tangent of the triangle that is not read",
    "linalg.pinv-singular": "not differentiable where the rank changes",
    "nn.functional.nll_loss": "PyTorch's takes the weights as constants",
    "svd_lowrank": "random", "pca_lowrank": "random",
    "logcumsumexp": "nan in PyTorch's where one sum overflows",  # of complex numbers
}
# matrices of a kind have tangents of that kind
KINDS = {
    **dict.fromkeys(("linalg.cholesky", "linalg.cholesky_ex", "cholesky"), lambda v: v + v.conj().swapaxes(-1, -2)),
    "triangular_solve": lambda v: v * np.eye(*v.shape[-2:]) if v.shape[-2] == v.shape[-1] else v,
}
CASES = [(op, variant) for op in op_db if op.supports_forward_ad and not {op.name, f"{op.name}-{op.variant_test_name}"} & LEFT_OUT.keys()
         for variant in ("float64", "complex128") if getattr(torch, variant) in op.supported_dtypes("cpu")]


def compared(op, dtype, ours_of):
    """How many results of samples agree; raises where one does not."""
    done = 0
    rng = np.random.default_rng(0)
    for sample in itertools.islice(op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False), MOST):
        args = (sample.input, *sample.args), sample.kwargs
        moves: list = []

        def dual(t, moves=moves):
            if not (t.is_floating_point() or t.is_complex()) or t.layout is not torch.strided:
                return t
            v = rng.standard_normal(tuple(t.shape))
            if t.is_complex():
                v = v + 1j * rng.standard_normal(tuple(t.shape))
            if op.name in KINDS and v.ndim > 1:
                v = KINDS[op.name](v)
            moves.append(v)
            return theirs.make_dual(t.detach().clone(), torch.tensor(v).to(t.dtype))

        with theirs.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            try:
                given, named = each(args, dual)
                want = op.op(*given, **named)
                found = [(theirs.unpack_dual(y)) for y in outputs(want)]
                want = [(p.detach().resolve_conj().resolve_neg(), None if t is None else t.detach().resolve_conj().resolve_neg() + 0) for p, t in found]
            except (RuntimeError, NotImplementedError, TypeError):
                continue
        queue = iter(moves)

        def my_dual(t, queue=queue):
            made = mine(t)
            if not (t.is_floating_point() or t.is_complex()) or t.layout is not torch.strided:
                return made
            v = next(queue)
            return ours.make_dual(made, fb.tensor(v, dtype=made.dtype))
        with ours.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given, named = translated(args, my_dual)
            got = ours_of(*given, **named)
            got = [ours.unpack_dual(y) for y in outputs(got)]
            assert len(got) == len(want), (len(got), len(want))
            for (p, t), (q, v) in zip(want, got):
                if not (p.is_floating_point() or p.is_complex()):
                    continue
                assert tuple(q.shape) == tuple(p.shape)
                left = np.zeros(tuple(p.shape)) if t is None else t.numpy()
                right = np.zeros(tuple(p.shape)) if v is None else v.numpy()
                if not p.numel() or np.isnan(p.numpy()).any() or not np.allclose(q.numpy(), p.numpy(), 1e-5, 1e-7, equal_nan=True):
                    continue  # drawn at random, or free to choose (eigenvectors' phase): the value itself is other tests' matter
                np.testing.assert_allclose(right, left, 1e-5, 1e-7, err_msg=f"{op.name} {sample}")
                done += 1
    return done


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{called(op)}-{d}" for op, d in CASES])
def test_tangents(op, dtype):
    function = OWN.get(op.name) or resolve(op.name)
    if function is None:
        pytest.skip("not here")
    compared(op, dtype, function)
