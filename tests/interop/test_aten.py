"""Operations by the names of PyTorch's core."""

from __future__ import annotations

import pytest

import flambeau as torch

aten = torch.ops.aten


def test_an_operation_and_its_overloads(device) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)
    assert aten.add.Tensor(x, x).tolist() == aten.add(x, x).tolist() == (x + x).tolist()
    assert aten.mm.default(x, x.T).tolist() == (x @ x.T).tolist() and aten.mul.Scalar(x, 2).tolist() == (x * 2).tolist()
    assert aten.slice.Tensor(x, 1, 0, 2).tolist() == [[0, 1], [3, 4]] and aten.slice.Tensor(x, -2, 1).tolist() == [[3, 4, 5]]
    assert aten.index.Tensor(x, [None, torch.tensor([2, 0], device=device)]).tolist() == [[2, 0], [5, 3]]
    copy = aten._to_copy.default(x, dtype=torch.float64)
    assert copy.dtype is torch.float64 and copy.tolist() == x.tolist() and aten._to_copy(x) is not x
    alias = aten.alias.default(x)
    assert alias is not x and alias.data_ptr() == x.data_ptr() and aten.select.int(x, 0, 1).tolist() == [3, 4, 5]
    assert aten.sort.stable(x[0], stable=True, dim=0, descending=True)[1].tolist() == [2, 1, 0]
    y = x.clone()
    aten.add_.Tensor(y, x)
    assert y.tolist() == (2 * x).tolist()
    assert aten._sparse_addmm.default(x, torch.ones(2, 2, device=device), x, beta=2).tolist() == (2 * x + torch.ones(2, 2, device=device) @ x).tolist()


def test_convolution(device) -> None:
    x, w = torch.ones(1, 2, 5, device=device), torch.ones(3, 2, 3, device=device)
    assert aten.convolution.default(x, w, None, [1], [1], [1], False, [0], 1).tolist() == torch.nn.functional.conv1d(x, w, padding=1).tolist()
    back = aten.convolution(torch.ones(1, 3, 4, device=device), w, None, [2], [0], [1], True, [1], 1)
    assert back.tolist() == torch.nn.functional.conv_transpose1d(torch.ones(1, 3, 4, device=device), w, stride=2, output_padding=1).tolist()


def test_names() -> None:
    assert aten.add is aten.add and aten.add.Tensor is aten.add.Tensor and aten.add.Tensor.overloadpacket is aten.add
    assert aten.add.Tensor.name() == "aten::add.Tensor" and aten.relu.default.name() == "aten::relu" and "aten.add" in repr(aten.add)
    assert "Scalar" in aten._foreach_maximum_.overloads() and aten.relu.overloads() == ["default"]
    for missing in ("no_such_operation", "__path__"):
        assert not hasattr(aten, missing)
    with pytest.raises(AttributeError, match="'aten' object has no attribute 'no_such_operation'"):
        aten.no_such_operation  # noqa: B018
    with pytest.raises(IndexError, match="Dimension out of range"):
        aten.slice(torch.ones(2), 3)
