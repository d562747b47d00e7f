"""Normalisation layers against NumPy: batch and running statistics, modes, errors, old dictionaries."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn

X = np.random.default_rng(0).standard_normal((6, 4, 5)).astype(np.float32) * 2 + 1


def _normalised(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_batch_norm_uses_and_moves_its_statistics():
    norm = nn.BatchNorm1d(4, momentum=0.2)
    out = norm(flambeau.from_numpy(X))
    np.testing.assert_allclose(out.detach().numpy(), _normalised(X, (0, 2)), atol=1e-5)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.2 * X.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), 0.8 + 0.2 * X.var((0, 2), ddof=1), rtol=1e-5)
    assert norm.num_batches_tracked.item() == 1
    mean, var = norm.running_mean.numpy().copy(), norm.running_var.numpy().copy()
    out = norm.eval()(flambeau.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(out, (X - mean[:, None]) / np.sqrt(var[:, None] + 1e-5), atol=1e-5)
    np.testing.assert_array_equal(norm.running_mean.numpy(), mean)


def test_momentum_none_averages_all_batches():
    norm = nn.BatchNorm1d(4, momentum=None)
    for scale in (1.0, 3.0):
        norm(flambeau.from_numpy(X * np.float32(scale)))
    np.testing.assert_allclose(norm.running_mean.numpy(), 2 * X.mean((0, 2)), rtol=1e-5)


@pytest.mark.parametrize("made,axes", [(nn.LayerNorm(5), (2,)), (nn.LayerNorm((4, 5)), (1, 2)), (nn.InstanceNorm1d(4),
                                                                                                 (2,)),
                                       (nn.GroupNorm(1, 4), (1, 2)), (nn.GroupNorm(4, 4), (2,))])
def test_norms_within_a_sample(made, axes):
    out = made(flambeau.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(out, _normalised(X, axes), atol=1e-5)


def test_rms_norm():
    norm = nn.RMSNorm(5, eps=1e-6)
    with flambeau.no_grad():
        norm.weight.fill_(2.0)
    expected = 2 * X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(norm(flambeau.from_numpy(X)).detach().numpy(), expected, rtol=1e-5)


def test_local_response_norm():
    out = nn.LocalResponseNorm(3, alpha=0.3, beta=0.5, k=2.0)(flambeau.from_numpy(X)).numpy()
    sums = np.stack([(X[:, max(c - 1, 0):c + 2] ** 2).sum(1) for c in range(4)], 1)
    np.testing.assert_allclose(out, X / np.sqrt(2.0 + 0.1 * sums), rtol=1e-5)


@pytest.mark.parametrize("made,shape,text", [
    (nn.BatchNorm1d(3), (3,), "expected 2D or 3D input"), (nn.BatchNorm2d(3), (2, 3), "expected 4D input"),
    (nn.BatchNorm3d(3), (2, 3), "expected 5D input"), (nn.InstanceNorm2d(3), (2, 3), "expected 3D or 4D input"),
])
def test_wrong_dimensions(made, shape, text):
    with pytest.raises(ValueError, match=text):
        made(flambeau.zeros(*shape))
    with pytest.raises(ValueError, match="must be divisible by num_groups"):
        nn.GroupNorm(2, 3)


def test_a_dictionary_without_the_counter_is_complete():
    norm = nn.BatchNorm1d(2)
    state = dict(norm.state_dict())
    del state["num_batches_tracked"]
    assert norm.load_state_dict(state).missing_keys == []


def test_conversion_to_sync_batch_norm_keeps_tensors():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())
    weight = net[0].weight
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(made[0], nn.SyncBatchNorm) and made[0].weight is weight


def test_cross_map_normalization() -> None:
    x = flambeau.randn(2, 5, 3, 3)
    assert flambeau.allclose(nn.CrossMapLRN2d(3)(x), nn.functional.local_response_norm(x, 3))


@pytest.mark.parametrize("cls, dims", [(nn.InstanceNorm1d, 2), (nn.InstanceNorm2d, 3), (nn.InstanceNorm3d, 4)])
def test_instance_norms_want_their_channels(cls, dims):
    for shape in ((2,) * dims, (3,) + (2,) * dims):
        x = flambeau.ones(shape)
        with pytest.raises(ValueError, match="expected input's size at dim="):
            cls(4, affine=True)(x)
        with pytest.warns(UserWarning, match="not used because affine=False"):
            assert cls(4)(x).shape == x.shape
    assert cls(4)._get_no_batch_dim() == dims


def test_a_group_of_one_value_is_refused():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.GroupNorm(10, 10)(flambeau.ones(1, 10, 1))
    assert nn.GroupNorm(5, 10)(flambeau.ones(1, 10, 1)).shape == (1, 10, 1)


@pytest.mark.parametrize("shape, form", [((2, 6, 4, 5), flambeau.channels_last), ((2, 6, 3, 4, 2), flambeau.channels_last_3d)])
def test_groups_of_images_with_channels_innermost(shape, form):
    x = flambeau.randn(shape).contiguous(memory_format=form).requires_grad_()
    y = x.detach().contiguous().requires_grad_()
    made, plain = (flambeau.nn.functional.group_norm(t, 3) for t in (x, y))
    assert made.is_contiguous(memory_format=form) and plain.is_contiguous() and flambeau.allclose(made, plain, atol=1e-6)
    g = flambeau.randn(shape)
    made.backward(g)
    plain.backward(g)
    assert flambeau.allclose(x.grad, y.grad, atol=1e-5)
    for norm in (lambda t: flambeau.nn.functional.group_norm(t, 3), lambda t: flambeau.nn.functional.batch_norm(t, None, None, training=True),
                 lambda t: flambeau.nn.functional.batch_norm(t, flambeau.zeros(6), flambeau.ones(6))):
        for arriving in (g, g.contiguous(memory_format=form)):  # which may lie in any way
            gx, = flambeau.autograd.grad(norm(x), x, arriving)
            assert gx.is_contiguous(memory_format=form)
            assert flambeau.autograd.grad(norm(y), y, arriving)[0].is_contiguous() and not flambeau.nn.functional.instance_norm(x).is_contiguous(
                memory_format=form)
