"""Numbers and lists from memory and back, against NumPy."""

import gc
import sys

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.kernels import host_values

SHAPES = [(), (1,), (3,), (2, 3), (2, 0), (0, 2), (2, 1, 3)]


def _array(d, shape):
    a = np.arange(-2, int(np.prod(shape)) - 2).reshape(shape) * 1.5 if shape else np.array(-1.5)
    return np.asarray(a + 2j * a if d.kind == "c" else abs(a) if d.kind == "u" else a, d.np)


@pytest.fixture(params=["machine code", "NumPy"])
def way(request, monkeypatch):
    """Both ways of reading."""
    for made in (host_values._builtins, host_values.reader, host_values.writer):
        made.cache_clear()
    if request.param == "NumPy":
        monkeypatch.setenv("FLAMBEAU_KERNELS", "interpret")
    yield request.param
    for made in (host_values._builtins, host_values.reader, host_values.writer):
        made.cache_clear()


@pytest.mark.parametrize("d", [d for d in dtypes.ALL if d not in dtypes.BITS], ids=str)
def test_a_reader_gives_what_tolist_gives(d, way):
    for shape in SHAPES:
        a = _array(d, shape)
        wide = np.zeros([2 * n for n in shape], a.dtype)[(*(slice(None, None, 2) for _ in shape), ...)]  # every other element
        wide[...] = a
        for x in (a, a.T, wide):
            read = host_values.reader(x.shape, tuple(s // x.itemsize for s in x.strides), d)
            found = read(x.ctypes.data)
            assert found == x.tolist() and repr(found) == repr(x.tolist())


def test_bfloat16_and_extremes(way):
    bits = np.array([0x3FC0, 0x7F80, 0xFF80, 0x8000], np.uint16)  # 1.5, inf, -inf, -0.0
    assert repr(host_values.reader((4,), (1,), dtypes.bfloat16)(bits.ctypes.data)) == "[1.5, inf, -inf, -0.0]"
    for d in (dtypes.int64, dtypes.uint64, dtypes.int8, dtypes.uint8):
        a = np.array([np.iinfo(d.np).min, np.iinfo(d.np).max], d.np)
        assert host_values.reader((2,), (1,), d)(a.ctypes.data) == [np.iinfo(d.np).min, np.iinfo(d.np).max]
    nothing = np.array(np.nan, np.float32)
    assert np.isnan(host_values.reader((), (), dtypes.float32)(nothing.ctypes.data))


@pytest.mark.parametrize("nested, d, good", [
    ([[1.5, 2], [3, -0.0]], dtypes.float32, True), (((1.5, 2.0), [3.0, 4.0]), dtypes.float64, True), ([[1, 2], [3, -4]], dtypes.int64, True),
    ([[True, False], [False, True]], dtypes.bool_, True), ([[1e300, float("-inf")], [2, 3]], dtypes.float32, True),
    ([[1.5, 2], [3]], dtypes.float32, False), ([[1, 2], [3, 4.0]], dtypes.int64, False), ([[1, 2], [3, True]], dtypes.int64, False),
    ([[1, 2], [3, 2**63]], dtypes.int64, False), ([[1.0, 2], [3, True]], dtypes.float32, False), ([[1.0, 2], [3, 10**400]], dtypes.float64, False),
    ([[True, 1], [0, 1]], dtypes.bool_, False), ([[1.0, 2], [3, "4"]], dtypes.float32, False), ([[1.0, 2], 3], dtypes.float32, False),
    ([1.0, 2.0], dtypes.float32, False), ([[[1.0], 2], [3, 4]], dtypes.float32, False), ([[np.float64(1), 2], [3, 4]], dtypes.float32, False),
    (3.0, dtypes.float32, False), ([[1.0, 2], {3: 4, 5: 6}], dtypes.float32, False)])
def test_a_writer_takes_plain_numbers_of_its_shape_only(nested, d, good):
    out = np.zeros((2, 2), d.np)
    write = host_values.writer((2, 2), (2, 1), d)
    assert write(out.ctypes.data, nested) is good
    if good:
        with np.errstate(over="ignore"):
            want = np.array(nested, np.float64 if d.kind == "f" else d.np).astype(d.np)
        assert out.tobytes() == want.tobytes()


def test_there_is_no_writer_for_other_types():
    assert host_values.writer((2,), (1,), dtypes.float16) is None and host_values.writer((2,), (1,), dtypes.uint8) is None


def test_nothing_is_kept():
    a, nested = np.arange(12.0).reshape(3, 4), [[float(i + 4 * j) for i in range(4)] for j in range(3)]
    read, write = host_values.reader((3, 4), (4, 1), dtypes.float64), host_values.writer((3, 4), (4, 1), dtypes.float64)
    p = a.ctypes.data
    for _ in range(3):
        read(p), write(p, nested), write(p, [1])
    gc.collect()
    before, held = sys.getallocatedblocks(), sys.getrefcount(nested[0])
    for _ in range(1000):
        read(p), write(p, nested), write(p, [1])
    kept, holds = sys.getallocatedblocks() - before, sys.getrefcount(nested[0])
    assert holds == held and kept < 100


def test_an_address_must_be_a_number():
    with pytest.raises(TypeError):
        host_values.reader((2,), (1,), dtypes.float32)("0")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "strides"), [((), ()), ((4,), (1,)), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((3, 2), (0, 1)), ((0, 3), (3, 1)),
                                               ((2, 1, 2), (4, 4, 2))])
