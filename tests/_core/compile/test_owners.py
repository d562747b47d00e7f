"""Which storages live, and whose the memory behind an address is."""

from __future__ import annotations

from array import array
from typing import Any

import flambeau as torch
from flambeau._core.compile.owners import Living, instances
from flambeau._core.tensor import Storage
from flambeau._core.unknowns import Address


def test_instances_are_those_of_derived_classes_too() -> None:
    class Own(torch.Tensor):
        pass

    class Twice(Own, torch.nn.Parameter):
        pass
    t, p = torch.ones(2), torch.nn.Parameter(torch.ones(2))
    own, twice = torch.ones(2).as_subclass(Own), torch.ones(2).as_subclass(Twice)
    found = list(map(id, instances(torch.Tensor)))
    assert {id(x) for x in (t, p, own, twice)} <= set(found)
    assert len(found) == len(set(found))
    assert set(map(id, instances(Own))) == {id(own), id(twice)}


def test_classes_and_what_only_names_them_are_no_instances() -> None:
    named: Any = {"class": Storage, "kind": torch.Tensor}
    assert not [x for x in instances(Storage) if type(x) is not Storage]
    assert not [x for x in instances(torch.Tensor) if x is named or isinstance(x, type)]


def test_an_address_is_found_in_what_lives() -> None:
    a, b = torch.ones(5), torch.zeros(7, dtype=torch.int64)
    living = Living()
    assert living.find(a.data_ptr()) is a.store
    assert living.find(a.data_ptr() + 19) is a.store
    assert living.find(b.data_ptr() + 55) is b.store
    late = torch.ones(3)
    assert living.find(late.data_ptr()) is not late.store
    assert Living([late.store]).find(a.data_ptr()) is None
    assert list(Living([late.store])) == [late.store]


def test_storages_of_traces_have_no_memory() -> None:
    traced = Storage()
    traced.ptr, traced.version, traced.meta, traced.free = Address(0), 0, torch.ones(3).meta, []  # type: ignore[assignment]
    x = torch.ones(5)
    found = Living()
    assert traced not in list(found) and x.store in list(found) and list(Living([traced])) == []


def test_memory_in_common() -> None:
    a, b, c = sorted([torch.ones(5), torch.ones(7), torch.ones(9)], key=lambda t: t.data_ptr())
    living = Living([a.store, c.store])
    assert living.meets(a.store) and living.meets(c.store) and not living.meets(b.store) and not Living([]).meets(b.store)
    data = array("f", range(20))  # its parts are storages within one another
    whole, middle, after = (torch.frombuffer(data, count=n, offset=at, dtype=torch.float32).store for n, at in ((20, 0), (4, 8), (4, 24)))
    assert Living([whole]).meets(middle) and Living([middle]).meets(whole) and Living([middle, whole]).meets(after)
    assert not Living([middle]).meets(after) and not Living([after]).meets(middle)
