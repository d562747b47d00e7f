"""Grad modes: contexts, decorators, generators, threads, inference mode."""

from __future__ import annotations

import asyncio
import threading

import pytest

import flambeau as fb
from flambeau.autograd import enable_grad, inference_mode, no_grad, set_grad_enabled

X = fb.ones(2, requires_grad=True)


def recorded():
    return (X * 2).requires_grad


def test_contexts_nest_and_end_with_errors():
    assert recorded() and fb.is_grad_enabled()
    with no_grad():
        assert not recorded() and not fb.is_grad_enabled()
        with enable_grad():
            assert recorded()
            with set_grad_enabled(False):
                assert not recorded()
            assert recorded()
        assert not recorded()
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert recorded()


def test_decorators_with_and_without_parentheses():
    @no_grad
    def plain():
        """Text."""
        return recorded()

    @no_grad()
    def called(k=1):
        return recorded(), k

    @enable_grad()
    def on():
        return recorded()

    @set_grad_enabled(False)
    def off():
        return recorded()
    assert plain() is False and called(k=3) == (False, 3) and off() is False and recorded()
    assert plain.__name__ == "plain" and plain.__doc__ == "Text."
    with no_grad():
        assert on() is True and not recorded()

    @no_grad()
    def deep(n):
        return recorded() or (n > 0 and deep(n - 1))
    assert deep(5) is False and recorded()


def test_set_grad_enabled_is_a_function_too():
    try:
        set_grad_enabled(False)
        assert not recorded()
    finally:
        set_grad_enabled(True)
    assert recorded()
    with set_grad_enabled(mode=True):
        assert recorded()


def test_generators_are_in_the_mode_only_while_they_run():
    @no_grad()
    def steps():
        got = yield recorded()
        yield recorded(), got
        return "end"
    g = steps()
    assert next(g) is False and recorded()
    assert g.send(7) == (False, 7) and recorded()
    with pytest.raises(StopIteration, match="end"):
        next(g)

    @no_grad()
    def closing():
        try:
            yield 1
        finally:
            seen.append(recorded())
    seen = []
    g = closing()
    next(g)
    g.close()
    assert seen == [False] and recorded()

    @no_grad()
    def catching():
        try:
            yield 1
        except ValueError:
            yield recorded()
    g = catching()
    next(g)
    assert g.throw(ValueError("x")) is False and recorded()


def test_classes_record_nothing_while_they_are_built():
    @no_grad()
    class Model:
        def __init__(self):
            self.built = recorded()

        def run(self):
            return recorded()
    assert Model().built is False and Model().run() is True


def test_a_mode_belongs_to_its_thread_and_task():
    seen = {}
    with no_grad():
        t = threading.Thread(target=lambda: seen.update(thread=recorded()))
        t.start()
        t.join()
    assert seen == {"thread": True}

    async def one():
        with no_grad():
            await asyncio.sleep(0.01)
            return recorded()

    async def other():
        await asyncio.sleep(0.005)
        return recorded()

    async def both():
        return await asyncio.gather(one(), other())
    assert asyncio.run(both()) == [False, True]


def test_inference_mode():
    assert not fb.is_inference_mode_enabled()
    with inference_mode():
        assert fb.is_inference_mode_enabled() and not recorded()
        with inference_mode(False):
            assert True
    assert recorded() and not fb.is_inference_mode_enabled()

    @inference_mode()
    def f():
        return recorded()

    @inference_mode
    def g():
        return recorded()
    assert f() is False and g() is False
    with inference_mode(mode=False):
        assert recorded()


def test_results_made_without_recording_are_leaves_that_may_require_grad():
    with no_grad():
        y = X * 2
        w = fb.ones(1, requires_grad=True)
        assert not y.requires_grad and w.requires_grad
    y.requires_grad_()
    (y * w).sum().backward()
    assert y.grad.tolist() == [1, 1] and w.grad.tolist() == [4]


def test_parameters_may_be_written_without_recording(device):
    p = fb.ones(2).to(device).requires_grad_()
    with no_grad():
        p -= 0.5
        p[0] = 7
    assert p.is_leaf and p.requires_grad and p.tolist() == [7, 0.5]


def test_inference_mode_of_false_records_again():
    x = fb.ones(2, requires_grad=True)
    with fb.inference_mode():
        assert not (x * 2).requires_grad and fb.is_inference_mode_enabled()
        with fb.inference_mode(False):
            assert (x * 2).requires_grad and fb.is_grad_enabled() and not fb.is_inference_mode_enabled()
        assert not (x * 2).requires_grad and fb.is_inference_mode_enabled()
    assert (x * 2).requires_grad and not fb.is_inference_mode_enabled()
