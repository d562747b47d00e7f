"""Rearrangements that copy, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core.ops import rearrange
from flambeau.autograd import gradcheck, gradgradcheck

A = np.random.default_rng(0).normal(size=(3, 4, 5))


@settings(max_examples=40, deadline=None)
@given(st.integers(-5, 5), st.sampled_from([(2, 2), (3, 5), (5, 3), (2, 3, 4), (0, 3), (1, 1)]),
       st.sampled_from([fb.float32, fb.int64, fb.bool, fb.float16, fb.complex128]))
def test_triangles_are_numpys(k, shape, d):
    a = (np.random.default_rng(1).normal(size=shape) * 3).astype(d.np)
    for ours, numpys in ((fb.tril, np.tril), (fb.triu, np.triu)):
        want = numpys(a, k)
        np.testing.assert_array_equal(ours(fb.tensor(a), k).numpy(), want)
        np.testing.assert_array_equal(ours(fb.tensor(a).mT, -k).numpy(), numpys(np.swapaxes(a, -1, -2), -k))
    t = fb.tensor(a)
    assert t.tril_(k) is t
    np.testing.assert_array_equal(t.numpy(), np.tril(a, k))


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (63, 65), (130, 70), (70, 130), (1, 200), (200, 1), (2, 3, 129, 131), (300, 5), (0, 70), (257, 255)])
def test_large_triangles_are_cleared_in_place_by_rectangles(shape, monkeypatch):
    monkeypatch.setattr(rearrange.dispatch, "launch_bytes", lambda dev: 0)
    rng = np.random.default_rng(0)
    for k in sorted({0, 1, -1, 3, -3, 63, 64, 65, -64, -65, shape[-1], -shape[-2], shape[-1] - 1, 1 - shape[-2], 1000, -1000}):
        for dtype in (np.float32, np.int64, bool, np.complex64):
            a = rng.integers(1, 5, shape).astype(dtype)
            for name, numpys in (("tril_", np.tril), ("triu_", np.triu)):
                t = fb.tensor(a)
                assert getattr(t, name)(k) is t
                np.testing.assert_array_equal(t.numpy(), numpys(a, k))
                t = fb.tensor(a)
                getattr(t.mT, name)(k)
                np.testing.assert_array_equal(t.mT.numpy(), numpys(np.swapaxes(a, -1, -2), k))
    x = fb.ones(4, 600, 300).requires_grad_()
    (x * 2)[1:3].tril_(-2).sum().backward()  # recorded writes, into a part
    assert x.grad.tolist() == [[[0.0] * 300] * 600, *np.tril(np.full((2, 600, 300), 2.0), -2).tolist(), [[0.0] * 300] * 600]


@pytest.mark.parametrize("rows,cols,offset", [(3, 3, 0), (4, 3, 1), (2, 5, -1), (0, 3, 0), (1000, 3, 1), (3, 1000, 998), (700, 650, -30),
                                             (1447, 1447, 0), (1448, 1449, 0), (1600, 1500, 20)])  # about where floats of 32 bits end
def test_triangle_positions_are_numpys(rows, cols, offset):
    np.testing.assert_array_equal(fb.tril_indices(rows, cols, offset).numpy(), np.stack(np.tril_indices(rows, offset, cols)))
    np.testing.assert_array_equal(fb.triu_indices(rows, cols, offset).numpy(), np.stack(np.triu_indices(rows, offset, cols)))
    assert fb.tril_indices(rows, cols, dtype=fb.int32).dtype is fb.int32


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 2), max_size=3, unique_by=lambda d: d % 3))
def test_flips_are_numpys(dims):
    np.testing.assert_array_equal(fb.tensor(A).flip(dims).numpy(), np.flip(A, tuple(dims)))
    np.testing.assert_array_equal(fb.tensor(A).permute(2, 0, 1).flip(*dims or [()]).numpy(), np.flip(A.transpose(2, 0, 1), tuple(dims)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-3, 2)), min_size=1, max_size=3))
def test_rolls_are_numpys(moves):
    shifts, dims = zip(*moves, strict=True)
    np.testing.assert_array_equal(fb.roll(fb.tensor(A), shifts, dims).numpy(), np.roll(A, shifts, dims))
    np.testing.assert_array_equal(fb.tensor(A).roll(shifts[0]).numpy(), np.roll(A, shifts[0]))
    x = fb.tensor(A, dtype=fb.float64, requires_grad=True)
    rolled = x.roll(shifts, dims)
    (rolled * fb.tensor(A)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.roll(A, [-s for s in shifts], dims))


@pytest.mark.parametrize("k", range(-5, 6))
def test_turns_are_numpys(k):
    for dims in ((0, 1), (1, 2), (2, 0)):
        np.testing.assert_array_equal(fb.rot90(fb.tensor(A), k, dims).numpy(), np.rot90(A, k, dims))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_repeats_are_numpys_tile(times):
    a = A[:2, :1, :2]
    np.testing.assert_array_equal(fb.tensor(a).tile(times).numpy(), np.tile(a, times))
    if len(times) >= 3:
        np.testing.assert_array_equal(fb.tensor(a).repeat(*times).numpy(), np.tile(a, times))
    else:
        with pytest.raises(RuntimeError, match="can not be smaller than number of dimensions"):
            fb.tensor(a).repeat(*times)


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_diagonals_put_in_place(offset):
    v = np.arange(1.0, 4)
    np.testing.assert_array_equal(fb.diag(fb.tensor(v), offset).numpy(), np.diag(v, offset))
    np.testing.assert_array_equal(fb.diag(fb.tensor(A[0]), offset).numpy(), np.diag(A[0], offset))
    np.testing.assert_array_equal(fb.diagflat(fb.tensor(A[0]), offset).numpy(), np.diagflat(A[0], offset))
    d = fb.diag_embed(fb.tensor(A[0]), offset, 0, 2)
    np.testing.assert_array_equal(d.diagonal(offset, 0, 2).numpy(), A[0])
    assert d.abs().sum().item() == pytest.approx(np.abs(A[0]).sum())
    with pytest.raises(RuntimeError, match="1D or 2D"):
        fb.diag(fb.tensor(A))


def test_parts_replaced_in_a_copy():
    t = fb.tensor(A)
    want = A.copy()
    want[:, 2] = 7
    np.testing.assert_array_equal(fb.select_scatter(t, fb.full((3, 5), 7.0, dtype=fb.float64), 1, 2).numpy(), want)
    want = A.copy()
    want[:, :, 1:4:2] = 7
    np.testing.assert_array_equal(fb.slice_scatter(t, fb.full((3, 4, 2), 7.0, dtype=fb.float64), 2, 1, 4, 2).numpy(), want)
    want = A[0].copy()
    np.fill_diagonal(want, 7)
    np.testing.assert_array_equal(fb.diagonal_scatter(fb.tensor(A[0]), fb.full((4,), 7.0, dtype=fb.float64)).numpy(), want)
    np.testing.assert_array_equal(t.numpy(), A)
    with pytest.raises(RuntimeError, match=r"select_scatter: expected src to have a size equal to the slice"):
        fb.select_scatter(t, fb.zeros(2), 0, 0)


def test_coordinates_of_flat_positions():
    at = np.array([0, 7, 59, 23])
    for ours, want in zip(fb.unravel_index(fb.tensor(at), (3, 4, 5)), np.unravel_index(at, (3, 4, 5)), strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)


def test_copies_of_views_have_their_own_memory():
    t = fb.tensor(A)
    for name, args in (("permute_copy", ((2, 0, 1),)), ("select_copy", (0, 1)), ("unsqueeze_copy", (0,)), ("diagonal_copy", ()), ("view_copy", ((60,),))):
        made = getattr(fb, name)(t, *args)
        np.testing.assert_array_equal(made.numpy(), getattr(t, name[:-5])(*args).numpy())
        assert made.untyped_storage().data_ptr() != t.untyped_storage().data_ptr() and made.is_contiguous()


@pytest.mark.parametrize("call,message", [
    (lambda t: fb.zeros(3).tril(), "at least 2 dimensions"), (lambda t: t.flip(0, 0), "appears multiple times"), (lambda t: t.roll((1, 2), 0), "must align"),
    (lambda t: t.rot90(1, (0, 0)), "to be different"), (lambda t: t.repeat(2, -1, 1), "negative dimension"), (lambda t: t.diag_embed(0, 1, 1), "identical")])
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(fb.tensor(A))


FORMS = {"tril": lambda x: (x * x).tril(1), "triu": lambda x: (x * x).triu(), "flip": lambda x: (x * x).flip(0, 1),
         "roll": lambda x: (x * x).roll((1, 2), (0, 1)),
         "rot90": lambda x: (x * x).rot90(), "repeat": lambda x: (x * x).repeat(2, 1, 2), "diag": lambda x: (x[0] ** 2).diag(1),
         "diag_embed": lambda x: (x * x).diag_embed(), "select_scatter": lambda x: fb.select_scatter(x * x, x[0, :3] ** 3, 1, 2),
         "slice_scatter": lambda x: fb.slice_scatter(x, x[:2] ** 3, 0, 1)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(A[:, :, 0], requires_grad=True)
    assert gradcheck(FORMS[name], (x,)) and gradgradcheck(FORMS[name], (x,))


def test_on_every_device(device):
    t = fb.tensor(A).to(device)
    for ours, want in ((t.tril(), np.tril(A)), (t.flip(0), np.flip(A, 0)), (t.roll(2, 1), np.roll(A, 2, 1)), (t.repeat(1, 2, 1), np.tile(A, (1, 2, 1))),
                       (fb.tril_indices(3, 3, device=device), np.stack(np.tril_indices(3)))):
        assert str(ours.device) == device
        np.testing.assert_array_equal(ours.cpu().numpy(), want)


@pytest.mark.parametrize("shape", [(3, 3), (7, 3), (3, 7), (8, 3), (1, 4), (0, 3), (3, 3, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_diagonal_filled_in_place(shape, wrap):
    if len(shape) == 3 and wrap or 0 in shape:
        assert fb.ones(shape).fill_diagonal_(5, wrap).shape == shape
        return
    a = np.zeros(shape)
    np.fill_diagonal(a, 5, wrap)
    t = fb.zeros(shape, dtype=fb.float64)
    assert t.fill_diagonal_(5, wrap) is t
    np.testing.assert_array_equal(t.numpy(), a)
    if len(shape) == 2:
        np.testing.assert_array_equal(fb.zeros(shape[::-1], dtype=fb.float64).t().fill_diagonal_(5, wrap).numpy(), a)


def test_which_diagonals_cannot_be_filled():
    for wrong in (fb.zeros(3), fb.zeros(2, 3, 2)):
        with pytest.raises(RuntimeError, match="dimensions"):
            wrong.fill_diagonal_(1)
    x = fb.ones(2, 2, requires_grad=True)
    y = x * 3
    y.fill_diagonal_(0)
    y.sum().backward()
    assert x.grad.tolist() == [[0, 3], [3, 0]]


def test_triangles_in_place_write_only_what_they_show() -> None:
    whole = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)
    x = fb.from_numpy(whole.copy())
    view, before = x.transpose(1, 2)[1:], x._version
    assert view.tril_(-1) is view and x._version == before + 1
    want = whole.copy()
    want[1:] = np.triu(want[1:], 1)
    np.testing.assert_array_equal(x.numpy(), want)
    leaf = fb.ones(3, 3, requires_grad=True)
    (leaf * 2).triu_().sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), 2 * np.triu(np.ones((3, 3))))


def test_repeating_once_is_a_copy() -> None:
    for x in (fb.ones(4), fb.ones(1), fb.ones(1, 3)):
        for times in (1, 3):
            made = x.repeat_interleave(times, 0)
            np.testing.assert_array_equal(made.numpy(), np.repeat(x.numpy(), times, 0))
            made.zero_()
            assert x.numpy().all()


def test_axes_to_flip_are_named_once():
    t = fb.zeros(2, 3)
    with pytest.raises(TypeError, match="missing 1 required"):
        t.flip()
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        t.flip(0, 1, -1)
    assert fb.flip(t, ()).shape == (2, 3)
    with pytest.raises(TypeError):
        t.tril(1.0)
