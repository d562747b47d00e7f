"""The Tensor's own parts: interned metas, storages and versions, aliases, memory that comes back, threads, the class itself."""

from __future__ import annotations

import gc
import importlib
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core.dtypes import float32, float64, int8
from flambeau._core.layout import Size
from flambeau._core.runtime import caches
from flambeau._core.runtime.device import device

CPU = device("cpu")
core = importlib.import_module("flambeau._core.tensor")  # flambeau.tensor by attribute is PyTorch's function


def test_one_meta_a_description():
    m = core.meta((2, 3), None, float32, CPU)
    assert core.meta([2, 3], (3, 1), float32, CPU) is m is fb.zeros(2, 3).meta and type(m.shape) is Size
    assert core.meta((2, 3), (1, 2), float32, CPU) is not m and core.meta((2, 3), None, float64, CPU) is not m
    assert (m.numel, m.nbytes, m.contiguous) == (6, 24, True) and repr(m) == "Meta((2, 3), (3, 1), float32, cpu)"
    assert core.meta((2, 3), (1, 2), float32, CPU).contiguous is False and core.meta((0, 3), None, float32, CPU).nbytes == 0
    assert core.meta((2, 2), (4, 1), int8, CPU).nbytes == 6  # up to its last element


def test_a_program_whose_shapes_never_repeat_does_not_grow_for_ever(request):
    most = core._MOST_METAS[0]
    request.addfinalizer(lambda: core._MOST_METAS.__setitem__(0, most))
    core._MOST_METAS[0] = len(core._metas) + 200
    kept = fb.ones(3, 5)
    for i in range(300):
        t = fb.empty(1, i + 1, 7, dtype=fb.int8)
        assert t.numel() == (i + 1) * 7
    assert len(core._metas) <= core._MOST_METAS[0] + 1
    assert (kept + kept).sum().item() == 30 and kept.view(15).shape == (15,)


def test_emptied_plan_caches_are_filled_again():
    x = fb.arange(6.0, requires_grad=True)
    want = ((x * x).sum() + x.exp().mean()).item()
    caches.forget()
    y = (x * x).sum() + x.exp().mean()
    y.backward()
    assert y.item() == want and x.grad is not None


def test_views_share_storage_and_version_and_clones_do_not():
    t = fb.zeros(4, 4)
    v, c = t[1:, ::2].t(), t.clone()
    assert v.store is t.store and c.store is not t.store and v._version == 0
    v.add_(1)
    t.mul_(2)
    assert t._version == v._version == 2 and c._version == 0
    a = core.alias(t, t.meta, t.ptr)
    assert a.store is t.store and not a.requires_grad and a._base is None


def test_memory_of_someone_else_is_kept_and_not_freed():
    a = np.arange(6.0)
    kept = weakref.ref(a)
    t = core.wrap(a.ctypes.data, core.meta((2, 3), None, float64, CPU), a)
    v = t[1]
    del a, t
    gc.collect()
    assert kept() is not None and v.tolist() == [3, 4, 5]
    del v
    gc.collect()
    assert kept() is None


def test_small_memory_comes_back_at_once_and_is_not_handed_out_twice():
    gc.collect()
    t = fb.ones(100)
    place = t.data_ptr()
    del t
    again = fb.empty(100)
    assert again.data_ptr() == place  # the last one freed is the first one taken
    many = [fb.full((100,), float(i)) for i in range(200)]
    assert len({m.data_ptr() for m in many}) == 200 and all(m[0].item() == m[-1].item() == i for i, m in enumerate(many))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), min_size=1, max_size=60))
