"""Convolution layers: geometry, padding modes, output sizes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn


def _conv1d(x, w, b):
    n, _, length = x.shape
    out = np.empty((n, len(w), length - w.shape[2] + 1))
    for i in range(out.shape[2]):
        out[:, :, i] = np.einsum("ncl,ocl->no", x[:, :, i:i + w.shape[2]], w) + b
    return out


@pytest.mark.parametrize("mode,name", [("zeros", "constant"), ("reflect", "reflect"), ("replicate", "edge"),
                                       ("circular", "wrap")])
def test_padding_modes(mode, name):
    x = np.random.default_rng(0).standard_normal((2, 3, 6))
    net = nn.Conv1d(3, 4, 3, padding=2, padding_mode=mode).double()
    expected = _conv1d(np.pad(x, ((0, 0), (0, 0), (2, 2)), name), net.weight.detach().numpy(),
                       net.bias.detach().numpy())
    np.testing.assert_allclose(net(flambeau.from_numpy(x)).detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_same_padding_keeps_the_size_and_transposed_sizes_can_be_chosen():
    assert nn.Conv2d(1, 2, (4, 3), padding="same")(flambeau.zeros(1, 1, 6, 7)).shape == (1, 2, 6, 7)
    up = nn.ConvTranspose2d(1, 2, 3, stride=2)
    x = flambeau.zeros(1, 1, 4, 4)
    assert up(x).shape == (1, 2, 9, 9) and up(x, output_size=(10, 9)).shape == (1, 2, 10, 9)
    with pytest.raises(ValueError, match=r"valid sizes range from \[9, 9\] to \[10, 10\]"):
        up(x, output_size=(11, 9))
    assert up(x, output_size=(1, 2, 10, 9)).shape == (1, 2, 10, 9)
    with pytest.raises(ValueError, match=r"output_size must have 2 or 4 elements \(got 3\)"):
        up(x, output_size=(2, 10, 9))


@pytest.mark.parametrize("make,text", [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer"),
    (lambda: nn.Conv2d(4, 4, 3, padding="valued"), "Invalid padding string"),
    (lambda: nn.Conv2d(4, 4, 3, padding="same", stride=2), "not supported for strided convolutions"),
    (lambda: nn.Conv2d(4, 4, 3, padding_mode="edge"), "padding_mode must be one of"),
    (lambda: nn.ConvTranspose1d(4, 4, 3, padding_mode="reflect"), 'Only "zeros" padding mode is supported'),
])
def test_bad_arguments(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_lazy_convolution():
    net = nn.LazyConv2d(4, 3, groups=2)
    assert net(flambeau.zeros(1, 6, 5, 5)).shape == (1, 4, 3, 3)
    assert type(net) is nn.Conv2d and net.weight.shape == (4, 3, 3, 3) and net.in_channels == 6
    with pytest.raises(RuntimeError, match="to LazyConv2d, but got input of size"):
        nn.LazyConv2d(4, 3)(flambeau.zeros(5, 5))
