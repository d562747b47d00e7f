"""Attention by cuDNN's graphs through the NVIDIA driver and a fake cuDNN: ``python cases_cudnn_attention.py ORDER SEED [NAME...]``."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
import cases_attention  # noqa: E402
import cases_cudnn  # noqa: E402

array = cases.array
CUDNN, OWN = ("cudnn_attention", "cudnn_attention_backward"), ("attention", "attention_backward")
REFUSED_AT_ONCE, REFUSED_WHEN_RUN, WORKSPACE, NO_ENGINE, FAILURE = range(5)
COMPILED, READ, BACK, FIXED = 3, 4, 5, 6
fake_dnn: Any = None


def start() -> None:
    """The fake cuDNN in place of a real one; nothing is too small for it, and no plan of an earlier run is on the disk."""
    import os
    import tempfile
    os.environ["FLAMBEAU_CACHE_DIR"] = tempfile.mkdtemp(prefix="flambeau-plans-")
    cases_cudnn.start()
    from flambeau._core.drivers.nvidia import cudnn_attention
    cudnn_attention.LEAST = cudnn_attention.LEAST_ROWS = 0
    global fake_dnn
    fake_dnn = cases_cudnn.fake_dnn
    fake_dnn.fake_cudnn_graph_ran.restype = ctypes.c_long
    fake_dnn.fake_cudnn_graph.argtypes = (ctypes.c_int, ctypes.c_long)


def ran(which: int) -> int:
    return int(fake_dnn.fake_cudnn_graph_ran(which))


def forget() -> None:
    """As in a new process: no plan is known, but those on the disk."""
    from flambeau._core.runtime import dispatch, gpus
    launches: Any = gpus.gpu(0).driver._launches
    if launches is not None:
        launches._libraries.pop("cudnn attention", None)
    dispatch.changed()


@contextlib.contextmanager
def told(*rules: tuple[int, int]) -> Iterator[None]:
    """Rules of the fake library, for a block that knows no plans, and whose plans are not kept."""
    from flambeau._core.kernels import cache
    load, store = cache.load, cache.store
    cache.load, cache.store = lambda name: None, lambda name, body: False
    forget()
    for which, value in rules:
        fake_dnn.fake_cudnn_graph(which, value)
    try:
        yield
    finally:
        for which, value in enumerate((0, 0, 4096, 0, 0)):
            fake_dnn.fake_cudnn_graph(which, value)
        cache.load, cache.store = load, store
        forget()


def both(d: Any, shapes: tuple[tuple[int, ...], ...], by: tuple[str, str] = CUDNN, **how: Any) -> None:
    cases_attention.both(d, shapes, by=by, **how)


def case_types_and_orders() -> None:
    import flambeau as torch
    for d in (torch.float16, torch.bfloat16):
        both(d, ((2, 3, 40, 16),) * 3)
        both(d, ((2, 3, 40, 16),) * 3, is_causal=True)
        both(d, ((2, 40, 3, 16), (2, 50, 3, 16), (2, 50, 3, 24)), turn=True)
        both(d, ((2, 50, 3, 16), (2, 40, 3, 16), (2, 40, 3, 16)), turn=True, is_causal=True, scale=0.3)
        both(d, ((2, 3, 20, 16), (2, 3, 50, 16), (2, 3, 50, 16)), is_causal=True)
        both(d, ((1, 1, 1, 8), (1, 1, 9, 8), (1, 1, 9, 8)))
        both(d, ((1, 1, 9, 8), (1, 1, 1, 8), (1, 1, 1, 8)), is_causal=True)


def case_shared_keys() -> None:
    import flambeau as torch
    for shared in (1, 2):
        both(torch.bfloat16, ((2, 6, 20, 16), (2, shared, 30, 16), (2, shared, 30, 24)), enable_gqa=True, is_causal=True)


def case_leading_axes() -> None:
    import flambeau as torch
    both(torch.float16, ((12, 8), (14, 8), (14, 8)))
    both(torch.float16, ((3, 2, 12, 8), (3, 2, 14, 8), (3, 2, 14, 8)))


def case_left_to_our_own() -> None:
    """What it has no kernel for, or another answer to."""
    import flambeau as torch
    shape = ((2, 2, 20, 16),) * 3
    both(torch.float32, shape, by=OWN)
    both(torch.float16, shape, by=OWN, mask=torch.rand(20, 20) < 0.6)
    both(torch.float16, shape, by=OWN, mask=torch.randn(20, 20))
    both(torch.float16, shape, by=OWN, dropout_p=0.3)
    both(torch.float16, shape, by=OWN, scale=-0.3)
    both(torch.bfloat16, ((2, 2, 20, 12),) * 3, by=OWN)
    f = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(2, 2, 12, 16).half()
    wide = torch.randn(2, 1, 12, 16).half().cuda().expand(2, 2, 12, 16)  # keys that all heads read
    assert torch.allclose(f(x.cuda(), wide, wide).float().cpu(), f(x.float(), wide.float().cpu(), wide.float().cpu()), atol=4e-3)
    before = ran(0)
    assert torch.allclose(f(x.cuda(), x.cuda(), x.cuda(), scale=0.0).float().cpu(), x.float().mean(-2, keepdim=True).expand(x.shape), atol=4e-3)
    assert ran(0) == before
    assert f(x.cuda()[:0], x.cuda()[:0], x.cuda()[:0]).shape == (0, 2, 12, 16)


def case_places() -> None:
    """Operands that begin anywhere are copied first."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    whole, before = torch.randn(3, 2, 12, 17).bfloat16(), ran(0)
    for cut in (lambda t: t[..., 1:], lambda t: t[:, :, 1:, :16], lambda t: t[:, :, ::2, :8], lambda t: t.transpose(-1, -2)[..., :8]):
        x, y = cut(whole.cuda()), cut(whole.float())
        assert torch.allclose(f(x[0:1], x[1:2], x[2:3]).float().cpu(), f(y[0:1], y[1:2], y[2:3]), atol=3e-2)
    assert ran(0) - before >= 2


