"""Element types: the promotion lattice, precedence of dimensioned tensors over zero-dim tensors over numbers, limits, names."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core import dtypes

# PyTorch's published table of promote_types, row by row in the order of NAMES
NAMES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16", "complex32")
SHORT = {"u1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "f2": "float16", "f4": "float32", "f8": "float64",
         "c8": "complex64", "c16": "complex128", "b1": "bool", "bf": "bfloat16", "c4": "complex32"}
TABLE = """
u1 i2 i2 i4 i8 f2 f4 f8 c8 c16 u1 bf c4
i2 i1 i2 i4 i8 f2 f4 f8 c8 c16 i1 bf c4
i2 i2 i2 i4 i8 f2 f4 f8 c8 c16 i2 bf c4
i4 i4 i4 i4 i8 f2 f4 f8 c8 c16 i4 bf c4
i8 i8 i8 i8 i8 f2 f4 f8 c8 c16 i8 bf c4
f2 f2 f2 f2 f2 f2 f4 f8 c8 c16 f2 f4 c4
f4 f4 f4 f4 f4 f4 f4 f8 c8 c16 f4 f4 c8
f8 f8 f8 f8 f8 f8 f8 f8 c16 c16 f8 f8 c16
c8 c8 c8 c8 c8 c8 c8 c16 c8 c16 c8 c8 c8
c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16
u1 i1 i2 i4 i8 f2 f4 f8 c8 c16 b1 bf c4
bf bf bf bf bf f4 f4 f8 c8 c16 bf bf c8
c4 c4 c4 c4 c4 c4 c8 c16 c8 c16 c4 c8 c4
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
SAFE = [getattr(fb, n) for n in NAMES]


@pytest.mark.parametrize("i", range(len(NAMES)), ids=NAMES)
def test_promote_types_is_pytorchs_table(i):
    for j, name in enumerate(NAMES):
        want = getattr(fb, SHORT[ROWS[i][j]])
        assert fb.promote_types(getattr(fb, NAMES[i]), getattr(fb, name)) is want, name


@pytest.mark.parametrize("i", range(len(NAMES)), ids=NAMES)
def test_an_operation_on_two_tensors_has_the_promoted_type(i):
    for j, name in enumerate(NAMES):
        a, b = fb.ones(2, dtype=getattr(fb, NAMES[i])), fb.ones(2, dtype=getattr(fb, name))
        want = getattr(fb, SHORT[ROWS[i][j]])
        assert fb.result_type(a, b) is want and (j > i or (a * b).dtype is want), name


@given(st.sampled_from(SAFE), st.sampled_from(SAFE), st.sampled_from(SAFE))
def test_promotion_is_a_lattice(a, b, c):
    assert fb.promote_types(a, b) is fb.promote_types(b, a)
    assert fb.promote_types(a, a) is a
    joined = fb.promote_types(a, b)
    assert fb.promote_types(joined, a) is joined and fb.promote_types(joined, b) is joined
    # the one seam of PyTorch's lattice is float16 with bfloat16, and there too the join of three is one
    assert fb.promote_types(joined, c) is fb.promote_types(a, fb.promote_types(b, c))


def test_wide_unsigned_types_combine_with_their_kind_and_with_higher_kinds_only():
    for d, e in itertools.combinations([fb.uint8, fb.uint16, fb.uint32, fb.uint64], 2):
        assert fb.promote_types(d, e) is e
    for d in (fb.uint16, fb.uint32, fb.uint64):
        assert fb.promote_types(d, fb.bool) is d and fb.promote_types(d, fb.float16) is fb.float16
    with pytest.raises(RuntimeError, match="Promotion for uint16, uint32, uint64 types is not supported.*uint64 and int64"):
        fb.promote_types(fb.uint64, fb.int64)


KINDS = ["b", "u", "i", "f", "c"]
LEVEL = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


