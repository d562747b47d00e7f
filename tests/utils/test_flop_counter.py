"""Counts of products, convolutions and attention: by the sizes alone."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.utils.flop_counter import FlopCounterMode


def counted(function) -> int:
    with FlopCounterMode(display=False) as mode:
        function()
    return mode.get_total_flops()


def test_products_and_their_gradients(device) -> None:
    x = torch.ones(4, 8, device=device, requires_grad=True)
    w = torch.ones(8, 16, device=device, requires_grad=True)
    assert counted(lambda: x @ w) == 2 * 4 * 8 * 16
    assert counted(lambda: (x @ w).sum().backward()) == 3 * 2 * 4 * 8 * 16
    assert counted(lambda: torch.bmm(x[None].expand(3, 4, 8), w[None].expand(3, 8, 16))) == 3 * 2 * 4 * 8 * 16
    assert counted(lambda: x * 2 + x.sum()) == 0


def test_convolution_and_attention(device) -> None:
    layer = torch.nn.Conv2d(3, 6, 3, device=device)
    image = torch.ones(2, 3, 10, 10, device=device)
    once = 2 * (2 * 8 * 8) * (3 * 9) * 6
    assert counted(lambda: layer(image)) == once
    assert counted(lambda: layer(image).sum().backward()) == 2 * once  # the image needs no gradient
    q = torch.ones(2, 4, 16, 8, device=device)
    assert counted(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)) == 2 * 2 * (2 * 4) * 16 * 16 * 8


def test_modules_and_the_table(capsys) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    with FlopCounterMode(net) as mode:
        net(torch.ones(4, 8)).sum().backward()
    counts = {module: sum(of.values()) for module, of in mode.get_flop_counts().items()}
    assert counts["Sequential"] == 1024 + 256 and counts["Sequential.0"] == 1024 and counts["Sequential.2"] == 256
    assert counts["Global"] == mode.get_total_flops() == (1024 + 256) + (1024 + 512)  # the input needs no gradient
    printed = capsys.readouterr().out
    assert "Sequential.0" in printed and "100.00%" in printed and "2.816K" in printed
    with pytest.raises(ValueError), FlopCounterMode(display=False):
        raise ValueError
    assert counted(lambda: None) == 0
