"""What is cut into pieces for many blocks, run through the driver on a fake libcuda: ``python cases_pieces.py ORDER SEED [NAME...]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
import cases_sorting  # noqa: E402


def close(f: Any, *given: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """f gives nearly the same on both devices, its gradients too, and stays on the GPU."""
    import numpy as np

    import flambeau as torch

    def carried(device: str) -> list[Any]:
        own = [t.to(device).requires_grad_(t.is_floating_point()) for t in given]
        got = f(*own)
        slope = torch.linspace(-1, 1, got.numel(), device=device).to(got.dtype).reshape(got.shape)
        return [got, *torch.autograd.grad(got, [t for t in own if t.requires_grad], slope)]
    want = carried("cpu")
    with cases_sorting.on_device(sum(t.numel() * t.element_size() for t in given) + 64):
        got = carried("cuda")
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(cases.array(g.detach().float()), cases.array(w.detach().float()), rtol=rtol, atol=atol)


def some(*shape: int) -> Any:
    import numpy as np

    import flambeau as torch
    return torch.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype("f4"))


def case_few_long_rows() -> None:
    import flambeau as torch
    from flambeau.nn import functional as F
    for f in (lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: F.rms_norm(x, x.shape[-1:])):
        close(f, some(1, 60001), atol=1e-5)
        close(f, some(2, 50000), atol=1e-5)
    close(lambda x: x.softmax(0), some(40000, 5))
    close(lambda x: x.log_softmax(0), some(70000, 1))
    labels = torch.tensor([5, 49999])
    close(lambda x: F.cross_entropy(x, labels.to(x.device), reduction="none"), some(2, 50000))


def case_scans() -> None:
    import flambeau as torch
    for shape, dim in (((70001,), 0), ((2, 60000), 1), ((40000, 3), 0), ((300, 90), 0), ((500, 21), 1), ((7, 300), 1)):
        close(lambda x, dim=dim: torch.cumsum(x, dim), some(*shape), rtol=1e-4, atol=1e-2)
        close(lambda x, dim=dim: torch.logcumsumexp(x, dim), some(*shape), rtol=1e-4, atol=1e-4)
        close(lambda x, dim=dim: torch.cummax(x, dim)[0], some(*shape))
        cases_sorting.same(lambda x, dim=dim: torch.cummin(x, dim), torch.round(some(*shape)), most=4 * some(*shape).numel())


def case_sums_at_places() -> None:
    """By rows and by elements, few and many, to the bit."""
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(3)
    for rows, n, width in ((40, 30, 5), (700, 3000, 70), (70000, 9000, 3)):
        at, g = torch.tensor(rng.integers(0, rows, n)), torch.tensor(rng.standard_normal((n, width)).astype("f4"))
        size = 4 * g.numel() + 8 * n + 4 * rows * width

        def table_gradient(at: Any, g: Any, rows: int = rows, width: int = width) -> Any:
            table = torch.zeros(rows, width, device=g.device, requires_grad=True)
            torch.nn.functional.embedding(at, table).backward(g)
            return table.grad
        cases_sorting.same(table_gradient, at, g, most=size)
        cases_sorting.same(lambda at, g, rows=rows, width=width: torch.zeros(rows, width, device=g.device).index_add_(0, at, g, alpha=2), at, g, most=size)
        cases_sorting.same(lambda at, g, rows=rows, width=width: torch.ones(width, rows, device=g.device).index_add_(1, at, g.t()), at, g, most=size)
        cases_sorting.same(lambda at, g, rows=rows, width=width: torch.ones(rows, width, device=g.device).index_put_((at,), g, accumulate=True), at, g,
                           most=size)
        cases_sorting.same(lambda at, g, rows=rows: torch.ones(rows, 4, device=g.device).index_put_((at, at % 4), g[:, 0], accumulate=True), at, g, most=size)
        wide = at[:, None].expand(n, width).contiguous()
        cases_sorting.same(lambda at, g, rows=rows, width=width: torch.zeros(rows, width, device=g.device).scatter_add(0, at, g), wide, g, most=3 * size)
        cases_sorting.same(lambda at, g, rows=rows: torch.zeros(rows, device=g.device).scatter_reduce(0, at, g[:, 0], "amax"), at, g, most=size)
    z = torch.tensor((rng.standard_normal(5000) + 1j * rng.standard_normal(5000)).astype("c8"))
    at = torch.tensor(rng.integers(0, 300, 5000))
    for f in (lambda z, at: torch.view_as_real(torch.zeros(300, dtype=z.dtype, device=z.device).index_put_((at,), z, accumulate=True)),
              lambda z, at: torch.view_as_real(torch.zeros(300, 2, dtype=z.dtype, device=z.device).index_add_(0, at, z.reshape(-1, 1).expand(-1, 2)))):
        cases_sorting.same(f, z, at, most=10 ** 6)


if __name__ == "__main__":
    cases.main(globals())
