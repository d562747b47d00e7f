"""`use_deterministic_algorithms`, its debug modes, and what memory holds that nothing has filled."""

from __future__ import annotations

import math

import pytest

import flambeau as fb
from flambeau._core.engine import fields
from flambeau.utils import deterministic


@pytest.fixture(autouse=True)
def _off_again():
    yield
    fb.use_deterministic_algorithms(False)
    deterministic.fill_uninitialized_memory = True


def test_the_mode_and_its_debug_forms_are_one_setting():
    assert not fb.are_deterministic_algorithms_enabled() and fb.get_deterministic_debug_mode() == 0
    fb.use_deterministic_algorithms(True)
    assert fb.are_deterministic_algorithms_enabled() and not fb.is_deterministic_algorithms_warn_only_enabled()
    assert fb.get_deterministic_debug_mode() == 2
    fb.use_deterministic_algorithms(True, warn_only=True)
    assert fb.is_deterministic_algorithms_warn_only_enabled() and fb.get_deterministic_debug_mode() == 1
    for word, number in (("error", 2), ("warn", 1), ("default", 0)):
        for mode in (word, number):
            fb.set_deterministic_debug_mode(mode)
            assert fb.get_deterministic_debug_mode() == number
            assert fb.are_deterministic_algorithms_enabled() == (number > 0)
            assert fb.is_deterministic_algorithms_warn_only_enabled() == (number == 1)


@pytest.mark.parametrize(("wrong", "kind", "words"), [
    ("x", RuntimeError, "expected one of `default`, `warn`, or `error`, but got x"),
    (5, RuntimeError, "expected 0, 1, or 2, but got 5"),
    (None, TypeError, "debug_mode must be str or int, but got <class 'NoneType'>")])
def test_wrong_debug_modes(wrong, kind, words):
    with pytest.raises(kind, match=words):
        fb.set_deterministic_debug_mode(wrong)


@pytest.mark.parametrize("wrong", ["x", 1, None])
def test_wrong_modes(wrong):
    with pytest.raises(TypeError, match=r"argument 'mode' \(position 1\) must be bool, not " + type(wrong).__name__):
        fb.use_deterministic_algorithms(wrong)


_MAKERS = {
    "empty": lambda d: fb.empty(3, dtype=d), "empty out": lambda d: fb.empty(3, dtype=d, out=fb.zeros(3, dtype=d)),
    "empty_like": lambda d: fb.empty_like(fb.zeros(3, dtype=d)), "new_empty": lambda d: fb.zeros(1, dtype=d).new_empty(3),
    "empty_strided": lambda d: fb.empty_strided((3,), (2,), dtype=d), "empty_permuted": lambda d: fb.empty_permuted((3,), (0,), dtype=d),
    "new_empty_strided": lambda d: fb.zeros(1, dtype=d).new_empty_strided((3,), (1,)), "new": lambda d: fb.zeros(1, dtype=d).new(3),
    "resize_": lambda d: fb.zeros(2, dtype=d).resize_(5)[2:]}


@pytest.mark.parametrize("how", _MAKERS)
def test_memory_that_nothing_has_filled_holds_what_shows(how):
    make = _MAKERS[how]
    make(fb.float32)  # a plan from before
    fb.use_deterministic_algorithms(True)
    for _ in range(5):
        assert all(math.isnan(v) for v in make(fb.float32).tolist())
    assert make(fb.int16).tolist() == [32767] * 3 and make(fb.uint8).tolist() == [255] * 3 and make(fb.bool).tolist() == [True] * 3
    made = make(fb.complex64)
    assert made.real.isnan().all() and (made.imag == 0).all()
    deterministic.fill_uninitialized_memory = False
    assert make(fb.float32).shape == (3,)


def test_resized_tensors_keep_their_elements():
    fb.use_deterministic_algorithms(True)
    t = fb.ones(2).resize_(4)
    assert t[:2].tolist() == [1.0, 1.0] and t[2:].isnan().all()
    assert fb.Tensor(2).isnan().all() and fb.FloatTensor(2).isnan().all()


def test_the_operations_that_fill_nothing_say_so():
    assert {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"} == set(fields.of("unfilled"))


def test_colliding_writes_give_the_same_each_time():
    fb.use_deterministic_algorithms(True)
    at, values = fb.randint(0, 5, (10_000,)), fb.randn(10_000)
    first = fb.zeros(5).put_(at, values), fb.zeros(5).index_add(0, at, values), fb.zeros(5).scatter_reduce(0, at, values, "prod")
    for _ in range(3):
        again = fb.zeros(5).put_(at, values), fb.zeros(5).index_add(0, at, values), fb.zeros(5).scatter_reduce(0, at, values, "prod")
        assert all(fb.equal(a, b) for a, b in zip(first, again, strict=True))
