"""Joining tensors against NumPy, with promotion, empties, layouts and errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TYPES = [fb.bool, fb.uint8, fb.int32, fb.int64, fb.float16, fb.float32, fb.float64, fb.complex64]


@st.composite
def parts(draw):
    axis = draw(st.integers(0, 2))
    base = draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    out = []
    for k in range(draw(st.integers(1, 4))):
        shape = list(base)
        shape[axis] = draw(st.integers(0, 3))
        d = draw(st.sampled_from(TYPES))
        a = (np.arange(np.prod(shape)) + k).reshape(shape).astype(d.np)
        order = draw(st.permutations(range(3)))  # laid out in any order of its axes
        out.append(a.transpose(np.argsort(order)).copy().transpose(order))
    return axis, out


@settings(max_examples=60, deadline=None)
@given(parts())
def test_cat_is_numpys_in_the_promoted_type(case):
    axis, arrays = case
    ts = [fb.from_numpy(a) for a in arrays]
    got = fb.cat(ts, axis - 3)
    d = ts[0].dtype
    for t in ts[1:]:
        d = fb.promote_types(d, t.dtype)
    assert got.dtype is d
    np.testing.assert_array_equal(got.numpy(), np.concatenate(arrays, axis).astype(d.np))
    out = fb.empty(0, dtype=d)
    assert fb.cat(ts, axis, out=out) is out and out.shape == got.shape


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 3), st.integers(-1, 2))
def test_stack_is_numpys(shape, count, axis):
    axis = min(axis, len(shape))
    arrays = [np.full(shape, float(i)) for i in range(count)]
    np.testing.assert_array_equal(fb.stack([fb.tensor(a) for a in arrays], axis).numpy(), np.stack(arrays, axis))


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
def test_named_stacks_are_numpys(name, shape):
    if name == "column_stack" and len(shape) == 0:
        arrays = [np.array(1.0), np.array(2.0)]
        assert fb.column_stack([fb.tensor(a) for a in arrays]).tolist() == [[1.0, 2.0]]
        return
    arrays = [np.arange(np.prod(shape)).reshape(shape) + k for k in (0, 10)]
    np.testing.assert_array_equal(getattr(fb, name)([fb.tensor(a) for a in arrays]).numpy(), getattr(np, name)(arrays))


@pytest.mark.parametrize("call,error,message", [
    (lambda: fb.cat([]), ValueError, "non-empty"), (lambda: fb.cat([fb.zeros(2), 3]), TypeError, "element 1"),
    (lambda: fb.cat([fb.zeros(2), fb.zeros(())]), RuntimeError, "zero-dimensional tensor \\(at position 1\\)"),
    (lambda: fb.cat([fb.zeros(2, 3), fb.zeros(3, 3)], 1), RuntimeError, "Expected size 2 but got size 3 for tensor number 1"),
    (lambda: fb.cat([fb.zeros(2), fb.zeros(2, 3)]), RuntimeError, "same number of dimensions"), (lambda: fb.cat([fb.zeros(2)], 1), IndexError, "out of range"),
    (lambda: fb.stack([fb.zeros(2), fb.zeros(3)]), RuntimeError, r"got \[2\] at entry 0 and \[3\] at entry 1"),
    (lambda: fb.stack([]), RuntimeError, "non-empty"), (lambda: fb.combinations(fb.zeros(2), -1), RuntimeError, "non-negative"),
    (lambda: fb.meshgrid(fb.zeros(2), indexing="ik"), RuntimeError, "indexing"),
    (lambda: fb.block_diag(fb.zeros(1, 1, 1)), RuntimeError, "2 or fewer dimensions")])
def test_errors_say_which_tensor(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_empty_vectors_take_no_part_and_channels_last_is_kept():
    assert fb.cat([fb.zeros(0), fb.ones(2, 3)], 1).shape == (2, 3) and fb.cat([fb.zeros(0), fb.zeros(0)]).shape == (0,)
    x = fb.zeros(2, 3, 4, 5).to(memory_format=fb.channels_last)
    assert fb.cat([x, x], 1).is_contiguous(memory_format=fb.channels_last)


def test_grids_and_combinations():
    a, b = np.arange(3), np.arange(4) * 10
    for indexing in ("ij", "xy"):
        got = fb.meshgrid(fb.tensor(a), fb.tensor(b), indexing=indexing)
        for g, w in zip(got, np.meshgrid(a, b, indexing=indexing), strict=True):
            np.testing.assert_array_equal(g.numpy(), w)
    assert fb.meshgrid([fb.tensor(a), fb.tensor(b)])[0].stride() == (1, 0)  # views
    assert fb.cartesian_prod(fb.tensor(a), fb.tensor(b)).tolist() == [list(p) for p in itertools.product(a.tolist(), b.tolist())]
    assert fb.combinations(fb.tensor(b), 2).tolist() == [list(p) for p in itertools.combinations(b.tolist(), 2)]
    assert fb.combinations(fb.tensor(a), 2, with_replacement=True).tolist() == [list(p) for p in itertools.combinations_with_replacement(a.tolist(), 2)]
    from scipy.linalg import block_diag
    blocks = [np.ones((2, 1)), np.full((1, 3), 2.0), np.array(5.0)]
    np.testing.assert_array_equal(fb.block_diag(*[fb.tensor(x) for x in blocks]).numpy(), block_diag(*blocks))


FORMS = {"cat": lambda a, b: fb.cat([a, b, a * b], 0), "stack": lambda a, b: fb.stack([a * a, b], 1), "hstack": lambda a, b: fb.hstack([a * b, b]),
         "mixed": lambda a, b: fb.cat([a.t(), (b * a).t()], 1), "block_diag": lambda a, b: fb.block_diag(a * a, b),
         "cartesian_prod": lambda a, b: fb.cartesian_prod(a[0] ** 2, b[0])}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    rng = np.random.default_rng(0)
    xs = tuple(fb.tensor(rng.normal(size=(2, 3)), requires_grad=True) for _ in range(2))
    assert gradcheck(FORMS[name], xs) and gradgradcheck(FORMS[name], xs)


def test_gradients_come_back_in_each_parts_type():
    a, b = fb.ones(2, dtype=fb.float16, requires_grad=True), fb.ones(3, requires_grad=True)
    fb.cat([a, b]).mul(2).sum().backward()
    assert a.grad.dtype is fb.float16 and a.grad.tolist() == [2, 2] and b.grad.tolist() == [2, 2, 2]


def test_joins_on_every_device(device):
    a, b = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    got = fb.cat([fb.tensor(a).to(device), fb.tensor(b).to(device).t().t()], 1)
    assert str(got.device) == device
    np.testing.assert_array_equal(got.cpu().numpy(), np.concatenate([a, b], 1))
    if device != "cpu":
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            fb.cat([fb.tensor(a).to(device), fb.tensor(b)])


@pytest.mark.parametrize("count", [2, 3, 40])
@pytest.mark.parametrize("join", ["cat", "stack"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining_again_and_again(join, count, axis, device):
    """The second call goes by the first one's plan, and many small parts by one routine: values and gradients stay theirs."""
    function = getattr(fb, join)
    for round_ in range(3):
        arrays = [np.arange(6.0, dtype=np.float32).reshape(2, 3) + 10 * i + round_ for i in range(count)]
        ts = [fb.tensor(a, device=device, requires_grad=i != 1) for i, a in enumerate(arrays)]
        expected = np.concatenate(arrays, axis) if join == "cat" else np.stack(arrays, axis)
        got = function(ts, axis)
        assert got.requires_grad and got.grad_fn.name() == join.capitalize() + "Backward0"
        np.testing.assert_array_equal(got.detach().cpu().numpy(), expected)
        weight = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
        (got * fb.tensor(weight, device=device)).sum().backward()
        parts = np.split(weight, count, axis) if join == "cat" else np.moveaxis(weight, axis, 0)
        for i, t in enumerate(ts):
            if i == 1:
                assert t.grad is None
            else:
                np.testing.assert_array_equal(t.grad.cpu().numpy(), parts[i])
        ts[0].grad.add_(1)  # memory of its own
        np.testing.assert_array_equal(ts[-1].grad.cpu().numpy() if count > 2 else parts[-1], parts[-1])
        with fb.no_grad():
            assert not function(ts, axis).requires_grad