@pytest.mark.parametrize("d", SAFE, ids=str)
@pytest.mark.parametrize("other", [True, 3, 2.5, 1j], ids=lambda v: type(v).__name__)
def test_a_number_changes_the_type_only_by_a_higher_kind(d, other):
    t = fb.ones(2, dtype=d)
    kind = {bool: 0, int: 1, float: 2, complex: 3}[type(other)]
    if kind <= LEVEL[d.kind]:
        want = d
    elif kind == 1:
        want = fb.int64
    elif kind == 2:
        want = fb.float32
    else:
        want = d.to_complex() if d.is_floating_point else fb.complex64
    assert fb.result_type(t, other) is want and fb.result_type(other, t) is want
    if want is not fb.bool:
        assert (t * other).dtype is want and (other * t).dtype is want


@pytest.mark.parametrize("e", SAFE, ids=str)
@pytest.mark.parametrize("d", [fb.uint8, fb.int64, fb.float16, fb.float32, fb.float64, fb.complex64, fb.bool], ids=str)
def test_a_zero_dim_tensor_changes_the_type_only_by_a_higher_kind(d, e):
    a, b = fb.ones(2, dtype=d), fb.ones((), dtype=e)
    if LEVEL[e.kind] <= LEVEL[d.kind]:
        want = d
    else:
        want = d.to_complex() if d.is_floating_point else e  # a float tensor keeps its precision beside a complex one
    assert (a * b).dtype is want and (b * a).dtype is want
    assert fb.result_type(a, b) is want and fb.result_type(b, a) is want


def test_zero_dim_tensors_among_themselves_and_with_numbers():
    assert (fb.tensor(1, dtype=fb.int8) + fb.tensor(1, dtype=fb.uint8)).dtype is fb.int16
    assert (fb.tensor(1, dtype=fb.float64) * 2.0).dtype is fb.float64
    assert (fb.tensor(1, dtype=fb.int16) * 2).dtype is fb.int16
    assert (fb.tensor(1, dtype=fb.int16) * 2.0).dtype is fb.float32
    assert fb.result_type(fb.tensor([1], dtype=fb.uint8), fb.tensor(1000, dtype=fb.int64)) is fb.uint8
    assert fb.result_type(1, 2) is fb.int64 and fb.result_type(1, 2.0) is fb.float32 and fb.result_type(True, 1) is fb.int64


def test_the_default_type_decides_what_python_floats_become():
    assert fb.get_default_dtype() is fb.float32
    try:
        fb.set_default_dtype(fb.float64)
        assert fb.tensor([1.0]).dtype is fb.float64 and fb.zeros(2).dtype is fb.float64
        assert fb.result_type(fb.ones(2, dtype=fb.int32), 1.5) is fb.float64
        assert (fb.ones(2, dtype=fb.int32) / 2).dtype is fb.float64
        assert fb.tensor([1j]).dtype is fb.complex128 and (fb.ones(1, dtype=fb.float32) * 1j).dtype is fb.complex64
        assert fb.ones(1, dtype=fb.float32).mul(1.5).dtype is fb.float32
        fb.set_default_dtype(fb.float16)
        assert fb.arange(0.0, 2.0).dtype is fb.float16
    finally:
        fb.set_default_dtype(fb.float32)
    for wrong in (fb.int64, fb.complex64, "float32", float):
        with pytest.raises(TypeError, match="floating-point"):
            fb.set_default_dtype(wrong)


def test_can_cast_goes_up_the_kinds():
    order = [fb.bool, fb.uint8, fb.float32, fb.complex64]
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            assert fb.can_cast(a, b) is (i <= j)
    for a, b in [(fb.int64, fb.uint8), (fb.float64, fb.float16), (fb.complex128, fb.complex64), (fb.int64, fb.float16), (fb.uint8, fb.int8)]:
        assert fb.can_cast(a, b)


def test_a_result_that_cannot_be_cast_is_refused_in_place_and_by_out():
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        fb.ones(2, dtype=fb.int64).mul_(1.5)
    with pytest.raises(RuntimeError, match="can't be cast"):
        fb.add(fb.ones(2), fb.ones(2), out=fb.empty(2, dtype=fb.int32))
    assert fb.ones(2, dtype=fb.float16).mul_(fb.ones(2, dtype=fb.float64)).dtype is fb.float16


