"""Channel dropout and alpha dropout: what is dropped, how often, and the statistics kept."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.nn import functional as F


@pytest.mark.parametrize("drop,shape", [(F.dropout1d, (40, 50, 3)), (F.dropout2d, (40, 50, 2, 3)), (F.dropout3d,
                                                                                                    (40, 50, 2, 1, 3)),
                                        (F.dropout1d, (2000, 3)), (F.dropout3d, (2000, 2, 2, 2))])
def test_whole_channels(drop, shape):
    flambeau.manual_seed(0)
    out = drop(flambeau.ones(*shape), 0.25).numpy().reshape(2000, -1)
    assert (out == out[:, :1]).all() and set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}
    assert 0.22 < (out[:, 0] == 0).mean() < 0.28
    np.testing.assert_array_equal(drop(flambeau.ones(*shape), 0.25, False).numpy(), np.ones(shape))
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            drop(flambeau.ones(*shape), p)


def test_in_place():
    x = flambeau.ones(4, 5, 2, 2)
    assert F.dropout2d(x, 1.0, True, True) is x and not x.numpy().any()


def test_alpha_dropout_keeps_mean_and_variance():
    flambeau.manual_seed(1)
    x = flambeau.randn(200000)
    out = F.alpha_dropout(x, 0.3, True).numpy()
    assert abs(out.mean()) < 0.02 and abs(out.std() - 1) < 0.02
    assert F.alpha_dropout(x, 0.3) is x
    channels = F.feature_alpha_dropout(flambeau.ones(50, 20, 4), 0.5, True).numpy()
    assert (channels == channels[:, :, :1]).all() and len(np.unique(channels)) == 2


def test_bad_shapes():
    with pytest.raises(RuntimeError, match="dropout1d: Expected 2D or 3D input"):
        F.dropout1d(flambeau.ones(2))
    with pytest.warns(UserWarning, match="Received a 5-D input to dropout2d"):
        F.dropout2d(flambeau.ones(1, 1, 1, 1, 1))
    with pytest.warns(UserWarning, match="assuming that channel-wise 1D dropout behavior is desired"):
        F.dropout2d(flambeau.ones(1, 2, 2))


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_dropouts_in_place(name: str) -> None:
    x = flambeau.rand(3, 4, 2)
    flambeau.manual_seed(3)
    want = getattr(flambeau, name)(x, 0.5, True)
    flambeau.manual_seed(3)
    given = x.clone()
    made = getattr(flambeau, name + "_")(given, 0.5, True)
    assert made is given and flambeau.equal(made, want) and not flambeau.equal(made, x)
    assert flambeau.equal(getattr(flambeau, name + "_")(x.clone(), 0.5, False), x)
    assert not getattr(flambeau, name + "_")(x.clone(), 1.0, True).any()
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        getattr(flambeau, name + "_")(x, 1.5, True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        getattr(flambeau, name + "_")(flambeau.ones(2, 2, requires_grad=True), 0.5, True)
    if name != "alpha_dropout":
        with pytest.raises(RuntimeError, match="at least 2 dimensions"):
            getattr(flambeau, name + "_")(flambeau.ones(3), 0.5, True)
