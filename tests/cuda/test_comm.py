"""torch.cuda.comm: tensors carried between GPUs."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.cuda import comm


@pytest.fixture(autouse=True, params=["eager", "lazy", "random"])
def two(request: Any) -> Any:
    with torch.simulate(gpus=2, model="T4", queue=request.param):
        yield


def test_copies_and_sums() -> None:
    x = torch.arange(6.0, device="cuda:0")
    a, b = comm.broadcast(x, [0, "cuda:1"])
    assert a.device.index == 0 and b.device.index == 1 and b.tolist() == x.tolist()
    out = [torch.empty(6, device="cuda:1"), torch.empty(6)]
    assert comm.broadcast(x, out=out)[1] is out[1] and out[1].tolist() == x.tolist() == out[0].tolist()
    with pytest.raises(RuntimeError, match="exactly one of 'devices' and 'out'"):
        comm.broadcast(x)
    (p, q), (r, s) = comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert s.device.index == 1 and s.tolist() == (x + 1).tolist() == q.tolist()
    total = comm.reduce_add([p, r, b], 1)
    assert total.device.index == 1 and total.tolist() == (3 * x).tolist() and p.tolist() == x.tolist()
    assert [t.tolist() for t in comm.reduce_add_coalesced([[p, q], [r, s]])] == [(2 * x).tolist(), (2 * x + 2).tolist()]
    with pytest.raises(ValueError, match="input 1 has invalid size"):
        comm.reduce_add([x, x[:2]])
    with pytest.raises(AssertionError, match="input 1 is on cpu"):
        comm.reduce_add([x, x.cpu()])


def test_pieces() -> None:
    x = torch.arange(10.0, device="cuda:0").view(5, 2)
    a, b = comm.scatter(x, [0, 1])
    assert a.shape == (3, 2) and b.shape == (2, 2) and b.device.index == 1
    a, b = comm.scatter(x, [1, 0], chunk_sizes=[1, 4])
    assert a.tolist() == [[0, 1]] and a.device.index == 1
    back = comm.gather([a, b], destination=1)
    assert back.device.index == 1 and back.tolist() == x.tolist() and comm.gather([a, b], destination=-1).device.type == "cpu"
    out = torch.empty(5, 2, device="cuda:1")
    assert comm.gather([a, b], out=out) is out and out.tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="'chunk_sizes' is told by 'out'"):
        comm.scatter(x, out=[a, b], chunk_sizes=[1, 4])
