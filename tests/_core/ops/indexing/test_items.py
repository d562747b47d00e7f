"""`x[...]` against NumPy, read and written, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

A = np.random.default_rng(0).normal(size=(4, 5, 6))


def _item(draw, n):
    kind = draw(st.sampled_from(["int", "slice", "none", "ellipsis", "list", "mask"]))
    if kind == "int":
        return draw(st.integers(-n, n - 1))
    if kind == "slice":
        return slice(draw(st.none() | st.integers(-7, 7)), draw(st.none() | st.integers(-7, 7)), draw(st.none() | st.integers(1, 3)))
    if kind == "none":
        return None
    if kind == "ellipsis":
        return Ellipsis
    if kind == "list":
        return np.array(draw(st.lists(st.integers(-n, n - 1), min_size=3, max_size=3)))
    return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))


@st.composite
def indices(draw):
    out, axis = [], 0
    masks = 0
    for _ in range(draw(st.integers(1, 4))):
        if axis >= 3:
            break
        x = _item(draw, A.shape[axis])
        if x is Ellipsis and any(y is Ellipsis for y in out):
            continue
        if isinstance(x, np.ndarray) and x.dtype == bool:
            masks += 1
            if masks > 1 or any(isinstance(y, np.ndarray) for y in out):
                continue
        elif isinstance(x, np.ndarray) and masks:
            continue
        if x is Ellipsis and axis:
            axis = 3
        elif x is not None and x is not Ellipsis:
            axis += 1
        out.append(x)
    if any(x is Ellipsis for x in out):  # axes after an ellipsis are counted from the end: keep to the first
        out = out[:1] if out[0] is Ellipsis else out[:[i for i, x in enumerate(out) if x is Ellipsis][0] + 1]
    # NumPy moves the axes of an int beside arrays to the front where PyTorch does not
    if any(isinstance(x, np.ndarray) for x in out):
        out = [slice(None) if isinstance(x, int) else x for x in out]
    return tuple(out)


def _ours(index):
    return tuple(fb.tensor(x) if isinstance(x, np.ndarray) else x for x in index)


@settings(max_examples=150, deadline=None)
@given(indices())
def test_reading_and_writing_match_numpy(index):
    t = fb.tensor(A)
    want = A[index]
    got = t[_ours(index)]
    assert tuple(got.shape) == want.shape
    np.testing.assert_array_equal(got.numpy(), want)
    b, u = A.copy(), fb.tensor(A)
    b[index] = 7.0
    u[_ours(index)] = 7.0
    np.testing.assert_array_equal(u.numpy(), b)


@settings(max_examples=30, deadline=None)
@given(indices())
def test_gradients_land_where_elements_came_from(index):
    x = fb.tensor(A, requires_grad=True)
    y = x[_ours(index)]
    y.sum().backward()
    want = np.zeros_like(A)
    np.add.at(want, index, 1.0)
    np.testing.assert_array_equal(x.grad.numpy(), want)


FORMS = {
    "getitem": lambda x: x[:, fb.tensor([0, 2, 2])], "gather": lambda x: x.gather(0, fb.tensor([[0, 1, 1, 0]])),
    "scatter_add": lambda x: fb.zeros(3, 4, dtype=fb.float64).scatter_add(0, fb.tensor([[0, 1, 1, 0], [2, 2, 1, 0], [0, 0, 0, 0]]), x),
    "index_select": lambda x: x.index_select(1, fb.tensor([3, 0, 3])), "masked_fill": lambda x: x.masked_fill(fb.tensor([True, False, True, False]), 2.0),
    "cat": lambda x: fb.cat([x, x * 2], 1), "stack": lambda x: fb.stack([x, x * x]), "tril": lambda x: x.tril(), "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 1), "repeat": lambda x: x.repeat(2, 2), "unfold": lambda x: x.unfold(1, 2, 1), "diagonal": lambda x: x.diagonal(1),
    "embedding": lambda x: fb.nn.functional.embedding(fb.tensor([0, 2, 2]), x), "split": lambda x: x.split(2, 1)[1] * 2,
    "where": lambda x: fb.where(x > 0, x, x * 3), "take": lambda x: x.take(fb.tensor([0, 5, 5])), "movedim": lambda x: x.movedim(0, 1) * 2,
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    assert gradcheck(FORMS[name], (x,)) and gradgradcheck(FORMS[name], (x,))


def test_on_every_device(device):
    t = fb.tensor(A).to(device)
    i = fb.tensor([0, 3, 1]).to(device)
    np.testing.assert_array_equal(t[i].cpu().numpy(), A[[0, 3, 1]])
    t[i, 1:3] = 1.0
    want = A.copy()
    want[[0, 3, 1], 1:3] = 1.0
    np.testing.assert_array_equal(t.cpu().numpy(), want)
    np.testing.assert_array_equal(fb.cat([t, t], 2).cpu().numpy(), np.concatenate([want, want], 2))


def test_a_leaf_that_is_a_view_of_a_plain_tensor_is_not_written_to(device):
    x = fb.zeros(4, device=device).reshape(2, 2).requires_grad_()
    for write in (lambda: x.__setitem__(0, 1.0), lambda: x.__setitem__([0], 1.0), lambda: x[:, 0].zero_(), lambda: x.mul_(2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            write()
    with fb.no_grad():
        x[0] = 1.0
    assert x.tolist() == [[1, 1], [0, 0]]


def test_an_element_of_a_tensor_is_written_to_all_of_it():
    t = fb.tensor([1.0, 2.0])
    t[None] = t[-1]
    assert t.tolist() == [2, 2]
    m = fb.arange(6.0).reshape(2, 3)
    m[:, 1:] = m[1, 0]
    m[...] = m[0, 1]
    assert m.tolist() == [[3, 3, 3], [3, 3, 3]]


def test_leading_axes_of_what_is_written_go_before_memory_is_looked_at():
    """A value without elements shares no memory with its own tensor, and the positions are asked first of what is left."""
    t = fb.zeros(1, 3, 0)
    t[fb.tensor([[1, 0]])] = t
    with pytest.raises(RuntimeError, match="single memory location"):
        s = fb.ones(1, 3)
        s[fb.tensor([0])] = s
    empty = fb.zeros(1, 0, 0)
    with pytest.raises(IndexError, match="out of bounds"):
        empty[..., fb.tensor([0, 1, 0])] = empty


@pytest.mark.parametrize("write", [
    lambda u: u.__setitem__(..., 2.0), lambda u: u.__setitem__(..., fb.tensor(2)), lambda u: u.__setitem__(..., fb.tensor([2.0])), lambda u: u.copy_(2),
    lambda u: u.copy_(fb.tensor([2.0])), lambda u: u.fill_(fb.tensor(2.0))])
def test_one_value_goes_into_elements_that_share_memory(write):
    x = fb.arange(5.0)
    write(x.unfold(0, 3, 1))
    assert x.tolist() == [2.0] * 5
    with pytest.raises(RuntimeError, match="single memory location"):
        write(fb.arange(5.0).expand(3, 5))
    with pytest.raises(RuntimeError, match="single memory location"):
        x.unfold(0, 3, 1)[...] = fb.ones(3)


def test_writing_by_a_byte_mask_warns():
    x = fb.ones(3)
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        x.index_put_((fb.tensor([1, 0, 1], dtype=fb.uint8),), fb.tensor(5.0))
    assert x.tolist() == [5, 1, 5]


@pytest.mark.parametrize(("target", "source", "want"), [((slice(None),), slice(None, -1, 2), [0, 0, 0]), ((...,), slice(2, None), [2, 2, 2]),
                                                        ((slice(1, None),), slice(2, None), [0, 2, 2])])
def test_one_of_the_elements_that_are_written_may_be_what_is_written(target, source, want):
    x = fb.arange(3.0).reshape(3, 1)
    x[target] = x[source]
    assert x.tolist() == [[v] for v in want] and x._version == 1
