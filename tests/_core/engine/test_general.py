"""Plans for all shapes of a kind: whatever shapes and layouts come, in whatever order, a call gives what one that is planned by itself gives."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fl
from flambeau._core.engine import general
from flambeau._core.runtime import caches, dispatch

from .public_operations import ANYTHING, bits, lines, ops_timing, ops_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import ops_lines

F = fl.nn.functional
SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 40])
LAYOUTS = st.sampled_from(["dense", "dense", "turned", "steps", "narrow", "repeated", "channels last", "shifted"])


def made(shape: tuple[int, ...], how: str, grad: bool = False) -> fl.Tensor:
    """A tensor of this shape in a layout of this kind."""
    count = int(np.prod(shape))
    x = (fl.arange(count, dtype=fl.float32) * 37 % 101 / 25 - 2).reshape(shape)
    if how == "turned" and shape:
        x = x.permute(*range(len(shape))[::-1]).contiguous().permute(*range(len(shape))[::-1])
    elif how == "steps" and shape:
        x = fl.stack((x, x + 1), -1).flatten(-2)[..., ::2]
    elif how == "narrow" and shape:
        x = fl.cat((x, x), 0)[:shape[0]]
        x = fl.cat((x, x), -1)[..., :shape[-1]]
    elif how == "repeated" and shape:
        x = x[:1].expand(shape) if shape[0] else x
    elif how == "channels last" and len(shape) == 4:
        x = x.contiguous(memory_format=fl.channels_last)
    elif how == "shifted" and shape:
        x = fl.cat((x[:1], x), 0)[1:] if shape[0] else x
    return x.detach().requires_grad_(grad)


def last(x: fl.Tensor) -> int:
    return x.shape[-1] if x.dim() else 1


def row(x: fl.Tensor) -> fl.Tensor:
    return made((last(x),), "dense")


CALLS: dict[str, Callable[[fl.Tensor], Any]] = {
    "add": lambda x: x + x.flip(0) if x.dim() else x + x,
    "broadcast": lambda x: x * row(x),
    "column": lambda x: x - x[..., :1],
    "number": lambda x: (x > 0, x * 2.5, 1 / (x.abs() + 1)),
    "cast": lambda x: x.to(fl.float64),
    "clone": lambda x: (x.clone(), fl.zeros_like(x), x.contiguous()),
    "in place": lambda x: x.clone().add_(row(x)).mul_(2),
    "out": lambda x: fl.add(x, row(x), out=fl.empty(x.shape)),
    "where": lambda x: fl.where(x > 0, x, row(x)),
    "sum": lambda x: (x.sum(), x.sum(-1), x.sum(0, keepdim=True)),
    "mean": lambda x: (x.mean(0), x.mean(-1, keepdim=True)),
    "var": lambda x: (x.var(-1, correction=0), x.std(correction=0)),
    "bool": lambda x: ((x > 0).any(-1), (x > 0).sum(0)),
    "amax": lambda x: x.amax(-1) if x.numel() else x,
    "max": lambda x: (*x.max(0), x.argmax(-1)) if x.numel() and x.dim() else x,
    "cumsum": lambda x: x.cumsum(-1),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0)),
    "layer_norm": lambda x: F.layer_norm(x, (last(x),), row(x), row(x)) if x.dim() else x,
    "rms_norm": lambda x: F.rms_norm(x, (last(x),)) if x.dim() else x,
    "linear": lambda x: F.linear(x, made((3, last(x)), "dense"), made((3,), "dense")),
    "matmul": lambda x: x @ x.transpose(-1, -2) if x.dim() > 1 else x,
    "cat": lambda x: (fl.cat((x, x), 0), fl.cat((x, x[..., :1]), -1)) if x.dim() else x,
    "stack": lambda x: (fl.stack((x, x)), fl.stack((x, x), -1)),
    "view": lambda x: x.reshape(-1),
    "flatten": lambda x: (x.flatten(), x.unsqueeze(0), x.unsqueeze(-1), x.squeeze()),
    "transpose": lambda x: (x.transpose(0, -1), x.movedim(0, -1)) if x.dim() else x,
    "expand": lambda x: x.unsqueeze(0).expand(7, *x.shape),
    "index": lambda x: (x[1:], x[:-1], x[..., 2:7:2], x[-1:], x[None], x[:, None] if x.dim() else x) if x.dim() else x,
    "select": lambda x: (x[x.shape[0] - 1], x[0]) if x.dim() and x.shape[0] else x,
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] // 2) if x.dim() else x,
    "split": lambda x: (*x.chunk(2), *x.split(6)) if x.dim() else x,
    "factory": lambda x: (fl.zeros(x.shape), fl.full(x.shape, 2.0), x.new_ones(x.shape), fl.arange(x.numel())),
    "tril": lambda x: (x.tril(), x.triu(1)) if x.dim() > 1 else x,
    "flip": lambda x: (x.flip(-1), x.roll(1, 0)) if x.dim() else x,
    "gather": lambda x: x.gather(-1, fl.zeros_like(x, dtype=fl.int64)[..., :1]) if x.dim() and x.numel() else x,
    "embedding": lambda x: F.embedding(fl.arange(x.shape[0]), x) if x.dim() == 2 else x,
    "index_select": lambda x: x.index_select(-1, fl.arange(last(x)).flip(0)) if x.dim() else x,
    "mask": lambda x: x[x > 0],
    "pool": lambda x: F.avg_pool2d(x, 2) if x.dim() == 4 and min(x.shape) > 1 else x,
    "losses": lambda x: (F.mse_loss(x, x + 1), F.cross_entropy(x, fl.zeros(x.shape[0], dtype=fl.int64)) if x.dim() == 2 and x.numel() else x),
}


@contextmanager
def each_by_itself() -> Iterator[None]:
    """Nothing is of any kind."""
    def none(*args: Any) -> None:
        return None
    patch = pytest.MonkeyPatch()
    caches.forget()
    patch.setattr(general, "kind_of", none)
    try:
        yield
    finally:
        patch.undo()
        caches.forget()


def told(call: Callable[[fl.Tensor], Any], shape: tuple[int, ...], how: str, grad: bool) -> Any:
    """All that can be seen of a call's results and gradients; or its error."""
    x = made(shape, how, grad)
    try:
        results = call(x)
    except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
        return type(error), str(error)
    results = results if isinstance(results, tuple) else (results,)
    found = [(tuple(r.shape), r.stride(), r.dtype, r.storage_offset(), r.requires_grad, r.is_contiguous(), r._is_view(),
              None if r.grad_fn is None else type(r.grad_fn).__name__, r.detach().numpy().tobytes()) for r in results]
    recorded = [r for r in results if r.requires_grad and r is not x]
    for k, r in enumerate(recorded):
        (g,) = fl.autograd.grad((r * fl.arange(r.numel(), dtype=fl.float32).reshape(r.shape)).sum(), x, retain_graph=k + 1 < len(recorded), allow_unused=True)
        found.append(None if g is None else (tuple(g.shape), g.stride(), g.numpy().tobytes()))
    return found


