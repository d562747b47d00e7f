"""Dispatch of launches: binding, observing, copying."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.kernels.programs import PreparedLaunch
from flambeau._core.runtime import dispatch, gpus, ledger
from flambeau._core.runtime.device import resolve
from flambeau.simulated import clock, models

CPU = resolve("cpu")


def test_on_the_cpu_the_door_is_not_there() -> None:
    p = PreparedLaunch("nothing", lambda: None)
    assert dispatch.bind(CPU, p) is p.entry


def test_observers_see_every_launch_and_leave_nothing_behind() -> None:
    p, seen = PreparedLaunch("mark", lambda a, b: a + b), []
    with dispatch.observe(lambda *what: seen.append(what)):
        assert dispatch.bind(CPU, p)(1, 2) == 3
        x = torch.ones(3)
        x + x
    assert seen[0] == (CPU, None, p, (1, 2))
    count = len(seen)
    assert {s[2].name for s in seen} >= {"mark", "add"}
    x + x
    assert len(seen) == count and dispatch.bind(CPU, p) is p.entry


def test_observers_see_streams_and_copies() -> None:
    with torch.simulate(gpus=2, memory="16MiB"):
        launches: list[Any] = []
        copies: list[Any] = []
        with dispatch.observe(lambda *what: launches.append(what), copies.append):
            x = torch.ones(5, device="cuda")
            s = torch.cuda.Stream()
            with torch.cuda.stream(s):
                x = x + x
            x.to("cuda:1").cpu()
        assert launches[-1][:2] == (resolve("cuda:0"), s)
        assert [(c.direction, c.path, c.nbytes, c.blocking) for c in copies] == [
            ("peer", "peer", 20, False), ("d2h", "pageable", 20, True)]
        assert repr(copies[-1]) == "Copy(d2h, pageable, 20 bytes, cuda:1 to cpu, blocking)"


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_copies_between_all_devices(queue: str) -> None:
    with torch.simulate(gpus=2, model="RTX 4090", memory="16MiB", queue=queue):
        def so_far() -> dict[str, int]:
            assert ledger.process is not None
            rows = [r for r in ledger.process.table() if r["line"].startswith(__file__)]
            return {way: sum(r["nbytes"] for r in rows if r["direction"] == way) for way in ("h2d", "peer", "d2h")}
        torch.ones(1, device="cuda")
        before = so_far()
        x = torch.arange(1000)
        assert x.to("cuda:0").to("cuda:1").to("cuda:1", copy=True).cuda(0).cpu().tolist() == list(range(1000))
        assert {way: n - before[way] for way, n in so_far().items()} == {"h2d": 8000, "peer": 16000, "d2h": 8000}


def test_pageable_memory_is_free_after_an_asynchronous_copy_and_pinned_is_not() -> None:
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        dev = resolve("cuda:0")
        for pinned in (False, True):
            for n in (64, 1 << 20):
                buffer = ctypes.create_string_buffer(b"a" * n, n)
                address, free = gpus.pinned_block(n) if pinned else (ctypes.addressof(buffer), None)
                assert gpus.is_pinned(address) is pinned
                ctypes.memset(address, ord("a"), n)
                there, back = gpus.block(dev, n)
                dispatch.copy(dev, there, CPU, address, n, blocking=False)
                ctypes.memset(address, ord("b"), n)  # too early, unless the copy has its own
                result = ctypes.create_string_buffer(n)
                dispatch.copy(CPU, ctypes.addressof(result), dev, there, n, blocking=True)
                assert result.raw == (b"b" if pinned else b"a") * n
                if free is not None:
                    free.append(address)
                    assert gpus.pinned_block(n)[0] == address
                back.append(there)


def test_the_owner_lives_until_the_copy_is_done() -> None:
    class Owner:
        gone = False

        def __del__(self) -> None:
            Owner.gone = True
    with torch.simulate(gpus=1, memory="16MiB", queue="lazy"):
        dev = resolve("cuda:0")
        address, _ = gpus.pinned_block(64)
        there, _ = gpus.block(dev, 64)
        dispatch.copy(dev, there, CPU, address, 64, blocking=False, keep=Owner())
        assert not Owner.gone
        dispatch.synchronize(dev)
        assert Owner.gone


def test_peer_copies_follow_what_both_streams_were_doing() -> None:
    with torch.simulate(gpus=2, memory="16MiB", queue="lazy"):
        x = torch.zeros(100, device="cuda:0")
        for _ in range(20):
            x = (x + 1).to("cuda:1")
            x = (x * 2).to("cuda:0")
        expected = 0.0
        for _ in range(20):
            expected = (expected + 1) * 2
        assert x.tolist() == [expected] * 100


def test_simulations_nest_and_put_back() -> None:
    with torch.simulate(gpus=1, memory="16MiB"):
        x = torch.ones(4, device="cuda")
        with torch.simulate(gpus=3, model="T4", memory="16MiB") as inner:
            assert torch.cuda.device_count() == 3 and torch.cuda.get_device_name(2) == "Tesla T4"
            y = torch.ones(4, device="cuda")
            assert (y + 1).tolist() == [2.0] * 4
        inner.close()
        assert torch.cuda.device_count() == 1 and (x + 1).tolist() == [2.0] * 4
        with pytest.raises(RuntimeError):
            (x + y).tolist()  # memory of GPUs that are gone


def test_arguments_of_simulate() -> None:
    for wrong in ({"gpus": -1}, {"gpus": "two"}, {"model": "V9"}, {"queue": "slow"}, {"memory": 5},
                  {"memory": "lots"}, {"memory": "1 KiB"},
                  {"gpus": 2, "model": ["T4"]}):
        with pytest.raises(ValueError):
            torch.simulate(**wrong)
    with torch.simulate(gpus=2, model=["T4", "H100"], memory=1 << 24):
        assert [torch.cuda.get_device_capability(i) for i in (0, 1)] == [(7, 5), (9, 0)]
    assert gpus.parse_size("8GiB") == gpus.parse_size("8 gb") == gpus.parse_size(8 << 30) == 8 << 30
    assert "H200" in models()


def test_the_clock_is_predicted_not_measured() -> None:
    with torch.simulate(gpus=1, memory="256MiB", queue="lazy"):
        x = torch.zeros(16 << 20, device="cuda")
        torch.cuda.synchronize()
        start = clock()
        x + x
        assert clock("cuda:0") - start == pytest.approx(3 * (64 << 20) / 4.8e12, rel=0.3)
        torch.cuda.synchronize()
        assert clock() == clock("cuda:0")


def test_a_forked_child_is_told() -> None:
    script = """
import os, sys
import flambeau as torch
x = torch.ones(3, device="cuda")
y = x + x
def in_child(use):
    pid = os.fork()
    if pid == 0:
        try:
            use()
        except RuntimeError as e:
            os._exit(0 if "forked subprocess" in str(e) and "spawn" in str(e) else 2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
for use in (lambda: torch.ones(2, device="cuda"), lambda: x + x, lambda: x.cpu(), torch.cuda.synchronize,
torch.cuda.current_device):
    assert in_child(use) == 0
pid = os.fork()
if pid == 0:
    ok = (torch.ones(3) + 1).tolist() == [2.0] * 3 and not torch.cuda.is_initialized()
    del x, y
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (y + x).tolist() == [3.0] * 3
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env={"FLAMBEAU_SIM_GPUS": "2",
                                                                               "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
