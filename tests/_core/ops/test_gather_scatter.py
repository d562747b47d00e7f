"""Operations on positions: gather, scatter and reduce, index_*, take, put, masks, embeddings, repeats, against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


@st.composite
def placed(draw):
    """A base, an axis, an index into it and a source at least as large as the index."""
    base = RNG.integers(-9, 10, draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))).astype(float)
    axis = draw(st.integers(0, base.ndim - 1))
    shape = [draw(st.integers(1, n)) for n in base.shape]
    shape[axis] = draw(st.integers(1, 5))
    index = np.random.default_rng(draw(st.integers(0, 99))).integers(0, base.shape[axis], shape)
    source = RNG.integers(1, 5, [n + draw(st.integers(0, 1)) for n in shape]).astype(float)
    return base, axis, index, source


@settings(max_examples=60, deadline=None)
@given(placed(), st.sampled_from([fb.float64, fb.int64, fb.float16, fb.uint8]))
def test_scatter_in_all_its_modes_is_a_loop(case, d):
    base, axis, index, source = case
    base = np.abs(base) % 4
    modes = {"set": None, "add": np.add, "multiply": np.multiply, "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
    for mode, f in modes.items():
        want = base.copy()
        for at in np.ndindex(*index.shape):
            to = (*at[:axis], index[at], *at[axis + 1:])
            want[to] = source[at] if f is None else f(want[to], source[at])
        if (want > 255).any() and d is fb.uint8 or (want > 2000).any():
            continue
        t, i, s = fb.tensor(base).to(d), fb.tensor(index), fb.tensor(source).to(d)
        if mode == "set":
            got = t.scatter(axis, i, s)
            filled = base.copy()
            for at in np.ndindex(*index.shape):
                filled[(*at[:axis], index[at], *at[axis + 1:])] = 3
            np.testing.assert_array_equal(t.scatter(axis, i, 3).double().numpy(), filled)
        elif mode in ("add", "multiply"):
            got = t.scatter(axis, i, s, reduce=mode)
        else:
            got = t.scatter_reduce(axis, i, s, mode)
        assert got.dtype is d
        np.testing.assert_array_equal(got.double().numpy(), want)
    np.testing.assert_array_equal(t.gather(axis, i).double().numpy(), base[tuple(
        index if k == axis else np.arange(n).reshape([-1 if j == k else 1 for j in range(base.ndim)]) for k, n in enumerate(index.shape))])


def test_reductions_without_the_old_value_and_means():
    t, i, s = fb.tensor([10.0, 20.0, 30.0]), fb.tensor([0, 0, 2]), fb.tensor([1.0, 2.0, 5.0])
    want = {"sum": ([13, 20, 35], [3, 20, 5]), "prod": ([20, 20, 150], [2, 20, 5]), "mean": ([13 / 3, 20, 17.5], [1.5, 20, 5]),
            "amax": ([10, 20, 30], [2, 20, 5]),
            "amin": ([1, 20, 5], [1, 20, 5])}
    for mode, (kept, fresh) in want.items():
        np.testing.assert_allclose(t.scatter_reduce(0, i, s, mode).numpy(), kept, rtol=1e-6)
        np.testing.assert_allclose(t.scatter_reduce(0, i, s, mode, include_self=False).numpy(), fresh, rtol=1e-6)
        if mode != "sum":
            np.testing.assert_allclose(t.index_reduce(0, i, s, mode).numpy(), kept, rtol=1e-6)
    with pytest.raises(RuntimeError, match="reduce"):
        t.scatter_reduce(0, i, s, "median")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=6))
def test_index_operations_are_numpys(axis, index):
    t, i = fb.tensor(A), fb.tensor(index, dtype=fb.int64)
    np.testing.assert_array_equal(t.index_select(axis, i).numpy(), A.take(index, axis))
    shape = list(A.shape)
    shape[axis] = len(index)
    source = RNG.normal(size=shape)
    lead = (slice(None),) * axis
    added, filled = A.copy(), A.copy()
    np.add.at(added, (*lead, index), source)
    filled[(*lead, index)] = 7
    np.testing.assert_allclose(t.index_add(axis, i, fb.tensor(source)).numpy(), added)
    np.testing.assert_allclose(t.index_add(axis, i, fb.tensor(source), alpha=2).numpy(), A + 2 * (added - A), atol=1e-12)
    np.testing.assert_array_equal(t.index_fill(axis, i, 7).numpy(), filled)
    if len(set(index)) == len(index):
        copied = A.copy()
        copied[(*lead, index)] = source
        np.testing.assert_array_equal(t.index_copy(axis, i, fb.tensor(source)).numpy(), copied)
        u = t.clone()
        assert u.index_copy_(axis, i, fb.tensor(source)) is u and u.index_fill_(axis, i, 7) is u
        np.testing.assert_array_equal(u.numpy(), filled)


def test_take_put_and_take_along_dim():
    t, at = fb.tensor(A), np.array([[0, 59], [-1, 7]])
    np.testing.assert_array_equal(t.take(fb.tensor(at)).numpy(), A.take(at))
    want = A.copy()
    want.put([3, 8], [1.0, 2.0])
    np.testing.assert_array_equal(t.put(fb.tensor([3, 8]), fb.tensor([1.0, 2.0], dtype=fb.float64)).numpy(), want)
    u = fb.zeros(3)
    assert u.put_(fb.tensor([1, 1, 2]), fb.tensor([1.0, 2.0, 4.0]), accumulate=True).tolist() == [0, 3, 4]
    order = A.argsort(1)
    np.testing.assert_array_equal(fb.take_along_dim(t, fb.tensor(order), 1).numpy(), np.take_along_axis(A, order, 1))
    np.testing.assert_array_equal(fb.take_along_dim(t, fb.tensor([3, 1])).numpy(), A.ravel()[[3, 1]])


def test_masks():
    mask = A > 0.3
    t, m = fb.tensor(A), fb.tensor(mask)
    np.testing.assert_array_equal(t.masked_fill(m, -1).numpy(), np.where(mask, -1, A))
    np.testing.assert_array_equal(t.masked_fill(m[:, :1], fb.tensor(2.0)).numpy(), np.where(mask[:, :1], 2, A))
    source = np.arange(100.0)
    want = A.copy()
    want[mask] = source[:mask.sum()]
    np.testing.assert_array_equal(t.masked_scatter(m, fb.tensor(source)).numpy(), want)
    np.testing.assert_array_equal(t.masked_select(m).numpy(), A[mask])
    u = t.clone()
    assert u.masked_fill_(m, 0) is u and (u[m] == 0).all()
    for wrong in (lambda: t.masked_fill(fb.ones(4, 3, 5), 1), lambda: t.masked_fill(m, fb.ones(2)), lambda: t.masked_scatter(m, fb.zeros(1, dtype=fb.float64))):
        with pytest.raises(RuntimeError):
            wrong()


def test_what_is_expanded_takes_no_rows():
    x = fb.zeros(1).expand(6)
    for f in (x.index_copy_, x.index_add_):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            f(0, fb.tensor([2, 1, 0]), fb.ones(3))


def test_a_source_without_axes_is_one_element():
    for f in (lambda t, s: t.scatter(0, fb.tensor([1]), s), lambda t, s: t.scatter_add(0, fb.tensor([1]), s),
              lambda t, s: t.scatter_reduce(0, fb.tensor([1]), s, "sum")):
        assert f(fb.zeros(3), fb.tensor(5.0)).tolist() == [0, 5, 0]


def test_embeddings():
    w = fb.tensor(A[0], requires_grad=True)
    at = fb.tensor([[0, 2], [2, 2]])
    F = fb.nn.functional
    out = F.embedding(at, w)
    np.testing.assert_array_equal(out.detach().numpy(), A[0][at.numpy()])
    out.sum().backward()
    assert w.grad[:, 0].tolist() == [1, 0, 3]
    w.grad = None
    F.embedding(at, w, padding_idx=2).sum().backward()
    assert w.grad[:, 0].tolist() == [1, 0, 0]
    short = fb.tensor(A[0] * 10)
    F.embedding(fb.tensor([1]), short, max_norm=1.0)
    assert short[1].norm().item() == pytest.approx(1, rel=1e-4) and short[0].tolist() == (A[0][0] * 10).tolist()
    with pytest.raises(IndexError):
        F.embedding(fb.tensor([3]), short)


def test_repeats():
    t = fb.tensor(A)
    np.testing.assert_array_equal(t.repeat_interleave(2, 1).numpy(), A.repeat(2, 1))
    np.testing.assert_array_equal(t.repeat_interleave(fb.tensor([1, 0, 3]), dim=1).numpy(), A.repeat([1, 0, 3], 1))
    np.testing.assert_array_equal(t.repeat_interleave(3).numpy(), A.ravel().repeat(3))
    assert fb.repeat_interleave(fb.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    with pytest.raises(RuntimeError):
        t.repeat_interleave(fb.tensor([1, 2]), dim=1)


@pytest.mark.parametrize("call,error", [
    (lambda t: t.gather(0, fb.tensor([5])), RuntimeError), (lambda t: t.gather(3, fb.zeros(4, 3, 5, dtype=fb.int64)), IndexError),
    (lambda t: t.gather(0, fb.zeros(4, 3, 5)), RuntimeError), (lambda t: t.scatter(0, fb.full((1, 3, 5), 4), 1.0), RuntimeError),
    (lambda t: t.scatter(0, fb.zeros(1, 4, 5, dtype=fb.int64), t), RuntimeError), (lambda t: t.index_select(0, fb.tensor([9])), IndexError),
    (lambda t: t.index_select(0, fb.zeros(1, 1, dtype=fb.int64)), IndexError),
    (lambda t: t.index_add(0, fb.tensor([0]), fb.zeros(2, 3, 5, dtype=fb.float64)), (IndexError, RuntimeError)),
    (lambda t: t.take(fb.tensor([60])), IndexError), (lambda t: t.index_fill(0, fb.tensor([9]), 1), IndexError),
    (lambda t: t[0].scatter_add(1, fb.zeros(2, 2, dtype=fb.int64), t[0, 0]), IndexError),  # the source has no second axis
    (lambda t: t[0, 0].index_add(0, fb.tensor([0, 0]), t[0, 0, 0]), IndexError), (lambda t: t[0].index_add(1, fb.tensor([0]), t[0, 0]), RuntimeError),
    (lambda t: t[0, 0, 0].index_add(0, fb.tensor([0]), t[0, 0, :1]), RuntimeError),
    (lambda t: t[0, 0].index_reduce(0, fb.tensor([0]), t[0, 0], "prod"), RuntimeError),
    (lambda t: (t > 0).index_copy(0, fb.tensor([0]), t), RuntimeError), (lambda t: t.index_copy(0, fb.tensor([0.0]), t[:1]), RuntimeError),
    (lambda t: t[0, 0, 0].index_copy(0, fb.tensor([0]), t[0, :1, :1]), RuntimeError),
    (lambda t: t[0].take_along_dim(fb.tensor([0]), 5), RuntimeError), (lambda t: t.index_put((fb.tensor([0.0]),), t[0]), IndexError),
    (lambda t: (t > 0).scatter_reduce(0, fb.zeros(1, 3, 5, dtype=fb.int64), t > 0, "mean"), NotImplementedError)])
def test_wrong_positions(call, error):
    with pytest.raises(error):
        call(fb.tensor(A))


I2 = fb.tensor([[0, 1, 1, 0], [2, 2, 1, 0]])
FORMS = {"gather": lambda x, s: (x * x).gather(0, I2), "scatter": lambda x, s: (x * x).scatter(0, fb.tensor([[0, 1, 2, 0]]), s * s),
         "scatter_add": lambda x, s: (x * x).scatter_add(0, I2, s * s),
         "scatter value": lambda x, s: (x * x).scatter(0, I2, 2.0), "index_add": lambda x, s: (x * x).index_add(0, fb.tensor([1, 1]), s * s, alpha=3),
         "index_copy": lambda x, s: (x * x).index_copy(0, fb.tensor([2, 0]), s * s),
         "index_fill": lambda x, s: (x * x).index_fill(1, fb.tensor([0, 0]), s[0, 0] ** 2),
         "index_select": lambda x, s: (x * x).index_select(1, fb.tensor([3, 3])), "take": lambda x, s: (x * x).take(fb.tensor([0, 0, 11])),
         "put": lambda x, s: (x * x).put(fb.tensor([3, 1]), s[0, :2] ** 2),
         "put accumulate": lambda x, s: (x * x).put(fb.tensor([3, 3]), s[0, :2] ** 2, True),
         "masked_fill": lambda x, s: (x * x).masked_fill(x.detach() > 0, s[0, 0] ** 2),
         "masked_scatter": lambda x, s: (x * x).masked_scatter(x.detach() > 0.5, s * s),
         "masked_select": lambda x, s: (x * x).masked_select(x.detach() > 0), "sum": lambda x, s: (x * x).scatter_reduce(0, I2, s * s, "sum"),
         "prod": lambda x, s: (x + 3).scatter_reduce(0, I2, s + 3, "prod"),
         "mean": lambda x, s: (x * x).scatter_reduce(0, I2, s * s, "mean", include_self=False),
         "amax": lambda x, s: (x * x).scatter_reduce(0, I2, s * s, "amax"),
         "amin": lambda x, s: (x * x).scatter_reduce(0, I2, s * s, "amin", include_self=False),
         "take_along_dim": lambda x, s: fb.take_along_dim(x * x, I2[:1], 0),
         "repeat_interleave": lambda x, s: (x * x).repeat_interleave(fb.tensor([1, 0, 2]), 0),
         "embedding": lambda x, s: fb.nn.functional.embedding(fb.tensor([0, 2, 2]), x * x)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    rng = np.random.default_rng(7)
    x, s = fb.tensor(rng.normal(size=(3, 4)), requires_grad=True), fb.tensor(rng.normal(size=(2, 4)), requires_grad=True)
    assert gradcheck(FORMS[name], (x, s), check_forward_ad=True) and gradgradcheck(FORMS[name], (x, s))


def test_gradients_of_products_with_zeros():
    i = fb.tensor([0, 0, 1, 1, 2])
    for zero in ([0], [0, 1], [2], [0, 2, 3, 4]):
        a = np.arange(1.0, 6)
        a[zero] = 0
        s, x = fb.tensor(a, requires_grad=True), fb.tensor([2.0, 3.0, 0.0], dtype=fb.float64, requires_grad=True)
        f = lambda x, s: x.scatter_reduce(0, i, s, "prod")  # noqa: E731
        assert gradcheck(f, (x, s))
        if len(zero) == 1:
            assert gradgradcheck(f, (x, s))
        else:
            with pytest.raises(RuntimeError, match="more than one factor is 0"):
                gradgradcheck(f, (x, s))


def test_on_every_device(device):
    t = fb.tensor(A).to(device)
    i = fb.tensor([2, 0, 2]).to(device)
    np.testing.assert_array_equal(t.index_select(0, i).cpu().numpy(), A[[2, 0, 2]])
    want = np.zeros((4, 3, 5))
    np.add.at(want, [2, 0, 2], A[:3])
    np.testing.assert_allclose(fb.zeros(4, 3, 5, dtype=fb.float64, device=device).index_add_(0, i, t[:3]).cpu().numpy(), want)
    np.testing.assert_array_equal(t.masked_fill(t > 0, 0.0).cpu().numpy(), np.minimum(A, 0))
    order = A.argsort(2)
    np.testing.assert_array_equal(t.gather(2, fb.tensor(order).to(device)).cpu().numpy(), np.sort(A, 2))


def test_gather_and_scatter_met_before():
    """The second call on the same layouts goes by what the first one kept: positions are checked, writes counted, gradients flow."""
    x, y = fb.arange(12.0).reshape(4, 3), -fb.arange(12.0).reshape(4, 3)
    for rows in ([[0, 1, 2]], [[3, 3, 3]], [[2, 0, 1]]):
        index = fb.tensor(rows)
        assert fb.gather(x, 0, index).tolist() == [[x.tolist()[r][i] for i, r in enumerate(rows[0])]]
        for src, taken in ((y, y.tolist()[0]), (7.0, [7.0] * 3), (9, [9.0] * 3)):
            wanted, summed = x.tolist(), x.tolist()
            for i, r in enumerate(rows[0]):
                wanted[r][i] = taken[i]
                summed[r][i] += taken[i]
            assert fb.scatter(x, 0, index, src).tolist() == wanted
            assert fb.scatter(x, 0, index, src, reduce="add").tolist() == summed
    for bad in (4, -1):
        index = fb.tensor([[0, bad, 0]])
        for call in (lambda i: fb.gather(x, 0, i), lambda i: fb.scatter(x, 0, i, y), lambda i: fb.scatter(x, 0, i, 7.0)):
            with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds for dimension 0 with size 4"):
                call(index)
    index = fb.tensor([[1, 0, 3]])
    for _ in range(2):
        w, v = x.clone().requires_grad_(), y.clone().requires_grad_()
        (fb.gather(w, 0, index).sum() + (fb.scatter(w, 0, index, v) * 2).sum() + fb.scatter(w, 0, index, 5.0).sum()).backward()
        hit = [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
        assert w.grad.tolist() == [[1.0 if h else 3.0 for h in row] for row in hit]
        assert v.grad.tolist() == [[2.0] * 3, *[[0.0] * 3] * 3]
    z, version = x.clone(), 0
    for version in (1, 2):
        z.scatter_(0, index, 1.0)
        assert z._version == version


NEGATIVE = {
    "index_select": lambda i: fb.index_select(fb.ones(2, 3), 0, i), "index_select 1": lambda i: fb.index_select(fb.ones(3, 2), 1, i),
    "index_select of nothing": lambda i: fb.index_select(fb.ones(0, 2), 1, i), "index_add": lambda i: fb.index_add(fb.ones(2), 0, i, fb.ones(1)),
    "index_copy": lambda i: fb.ones(2).index_copy_(0, i, fb.ones(1)), "embedding": lambda i: fb.nn.functional.embedding(i, fb.ones(2, 2))}


@pytest.mark.parametrize("name", NEGATIVE)
def test_positions_of_rows_count_from_the_start_only(name):
    error = RuntimeError if name in ("index_select 1", "index_select of nothing") else IndexError  # as PyTorch's paths for these raise
    for _ in range(5):  # also where the call is learned
        NEGATIVE[name](fb.tensor([1]))
        for wrong in (-1, 2):
            with pytest.raises(error, match="out of bounds"):
                NEGATIVE[name](fb.tensor([wrong]))
    assert fb.index_fill(fb.zeros(2), 0, fb.tensor([-1]), 1.0).tolist() == [0, 1] == fb.zeros(2)[fb.tensor([0, -1])].add(fb.tensor([0.0, 1])).tolist()


def test_what_is_read_must_lie_elsewhere():
    at = fb.tensor([0, 1])
    for call in (lambda y: y.scatter_(0, at, y[:2]), lambda y: y.scatter_add_(0, at, y[1:3]), lambda y: y.index_copy_(0, at, y[:2]),
                 lambda y: y.index_add_(0, at, y[:2]), lambda y: y.put_(at, y[:2]), lambda y: y.index_put_((at,), y[1:3]), lambda y: y.__setitem__(at, y[1:3])):
        with pytest.raises(RuntimeError, match="single memory location"):
            call(fb.zeros(5))
    y = fb.arange(5.0)
    assert y.index_fill_(0, at, y[4]).tolist() == [4, 4, 2, 3, 4] and y[::2].add_(y[1::2][:1].expand(3)).tolist() == [8, 6, 8]


def test_undersized_and_mistyped_positions():
    with pytest.raises(IndexError, match="same number of elements"):
        fb.ones(3).put_(fb.tensor([0, 1]), fb.ones(1))
    with pytest.raises(IndexError, match="int64"):
        fb.index_fill(fb.ones(3), 0, fb.zeros(1, dtype=fb.int32), 1.0)
    for call in (lambda x, v: x.__setitem__(fb.tensor([0]), v), lambda x, v: x.index_put_((fb.tensor([0]),), v)):
        for d in (fb.float64, fb.int64):
            with pytest.raises(RuntimeError, match="dtypes match"):
                call(fb.zeros(3), fb.ones(1, dtype=d))
    x = fb.zeros(3)
    x[fb.tensor([True, False, True])] = fb.tensor(2, dtype=fb.int64)
    assert x.tolist() == [2, 0, 2]


@pytest.mark.parametrize("d", [fb.int8, fb.uint8, fb.int16, fb.int32, fb.int64], ids=str)
def test_means_of_integers_keep_their_type(d, device):
    x, at, src = fb.tensor([10, 7, 3, 9], dtype=d, device=device), fb.tensor([0, 0, 1, 0], device=device), fb.tensor([12, 20, 5, 4], dtype=d, device=device)
    with_self, without = x.scatter_reduce(0, at, src, "mean"), x.scatter_reduce(0, at, src, "mean", include_self=False)
    assert with_self.dtype is d and with_self.tolist() == [46 // 4, 6, 3, 9] and without.dtype is d and without.tolist() == [12, 5, 3, 9]
    assert x.index_reduce(0, at, src, "mean").dtype is d


@pytest.mark.parametrize("d", [fb.float64, fb.float32, fb.bfloat16, fb.uint8, fb.complex128], ids=str)
def test_masked_scatter_of_many_and_of_any_layout(d, device):
    rng = np.random.default_rng(4)
    for shape in ((7,), (3, 5), (70, 90)):
        x, source = fb.zeros(shape, dtype=d, device=device), fb.arange(1, 1 + int(np.prod(shape)), device=device).to(d)
        a = rng.random(shape) < 0.4
        mask = fb.tensor(a).to(device)
        want = np.zeros(shape, np.complex128)
        want[a] = source.to(fb.complex128).cpu().numpy()[:a.sum()]
        for m, t in ((mask, x), (mask.t().contiguous().t() if a.ndim == 2 else mask, x), (mask, x.t().contiguous().t() if a.ndim == 2 else x)):
            np.testing.assert_array_equal(t.masked_scatter(m, source).to(fb.complex128).cpu().numpy(), want)
            np.testing.assert_array_equal(t.clone().masked_scatter_(m, source.reshape(shape)).to(fb.complex128).cpu().numpy(), want)
        if a.sum() > 1:
            with pytest.raises(RuntimeError, match="same number of elements"):
                x.masked_scatter(mask, source[:1])
        assert not x.masked_scatter(mask & False, source[:0]).to(fb.float64).any() if d is not fb.complex128 else True


def test_truths_are_added_as_truths_whatever_scales_them():
    x = fb.tensor([False, False, True])
    assert x.index_add(0, fb.tensor([0, 2]), fb.tensor([True, True]), alpha=2).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["float32", "int64"])
def test_whole_rows_in_their_order(device: str, name: str) -> None:
    d = getattr(fb, name)
    x = fb.arange(5 * 37).reshape(5, 37).to(d).to(device)
    at = fb.tensor([4, 0, 0, 2, 4, 1], device=device)
    rows = fb.arange(6 * 37).reshape(6, 37).to(d).to(device)
    want, where = x.cpu().numpy(), at.cpu().numpy()
    np.testing.assert_array_equal(x[at].cpu().numpy(), want[where])
    np.testing.assert_array_equal(x.index_select(0, at).cpu().numpy(), want[where])
    added = want.copy()
    np.add.at(added, where, rows.cpu().numpy())
    np.testing.assert_array_equal(x.index_add(0, at, rows).cpu().numpy(), added)
    greatest = want.copy()
    np.maximum.at(greatest, where, rows.cpu().numpy())
    np.testing.assert_array_equal(x.scatter_reduce(0, at.unsqueeze(1).expand(6, 37), rows, "amax").cpu().numpy(), greatest)
    x[at] = rows  # of positions given twice the last counts
    want = want.copy()
    want[where] = rows.cpu().numpy()
    np.testing.assert_array_equal(x.cpu().numpy(), want)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        x.scatter_reduce(0, (at + 1).unsqueeze(1).expand(6, 37), rows, "amax").cpu()


def test_repeats_lie_on_the_host_or_beside_the_elements() -> None:
    with fb.simulate(gpus=1):
        x = fb.arange(4.0, device="cuda")
        for where in ("cpu", "cuda"):
            assert x.repeat_interleave(fb.tensor(2, device=where), 0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert x.repeat_interleave(fb.tensor([0, 2, 0, 1], device="cuda")).tolist() == [1, 1, 3]
    assert fb.zeros(0).repeat_interleave(fb.zeros(0, dtype=fb.int64)).shape == (0,)
    assert fb.ones(2).repeat_interleave(fb.tensor([0, 0])).shape == (0,)


IN_PLACE = {
    "scatter_add": lambda f, at, y: f(0, at, y), "scatter": lambda f, at, y: f(0, at, y), "scatter value": lambda f, at, y: f(0, at, 2),
    "scatter multiply": lambda f, at, y: f(0, at, y, reduce="multiply"), "scatter_reduce amax": lambda f, at, y: f(0, at, y, "amax"),
    "scatter_reduce prod": lambda f, at, y: f(0, at, y, "prod"), "scatter_reduce mean": lambda f, at, y: f(0, at, y, "mean"),
    "index_reduce amin": lambda f, at, y: f(0, at[:, 0], y, "amin"), "index_reduce mean": lambda f, at, y: f(0, at[:, 0], y, "mean"),
    "put": lambda f, at, y: f(at, y)}


@pytest.mark.parametrize("case", IN_PLACE)
@pytest.mark.parametrize("kind", ["contiguous", "strided", "beside the source", "truths"])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_forms_in_place_write_what_others_give(device: str, case: str, kind: str) -> None:
    """Where they write into the tensor itself, and where they cannot: it is strided, or what is read lies in the same memory."""
    name, *more = case.split(" ")
    if kind == "truths" and more[:1] in (["mean"], ["multiply"]) or kind == "truths" and name == "index_reduce":
        pytest.skip("truths have none")
    rng = np.random.default_rng(4)
    at = fb.tensor(rng.integers(0, 6, (6, 5)), device=device)
    y = fb.tensor(rng.integers(-3, 4, (6, 5)).astype(np.float32), device=device)
    x = fb.tensor(rng.integers(-3, 4, (6, 5)).astype(np.float32), device=device)
    if kind == "truths":
        x, y = x > 0, y > 0
    for _ in range(6):  # learned, too
        held, source = x.t().clone().t() if kind == "strided" else x.clone(), y
        if kind == "beside the source":
            held, source = fb.cat((x, y)).split(6)
        want = IN_PLACE[case](getattr(held.clone(), name), at, source.clone())
        before = held._version
        assert IN_PLACE[case](getattr(held, name + "_"), at, source) is held
        assert fb.equal(held, want) and held._version == before + 1, (case, kind)
