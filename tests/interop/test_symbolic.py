"""Checks for a compiler, on Python's numbers."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_numbers() -> None:
    assert (torch.sym_int(2.7), torch.sym_int(-2.7), torch.sym_float(2), torch.sym_not(False)) == (2, -2, 2.0, True)
    assert torch.sym_max(1, 2.0) == 2.0 and isinstance(torch.sym_max(3, 2.0), float) and torch.sym_min(3, 2) == 2 and torch.sym_sum([1, 2]) == 3
    assert torch.sym_ite(True, 1, 2) == 1 and torch.sym_sqrt(9) == 3
    assert not isinstance(3, torch.SymInt) and not isinstance(True, torch.SymBool) and not isinstance(1.0, (torch.SymFloat, torch.SymInt))


def test_checks() -> None:
    torch._check(True)
    with pytest.raises(TypeError, match="cond must be a bool"):
        torch._check(torch.tensor(True))
    with pytest.raises(RuntimeError, match="too long"):
        torch._check(False, lambda: "too long")
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        torch._check(1 > 2)
    with pytest.raises(TypeError, match="message must be a callable, got str"):
        torch._check(False, "text")
    for check, kind in ((torch._check_index, IndexError), (torch._check_value, ValueError), (torch._check_type, TypeError)):
        with pytest.raises(kind):
            check(False)
    torch._check_is_size(0)
    with pytest.raises(RuntimeError):
        torch._check_is_size(-1)
    with pytest.raises(AssertionError, match="no"):
        torch._assert(False, "no")
    torch._assert_async(torch.tensor([1.0]))
    with pytest.raises(RuntimeError, match="nonzero"):
        torch._assert_async(torch.tensor(0))
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        torch._assert_async(torch.ones(2))
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3]
