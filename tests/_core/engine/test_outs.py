"""Calls with `out=`: whatever the engine knows of them from earlier ones, they do what the first did."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor
from flambeau._core.engine import learning
from flambeau._core.runtime import dispatch

from .public_operations import ANYTHING, bits, lines, ops_lines, ops_timing, ops_values


def with_out() -> list[Any]:
    """The lines of operations that have `out=`."""
    found = []
    for line in lines():
        f = ops_lines.find(torch, line.path) if line.path else None
        operation = getattr(f, "__operation__", None)
        if operation is not None and operation.out is not None and line.name not in ANYTHING and "Tensor." not in line.name:
            found.append(line)
    return found


@pytest.mark.parametrize("part", range(4))
def test_every_operation_writes_what_it_gives(part: int) -> None:
    """Its result in new memory, in `out=`, several times, and with others' values in between."""
    tried = 0
    for line in with_out()[part::4]:
        f = ops_lines.find(torch, line.path)
        values = ops_values.Values(torch)

        def call(out: Any, values: Any = values, f: Any = f, line: Any = line) -> Any:
            def with_out(*args: Any, **kwargs: Any) -> Any:
                return f(*args, **kwargs, **({} if out is None else {"out": out}))
            torch.manual_seed(3)
            return eval(ops_timing.compiled(line)[0], {"call": with_out, **{n: values[n] for n in ops_timing.used(line)}})
        with torch.no_grad():
            try:
                want = call(None)
            except (NameError, KeyError, SyntaxError, TypeError):
                continue  # not a call of the function by its name
            if not all(isinstance(x, Tensor) and x.layout is torch.strided for x in ([want] if isinstance(want, Tensor) else want)):
                continue
            fresh = [torch.full_like(x, 1) for x in ([want] if isinstance(want, Tensor) else want)]
            out = fresh[0] if isinstance(want, Tensor) else tuple(fresh)
            versions = [x._version for x in fresh]
            for _ in range(5):
                given = call(out)
                assert bits(given) == bits(want) == bits(type(want)(out) if type(want) is list else out), line.name
                assert all(a is b for a, b in zip([given] if isinstance(want, Tensor) else given, fresh, strict=True)), line.name
                assert [x._version for x in fresh] > versions, line.name
                versions = [x._version for x in fresh]
                for x in fresh:
                    x.zero_()
        tried += 1
    assert tried > 20


X = torch.arange(12.0).reshape(3, 4)
CALLS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, out: torch.sum(x, 1, out=out), "tril": lambda x, out: torch.tril(x, out=out), "mm": lambda x, out: torch.mm(x, torch.t(x), out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out), "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([2, 0]), out=out),
    "softmax": lambda x, out: torch.softmax(x, 1, out=out), "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_requires_grad_is_refused_at_any_time(name: str) -> None:
    call = CALLS[name]
    out = torch.empty(0)
    for _ in range(4):
        call(X, out)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(X.clone().requires_grad_(), out)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        call(X, out.clone().requires_grad_())
    with torch.no_grad():
        wanting = out.clone().requires_grad_()
        call(X.clone().requires_grad_(), wanting.zero_())
        assert wanting.equal(out) and wanting.requires_grad and wanting.is_leaf


