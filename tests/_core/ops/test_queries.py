"""Questions and settings of the top namespace."""

from __future__ import annotations

import pytest

import flambeau as fb


def test_questions_about_objects():
    t = fb.zeros(2, 3)
    assert fb.is_tensor(t) and not fb.is_tensor([1]) and fb.is_tensor(fb.nn.Parameter(t)) and fb.numel(t) == 6
    assert fb.is_floating_point(t) and not fb.is_floating_point(t.long()) and fb.is_complex(t.cfloat()) and fb.is_storage(t.untyped_storage())
    assert not fb.is_storage(t)
    assert fb.is_nonzero(fb.tensor(3)) is True and fb.is_nonzero(fb.tensor([0.0])) is False and t.is_same_size(fb.ones(2, 3))
    assert not fb.is_same_size(t, fb.ones(3))
    with pytest.raises(RuntimeError, match="ambiguous"):
        fb.is_nonzero(t)
    assert fb.typename(t) == "torch.FloatTensor" and fb.typename(3) == "builtins.int"


def test_result_types_and_broadcast_shapes():
    assert fb.result_type(fb.ones(1, dtype=fb.int8), 1.5) is fb.float32
    assert fb.result_type(fb.ones(1, dtype=fb.float16), fb.ones((), dtype=fb.float64)) is fb.float16
    assert fb.broadcast_shapes((2, 1), (3,), 1) == fb.Size([2, 3]) and fb.broadcast_shapes() == ()
    with pytest.raises(RuntimeError, match="negative dimension"):
        fb.broadcast_shapes((-1,))
    with pytest.raises(RuntimeError, match="must match the size"):
        fb.broadcast_shapes((2,), (3,))


def test_threads_are_a_setting():
    before = fb.get_num_threads()
    assert before >= 1
    try:
        fb.set_num_threads(1)
        assert fb.get_num_threads() == 1
        assert fb.ones(300_000).sum().item() == 300_000
    finally:
        fb.set_num_threads(before)
    for wrong in (0, -1):
        with pytest.raises(RuntimeError, match="positive number of threads"):
            fb.set_num_threads(wrong)


def test_results_do_not_depend_on_the_number_of_threads():
    fb.manual_seed(0)
    x, before = fb.randn(1_000_003), fb.get_num_threads()
    try:
        sums = []
        for n in (1, 2):
            fb.set_num_threads(n)
            sums.append((x.sum().item(), (x * 1.1).exp().mean().item(), x.cumsum(0)[-1].item()))
        assert sums[0] == sums[1]
    finally:
        fb.set_num_threads(before)


def test_settings_that_scripts_set():
    assert fb.get_float32_matmul_precision() == "highest"
    fb.set_float32_matmul_precision("high")
    assert fb.get_float32_matmul_precision() == "high"
    fb.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="is not one of 'highest', 'high', or 'medium'"):
        fb.set_float32_matmul_precision("low")


def test_compile_gives_the_function_back():
    def f(x):
        return x + 1
    assert fb.compile(f)(fb.ones(1)).item() == 2

    @fb.compile(mode="default")
    def g(x):
        return x * 2
    assert g(fb.ones(1)).item() == 2


def test_flags_as_functions():
    t = fb.zeros(2, dtype=fb.uint8)
    assert not fb.is_signed(t) and fb.is_signed(t.int()) and not fb.is_conj(t) and not fb.is_neg(t) and not fb.is_inference(t) and fb.get_device(t) == -1
    assert not fb.is_anomaly_enabled() and fb.is_anomaly_check_nan_enabled()
    with fb.autograd.detect_anomaly(check_nan=False):
        assert fb.is_anomaly_enabled() and not fb.is_anomaly_check_nan_enabled()
