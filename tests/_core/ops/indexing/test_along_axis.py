"""gather, scatter and their like, against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


def test_gather_and_scatter():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 5, 6))
    index = rng.integers(0, 5, (4, 3, 6))
    np.testing.assert_array_equal(fb.tensor(a).gather(1, fb.tensor(index)).numpy(), np.take_along_axis(a, index, 1))
    src = rng.normal(size=index.shape)
    want = a.copy()
    for i, j, k in np.ndindex(index.shape):
        want[i, index[i, j, k], k] += src[i, j, k]
    np.testing.assert_allclose(fb.tensor(a).scatter_add(1, fb.tensor(index), fb.tensor(src)).numpy(), want)
    with pytest.raises(RuntimeError, match="out of bounds"):
        fb.tensor(a).gather(1, fb.tensor(index + 5))


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


def test_what_is_read_must_lie_elsewhere():
    at = fb.tensor([0, 1])
    for call in (lambda y: y.scatter_(0, at, y[:2]), lambda y: y.scatter_add_(0, at, y[1:3]), lambda y: y.index_copy_(0, at, y[:2]),
                 lambda y: y.index_add_(0, at, y[:2]), lambda y: y.put_(at, y[:2]), lambda y: y.index_put_((at,), y[1:3]), lambda y: y.__setitem__(at, y[1:3])):
        with pytest.raises(RuntimeError, match="single memory location"):
            call(fb.zeros(5))
    y = fb.arange(5.0)
    assert y.index_fill_(0, at, y[4]).tolist() == [4, 4, 2, 3, 4] and y[::2].add_(y[1::2][:1].expand(3)).tolist() == [8, 6, 8]


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
