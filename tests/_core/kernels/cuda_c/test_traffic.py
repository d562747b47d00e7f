"""The counters of memory traffic: known kernels give known counts, and each way to waste memory is seen."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import float32
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import Kernel, render
from flambeau._core.kernels.programs import Map
from tests._core.kernels.cuda_c import host, traffic

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
BLOCKS, THREADS = 6, 64


def written(body: str, shared: str = "") -> Kernel:
    """A kernel of 6 blocks of 64 threads: `i` is the thread's number, `a` and `b` are floats."""
    source = f"""struct Args {{ unsigned long long w[2]; }};
extern "C" __global__ void __launch_bounds__({THREADS}) k(const Args args) {{
  {shared}
  float* const a = (float*)args.w[0];
  const float* const b = (const float*)args.w[1];
  const int t = (int)threadIdx.x, i = (int)(blockIdx.x * {THREADS}) + t;
  {body}
}}
"""
    return Kernel(source, (("k", (BLOCKS, 1, 1), (THREADS, 1, 1), 0),), "PP", (), 0, 0, 0)


def counted(body: str, shared: str = "", blocks: int = BLOCKS) -> traffic.Traffic:
    a, b = (np.zeros(BLOCKS * THREADS * 64 + 32, np.float32) for _ in range(2))
    at = [x.ctypes.data + -x.ctypes.data % 128 for x in (a, b)]
    return traffic.count(written(body, shared), at, blocks)["k"]


def test_neighbours_share_sectors() -> None:
    found = counted("a[i] = b[i];")
    warps = BLOCKS * THREADS // 32
    assert found.kinds == {"loads": (warps, warps * 128, warps * 128, warps * 4), "stores": (warps, warps * 128, warps * 128, warps * 4)}
    assert found.memory.efficiency == 1.0 and found.scale == 1.0


@pytest.mark.parametrize(("place", "sectors", "asked"), [("2 * i", 8, 128), ("8 * i", 32, 128), ("i + 1", 5, 128), ("i / 32", 1, 4), ("i ^ 7", 4, 128),
                                                         ("64 * t + i / 64", 32, 128)])
def test_sectors_of_a_request(place: str, sectors: int, asked: int) -> None:
    loads = counted(f"a[i] = b[{place}];").kinds["loads"]
    assert (loads.turns / loads.requests, loads.asked / loads.requests) == (sectors, asked)


def test_vectors_are_one_request() -> None:
    found = counted("((float4*)a)[i] = ((const float4*)b)[i];")
    assert found.kinds["loads"] == (12, 12 * 512, 12 * 512, 12 * 16) == found.kinds["stores"]


def test_lanes_that_do_not_come_along() -> None:
    loads = counted("if (t % 2) a[i] = b[i]; if (t < 40) a[i] = 1.0f;").kinds
    assert loads["loads"][:2] == (12, 12 * 64)  # half of each sector is asked for
    assert loads["loads"].efficiency == 0.5
    assert loads["stores"].requests == 12 + BLOCKS * 2


def test_rounds_are_requests_of_their_own() -> None:
    found = counted("for (int k = 0; k < t % 4 + 1; k++) a[i] += b[i + 64 * k];")
    assert found.kinds["loads"].requests == 2 * 4 * 12


@pytest.mark.parametrize(("place", "turns"), [("t", 1), ("2 * t", 2), ("32 * (t % 32)", 32), ("33 * (t % 32)", 1), ("t / 32", 1),
                                              ("(t % 8) * 32 + t % 32 / 8", 8)])
def test_turns_of_the_banks(place: str, turns: int) -> None:
    stores = counted(f"kept[{place}] = 1.0f;", "__shared__ float kept[1100];").shared
    assert stores.turns == turns * stores.requests == turns * 12 and stores.efficiency == 1 / turns


def test_wide_accesses_of_shared_memory_go_in_parts() -> None:
    stores = counted("kept[t] = ((const float4*)b)[t];", "__shared__ float4 kept[64];").shared
    assert stores.turns == 4 * stores.requests and stores.efficiency == 1.0


def test_changes_of_one_word_wait_for_each_other() -> None:
    zeroed = "__shared__ int kept[1]; if (threadIdx.x == 0) kept[0] = 0; __syncthreads();"
    assert counted("atomicAdd(kept, 1);", zeroed).kinds["shared changes"].turns == 32 * 12
    assert counted("atomicAdd(kept + t, 1);", "__shared__ int kept[64];").kinds["shared changes"].turns == 12


def test_copies_past_the_registers_are_two_requests() -> None:
    found = counted("copy_async_4(kept + t, b + i); copy_async_commit(); copy_async_wait<0>();", "__shared__ float kept[64];")
    assert found.kinds["loads"].turns == 48 and found.kinds["shared stores"].turns == 12


def test_some_blocks_stand_for_all() -> None:
    found = counted("a[i] = b[i];", blocks=2)
    assert found.blocks == (2, 6) and found.memory.requests * found.scale == 24


def test_what_all_blocks_read_is_told_from_what_each_does() -> None:
    found = counted("a[i] = b[t] + b[t];", blocks=3)
    assert found.sectors == (3 * 8, 8) and found.touched == 32 * (6 * 8 + 8)


def test_the_line_that_wastes_is_named() -> None:
    kernel = written("a[i] = b[i];\n  a[i] += b[16 * t];")
    a = np.zeros(BLOCKS * THREADS * 64, np.float32)
    line, kind, _ = traffic.count(kernel, [a.ctypes.data, a.ctypes.data])["k"].worst()
    assert kind == "loads" and (not line or kernel.source.splitlines()[line - 1] == "  a[i] += b[16 * t];")


def test_a_map_is_counted_without_its_memory() -> None:
    """Only what the blocks touch must be there, so a launch may be of any size."""
    x, n = E.input(0, float32), 1 << 14
    memory = np.zeros(2 * n + 32, np.float32)
    a = memory.ctypes.data + -memory.ctypes.data % 128
    kernel = render(Map((x + 1.0,), (float32,)), (n,), ((1,), (1,)))
    (found,) = traffic.count(kernel, [a, a + 4 * n], 1).values()
    assert found.blocks[0] == 1 and found.memory.efficiency == 1.0


def test_the_reads_of_the_busiest_thread() -> None:
    assert counted("a[i] = b[i];").longest == 1
    assert counted("for (int k = 0; k < (i == 70 ? 50 : 3); k++) a[i] += b[i + k];").longest == 100
    assert counted("a[i] = 1.0f; kept[t] = 2.0f; a[i + 1] = kept[t];", "__shared__ float kept[64];").longest == 0
