"""`torch._check` and its like."""

from __future__ import annotations

import pytest

import flambeau as fb

CHECKS = {"_check": RuntimeError, "_check_index": IndexError, "_check_value": ValueError, "_check_type": TypeError,
          "_check_not_implemented": NotImplementedError}


@pytest.mark.parametrize("name", CHECKS)
def test_a_condition_holds_or_raises(name):
    check = getattr(fb, name)
    check(True, lambda: pytest.fail("the message was made"))
    with pytest.raises(CHECKS[name], match="Expected cond to be True"):
        check(False)
    with pytest.raises(CHECKS[name], match="told 3"):
        check(False, lambda: f"told {3}")
    with pytest.raises(TypeError, match="cond must be a bool"):
        check(fb.tensor(True))
    with pytest.raises(TypeError, match="callable"):
        check(False, "text")


def test_tensors_of_truths(device):
    fb._check_tensor_all(fb.ones(2, 3, dtype=fb.bool, device=device))
    with pytest.raises(RuntimeError, match="two"):
        fb._check_tensor_all(fb.tensor([True, False], device=device), lambda: "two")
    for wrong in (True, fb.ones(1, device=device)):
        with pytest.raises(TypeError, match="cond"):
            fb._check_tensor_all(wrong)
    fb._assert_async(fb.tensor(2.0, device=device))
    with pytest.raises(RuntimeError, match="but got zero"):
        fb._assert_async(fb.tensor(0.0, device=device))


def test_sizes_and_overlaps():
    fb._check_is_size(3, max=3)
    with pytest.raises(RuntimeError, match="Expected cond"):
        fb._check_is_size(-1)
    t = fb.zeros(3, 4)
    assert fb._debug_has_internal_overlap(t.t()) == 0 and fb._debug_has_internal_overlap(t[:1].expand(3, 4)) == 1
    assert fb._debug_has_internal_overlap(t[:, ::2]) == 2 and fb._debug_has_internal_overlap(t[:0]) == 0
