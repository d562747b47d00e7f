"""The names of memory formats and layouts."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as fb

NAMES = ["contiguous_format", "channels_last", "channels_last_3d", "preserve_format", "strided"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_object(name):
    value = getattr(fb, name)
    assert repr(value) == f"torch.{name}" and pickle.loads(pickle.dumps(value)) is value and copy.deepcopy(value) is value
    assert type(value) is (type(fb.strided) if name == "strided" else fb.memory_format) and {value: 1}[getattr(fb, name)] == 1


def test_every_tensor_is_strided():
    assert fb.zeros(2).layout is fb.strided and fb.zeros(2, layout=fb.strided).shape == (2,)


def test_results_follow_the_format_of_their_operands():
    x = fb.randn(2, 3, 4, 4).to(memory_format=fb.channels_last)
    for y in (x + 1, x * x, x.relu(), fb.where(x > 0, x, x * 2), fb.zeros_like(x), x.half(), fb.nn.functional.dropout(x)):
        assert y.is_contiguous(memory_format=fb.channels_last)
    assert fb.empty(2, 3, 4, 4, memory_format=fb.channels_last).stride() == (48, 1, 12, 3)
    assert fb.empty_like(x, memory_format=fb.contiguous_format).is_contiguous() and fb.rand_like(x).stride() == x.stride()
    one = fb.zeros(1, 1, 2, 2)
    assert one.is_contiguous() and one.is_contiguous(memory_format=fb.channels_last)  # both, as sizes of 1 leave the order open


def test_calls_that_name_a_format_are_found_again():
    from flambeau._core.engine.fronts import constant, exact

    for value in (fb.channels_last, fb.strided, fb.sparse_csr):
        assert constant(value) is exact(value) is value
    x = fb.randn(2, 3, 4, 4)
    for _ in range(6):
        made = fb.full(x.shape, 2.0, layout=fb.strided)
    assert made.shape == x.shape and any(fb.strided in (key[-1] or ()) for key in fb.full.__operation__.env["plans"] if isinstance(key[-1], tuple))
