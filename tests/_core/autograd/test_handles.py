"""One handle for the hooks of tensors, of nodes and of modules."""

from __future__ import annotations

import gc
import weakref

import flambeau as fb
from flambeau._core.autograd.handles import RemovableHandle


def test_all_hooks_give_the_same_handle() -> None:
    x = fb.ones(2, requires_grad=True)
    y = x * 3
    assert y.grad_fn is not None
    layer = fb.nn.Linear(2, 2)
    seen: list[str] = []
    handles = [x.register_hook(lambda g: seen.append("tensor")), y.grad_fn.register_hook(lambda a, b: seen.append("node")),
               y.grad_fn.register_prehook(lambda g: seen.append("before")), x.register_post_accumulate_grad_hook(lambda t: seen.append("leaf")),
               layer.register_forward_hook(lambda m, a, b: seen.append("module"))]
    assert {type(h) for h in handles} == {RemovableHandle} and RemovableHandle is fb.utils.hooks.RemovableHandle
    assert len({h.id for h in handles}) == len(handles)
    layer(y).sum().backward(retain_graph=True)
    assert sorted(seen) == ["before", "leaf", "module", "node", "tensor"]
    for handle in handles:
        handle.remove()
        handle.remove()
    seen.clear()
    layer(y).sum().backward()
    assert not seen


def test_a_handle_takes_its_hook_away_at_the_end_of_a_block() -> None:
    x, seen = fb.ones(2, requires_grad=True), []
    with x.register_hook(seen.append):
        x.sum().backward()
    x.sum().backward()
    assert len(seen) == 1


def test_a_handle_keeps_nothing_alive() -> None:
    x = fb.ones(2, requires_grad=True)
    gone, handle = weakref.ref(x), x.register_hook(lambda g: None)
    del x
    gc.collect()
    assert gone() is None
    handle.remove()
