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


EACH_TIME = [
    (lambda: F.softmax(fb.ones(2, 3)), "Implicit dimension choice for softmax"), (lambda: F.log_softmax(fb.ones(3)), "choice for log_softmax"),
    (lambda: F.softmin(fb.ones(3)), "choice for softmin"), (lambda: fb.ones(1).std(), r"std\(\): degrees of freedom is <= 0"),
    (lambda: fb.ones(2, 1).var(1), r"var\(\): degrees"), (lambda: fb.var_mean(fb.ones(0)), r"var_mean\(\): degrees"),
    (lambda: fb.ones(3).std(correction=3), "degrees"), (lambda: F.upsample(fb.ones(1, 1, 2), scale_factor=2), "upsample` is deprecated"),
    (lambda: fb.ones(1).expand(3).index_put_((fb.tensor([0]),), fb.tensor(1.0)), "on expanded tensors"),
    (lambda: F.kl_div(fb.zeros(2), fb.ones(2)), "'batchmean'")]
ONCE = [
    (lambda: (fb.ones(2) * 1j).to(fb.float32), "Casting complex values to real"), (lambda: fb.ones(2).copy_(fb.ones(2) * 1j), "Casting complex"),
    (lambda: F.conv1d(fb.ones(1, 1, 4), fb.ones(1, 1, 2), padding="same"), "padding='same' with even"),
    (lambda: fb.ones(1, requires_grad=True).sum().backward(create_graph=True), "create_graph=True")]


@pytest.mark.parametrize(("call", "told"), EACH_TIME, ids=[told for _, told in EACH_TIME])
def test_a_warning_comes_with_each_call_and_names_the_callers_line(call, told):
    for _ in range(6):  # a call that was learned would say nothing
        with pytest.warns(UserWarning, match=told) as said:
            call()
        assert [w.filename for w in said] == [__file__]


@pytest.mark.parametrize(("call", "told"), ONCE, ids=[told for _, told in ONCE])
def test_a_warning_that_comes_once(call, told, monkeypatch):
    monkeypatch.setattr(errors, "_said", set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            call()
    assert [w.filename for w in said] == [__file__] and told in str(said[0].message)


def test_what_deserves_no_warning(recwarn):
    (fb.ones(2) * 1j).to(fb.bool)
    fb.ones(2).var(correction=0)
    F.softmax(fb.ones(2), 0)
    x = fb.ones(2, requires_grad=True)
    (x * 1j).real.sum().backward()  # the gradient of a real number is made real without a word
    assert not recwarn.list


def test_warnings_that_the_programs_filters_drop_are_not_looked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(errors.warnings, "warn", lambda *given, **named: asked.append(given))
    for filters, told in [
            ([], 1), ([("ignore", None, Warning, None, 0)], 0), ([("ignore", None, UserWarning, None, 0)], 0), ([("ignore", None, FutureWarning, None, 0)], 1),
            ([("ignore", None, Warning, None, 7)], 1), ([("ignore", "said", Warning, None, 0), ("ignore", None, Warning, None, 0)], 0),
            ([("ignore", None, Warning, "some", 0)], 1), ([("error", "said", Warning, None, 0), ("ignore", None, Warning, None, 0)], 1),
            ([("always", None, FutureWarning, None, 0), ("ignore", None, Warning, None, 0)], 0)]:
        asked.clear()
        with warnings.catch_warnings():
            warnings.filters[:] = filters
            errors.warn("said")
            errors.warn("said")
        assert len(asked) == 2 * told, filters
