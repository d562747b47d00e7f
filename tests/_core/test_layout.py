"""Layout algebra against NumPy: broadcasting, strides, views, what overlaps."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import flambeau as fb
from flambeau._core import layout
from flambeau._core.layout import Size

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@st.composite
def strided(draw):
    """An array that is some view of a dense one: permuted, sliced, expanded."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    a = np.arange(int(np.prod(shape))).reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    for axis in range(a.ndim):
        step = draw(st.integers(1, 2))
        start = draw(st.integers(0, a.shape[axis] - 1))
        a = a[(slice(None),) * axis + (slice(start, None, step),)]
    if draw(st.booleans()):
        a = np.broadcast_to(a, (draw(st.integers(1, 3)), *a.shape))
    return a


def steps(a):
    return tuple(s // a.itemsize for s in a.strides)


def offsets(shape, strides):
    """The element offset of every index, by brute force."""
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in itertools.product(*map(range, shape))]


@given(st.lists(shapes, min_size=1, max_size=4))
def test_broadcasting_is_numpys(several):
    try:
        want = np.broadcast_shapes(*several)
    except ValueError:
        with pytest.raises(RuntimeError, match="must match the size of tensor"):
            layout.broadcast_shapes(*several)
        return
    assert layout.broadcast_shapes(*several) == want
    assert tuple(fb.broadcast_shapes(*several)) == want


def test_the_broadcasting_error_names_sizes_and_axis():
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1"):
        layout.broadcast_shapes((2, 3), (4,))


@given(strided(), st.integers(1, 3))
def test_expanded_strides_read_the_same_elements(a, lead):
    to = (lead, *a.shape)
    want = np.broadcast_to(a, to)
    got = as_strided(a, to, [s * a.itemsize for s in layout.expand_strides(a.shape, steps(a), to)])
    np.testing.assert_array_equal(got, want)


@given(full_shapes)
def test_contiguous_strides_are_numpys(shape):
    a = np.empty(shape)
    assert layout.contiguous_strides(shape) == steps(a)
    assert layout.is_contiguous(shape, steps(a)) and layout.is_dense(shape, steps(a)) and not layout.overlaps_itself(shape, steps(a))
    assert layout.numel(shape) == a.size


def test_zero_sized_axes_count_as_one_in_strides():
    assert layout.contiguous_strides((2, 0, 3)) == (3, 3, 1) and fb.empty(2, 0, 3).stride() == (3, 3, 1)
    assert layout.is_contiguous((2, 0), (17, 5)) and layout.extent((2, 0), (17, 5)) == (0, -1)


@given(strided())
def test_contiguity_density_overlap_and_extent_against_every_offset(a):
    at = offsets(a.shape, steps(a))
    assert layout.is_contiguous(a.shape, steps(a)) is (at == list(range(a.size)))
    assert layout.is_dense(a.shape, steps(a)) is (sorted(at) == list(range(a.size)))
    assert layout.extent(a.shape, steps(a)) == (min(at), max(at))
    if len(set(at)) < len(at):
        assert layout.overlaps_itself(a.shape, steps(a))
    else:
        assert not layout.overlaps_itself(a.shape, steps(a))


def bytes_of(shape, strides, size):
    return {at * size + k for at in offsets(shape, strides) for k in range(size)}


@settings(max_examples=300)
@given(strided(), strided(), st.integers(-40, 40), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4]))
def test_common_bytes_against_every_byte(a, b, apart, size_a, size_b):
    found = layout.common_bytes((a.shape, steps(a), size_a), (b.shape, steps(b), size_b), apart)
    assert found is bool(bytes_of(a.shape, steps(a), size_a) & {apart + at for at in bytes_of(b.shape, steps(b), size_b)})


def test_common_bytes_of_interleaved_parts_without_axes_and_of_nothing():
    even = ((2, 32, 8, 16), (8192, 16, 1024, 1), 4)  # every second step of an axis behind others: the odd ones lie 512 on
    assert not layout.common_bytes(even, even, 4 * 512) and layout.common_bytes(even, even, 4 * 1024)
    assert layout.common_bytes(((), (), 4), ((), (), 4), 3) and not layout.common_bytes(((), (), 4), ((), (), 4), 4)
    assert not layout.common_bytes(((0, 3), (3, 1), 4), ((3,), (1,), 4), 0)
    assert layout.common_bytes(even, even, 4 * 512, most=0)  # too few tries to tell: taken to share


