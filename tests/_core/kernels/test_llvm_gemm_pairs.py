"""Products of bfloat16 matrices by pairs, against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.dtypes import bfloat16
from flambeau._core.kernels import native, routines
from flambeau._core.kernels.llvm import compile as compiler
from flambeau._core.kernels.llvm.handwritten import gemm_pairs

pytestmark = pytest.mark.skipif(not compiler.has_pairs(), reason="this CPU has no instructions for bfloat16")
RNG = np.random.default_rng(11)


def random(*shape: int) -> torch.Tensor:
    return torch.from_numpy(RNG.standard_normal(shape)).to(bfloat16)


def laid(x: torch.Tensor, turned: bool) -> torch.Tensor:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if turned else x


def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, add: bool = False, row: torch.Tensor | None = None) -> None:
    """Into c, whose last axis may be longer than b's."""
    batch = a.shape[0] if a.ndim == 3 else 1
    steps = [(x.stride(-2), x.stride(-1), x.stride(0) if x.ndim == 3 else 0) for x in (a, b)]
    entry = gemm_pairs.gemm(a.shape[-2], b.shape[-1], a.shape[-1], *steps, (c.stride(-2), c.stride(0) if c.ndim == 3 else 0), batch, add, row is not None)
    entry(c.data_ptr(), a.data_ptr(), b.data_ptr(), *([] if row is None else [row.data_ptr()]))


def close(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor, base: np.ndarray | float = 0.0) -> None:
    """Within the bound of a sum of k products in any order in float32, rounded to bfloat16 once."""
    x, y = a.double().numpy(), b.double().numpy()
    want, size = x @ y + base, np.abs(x) @ np.abs(y) + np.abs(base)
    bound = 2 * (x.shape[-1] + 2) * 6e-8 * size + 2.0 ** -8 * np.abs(want) + 1e-30
    assert (np.abs(got.double().numpy() - want) <= bound).all()


@given(st.integers(1, 70), st.integers(1, 100), st.integers(1, 90), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_size_and_layout(m: int, n: int, k: int, la: bool, lb: bool, add: bool, batch: int) -> None:
    a, b = laid(random(batch, m, k), la), laid(random(batch, k, n), lb)
    room = torch.full((batch, m, n + 5), 7.0, dtype=torch.bfloat16)
    run(a, b, room, add)
    close(room[..., :n], a, b, 7.0 if add else 0.0)
    assert (room[..., n:] == 7).all()


@pytest.mark.parametrize("m,n,k", [(40, 70, 30), (33, 100, 1301), (1, 33, 5), (300, 600, 2700)])
def test_a_row_is_added_before_the_sum_is_rounded(m: int, n: int, k: int) -> None:
    a, b, row = random(m, k), random(n, k).t(), random(n + 1)[1:]
    got = torch.empty(m, n, dtype=torch.bfloat16)
    run(a, b, got, row=row)
    close(got, a, b, row.double().numpy())


@pytest.mark.parametrize("m,n,k", [(500, 900, 700), (3, 2000, 2300), (2100, 33, 400), (64, 64, 5001)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_several_blocks_and_the_same_bits_on_any_threads(m: int, n: int, k: int, turned: bool, add: bool) -> None:
    a, b, before, results = laid(random(m, k), turned), laid(random(k, n), turned), native.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            native.set_num_threads(threads)
            c = torch.ones(m, n, dtype=torch.bfloat16)
            run(a, b, c, add)
            results.append(c)
    finally:
        native.set_num_threads(before)
    close(results[0], a, b, float(add))
    assert all(torch.equal(r, results[0]) for r in results)


def test_what_lies_beyond_an_odd_length_and_the_edges_does_not_matter() -> None:
    room = [torch.full((50, 80), torch.nan, dtype=torch.bfloat16) for _ in range(2)]
    for la, lb in ((0, 0), (1, 0), (0, 1), (1, 1)):
        a, b = room[0][:17, :33] if not la else room[0][:33, :17].t(), room[1][:33, :35] if not lb else room[1][:35, :33].t()
        a.copy_(random(17, 33))
        b.copy_(random(33, 35))
        c = torch.empty(17, 35, dtype=torch.bfloat16)
        run(a, b, c)
        close(c, a, b)
        for r in room:
            r.fill_(torch.nan)


def test_nan_and_infinities_stay_in_their_rows_and_columns() -> None:
    a, b, c = random(20, 40), random(40, 37), torch.empty(20, 37, dtype=torch.bfloat16)
    a[3, 5], b[7, 36] = torch.inf, torch.nan
    b[:, 2] = 0
    run(a, b, c)
    want = a.float() @ b.float()
    assert torch.equal(c.isnan(), want.isnan()) and torch.equal(c.isinf(), want.isinf())


def test_which_products_a_routine_takes() -> None:
    assert routines.product_of_pairs(4, 4, 4, (8, 2, 0), (4, 1, 0), (4, 1, 0)) is None
    made = routines.product_of_pairs(8, 16, 4, (4, 1, 0), (1, 4, 0), (16, 1, 0), 3)
    assert made is not None and made.flops == 2 * 3 * 8 * 16 * 4 and made.nbytes == 2 * 3 * (32 + 64 + 128)


def test_products_layers_and_their_gradients_go_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau._core.drivers.cpu import onednn
    if onednn.why() is None:
        pytest.skip("oneDNN is installed")
    asked = []
    of_pairs = routines.product_of_pairs
    monkeypatch.setattr(routines, "product_of_pairs", lambda *a: asked.append(a[-1]) or of_pairs(*a))
    x, w, bias = random(37, 91).requires_grad_(), random(53, 91).requires_grad_(), random(53).requires_grad_()
    y = torch.nn.functional.linear(x, w, bias)
    assert asked.count(True) == 1  # with its bias
    close(y.detach(), x.detach(), w.detach().t(), bias.detach().double().numpy())
    y.sum().backward()
    one = torch.ones(37, 53, dtype=torch.bfloat16)
    close(x.grad, one, w.detach())
    close(w.grad, one.t(), x.detach())
    assert len(asked) >= 4
