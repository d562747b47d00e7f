"""Which stage wrote what another reads, by storage and version; what came into memory and went."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import flambeau as torch
from flambeau.trace import Stage, Trace


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.simulate(gpus=1, model="A100"):
        yield request.param


def sources(t: Trace) -> dict[str, list[str]]:
    return {f"{s.name} {s.index}": [f"{q.name} {q.index}" for q in s.sources] for s in t.stages}


def test_an_operation_reads_from_those_that_wrote(device: str) -> None:
    with torch.trace() as t:
        a = torch.ones(3, device=device)
        b = torch.zeros(3, device=device)
        c = a * 2
        d = c + b
        torch.sub(c[1:], d[1:])  # views read from who wrote what they show
    assert sources(t) == {"ones 1": [], "zeros 2": [], "mul 3": ["ones 1"], "add 4": ["mul 3", "zeros 2"], "sub 5": ["mul 3", "add 4"]}


def test_a_write_in_place_makes_a_new_version(device: str) -> None:
    with torch.trace() as t:
        a = torch.ones(3, device=device)
        a[1:].add_(1)
        b = a * 2
        a.zero_()
        b.add_(a)
        b.sum()
    by = sources(t)
    assert by["mul 3"] == ["add_ 2"] and by["zero_ 4"] == ["add_ 2"] and by["add_ 5"] == ["mul 3", "zero_ 4"] and by["sum 6"] == ["add_ 5"]


def test_what_was_there_before_has_no_source(device: str) -> None:
    a = torch.ones(3, device=device)
    with torch.trace() as t:
        a + 1
    assert sources(t) == {"add 1": []}


def test_a_copy_carries_what_its_tensor_holds() -> None:
    with torch.simulate(gpus=1, model="A100"), torch.trace() as t:
        big = torch.ones(1000)
        small = torch.zeros(1)
        small.cpu()
        small.to("cuda").item()
        x = big.to("cuda")
        x.sum().item()
    by = sources(t)
    assert by == {"ones 1": [], "zeros 2": [], "to 3": ["zeros 2"], "item 4": ["to 3"], "to 5": ["ones 1"], "sum 6": ["to 5"], "item 7": ["sum 6"]}


def test_backward_and_the_optimizer_are_followed(device: str) -> None:
    w = torch.nn.Parameter(torch.ones(4, 4, device=device))
    optimizer = torch.optim.SGD([w], lr=0.1)
    with torch.trace() as t:
        x = torch.randn(2, 4, device=device)
        (x @ w).square().sum().backward()
        optimizer.step()

    def all_before(s: Stage) -> set[str]:
        found = set()
        for q in s.sources:
            found |= {q.name} | all_before(q)
        return found
    # the step reads a gradient that came from the draw by way of products
    assert {"randn", "matmul"} <= all_before(t.stages[-1])


def test_waits_stand_where_the_host_stood_still() -> None:
    with torch.simulate(gpus=1, model="A100"), torch.trace() as t:
        x = torch.randn(512, 512, device="cuda")
        y = x @ x
        s = y.sum()
        s.item()
        x @ x
        torch.cuda.synchronize()
    by = {s.name: s for s in t.stages}
    assert [d for d, _, _ in by["item"].waits] == ["cuda:0"] and by["item"].waited > 0
    assert not by["matmul"].waits and not by["randn"].waits
    assert by["synchronize"].waited > 0 and by["synchronize"].line and by["synchronize"].line.rpartition(":")[0].endswith("test_sources.py")
    for s in t.stages:
        for _, start, end in s.waits:
            assert 0 <= start < end <= t.now() + 1e-9


def test_memory_comes_and_goes(device: str) -> None:
    where = "cuda:0" if device == "cuda" else "cpu"
    with torch.trace(values=False) as t:  # a value that a queue has yet to fetch keeps its memory
        a = torch.ones(256, 256, device=device)
        b = a + 1
        del a
        c = b * 2
        del b, c
    assert [(d, n, s.name) for d, n, s in t.sources.storages if s is not None and d == where] == [
        (where, 262144, "ones"), (where, 262144, "add"), (where, 262144, "mul")]
    assert [n // 262144 for _, n, _ in t.sources.living(where)] == [1, 2, 1, 2, 1, 0]
    assert [len(t.sources.alive(where, k)) for k in range(7)] == [0, 1, 2, 1, 2, 1, 0]


def test_nothing_is_kept_alive(device: str) -> None:
    import weakref
    with torch.trace(values=False) as t:  # a value that a queue has yet to fetch keeps its memory
        a = torch.ones(10, device=device)
        ref = weakref.ref(a.store)
        b = a + 1
        del a
        assert ref() is None
    assert b.sum().item() == 20 and len(t.stages) >= 2