@pytest.mark.parametrize("name", list(CALLS))
@settings(deadline=None, max_examples=2)
@given(st.integers(0, 4), st.data())
def test_calls_of_new_shapes_are_those_that_are_planned_by_themselves(name: str, rank: int, data: Any) -> None:
    shapes = data.draw(st.lists(st.tuples(*[SIZES] * rank), min_size=8, max_size=12))
    layouts = data.draw(st.lists(LAYOUTS, min_size=1, max_size=2))
    grad = data.draw(st.booleans())
    asked = [(shape, layouts[k % len(layouts)]) for k, shape in enumerate([*shapes, *shapes[:3]])]
    ours = [told(CALLS[name], *a, grad) for a in asked]
    with each_by_itself():
        theirs = [told(CALLS[name], *a, grad) for a in asked]
    for a, mine, other in zip(asked, ours, theirs, strict=True):
        assert mine == other, a


def test_a_new_shape_of_a_known_kind_is_not_planned() -> None:
    w, b = fl.ones(4, 6), fl.ones(6)
    calls: list[Callable[[fl.Tensor], Any]] = [lambda x: x.sum(0), lambda x: x + b, lambda x: x.softmax(-1), lambda x: x.view(-1), lambda x: x[1:],
                                               lambda x: F.linear(x, w, w[:, 0])]
    for call in calls:
        for n in range(40, 46):
            call(fl.ones(n, 6))
        given_now = [fl.ones(n, 6) for n in range(50, 56)]  # at a multiple of 64 lines are cut in another way
        patch, asked = pytest.MonkeyPatch(), []
        prepare = dispatch.prepare
        patch.setattr(dispatch, "prepare", lambda *args, prepare=prepare, asked=asked: (asked.append(args), prepare(*args))[1])
        try:
            for x in given_now:
                call(x)
        finally:
            patch.undo()
        assert not asked