def test_viewers_show_memory_as_numpy_does(dtype, shape, strides):
    """An array like that of `interpret.memory`, in every property, whose memory lives as long as it does."""
    block = np.arange(64, dtype=np.uint8).repeat(2)
    step = dtype.itemsize
    expected = np.lib.stride_tricks.as_strided(block[:len(block) // step * step].view(dtype.np), shape, [s * step for s in strides])
    references = sys.getrefcount(block)
    made = host_values.viewer(shape, strides, dtype)(block.ctypes.data, block)
    assert type(made) is np.ndarray and made.dtype == expected.dtype and made.shape == shape
    assert np.array_equal(made, expected, equal_nan=dtype.kind in "fc" and dtype is not dtypes.bfloat16)
    if made.size:
        assert made.strides == expected.strides and made.flags.num & ~4 == expected.flags.num & ~4  # 4: it owns its memory, which neither does
        assert not made.flags.owndata and made.flags.writeable and sys.getrefcount(block) > references
        made[...] = 1
        assert expected.reshape(-1)[0] == 1
    del made
    assert sys.getrefcount(block) == references


def test_viewers_take_an_address_and_an_owner():
    view = host_values.viewer((2,), (1,), dtypes.float32)
    for wrong in ((), (1,), (1, 2, 3)):
        with pytest.raises(TypeError):
            view(*wrong)


class Held:
    """What stands for a tensor: it has an address."""

    __slots__ = ("ptr",)


def test_elements_are_read_from_what_has_the_address_and_become_a_class(way):
    a, asked = np.array([2.75]), []
    held = Held()
    held.ptr = a.ctypes.data

    def otherwise(x):
        asked.append(x)
        return "otherwise"
    watching = {}
    for shape, strides, convert, wanted in (((), (), None, 2.75), ((), (), int, 2), ((), (), float, 2.75), ((), (), bool, True), ((), (), complex, 2.75 + 0j),
                                            ((1,), (1,), None, [2.75])):
        read = host_values.element_reader(shape, strides, dtypes.float64, Held, convert, watching, otherwise)
        if way == "NumPy":
            assert read is otherwise
            continue
        found = read(held)
        assert found == wanted and type(found) is type(wanted)
        watching[0] = None
        assert read(held) == "otherwise" and asked.pop() is held
        watching.clear()
        for other in (Held(), 3, None):  # without an address, and of other classes
            assert read(other) == "otherwise" and asked.pop() is other
    if way == "machine code":
        for bad in (float("nan"), float("inf")):
            a[0] = bad
            with pytest.raises((ValueError, OverflowError)):
                host_values.element_reader((), (), dtypes.float64, Held, int, watching, otherwise)(held)