@pytest.mark.parametrize("d", [fb.float16, fb.float32, fb.float64], ids=str)
def test_finfo_is_numpys(d):
    ours, want = fb.finfo(d), np.finfo(d.np)
    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution"):
        assert getattr(ours, name) == pytest.approx(float(getattr(want, name)), rel=1e-3), name
    assert ours.dtype == d.name
    assert fb.finfo(d.to_complex()).bits == {fb.float16: 16, fb.float64: 64}.get(d, 32)


def test_finfo_of_bfloat16_and_of_the_default():
    b = fb.finfo(fb.bfloat16)
    assert (b.bits, b.eps, b.tiny, b.max) == (16, 2.0 ** -7, 2.0 ** -126, 255 * 2.0 ** 120)
    assert fb.finfo().dtype == "float32"
    assert repr(fb.finfo(fb.float32)) == ("finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
                                          "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)")
    for wrong in (fb.int64, fb.bool, 3):
        with pytest.raises(TypeError, match="floating point"):
            fb.finfo(wrong)


@pytest.mark.parametrize("d", [d for d in dtypes.ALL if d.kind in "ui"], ids=str)
def test_iinfo_is_numpys(d):
    ours, want = fb.iinfo(d), np.iinfo(d.np)
    assert (ours.bits, ours.min, ours.max, ours.dtype) == (want.bits, want.min, want.max, d.name)
    assert repr(fb.iinfo(fb.uint8)) == "iinfo(min=0, max=255, dtype=uint8)"


def test_iinfo_refuses_what_is_no_integer_type():
    with pytest.raises(TypeError, match="integer input type"):
        fb.iinfo(fb.float32)
    with pytest.raises(RuntimeError, match="Bool"):
        fb.iinfo(fb.bool)


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_a_type_is_one_object(d):
    assert repr(d) == f"torch.{d.name}" and getattr(fb, d.name) is d
    assert pickle.loads(pickle.dumps(d)) is d and copy.deepcopy(d) is d and copy.copy(d) is d
    assert d.is_floating_point is (d.kind == "f") and d.is_complex is (d.kind == "c") and d.is_signed is (d.kind not in "bu")
    assert d.np.itemsize == d.itemsize == fb.empty(1, dtype=d).element_size()
    parts = {fb.float64: fb.float64, fb.complex128: fb.float64, fb.float16: fb.float16, fb.complex32: fb.float16}
    assert d.to_complex().to_real() is parts.get(d, fb.float32)


def test_aliases_and_numpy_types():
    assert (fb.half, fb.float, fb.double) == (fb.float16, fb.float32, fb.float64)
    assert (fb.short, fb.int, fb.long, fb.cfloat, fb.cdouble) == (fb.int16, fb.int32, fb.int64, fb.complex64, fb.complex128)
    for d in dtypes.ALL:
        if d not in dtypes.BITS:
            assert dtypes.from_numpy(d.np) is d and dtypes.from_numpy(d.np.newbyteorder(">")) is d
    for wrong in (np.dtype("U3"), np.dtype(object), np.dtype("M8[s]")):
        with pytest.raises(TypeError, match="The only supported types are"):
            dtypes.from_numpy(wrong)


def test_numbers_have_types():
    assert dtypes.of_scalar(True) is fb.bool and dtypes.of_scalar(np.int8(1)) is fb.int64 and dtypes.of_scalar(1.0) is fb.float32
    assert dtypes.of_scalar(np.float64(1)) is fb.float32 and dtypes.of_scalar(1j) is fb.complex64
    with pytest.raises(TypeError, match="expected a number, got str"):
        dtypes.of_scalar("1")


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, 255, -128, -129, -255, -256, 2**31, 2**63, 2**64 - 1, 2**64, 2.9, -1.5, 1e300,
                                   float("inf"), float("nan"), 3 + 0j, 1j])
