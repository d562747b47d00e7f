"""The builtin behind native launches: arguments, errors, stages, references."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import numpy as np
import pytest

from flambeau._core.kernels import native
from flambeau._core.kernels.llvm import arguments
from flambeau._core.kernels.llvm import compile as compiler
from flambeau._core.kernels.llvm.translate import translate

# slots: copies block[0] argument slots to the address in slot 0; count: *(slot 0) += end - begin + block[1], atomically
IR = """
define void @flambeau_slots(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {
entry:
  %n = load i64, ptr %block
  %to = load ptr, ptr %args
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %body ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i64, ptr %args, i64 %k
  %v = load i64, ptr %p
  %q = getelementptr i64, ptr %to, i64 %k
  store i64 %v, ptr %q
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}
define void @flambeau_count(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {
  %to = load ptr, ptr %args
  %p = getelementptr i64, ptr %block, i64 1
  %extra = load i64, ptr %p
  %n = sub i64 %end, %begin
  %v = add i64 %n, %extra
  %old = atomicrmw add ptr %to, i64 %v seq_cst
  ret void
}
define void @flambeau_double(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {
  %to = load ptr, ptr %args
  %v = load i64, ptr %to
  %w = mul i64 %v, 2
  store i64 %w, ptr %to
  ret void
}
"""
NAMES = ("flambeau_slots", "flambeau_count", "flambeau_double")


@pytest.fixture(scope="module")
def code():
    return compiler.functions(("test entry", IR), NAMES, lambda: IR)


def slots(code, nargs, floats=()):
    return native.make_entry([(code["flambeau_slots"], 1, 1)], [nargs], nargs, floats)


class Whole(int):
    pass


class Real(float):
    pass


class Index:
    def __index__(self) -> int:
        return 1 << 50


EDGES = sorted({s * ((1 << b) + d) for b in (0, 8, 29, 30, 31, 47, 59, 60, 61, 62, 63, 64) for d in (-1, 0, 1) for s in (-1, 1)})


@pytest.mark.parametrize("kind", [int, Whole])
def test_ints_arrive_modulo_two_to_the_64(code, kind) -> None:
    fit = [v for v in EDGES if -(1 << 63) <= v < 1 << 64]
    out = np.zeros(1 + len(fit), np.uint64)
    slots(code, 1 + len(fit))(out.ctypes.data, *[kind(v) for v in fit])
    assert out[1:].tolist() == [v % (1 << 64) for v in fit]
    for v in EDGES:
        if v not in fit:
            with pytest.raises(OverflowError):
                slots(code, 2)(out.ctypes.data, kind(v))
    assert len(fit) > 50 and len(EDGES) - len(fit) >= 4


def test_other_whole_numbers(code) -> None:
    out = np.zeros(6, np.uint64)
    slots(code, 6)(out.ctypes.data, True, False, np.int64(-(1 << 40)), np.uint8(255), Index())
    assert out[1:].view(np.int64).tolist() == [1, 0, -(1 << 40), 255, 1 << 50]


def test_floats_arrive_as_doubles(code) -> None:
    out = np.zeros(8, np.uint64)
    slots(code, 8, range(1, 8))(out.ctypes.data, 2.5, -1.0, 7, Real(-1.0), np.float64(3.5), np.float32(0.5), 1 << 40)
    assert out[1:].view(np.float64).tolist() == [2.5, -1.0, 7.0, -1.0, 3.5, 0.5, 2.0 ** 40]


@pytest.mark.parametrize("known", [False, True])
def test_reading_by_calls_alone_gives_the_same(known) -> None:
    """What stands for a CPython whose layout is not known."""
    if known and not arguments.KNOWN:
        pytest.skip("the layout of this Python's numbers is not known")
    name = f"flambeau_read_{known}"
    text = translate(arguments.READ + f"""
def {name}(self: ptr, given: ptr, n: i64) -> ptr:
    return self if read_words(given, n, 42, self) else None
""", {**arguments.LAYOUT, "KNOWN": int(known)})
    address = compiler.functions(("test reading", name), (name,), lambda: text)[name]
    call = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object), ctypes.c_int64)(address)

    def read(*given):
        out = np.zeros(len(given), np.uint64)
        assert call(out.ctypes.data, (ctypes.py_object * len(given))(*given), len(given)) == out.ctypes.data
        return out
    out = read(1 << 40, 2.5, 7, Real(-1.0), -1, 9, True, np.int64(1 << 33))  # 42: the second, fourth and sixth are floats
    assert out[[0, 2, 4, 6, 7]].view(np.int64).tolist() == [1 << 40, 7, -1, 1, 1 << 33]
    assert out[[1, 3, 5]].view(np.float64).tolist() == [2.5, -1.0, 9.0]
    for bad, error in (((1 << 64,), OverflowError), (("x",), TypeError), ((0, "x"), TypeError), ((-(1 << 63) - 1,), OverflowError)):
        with pytest.raises(error):
            read(*bad)


def test_special_floats(code) -> None:
    out = np.zeros(4, np.uint64)
    slots(code, 4, [1, 2, 3])(out.ctypes.data, float("inf"), float("nan"), -0.0)
    got = out[1:].view(np.float64)
    assert got[0] == np.inf and np.isnan(got[1]) and np.signbit(got[2])


@pytest.mark.parametrize("nargs", [1, 2, 33, 300])
def test_any_number_of_arguments(code, nargs) -> None:
    out = np.zeros(nargs, np.uint64)
    slots(code, nargs)(out.ctypes.data, *range(1, nargs))
    assert out[1:].tolist() == list(range(1, nargs))


@pytest.mark.parametrize("args", [(), (1,), (1, 2.0, 3)])
def test_a_wrong_number_of_arguments_is_a_type_error(code, args) -> None:
    with pytest.raises(TypeError, match=f"takes 2 arguments .*but got {len(args)}"):
        slots(code, 2, [1])(*args)


@pytest.mark.parametrize("args", [("x", 1.0), (1.0, 1.0), (0, "x"), (None, 1.0), (0, None), (0, 1j)])
def test_an_argument_of_another_type_is_a_type_error(code, args) -> None:
    with pytest.raises(TypeError):
        slots(code, 2, [1])(*args)


def test_errors_of_the_argument_itself_propagate(code) -> None:
    class Bad:
        def __index__(self) -> int:
            raise KeyError("mine")

        def __float__(self) -> float:
            raise LookupError("mine too")
    with pytest.raises(KeyError):
        slots(code, 2, [1])(Bad(), 1.0)
    with pytest.raises(LookupError):
        slots(code, 2, [1])(0, Bad())


def test_keywords_are_refused(code) -> None:
    with pytest.raises(TypeError):
        slots(code, 1)(address=1)


@pytest.mark.parametrize("parallel", [False, True])
def test_stages_run_in_order_and_cover_everything(code, parallel) -> None:
    total = np.zeros(1, np.int64)
    count, double = code["flambeau_count"], code["flambeau_double"]
    entry = native.make_entry([(count, 1000, 7), (double, 1, 1), (count, 5, 100), (double, 1, 1)], [0, 0], 1,
                              parallel=parallel)
    for _ in range(200):
        total[0] = 0
        entry(total.ctypes.data)
        assert total[0] == 2 * (2 * 1000 + 5)


def test_no_stages_and_no_elements(code) -> None:
    total = np.zeros(1, np.int64)
    native.make_entry([], [], 1)(total.ctypes.data)
    native.make_entry([(code["flambeau_count"], 0, 1)], [0, 0], 1, parallel=True)(total.ctypes.data)
    assert total[0] == 0


def test_parameters_are_signed_words(code) -> None:
    total = np.zeros(1, np.int64)
    native.make_entry([(code["flambeau_count"], 1, 1)], [0, -3], 1)(total.ctypes.data)
    assert total[0] == -2


def test_references_are_kept_and_given_back(code) -> None:
    out = np.zeros(2, np.uint64)
    entry = slots(code, 2)
    big, address = 1 << 63, out.ctypes.data
    before = sys.getrefcount(big), sys.getrefcount(None)
    for _ in range(1000):
        entry(address, big)
    after = sys.getrefcount(big), sys.getrefcount(None)
    assert after[0] == before[0] and abs(after[1] - before[1]) < 50
    header = entry.__self__
    assert isinstance(header, bytes)
    count = sys.getrefcount(header)
    again = native.make_entry([], [], 0)
    del again
    gc.collect()
    assert sys.getrefcount(header) == count
    assert entry(address, 3) is None


def test_float_positions_have_a_bound(code) -> None:
    with pytest.raises(ValueError, match="64"):
        native.make_entry([], [], 65, [64])


def test_entries_may_be_called_from_many_threads(code) -> None:
    entry = native.make_entry([(code["flambeau_count"], 10_000, 100)], [0, 0], 1, parallel=True)
    totals = np.zeros((8, 16), np.int64)

    def work(k: int) -> None:
        for _ in range(500):
            entry(totals[k].ctypes.data)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert (totals[:, 0] == 500 * 10_000).all()


def test_big_work_lets_other_threads_run() -> None:
    """A launch that waits for another Python thread can only end if it has given up the GIL."""
    ir = """
define void @flambeau_wait(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {
entry:
  %flag = load ptr, ptr %args
  br label %loop
loop:
  %v = load atomic i64, ptr %flag seq_cst, align 8
  %off = icmp eq i64 %v, 0
  br i1 %off, label %loop, label %done
done:
  ret void
}
"""
    code = compiler.functions(("test wait", ir), ("flambeau_wait",), lambda: ir)
    flag = ctypes.c_int64(0)
    entry = native.make_entry([(code["flambeau_wait"], 1, 1)], [], 1, parallel=True)
    threading.Timer(0.05, lambda: setattr(flag, "value", 1)).start()
    entry(ctypes.addressof(flag))
    assert flag.value == 1
