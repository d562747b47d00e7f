"""Sorting, selecting and searching by generated kernels, against NumPy's stable sort and searches: all types, lengths around the kernels'
thresholds, values that are special, equal or close together, any strides, one thread and several to the bit."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.drivers.cpu import backend, row_order
from flambeau._core.kernels import interpret, native, routines
from flambeau._core.kernels.specs import PARTED, Among, Element, Search, Sort
from flambeau._core.layout import contiguous_strides, numel
from tests import halving

REAL = [d for d in dtypes.ALL if not d.is_complex]
LENGTHS = (1, 2, 15, 16, 17, 64, 65, 143, 144, 145, 255, 256, 257, 300, 1000, 5000)


@pytest.fixture(autouse=True)
def threads_as_before():
    before = native.get_num_threads()
    yield
    native.set_num_threads(before)


def elements(d, rng, shape, spread):
    """Random elements as the type stores them, of about `spread` values, and what they are, for NumPy to compare."""
    v = rng.integers(-spread if d.is_signed else 0, spread + 1, shape)
    if d.kind == "b":
        v = v > spread // 2
    elif d.kind == "f":
        v = v * (rng.standard_normal(shape) if spread > 50 else 1.0)
        for special in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            v[rng.random(shape) < 0.05] = special
    else:
        v = np.clip(v, np.iinfo(d.np).min, np.iinfo(d.np).max)
    with np.errstate(all="ignore"):
        a = interpret.narrow_bfloat16(np.asarray(v, np.float32)) if d is dtypes.bfloat16 else np.asarray(v).astype(d.np)
    return a, interpret.load(a, d)


def in_order(v, descending=False):
    """Where a stable sort has the elements of each row, NaN the greatest."""
    n = v.shape[-1]
    return n - 1 - np.argsort(v[..., ::-1], -1, kind="stable")[..., ::-1] if descending else np.argsort(v, -1, kind="stable")


def carried_out(spec, outs, *sources):
    """A launch with its workspace."""
    made = backend.prepare(spec)
    room = ctypes.create_string_buffer(made.workspace + 64)
    made.entry(*[x.ctypes.data for x in (*outs, *sources)], *([(ctypes.addressof(room) + 63) & -64] if made.workspace else []))
    return made


def picked(kind, d, a, width, *numbers):
    """Values and places of a launch over the rows of a dense array."""
    to = (*a.shape[:-1], width)
    values, places = np.empty(to, a.dtype), np.full(to, -7, np.int64)
    packed = contiguous_strides(to)
    carried_out(kind(d, a.shape, (packed, packed, contiguous_strides(a.shape)), *numbers), (values, places), a)
    return values, places


def same(got, want, a):
    """Places, and the very bits of the values there."""
    values, places = got
    np.testing.assert_array_equal(places, want)
    assert values.tobytes() == np.take_along_axis(a, want, -1).tobytes()


def kth(a, d, k, at):
    """Which of the elements equal to the k-th is found; `at`: all in order.  test_program_lines_parity.py holds it against PyTorch."""
    found = row_order.kth(a.reshape(-1, a.shape[-1]), d, k).reshape(*a.shape[:-1], 1)
    np.testing.assert_array_equal(np.take_along_axis(row_order.keys(a, d), found, -1), np.take_along_axis(row_order.keys(a, d), at[..., k:k + 1], -1))
    return found if a.shape[-1] <= PARTED else at[..., k:k + 1]


@pytest.mark.parametrize("d", REAL, ids=str)
def test_rows_are_sorted_stably(d):
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        for spread in (3, 100, 1 << 30):
            a, v = elements(d, rng, (2, n), spread)
            for descending in (False, True):
                same(picked(Sort, d, a, n, descending, n), in_order(v, descending), a)
                few = max(1, n // 3)
                same(picked(Sort, d, a, few, descending, few), in_order(v, descending)[:, :few], a)


@pytest.mark.parametrize("d", REAL, ids=str)
def test_the_first_elements_and_single_ones(d):
    rng = np.random.default_rng(2)
    for n in LENGTHS:
        for spread in (3, 100, 1 << 30):
            a, v = elements(d, rng, (3, n), spread)
            if n % 2:
                a[0] = a[0][in_order(v[0])]  # rows that are in order already are the slowest to select from
                v = interpret.load(a, d)
            for k in {1, 5, 32, 33, n // 4} & set(range(1, n + 1)):
                same(picked(Sort, d, a, k, True, k), in_order(v, True)[:, :k], a)
                same(picked(Sort, d, a, k, False, k, False), in_order(v)[:, :k], a)
            at = in_order(v)
            for k in {0, n // 3, n - 1}:
                same(picked(Element, d, a, 1, k), kth(a, d, k, at), a)
            for which in ("median", "nanmedian"):
                nans = np.isnan(v).sum(-1) if d.kind == "f" else np.zeros(len(v), int)
                rank = np.maximum(n - nans - 1, 0) // 2 if which == "nanmedian" else np.where(nans > 0, n - nans, (n - 1) // 2)
                same(picked(Element, d, a, 1, 0, which), np.take_along_axis(at, rank[:, None], -1), a)


@pytest.mark.parametrize("d", REAL, ids=str)
def test_the_most_frequent_is_the_smallest_at_its_last_position(d):
    rng = np.random.default_rng(3)
    for n in LENGTHS:
        a, v = elements(d, rng, (2, n), 5 if n < 1000 else 1 << 30)
        values, places = picked(Element, d, a, 1, 0, "mode")
        for row, (x, place) in enumerate(zip(v, places[:, 0], strict=True)):
            found, counts = np.unique(x, return_counts=True, equal_nan=True)
            best = found[counts.argmax()]
            alike = np.isnan(x) if best != best else x == best
            assert place == np.nonzero(alike)[0][-1] and values[row, 0].tobytes() == a[row, place].tobytes()


@pytest.mark.parametrize("d", [dtypes.int64, dtypes.uint64, dtypes.float64], ids=str)
def test_wide_keys_that_differ_in_their_lowest_bits(d):
    """Two clusters far apart: the highest bits in which the keys differ say little."""
    rng = np.random.default_rng(4)
    for n in (200, 3000, 70_000):
        if d.kind == "f":
            v = np.where(rng.random(n) < 0.5, 1.0, -1e300) * (1 + rng.integers(0, 1000, n) * 2.0 ** -50)
        else:
            v = (rng.integers(0, 2, n) * (1 << 62) + rng.integers(0, 1000, n)).astype(d.np)
        a = v.reshape(1, n).astype(d.np)
        same(picked(Sort, d, a, n, False, n), in_order(a), a)
        same(picked(Sort, d, a, n, True, n), in_order(a, True), a)
        same(picked(Element, d, a, 1, n // 2), kth(a, d, n // 2, in_order(a)), a)


@pytest.mark.parametrize("d", [dtypes.uint8, dtypes.int16, dtypes.float32, dtypes.float64, dtypes.int64], ids=str)
def test_long_rows_and_many_rows_do_not_depend_on_threads(d):
    rng = np.random.default_rng(5)
    for shape in ((1, 300_001), (2, 32_769), (3, 70_000), (700, 300), (20_000, 4)):
        a, v = elements(d, rng, shape, 1 << 20)
        at, n = in_order(v), shape[-1]
        for threads in (1, 2, 3, 8):
            native.set_num_threads(threads)
            same(picked(Sort, d, a, n, False, n), at, a)
            same(picked(Sort, d, a, n, True, n), in_order(v, True), a)
            if n > 100:
                same(picked(Sort, d, a, 50, False, 50), at[:, :50], a)
            same(picked(Element, d, a, 1, n // 2), kth(a, d, n // 2, at), a)


@pytest.mark.parametrize("n", [5, 200, 1000])
@pytest.mark.parametrize("kind", ["sort", "first", "element"])
def test_any_strides(n, kind):
    """Rows along another axis, backwards in memory and with gaps, results laid out otherwise."""
    rng = np.random.default_rng(6)
    d = dtypes.float32
    base, _ = elements(d, rng, (n, 4, 6), 50)
    source = base[:, ::2, 1:5].transpose(1, 2, 0)
    shape = source.shape
    width = {"sort": n, "first": max(1, n // 8), "element": 1}[kind]
    to = (*shape[:-1], width)
    values = np.zeros((width, *shape[:-1], 2), np.float32)[..., 0].transpose(1, 2, 0)
    places = np.zeros((shape[1], shape[0], width), np.int64).transpose(1, 0, 2)
    assert values.shape == places.shape == to
    strides = tuple(tuple(s // x.itemsize for s in x.strides) for x in (values, places, source))
    spec = Element(d, shape, strides, n // 2) if kind == "element" else Sort(d, shape, strides, False, width)
    carried_out(spec, (values, places), source)
    want = in_order(source)
    want = kth(source, d, n // 2, want) if kind == "element" else want[..., :width]
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(source, want, -1))


@pytest.mark.parametrize("d", REAL, ids=str)
def test_values_are_found_where_bisect_finds_them(d):
    rng = np.random.default_rng(7)
    for n in (0, 1, 2, 3, 7, 8, 100, 1000):
        seq, v = elements(d, rng, (n,), 40)
        at = in_order(v)
        seq, v = seq[at], v[at]
        for m in (1, 5, 33, 300, 5000):
            wanted, w = elements(d, rng, (m,), 40)
            for right in (False, True):
                want = halving.places(v, w, right)
                for result in (dtypes.int32, dtypes.int64):
                    out = np.full(m, -5, result.np)
                    carried_out(Search(d, result, (m,), n, ((1,), (1,), (1,)), right), (out,), seq, wanted)
                    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("generated", [True, False])
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.bfloat16, dtypes.float64, dtypes.int16, dtypes.uint8], ids=str)
def test_rows_out_of_order_are_halved_all_the_same(d, generated, monkeypatch):
    if not generated:
        monkeypatch.setattr(routines, "generated", lambda: False)
    rng = np.random.default_rng(9)
    for n in (1, 2, 5, 6, 7, 50):
        seq, v = elements(d, rng, (n,), 9)
        wanted, w = elements(d, rng, (40,), 9)
        for right in (False, True):
            out = np.full(40, -5)
            carried_out(Search(d, dtypes.int64, (40,), n, ((1,), (1,), (1,)), right), (out,), seq, wanted)
            np.testing.assert_array_equal(out, halving.places(v, w, right))


def test_values_of_rows_and_strides():
    rng = np.random.default_rng(8)
    seq = np.sort(rng.standard_normal((3, 4, 50)).astype(np.float32), -1)
    wanted = rng.standard_normal((7, 4, 3)).astype(np.float32).transpose(2, 1, 0)
    out = np.zeros((4, 3, 7), np.int64).transpose(1, 0, 2)
    strides = tuple(tuple(s // x.itemsize for s in x.strides) for x in (out, seq, wanted))
    carried_out(Search(dtypes.float32, dtypes.int64, (3, 4, 7), 50, strides, False), (out,), seq, wanted)
    for i in range(3):
        for j in range(4):
            np.testing.assert_array_equal(out[i, j], np.searchsorted(seq[i, j], wanted[i, j]))


def test_what_search_leaves_to_others():
    assert backend.prepare(Search(dtypes.float32, dtypes.int64, (2,), 4, ((1,), (2,), (1,)), False)) is None
    assert backend.prepare(Search(dtypes.float32, dtypes.int64, (2,), 4, ((1,), (1,), (1,)), False, dtypes.float64)) is None
    assert backend.prepare(Sort(dtypes.complex64, (4,), ((1,), (1,), (1,)), False, 4)) is None


@pytest.mark.parametrize("d", [x for x in REAL if x is not dtypes.bool_], ids=str)
def test_members(d):
    rng = np.random.default_rng(9)
    for m in (0, 1, 3, 100, 1000):
        those, t = elements(d, rng, (m,), 40)
        for n in (1, 50, 9000):
            a, v = elements(d, rng, (n,), 60)
            for invert in (False, True):
                out = np.full(n, 9, np.uint8)
                carried_out(Among(((d, (n,), (1,)), (d, (m,), (1,))), (1,), False, invert), (out,), a, those)
                np.testing.assert_array_equal(out.astype(bool), np.isin(v, t, invert=invert))


def test_members_of_any_strides():
    rng = np.random.default_rng(10)
    a, those = rng.integers(0, 50, (6, 8, 10))[::2, :, ::3], rng.integers(0, 50, (9, 4)).T
    out = np.zeros((4, 8, 3), np.uint8).transpose(2, 1, 0)
    spec = Among(((dtypes.int64, a.shape, tuple(s // 8 for s in a.strides)), (dtypes.int64, those.shape, tuple(s // 8 for s in those.strides))),
                 tuple(out.strides), False, False)
    carried_out(spec, (out,), a, those)
    np.testing.assert_array_equal(out.astype(bool), np.isin(a, those))


def test_numpy_does_the_same_where_nothing_is_generated(monkeypatch):
    from flambeau._core.kernels import routines
    rng = np.random.default_rng(11)
    d = dtypes.float32
    a, _ = elements(d, rng, (3, 40), 10)
    seq, wanted = np.sort(rng.standard_normal(30).astype(np.float32)), rng.standard_normal(20).astype(np.float32)
    found = []
    for generated in (True, False):
        monkeypatch.setattr(routines, "_generated", generated)
        out, member = np.zeros(20, np.int64), np.zeros(20, np.uint8)
        carried_out(Search(d, dtypes.int64, (20,), 30, ((1,), (1,), (1,)), True), (out,), seq, wanted)
        carried_out(Among(((d, (20,), (1,)), (d, (30,), (1,))), (1,), False, True), (member,), wanted, seq)
        found.append([*picked(Sort, d, a, 40, True, 40), *picked(Sort, d, a, 7, False, 7), out, member,
                      *[x for which in ("", "median", "nanmedian", "mode") for x in picked(Element, d, a, 1, 6, which)]])
    for x, y in zip(*found, strict=True):
        assert x.tobytes() == y.tobytes()


def test_nothing_and_one():
    """No rows at all, and rows of one element."""
    d = dtypes.float32
    empty = np.zeros((0, 5), np.float32)
    picked(Sort, d, empty, 5, False, 5)
    one = np.ones((4, 1), np.float32)
    same(picked(Sort, d, one, 1, True, 1), np.zeros((4, 1), np.int64), one)
    assert numel(one.shape) == 4 and row_order.order(one, d).shape == (4, 1)


@pytest.mark.parametrize("d", [dtypes.uint16, dtypes.int32, dtypes.float32, dtypes.int64, dtypes.float64], ids=str)
def test_digits_that_say_nothing_of_one_another_are_not_relied_upon(d):
    """The highest digits seem to tell keys apart, and do not: they repeat one another."""
    rng = np.random.default_rng(12)
    n, bits = 5000, 8 * d.itemsize
    top = rng.integers(0, 120, n).astype(np.uint64)
    keys = np.zeros(n, np.uint64)
    for k in range(d.itemsize // 2):
        keys |= top << np.uint64(bits - 8 * (k + 1))
    keys |= rng.integers(0, 1 << bits // 2, n).astype(np.uint64)
    a = keys.astype(f"u{d.itemsize}").view(d.np).reshape(1, n)
    assert not np.isnan(a).any() if d.kind == "f" else True
    same(picked(Sort, d, a, n, False, n), in_order(a), a)
    a = a[:, ::-1].copy()
    same(picked(Sort, d, a, n, True, n), in_order(a, True), a)


def test_positions_alone():
    rng = np.random.default_rng(13)
    for d in (dtypes.float32, dtypes.int64):
        for n in (4, 100, 5000):
            a, v = elements(d, rng, (2, n), 1 << 20)
            values, places = picked(Sort, d, a, n, False, n, True, False)
            np.testing.assert_array_equal(places, in_order(v))