def test_sizes_that_take_another_turn_are_planned_by_themselves() -> None:
    for n in (40, 41, 42, 43, 44, 300_000, 45, 70_000):
        x = fl.arange(2 * n, dtype=fl.float32).reshape(2, n)
        assert x.sum(1).tolist() == pytest.approx(np.arange(2 * n).reshape(2, n).sum(1).tolist(), rel=1e-5)
        assert (x + x[:, :1]).sum(0).shape == (n,)


def sized(n: int) -> ops_values.Case:
    """Operands of every public operation, in a size."""
    letters = {"m": n, "B": 2, "C": 4 + n % 3, "K": 5, "L": n + 4, "H": n + 6, "D": n, "b": 2, "h": 3, "t": n, "d": 6, "e": n + 1, "s": 3, "w": n,
               "T": n + 8, "V": n, "S": 8 * n}
    return ops_values.SMALL._replace(n=n, sizes=letters)


SHAPES = [sized(n) for n in (5, 7, 8, 10, 13)]


@pytest.fixture(autouse=True)
def _dense_kinds_are_traced_as_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "WAIT_DENSE", general.WAIT)


def bits_of_all(line: ops_lines.Line, gradient: ops_timing.Gradient | None) -> list[Any]:
    """The bits of a line's results, or of its gradients, in all these sizes; or its errors."""
    found = []
    for case in SHAPES:
        fl.manual_seed(3)
        try:
            values = ops_values.Values(fl, case)
            made = ops_timing._call(fl, line, values, () if gradient is None else gradient.inputs)
            if gradient is not None:
                outs = dict(ops_timing._outputs(fl.Tensor, made))
                outs = {at: outs[at] for at in gradient.outputs}
                fl.autograd.backward(list(outs.values()), [fl.ones_like(t) for t in outs.values()])
                found.append((bits(list(outs.values())), [bits(values[n].grad) for n in gradient.inputs]))
            else:
                found.append((bits(made), [bits(values[n]) for n in ops_timing.written(line)]))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


@pytest.mark.parametrize("part", range(20))
def test_every_public_operation_gives_the_same_bits_in_new_shapes(part: int) -> None:
    for line in lines()[part::20]:
        if line.name not in ANYTHING:
            caches.forget()
            mine = bits_of_all(line, None)
            with each_by_itself():
                assert bits_of_all(line, None) == mine, line.name


@pytest.mark.parametrize("part", range(20))
def test_every_gradient_has_the_same_bits_in_new_shapes(part: int) -> None:
    for line in lines()[part::20]:
        gradient = ops_timing.gradient_of(fl, line)
        if gradient is not None and line.name not in ANYTHING:
            caches.forget()
            mine = bits_of_all(line, gradient)
            with each_by_itself():
                assert bits_of_all(line, gradient) == mine, line.name


def test_what_a_first_call_fills_is_no_part_of_a_plan_for_others() -> None:
    """A copy to the current GPU has a table of its ways; the slices of a view hold its sizes."""
    with fl.simulate(gpus=1):
        for n in (40, 41, 42, 43, 44):
            x = fl.arange(2 * n * 3).reshape(2, n, 3)
            assert x.cuda().shape == (2, n, 3) and x.cuda().transpose(1, 2).cpu().tolist() == x.transpose(1, 2).tolist()
            y = x.to(fl.float32).requires_grad_()
            y[:, 1:n - 2:2].sum().backward()
            assert y.grad is not None and y.grad[:, :, 0].sum().item() == 2 * len(range(1, n - 2, 2))


def test_a_trace_that_fails_holds_no_operands() -> None:
    """`tolist` follows from values, so no plan of it is traced."""
    caches.forget()
    for n in range(3, 30):
        x = fl.ones(n, 2)
        storage = weakref.ref(x.store)
        assert x.tolist() == [[1.0, 1.0]] * n
        del x
        gc.collect()
        assert storage() is None
