"""Learned plans: when a call is learned, that a replay is the call, and what is never replayed."""

from __future__ import annotations

import gc
import inspect
import math
import struct
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor
from flambeau._core.autograd import tape
from flambeau._core.engine import interpreters, learning, trials
from flambeau._core.engine.operation import Operation
from flambeau._core.engine.plans import Facts, Plan, Saved
from flambeau._core.ops.launch import filling
from flambeau._core.runtime import caches, capture, dispatch
from flambeau._core.tensor import meta

from .public_operations import ANYTHING, bits, lines, ops_timing, ops_values


class Counted:
    """An operation whose body counts how often it runs."""

    def __init__(self, body: Callable[..., Any], **options: Any) -> None:
        self.times = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.times += 1
            return body(*args, **kwargs)
        counted.__wrapped__ = body  # type: ignore[attr-defined]  # whose signature it has
        self.call: Any = Operation("counted", counted, **options).function

    def often(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the last of calls enough to have learned."""
        for _ in range(learning.AFTER + 2):  # the first is not counted
            made = self.call(*args, **kwargs)
        self.times = 0
        return made


@pytest.fixture(autouse=True)
def as_at_the_start() -> Iterator[None]:
    """Nothing refused, and nothing learned by tests before."""
    trials.refused.clear()
    learning.learned.clear()
    yield
    trials.refused.clear()


def body(input: Tensor, other: Tensor, dim: int = 0, *, scale: float = 2.0) -> Tensor:
    return (input * other).sum(dim) * scale


def test_a_call_is_learned_after_a_few_and_then_runs_without_the_body() -> None:
    op = Counted(body)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for n in range(1, learning.AFTER + 1):
        expected = op.call(x, y)
        assert op.times == n or n == learning.AFTER
    op.times = 0
    found = op.call(x, y)
    assert op.times == 0 and torch.equal(found, expected) and "counted" not in trials.refused
    for a, b in ((torch.randn(3, 4), torch.full((3, 4), float("nan"))), (x, x), (torch.randn(3, 4), x)):
        assert np.array_equal(op.call(a, b).numpy(), ((a * b).sum(0) * 2.0).numpy(), equal_nan=True) and op.times == 0


def test_the_more_is_learned_the_more_calls_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "learned", ["some"] * learning._DOUBLES)
    op = Counted(body)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for n in range(2 * learning.AFTER + 2):
        op.times = 0
        op.call(x, y)
        assert (op.times == 0) == (n >= 2 * learning.AFTER), n


def test_other_layouts_types_and_constants_have_plans_of_their_own() -> None:
    op = Counted(body)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    op.often(x, y)
    for args, options in (((x.t(), y), {}), ((x.double(), y.double()), {}), ((x, y, 1), {}), ((x, y), {"scale": 3.0}), ((x, y), {"scale": 2}),
                          ((x[:2], y[:2]), {}), ((x, y, -1), {})):
        expected = body(*args, **options)
        op.times = 0
        assert torch.equal(op.call(*args, **options), expected)
        assert op.times == 1, (args, options)
        op.often(*args, **options)
        assert torch.equal(op.call(*args, **options), expected) and op.times == 0
    assert torch.equal(op.call(x, y, scale=-0.0).signbit(), body(x, y, scale=-0.0).signbit()) and op.times == 1


def test_what_is_equal_and_means_something_else_is_another_constant() -> None:
    x, i = torch.arange(9.0).reshape(3, 3), torch.tensor([0, 1])
    for _ in range(2 * learning.AFTER):
        assert x[0, 1].shape == () and x[[0, 1]].shape == (2, 3) and x[i, i].shape == (2,) and x[[0, 1, 0]].shape == (3, 3)
        assert x[True].shape == (1, 3, 3) and x[1].shape == (3,) and x[None].shape == (1, 3, 3) and x[0, True].shape == (1, 3)
        assert torch.full((2,), 1).dtype is torch.int64 and torch.full((2,), 1.0).dtype is torch.float32 and torch.full((2,), True).dtype is torch.bool
        with pytest.raises(TypeError):
            x.sum(True)
        with pytest.raises(TypeError):
            x.reshape(9.0)
        assert x.sum(1).shape == (3,) and x.reshape(9).shape == (9,) and x.sum([0]).shape == x.sum((0,)).shape == (3,)


def test_the_gradient_is_learned_with_the_call_and_can_be_differentiated() -> None:
    op = Counted(body)
    x, y = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    op.often(x, y)
    found = op.call(x, y)
    assert op.times == 0 and found.requires_grad and found.grad_fn is not None and found.grad_fn.name() == "MulBackward0"
    g = torch.randn(4, dtype=torch.float64)
    wanted = torch.autograd.grad(body(x, y), (x, y), g)
    assert all(map(torch.equal, torch.autograd.grad(found, (x, y), g), wanted)) and op.times == 0
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(found, x, g)
    found = op.call(x, y)
    torch.autograd.grad(found, x, g, retain_graph=True)
    assert torch.equal(torch.autograd.grad(found, x, g)[0], wanted[0])
    # gradients that are laid out otherwise; only one operand that wants one; and gradients of gradients
    assert torch.equal(torch.autograd.grad(op.call(x, y).sum(), x)[0], torch.autograd.grad(body(x, y).sum(), x)[0])
    assert torch.equal(torch.autograd.grad(op.call(x, y.detach()), x, g)[0], wanted[0])
    assert torch.autograd.gradcheck(op.call, (x, y)) and torch.autograd.gradgradcheck(op.call, (x, y))
    with torch.no_grad():
        assert not op.call(x, y).requires_grad


def test_a_graph_that_keeps_no_tensor_may_be_gone_through_again() -> None:
    op = Counted(lambda input: input.sum(0).view(2, 2).t())
    x = torch.randn(3, 4, requires_grad=True)
    op.often(x)
    found = op.call(x)
    assert op.times == 0
    g = torch.randn(2, 2)
    for _ in range(2):
        assert torch.equal(torch.autograd.grad(found, x, g)[0], g.t().reshape(1, 4).expand(3, 4))


def test_passes_that_are_recorded_as_a_rule_go_by_the_bodys_graph() -> None:
    op = Counted(lambda input: (input * input).sum())
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    for _ in range(40):
        (g,) = torch.autograd.grad(op.call(x), x, create_graph=True)
        assert torch.equal(torch.autograd.grad(g.sum(), x)[0], torch.full((4,), 2.0, dtype=torch.float64))
    op.times = 0
    (g,) = torch.autograd.grad(op.call(x), x, create_graph=True)
    assert op.times == 1 and torch.equal(g, 2 * x)


def test_hooks_on_saved_tensors_and_anomaly_detection_see_the_operations_inside() -> None:
    op = Counted(body)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    op.often(x, y)
    packed: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: t):
        op.call(x, y)
    assert packed and op.times == 1
    with torch.autograd.set_detect_anomaly(True):
        op.call(x, y)
    assert op.times == 2


def test_what_a_saved_tensor_was_is_checked() -> None:
    op = Counted(lambda input, other: (input * other).exp())
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    op.often(x, y)
    found = op.call(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()
    found = op.call(x, y)
    with torch.no_grad():
        found.add_(1)  # the exponential keeps its result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()


def test_several_results_views_constants_and_operands_among_them() -> None:
    def several(input: Tensor, other: list[Tensor], keep: bool = True) -> Any:
        return [input.exp(), (input, other[0] + 1), input.view(2, 2), len(other), None, "word"]
    op = Counted(several)
    x, y, z = torch.randn(4), torch.randn(2), torch.randn(3)
    op.often(x, [y, z])
    a, (b, c), d, n, nothing, word = op.call(x, [y, z])
    assert op.times == 0 and (n, nothing, word) == (2, None, "word") and b is x and torch.equal(a, x.exp()) and torch.equal(c, y + 1)
    assert d._base is x and d.data_ptr() == x.data_ptr()
    version = x._version
    d.zero_()
    assert not x.any() and x._version == version + 1
    x = torch.randn(4, requires_grad=True)
    op.often(x, [y, z])
    a, _, d, *_ = op.call(x, [y, z])
    assert torch.equal(torch.autograd.grad(a.sum() + (d * d).sum(), x)[0], (x.exp() + 2 * x).detach())


def test_a_view_without_elements_lies_where_it_did() -> None:
    for _ in range(learning.AFTER + 3):
        x = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
        view = x.narrow(0, 0, 0)[..., 1:]
        assert view.shape == (0, 1) and view._base is x and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        view.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0]]


def test_results_of_several_kinds_have_one_node() -> None:
    op = Counted(lambda input: (input.sin(), input.argmax(), input.cos()))
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    op.often(x)
    s, at, c = op.call(x)
    assert op.times == 0 and not at.requires_grad and s.requires_grad and c.requires_grad
    assert torch.equal(torch.autograd.grad(s.sum(), x, retain_graph=True)[0], x.cos()) and torch.equal(torch.autograd.grad(c.sum(), x)[0], -x.sin())
    assert torch.autograd.gradcheck(lambda x: op.call(x)[::2], (x,))


def test_gradients_of_other_layouts_are_learned_beside_results_without_a_history() -> None:
    x = torch.eye(4).mul(3).requires_grad_(True)
    for g in (torch.ones(4, 4), torch.ones(4, 4).t().contiguous().t(), torch.ones(1, 4).expand(4, 4)):
        for _ in range(learning.AFTER + 2):
            found = torch.linalg.cholesky_ex(x)
            got, = torch.autograd.grad(found.L, x, g)
        want, = torch.autograd.grad(torch.linalg.cholesky(x), x, g)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert not trials.refused


def test_writing_an_operand() -> None:
    def scaled_(self: Tensor, by: Tensor) -> Tensor:
        self.mul_(by)
        return self
    op = Counted(scaled_)
    x, y = torch.ones(3), torch.full((3,), 2.0)
    op.often(x, y)
    version = x._version
    assert op.call(x, y) is x and op.times == 0 and x._version == version + 1 and x.tolist() == [2.0 ** (learning.AFTER + 3)] * 3
    z = torch.full((3,), 3.0)
    op.call(z, z)  # what is written is read: by the body
    assert z.tolist() == [9.0] * 3 and op.times == 1
    w = torch.ones(3, requires_grad=True)
    v = w * 1
    op.call(v, y)
    assert op.times >= 2 and torch.autograd.grad(v.sum(), w)[0].tolist() == [2.0] * 3
    base = torch.ones(3)
    op.call(base[:], y)
    assert base.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        op.call(w, y)


def test_writing_under_autograd_and_beside_it() -> None:
    def fill_(self: Tensor, by: Tensor, count: Tensor) -> Tensor:
        self[0] = by * by
        count.add_(1)
        return self * 2
    op = Counted(fill_)
    x, y = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, dtype=torch.float64, requires_grad=True))
    count = torch.zeros(1)

    def through(x: Tensor, y: Tensor, call: Any = op.call) -> Any:
        written = x.clone()
        result = call(written, y, count)
        return written, result
    for _ in range(learning.AFTER + 3):
        through(x, y)
    op.times, count[0] = 0, 0
    version = count._version
    written, result = through(x, y)
    assert op.times == 0 and count.item() == 1 and count._version == version + 1
    wanted = through(x, y, fill_)
    assert torch.equal(written, wanted[0]) and torch.equal(result, wanted[1]) and written.grad_fn is not None
    g = torch.randn(3, 4, dtype=torch.float64)
    for pick in ((0, 1), (0,), (1,)):
        ours, theirs = ([made[k] for k in pick] for made in (through(x, y), through(x, y, fill_)))
        for a, b in zip(torch.autograd.grad(ours, (x, y), [g] * len(pick)), torch.autograd.grad(theirs, (x, y), [g] * len(pick)), strict=True):
            assert torch.equal(a, b)
    assert torch.autograd.gradcheck(through, (x, y)) and torch.autograd.gradgradcheck(through, (x, y))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        op.call(x, y, count)
    view = x.clone()
    part = view[:]
    op.call(part, y, count)  # of a view, whose base gets the history too
    assert torch.equal(torch.autograd.grad(view.sum(), y)[0], 2 * y.detach())
    kept = x.clone()
    saved = kept.exp()
    op.call(kept, y, count)
    torch.autograd.grad(saved.sum(), x)  # the exponential keeps its result, not what was written
    other = x.clone()
    square = other * other
    op.call(other, y, count)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_switches_that_choose_another_way_are_heard() -> None:
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    op = Counted(lambda input: F.scaled_dot_product_attention(input, input, input))
    x = torch.randn(1, 2, 8, 4)
    op.often(x)
    op.call(x)
    assert op.times == 0
    with sdpa_kernel([SDPBackend.MATH]):
        op.call(x)
    assert op.times == 1
    op.call(x)
    assert op.times == 1


def test_a_value_that_the_body_looks_at_is_a_condition() -> None:
    def signed(input: Tensor) -> Tensor:
        return input + 1 if input.sum() > 0 else input - 1
    op = Counted(signed)
    x = torch.ones(3)
    op.often(x)
    assert op.call(x).tolist() == [2.0] * 3 and op.times == 0
    assert op.call(-x).tolist() == [-2.0] * 3 and op.times == 1
    for _ in range(40):  # values that hardly ever come again
        op.call(-x)
    op.times = 0
    op.call(x)
    assert op.times == 1, "the plan should have been given up"


def test_what_a_mask_chooses_is_replayed_where_it_chooses_as_many() -> None:
    op = Counted(lambda input, mask: input[mask] * 2)
    x = torch.arange(6.0)
    masks = [torch.tensor([k >> i & 1 == 1 for i in range(6)]) for k in (0b000111, 0b101010, 0b110010, 0b011000, 0b111111, 0)]
    for _ in range(6):
        op.call(x, masks[0])
    before = op.times
    for mask in masks:
        np.testing.assert_array_equal(op.call(x, mask).numpy(), x.numpy()[mask.numpy()] * 2)
    assert op.times == before + 3  # for two, six and none of the elements


def test_calls_that_only_show_large_operands_are_learned() -> None:
    op = Counted(lambda input: (input[1:3], input.view(-1)[5:].as_strided((2, 2), (1, 3)), input.unbind()))
    x = torch.arange(1 << 20).reshape(4, -1)
    op.often(x)
    before = op.times
    y = x + 1
    rows, some, parts = op.call(y)
    assert op.times == before
    np.testing.assert_array_equal(rows.numpy(), y.numpy()[1:3])
    np.testing.assert_array_equal(some.numpy(), [[6, 9], [7, 10]])
    assert len(parts) == 4 and all(p._base is y and p.data_ptr() == y[i].data_ptr() for i, p in enumerate(parts))
    leaf = torch.ones(4, 1 << 16, requires_grad=True)
    narrow = Counted(lambda input: input.unbind())
    narrow.often(leaf)
    sum(p.sum() * i for i, p in enumerate(narrow.call(leaf))).backward()
    np.testing.assert_array_equal(leaf.grad.numpy()[:, 0], [0, 1, 2, 3])
    writes = Counted(lambda input: input[0] + 1)  # it computes
    writes.often(x)
    before = writes.times
    writes.call(x)
    assert writes.times == before + 1


def test_memory_of_others_that_a_call_reads_stays() -> None:
    op = Counted(lambda input: input + torch.from_numpy(np.arange(1 << 14, dtype=np.float32)))
    x = torch.zeros(1 << 14)
    op.often(x)
    rest = [np.full(1 << 14, -1, np.float32) for _ in range(50)]  # where NumPy puts what comes next
    np.testing.assert_array_equal(op.call(x).numpy(), np.arange(1 << 14))
    assert op.times == 0 and len(rest) == 50


@pytest.mark.parametrize("what", [
    lambda input: input * float(np.random.rand()), lambda input: torch.ones(100).tolist()[0] + input,
    lambda input: input.numpy().sum() + input], ids=["numbers of NumPy", "many values", "an array"])
def test_what_is_never_replayed(what: Callable[[Tensor], Tensor]) -> None:
    op = Counted(what)
    x = torch.ones(3)
    op.often(x)
    op.call(x)
    assert op.times == 1


def test_operations_warn_by_one_function() -> None:
    """Which a capture hears; what they warned of by another would be lost in replays."""
    source = Path(torch.__file__).parent
    texts = {p.relative_to(source).as_posix(): p.read_text() for folder in ("_core", "nn/functional", "linalg", "fft", "special")
             for p in source.glob(f"{folder}/**/*.py")}
    assert len(texts) > 400 and [name for name, text in texts.items() if "warnings.warn(" in text] == ["_core/errors.py"]


def test_warnings_are_given_at_each_call_at_the_line_that_made_it() -> None:
    x, y = torch.rand(3), torch.rand(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(8):
            F.kl_div(x, y)
        learned = "kl_div" in learning.learned
        frame = inspect.currentframe()
        line = 1 + (frame.f_lineno if frame is not None else 0)
        F.kl_div(x, y)
    assert learned and len(said) == 9 and said[-1].lineno == line and said[-1].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="batchmean"):
            F.kl_div(x, y)


def test_small_results_of_constants_alone_are_bytes_that_the_replay_holds() -> None:
    for call in (lambda: torch.logspace(0, 3, 4), lambda: torch.kaiser_window(8), lambda: torch.eye(3), lambda: torch.range(0, 3),
                 lambda: torch.rand(3).new_full((3,), 2.5), lambda: torch.meshgrid(torch.arange(3), torch.arange(2), indexing="ij")):
        first = call()
        made = [call() for _ in range(6)]
        same = list if isinstance(first, (tuple, list)) else lambda x: [x]
        assert all(torch.equal(a, b) for m in made for a, b in zip(same(m), same(first), strict=True))
    made = [torch.logspace(0.0, 3.0, 6) for _ in range(6)]
    last = torch.logspace(0, 3, 4)
    last.add_(1)  # it has memory of its own
    assert torch.logspace(0, 3, 4).tolist() == [1, 10, 100, 1000]
    (run,) = [v for k, v in torch.logspace.__operation__.env["plans"].items() if k[2:5] == (1.5j, 3 + 1j, 6)]  # type: ignore[attr-defined]
    words = struct.unpack_from("<14Q", run.__self__)
    assert words[6:8] == (1, 40)  # one block, and one step: bytes that are copied
    big = [torch.linspace(0, 1, 1 << 12) for _ in range(6)]
    assert all(torch.equal(x, big[0]) for x in big)


def test_random_numbers_are_those_of_the_generator() -> None:
    def noisy(input: Tensor) -> Tensor:
        return F.dropout(input + torch.randn(4), 0.5)
    op = Counted(noisy)
    x = torch.ones(4, requires_grad=True)
    torch.manual_seed(5)
    plain = [noisy(x) for _ in range(12)]
    torch.manual_seed(5)
    found = [op.call(x) for _ in range(12)]
    assert op.times < 12 + 6 and all(map(torch.equal, found, plain))
    state = torch.get_rng_state()
    op.times = 0
    made = op.call(x)
    assert op.times == 0 and not torch.equal(torch.get_rng_state(), state) and not torch.equal(made, found[-1])
    assert torch.equal(torch.autograd.grad(found[-1].sum(), x)[0], torch.autograd.grad(plain[-1].sum(), x)[0])


def test_draws_by_rejection_are_fresh_each_time() -> None:
    torch.manual_seed(0)
    for _ in range(learning.AFTER + 2):
        torch.poisson(torch.zeros(6)), torch.binomial(torch.full((4,), 10.0), torch.zeros(4))
    made = [torch.poisson(torch.full((6,), 50.0)).tolist() for _ in range(3)]
    assert made[0] != made[1] != made[2]
    made = [torch.binomial(torch.full((8,), 100.0), torch.full((8,), 0.5)).tolist() for _ in range(3)]
    assert made[0] != made[1] != made[2]


@pytest.mark.parametrize("what", [lambda x: F.dropout(x, 0.5), lambda x: F.rrelu(x - 1, training=True), lambda x: torch.bernoulli(x * 0.5) * x],
                         ids=["dropout", "rrelu", "bernoulli"])
def test_a_recorded_pass_draws_nothing(what: Callable[[Tensor], Tensor]) -> None:
    for _ in range(learning.AFTER + 4):
        x = (torch.rand(6, 6) + 0.5).clamp(max=1.9).requires_grad_()
        y = what(x)
        state = torch.get_rng_state()
        (again,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert torch.equal(torch.get_rng_state(), state) and torch.equal(g, again)


@pytest.mark.parametrize("what", [lambda h: h.max(1)[0], lambda h: h.sort(1)[0], lambda h: h.softmax(1), lambda h: h.topk(2)[0], lambda h: h.cummax(1)[0],
                                  lambda h: F.max_pool1d(h, 2)], ids=["max", "sort", "softmax", "topk", "cummax", "max_pool1d"])
def test_a_recorded_pass_takes_operands_as_they_were(what: Callable[[Tensor], Tensor]) -> None:
    for _ in range(learning.AFTER + 4):
        x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
        h = x * 1
        y = what(h)
        c = torch.randn_like(y)
        (plain,) = torch.autograd.grad(y, x, c, retain_graph=True)
        with torch.no_grad():
            h.copy_(torch.randn(4, 6))  # none of these keeps what it was given
        (g,) = torch.autograd.grad(y, x, c, create_graph=True)
        assert torch.allclose(g, plain)


def test_forms_in_place_that_compare_with_what_they_overwrite() -> None:
    i = torch.tensor([0, 2, 2, 1])
    for _ in range(learning.AFTER + 4):
        x, v = torch.randn(6, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
        h, k = x * 1, x * 1
        y, z = h.index_reduce_(0, i, v, "amax"), k.scatter_reduce_(0, i[:, None].expand(4, 5), v, "amin")
        for made in (y, z):
            (g,) = torch.autograd.grad((made * made).sum(), x, create_graph=True)
            assert g.requires_grad


def test_the_sign_of_a_zero_that_was_looked_at_counts() -> None:
    for k in range(2 * learning.AFTER + 4):
        zero = torch.tensor([0.0, -0.0][k > learning.AFTER + 1])
        assert bool(torch.full((1,), zero).signbit()) is bool(zero.signbit())


def test_each_result_has_its_own_name() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    names = {tuple(t.grad_fn.name() for t in torch.aminmax(x, dim=1)) for _ in range(learning.AFTER + 4)}
    assert len(names) == 1


def test_memory_that_is_somebody_elses_is_not_replayed() -> None:
    kept = torch.ones(3)
    op = Counted(lambda input: input + kept)
    x = torch.ones(3)
    op.often(x)
    kept.fill_(5.0)
    assert op.call(x).tolist() == [6.0] * 3 and op.times == 1


def test_what_looks_at_a_storage_is_not_replayed() -> None:
    base, alone = torch.arange(10.0), torch.arange(5.0)
    for f in (torch.as_strided, torch.as_strided_copy):
        for _ in range(learning.AFTER + 2):
            f(alone, (3,), (1,), 0)
        assert f(base[5:], (3,), (1,), 0).tolist() == [0.0, 1.0, 2.0]
    scattered = torch.as_strided_scatter
    for _ in range(learning.AFTER + 2):
        scattered(alone, torch.zeros(2), (2,), (1,))
    assert scattered(base[5:], torch.zeros(2), (2,), (1,)).tolist() == [0.0, 0.0, 7.0, 8.0, 9.0]


def test_errors_are_the_bodys() -> None:
    x = torch.randn(3, 4)
    i = torch.zeros(2, dtype=torch.int64)
    for _ in range(learning.AFTER + 2):
        torch.index_select(x, 0, i)
    with pytest.raises(IndexError) as replayed:
        torch.index_select(x, 0, i + 7)
    with pytest.raises(IndexError) as plain:
        torch.index_select(torch.randn(3, 5), 0, i + 7)
    assert str(replayed.value) == str(plain.value)


def test_who_looks_on_sees_what_is_inside() -> None:
    op = Counted(body)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    op.often(x, y)
    names: list[str] = []

    def see(name: str, function: Any, args: Any, kwargs: Any) -> Any:
        names.append(name)
        return function(*args, **kwargs)
    with interpreters.watch(see):
        op.call(x, y)
    assert "sum" in names and op.times == 1
    launches: list[str] = []
    with dispatch.observe(launches=lambda dev, stream, prepared, args: launches.append(prepared.name)):
        op.call(x, y)
    assert len(launches) >= 2 and op.times == 2
    linear = Counted(lambda input, other: torch.matmul(input, other))
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    linear.often(a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear.call(a, b).dtype is torch.bfloat16
    assert linear.call(a, b).dtype is torch.float32


def test_a_backward_pass_that_is_observed_shows_its_launches() -> None:
    op = Counted(body)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    op.often(x, y).sum().backward()
    found = op.call(x, y)
    launches: list[str] = []
    with dispatch.observe(launches=lambda dev, stream, prepared, args: launches.append(prepared.name)):
        found.backward(torch.ones(4))
    assert len(launches) >= 2


def test_the_default_type_is_part_of_a_call() -> None:
    op = Counted(lambda input: input + torch.ones(3))
    x = torch.ones(3)
    op.often(x)
    torch.set_default_dtype(torch.float64)
    try:
        assert op.call(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert op.call(x).dtype is torch.float32


def test_nothing_of_a_call_is_kept_alive() -> None:
    op = Counted(lambda tensors: torch.cat(tensors))
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    given = [x, y]
    op.often(given).sum().backward()
    op.call(given)
    ends = weakref.ref(x), weakref.ref(y.untyped_storage()._storage)
    del x, y
    given.clear()
    gc.collect()
    assert [end() for end in ends] == [None, None]
    assert op.call([torch.ones(3), torch.zeros(3)]).tolist() == [1.0] * 3 + [0.0] * 3


def test_plans_go_when_what_they_bind_becomes_stale() -> None:
    op = Counted(body)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    op.often(x, y)
    found = op.call(x, y)
    caches.forget()
    wanted = torch.autograd.grad(body(x, y), x, torch.ones(4))[0]
    assert torch.equal(torch.autograd.grad(found, x, torch.ones(4))[0], wanted)
    op.times = 0
    op.call(x, y)
    assert op.times == 1


def test_threads_learn_and_replay_side_by_side() -> None:
    op = Counted(body)
    failed: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for k in range(200):
            n = 1 + k % 7
            x, y = torch.tensor(rng.normal(size=(n, 4)), requires_grad=True), torch.tensor(rng.normal(size=(n, 4)))
            made = op.call(x, y)
            made.sum().backward()
            if not np.allclose(made.detach().numpy(), (x.detach().numpy() * y.numpy()).sum(0) * 2) or not np.allclose(x.grad.numpy(), y.numpy() * 2):
                failed.append((seed, k))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_a_call_that_a_backward_pass_makes_again_warns_of_nothing() -> None:
    """The program has heard it; passes whose gradients lie as none did before, and recorded ones, make the call again."""
    x = torch.rand(1, 5, requires_grad=True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for n in range(9):
            made = torch.var_mean(x, 0)[0]
            assert len(heard) == n + 1 and "degrees of freedom" in str(heard[-1].message)
            for g in (torch.ones(5), torch.ones(()).expand(5), torch.ones(5, 2)[:, 0]):
                torch.autograd.grad(made, x, g, retain_graph=True, create_graph=n > 6)
            assert len(heard) == n + 1, n


def test_a_replay_that_values_end_has_not_warned_yet() -> None:
    """As that which counts a mask's elements does: the body makes the call then, and warns."""
    for k in range(6):
        for n in range(4):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                torch.ones(1).expand(4).masked_fill_(torch.arange(4) < n, 0.5)
            assert len(heard) == 1, (k, n)


def test_what_is_read_behind_a_write_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the value is another one the body would make the call with operands that are written already."""
    from flambeau._core.ops import table

    @table.op()
    def _halved(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        """No operation: half of it, and half of that where the sum is large."""
        input.mul_(0.5)
        return input.mul_(0.5) if input.sum().item() > 4 else input
    del table.TABLE["_halved"]  # which others look through
    for total in (8.0, 8.0, 8.0, 8.0, 8.0, 24.0, 8.0, 24.0):
        x = torch.full((4,), total / 4)
        assert _halved(x).sum().item() == (total / 4 if total > 8 else total / 2)
    assert "written" in trials.refused["_halved"]


def test_threads_that_learn_leave_warnings_to_the_program() -> None:
    """Filters and what shows a warning are the process's: two threads that each put them back in their turn would leave one's there."""
    shown: Any = warnings
    before = shown._showwarnmsg_impl, list(warnings.filters)
    inside, go_on = threading.Event(), threading.Event()

    def waits(input: Tensor) -> Tensor:
        if capture.active and not inside.is_set():
            inside.set()
            go_on.wait(60)
        return input.flip(0) * 3
    slow, quick = Counted(waits), Counted(body)
    thread = threading.Thread(target=lambda: slow.often(torch.ones(3)))
    thread.start()
    assert inside.wait(60)
    with warnings.catch_warnings(record=True) as heard:  # as a program's own thread does beside it
        warnings.simplefilter("always")
        quick.often(torch.ones(2, 3), torch.ones(2, 3))
        go_on.set()
        thread.join()
        warnings.warn("heard", stacklevel=1)
    assert [str(w.message) for w in heard] == ["heard"]
    assert (shown._showwarnmsg_impl, list(warnings.filters)) == before


def test_what_numpy_warns_of_is_not_learned() -> None:
    op = Counted(lambda input: input.flip(0) * float(np.float32(3e38) * np.float32(10)))
    with pytest.warns(RuntimeWarning, match="overflow"):
        op.often(torch.ones(3))
    with pytest.warns(RuntimeWarning, match="overflow"):
        op.call(torch.ones(3))
    assert op.times == 1 and "FloatingPointError" in trials.refused["counted"]


def _many(op: Counted, *args: Any) -> None:
    """Calls enough to learn what is done with large operands."""
    for _ in range(learning.AFTER + 2 + sum(t.meta.nbytes for t in args) // learning._EACH):
        op.call(*args)
    op.times = 0


def test_large_operands_are_learned_from_after_more_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_MOST_SECONDS", math.inf)  # on a busy machine a short call may take long
    op = Counted(body)
    x = torch.rand(1 << 10, 1 << 8)
    op.often(x, x)
    expected = op.call(x, x)
    assert op.times == 1
    _many(op, x, x)
    assert torch.equal(op.call(x, x), expected) and torch.equal(op.call(x + 1, x), body(x + 1, x)) and op.times == 0
    leaf = x.clone().requires_grad_()
    op.call(leaf, x).sum().backward()  # recorded calls are the body's
    assert op.times == 1 and leaf.grad is not None


def test_large_blocks_that_a_call_takes_are_the_replays_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_MOST_SECONDS", math.inf)  # on a busy machine a short call may take long
    op = Counted(lambda input: (input * 2, input.cumsum(0) + input.flip(0)))
    x = torch.rand(1 << 10, 1 << 9)
    _many(op, x)
    first, kept = op.call(x), [t.clone() for t in op.call(x)]
    second = op.call(x + 1)
    assert op.times == 0 and all(map(torch.equal, first, kept))
    assert torch.equal(second[0], (x + 1) * 2) and len({t.data_ptr() for t in (*first, *second)}) == 4


def test_long_calls_with_large_operands_are_left_to_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_MOST_SECONDS", 0.0)
    op = Counted(body)
    x = torch.ones(1 << 10, 1 << 8)
    _many(op, x, x)
    op.call(x, x)
    assert op.times == 1 and "much memory" in trials.refused["counted"]


# --------------------------------------------------------------------------------------------------- every public operation
@pytest.mark.parametrize("part", range(20))
def test_every_public_operation_gives_the_same_bits_when_it_is_replayed(part: int) -> None:
    for line in lines()[part::20]:
        if line.name in ANYTHING:
            continue
        found = []
        for _ in range(learning.AFTER + 2):
            torch.manual_seed(3)
            values = ops_values.Values(torch)
            try:
                made = ops_timing._call(torch, line, values, ())
            except Exception as error:
                made = type(error).__name__
            found.append((bits(made), [bits(values[n]) for n in ops_timing.written(line)]))
        assert found[-1] == found[0], line.name


@pytest.mark.parametrize("part", range(20))
def test_every_gradient_has_the_same_bits_when_it_is_replayed(part: int) -> None:
    for line in lines()[part::20]:
        gradient = ops_timing.gradient_of(torch, line)
        if gradient is None or line.name in ANYTHING:
            continue
        found = []
        for _ in range(learning.AFTER + 2):
            torch.manual_seed(3)
            values = ops_values.Values(torch)
            outs = dict(ops_timing._outputs(Tensor, ops_timing._call(torch, line, values, gradient.inputs)))
            outs = {at: outs[at] for at in gradient.outputs}
            torch.autograd.backward(list(outs.values()), [torch.ones_like(t) for t in outs.values()])
            found.append((bits(list(outs.values())), [bits(values[n].grad) for n in gradient.inputs]))
        assert found[-1] == found[0], line.name


@pytest.mark.parametrize("name", ["expand", "permute", "view"])
def test_no_sizes_are_not_the_empty_tuple(name: str) -> None:
    x = torch.tensor(1.0)
    for _ in range(8):
        assert getattr(x, name)(()).shape == ()
    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required"):
            getattr(x, name)()


# ------------------------------------------------------------------------------------------------- bodies that give plans
def doubled(input: Tensor, times: Any = 2) -> Any:
    """A body that gives a plan: `input * 2`, of which only the first result has a gradient, and a count."""
    m, count = input.meta, meta((), (), torch.int64, input.meta.device)
    factor = int(times)
    by = torch.mul.__operation__.body(input, float(factor)).launch

    def launch(values: int, where: int, x: int) -> None:
        by(values, x, float(factor))
        fill(where, 7)
    fill = filling(count)
    return Plan([m, count], launch, saved=Saved(halved, results=(0,), info=Facts("DoubledBackward0", factor), first=True), result=list)


def halved(node: Any, g: Tensor) -> tuple[Tensor]:
    info, kept, versions, results, numbers = node[tape.SAVED]
    assert not kept and not versions and not numbers and len(tape.kept(node, results)) == 1
    return (g * info.facts[0],)


@pytest.mark.parametrize("size", [6, learning._MOST_BYTES // 4 + 1])
def test_a_plan_that_a_body_gives_is_kept_and_small_calls_are_learned_in_time(size: int) -> None:
    op = Counted(doubled)
    for n in range(learning.AFTER + 3):
        x = torch.full((size,), float(n), requires_grad=True)
        made, count = op.call(x)
        assert made[0].item() == 2.0 * n and count.item() == 7 and count.grad_fn is None and made.grad_fn.name() == "DoubledBackward0"
        made.sum().backward()
        assert x.grad.tolist()[-1] == 2
        plain, _ = op.call(x.detach())
        assert plain.grad_fn is None and plain[-1].item() == 2.0 * n
    assert (op.times == 1) == (size > 6) and ("counted" in learning.learned) == (size == 6)


def test_a_plan_of_a_call_with_a_tensor_in_the_place_of_a_number_is_not_kept() -> None:
    op, x = Counted(doubled), torch.ones(3)
    assert [op.call(x, torch.tensor(k))[0].tolist()[0] for k in (2, 3, 4, 5, 6)] == [2, 3, 4, 5, 6]
    assert op.times == 5


def test_a_launch_that_only_raises_becomes_a_condition() -> None:
    from flambeau._core.drivers.cpu import nonzero_histogram

    x, source = torch.zeros(5), torch.tensor([1.0, 2.0, 4.0])
    right, wrong = torch.tensor([0, 3, 3]), torch.tensor([0, 5, 1])
    for _ in range(6):
        assert x.index_add(0, right, source).tolist() == [1, 0, 0, 6, 0]
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        made = x.index_add(0, right, source)
    finally:
        sys.setprofile(None)
    assert made.tolist() == [1, 0, 0, 6, 0] and nonzero_histogram.__file__ not in entered
    for _ in range(2):
        with pytest.raises((IndexError, RuntimeError)):
            x.index_add(0, wrong, source)
        assert x.tolist() == [0] * 5 and x.index_add(0, right, source).tolist() == [1, 0, 0, 6, 0]
    for _ in range(6):
        x.index_add_(0, right, source)
    before = x.tolist()
    with pytest.raises((IndexError, RuntimeError)):
        x.index_add_(0, wrong, source)
    assert x.tolist() == before == [6, 0, 0, 36, 0]


def test_a_backward_pass_that_reads_another_value_knows_which_results_had_gradients() -> None:
    def back(node: Any, gs: Any) -> Any:
        g, h = gs
        if g is None:
            return (h * 3,)
        return (g * (2 if bool((g > 0).all()) else 5) + (0 if h is None else h * 3),)

    def body(t: Tensor) -> Any:
        outs = t.detach() * 2, t.detach() * 3
        tape.record_many(outs, back, (t,))
        return outs
    parts = Counted(body)
    for g, h in ((1.0, None), (-1.0, None), (None, 1.0), (-1.0, 1.0), (1.0, 1.0)):
        for _ in range(learning.AFTER + 3):
            t = torch.ones(3, requires_grad=True)
            made = [(out, torch.full((3,), v)) for out, v in zip(parts.call(t), (g, h), strict=True) if v is not None]
            torch.autograd.backward([out for out, _ in made], [v for _, v in made])
            want = (0 if g is None else 2 * g if g > 0 else 5 * g) + (0 if h is None else 3 * h)
            assert t.grad is not None and t.grad.tolist() == [want] * 3
    assert parts.times < 5 * (learning.AFTER + 3)  # some are replayed
