"""Reading and writing at tensors of positions."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb


def test_positions_met_before_are_checked_each_time():
    """The second call on the same layouts goes by what the first one kept: values still decide what is right."""
    x = fb.arange(12.0).reshape(4, 3)
    for index, wanted in ((fb.tensor([0, -1]), [0, 3]), (fb.tensor([2, 1]), [2, 1]), (fb.tensor([-4, 3]), [0, 3])):
        assert x[index].tolist() == [x.tolist()[i] for i in wanted]
        assert x[:, index[1:] * 0].tolist() == [[row[0]] for row in x.tolist()]
    for bad in (4, -5):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0 with size 4"):
            x[fb.tensor([1, bad])]
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension 0 with size 4"):
            fb.index_select(x, 0, fb.tensor([1, bad]))
    # the same positions in another layout, another type, and with a history
    index = fb.tensor([2, 9, 1, 9])[::2]
    assert x[index].tolist() == [x.tolist()[2], x.tolist()[1]]
    assert x.double()[index].dtype is fb.float64
    w = fb.nn.Parameter(x.clone())
    for _ in range(2):
        w.grad = None
        w[index, index].sum().backward()
        assert w.grad.nonzero().tolist() == [[1, 1], [2, 2]]
        w.grad = None
        fb.nn.functional.embedding(index, w).sum().backward()
        assert w.grad.sum(1).tolist() == [0, 3, 3, 0]
    with fb.no_grad():
        assert w[index].grad_fn is None
    assert w[index].grad_fn.name() == "IndexBackward0"


def test_no_position_is_looked_at_where_nothing_is_read():
    t = fb.arange(12.0).reshape(3, 4)
    assert t[0:0, [7]].shape == (0, 1) and t[[7], 0:0].shape == (1, 0) and t[fb.tensor([9]), 0:0].shape == (1, 0) and t[[], [7]].shape == (0,)
    assert fb.zeros(3, 0)[[5]].shape == (1, 0) and fb.zeros(0, 3)[:, fb.tensor([5])].shape == (0, 1)
    t[0:0, [7]] = 1.0
    assert t.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    for empty, index in ((fb.zeros(0, 3), [0]), (fb.zeros(0, 3), ([0], [0])), (fb.zeros(3, 0), (slice(None), [0]))):
        with pytest.raises(IndexError, match="with size 0"):
            empty[index]


@pytest.mark.parametrize(("write", "error", "told"), [
    (lambda x: x.__setitem__(5, 1j), RuntimeError, "is complex"),  # the value is made before it is known where it goes
    (lambda x: x.__setitem__(slice(3, None), 1j), RuntimeError, "is complex"),
    (lambda x: x.__setitem__(False, 1j), RuntimeError, "is complex"),
    (lambda x: x.__setitem__([0, -5, 2], x.new_ones(2)), RuntimeError, "shape mismatch"),  # shapes before positions
    (lambda x: x.__setitem__([9], x.new_ones(1).double()), RuntimeError, "dtypes match"),
    (lambda x: x.new_zeros(0).__setitem__([0, 1], x.new_ones(2).double()), IndexError, "with size 0"),
    (lambda x: x.__setitem__([0, 1, 2], x), RuntimeError, "refer to a single memory location"),
    (lambda x: x[:, None].__setitem__(..., x), RuntimeError, "expanded size"),
])
def test_what_is_looked_at_first_when_an_index_is_written_to(write, error, told, device):
    x = fb.arange(3.0, device=device)
    with pytest.raises(error, match=told):
        write(x)
        if device.startswith("cuda"):
            fb.cuda.synchronize()
    assert x.tolist() == [0, 1, 2]


def test_a_value_that_lies_in_what_is_written_to(device):
    x = fb.arange(6.0, device=device).reshape(2, 3)
    x[None] = x  # the same elements
    x[False] = x[0]  # nothing
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x[None, :] = x[0]  # read for each row
    assert x.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_writing_at_no_positions_at_all_is_refused():
    for accumulate in (False, True):
        with pytest.raises(RuntimeError, match="at least one index"):
            fb.ones(()).index_put([], fb.ones(1), accumulate)
