"""Attention through the NVIDIA driver by our own kernels, in a process of its own: ``python cases_attention.py ORDER SEED [NAME...]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402

array = cases.array
LIMITS = {"float32": 5e-6, "float16": 4e-3, "bfloat16": 3e-2}


def both(d: Any, shapes: tuple[tuple[int, ...], ...], mask: Any = None, turn: bool = False, launched: bool = True,
         by: tuple[str, str] = ("attention", "attention_backward"), **how: Any) -> None:
    """The result and all gradients on the GPU against those of the CPU, in float32; by one launch forward and one back, of these names."""
    import numpy as np

    import flambeau as torch
    from flambeau._core.runtime import dispatch
    torch.manual_seed(3)
    inputs = [torch.randn(*s).to(d) for s in shapes]
    found: list[list[Any]] = []
    names: list[str] = []
    for device in ("cuda", "cpu"):
        leaves = [t.to(device).to(d if device == "cuda" else torch.float32).requires_grad_() for t in inputs]
        q, k, v = [t.transpose(1, 2) if turn else t for t in leaves]
        hidden = None if mask is None else mask.to(device)
        if hidden is not None and device == "cpu" and hidden.dtype is not torch.bool:
            hidden = hidden.float()
        with torch.random.fork_rng(), dispatch.observe(lambda dev, stream, prepared, args: names.append(prepared.name) if dev.type == "cuda" else None):
            torch.random.set_stream("counter")  # whose numbers are the same on both
            torch.manual_seed(9)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, hidden, **how)
            weights = (torch.arange(y.numel(), device=device).reshape(y.shape).remainder(5) - 2.0).to(y.dtype)
            y.backward(weights)
        found.append([array(t.float()) for t in (y, *[leaf.grad for leaf in leaves])])
        assert y.dtype is leaves[0].dtype
    assert [n for n in names if "attention" in n] == (list(by) if launched else []), names
    for mine, host in zip(*found, strict=True):
        worst = float(np.abs(mine - host).max() / max(np.abs(host).max(), 1e-6))
        assert worst < LIMITS[d.name], (d, shapes, how, worst)


def case_types_and_orders() -> None:
    import flambeau as torch
    for d in (torch.float32, torch.float16, torch.bfloat16):
        both(d, ((2, 3, 40, 16),) * 3)
        both(d, ((2, 40, 3, 16), (2, 50, 3, 16), (2, 50, 3, 24)), turn=True, is_causal=True)


def case_masks() -> None:
    import flambeau as torch
    for d in (torch.float32, torch.bfloat16):
        shapes = ((2, 2, 20, 8), (2, 2, 30, 8), (2, 2, 30, 8))
        both(d, shapes, torch.rand(20, 30) < 0.6)
        both(d, shapes, (torch.rand(2, 1, 20, 30) < 0.6).logical_and(torch.arange(20).reshape(1, 1, 20, 1) != 4))
        both(d, shapes, torch.randn(2, 2, 1, 30).to(d))
        both(d, shapes, torch.randn(30, 20).t() if d is torch.float32 else torch.randn(20, 30))


def case_shared_keys() -> None:
    import flambeau as torch
    both(torch.bfloat16, ((2, 6, 20, 16), (2, 2, 30, 16), (2, 2, 30, 16)), enable_gqa=True, is_causal=True)


def case_dropout() -> None:
    """The CPU's random numbers."""
    import flambeau as torch
    both(torch.float32, ((2, 2, 30, 16),) * 3, dropout_p=0.3)
    both(torch.float16, ((2, 2, 30, 16),) * 3, dropout_p=0.3)


def case_leading_axes() -> None:
    import flambeau as torch
    both(torch.float32, ((12, 8), (14, 8), (14, 8)))
    both(torch.float16, ((3, 2, 2, 12, 8), (2, 1, 14, 8), (2, 1, 14, 8)))


def case_places() -> None:
    """Operands that begin anywhere, and whose columns are no neighbours."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    whole = torch.randn(3, 2, 12, 17)
    for d in (torch.float32, torch.bfloat16):
        on = whole.to(d).cuda()
        for cut in (lambda t: t[..., 1:], lambda t: t[:, :, 1:, :15], lambda t: t.transpose(-1, -2)[..., :8], lambda t: t[..., ::2]):
            x, y = cut(on), cut(whole.to(d).float())
            assert torch.allclose(f(x[0:1], x[1:2], x[2:3]).float().cpu(), f(y[0:1], y[1:2], y[2:3]), atol=1e-5 if d is torch.float32 else 3e-2)


def case_chosen() -> None:
    """Where only products and a softmax are allowed, no kernel of ours is asked for."""
    import flambeau as torch
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel(SDPBackend.MATH):
        both(torch.float32, ((1, 2, 9, 8),) * 3, launched=False, is_causal=True)
        both(torch.float16, ((1, 2, 9, 8),) * 3, launched=False)
    with torch.backends.cuda.sdp_kernel(False, True, False, False):
        both(torch.float32, ((1, 2, 9, 8),) * 3, launched=False)
    both(torch.float32, ((1, 2, 9, 8),) * 3)


def case_no_kernel() -> None:
    """Deep heads go back, doubles go both ways, without one; a mask's own gradient too."""
    import flambeau as torch
    f = torch.nn.functional.scaled_dot_product_attention
    x = torch.randn(1, 1, 9, 16, dtype=torch.float64)
    assert torch.allclose(f(x.cuda(), x.cuda(), x.cuda()).cpu(), f(x, x, x))
    for d in (torch.float32, torch.float16):
        wide = [torch.randn(1, 1, 9, 200).to(d).cuda().requires_grad_() for _ in range(3)]
        f(*wide).float().square().sum().backward()
        host = [t.detach().cpu().float().requires_grad_() for t in wide]
        f(*host).square().sum().backward()
        for a, b in zip(wide, host, strict=True):
            assert torch.allclose(a.grad.cpu().float(), b.grad, atol=0.02 if d is torch.float16 else 1e-4)
    q = torch.randn(1, 1, 9, 16, dtype=torch.float16, device="cuda")
    mask = torch.zeros(9, 9, dtype=torch.float16, device="cuda").requires_grad_()
    out = f(q, q, q, mask)
    assert out.dtype is torch.float16
    out.float().sum().backward()
    assert mask.grad.shape == (9, 9)


def case_second_order() -> None:
    import flambeau as torch
    grads = []
    for device, d in (("cuda", torch.float32), ("cpu", torch.float32), ("cuda", torch.bfloat16)):
        torch.manual_seed(2)
        q, k, v = [torch.randn(1, 2, 6, 8).to(d).to(device).requires_grad_() for _ in range(3)]
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        (g,) = torch.autograd.grad(y.float().square().sum(), q, create_graph=True)
        g.float().square().sum().backward()
        grads.append([t.grad.cpu().float() for t in (q, k, v)])
    for a, b, c in zip(*grads, strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4) and (c - b).abs().max() < 0.1 * b.abs().max()


if __name__ == "__main__":
    cases.main(globals())
