"""Planned copies between devices: kept calls see what changes after they were planned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.runtime import dispatch, gpus, ledger, transfers

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(params=["eager", "lazy", "random"], autouse=True)
def two_gpus(request: pytest.FixtureRequest) -> Any:
    with torch.simulate(gpus=2, queue=request.param):
        yield


@pytest.mark.parametrize("ask", [lambda x: x.to("cuda"), lambda x: x.cuda(), lambda x: x.to(torch.device("cuda")),
                                 lambda x: x.to("cuda", torch.float64), lambda x: x.to(device="cuda"), lambda x: x.cuda(non_blocking=True)])
def test_the_current_gpu_is_that_of_the_call(ask: Any) -> None:
    x = torch.tensor(X)
    for index in (0, 1, 0, 1):
        with torch.cuda.device(index):
            made = ask(x)
        assert made.device == torch.device("cuda", index) and (made.cpu().numpy() == X).all()


def test_a_named_gpu_is_not_the_current_one() -> None:
    x = torch.tensor(X)
    for index in (0, 1):
        with torch.cuda.device(index):
            assert x.to("cuda:1").device.index == x.cuda(1).device.index == x.to(1).device.index == 1


def test_another_tensor_names_its_place() -> None:
    x = torch.tensor(X)
    a, b = torch.zeros(1, device="cuda:1"), torch.zeros(1, dtype=torch.float64)
    for _ in range(2):
        assert x.to(a).device.index == 1 and x.to(b).dtype is torch.float64 and x.to(other=a).device.index == 1


def test_flags_and_types_are_told_apart() -> None:
    x = torch.tensor(X)
    for _ in range(2):
        assert x.to("cpu") is x and x.to("cpu", copy=True) is not x and x.to(torch.float32) is x
        assert x.to(float).dtype is torch.float64 and x.to(int).dtype is torch.int64 and x.to(bool).dtype is torch.bool
        assert x.to("cuda", True) is not x.to("cuda", False)
        with pytest.raises(TypeError, match="invalid combination"):
            x.to(1.5)
        with pytest.raises(TypeError, match="unexpected keyword argument 'devise'"):
            x.to(devise="cuda")


def test_a_stream_that_becomes_current_later_takes_the_copy() -> None:
    x = torch.tensor(X).pin_memory()
    there = x.to("cuda", non_blocking=True)
    used: list[Any] = []
    with torch.cuda.stream(torch.cuda.Stream()) as _, dispatch.observe(copies=lambda c: used.append(c.stream)):
        x.to("cuda", non_blocking=True)
        there.copy_(x, non_blocking=True)
        mine = torch.cuda.current_stream()
    assert used == [mine, mine] and mine != torch.cuda.default_stream()


def test_plans_of_a_system_end_with_it() -> None:
    x = torch.tensor(X)
    outer = x.to("cuda")
    with torch.simulate(gpus=1):
        inner = x.to("cuda")
        assert (inner.cpu().numpy() == X).all()
        with pytest.raises(RuntimeError):
            x.to("cuda:1")
    assert (outer.cpu().numpy() == X).all() and x.to("cuda:1").device.index == 1


def test_observers_see_warm_copies_and_may_refuse_them() -> None:
    x, there = torch.tensor(X), torch.zeros(3, 4, device="cuda")
    for _ in range(2):
        x.to("cuda"), there.copy_(x), there.cpu()
    seen: list[str] = []
    with dispatch.observe(copies=lambda c: seen.append(f"{c.direction} {c.line}")):
        x.to("cuda"), there.copy_(x), there.cpu()
    assert [s.split()[0] for s in seen] == ["h2d", "h2d", "d2h"] and all(__file__ in s for s in seen)
    with torch.transfer_guard("disallow"):
        for work in (lambda: x.to("cuda"), lambda: there.copy_(x), lambda: there.cpu()):
            with pytest.raises(torch.errors.TransferError):
                work()


def test_the_ledger_of_the_process_has_each_copy_with_its_line_and_time() -> None:
    x = torch.tensor(X)
    x.to("cuda")
    torch.transfers.so_far().clear()
    for _ in range(600):  # longer than the journal
        x.to("cuda")
    (row,) = [r for r in torch.transfers.so_far().table() if r["direction"] == "h2d"]
    assert row["count"] == 600 and row["nbytes"] == 600 * X.nbytes and row["line"].startswith(__file__) and row["seconds"] > 0
    found = torch.transfers.so_far()
    assert sum(n for n, *_ in found.repeats.values()) == 599  # the same unchanged bytes again and again
    assert ledger.process is found and not found._journal


def test_a_write_between_copies_is_no_repeat() -> None:
    x = torch.tensor(X)
    torch.transfers.so_far().clear()
    for _ in range(3):
        x.to("cuda")
        x.add_(1)
    assert not torch.transfers.so_far().repeats


def test_copies_are_recorded_and_go_back() -> None:
    for _ in range(2):
        x = torch.tensor(X, requires_grad=True)
        y = x.to("cuda:1", torch.float64).to("cuda:0").cpu()
        (y * y).sum().backward()
        assert x.grad is not None and x.grad.dtype is torch.float32 and (x.grad.numpy() == 2 * X).all()
        with torch.no_grad():
            assert not x.to("cuda:1", torch.float64).requires_grad


def test_copy_between_devices_records_only_what_requires_grad() -> None:
    x, w = torch.tensor(X), torch.tensor(X, requires_grad=True)
    out = torch.zeros(3, 4, device="cuda")
    for _ in range(2):
        version = out._version
        out.copy_(x)
        assert not out.requires_grad and out._version == version + 1
    target = torch.zeros(3, 4, device="cuda")
    target.copy_(w)
    target.sum().backward()
    assert w.grad is not None and (w.grad.numpy() == 1).all()
    leaf = torch.zeros(3, 4, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.copy_(x)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        out[0].copy_(x)
    with pytest.raises(RuntimeError, match="single memory location"):
        out[0].expand(3, 4).copy_(x)


def test_a_failure_on_the_device_is_told_by_the_copy_that_waits() -> None:
    g = gpus.gpu(0)
    there = torch.tensor(X).to("cuda")
    there.cpu()

    def broken() -> None:
        raise OverflowError("no")
    from flambeau._core.kernels.programs import PreparedLaunch
    g.driver.launch(g.default_handle, PreparedLaunch("broken", broken), ())
    with pytest.raises(RuntimeError, match="'broken' failed with OverflowError"):
        there.cpu()
    assert (there.cpu().numpy() == X).all()


def test_plain_copies_of_bytes_are_planned_once() -> None:
    dev, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert transfers.plain(dev, cpu, 64, True) is transfers.plain(dev, cpu, 64, True)
    assert transfers.plain(dev, cpu, 64, True) is not transfers.plain(dev, cpu, 64, False)
