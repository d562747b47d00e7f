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

MOST = 12  # samples of an operator
# what PyTorch's samples cannot be asked of both, and why
LEFT_OUT = {
    "empty_like": "no values", "empty": "no values", "new_empty": "no values", "new_empty_strided": "no values",
}
CASES = [(op, variant) for op in op_db if op.supports_forward_ad and op.name not in LEFT_OUT for variant in ("float64", "complex128")
         if getattr(torch, variant) in op.supported_dtypes("cpu")]


def resolve(name):
    found = fb
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return getattr(fb.Tensor, name, None)
    return found


def each(x, change):
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, (tuple, list)) and type(x) is not torch.Size:
        return type(x)(each(y, change) for y in x)
    if isinstance(x, dict):
        return {k: each(v, change) for k, v in x.items()}
    return x


def translated(x, tensor):
    """PyTorch's arguments as ours; tensor: makes ours of one of its tensors."""
    if isinstance(x, torch.Tensor):
        return tensor(x)
    if isinstance(x, torch.Size):
        return fb.Size(x)
    if isinstance(x, (torch.dtype, torch.memory_format, torch.layout)):
        return getattr(fb, str(x).rpartition(".")[2])
    if isinstance(x, torch.device):
        return fb.device(str(x))
    if isinstance(x, (tuple, list)):
        return type(x)(translated(y, tensor) for y in x)
    if isinstance(x, dict):
        return {k: translated(v, tensor) for k, v in x.items()}
    return x


def mine(t):
    t = t.detach().resolve_conj().resolve_neg()
    return fb.from_numpy(np.ascontiguousarray(t.numpy())) if t.ndim else fb.tensor(t.item(), dtype=getattr(fb, str(t.dtype).rpartition(".")[2]))


def outputs(x):
    if isinstance(x, (torch.Tensor, fb.Tensor)):
        return [x]
    if isinstance(x, (tuple, list)):
        return list(itertools.chain.from_iterable(outputs(y) for y in x))
    return []


def compared(op, dtype, ours_of):
    """How many samples agree; raises where one does not."""
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
            moves.append(v)
            return theirs.make_dual(t.detach().clone(), torch.tensor(v).to(t.dtype))

        with theirs.dual_level(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            try:
                given, named = each(args, dual)
                want = op.op(*given, **named)
                found = [(theirs.unpack_dual(y)) for y in outputs(want)]
                want = [(p.detach().resolve_conj().resolve_neg(), None if t is None else t.detach().resolve_conj().resolve_neg()) for p, t in found]
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
                if not np.allclose(q.numpy(), p.numpy(), 1e-5, 1e-7, equal_nan=True):
                    continue  # drawn at random, or free to choose (eigenvectors' phase): the value itself is other tests' matter
                np.testing.assert_allclose(right, left, 1e-5, 1e-7, err_msg=f"{op.name} {sample}")
                done += 1
    return done


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{op.name}{'-' + op.variant_test_name if op.variant_test_name else ''}-{d}" for op, d in CASES])
def test_tangents(op, dtype):
    function = resolve(op.name)
    if function is None:
        pytest.skip("not here")
    compared(op, dtype, function)
