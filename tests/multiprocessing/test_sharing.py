"""Tensors in shared memory, and on their way between processes."""

from __future__ import annotations

import gc
import os

import pytest

import flambeau
import flambeau.multiprocessing as mp


def shared_maps():
    gc.collect()
    with open("/proc/self/maps") as f:
        return sum("flambeau-shared" in line for line in f), len(os.listdir("/proc/self/fd"))


def _add(queue, tensor, done):
    for t in (tensor, queue.get()):
        t += 1
    done.set()


def _give(queue, done):
    queue.put({"a": flambeau.arange(5000), "b": [flambeau.ones(2, 3, dtype=flambeau.bfloat16)]})
    done.wait(10)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_both_sides_see_writes(method):
    context = mp.get_context(method)
    queue, done = context.Queue(), context.Event()
    one, two = flambeau.zeros(3000), flambeau.zeros(2, 3)
    one.share_memory_()
    p = context.Process(target=_add, args=(queue, one, done))
    p.start()
    queue.put(two)
    assert done.wait(20)
    p.join()
    assert one.sum().item() == 3000 and two.sum().item() == 6 and two.is_shared()


def test_a_child_gives_tensors():
    queue, done = mp.get_context("fork").Queue(), mp.get_context("fork").Event()
    p = mp.get_context("fork").Process(target=_give, args=(queue, done))
    p.start()
    got = queue.get(timeout=20)
    done.set()
    p.join()
    assert got["a"].tolist() == list(range(5000)) and got["b"][0].tolist() == [[1.0] * 3] * 2 and got["a"].is_shared()


def test_share_memory_moves_once_and_frees():
    before = shared_maps()
    x = flambeau.arange(6.0).reshape(2, 3).t().contiguous().requires_grad_()
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared() and x.is_leaf and x.tolist() == [[0, 3], [1, 4], [2, 5]]
    address = x.data_ptr()
    assert x.share_memory_().data_ptr() == address and x[1].is_shared() and x.data.is_shared()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2, 2]] * 3
    assert shared_maps()[0] == before[0] + 1
    del x
    assert shared_maps() == before
    with pytest.raises(RuntimeError, match="self is a view, whose base would stay behind"):
        flambeau.zeros(4)[1:].share_memory_()


def test_modules_share_their_parameters():
    model = flambeau.nn.Linear(3, 2)
    assert model.share_memory() is model and all(p.is_shared() for p in model.parameters())
    child = os.fork()
    if child == 0:
        with flambeau.no_grad():
            model.weight.fill_(7)
        os._exit(0)
    os.waitpid(child, 0)
    assert model.weight.tolist() == [[7.0] * 3] * 2


def test_a_history_cannot_be_sent():
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        mp.reducer.ForkingPickler.dumps(flambeau.ones(2, requires_grad=True) * 2)


def test_strategies():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="expected 'file_descriptor' or 'file_system'"):
        mp.set_sharing_strategy("magic")
