"""Regions of autocast beside what is learned of calls."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._core.engine.interpreters import watch
from flambeau._core.ops import autocast
from flambeau._core.runtime import capture


def entered(call: Any) -> list[str]:
    """The Python functions of the operations' bodies that a call enters."""
    found: list[str] = []

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/ops/" in frame.f_code.co_filename and "autocast.py" not in frame.f_code.co_filename:
            found.append(frame.f_code.co_name)
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_calls_in_a_region_are_learned() -> None:
    x, k = torch.randn(2, 3, 8, 8).bfloat16(), torch.randn(4, 3, 3, 3).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = torch.conv2d(x, k)
        for _ in range(8):
            assert torch.conv2d(x, k).equal(first)
        assert not entered(lambda: torch.conv2d(x, k))
    assert torch.conv2d(x, k).equal(first)


def test_what_no_class_is_said_of_runs_its_body_whose_calls_are_seen() -> None:
    assert "inner" not in autocast._FIELD
    x = torch.randn(4, 4)
    for _ in range(6):  # learned outside of regions
        assert torch.inner(x, x).dtype is torch.float32
    for _ in range(6):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.inner(x, x).dtype is torch.bfloat16
    assert torch.inner(x, x).dtype is torch.float32


def test_values_and_gradients_are_those_of_the_casts_written_out() -> None:
    rng = np.random.default_rng(0)
    w, b, h = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (6,), (4, 5)))
    tw, tb = (torch.tensor(a, requires_grad=True) for a in (w, b))
    uw, ub = (torch.tensor(a, requires_grad=True) for a in (w, b))
    th = torch.tensor(h)
    for _ in range(8):
        tw.grad = tb.grad = uw.grad = ub.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.nn.functional.layer_norm(torch.nn.functional.linear(th, tw, tb), (6,))
            (y.float() ** 2 * torch.arange(6.0)).sum().backward()
        z = torch.nn.functional.layer_norm(torch.nn.functional.linear(th.bfloat16(), uw.bfloat16(), ub.bfloat16()), (6,))
        (z.float() ** 2 * torch.arange(6.0)).sum().backward()
        assert y.equal(z) and tw.grad.equal(uw.grad) and tb.grad.equal(ub.grad)


def test_what_no_class_is_said_of_is_learned_for_each_region() -> None:
    x, at = torch.randn(5, 4), torch.tensor([2, 0])
    here = torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", dtype=torch.float16), torch.autocast("cpu", enabled=False)
    want = torch.bfloat16, torch.float16, torch.float32
    for _ in range(8):
        for region, d in zip(here, want, strict=True):
            with region:
                assert torch.inner(x, x).dtype is d
                assert x[at].equal(x.index_select(0, at)) and torch.arange(6).tolist() == [0, 1, 2, 3, 4, 5]
        assert torch.inner(x, x).dtype is torch.float32
    with here[0]:
        assert not entered(lambda: x[at])


def test_recorded_calls_in_a_region_have_their_gradients() -> None:
    table, at = torch.randn(6, 3), torch.tensor([1, 4, 1])
    weight = table.clone().requires_grad_()
    for _ in range(8):
        weight.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            picked = torch.nn.functional.embedding(at, weight)
            made = torch.inner(picked, picked)
        assert made.dtype is torch.bfloat16
        made.float().sum().backward()
        want = np.zeros((6, 3), np.float32)
        rows = table[at].bfloat16().float().numpy()
        np.add.at(want, at.numpy(), np.repeat(2 * rows.sum(0, keepdims=True), 3, 0))
        np.testing.assert_allclose(weight.grad.numpy(), want, rtol=0.05, atol=0.05)


def test_nobody_else_looks_on_or_all_is_seen() -> None:
    x = torch.randn(4, 4).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert capture.now.watched == (("cpu", torch.bfloat16),)
        for _ in range(8):
            x.softmax(-1)
        seen: list[str] = []
        with watch(lambda name, function, args, kwargs: (seen.append(name), function(*args, **kwargs))[1]):
            assert capture.now.watched is True
            x.softmax(-1)
        assert "softmax" in seen
        with torch.autocast("cpu", enabled=False):
            assert capture.now.watched is False
    assert capture.now.watched is False and type(capture.now) is capture.Now


def test_regions_of_some_threads() -> None:
    """One thread's region does not reach another's calls, learned or not."""
    x, wrong = torch.randn(3, 3), []

    def work(region: bool) -> None:
        for _ in range(400):
            if region:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    found = {(x @ x).dtype, torch.inner(x, x).dtype, torch.addmm(x, x, x).dtype}
                    wrong.extend(found - {torch.bfloat16})
            else:
                found = {(x @ x).dtype, torch.inner(x, x).dtype, torch.addmm(x, x, x).dtype}
                wrong.extend(found - {torch.float32})
    threads = [threading.Thread(target=work, args=(k % 2 == 0,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not wrong


def test_no_call_comes_between_a_region_and_its_casts() -> None:
    """Threads that open and close regions at any moment: each call in one is cast."""
    x, wrong = torch.randn(3, 3), []
    for _ in range(20):
        x @ x

    def work() -> None:
        for _ in range(10_000):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                if (x @ x).dtype is not torch.bfloat16:
                    wrong.append(1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(300)
    finally:
        sys.setswitchinterval(before)
    assert not wrong and autocast.regions == [0] and (x @ x).dtype is torch.float32
