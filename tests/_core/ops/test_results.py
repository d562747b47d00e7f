"""Results with names."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as fb
from flambeau._core.ops.results import named

CALLS = {"max": lambda t: t.max(0), "min": lambda t: fb.min(t, 0), "sort": lambda t: t.sort(), "topk": lambda t: t.topk(1),
         "kthvalue": lambda t: t.kthvalue(1),
         "median": lambda t: t.median(0), "mode": lambda t: t.mode(0), "cummax": lambda t: t.cummax(0), "cummin": lambda t: t.cummin(0)}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_parts_have_names_places_and_a_text(name):
    found = CALLS[name](fb.tensor([2.0, 1.0]))
    values, at = found
    assert isinstance(found, tuple) and found.values is values is found[0] and found.indices is at is found[1] and found._fields == ("values", "indices")
    assert repr(found) == f"torch.return_types.{name}(\nvalues={values!r},\nindices={at!r})" and at.dtype is fb.int64


def test_made_classes():
    pair = named("pair", "left right")
    p = pair(1, right=2)
    assert p == (1, 2) and p.left == 1 and p._replace(left=3) == (3, 2) and repr(p) == "torch.return_types.pair(\nleft=1,\nright=2)"
    assert fb.aminmax(fb.tensor([3, 1])).min.item() == 1
    with pytest.raises(TypeError):
        pair(1)


def test_copies():
    found = fb.tensor([2.0, 1.0]).sort()
    twin = copy.deepcopy(found)
    assert type(twin) is type(found) and fb.equal(twin.values, found.values) and twin.values is not found.values
    back = pickle.loads(pickle.dumps(found))
    assert type(back) is type(found) and fb.equal(back.indices, found.indices)
