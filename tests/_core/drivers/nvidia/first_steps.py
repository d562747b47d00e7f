"""The first things to try on an NVIDIA GPU, each small and in a process of its own: ``python -X faulthandler first_steps.py NAME``.

With FIRST_FAKE=1 on the tests' fake libraries.  FIRST_PLANT="NAME:error", "NAME:hang" or "NAME:crash" breaks a step on purpose.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]


def near(got: Any, want: Any, rtol: float) -> None:
    """Both on the host, as float64; the error by the largest element."""
    import numpy as np
    got, want = (np.asarray(x.detach().cpu().double().numpy()) for x in (got, want))
    assert got.shape == want.shape, f"a result of shape {got.shape}; {want.shape} was expected"
    error = np.abs(got - want).max() / max(1e-30, np.abs(want).max())
    assert error < rtol, f"an error of {error:.3g} of the largest element; at most {rtol:.3g} was expected"


def step_import() -> None:
    import flambeau
    from flambeau._core.drivers.nvidia import probe
    found = probe.look()
    print(f"flambeau {flambeau.__version__}, {found.count} GPUs, driver of CUDA {probe.text(found.version)}, cuda-bindings {probe.bindings_version()}")
    assert found.count, found.why


def step_context() -> None:
    import flambeau as torch
    p = torch.cuda.get_device_properties(0)
    print(p)
    assert not p.simulated and p.total_memory > 0
    torch.cuda.synchronize()


def step_allocation() -> None:
    import flambeau as torch
    held = [torch.empty(n, device="cuda") for n in (1, 1000, 1 << 22)]
    assert all(t.data_ptr() % 256 == 0 for t in held) and torch.cuda.memory_allocated() >= 4 << 22


def step_copies() -> None:
    """Up and down, pageable and pinned, whole and strided."""
    import flambeau as torch
    x = torch.arange(1 << 20).to(torch.float32)
    for host in (x, x.pin_memory(), x.reshape(1024, 1024).t()):
        assert torch.equal(host.cuda().cpu(), host)


def step_kernel() -> None:
    import flambeau as torch
    x = torch.arange(100003).to(torch.float32)
    assert torch.equal((x.cuda() + 1.5).cpu(), x + 1.5)


def step_kernels() -> None:
    """One of each family."""
    import flambeau as torch
    torch.manual_seed(0)
    x = torch.randn(300, 700)
    y = x.cuda()
    for f in (lambda t: t.sum(0), lambda t: t.softmax(1), lambda t: t.cumsum(1), lambda t: t.t().contiguous(), lambda t: t.sort(1)[0],
              lambda t: torch.nn.functional.layer_norm(t, (700,)), lambda t: t.topk(5).values, lambda t: t.bfloat16().exp().float()):
        near(f(y), f(x), 1e-2 if f(x).dtype is torch.bfloat16 else 2e-3)


def step_thread() -> None:
    import threading

    import flambeau as torch
    found = []
    first = torch.ones(1000, device="cuda")
    other = threading.Thread(target=lambda: found.append((first * 2 + torch.ones(1000, device="cuda")).sum().item()))
    other.start()
    other.join()
    assert found == [3000.0]


def step_streams_and_events() -> None:
    import flambeau as torch
    x, side = torch.ones(1 << 20, device="cuda"), torch.cuda.Stream()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 3
    torch.cuda.current_stream().wait_stream(side)
    z = y + 1
    end.record()
    end.synchronize()
    assert z.sum().item() == 4 << 20 and begin.elapsed_time(end) >= 0.0


def step_products() -> None:
    """Each type, and each epilogue."""
    import flambeau as torch
    f = torch.nn.functional
    torch.manual_seed(0)
    x, w, b = torch.randn(96, 64), torch.randn(80, 64), torch.randn(80)
    for kind, rtol in ((torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)):
        own = [t.to(kind) for t in (x, w, b)]
        wide, there = [t.double() for t in own], [t.cuda() for t in own]
        near(there[0] @ there[1].t(), wide[0] @ wide[1].t(), rtol)
        near(f.linear(*there), f.linear(*wide), rtol)
        near(f.relu(f.linear(*there)), f.relu(f.linear(*wide)), rtol)
        near(f.gelu(f.linear(*there), approximate="tanh"), f.gelu(f.linear(*wide), approximate="tanh"), rtol)


def step_gradients_of_products() -> None:
    import flambeau as torch
    f = torch.nn.functional
    torch.manual_seed(0)
    found = []
    for move in (lambda t: t.cuda(), lambda t: t.double()):
        torch.manual_seed(1)
        x, w, b = (move(torch.randn(*s)).requires_grad_() for s in ((96, 64), (80, 64), (80,)))
        f.gelu(f.linear(x, w, b), approximate="tanh").square().sum().backward()
        found.append([t.grad for t in (x, w, b)])
    for got, want in zip(*found):
        near(got, want, 1e-4)


def step_convolution() -> None:
    import flambeau as torch
    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 17, 19), torch.randn(6, 8, 3, 3)
    found = []
    for move in (lambda t: t.cuda(), lambda t: t.double()):
        a, k = (move(t).requires_grad_() for t in (x, w))
        y = torch.nn.functional.conv2d(a, k, stride=2, padding=1)
        y.sum().backward()
        found.append([y, a.grad, k.grad])
    for got, want in zip(*found):
        near(got, want, 1e-3)


def _attention(head: int) -> None:
    import flambeau as torch
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, 70, head) for _ in range(3)]
    found = []
    for move in (lambda t: t.cuda().to(torch.bfloat16), lambda t: t.to(torch.bfloat16).double()):
        leaves = [move(t).requires_grad_() for t in inputs]
        y = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        y.sum().backward()
        found.append([y, *(t.grad for t in leaves)])
    for got, want in zip(*found):
        near(got, want, 4e-2)


def step_attention() -> None:
    """Whatever serves it, forward and back, against float64."""
    _attention(64)


def step_attention_by_our_kernels() -> None:
    import flambeau as torch
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        _attention(64)


def step_a_bad_index_is_told() -> None:
    import flambeau as torch
    x, at = torch.zeros(10, 4, device="cuda"), torch.tensor([1, 12], device="cuda")
    try:
        x[at].sum().item()
    except (IndexError, RuntimeError) as e:
        assert "12" in str(e), str(e)
    else:
        raise AssertionError("a wrong index was not told")
    assert (torch.ones(5, device="cuda") + 1).sum().item() == 10.0  # the device goes on


def step_out_of_memory() -> None:
    import flambeau as torch
    _, total = torch.cuda.mem_get_info()
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as e:
        assert "out of memory" in str(e)
    else:
        raise AssertionError("twice the memory there is was given")
    assert torch.ones(5, device="cuda").sum().item() == 5.0


def step_a_training_step() -> None:
    import flambeau as torch
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10)).cuda()
    updates = torch.optim.AdamW(net.parameters(), 1e-2)
    x, y = torch.randn(64, 32, device="cuda"), torch.arange(64, device="cuda").remainder(10)
    losses = []
    for _ in range(5):
        updates.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        updates.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses


def step_free() -> None:
    import flambeau as torch
    x = torch.empty(1 << 24, device="cuda")
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_reserved() == 0


STEPS = [name.removeprefix("step_") for name in list(globals()) if name.startswith("step_")]


def main(name: str) -> None:
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    planted, _, how = os.environ.get("FIRST_PLANT", "").partition(":")
    if planted == name:
        if how == "hang":
            time.sleep(1000)
        if how == "crash":
            os.abort()
        raise ValueError("planted")
    if os.environ.get("FIRST_FAKE"):
        import cases  # type: ignore[import-not-found]
        cases.start("lazy", 1)
    globals()["step_" + name]()


if __name__ == "__main__":
    main(sys.argv[1])
