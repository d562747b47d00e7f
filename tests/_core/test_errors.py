"""Warnings: whose line they name."""

from __future__ import annotations

import warnings

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau._core import errors

X = fb.ones(3, 2)


@pytest.mark.parametrize("call", [
    lambda: F.kl_div(X, X), lambda: F.mse_loss(X, X[:1]), lambda: fb.nn.KLDivLoss()(X, X), lambda: F.mse_loss(X, X, size_average=True),
    lambda: fb.add(X, 1, out=fb.zeros(4)), lambda: fb.tensor(X), lambda: X.new_tensor(X), lambda: F.grid_sample(fb.ones(1, 1, 2, 2), fb.zeros(1, 1, 1, 2)),
    lambda: fb.cov(fb.ones(2, 1)), lambda: F.dropout3d(X), lambda: (fb.ones(1, requires_grad=True) * 2).grad,
])
def test_a_warning_names_the_line_of_the_user(call):
    with pytest.warns(UserWarning) as said:
        call()
    assert [w.filename for w in said] == [__file__] * len(said)


def test_what_is_said_once():
    def say():
        errors.warn_once("said once by a test")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        say()
        say()
    assert [str(w.message) for w in said] == ["said once by a test"] and said[0].filename == __file__