@pytest.mark.parametrize("name", CALLS)
def test_another_shape_is_resized_and_told_another_type_refused(name: str) -> None:
    call, want = CALLS[name], torch.empty(0)
    for _ in range(4):
        call(X, want)
    for _ in range(3):
        out = torch.ones(7)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call(X, out)
        assert out.equal(want) and any("was resized" in str(w.message) for w in told)
    if name not in ("sum", "cumsum"):  # those take any type
        with pytest.raises((RuntimeError, TypeError), match=r"dtype|can't be cast"):
            call(X, torch.empty(want.shape, dtype=torch.int32))
    else:
        for _ in range(3):
            assert call(X, torch.empty(want.shape, dtype=torch.int32)).equal(want.int())
    with pytest.raises(TypeError, match="out"):
        call(X, "nowhere")
    turned = torch.empty(tuple(want.shape)[::-1]).permute(*range(want.dim())[::-1])
    for _ in range(4):
        turned.zero_()
        assert call(X, turned) is turned and turned.equal(want)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_resizes_is_not_replayed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay would write where the `out` that it is given has no memory."""
    replayed: list[Any] = []
    forward = learning.replays.forward
    monkeypatch.setattr(learning.replays, "forward", lambda script, *rest, **more: replayed.append(script.written) or forward(script, *rest, **more))
    call, want = CALLS[name], CALLS[name](X, torch.empty(0))
    for n in range(6):
        out = torch.empty(0, 1 + len(name))  # a layout that no other test gives
        assert call(X, out) is out and out.equal(want), n
    assert not any(replayed)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_tensor_is_told_at_any_time(name: str) -> None:
    said = []
    for _ in range(4):
        with pytest.raises(TypeError) as caught:
            CALLS[name]("nothing" if name == "mm" else 2.5, torch.empty(3, dtype=torch.float64))
        said.append(str(caught.value))
    assert len(set(said)) == 1


def test_memory_that_is_read_too() -> None:
    for _ in range(4):
        x = X.clone()
        assert torch.tril(x, out=x).equal(X.tril())
        both = torch.zeros(6, 4)
        both[:3] = X
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.gather(both, 0, torch.zeros(3, 4, dtype=torch.int64), out=both[:3])
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        one, other = torch.from_numpy(a), torch.from_numpy(a)
        assert torch.cumsum(one, 0, out=other).equal(X.cumsum(0))
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.sum(X, 1, out=torch.empty(1).expand(3))
        out = torch.empty(3)
        torch.sum(X, 1, out=out)


def test_a_shape_that_follows_from_values() -> None:
    out = torch.empty(0)
    for most in (5, 5, 5, 2, 2, 9, 5, 0, 12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.masked_select(X, most > X, out=out)
        assert out.tolist() == list(range(most))


def test_several_results_have_their_names() -> None:
    out = torch.empty(3), torch.empty(3, dtype=torch.int64)
    for _ in range(4):
        found = torch.max(X, 1, out=out)
        assert found.values is out[0] and found.indices is out[1] and out[1].tolist() == [3, 3, 3]
        found = torch.topk(X, 2, out=(torch.empty(3, 2), torch.empty(3, 2, dtype=torch.int64)))
        assert type(found).__name__ == "topk" and found.values.tolist() == [[3, 2], [7, 6], [11, 10]]
        with pytest.raises((TypeError, RuntimeError)):
            torch.max(X, 1, out=(torch.empty(3), torch.empty(3)))
        with pytest.raises(TypeError):
            torch.max(X, 1, out=(torch.empty(3),))


def test_constants_and_layouts_have_calls_of_their_own() -> None:
    out = torch.empty(3, 4)
    for _ in range(4):
        for k in (-1, 0, 1):
            assert torch.tril(X, k, out=out).equal(X.tril(k))
            assert torch.tril(X * 2, diagonal=k, out=out).equal((X * 2).tril(k))
    for _ in range(4):
        for keep in (True, False):
            assert torch.sum(X, 0, keepdim=keep, out=torch.empty(0)).shape == ((1, 4) if keep else (4,))
    for d in (torch.float32, torch.float64, torch.float32):
        assert torch.sum(X, 0, dtype=d, out=torch.empty(4, dtype=d)).dtype is d


def test_who_looks_on_sees_each_call() -> None:
    out = torch.empty(3, 4)
    for _ in range(5):
        torch.tril(X, out=out)
    seen: list[str] = []
    for _ in range(3):
        with dispatch.observe(launches=lambda dev, stream, prepared, args: seen.append(prepared.name)):
            torch.tril(X, out=out)
    torch.tril(X, out=out)
    assert len(seen) in (3, 6), seen  # with or without a copy


def test_on_every_device(device: str) -> None:
    x, out = X.to(device), torch.empty(3, 4, device=device)
    for k in (1, 2, 3):
        for _ in range(3):
            assert torch.softmax(x * k, 1, out=out) is out
            assert out.cpu().equal((x * k).softmax(1).cpu())
    with pytest.raises(RuntimeError, match="device"):
        torch.softmax(x, 1, out=torch.empty(3, 4, device="meta"))