@settings(max_examples=300)
@given(strided(), st.data())
def test_view_strides_are_found_exactly_where_numpy_can_reshape_without_a_copy(a, data):
    divisors = [d for d in range(1, a.size + 1) if a.size % d == 0]
    first = data.draw(st.sampled_from(divisors))
    rest = a.size // first
    second = data.draw(st.sampled_from([d for d in divisors if rest % d == 0]))
    to = (first, second, rest // second)
    got = layout.view_strides(a.shape, steps(a), to)
    view = a.view()
    try:
        view.shape = to
    except AttributeError:
        # NumPy's own rule for arrays with repeated (stride 0) axes is stricter than PyTorch's: compare those by offsets
        assume(0 not in steps(a))
        assert got is None
        return
    assert got is not None
    assert offsets(to, got) == offsets(a.shape, steps(a))


@given(strided())
def test_a_view_never_moves_an_element(a):
    for to in ((a.size,), (1, a.size, 1), a.shape, (*a.shape, 1)):
        got = layout.view_strides(a.shape, steps(a), to)
        if got is not None:
            assert offsets(to, got) == offsets(a.shape, steps(a))
    assert layout.view_strides(a.shape, steps(a), a.shape) is not None


def test_views_of_empty_and_zero_dim_tensors():
    assert layout.view_strides((0, 3), (3, 1), (0, 5)) == (5, 1)
    assert layout.view_strides((), (), (1, 1)) == (1, 1) and layout.view_strides((1, 1), (7, 9), ()) == ()


@given(st.lists(strided(), min_size=1, max_size=3))
def test_a_results_strides_are_dense_and_keep_a_common_order(arrays):
    try:
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
    except ValueError:
        assume(False)
    strides = layout.result_strides(shape, [(a.shape, steps(a)) for a in arrays])
    assert layout.is_dense(shape, strides) and not layout.overlaps_itself(shape, strides)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_permuted_operand_gives_a_result_in_its_order(order):
    x = fb.zeros(2, 3, 4).permute(*order)
    assert (x + 1).stride() == x.stride() and (x + x).stride() == x.stride() and fb.empty_like(x).stride() == x.stride()
    assert x.clone().stride() == x.stride() and x.clone(memory_format=fb.contiguous_format).is_contiguous()


def test_channels_last():
    x = fb.zeros(2, 3, 4, 5)
    y = x.to(memory_format=fb.channels_last)
    assert y.stride() == layout.channels_last_strides((2, 3, 4, 5)) == (60, 1, 15, 3)
    assert y.is_contiguous(memory_format=fb.channels_last) and not y.is_contiguous() and (y + x.mean()).stride() == y.stride()
    z = fb.zeros(2, 3, 4, 5, 6).contiguous(memory_format=fb.channels_last_3d)
    assert z.is_contiguous(memory_format=fb.channels_last_3d) and layout.is_channels_last(z.shape, z.stride())
    assert not layout.is_channels_last((2, 3), (3, 1))


def test_strides_that_mean_the_same_places():
    assert layout.same_places((2, 1, 3), (3, 3, 1), (3, 7, 1)) and layout.same_places((), (), ())
    assert not layout.same_places((2, 1, 3), (3, 3, 1), (1, 3, 2))


def test_results_of_images_lie_as_the_images():
    last = layout.channels_last_strides((2, 3, 4, 5))
    assert layout.image_strides((2, 6, 2, 2), (2, 3, 4, 5), last) == layout.channels_last_strides((2, 6, 2, 2))
    assert layout.image_strides((2, 6, 2, 2), (2, 3, 4, 5), layout.contiguous_strides((2, 3, 4, 5))) == layout.contiguous_strides((2, 6, 2, 2))
    assert layout.image_strides((2, 6, 2, 2), (2, 3, 4, 5), (1, 2, 6, 24)) == layout.contiguous_strides((2, 6, 2, 2))  # another order
    assert layout.image_strides((2, 6), (2, 3, 4, 5), last) == (6, 1)  # no images any more


def test_axes_wrap():
    assert [layout.wrap_dim(d, 3) for d in (-3, -1, 0, 2)] == [0, 2, 0, 2] and layout.wrap_dim(-1, 0) == 0
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-3, 2\], but got 3\)"):
        layout.wrap_dim(3, 3)
    with pytest.raises(IndexError, match="has no dimensions"):
        layout.wrap_dim(0, 0, scalar_ok=False)
    for wrong in (1.0, "0", True):
        with pytest.raises(TypeError, match="argument 'dim' must be int"):
            layout.wrap_dim(wrong, 2)
    assert layout.wrap_dims((0, -1), 3) == (0, 2) and layout.wrap_dims(None, 2) == (0, 1) and layout.wrap_dims(-1, 2) == (1,)
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        layout.wrap_dims((1, -1), 2)


def test_a_size_left_open_is_worked_out():
    assert layout.infer_size((2, -1), 6) == (2, 3) and layout.infer_size((), 1) == () and layout.infer_size((0, 3), 0) == (0, 3)
    for shape, count, message in [((-1, -1), 6, "only one dimension"), ((4, -1), 6, "is invalid for input of size 6"),
                                  ((2, 2), 6, "is invalid"), ((-2, 3), 6, "invalid shape dimension -2"), ((0, -1), 0, "ambiguous")]:
        with pytest.raises(RuntimeError, match=message):
            layout.infer_size(shape, count)


def test_size_is_a_tuple_that_prints_as_pytorchs():
    s = fb.zeros(2, 3).shape
    assert repr(s) == "torch.Size([2, 3])" and s == (2, 3) and s.numel() == 6 and isinstance(s, tuple)
    assert type(s[1:]) is Size and type(s + (4,)) is Size and type((1,) + s) is Size and type(s * 2) is Size and s[0] == 2
    assert pickle.loads(pickle.dumps(s)) == s and type(copy.deepcopy(s)) is Size and hash(s) == hash((2, 3))
    with pytest.raises((TypeError, AttributeError)):
        Size([1.5])


def test_axes_from_the_outermost() -> None:
    assert layout.dim_order((2, 3), (3, 1)) == ((0, 1), True) and layout.dim_order((3, 2), (1, 3)) == ((1, 0), True)
    assert layout.dim_order((2, 3, 4, 5, 6), layout.channels_last_strides((2, 3, 4, 5, 6))) == ((0, 2, 3, 4, 1), True)
    assert layout.dim_order((4, 3, 2), (3, 1, 12)) == ((2, 0, 1), True) and layout.dim_order((2, 3), (0, 1)) == ((0, 1), False)
