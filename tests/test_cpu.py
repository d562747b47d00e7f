"""The CPU as a device (torch.cpu)."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_the_cpu_is_there_and_has_nothing_to_wait_for() -> None:
    event = torch.cpu.Event()
    event.record(torch.cpu.current_stream())
    event.wait()
    event.synchronize()
    assert event.query() is True and torch.cpu.is_initialized() is True
    with torch.cpu.StreamContext(torch.cpu.Stream()) as inside:
        assert inside is None


def test_what_the_cpu_can_do() -> None:
    told = torch.cpu.get_capabilities()
    assert torch.cpu.get_capabilities() is told and {type(v) for k, v in told.items() if k != "architecture"} <= {bool}
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        words = f.read().split()
    if told["architecture"] == "x86_64":
        assert told["avx2"] is ("avx2" in words) and told["fma3"] is ("fma" in words) and told["avx512_vnni"] is ("avx512_vnni" in words)
        assert told["avx512_f"] is ("avx512f" in words) and told["sse3"] is ("pni" in words)
    with pytest.raises(TypeError):
        told["avx2"] = True  # type: ignore[index]
