"""What PyTorch's main namespace has by the names of its kernels."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import flambeau

RNG = np.random.default_rng(0)
IMAGES, TABLE = RNG.standard_normal((2, 4, 6, 5)).astype(np.float32), RNG.standard_normal((7, 3)).astype(np.float32)
CALLS: dict[str, Any] = {
    "affine_grid_generator": lambda t, x, w: t.affine_grid_generator(x[:, 0, :2, :3].contiguous(), [2, 3, 4, 5], False),
    "grid_sampler_2d": lambda t, x, w: t.grid_sampler_2d(x, x[:, :2, :4, :2].contiguous(), 2, 1, True),
    "grid_sampler_3d": lambda t, x, w: t.grid_sampler_3d(x[:, None], x[:, None, :2, :4, :3].contiguous(), 0, 2, False),
    "convolution": lambda t, x, w: t.convolution(x, x[:, :2, :3, :2].contiguous(), None, [2, 1], [1], [1, 2], False, [0, 0], 2),
    "convolution, transposed": lambda t, x, w: t.convolution(x, x.new_ones(4, 3, 2, 3), x.new_ones(3), [2, 2], [0], [1], True, [1], 1),
    "conv_tbc": lambda t, x, w: t.conv_tbc(x[0].permute(1, 0, 2).contiguous(), x[0, :2, :5, :3].contiguous(), x[0, 0, 0, :3].contiguous(), 1),
    "native_channel_shuffle": lambda t, x, w: t.native_channel_shuffle(x.detach(), 2) + x * 0,
    "norm_except_dim": lambda t, x, w: t.norm_except_dim(x, 3, 2),
    "norm_except_dim, all": lambda t, x, w: t.norm_except_dim(x),
    "prelu": lambda t, x, w: x.prelu(x.new_ones(4) / 4),
    **{f"embedding_bag {mode} {padding}": lambda t, x, w, mode=mode, padding=padding: t.embedding_bag(
        w, t.tensor([0, 3, 3, 6, 1, 2]), t.tensor([0, 0, 2]), False, mode, False, None, False, padding) for mode in (0, 1, 2) for padding in (None, 3)},
    "embedding_bag to its end": lambda t, x, w: t.embedding_bag(w, t.tensor([0, 3, 3], dtype=t.int32), t.tensor([0, 1, 3], dtype=t.int32), False, 1,
                                                                include_last_offset=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients(name: str) -> None:
    found = []
    for t in (torch, flambeau):
        x, w = (t.tensor(a.tolist(), requires_grad=True) for a in (IMAGES, TABLE))
        made = CALLS[name](t, x, w)
        made = made if isinstance(made, tuple) else (made,)
        made[0].sum().backward()
        g = (w if "bag" in name else x).grad
        found.append([(str(m.dtype), m.detach().tolist()) for m in made] + [("", g.tolist())])
    for (kind, values), (ours, numbers) in zip(*found, strict=True):
        assert kind == ours
        np.testing.assert_allclose(numbers, values, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"])
def test_draws_in_place(name: str) -> None:
    found = []
    for t in (torch, flambeau):
        t.manual_seed(5)
        found.append(getattr(t, name)(t.tensor(IMAGES.tolist()), 0.3, True).tolist())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_long_rows() -> None:
    found = []
    for t in (torch, flambeau):
        w = t.tensor((TABLE * 3).tolist())
        t.embedding_renorm_(w, t.tensor([1, 5, 5]), 1.5, 1.0)
        found.append(w.tolist())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_axes_in_the_order_of_memory() -> None:
    draw = random.Random(0)
    for _ in range(500):
        n = draw.randint(1, 5)
        shape, turned, wide = [draw.choice([1, 2, 3]) for _ in range(n)], draw.sample(range(n), n), draw.random() < 0.3
        found: list[Any] = []
        for t in (torch, flambeau):
            x = t.empty(shape).permute(*turned)
            x = x.unsqueeze(0).expand(2, *x.shape) if wide else x
            for check in (False, True, [t.contiguous_format]):
                try:
                    found.append(x.dim_order(ambiguity_check=check))
                except RuntimeError:
                    found.append("unclear")
        assert found[:3] == found[3:], (shape, turned, wide)


def test_what_is_removed_raises_the_same() -> None:
    for name, args in (("solve", 1), ("lstsq", 1), ("symeig", 0), ("eig", 0), ("matrix_rank", 0), ("resize", 0), ("reinforce", 1)):
        said = []
        for t in (torch, flambeau):
            a = t.eye(2)
            with warnings.catch_warnings(), pytest.raises(RuntimeError) as error:
                warnings.simplefilter("ignore")
                if hasattr(t, name):
                    getattr(t, name)(a, *[a] * args)
                else:
                    getattr(a, name)(*[a] * args)
            said.append(str(error.value)[:20])
        assert said[0] == said[1]


def test_loops_and_marks() -> None:
    assert [(tag.name, tag.value) for tag in flambeau.Tag] == [(name, tag.value) for name, tag in torch.Tag.__members__.items()]
    for t in (torch, flambeau):
        assert t.wait(t.fork(lambda a: a + 1, 2)) == 3
    assert [(d.name, d.value) for d in flambeau.utils.dlpack.DLDeviceType] == [(d.name, d.value) for d in torch.utils.dlpack.DLDeviceType]
    ours = {name: d.value for name, d in flambeau.profiler.DeviceType.__members__.items()}
    assert ours == {name: d.value for name, d in torch.profiler.DeviceType.__members__.items()}


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="this PyTorch does not tell what the CPU can do")
def test_what_the_cpu_can_do() -> None:
    theirs, ours = torch.cpu.get_capabilities(), flambeau.cpu.get_capabilities()
    assert set(ours) <= set(theirs)
    unlike = {k for k in ours if ours[k] != theirs[k]}
    assert not unlike


@pytest.mark.parametrize("kind", ["mean", "sum", "none"])
def test_the_loss_of_a_linear_map(kind: str) -> None:
    found = []
    for t in (torch, flambeau):
        loss = t.nn.LinearCrossEntropyLoss(5, 3, out_features=(2, 2), bias=True, reduction=kind)
        with t.no_grad():
            loss.linear.weight.copy_(t.arange(60.0).reshape(12, 5).cos())
            loss.linear.bias.copy_(t.arange(12.0).sin())
        made = loss(t.tensor(IMAGES[0, 0].tolist()), t.arange(24).reshape(6, 2, 2) % 3)
        made.sum().backward()
        found.append((made.tolist(), loss.linear.weight.grad.tolist(), repr(loss)))
    np.testing.assert_allclose(np.array(found[1][0]), np.array(found[0][0]), rtol=1e-5)
    np.testing.assert_allclose(np.array(found[1][1]), np.array(found[0][1]), rtol=1e-4, atol=1e-6)
    assert found[0][2] == found[1][2]