@pytest.mark.parametrize("length", [3, 30000])  # few bytes go by one routine, many by a copy's kernel
@pytest.mark.parametrize("nothing", [(0,), (2, 0)])
def test_empty_parts_cost_no_planning(monkeypatch, nothing, length, device):
    """A cache of keys begins as an empty vector (transformers' DynamicCache): the second call prepares nothing anew."""
    a = np.arange(2.0 * length, dtype=np.float32).reshape(2, length)
    for round_ in range(3):
        empty, x, y = fb.zeros(nothing, device=device, requires_grad=True), *[fb.tensor(a + k + round_, device=device, requires_grad=True) for k in (0, 5)]
        with monkeypatch.context() as m:
            if round_ > 1:
                for name in ("prepare", "find"):
                    m.setattr(f"flambeau._core.ops.concat.dispatch.{name}", None)
            got = fb.cat([empty, x, y], 1)
        np.testing.assert_array_equal(got.detach().cpu().numpy(), np.concatenate([a + round_, a + round_ + 5], 1))
        (got * got).sum().backward()
        assert tuple(empty.grad.shape) == nothing
        np.testing.assert_array_equal(y.grad.cpu().numpy(), 2 * (a + round_ + 5))


def test_joining_by_a_plan_still_looks_at_types_and_devices():
    a, b = fb.ones(2, 3), fb.ones(2, 3, dtype=fb.float64)
    for _ in range(2):
        assert fb.cat([a, b]).dtype is fb.float64 and fb.cat([a, a]).dtype is fb.float32
        assert fb.stack([a, a]).dtype is fb.float32 and fb.cat([a.t(), a.t()], 1).shape == (3, 4)
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            fb.cat([a, fb.ones(2, 4)])
        with pytest.raises(RuntimeError, match="equal size"):
            fb.stack([a] * 20 + [fb.ones(2, 4)])
        with pytest.raises(TypeError, match="expected Tensor"):
            fb.cat([a, 3])


