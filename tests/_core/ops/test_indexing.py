"""Indexing, joining, splitting and the operations on positions, against NumPy."""

from __future__ import annotations

import warnings

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


def test_basic_indices_share_memory():
    t = fb.zeros(3, 4)
    t[1:, ::2].fill_(5.0)
    assert t.tolist() == [[0, 0, 0, 0], [5, 0, 5, 0], [5, 0, 5, 0]]
    assert t[1].data_ptr() == t.data_ptr() + 16 and t[None].shape == (1, 3, 4)


@pytest.mark.parametrize("index,error", [(7, IndexError), ((0, 0, 0), IndexError), ((slice(None, None, -1),), ValueError), (1.5, IndexError),
                                         ((Ellipsis, Ellipsis, 0), IndexError)])
def test_wrong_indices(index, error):
    with pytest.raises(error):
        fb.zeros(3, 4)[index]
    for kind in (fb.int8, fb.int16, fb.float32):
        with pytest.raises(IndexError, match="must be long, int, byte or bool"):
            fb.zeros(3)[fb.zeros(1, dtype=kind)]
    with pytest.raises(IndexError, match="out of bounds"):
        fb.zeros(3)[fb.tensor([0, 5])]
    with pytest.raises(IndexError, match="mask"):
        fb.zeros(3)[fb.tensor([True, False])]


def test_gather_and_scatter():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 5, (4, 3, 6))
    np.testing.assert_array_equal(fb.tensor(A).gather(1, fb.tensor(index)).numpy(), np.take_along_axis(A, index, 1))
    src = rng.normal(size=index.shape)
    want = A.copy()
    for i, j, k in np.ndindex(index.shape):
        want[i, index[i, j, k], k] += src[i, j, k]
    np.testing.assert_allclose(fb.tensor(A).scatter_add(1, fb.tensor(index), fb.tensor(src)).numpy(), want)
    with pytest.raises(RuntimeError, match="out of bounds"):
        fb.tensor(A).gather(1, fb.tensor(index + 5))


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


def test_nonzero_and_masks():
    t = fb.tensor(A > 0.5)
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(A > 0.5))
    np.testing.assert_array_equal(fb.tensor(A).masked_select(t).numpy(), A[A > 0.5])
    for ours, want in zip(fb.where(t), np.where(A > 0.5), strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)


def test_on_every_device(device):
    t = fb.tensor(A).to(device)
    i = fb.tensor([0, 3, 1]).to(device)
    np.testing.assert_array_equal(t[i].cpu().numpy(), A[[0, 3, 1]])
    t[i, 1:3] = 1.0
    want = A.copy()
    want[[0, 3, 1], 1:3] = 1.0
    np.testing.assert_array_equal(t.cpu().numpy(), want)
    np.testing.assert_array_equal(fb.cat([t, t], 2).cpu().numpy(), np.concatenate([want, want], 2))


@pytest.mark.parametrize("value", [0, -3, 2.5, True, float("nan"), 300])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "uint8", "bool"])
def test_a_number_where_a_mask_is_true(name, value):
    d = getattr(fb, name)
    rng = np.random.default_rng(8)
    a, m, k = rng.integers(0, 2, (4, 5, 3)), rng.integers(0, 2, (4, 5)) > 0, rng.integers(0, 2, 3) > 0
    for index, where in (((m,), (fb.tensor(m),)), ((slice(1, 3), slice(None), k), (slice(1, 3), slice(None), fb.tensor(k)))):
        x = fb.tensor(a).to(d)
        try:
            scalar = fb.tensor(value, dtype=d)
        except (RuntimeError, OverflowError, ValueError) as error:
            with pytest.raises(type(error)):
                x[where] = value
            continue
        want = x.float().numpy().copy()
        want[index] = scalar.float().item()
        x[where] = value
        np.testing.assert_array_equal(x.float().numpy(), want)
    y = fb.tensor(a).float().requires_grad_()
    z = y * 1
    z[fb.tensor(m)] = 2
    z.sum().backward()
    np.testing.assert_array_equal(y.grad.numpy()[..., 0], (~m).astype("f4"))


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


@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16, fb.complex64, fb.int64, fb.bool])
def test_small_masks_choose_as_positions_do(dtype):
    base = fb.arange(24).reshape(2, 3, 4)
    x = base % 3 == 0 if dtype is fb.bool else base.to(dtype)
    for some in (base % 5 < 2, base[0] % 5 < 2, base[:, :, 0] >= 8, base[:, 0, 0] >= 0, base < 0, base[0, 0] < 0):
        if some.shape != x.shape[:some.dim()]:
            with pytest.raises(IndexError, match="does not match the shape of the indexed tensor"):
                x[some]
            continue
        made = x[some]
        assert made.dtype is dtype and made._version == 0 and not made._is_view()
        assert made.tolist() == x[some.nonzero(as_tuple=True)].tolist()
        assert x.transpose(0, 1).contiguous().transpose(0, 1)[some].tolist() == made.tolist()  # not dense: by positions
    if dtype is fb.float32:
        w = x.clone().requires_grad_()
        w[w > 3].sum().backward()
        assert w.grad.tolist() == (x > 3).float().tolist()
        with fb.no_grad():
            assert w[w > 3].grad_fn is None


