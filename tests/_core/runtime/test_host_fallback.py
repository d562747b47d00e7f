"""A backend that has no kernel at all: everything falls to the host, on copies, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.simulated.driver import SimulatedDriver
from flambeau._core.kernels.specs import Product, Sort
from flambeau._core.runtime import dispatch, gpus

F = torch.nn.functional


class Empty(SimulatedDriver):
    """Memory, copies and streams, and nothing that computes."""

    def prepare(self, device: int, spec: Any) -> None:
        return None

    def serves(self, kind: Any) -> bool:
        return False

    def bind(self, device: int, prepared: Any) -> None:
        return None


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    before = gpus.install(gpus.DriverContext(Empty(["H200"])))
    try:
        yield torch.device("cuda:0")
    finally:
        gpus.install(*before)


CASES: dict[str, Callable[[Any], Any]] = {
    "loops": lambda x: (x * 2 + 1).sum(0),
    "products": lambda x: x @ x.t(),
    "batches": lambda x: (x.expand(3, 4, 5) @ x.t().expand(3, 5, 4)),
    "layer": lambda x: F.linear(x, x[:2], x[0, :2]),
    "convolution": lambda x: F.conv1d(x.unsqueeze(0), x[:, :3].unsqueeze(0), padding=1),
    "attention": lambda x: F.scaled_dot_product_attention(x.unsqueeze(0), x.unsqueeze(0), x.unsqueeze(0)),
    "sorting": lambda x: torch.cat([*x.sort(0), *x.topk(2, 0)]),
    "elements": lambda x: torch.stack([x.median(1)[0], x.mode(1)[0], x.kthvalue(2, 1)[0]]),
    "searching": lambda x: torch.searchsorted(x.sort(-1)[0], x.flip(1).contiguous()),
    "sets": lambda x: torch.isin(x, x[0]),
    "histogram": lambda x: torch.histc(x, 4, -1, 1),
    "positions": lambda x: x[torch.arange(4, device=x.device).flip(0)].gather(1, x.argsort(1)),
    "transforms": lambda x: torch.view_as_real(torch.fft.fft2(x)),
    "factors": lambda x: torch.linalg.cholesky(x @ x.t() + 3 * torch.eye(4, device=x.device)),
    "joining": lambda x: torch.cat([x] * 40),
}


@pytest.mark.parametrize("case", CASES)
def test_the_host_does_it(gpu: torch.device, case: str) -> None:
    x = torch.linspace(-1, 1, 20).sin().reshape(4, 5)
    want, found = CASES[case](x), CASES[case](x.to(gpu))
    assert found.device == gpu
    torch.testing.assert_close(found.cpu(), want)


def test_the_door_says_so(gpu: torch.device) -> None:
    spec = Sort(torch.float32, (4, 5), ((5, 1), (5, 1), (5, 1)), False, 5)  # type: ignore[arg-type]
    assert dispatch.find(gpu, spec) is None and not dispatch.serves(gpu, Product) and not dispatch.near(gpu)
    assert dispatch.require(gpu, spec).name == "sort"


def test_gradients_of_a_layer(gpu: torch.device) -> None:
    found = []
    for dev in (torch.device("cpu"), gpu):
        w = torch.linspace(-1, 1, 12).reshape(3, 4).to(dev).requires_grad_()
        x = torch.linspace(0, 1, 8).reshape(2, 4).to(dev)
        F.relu(F.linear(x, w)).square().sum().backward()
        found.append(w.grad.cpu())
    torch.testing.assert_close(found[1], found[0])