@pytest.mark.parametrize("join", [fb.cat, fb.stack])
@pytest.mark.parametrize("count", [2, 12])
def test_gradients_of_joins_have_gradients(join, count):
    ts = [fb.randn(2, 2, dtype=fb.float64, requires_grad=True) for _ in range(count)]
    assert gradcheck(lambda *xs: join(xs), ts) and gradgradcheck(lambda *xs: join(xs) ** 3, ts[:2])


def test_parameters_of_other_shapes_are_joined_anew():
    for join in (fb.stack, fb.cat):
        for shape in ((2, 3), (2,), (4, 1), (2, 3)):
            parts = [fb.nn.Parameter(fb.randn(shape)) for _ in range(3)]
            found = join(parts)
            assert fb.equal(found, join([p.detach() for p in parts])) and found.shape[1:] == (shape if join is fb.stack else shape[1:])


@pytest.mark.parametrize("join", ["cat", "stack"])
def test_parts_whose_rows_lie_apart(device, join):
    """Slices, turned axes, broadcast rows, of few rows and of many: joined as blocks where rows are neighbours, else part by part."""
    whole = np.arange(2 * 6 * 8 * 4, dtype=np.float32).reshape(2, 6, 8, 4)
    x = fb.tensor(whole).to(device)
    views = {
        "rows of a slice": (whole[:, 1:4], x[:, 1:4]), "columns of a slice": (whole[..., :3], x[..., :3]), "every other": (whole[:, ::2], x[:, ::2]),
        "turned": (whole.transpose(0, 2, 1, 3), x.transpose(1, 2)), "turned back": (whole.transpose(3, 0, 1, 2), x.permute(3, 0, 1, 2)),
        "broadcast": (np.broadcast_to(whole[:, :1], (2, 6, 8, 4)), x[:, :1].expand(2, 6, 8, 4)), "one": (whole[:1, :1, :1, :1], x[:1, :1, :1, :1])}
    for name, (a, t) in views.items():
        for at in range(4):
            for _ in range(2):  # planned, and by the plan
                got = getattr(fb, join)([t, t.contiguous() + 1, t], at)
                want = (np.concatenate if join == "cat" else np.stack)([a, a + 1, a], at)
                np.testing.assert_array_equal(got.cpu().numpy(), want, err_msg=f"{name}, {at}")


def test_parts_that_grow(device):
    kept = fb.zeros(2, 3, 0, 4, device=device)
    want = np.zeros((2, 3, 0, 4), np.float32)
    for n in range(1, 6):
        new = np.random.default_rng(n).standard_normal((2, n, 3, 4)).astype(np.float32)
        kept = fb.cat((kept, fb.tensor(new, device=device).transpose(1, 2)), dim=-2)
        want = np.concatenate((want, new.transpose(0, 2, 1, 3)), -2)
        np.testing.assert_array_equal(kept.cpu().numpy(), want)


@pytest.mark.parametrize("name", ["cat", "stack"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_out_of_the_same_layout_is_written_in_place(name, axis):
    """Calls like one before: into memory of the result's layout, of another one, and into memory of an operand."""
    f = getattr(fb, name)
    rng = np.random.default_rng(3)
    numpys = {"cat": np.concatenate, "stack": np.stack}[name]
    for transposed in (False, True):
        shape = numpys([np.zeros((4, 6)), np.zeros((4, 6))], axis).shape
        out = fb.zeros(shape[::-1]).permute(*range(len(shape))[::-1]) if transposed else fb.zeros(shape)
        whole = fb.zeros(3, *shape)
        for _ in range(4):
            a, b = (rng.standard_normal((4, 6)).astype(np.float32) for _ in range(2))
            version, memory = out._version, out.data_ptr()
            f([fb.tensor(a), fb.tensor(b)], axis, out=out)
            assert out._version > version and out.data_ptr() == memory
            np.testing.assert_array_equal(out.numpy(), numpys([a, b], axis))
            f((fb.tensor(a), fb.tensor(b)), axis, out=whole[1])
            np.testing.assert_array_equal(whole.numpy(), np.stack([np.zeros(shape), numpys([a, b], axis), np.zeros(shape)]))
    part = fb.arange(float(np.prod(shape))).reshape(shape)
    inside = part.reshape(-1)[6:30].reshape(4, 6)  # of an operand's memory
    before = inside.numpy().copy()
    if name == "cat":
        with pytest.raises(RuntimeError):
            f([inside, fb.ones(4, 6)], axis, out=part)
    else:
        f([inside, fb.ones(4, 6)], axis, out=part)
        np.testing.assert_array_equal(part.numpy(), numpys([before, np.ones((4, 6), np.float32)], axis))
