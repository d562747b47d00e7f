"""Random numbers of GPUs: those that PyTorch prints on NVIDIA's, and beside a plain Philox in NumPy, for every layout of elements over threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

T = 132 * 8 * 256  # threads that PyTorch starts at most on an H200


@pytest.fixture(autouse=True)
def _h200():
    with fb.simulate(gpus=1, model="H200"), fb.random.fork_rng():
        yield


def words(seed: int, block: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """Philox4x32-10 of 64 bits of block and 64 of thread: (n, 4) words."""
    c = [np.asarray(x, np.uint64) & 0xFFFFFFFF for x in (block, block >> 32, thread, thread >> 32)]
    k = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & np.uint64(0xFFFFFFFF), (a >> np.uint64(32)) ^ c[3] ^ k[1], a & np.uint64(0xFFFFFFFF)]
        k = [(k[0] + np.uint64(0x9E3779B9)) & np.uint64(0xFFFFFFFF), (k[1] + np.uint64(0xBB67AE85)) & np.uint64(0xFFFFFFFF)]
    return np.stack(c, -1)


def drawn(n: int, each: int, seed: int = 7, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The block of each of n elements, and which of its numbers is the element's."""
    threads = min(T, -(-n // 256) * 256)
    i = np.arange(n, dtype=np.uint64)
    row = i // threads
    return words(seed, offset // 4 + row // each, i % threads), (row % each).astype(int)


def single(w: np.ndarray, lane: np.ndarray) -> np.ndarray:
    return (w[np.arange(len(w)), lane].astype(np.float32) * np.float32(2.0 ** -32) + np.float32(2.0 ** -33)).astype(np.float32)


def double(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return (low ^ (high << np.uint64(21))).astype(np.float64) * 2.0 ** -53 + 2.0 ** -54


SIZES = (1, 5, 1000, T, T + 3, 2 * T, 4 * T, 5 * T + 77)


def test_the_numbers_that_pytorch_prints_on_a_gpu() -> None:
    fb.manual_seed(0)
    assert [round(x, 4) for x in fb.rand(10, device="cuda").tolist()] == [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096]
    assert [round(x, 4) for x in fb.rand(4, device="cuda").tolist()] == [0.9722, 0.7910, 0.4690, 0.3300]
    fb.manual_seed(0)
    assert [round(x, 4) for x in fb.randn(2, 8, device="cuda")[1].tolist()] == [-1.0745, -0.3631, -1.6711, 2.2655, 0.3117, -0.1842, 1.2866, 1.1820]
    fb.manual_seed(0)
    got = fb.randn(8, 8, device="cuda", dtype=fb.float64)[0]
    assert [round(x, 4) for x in got.tolist()] == [-0.3104, -0.0343, 0.1756, -2.2804, 0.5039, 0.5596, -0.0750, 0.9691]


@pytest.mark.parametrize("n", SIZES)
def test_uniform_numbers(n: int) -> None:
    fb.cuda.manual_seed(7)
    first, then = fb.rand(n, device="cuda").cpu().numpy(), fb.rand(3, device="cuda").cpu().numpy()
    want = single(*drawn(n, 4))
    np.testing.assert_array_equal(first, np.where(want == 1, 0, want))
    used = ((n - 1) // (min(T, -(-n // 256) * 256) * 4) + 1) * 4
    np.testing.assert_array_equal(then, single(*drawn(3, 4, offset=used)))
    assert fb.cuda.default_generators[0].get_offset() == used + 4
    fb.cuda.manual_seed(7)
    wide = fb.rand(n, device="cuda", dtype=fb.float64).cpu().numpy()
    w, lane = drawn(n, 2)
    np.testing.assert_array_equal(wide, np.where(lane == 0, double(w[:, 0], w[:, 1]), double(w[:, 2], w[:, 3])))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=4), st.integers(0, (1 << 64) - 1))
def test_one_draw_after_the_other(sizes: list[int], seed: int) -> None:
    fb.cuda.manual_seed(seed)
    for k, n in enumerate(sizes):
        want = single(*drawn(n, 4, seed, 4 * k))
        np.testing.assert_array_equal(fb.rand(n, device="cuda").cpu().numpy(), np.where(want == 1, 0, want))


@pytest.mark.parametrize("n", (5, T + 3, 5 * T + 77))
def test_normal_numbers_are_pairs(n: int) -> None:
    fb.cuda.manual_seed(7)
    got = fb.empty(n, device="cuda").normal_(2.0, 3.0).cpu().numpy()
    w, lane = drawn(n, 4)
    radius, angle = [single(w, lane // 2 * 2 + k).astype(np.float64) for k in (0, 1)]
    z = np.sqrt(-2 * np.log(radius)) * np.where(lane % 2, np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle))
    np.testing.assert_allclose(got, 2 + 3 * z, rtol=2e-5, atol=2e-5)
    fb.cuda.manual_seed(7)
    got = fb.randn(n, device="cuda", dtype=fb.float64).cpu().numpy()
    w, lane = drawn(n, 2)
    radius, angle = double(w[:, 0], w[:, 1]), (w[:, 2] ^ (w[:, 3] << np.uint64(21))).astype(np.float64) * 2.0 ** -52 + 2.0 ** -53
    np.testing.assert_allclose(got, np.sqrt(-2 * np.log(radius)) * np.where(lane, np.cos(np.pi * angle), np.sin(np.pi * angle)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", (5, 5 * T + 77))
def test_integers(n: int) -> None:
    fb.cuda.manual_seed(7)
    got = [fb.randint(-3, 1000, (n,), device="cuda"), fb.randint(5, 1 << 40, (n,), device="cuda"), fb.empty(n, dtype=fb.int32, device="cuda").random_(),
           fb.empty(n, dtype=fb.int64, device="cuda").random_(), fb.empty(n, dtype=fb.bool, device="cuda").random_(),
           fb.empty(n, dtype=fb.int64, device="cuda").random_(-1 << 63, None)]
    offset, want = 0, []
    for each, low, span in ((4, -3, 1003), (2, 5, (1 << 40) - 5), (4, 0, 1 << 31), (2, 0, 1 << 63), (4, 0, 2), (2, -1 << 63, 0)):
        w, lane = drawn(n, each, offset=offset)
        word = w[np.arange(n), lane] if each == 4 else np.where(lane == 0, (w[:, 0] << np.uint64(32)) | w[:, 1], (w[:, 2] << np.uint64(32)) | w[:, 3])
        want.append((word % np.uint64(span) if span else word).view(np.int64) + np.int64(low))
        offset += ((n - 1) // (min(T, 256 * -(-n // 256)) * each) + 1) * 4
    for g, v in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.cpu().numpy().astype(np.int64), v)


def test_distributions_of_one_uniform_number() -> None:
    n = 4001
    u = single(*drawn(n, 4)).astype(np.float64)

    def made(f):
        fb.cuda.manual_seed(7)
        return f(fb.empty(n, device="cuda")).cpu().numpy()
    np.testing.assert_allclose(made(lambda t: t.exponential_(2.0)), -np.log(u) / 2, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(made(lambda t: t.cauchy_(1.0, 2.0)), 1 + 2 * np.tan(np.pi * (u - 0.5)), rtol=2e-3, atol=1e-4)
    assert (made(lambda t: t.geometric_(0.3)) == np.maximum(np.ceil(np.log(u) / np.log1p(-0.3)), 1)).mean() > 0.999
    np.testing.assert_array_equal(made(lambda t: t.bernoulli_(0.3)), (u < 0.3).astype(np.float32))
    np.testing.assert_allclose(made(lambda t: t.uniform_(-2, 5)), -2 + 7 * u, rtol=1e-5, atol=1e-5)
    assert (made(lambda t: t.exponential_()) > 0).all()


@pytest.mark.parametrize("d", (fb.float32, fb.bfloat16, fb.float64), ids=str)
@pytest.mark.parametrize("n", (8, 6, 7, 12, 4 * T + 4, 8 * T + 8, 16 * T + 16, 6 * T + 2))
def test_dropout_gives_a_blocks_numbers_to_neighbours(n: int, d: fb.dtype) -> None:
    fb.cuda.manual_seed(7)
    got = fb.nn.functional.dropout(fb.ones(n, device="cuda", dtype=d), 0.25).float().cpu().numpy()
    fb.cuda.manual_seed(7)
    again, mask = fb.native_dropout(fb.ones(n, device="cuda", dtype=d), 0.25, True)
    i, threads = np.arange(n, dtype=np.uint64), min(T, -(-n // 256) * 256)
    if n % 8 == 0 and d is fb.bfloat16:
        chunk = i // 8
        w, lane = words(7, chunk // threads * 2 + i % 8 // 4, chunk % threads), (i % 4).astype(int)
    elif n % 4 == 0 and d is not fb.float64:
        chunk = i // 4
        w, lane = words(7, chunk // threads, chunk % threads), (i % 4).astype(int)
    elif n % 2 == 0:
        chunk = i // 2
        turn = chunk // threads
        w, lane = words(7, turn // 2, chunk % threads), (turn % 2 * 2 + i % 2).astype(int)
    else:
        w, lane = drawn(n, 4)
    keep = single(w, lane) < 0.75
    np.testing.assert_allclose(got, keep / np.float32(0.75), rtol=4e-3 if d is fb.bfloat16 else 1e-6)
    np.testing.assert_array_equal(mask.cpu().numpy(), keep)
    np.testing.assert_array_equal(again.float().cpu().numpy(), got)


def test_chances_of_a_tensor() -> None:
    n = 1003
    p = fb.linspace(0, 1, n)
    fb.cuda.manual_seed(7)
    got = fb.bernoulli(p.cuda()).cpu().numpy()
    i = np.arange(n, dtype=np.uint64)
    u = single(words(7, i * 0, i // 4), (i % 4).astype(int))
    np.testing.assert_array_equal(got, (u <= p.numpy()).astype(np.float32))
    assert fb.cuda.default_generators[0].get_offset() == 12


@pytest.mark.parametrize("replacement", (False, True))
def test_choices_are_a_race(replacement: bool) -> None:
    p = fb.rand(3, 50, generator=fb.Generator().manual_seed(1))
    fb.cuda.manual_seed(7)
    got = fb.multinomial(p.cuda(), 1 if replacement else 4, replacement).cpu().numpy()
    u = single(*drawn(150, 4)).reshape(3, 50).astype(np.float64)
    order = np.argsort(-(p.numpy() / -np.log(u)), -1)
    np.testing.assert_array_equal(got, order[:, :got.shape[1]])
    many = fb.multinomial(p.cuda(), 4000, True).cpu().numpy()
    share = np.bincount(many[0], minlength=50) / 4000
    assert np.abs(share - p[0].numpy() / p[0].sum().item()).max() < 0.02


@pytest.mark.parametrize("n", (1, 2, 10, 300, 30_000, 40_000, T + 5))
@pytest.mark.parametrize("seed", (0, 7))
def test_permutations_are_sorted_keys(n: int, seed: int) -> None:
    fb.cuda.manual_seed(seed)
    got = fb.randperm(n, device="cuda").cpu().numpy()
    bits = int(np.ceil(np.log2(n - (6.0 * n * n + 1) / (12 * np.log(0.9)))))
    w, lane = drawn(n, 2, seed)
    word = np.where(lane == 0, (w[:, 0] << np.uint64(32)) | w[:, 1], (w[:, 2] << np.uint64(32)) | w[:, 3])
    span = (1 << 32) - 1 if bits <= 32 else (1 << 64) - 1
    keys = (word % np.uint64(span) + np.uint64(1 << 31 if bits <= 32 else 1 << 63)) & np.uint64((1 << bits) - 1)
    if bits == 32:  # the sign is one of them
        keys = keys.astype(np.uint32).view(np.int32)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    own = words(seed, np.full(n, (fb.cuda.default_generators[0].get_offset() - 4) // 4, np.uint64), np.arange(n, dtype=np.uint64))[:, 0]
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))  # of equal keys
    sizes = np.diff(np.append(begins, n))
    turned = begins[sizes == 2]
    turned = turned[own[turned] % 2 == 0]
    order[turned], order[turned + 1] = order[turned + 1], order[turned]
    known = np.repeat(sizes < 3, sizes)
    assert known.mean() > 0.9
    np.testing.assert_array_equal(got[known], order[known])
    assert sorted(got.tolist()) == list(range(n))
    assert fb.randperm(5, device="cuda", dtype=fb.int32).dtype is fb.int32 and fb.randperm(0, device="cuda").shape == (0,)


def test_elements_are_drawn_in_the_order_of_memory() -> None:
    fb.cuda.manual_seed(7)
    flat = fb.rand(12, device="cuda").cpu()
    fb.cuda.manual_seed(7)
    turned = fb.empty(4, 3, device="cuda").t().uniform_().cpu()
    assert fb.equal(turned.t(), flat.view(4, 3))
    fb.cuda.manual_seed(7)
    every_other = fb.zeros(12, 2, device="cuda")
    every_other[:, 0].uniform_()
    assert fb.equal(every_other[:, 0].cpu(), flat) and not every_other[:, 1].any()
    for d in (fb.float16, fb.bfloat16):
        fb.cuda.manual_seed(7)
        half = fb.rand(12, device="cuda", dtype=d).cpu()
        assert fb.equal(half, fb.where(flat.to(d) == 1, fb.zeros((), dtype=d), flat.to(d)))
    fb.cuda.manual_seed(7)
    assert fb.rand(0, device="cuda").shape == (0,) and fb.cuda.default_generators[0].get_offset() == 0


def test_a_state_goes_back_and_forth() -> None:
    fb.cuda.manual_seed(7)
    fb.rand(5, device="cuda")
    state = fb.cuda.get_rng_state()
    assert bytes(state.tolist()) == (7).to_bytes(8, "little") + (4).to_bytes(8, "little")
    a = fb.randn(5, device="cuda")
    fb.cuda.set_rng_state(state)
    assert fb.equal(fb.randn(5, device="cuda"), a)
