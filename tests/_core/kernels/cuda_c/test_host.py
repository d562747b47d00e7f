"""The harness itself: what hand-written kernels may use works as on the device, and what they may not do is found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flambeau._core.kernels.cuda_c import Kernel, helpers
from tests._core.kernels.cuda_c import host

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
RNG = np.random.default_rng(3)


def made(body: str, operands: int, grid: int = 1, block: int = 32, shared: int = 0, name: str = "k", needs: tuple[str, ...] = ()) -> Kernel:
    """A kernel of one function; its operands are p0, p1, ... to ints unless the body casts them."""
    pointers = "".join(f"  int* const p{k} = (int*)a.w[{k}];\n" for k in range(operands))
    text = (f"struct Args {{ unsigned long long w[{operands}]; }};\n{helpers.text(set(needs))}\n"
            f'extern "C" __global__ void __launch_bounds__({block}) {name}(const Args a) {{\n  const int t = threadIdx.x;\n{pointers}{body}\n}}\n')
    return Kernel(text, ((name, (grid, 1, 1), (block, 1, 1), shared),), "P" * operands, (), 0, 0, 0)


def carry(kernel: Kernel, *arrays: np.ndarray, orders: tuple[int, ...] = host.ORDERS) -> None:
    batch = host.Batch([kernel])
    before = [a.copy() for a in arrays]
    results = []
    for order in orders:
        for a, b in zip(arrays, before):
            a[...] = b
        batch.launch(kernel, list(arrays), [a.ctypes.data for a in arrays], order)
        results.append([a.tobytes() for a in arrays])
    assert all(r == results[0] for r in results[1:])


def test_dynamic_shared_memory_and_arrays_of_arrays() -> None:
    kernel = made("""
  extern __shared__ __align__(16) int wide[];
  __shared__ int tile[4][33];
  __shared__ int total;
  wide[t] = p1[t];
  tile[t / 32][t % 32] = p1[t];
  if (t == 0) total = 5;
  __syncthreads();
  p0[t] = wide[127 - t] + tile[t % 4][t / 4] + total;""", 2, 1, 128, 60000)
    x, out = RNG.integers(0, 99, 128).astype("i4"), np.zeros(128, "i4")
    carry(kernel, out, x)
    np.testing.assert_array_equal(out, x[::-1] + x.reshape(4, 32).T.reshape(-1) + 5)


def test_votes_matches_and_shuffles_by_parts() -> None:
    kernel = made("""
  const unsigned ballot = __ballot_sync(0xffffffffu, p1[t] & 1), low = __match_any_sync(0xffffffffu, p1[t] & 3);
  int sum = p1[t];
  for (int k = 4; k > 0; k >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, k, 8);
  const int part = t < 8 ? __shfl_sync(0xffu, p1[t], 7 - t) : 0;
  p0[4 * t] = (int)ballot; p0[4 * t + 1] = (int)low; p0[4 * t + 2] = t % 8 ? 0 : sum; p0[4 * t + 3] = part + __reduce_max_sync(0xffffffffu, p1[t]);""", 2)
    x, out = RNG.integers(0, 99, 32).astype("i4"), np.zeros((32, 4), "i4")
    carry(kernel, out, x)
    assert (out[:, 0].view("u4") == sum(1 << i for i in range(32) if x[i] & 1)).all()
    assert [int(v) for v in out[:, 1].view("u4")] == [sum(1 << i for i in range(32) if (x[i] ^ x[j]) & 3 == 0) for j in range(32)]
    np.testing.assert_array_equal(out[::8, 2], x.reshape(4, 8).sum(1))
    np.testing.assert_array_equal(out[:, 3], np.where(np.arange(32) < 8, np.roll(x[::-1], 8), 0) + x.max())


def test_atomics_and_the_last_block() -> None:
    """Blocks add to shared and global counters; the last to come adds up what all have left."""
    kernel = made("""
  __shared__ int bins[8];
  __shared__ bool last;
  const int i = blockIdx.x * 64 + t;
  if (t < 8) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[p1[i] & 7], 1);
  __syncthreads();
  if (t < 8) p2[blockIdx.x * 8 + t] = bins[t];
  atomicMax(&p3[1], p1[i]);
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicAdd((unsigned*)p3, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last && t < 8) {
    int sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += p2[b * 8 + t];
    p0[t] = sum;
  }
  if (last && t == 0) p3[0] = 0;""", 4, 5, 64)
    x = RNG.integers(0, 1000, 320).astype("i4")
    out, work, count = np.zeros(8, "i4"), np.full(40, -1, "i4"), np.zeros(2, "i4")
    carry(kernel, out, x, work, count)
    np.testing.assert_array_equal(out, np.bincount(x & 7, minlength=8))
    assert count.tolist() == [0, x.max()]


@pytest.mark.parametrize("bits", ["float16", "tf32"])
def test_tensor_cores_and_asynchronous_copies(bits: str) -> None:
    k = 16 if bits == "float16" else 8
    load = ("""
  unsigned r[4], s[2];
  load_matrices(r, &as[(t % 8 + t / 8 % 2 * 8) * 16 + t / 16 * 8]);
  load_matrices_transposed(s, &bs[t % 16 * 8]);""" if k == 16 else """
  const unsigned* u = (const unsigned*)as; const unsigned* v = (const unsigned*)bs;
  const unsigned r[4] = {u[t / 4 * 8 + t % 4], u[(t / 4 + 8) * 8 + t % 4], u[t / 4 * 8 + t % 4 + 4], u[(t / 4 + 8) * 8 + t % 4 + 4]};
  const unsigned s[2] = {v[t % 4 * 8 + t / 4], v[(t % 4 + 4) * 8 + t / 4]};""")
    kernel = made(f"""
  __shared__ __align__(16) unsigned short as[256];
  __shared__ __align__(16) unsigned short bs[128];
  copy_async_16(&as[t * 8], (const unsigned short*)p1 + t * 8);
  if (t < 16) copy_async_16(&bs[t * 8], (const unsigned short*)p2 + t * 8);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
{load}
  float d[4] = {{1, 1, 1, 1}};
  mma_{bits}(d, r, s);
  float* o = (float*)p0 + t / 4 * 8 + t % 4 * 2;
  o[0] = d[0]; o[1] = d[1]; o[64] = d[2]; o[65] = d[3];""", 3, needs=("copy_async", "mma", "load_matrices"))
    kind = "f2" if k == 16 else "f4"
    a, b, out = (RNG.integers(-8, 8, (16, k)).astype(kind), RNG.integers(-8, 8, (k, 8)).astype(kind), np.zeros((16, 8), "f4"))
    carry(kernel, out, a, b)
    np.testing.assert_array_equal(out, a.astype("f4") @ b.astype("f4") + 1)


def test_a_warps_barrier_orders_its_memory() -> None:
    kernel = made("""
  __shared__ int x[64];
  x[t] = p1[t];
  __syncwarp();
  const int other = x[t ^ 1];
  __syncwarp();
  x[t ^ 1] = other;  // each puts back what it took
  __syncwarp();
  p0[t] = x[t];""", 2, 1, 64)
    x, out = RNG.integers(0, 99, 64).astype("i4"), np.zeros(64, "i4")
    carry(kernel, out, x)
    np.testing.assert_array_equal(out, x)


BROKEN = {
    "reads shared memory that nobody wrote": "extern __shared__ int x[]; if (t) x[t] = 1; __syncthreads(); p0[t] = x[31 - t];",
    "out of bounds of every shared array": "extern __shared__ int x[]; x[t + 1] = 1;",
    "with no barrier between": "__shared__ int x[32]; x[t] = 1; __syncwarp(0xffffu << 16 * (t / 16)); p0[t] = x[t ^ 16];",
    "what thread": "atomicAdd(&p0[0], 1); if (t == 5) p0[0] = 3;",
    "block . (reads|changes atomically) what block": "if (t == 0 && blockIdx.x == 1) p0[1] = p0[0]; else if (t == 0) atomicAdd(&p0[0], 1);",
    "what block": "if (t == 0) { p0[blockIdx.x] = 1; atomicAdd(&p0[9], 1); p0[3 + blockIdx.x] = p0[blockIdx.x ^ 1]; }",
    "reads shared memory": "__shared__ __align__(16) int x[4]; if (t == 0) { copy_async_16(x, p1); copy_async_commit(); p0[0] = x[0]; copy_async_wait<0>(); }",
    "names the lanes": "__ballot_sync(t < 16 ? 0xffffffffu : 0xffff0001u, 1);",
    "does not name its own lane": "__shfl_sync(0xffffu, t, 0);",
    "reads lane": "p0[t] = __shfl_sync(0xffffffffu, t, t + 1);",
    "has ended": "if (t == 3) return; __ballot_sync(0xffffffffu, 1);",
    "wait at different barriers": "if (t < 16) {\n__syncthreads();\n} else\n__syncthreads();",
    "an assertion that fails: p1": "assert(p1[t] < 31);",
    "must be dynamic": "__shared__ int x[12289]; x[t] = 1;",
    "no multiple of them": "((long long*)(p0 + 1))[t % 2] = 1;",
}


def test_what_no_kernel_may_do_is_found() -> None:
    kernels = {what: made(body, 2, 2 if "block" in what else 1, 32, 128, f"broken{k}", ("copy_async",)) for k, (what, body) in enumerate(BROKEN.items())}
    batch = host.Batch(list(kernels.values()))
    for what, kernel in kernels.items():
        out, x = np.zeros(40, "i8"), np.arange(32, dtype="i4")
        for order in host.ORDERS:
            with pytest.raises(host.LaunchError) as found:
                batch.launch(kernel, [out, x], [out.ctypes.data, x.ctypes.data], order)
            assert re.search(what, str(found.value)), (what, str(found.value))


def test_too_much_shared_memory() -> None:
    kernel = made("p0[t] = 1;", 1, shared=(227 << 10) + 1, name="large")
    out = np.zeros(32, "i4")
    with pytest.raises(host.LaunchError, match="more shared memory than there is"):
        host.Batch([kernel]).launch(kernel, [out], [out.ctypes.data])
