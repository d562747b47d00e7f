"""What PyTorch has removed says what to call instead."""

from __future__ import annotations

import pytest

import flambeau as torch

A = torch.eye(2)


@pytest.mark.parametrize(("name", "instead"), [("solve", "linalg.solve"), ("lstsq", "linalg.lstsq"), ("symeig", "linalg.eigh"), ("eig", "linalg.eig"),
                                               ("matrix_rank", "linalg.matrix_rank")])
def test_linear_algebra_of_old(name: str, instead: str) -> None:
    two = (A,) if name in ("solve", "lstsq") else ()
    with pytest.raises(RuntimeError, match=f"deprecated since version 1.9 and is now removed.*{instead}"):
        getattr(torch, name)(A, *two)
    if name == "matrix_rank":
        assert not hasattr(A, name)
        return
    with pytest.raises(RuntimeError, match=f"now removed.*{instead}"):
        getattr(A, name)(*two)
    assert getattr(torch.Tensor, name).__name__ == name
    with pytest.raises(TypeError):
        getattr(torch, name)()


def test_another_shape_not_in_place() -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        made = x.resize(3, 2)
    assert made.tolist() == [[0, 1], [2, 3], [4, 5]] and made.data_ptr() == x.data_ptr() and made.grad_fn is not None
    with pytest.warns(UserWarning, match="non-inplace resize_as is deprecated"):
        assert x.t().resize_as(torch.ones(6)).tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="requested resize to 5"):
        x.resize(5)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="requested resize to 2x2"):
        x.resize_as(A)


def test_what_variables_had() -> None:
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert A.volatile is False
    with pytest.warns(UserWarning, match="no effect"):
        A.clone().volatile = True
    with pytest.raises(RuntimeError, match="reinforce.. was removed"):
        A.reinforce(1)
