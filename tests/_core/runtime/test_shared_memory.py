"""Memory that several processes see: shared by its descriptor, without a name, and freed with its last user."""

from __future__ import annotations

import ctypes
import os

import pytest

from flambeau._core.runtime.shared_memory import Mapping, Shared, nameless


def open_files():
    return len(os.listdir("/proc/self/fd"))


def mapped():
    with open("/proc/self/maps") as f:
        return sum("flambeau-shared" in line for line in f)


@pytest.mark.parametrize("memfd", [True, False])
def test_two_mappings_of_one_descriptor_are_one_memory(monkeypatch, memfd):
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
    names, files, maps = set(os.listdir("/dev/shm")), open_files(), mapped()
    descriptor = nameless(10_000)
    one, two = Shared(descriptor, 10_000), Mapping(descriptor, 10_000, 3)
    assert set(os.listdir("/dev/shm")) == names and two.number == 3
    assert mapped() == maps + 2
    ctypes.memset(one.address, 7, 10_000)
    assert ctypes.string_at(two.address, 10_000) == b"\x07" * 10_000
    child = os.fork()
    if child == 0:
        ctypes.memset(two.address, 9, 10)
        os._exit(0)
    os.waitpid(child, 0)
    assert ctypes.string_at(one.address, 11) == b"\x09" * 10 + b"\x07"
    del one
    assert ctypes.string_at(two.address, 1) == b"\x09" and open_files() == files
    del two
    assert mapped() == maps


def test_what_cannot_be_mapped():
    with pytest.raises(OSError, match="cannot map 4096 bytes of shared memory"):
        Mapping(-1, 4096)
