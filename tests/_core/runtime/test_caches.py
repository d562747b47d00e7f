"""The registry of plan caches: two worlds, one epoch, and all of it forgotten at once."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau._core.runtime import caches, dispatch


@pytest.fixture
def space() -> Iterator[dict[str, Any]]:
    """A namespace that may hold caches; the registry is as before after the test."""
    count, then, made = len(caches._spaces), len(caches._then), {}
    yield made
    caches.enter(caches.PLAIN)
    caches.forget()
    for name in caches._names[count:]:
        del caches._numbers_of[id(made), name], caches._shown[id(made[name])]
    del caches._spaces[count:], caches._names[count:], caches._then[then:]


def holding() -> list[dict[Any, Any]]:
    """All dictionaries in which there are plans."""
    return [d for d in (*(space[name] for space, name in zip(caches._spaces, caches._names, strict=True)),
                        *(d for away in caches._away.values() for d in away.values())) if d]


def test_a_cache_is_a_plain_dictionary_under_its_name(space: dict[str, Any]) -> None:
    made = caches.cache(space, "plans")
    assert made is space["plans"] and type(made) is dict and not made
    caches.keep_since(caches.epoch, made, "key", "plan")
    assert space["plans"] == {"key": "plan"}


def test_each_world_shows_its_own_and_finds_it_again(space: dict[str, Any]) -> None:
    plain = caches.cache(space, "plans")
    caches.keep_since(caches.epoch, plain, 1, "plain")
    caches.enter(caches.OBSERVED)
    assert space["plans"] == {} and space["plans"] is not plain
    caches.keep_since(caches.epoch, space["plans"], 1, "observed")
    late = caches.cache(space, "late")
    caches.keep_since(caches.epoch, late, 2, "observed too")
    caches.enter(caches.PLAIN)
    assert space["plans"] is plain and plain == {1: "plain"} and space["late"] == {}
    caches.enter(caches.OBSERVED)
    assert space["plans"] == {1: "observed"} and space["late"] is late


def test_entering_counts_an_epoch_only_where_the_world_changes(space: dict[str, Any]) -> None:
    before = caches.epoch
    caches.enter(caches.PLAIN)
    assert caches.epoch == before
    caches.enter(caches.OBSERVED)
    caches.enter(caches.OBSERVED)
    assert caches.epoch == before + 1
    caches.enter(caches.PLAIN)
    assert caches.epoch == before + 2


def test_forget_empties_all_caches_of_both_worlds_and_tells_who_keeps_more(space: dict[str, Any]) -> None:
    told: list[int] = []
    caches.on_forget(lambda: told.append(caches.epoch))
    first, second = caches.cache(space, "first"), caches.cache(space, "second")
    for cached in (first, second):
        caches.keep_since(caches.epoch, cached, 1, "plain")
    caches.enter(caches.OBSERVED)
    caches.keep_since(caches.epoch, space["first"], 1, "observed")
    before = caches.epoch
    caches.forget()
    assert caches.epoch == before + 1 and told == [caches.epoch]
    assert space["first"] == {} and first == {} and second == {}
    caches.enter(caches.PLAIN)
    assert space["first"] == {}


def test_forget_empties_every_cache_of_the_package() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    torch.nn.functional.softmax(x @ x.t(), dim=1).sum().backward()
    with dispatch.observe(lambda *launch: None):
        (x + x).mean()
    assert holding() and caches._away
    caches.forget()
    assert not holding()
    assert (x + x).sum().item() == 24


def test_every_variable_holds_a_dictionary_that_is_known_to_be_shown_and_to_be_filled() -> None:
    x = torch.ones(3, 4)
    for world in (caches.PLAIN, caches.OBSERVED, caches.PLAIN):
        caches.enter(world)
        (x + x).mean()
        found = [space[name] for space, name in zip(caches._spaces, caches._names, strict=True)]
        assert caches._shown == {id(d): n for n, d in enumerate(found)}
        assert caches._filled == {n for n, d in enumerate(found) if d}


def test_what_nothing_was_put_into_is_shown_in_every_world(space: dict[str, Any]) -> None:
    empty = caches.cache(space, "plans")
    caches.enter(caches.OBSERVED)
    assert space["plans"] is empty
    caches.keep_since(caches.epoch, empty, 1, "observed")
    caches.put(caches.renewed, torch.get_default_dtype(), space, "plans", 1, "plain")
    caches.enter(caches.PLAIN)
    assert space["plans"] is not empty and space["plans"] == {1: "plain"} and empty == {1: "observed"}


def test_each_default_type_has_plans_of_its_own() -> None:
    u, f = torch.tensor([0, 1], dtype=torch.uint8), torch.ones(2, 3, dtype=torch.int64)

    def types() -> set[torch.dtype]:
        return {x.dtype for x in (u + 5.5, 5.5 + u, u.add(5.5), u / 2, torch.sin(u), torch.true_divide(f, f), f / 3,
                                  torch.add(u, 1.5), torch.zeros(2), torch.linspace(0, 1, 3), torch.tensor(1.5), f.float().to(torch.get_default_dtype()))}
    try:
        for _ in range(3):
            for d in (torch.float32, torch.float64):
                torch.set_default_dtype(d)
                for _ in range(4):
                    assert types() == {d}
                assert (u + 1j).dtype is (torch.complex64 if d is torch.float32 else torch.complex128)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_full_cache_starts_over(space: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MOST", 3)
    made = caches.cache(space, "plans")
    for i in range(4):
        caches.keep_since(caches.epoch, made, i, str(i))
    assert made == {3: "3"} and space["plans"] is made


def test_a_plan_made_before_an_epoch_is_not_kept_after_it(space: dict[str, Any]) -> None:
    made, since = caches.cache(space, "plans"), caches.epoch
    caches.keep_since(since, made, 1, "fresh")
    caches.forget()
    caches.keep_since(since, made, 2, "stale")
    assert made == {}
    since = caches.epoch
    caches.enter(caches.OBSERVED)
    caches.keep_since(since, made, 3, "of the other world")
    assert made == {}
    caches.keep_since(caches.epoch, space["plans"], 4, "observed")
    assert space["plans"] == {4: "observed"}
    caches.enter(caches.PLAIN)
    assert space["plans"] == {}


def test_shapes_that_never_repeat_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MOST", 8)
    plans = torch.relu.__operation__.started().env["plans"]
    for n in range(1, 40):
        assert torch.relu(torch.ones(n)).shape == (n,)
        assert len(torch.relu.__operation__.env["plans"]) <= max(8, n if n == 1 else 8)
    assert torch.relu.__operation__.env["plans"] is plans


def test_observing_shows_the_observed_world_and_goes_back_after_errors() -> None:
    plain = torch.relu.__operation__.started().env["plans"]
    x = torch.ones(2)
    torch.relu(x)
    kept = dict(plain)
    seen: list[str] = []
    with pytest.raises(KeyError), dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared.name)):
        assert torch.relu.__operation__.env["plans"] is not plain
        torch.relu(x)
        raise KeyError
    assert torch.relu.__operation__.env["plans"] is plain and plain == kept
    count = len(seen)
    torch.relu(x)
    assert count == len(seen) == 1
    with dispatch.observe(copies=lambda copy: None):  # who sees copies only changes no launch
        assert torch.relu.__operation__.env["plans"] is plain


def test_observers_may_close_in_any_order() -> None:
    plain = torch.relu.__operation__.started().env["plans"]
    first, second = dispatch.observe(lambda *launch: None), dispatch.observe(lambda *launch: None)
    first.close()
    first.close()
    assert torch.relu.__operation__.env["plans"] is not plain
    second.close()
    assert torch.relu.__operation__.env["plans"] is plain


def test_threads_may_work_while_another_forgets_and_observes() -> None:
    stop, errors = threading.Event(), []
    x = torch.arange(6.0).reshape(2, 3)

    def work() -> None:
        try:
            while not stop.is_set():
                assert torch.relu(x * 2 + 1).tolist() == [[1, 3, 5], [7, 9, 11]]
        except BaseException as e:
            errors.append(e)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(30):
        caches.forget()
        with dispatch.observe(lambda *launch: None):
            torch.relu(x)
    stop.set()
    for t in threads:
        t.join()
    assert not errors


@pytest.mark.parametrize("change", [lambda: torch.set_num_threads(torch.get_num_threads()), lambda: torch.simulate(gpus=1)])
def test_a_change_of_threads_or_devices_is_an_epoch(change: Any) -> None:
    before = caches.epoch
    made = change()
    if made is not None:
        with made:
            pass
    assert caches.epoch > before and not torch.relu.__operation__.started().env["plans"]


def test_kept_functions_have_one_place_together(space: dict[str, Any]) -> None:
    count, calls = len(caches._spaces), []

    def made(name: str) -> Any:
        @caches.kept
        def f(x: Any) -> Any:
            calls.append((name, x))
            return [name, x]
        return f
    first, second = made("first"), made("second")
    assert len(caches._spaces) == count
    one = first(1)
    assert first(1) is one and second(1) == ["second", 1] and calls == [("first", 1), ("second", 1)]
    caches.enter(caches.OBSERVED)
    assert first(1) is not one
    caches.enter(caches.PLAIN)
    assert first(1) is one and len(calls) == 3
    caches.forget()
    assert first(1) is not one and second(1) == ["second", 1] and len(calls) == 5
    assert first([2]) == ["first", [2]] and first([2]) == ["first", [2]] and len(calls) == 7  # what has no hash is kept by nobody


def test_what_binds_for_the_plain_world_is_put_there_whichever_is_shown(space: dict[str, Any]) -> None:
    plain = caches.cache(space, "plans")
    caches.enter(caches.OBSERVED)
    caches.keep_since(caches.epoch, plain, "key", "observed")
    default = torch.get_default_dtype()
    caches.put(caches.renewed, default, space, "plans", "key", "plan")
    caches.put(caches.renewed, torch.float64, space, "plans", "key", "of another default type")
    caches.put(caches.renewed - 1, default, space, "plans", "late", "plan")  # all were emptied meanwhile
    assert plain == {"key": "observed"}
    caches.enter(caches.PLAIN)
    caches.put(caches.renewed, default, space, "plans", "second", "plan")
    assert space["plans"] == {"key": "plan", "second": "plan"}
    torch.set_default_dtype(torch.float64)
    try:
        assert space["plans"] == {"key": "of another default type"}
    finally:
        torch.set_default_dtype(default)


def test_only_the_registry_puts_plans_into_caches() -> None:
    """An assignment reads the variable when the plan is made: another thread may have changed the world meanwhile."""
    source = Path(torch.__file__).parent
    texts = {path: path.read_text() for path in source.rglob("*.py")}
    found = {path: re.findall(r"caches\.cache\(globals\(\), \"(\w+)\"\)", text) for path, text in texts.items()}
    assert sum(map(len, found.values())) > 15
    for path, names in found.items():
        assert not [line for name in names for line in re.findall(rf"(?<![\w.]){name}\[[^\n]*\] = |(?<![\w.]){name}\.setdefault", texts[path])], path


_X = torch.rand(3, 5)
_IMAGE, _FILTER = torch.rand(2, 3, 9, 9), torch.rand(4, 3, 3, 3)
_HEADS = torch.rand(2, 2, 8, 16)


def _step(kind: Any) -> None:
    weight = torch.nn.Parameter(torch.zeros(3, 7))
    weight.grad = torch.zeros(3, 7)
    kind([weight]).step()


CALLS: dict[str, Any] = {
    "pointwise": lambda: _X + _X, "reduction": lambda: _X.sum(0), "in place": lambda: _X.clone().mul_(2), "index": lambda: _X[[0, 2]],
    "pad": lambda: F.pad(_X, (1, 2)), "cat": lambda: torch.cat([_X, _X]), "cat of views": lambda: torch.cat([_X.T, _X.T], 1),
    "stack": lambda: torch.stack([_X, _X]), "convolution": lambda: F.conv2d(_IMAGE, _FILTER),
    "attention": lambda: F.scaled_dot_product_attention(_HEADS, _HEADS, _HEADS),
    "rows": lambda: F.layer_norm(_X, (5,)), "softmax": lambda: _X.softmax(1), "routine": lambda: torch.fft.fft(_X), "product": lambda: _X @ _X.T,
    "draw": lambda: torch.randn(4, 6), "resize": lambda: F.interpolate(_IMAGE, scale_factor=2.0, mode="bicubic"), "sort": lambda: _X.sort(0),
    "loss": lambda: F.mse_loss(_X, _X), "sgd": lambda: _step(partial(torch.optim.SGD, lr=0.1)), "adam": lambda: _step(torch.optim.Adam),
    "norms": lambda: torch.nn.utils.clip_grad_norm_([_held], 0.5), "gradient": lambda: torch.autograd.grad((_held * _X).softmax(1).square().mean(), _held),
}
_held = torch.rand(3, 5).requires_grad_()
_held.grad = torch.rand(3, 5)


def test_forget_empties_whatever_was_filled() -> None:
    """It empties those that the registry knows to be filled, so nothing else may fill one."""
    for world in (caches.PLAIN, caches.OBSERVED):
        caches.enter(world)
        for work in (*CALLS.values(), lambda: torch.randn(3, 4).to("meta"), lambda: torch.zeros(7), lambda: _X.reshape(5, 3), lambda: torch.tensor([1.0, 2.0]),
                     lambda: torch.func.vmap(torch.sin)(_X), lambda: torch.result_type(_X, 1), lambda: _X.to_sparse().sum(),
                     lambda: torch.add(_X, 1, out=_X.clone())):
            for _ in range(5):
                work()
    caches.enter(caches.PLAIN)
    caches.forget()
    assert not holding()


def _launches(work: Any) -> int:
    seen: list[Any] = []
    with dispatch.observe(launches=lambda *a: seen.append(a)):
        work()
    return len(seen)


@pytest.mark.parametrize("opens", [True, False], ids=["a trace opens", "a trace closes"])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_bound_while_the_world_changes_is_not_kept(name: str, opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread opens or closes a trace while a launch is made: the plan is of the world that was, and no other trace may miss its launches."""
    work = CALLS[name]
    caches.forget()
    first, want = _launches(work), _launches(work)  # the first may make what others keep
    assert first >= want > 0
    # at its worst when it is bound but not kept, or asked for but not bound
    step = "bind" if opens else "find"
    made, looking = getattr(dispatch, step), dispatch.observe(launches=lambda *a: None)
    if opens:
        looking.close()
    changed = 0

    def change(*args: Any) -> Any:
        nonlocal looking, changed
        result = made(*args)
        if opens and not changed:
            looking = dispatch.observe(launches=lambda *a: None)
        elif not opens:
            looking.close()
        changed += 1
        return result
    caches.forget()
    monkeypatch.setattr(dispatch, step, change)
    try:
        work()
        monkeypatch.undo()
        assert changed
        work()  # what was kept would be found
        assert [_launches(work) for _ in range(2)][1] == want
    finally:
        looking.close()


def test_a_function_that_is_kept_gives_its_plan_where_the_epoch_ends_while_it_is_put_away(monkeypatch):
    """A finalizer may end it there: the lock is re-entrant."""
    usual = caches.keep_since

    def ending(*args):
        caches.forget()
        usual(*args)
    monkeypatch.setattr(caches, "keep_since", ending)
    made = []

    @caches.kept
    def plan(x):
        made.append(x)
        return x + 1
    assert plan(1) == plan(1) == 2 and made == [1, 1]
    monkeypatch.setattr(caches, "keep_since", usual)
    assert plan(1) == plan(1) == 2 and made == [1, 1, 1]
