"""What the virtual clock says of messages and of collectives between machines, by two and four ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flambeau._core.drivers.simulated import clock
from flambeau._core.drivers.simulated.models import MODELS, network

from .ranks import checked, needs_mpi

H200 = MODELS["H200"]
MESSAGES = """
import flambeau, json, torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, cpu = dist.get_rank(), torch.ones(1 << 20)
x, much = cpu.cuda(), torch.zeros(1 << 26, device="cuda")
torch.cuda.synchronize()
told = []
for t, source in ((x, 0), (cpu, 0), (cpu, None)):
    dist.barrier()
    since = flambeau.simulated.clock()
    if rank == 0:
        for _ in range(10):
            much.mul_(1.0)
        if t is cpu:
            torch.cuda.synchronize()
        dist.send(t, 1)
    else:
        dist.recv(t, source)  # of a GPU's memory: queued
    torch.cuda.synchronize()
    told.append(flambeau.simulated.clock() - since)
print(json.dumps([rank, told]))
"""


def times(tmp_path: Path, *options: str) -> dict[int, list[float]]:
    """By rank, the seconds of each of the three."""
    done = checked(tmp_path, MESSAGES, 2, "--sim-gpus", "1", *options)
    return dict(json.loads(line.partition("] ")[2]) for line in done.splitlines())


@needs_mpi
@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_who_receives_waits_for_the_sender_on_the_virtual_clock(tmp_path: Path, queue: str) -> None:
    took = times(tmp_path, "--queue", queue)
    work = 10 * 2 * 4 * (1 << 26) / (H200.reached.moving["map"] * 1e9)  # of the sender, before it sends
    assert all(work <= t < 1.05 * work + 3e-5 for t in took[0])
    assert took[1][0] == pytest.approx(took[0][0], abs=1e-5)  # both take the link's time; the launches are the host's
    assert took[1][1:] == pytest.approx(took[0][1:], abs=1e-9)  # hosts beside one another: there at once


@needs_mpi
def test_a_message_between_machines_takes_the_network(tmp_path: Path) -> None:
    took = times(tmp_path, "--sim-node", "1", "--sim-network", "10GbE")
    way = (4 << 20) * 8 / 10e9 + network("10GbE").hop
    assert took[1][0] == pytest.approx(took[0][0], abs=1e-5) and took[0][0] > way
    assert took[1][1:] == pytest.approx([t + way for t in took[0][1:]], abs=1e-9)


@needs_mpi
def test_messages_that_nobody_waits_for_arrive(tmp_path: Path) -> None:
    """Their memory is kept until they are gone."""
    source = """
        import gc, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        for size in (10, 1 << 20):
            if rank == 0:
                for k in range(8):
                    dist.isend(torch.full((size,), float(k)), 1)
                gc.collect()
                junk = [torch.full((size,), -1.0) for _ in range(8)]
                dist.barrier()
            else:
                dist.barrier() if size == 10 else None
                got = torch.empty(size)
                for k in range(8):
                    dist.recv(got, 0)
                    assert (got == k).all(), (size, k, got[:3])
                dist.barrier() if size != 10 else None
        dist.barrier()
        print("arrived")
        """
    assert checked(tmp_path, source).count("arrived") == 2


@needs_mpi
def test_groups_within_a_machine_are_faster_than_across(tmp_path: Path) -> None:
    source = """
        import flambeau, json, torch, torch.distributed as dist
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        x = torch.ones(1 << 24, device="cuda")
        near, far = ([dist.new_group(r) for r in pairs] for pairs in (((0, 1), (2, 3)), ((0, 2), (1, 3))))
        told = []
        for group in (None, near[rank // 2], far[rank % 2]):
            for _ in range(2):
                torch.cuda.synchronize()
                dist.barrier()
                since = flambeau.simulated.clock()
                dist.all_reduce(x, group=group)
                torch.cuda.synchronize()
            told.append(flambeau.simulated.clock() - since)
        if rank == 0:
            print(json.dumps(told))
        """
    done = checked(tmp_path, source, 4, "--sim-gpus", "1", "--sim-node", "2", "--sim-network", "HDR")
    everybody, near, far = json.loads(done.strip().partition("] ")[2])
    hdr, whole = network("HDR"), 4 << 24
    for found, size, machines in ((everybody, 4, 2), (near, 2, 1), (far, 2, 2)):
        assert found == pytest.approx(clock.collective_seconds(H200, "all_reduce", whole, size, machines, hdr), abs=5e-5)
    assert near < everybody < far  # both ports of a machine, or one


@needs_mpi
@pytest.mark.parametrize("options, told", [(("--sim-network", "smoke"), "choose one of XDR"), (("--sim-node", "0"), "--sim-node")])
def test_wrong_networks_are_wrong_usage(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    from .ranks import run
    done = run(tmp_path, "print(1)", 2, *options)
    assert done.returncode == 2 and told in done.stderr


@needs_mpi
@pytest.mark.parametrize("queue", ["lazy", "random"])
def test_who_stands_still_does_not_hold_up_what_it_has_queued(tmp_path: Path, queue: str) -> None:
    """A rank waits for others on its host, or on another stream, while they wait for what is queued on its GPU."""
    source = """
        import torch, torch.distributed as dist
        dist.init_process_group("cpu:gloo,cuda:nccl")
        rank = dist.get_rank()
        x, h = torch.full((100,), float(rank + 1), device="cuda"), torch.ones(3)
        dist.all_reduce(x)
        if rank == 1:
            assert x.sum().item() == 300
        dist.all_reduce(h)
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
            assert x.sum().item() == 300
        y = torch.ones(5, device="cuda")
        dist.all_reduce(y)
        assert y.sum().item() == 10
        print("went on")
        """
    assert checked(tmp_path, source, 2, "--sim-gpus", "1", "--queue", queue).count("went on") == 2