def test_living_tensors_never_overlap(steps):
    living: list[tuple[fb.Tensor, float]] = []
    for i, (what, size) in enumerate(steps):
        if what == 0 and living:
            living.pop(size % len(living))
        elif what == 1 and living:
            t, v = living[size % len(living)]
            living.append((t[t.numel() // 2:], v))
        else:
            living.append((fb.full((size,), float(i)), float(i)))
    for t, v in living:
        assert (t == v).all().item()
    spans = sorted({(t.store.ptr, t.store.ptr + t.store.meta.nbytes) for t, _ in living if t.store.meta.nbytes})
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_tensors_made_and_dropped_in_threads_keep_their_values():
    errors = []

    def work(k):
        rng = np.random.default_rng(k)
        kept = []
        for i in range(300):
            n = int(rng.integers(1, 2000))
            kept.append((fb.full((n,), float(i + k)), float(i + k)))
            if len(kept) > 20:
                kept.pop(int(rng.integers(0, 20)))
            t, v = kept[int(rng.integers(0, len(kept)))]
            if not bool((t == v).all()):
                errors.append((k, i))
    threads = [threading.Thread(target=work, args=(k * 1000,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_tensors_may_be_dropped_in_another_thread_than_they_were_made():
    box = [fb.full((n,), 1.0) for n in (1, 100, 10_000, 1_000_000)]
    t = threading.Thread(target=box.clear)
    t.start()
    t.join()
    assert fb.ones(10_000).sum().item() == 10_000


def test_a_failed_allocation_is_an_error_and_nothing_else():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        fb.empty(1 << 50)
    assert "byte" in str(caught.value).lower() or "memory" in str(caught.value).lower()
    assert fb.ones(3).sum().item() == 3


def test_attributes_may_be_hung_on_a_tensor_and_it_may_be_referred_to_weakly():
    t = fb.zeros(2)
    t.note = "hello"
    r = weakref.ref(t)
    assert t.note == "hello" and r() is t and not hasattr(t[0], "note")
    del t
    assert r() is None


def test_subclasses_are_tensors_and_results_are_plain():
    class Named(fb.nn.Parameter):
        pass
    p = Named(fb.ones(2))
    assert isinstance(p, fb.Tensor) and isinstance(p, fb.nn.Parameter) and type(p * 2) is fb.Tensor and (p * 2).sum().item() == 4


def test_equal_tensors_are_different_keys():
    a, b = fb.ones(2), fb.ones(2)
    assert len({a, b}) == 2 and hash(a) == hash(a) and (a == b).all() and a is not b
    assert {a: 1}[a] == 1


def test_on_every_device(device):
    t = fb.zeros(3, device=device)
    v = t[1:]
    v.fill_(2)
    assert v.store is t.store and t._version == 1 and t.cpu().tolist() == [0, 2, 2] and str(v.meta.device) == device
    many = [fb.full((50,), float(i), device=device) for i in range(50)]
    del many[::2]
    more = [fb.full((50,), -1.0, device=device) for _ in range(25)]
    assert [m[7].item() for m in many] == [float(i) for i in range(1, 50, 2)] and all(m.sum().item() == -50 for m in more)


@pytest.mark.parametrize("make", [lambda: fb.empty_strided((4,), (-1,)), lambda: fb.ones(2).new_empty_strided((2, 4), (4, -1)),
                                  lambda: fb.empty_strided((1000000,), (-1,)), lambda: fb.empty_strided((4,), (1, 1))])
def test_a_layout_whose_elements_would_lie_before_the_first_is_refused(make) -> None:
    with pytest.raises(RuntimeError, match=r"Negative strides|dimensionality of sizes"):
        make()


@pytest.mark.parametrize("make", [lambda: fb.diag_embed(fb.ones(2, 0, 17), offset=2**64), lambda: fb.empty(0, 2**63), lambda: fb.empty(0, 2**40, 2**40),
                                  lambda: fb.empty_strided((0, 2), (2**63, 1)), lambda: fb.ones(0, 3).expand(2**63, 0, 3)])
def test_a_layout_of_no_elements_has_sizes_and_strides_of_64_bits_too(make):
    with pytest.raises(RuntimeError, match="overflow"):
        make()


@pytest.mark.parametrize("make", [lambda d: fb.ones(2, device=d).resize_(5, -1, -2), lambda d: fb.ones(2, device=d).resize_(0, -1),
                                  lambda d: fb.empty_strided((-1, -2), (1, 1), device=d), lambda d: fb.ones(3, device=d).as_strided((-1, -3), (1, 1)),
                                  lambda d: fb.empty(-2, -2, device=d)])
def test_no_size_is_negative(make, device):
    """Two of them have a positive product, which asks for memory that nothing bounds."""
    with pytest.raises(RuntimeError, match="negative dimension"):
        make(device)
