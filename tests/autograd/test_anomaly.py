"""Anomaly detection: errors and NaN in a backward pass name the line of the forward pass."""

from __future__ import annotations

import inspect

import pytest

import flambeau as fb
from flambeau.autograd import Function, detect_anomaly, set_detect_anomaly


def here():
    """The number of the line that called."""
    return inspect.currentframe().f_back.f_lineno


def test_nan_names_the_operation_and_its_line():
    x = fb.tensor([0.0, 1.0], requires_grad=True)
    with detect_anomaly():
        y = x.sqrt() * 0; line = here()  # noqa: E702
        with pytest.raises(RuntimeError, match=rf"Function 'SqrtBackward0' returned nan values in its 0th output.*test_anomaly.py:{line}: y = x.sqrt\(\)"):
            y.sum().backward()
    y = x.sqrt() * 0
    y.sum().backward()  # unnoticed outside
    assert x.grad.isnan().any()


def test_complex_nan_is_noticed():
    z = fb.tensor([0j, 1j], requires_grad=True)
    with detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values"):
        (z.log() * 0).real.sum().backward()


def test_a_changed_tensor_names_the_line_that_saved_it():
    x = fb.ones(2, requires_grad=True)
    with detect_anomaly():
        y = x * 1
        z = y * y; line = here()  # noqa: E702
        y.add_(1)
        with pytest.raises(RuntimeError, match=rf"(?s)modified by an inplace operation.*test_anomaly.py:{line}"):
            z.sum().backward()
    with pytest.raises(RuntimeError, match="Hint: enable anomaly detection"):
        y = x * 1
        z = y * y
        y.add_(1)
        z.sum().backward()


@pytest.mark.parametrize("error", [RuntimeError, ValueError, ZeroDivisionError])
def test_errors_of_a_users_function_name_its_line(error):
    class Broken(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise error("no way back")
    x = fb.ones(1, requires_grad=True)
    with detect_anomaly():
        y = Broken.apply(x); line = here()  # noqa: E702
        with pytest.raises(error, match="no way back") as caught:
            y.backward()
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert f"test_anomaly.py:{line}" in told


def test_switching():
    from flambeau._core.autograd.tape import anomaly
    assert not anomaly.on
    with set_detect_anomaly(True):
        assert anomaly.on
        with set_detect_anomaly(False):
            assert not anomaly.on
        assert anomaly.on
    assert not anomaly.on
    try:
        set_detect_anomaly(True)
        assert anomaly.on
    finally:
        set_detect_anomaly(False)
    with pytest.raises(ValueError), detect_anomaly():
        raise ValueError
    assert not anomaly.on


def test_nan_may_be_let_through():
    x = fb.tensor([0.0], requires_grad=True)
    with detect_anomaly(check_nan=False):
        (x.sqrt() * 0).sum().backward()
    assert x.grad.isnan().all()


def test_nodes_from_before_say_so():
    x = fb.tensor([0.0], requires_grad=True)
    y = x.sqrt() * 0
    with detect_anomaly(), pytest.raises(RuntimeError, match="recorded before anomaly detection was on"):
        y.backward()


def test_on_every_device(device):
    x = fb.zeros(2).to(device).requires_grad_()
    with detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0"):
        (x.sqrt() * 0).sum().backward()


def test_detection_is_set_from_now_on() -> None:
    try:
        fb.set_anomaly_enabled(True, check_nan=False)
        assert fb.is_anomaly_enabled() and not fb.is_anomaly_check_nan_enabled()
    finally:
        fb.set_anomaly_enabled(False)
    assert not fb.is_anomaly_enabled() and fb.is_anomaly_check_nan_enabled()
    with pytest.raises(TypeError, match="'enabled' .position 1. must be bool"):
        fb.set_anomaly_enabled(1)
