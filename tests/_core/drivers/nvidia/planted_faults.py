"""Tests that go wrong on purpose, on the fake libcuda: what `hardware` must survive.  Not collected unless it is named."""

from __future__ import annotations

import ctypes
import os
import time

import pytest

import flambeau as torch

pytestmark = pytest.mark.gpu


def fake() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@pytest.mark.parametrize("k", range(4))
def test_that_passes(k: int) -> None:
    assert (torch.ones(5, device="cuda") * k).sum().item() == 5 * k


def test_that_fails() -> None:
    assert torch.ones(5, device="cuda").sum().item() == 6, "five is not 6"


def test_that_fails_alike() -> None:
    assert torch.ones(7, device="cuda").sum().item() == 8, "five is not 8"


def test_that_is_skipped() -> None:
    pytest.skip("there is one GPU here")


def test_illegal_address() -> None:
    """Told by the launch itself."""
    x = torch.ones(8, device="cuda")
    fake().fake_fail(b"cuLaunchKernel", 0, 700)
    x + 1


def test_illegal_address_that_nobody_waits_for() -> None:
    """The test passes; its fault shows only when the device is waited for."""
    x = torch.ones(8, device="cuda")
    fake().fake_fail(b"cuCtxSynchronize", 0, 719)
    x + 1


def test_fault_in_a_fixture_that_goes() -> None:
    torch.ones(8, device="cuda").sum().item()
    fake().fake_fail(b"cuCtxSynchronize", 0, 1)  # one that leaves the device usable


def test_kernel_that_never_ends() -> None:
    """The host waits inside the driver."""
    x = torch.ones(8, device="cuda")
    x.sum().item()
    ctypes.CDLL(None).pause()


def test_that_sleeps() -> None:
    time.sleep(1000)


def test_that_kills_its_process() -> None:
    print("a word before the end", flush=True)
    os.abort()


def test_that_leaves() -> None:
    os._exit(7)


@pytest.mark.alone
def test_alone() -> None:
    assert torch.ones(3, device="cuda").sum().item() == 3
