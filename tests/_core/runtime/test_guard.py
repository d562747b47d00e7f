"""transfer_guard: levels, directions, nesting, threads, and that nothing is copied when it says no."""

from __future__ import annotations

import threading

import pytest

import flambeau as torch
from flambeau import transfer_guard


@pytest.fixture(autouse=True, params=["eager", "lazy"])
def gpus(request):
    with torch.simulate(gpus=2, queue=request.param):
        yield


def test_disallow_names_the_line_and_copies_nothing() -> None:
    x = torch.ones(4)
    with transfer_guard("disallow"):
        with pytest.raises(torch.TransferError, match=r"host-to-device copy of 16 bytes, cpu to cuda:0, at .*test_guard.py:\d+"):
            x.to("cuda")
        y = torch.zeros(4, device="cuda") + 1  # made there: no copy
        with pytest.raises(torch.TransferError, match="device-to-host"):
            y.sum().item()
        with pytest.raises(torch.TransferError, match="device-to-host"):
            repr(y)
        with pytest.raises(torch.TransferError, match="device-to-device"):
            y.to("cuda:1")
        target = torch.zeros(4, device="cuda")
        with pytest.raises(torch.TransferError):
            target.copy_(x)
    assert target.tolist() == [0.0] * 4 and x.cuda().sum().item() == 4.0


def test_directions_and_nesting() -> None:
    x = torch.ones(2)
    with transfer_guard("device_to_host", "disallow"):
        y = x.cuda()
        with pytest.raises(torch.TransferError):
            y.cpu()
        with transfer_guard("allow"):
            assert y.cpu().tolist() == [1.0, 1.0]
        with pytest.raises(torch.TransferError):
            y.tolist()
    with transfer_guard("disallow"), transfer_guard("host_to_device", "allow"):
        y = x.cuda()
        with pytest.raises(torch.TransferError):
            y.cpu()


def test_explicit_moves_may_be_exempt() -> None:
    x = torch.ones(2)
    with transfer_guard("disallow", exempt_explicit=True):
        y = x.to("cuda").cuda(1).cpu()
        assert y.tolist() == [1.0, 1.0]
        torch.nn.Linear(2, 2).cuda()
        z = x.cuda()
        for hidden in (lambda: z.sum().item(), lambda: repr(z), lambda: bool(z[0]), lambda: z.nonzero()):
            with pytest.raises(torch.TransferError):
                hidden()


def test_log(capsys) -> None:
    with transfer_guard("log"):
        torch.ones(2).cuda()
    err = capsys.readouterr().err
    assert "host-to-device copy of 8 bytes" in err and "test_guard.py" in err


def test_other_threads_are_free_and_decorators_work() -> None:
    done = []
    with transfer_guard("disallow"):
        t = threading.Thread(target=lambda: done.append(torch.ones(2).cuda().tolist()))
        t.start()
        t.join()
    assert done == [[1.0, 1.0]]

    @transfer_guard("disallow")
    def f(x):
        return x.cuda()

    for _ in range(2):
        with pytest.raises(torch.TransferError):
            f(torch.ones(1))
    assert torch.ones(1).cuda().item() == 1.0


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="level must be one of"):
        transfer_guard("forbid")
    with pytest.raises(ValueError, match="level must be one of"):
        transfer_guard("host_to_device")
    with pytest.raises(ValueError, match="direction must be None or one of"):
        transfer_guard("sideways", "allow")