@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_a_number_is_held_or_refused_never_wrapped(d, value):
    cut = value.real if isinstance(value, complex) else value
    if d.kind == "b":
        holds = True
    elif d.kind == "c":
        holds = d is fb.complex128 or not (65504 if d is fb.complex32 else 3.5e38) < abs(value) < float("inf")
    elif isinstance(value, complex) and value.imag:
        holds = False
    elif d.kind == "f":
        holds = d is not fb.float32 or not 3.5e38 < abs(cut) < float("inf")
    else:
        low, high = fb.iinfo(d).min, fb.iinfo(d).max
        least = -high if d.kind == "u" and isinstance(cut, int) else low  # integers below zero count back from the end
        holds = cut == cut and least <= cut <= high
    if not holds:
        with pytest.raises(RuntimeError, match="without overflow"):
            dtypes.number(value, d)
        return
    found = dtypes.number(value, d)
    assert type(found) is {"f": float, "c": complex}.get(d.kind, int)
    expected = bool(value) if d.kind == "b" else float(cut) if d.kind == "f" else complex(value) if d.kind == "c" else int(cut)
    assert found == expected or found != found and value != value


@pytest.mark.parametrize(("python", "d"), [(float, fb.float64), (complex, fb.complex128), (int, fb.int64), (bool, fb.bool)])
def test_pythons_number_types_are_types_wherever_one_is_given(python, d, device):
    x = fb.ones(3, device=device)
    made = [fb.tensor([1, 0], dtype=python, device=device), fb.zeros(2, dtype=python, device=device), fb.full((2,), 1, dtype=python, device=device),
            fb.zeros_like(x, dtype=python), x.new_zeros(2, dtype=python), x.new_tensor([1], dtype=python), fb.eye(2, dtype=python, device=device),
            x.to(python), x.to(dtype=python), x.to("cpu", python), x.sum(dtype=python), fb.sum(x, 0, dtype=python), x.prod(dtype=python),
            fb.as_tensor([1], dtype=python), fb.zeros(2, dtype=fb.complex128, device=device).view(python),
            fb.frombuffer(bytearray(16), dtype=python), x.sum(dtype=python, out=fb.empty((), dtype=d, device=device))]
    if python is not bool:
        made += [x.cumsum(0, dtype=python), x.cumprod(0, dtype=python)]
    if python not in (bool, complex):  # PyTorch counts in neither
        made += [fb.arange(3, dtype=python, device=device)]
    if python is float:
        made += [x.mean(dtype=python), x.softmax(0, dtype=python), fb.nn.functional.log_softmax(x, 0, dtype=python), x.norm(dtype=python),
                 fb.rand(2, dtype=python, device=device), fb.nn.Linear(1, 1, dtype=python).weight, fb.nn.Linear(1, 1).to(python).weight]
    assert [t.dtype for t in made] == [d] * len(made)
    assert fb.promote_types(fb.int8, python) is fb.promote_types(fb.int8, d) and fb.promote_types(python, python) is d
    assert fb.can_cast(fb.int8, python) is fb.can_cast(fb.int8, d)
    for _ in range(5):  # learned calls too
        assert x.sum(dtype=python).dtype is d and x.mul(2).sum(0, dtype=python).item() == d.np.type(6)


def test_limits_of_pythons_number_types_and_what_is_no_type():
    assert fb.finfo(float).bits == 64 and fb.iinfo(int).bits == 64
    for call in (lambda: fb.ones(2).sum(dtype="float32"), lambda: fb.zeros(2, dtype=str), lambda: fb.ones(2).to(str), lambda: fb.ones(2).cumsum(0, dtype=7)):
        with pytest.raises(TypeError, match="must be torch.dtype|invalid combination"):
            call()
    with pytest.raises(TypeError, match="only floating-point types"):
        fb.set_default_dtype(float)
    with pytest.raises(ValueError, match="invalid type"):
        fb.ones(2).type(float)
    assert fb.ones(2).type("torch.DoubleTensor").dtype is fb.float64


def test_limits_are_each_ones_own() -> None:
    for d in (fb.float32, fb.bfloat16, fb.complex64, fb.float8_e5m2):
        one, other = fb.finfo(d), fb.finfo(d)
        assert vars(one) == vars(other)
        one.eps = 0.0
        assert other.eps > 0 and fb.finfo(d).eps == other.eps
