"""Convolutions against direct sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

F = fb.nn.functional


def direct(x, w, stride, padding, dilation, groups):
    """The definition, element by element."""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    out = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(n)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per, outs = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // outs
        for at in itertools.product(*map(range, out)):
            window = tuple(slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, d, k in zip(at, stride, dilation, w.shape[2:], strict=True))
            part = x[(slice(None), slice(g * per, (g + 1) * per), *window)]
            y[(slice(None), o, *at)] = (part * w[o]).reshape(x.shape[0], -1).sum(1)
    return y


CASES = [((2, 3, 9), (4, 3, 3), 1, 0, 1, 1), ((2, 3, 7, 8), (4, 3, 3, 2), 1, 1, 1, 1), ((2, 4, 7, 8), (6, 2, 3, 3), 2, 1, 1, 2),
         ((1, 3, 9, 9), (2, 3, 3, 3), 1, 2, 2, 1), ((2, 4, 5, 5), (4, 1, 3, 3), 1, 1, 1, 4), ((2, 2, 5, 5), (3, 2, 1, 1), 1, 0, 1, 1),
         ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), 1, 1, 1, 1), ((2, 1, 8, 8), (5, 1, 3, 3), 3, 0, 1, 1)]


@pytest.mark.parametrize("xs,ws,stride,padding,dilation,groups", CASES)
def test_values_and_gradients(xs, ws, stride, padding, dilation, groups, device):
    rng = np.random.default_rng(0)
    n = len(xs) - 2
    x, w, b = rng.normal(size=xs), rng.normal(size=ws), rng.normal(size=ws[0])
    f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    got = f(fb.tensor(x).to(device), fb.tensor(w).to(device), fb.tensor(b).to(device), stride, padding, dilation, groups)
    want = direct(x, w, (stride,) * n, (padding,) * n, (dilation,) * n, groups) + b.reshape(1, -1, *(1,) * n)
    np.testing.assert_allclose(got.cpu().numpy(), want, atol=1e-10)


@pytest.mark.parametrize("xs,ws,stride,padding,dilation,groups", [CASES[0], ((1, 2, 4, 4), (2, 2, 3, 3), 1, 1, 1, 1), ((1, 2, 5, 5), (2, 1, 3, 3), 2, 1, 1, 2)])
def test_gradients_of_every_order(xs, ws, stride, padding, dilation, groups):
    rng = np.random.default_rng(0)
    x, w = (fb.tensor(rng.normal(size=s), requires_grad=True) for s in (xs, ws))
    b = fb.tensor(rng.normal(size=ws[0]), requires_grad=True)
    f = {1: F.conv1d, 2: F.conv2d}[len(xs) - 2]
    g = lambda x, w, b: f(x, w, b, stride, padding, dilation, groups)  # noqa: E731
    assert gradcheck(g, (x, w, b)) and gradgradcheck(g, (x, w, b), atol=1e-4)


def test_transposed_is_the_adjoint():
    rng = np.random.default_rng(0)
    x, w = fb.tensor(rng.normal(size=(2, 3, 8, 8))), fb.tensor(rng.normal(size=(5, 3, 3, 3)))
    y = F.conv2d(x, w, None, 2, 1)
    z = fb.tensor(rng.normal(size=tuple(y.shape)))
    back = F.conv_transpose2d(z, w, None, 2, 1, output_padding=1)
    assert tuple(back.shape) == (2, 3, 8, 8)
    np.testing.assert_allclose((y * z).sum().item(), (x * back).sum().item())
    t = fb.tensor(rng.normal(size=(1, 3, 4, 4)), requires_grad=True)
    u = fb.tensor(rng.normal(size=(3, 2, 3, 3)), requires_grad=True)
    assert gradcheck(lambda a, b: F.conv_transpose2d(a, b, None, 2, 1, 1), (t, u))


def test_same_padding_and_errors():
    assert tuple(F.conv1d(fb.zeros(1, 1, 7), fb.zeros(1, 1, 4), padding="same").shape) == (1, 1, 7)
    with pytest.raises(RuntimeError, match="to have 3 channels, but got 2"):
        F.conv2d(fb.zeros(1, 2, 5, 5), fb.zeros(4, 3, 3, 3))
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        F.conv2d(fb.zeros(1, 3, 2, 2), fb.zeros(4, 3, 3, 3))
