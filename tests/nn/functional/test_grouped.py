"""Products of groups, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.autograd import gradcheck
from flambeau.nn import functional as F


def _values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _ends(*ends):
    return flambeau.tensor(ends, dtype=flambeau.int32)


def _expected(a, b, ends):
    spans = list(zip([0, *ends], ends))
    if a.ndim == 3:
        out = np.zeros((a.shape[1], b.shape[1]), np.float32)
        for g, (i, j) in enumerate(spans):
            out[:, i:j] = a[g] @ b[:, i:j]
        return out
    if b.ndim == 3:
        out = np.zeros((a.shape[0], b.shape[2]), np.float32)
        for g, (i, j) in enumerate(spans):
            out[i:j] = a[i:j] @ b[g]
        return out
    return np.stack([a[:, i:j] @ b[i:j] for i, j in spans])


@pytest.mark.parametrize("shapes", [((9, 4), (3, 4, 5)), ((3, 2, 4), (4, 9)), ((2, 9), (9, 5))])
def test_groups_against_numpy(shapes, device) -> None:
    a, b = (_values(*s) for s in shapes)
    x, y = (flambeau.tensor(v, device=device) for v in (a, b))
    for ends in ([3, 3, 9], [2, 5, 7], [0, 0, 0], [3, 3, 9], [2, 5, 7], [9, 9, 9]):  # one layout, other ends: no earlier call's are kept
        offs = _ends(*ends).to(device)
        np.testing.assert_allclose(F.grouped_mm(x, y, offs=offs).cpu().numpy(), _expected(a, b, ends), rtol=1e-5, atol=1e-5)


def test_without_ends_it_is_bmm() -> None:
    a, b = flambeau.tensor(_values(2, 3, 4)), flambeau.tensor(_values(2, 4, 5))
    assert flambeau.equal(F.grouped_mm(a, b), flambeau.bmm(a, b)) and flambeau._grouped_mm(a, b).shape == (2, 3, 5)
    assert F.grouped_mm(a.bfloat16(), b.bfloat16()).dtype is flambeau.bfloat16


@pytest.mark.parametrize("shapes", [((5, 3), (2, 3, 2)), ((2, 2, 3), (3, 5)), ((2, 5), (5, 3))])
def test_gradients(shapes) -> None:
    a, b = (flambeau.tensor(_values(*s), requires_grad=True) for s in shapes)
    offs = _ends(2, 4)
    assert gradcheck(lambda a, b: F.grouped_mm(a, b, offs=offs), (a, b), eps=1e-2, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("change,text", [
    ({"mat_a": lambda: flambeau.ones(4, 3).double()}, "Expected mat_a to be Float32"), ({"mat_a": lambda: flambeau.ones(4)}, "mat_a has to be 2 or 3d"),
    ({"mat_b": lambda: flambeau.ones(2, 3, 2).half()}, "must be of one type"), ({"offs": lambda: None}, "provide offsets"),
    ({"mat_b": lambda: flambeau.ones(2, 4, 2)}, "contraction dimension"), ({"offs": lambda: flambeau.tensor([2, 4])}, "int32"),
    ({"offs": lambda: _ends(4)}, "batch sizes"), ({"bias": lambda: flambeau.ones(2)}, "Bias"),
    ({"out_dtype": lambda: flambeau.half}, "output dtype"), ({"offs": lambda: _ends(3, 2)}, "must rise"), ({"offs": lambda: _ends(3, 5)}, "at most 4"),
    ({"offs": lambda: _ends(-1, 4)}, "must rise")])
def test_refusals(change, text) -> None:
    given = {"mat_a": lambda: flambeau.ones(4, 3), "mat_b": lambda: flambeau.ones(2, 3, 2), "offs": lambda: _ends(2, 4)}
    made = {name: make() for name, make in {**given, **change}.items()}
    with pytest.raises(RuntimeError, match=text):
        F.grouped_mm(made.pop("mat_a"), made.pop("mat_b"), **made)