def case_chosen() -> None:
    """PyTorch's switches choose."""
    import flambeau as torch
    from flambeau.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel
    shape = ((1, 2, 9, 8),) * 3
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert torch.backends.cuda.flash_sdp_enabled() and not torch.backends.cuda.cudnn_sdp_enabled()
        both(torch.float16, shape, by=OWN)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        both(torch.float16, shape, by=OWN)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        assert _cur_sdpa_kernel_backends() == [SDPBackend.CUDNN_ATTENTION]
        both(torch.float16, shape)
    with sdpa_kernel(SDPBackend.MATH):
        both(torch.float16, shape, launched=False)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION], set_priority=True):
        assert _cur_sdpa_kernel_backends(with_priority=True) == [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
        both(torch.float16, shape, by=OWN)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        both(torch.float16, shape)
    torch.backends.cuda.enable_cudnn_sdp(False)
    both(torch.float16, shape, by=OWN)
    torch.backends.cuda.enable_cudnn_sdp(True)
    with torch.backends.cuda.sdp_kernel(False, True, False, False):
        both(torch.float16, shape, launched=False)
    with torch.backends.cudnn.flags(enabled=False):
        both(torch.float16, shape, by=OWN)
    both(torch.float16, shape)


def case_small_ones() -> None:
    """Small ones, and few queries, are our own kernels' unless only cuDNN may."""
    import flambeau as torch
    from flambeau._core.drivers.nvidia import cudnn_attention
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    try:
        for cudnn_attention.LEAST, cudnn_attention.LEAST_ROWS in ((1 << 31, 0), (0, 64)):
            forget()
            both(torch.float16, ((1, 2, 33, 16),) * 3, by=OWN)
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                both(torch.float16, ((1, 2, 33, 16),) * 3)
    finally:
        cudnn_attention.LEAST = cudnn_attention.LEAST_ROWS = 0
        forget()


def case_deep_heads() -> None:
    """The gradient of deep heads, which our own kernels lack."""
    import flambeau as torch
    both(torch.float16, ((1, 2, 9, 192),) * 3)


def case_fixed_order() -> None:
    """Where sums must be added up in one order, the graph that does is taken, within its room; else our own kernels."""
    import flambeau as torch
    from flambeau._core.drivers.nvidia import cudnn_attention
    before = ran(FIXED)
    both(torch.float16, ((1, 2, 9, 8),) * 3)
    assert ran(FIXED) == before
    for switch in (lambda on: torch.use_deterministic_algorithms(on), lambda on: setattr(torch.backends.cudnn, "deterministic", on)):
        switch(True)
        both(torch.float16, ((1, 2, 9, 8),) * 3, is_causal=True)
        switch(False)
    assert ran(FIXED) == before + 2
    torch.use_deterministic_algorithms(True)
    room, cudnn_attention.MOST_ROOM = cudnn_attention.MOST_ROOM, 100
    both(torch.float16, ((1, 2, 9, 16),) * 3, by=(CUDNN[0], OWN[1]))
    cudnn_attention.MOST_ROOM = room
    torch.use_deterministic_algorithms(False)


def case_either_follows_the_other() -> None:
    """Forward by one, back by the other."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    host = [torch.randn(2, 3, 20, 16).half().float().requires_grad_() for _ in range(3)]
    f(*host, is_causal=True).square().sum().backward()
    for first in (True, False):
        leaves = [t.detach().half().cuda().requires_grad_() for t in host]
        torch.backends.cuda.enable_cudnn_sdp(first)
        y = f(*leaves, is_causal=True)
        torch.backends.cuda.enable_cudnn_sdp(not first)
        before = ran(BACK)
        y.float().square().sum().backward()
        assert ran(BACK) - before == int(not first)
        for a, b in zip(leaves, host, strict=True):
            assert (a.grad.cpu().float() - b.grad).abs().max() < 0.01 * b.grad.abs().max()
    torch.backends.cuda.enable_cudnn_sdp(True)


def case_refusals() -> None:
    """Engines that are refused are passed over; what is refused when run is done by our own kernel, then and later."""
    import flambeau as torch
    from flambeau._core.runtime import caches
    shape = ((1, 2, 9, 8),) * 3
    with told((REFUSED_AT_ONCE, 3)):
        before = ran(2)
        both(torch.float16, shape)
        assert ran(2) == before + 2
    with told((REFUSED_AT_ONCE, 7)):
        both(torch.float16, shape, by=OWN)
    with told((NO_ENGINE, 1)):
        both(torch.float16, shape, by=OWN)
    with told((REFUSED_WHEN_RUN, 7)):
        before = ran(0)
        both(torch.float16, shape)
        caches.forget()  # plans made from now on know that it was refused
        both(torch.float16, shape, by=OWN)
        both(torch.float16, ((2, 6, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16)), enable_gqa=True)
        assert ran(0) == before
    both(torch.float16, shape)


def case_failures() -> None:
    """What the library says when it fails is told; the device lives on."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(1, 2, 9, 8).half().cuda()
    right = f(x, x, x).cpu()
    for code, words in ((5000, "status 5000"), (2000, "an argument is not valid")):
        fake_dnn.fake_cudnn_graph(FAILURE, code)
        try:
            f(x, x, x)
        except RuntimeError as error:
            assert words in str(error) and "queries (1, 2, 9, 8)" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    assert torch.equal(f(x, x, x).cpu(), right)


def case_versions() -> None:
    """Old ones are not asked; gradients of odd numbers of keys only from 9.15.1."""
    import flambeau as torch
    shape = ((1, 2, 9, 8),) * 3
    for version, by in ((91900, CUDNN), (91500, (CUDNN[0], OWN[1])), (91001, OWN)):
        forget()
        fake_dnn.fake_cudnn(6, version)
        both(torch.float16, shape, by=by)
        if version == 91500:
            both(torch.float16, ((1, 1, 4, 8), (1, 1, 128, 8), (1, 1, 128, 8)))
    fake_dnn.fake_cudnn(6, 91900)
    forget()


def case_plans_are_kept() -> None:
    """One for each shape; on the disk for the next process."""
    import flambeau as torch
    shape = ((1, 3, 7, 8),) * 3
    forget()
    compiled, read = ran(COMPILED), ran(READ)
    both(torch.float16, shape)
    both(torch.float16, shape)
    assert (ran(COMPILED), ran(READ)) == (compiled + 2, read)
    forget()
    both(torch.float16, shape)
    both(torch.float16, ((1, 3, 7, 8), (1, 3, 8, 8), (1, 3, 8, 8)))
    assert (ran(COMPILED), ran(READ)) == (compiled + 4, read + 2)
    from flambeau._core.drivers.nvidia import cudnn_attention, cudnn_graph
    most, cudnn_attention.MOST_PLANS = cudnn_attention.MOST_PLANS, 2
    forget()
    both(torch.float16, shape)
    both(torch.float16, ((1, 1, 7, 8),) * 3)
    both(torch.float16, ((1, 1, 6, 8),) * 3, by=OWN)
    both(torch.float16, shape)  # those on the disk cost little
    cudnn_attention.MOST_PLANS = most
    forget()
    able, cudnn_graph.ready = cudnn_graph.ready, lambda: False
    both(torch.float16, shape, by=OWN)
    cudnn_graph.ready = able
    forget()


def case_streams() -> None:
    """A handle for each stream."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(1, 2, 9, 8).half()
    on, right = x.cuda(), f(x.float(), x.float(), x.float())
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []
    for s in streams:
        with torch.cuda.stream(s):
            found.append(f(on, on, on))
    torch.cuda.synchronize()
    assert all(torch.allclose(y.float().cpu(), right, atol=4e-3) for y in found)


def case_threads() -> None:
    """Several threads, each its own stream, and one for all."""
    from concurrent.futures import ThreadPoolExecutor

    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(6, 2, 9, 8).half()
    on, right = x.cuda(), f(x.float(), x.float(), x.float())
    torch.cuda.synchronize()

    def one(k: int) -> Any:
        with torch.cuda.stream(torch.cuda.Stream() if k % 2 else torch.cuda.default_stream()):
            y = f(on[k:k + 1], on[k:k + 1], on[k:k + 1])
            torch.cuda.synchronize()
            return y.float().cpu()
    with ThreadPoolExecutor(6) as pool:
        for k, y in enumerate(pool.map(one, range(6))):
            assert torch.allclose(y, right[k:k + 1], atol=4e-3)


def case_second_order() -> None:
    import flambeau as torch
    grads = []
    for device, d in (("cuda", torch.bfloat16), ("cpu", torch.float32)):
        torch.manual_seed(2)
        q, k, v = [torch.randn(1, 2, 6, 8).to(d).to(device).requires_grad_() for _ in range(3)]
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        (g,) = torch.autograd.grad(y.float().square().sum(), q, create_graph=True)
        g.float().square().sum().backward()
        grads.append([t.grad.cpu().float() for t in (q, k, v)])
    for a, b in zip(*grads, strict=True):
        assert (a - b).abs().max() < 0.1 * b.abs().max()


def case_what_is_there() -> None:
    from flambeau import inventory
    from flambeau._core.drivers.nvidia import libraries
    assert "cuDNN 9.19.0's graphs" in inventory.nvidia()["attention"]
    fake_dnn.fake_cudnn(6, 90900)
    assert inventory.nvidia()["attention"].startswith("kernels of our own (cuDNN 9.9.0 is older than 9.10.2)")
    fake_dnn.fake_cudnn(6, 91900)
    found, libraries.find = libraries.find, lambda name: "libabsent.so"
    try:
        assert "cuDNN is not installed: pip install 'flambeau[cuda-dnn]'" in inventory.nvidia()["attention"]
    finally:
        libraries.find = found


if __name__ == "__main__":
    cases.main(globals(), start)