@pytest.mark.parametrize("index", [((0, 1), 2), ((0, 2),), (slice(None), (3, 1)), (0, (1, 2)), ((0, 1), (2, 3)), ([0, 1], (2, 3)), (slice(None), range(2)),
                                   (slice(None), (True, False, True, False)), ((0, 1), Ellipsis), (None, (1, 0))])
def test_a_tuple_inside_an_index_is_a_tensor_of_positions(index):
    a = np.arange(12.0).reshape(3, 4)
    t = fb.tensor(a)
    assert t[index].tolist() == a[index].tolist()
    a[index], t[index] = -1, -1
    assert t.tolist() == a.tolist()


def test_a_list_of_indices_is_taken_for_a_tuple_and_says_so():
    a = np.arange(12.0).reshape(3, 4)
    t, i = fb.tensor(a), fb.tensor([0, 2])
    for listed in ([[0, 1], [1, 2]], [(0, 1), (1, 2)], [slice(0, 2), 1], [None, 0], [Ellipsis, 1]):
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            assert t[listed].tolist() == a[tuple(listed)].tolist()
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert t[[i, i]].tolist() == [0, 10]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert t[[0, 2]].tolist() == a[[0, 2]].tolist() and t[[True, False, True]].tolist() == a[[0, 2]].tolist() and t[np.array([0, 2])].shape == (2, 4)


def test_another_ellipsis_stands_for_no_axes():
    t = fb.arange(6).reshape(2, 3)
    assert t[..., ...].tolist() == t.tolist() and t[0, ..., ...].tolist() == [0, 1, 2]


def test_no_position_is_looked_at_where_nothing_is_read():
    t = fb.arange(12.0).reshape(3, 4)
    assert t[0:0, [7]].shape == (0, 1) and t[[7], 0:0].shape == (1, 0) and t[fb.tensor([9]), 0:0].shape == (1, 0) and t[[], [7]].shape == (0,)
    assert fb.zeros(3, 0)[[5]].shape == (1, 0) and fb.zeros(0, 3)[:, fb.tensor([5])].shape == (0, 1)
    t[0:0, [7]] = 1.0
    assert t.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    for empty, index in ((fb.zeros(0, 3), [0]), (fb.zeros(0, 3), ([0], [0])), (fb.zeros(3, 0), (slice(None), [0]))):
        with pytest.raises(IndexError, match="with size 0"):
            empty[index]


def test_a_short_list_that_holds_more_than_numbers_is_a_tuple_of_indices(device):
    a = np.arange(24).reshape(2, 3, 4)
    x = fb.tensor(a, device=device)
    t = fb.tensor([0, 1], device=device)
    cases = [([[0, 1], [1, 2]], a[[0, 1], [1, 2]]), ([[0, 1]], a[[0, 1]]), ([t, t], a[[0, 1], [0, 1]]), ([t[1], t[0]], a[1, 0]), ([slice(0, 1), 1], a[0:1, 1]),
             ([..., 1], a[..., 1]), ([None, 1], a[None, 1]), ([[[0, 1]], [[1, 0]]], a[[[0, 1]], [[1, 0]]]), ([(0, 1), (1, 2)], a[[0, 1], [1, 2]]),
             ([np.array([0, 1]), np.array([1, 2])], a[[0, 1], [1, 2]]), ([[True, False], 1], a[[True, False], 1]), ([[0, 1], [1]], a[[0, 1], [1, 1]]),
             ([range(2), 1], a[[0, 1], 1])]
    for index, expected in cases:
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            found = x[index]
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
        y, b = x.clone(), a.copy()
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            y[index] = -1
        b[tuple(i.tolist() if isinstance(i, fb.Tensor) else list(i) if isinstance(i, (tuple, range)) else i for i in index)] = -1
        np.testing.assert_array_equal(y.cpu().numpy(), b)


def test_lists_of_numbers_and_long_ones_are_positions_along_the_first_axis(device):
    x = fb.arange(6, device=device).reshape(3, 2)
    assert x[[0, 2]].tolist() == [[0, 1], [4, 5]] and x[[1.7]].tolist() == [[2, 3]] and x[[True, False, True]].tolist() == [[0, 1], [4, 5]]
    assert x[[[0]] * 32].shape == (32, 1, 2) and x[[]].shape == (0, 2) and x[range(2)].tolist() == [[0, 1], [2, 3]]
    assert x[([[0, 1]],)].shape == (1, 2, 2)


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


def test_nonzero_as_a_tuple_has_no_out():
    with pytest.raises(RuntimeError, match="does not support the out kwarg"):
        fb.nonzero(fb.ones(2), as_tuple=True, out=fb.zeros(0, dtype=fb.int64))


def test_writing_at_no_positions_at_all_is_refused():
    for accumulate in (False, True):
        with pytest.raises(RuntimeError, match="at least one index"):
            fb.ones(()).index_put([], fb.ones(1), accumulate)
