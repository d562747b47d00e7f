"""Changes of type: every pair of types against NumPy, the odd values where they are defined, `.to` in all its forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core import dtypes
from flambeau.autograd import gradcheck

SMALL = [0, 1, 2, 3, 100, 127]


def bfloat16_of(a):
    """float32 values rounded to bfloat16, to nearest with ties to even, by integer arithmetic of this test's own."""
    a = np.asarray(a, np.float32)
    bits = a.view(np.uint32).astype(np.uint64)
    rounded = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(a), np.float32(np.nan), rounded)


def array_of(t):
    return t.to(t.dtype.opmath).numpy() if t.dtype in dtypes.BITS else t.numpy()


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_small_whole_numbers_survive_every_pair(source):
    t = fb.tensor(SMALL).to(source)
    want = np.array(SMALL).astype(bool if source is fb.bool else float)
    for target in dtypes.ALL:
        got = t.to(target)
        assert got.dtype is target
        np.testing.assert_array_equal(array_of(got), want.astype(target.opmath.np if target in dtypes.BITS else target.np))


INTEGERS = [d for d in dtypes.ALL if d.kind in "ui"]


@pytest.mark.parametrize("source", INTEGERS, ids=str)
def test_integers_wrap_into_narrower_integers(source):
    info = np.iinfo(source.np)
    a = np.array([info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1], source.np)
    for target in INTEGERS:
        np.testing.assert_array_equal(fb.tensor(a).to(target).numpy(), a.astype(target.np))
    np.testing.assert_array_equal(fb.tensor(a).bool().numpy(), a != 0)
    for target in (fb.float32, fb.float64):
        np.testing.assert_array_equal(fb.tensor(a).to(target).numpy(), a.astype(target.np))


@pytest.mark.parametrize("source", [fb.float16, fb.bfloat16, fb.float32, fb.float64], ids=str)
def test_floats_truncate_towards_zero_and_anything_but_zero_is_true(source):
    t = fb.tensor([0.0, -0.0, 0.5, 0.99, 1.5, 2.5, 99.5, float("nan"), float("inf"), 1e-7]).to(source)
    assert t.bool().tolist() == [False, False, True, True, True, True, True, True, True, True]
    for target in INTEGERS:
        assert t[:7].to(target).tolist() == [0, 0, 0, 0, 1, 2, 99]
        if target.is_signed:
            assert (-t[:7]).to(target).tolist() == [0, 0, 0, 0, -1, -2, -99]


ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1e-40, 1.17549435e-38, 6e-8, 5.96e-8, 2.98e-8, 6.1e-5, 65504, 65519.9, 65520, 1e30, -3.4e38,
                1.0009765, 1.00048828125, 1.00146484375, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 / 3, np.pi], np.float32)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(width=32), max_size=60))
def test_floats_round_to_nearest_even(more):
    a = np.concatenate([ODD, -ODD, np.array(more, np.float32)])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(fb.tensor(a).half().numpy(), a.astype(np.float16))
        wide = a.astype(np.float64) * (1 + 2 ** -30)
        np.testing.assert_array_equal(fb.tensor(wide).float().numpy(), wide.astype(np.float32))
    got = fb.tensor(a).bfloat16()
    np.testing.assert_array_equal(got.float().numpy(), bfloat16_of(a))
    np.testing.assert_array_equal(np.signbit(got.float().numpy())[~np.isnan(a)], np.signbit(a)[~np.isnan(a)])
    np.testing.assert_array_equal(fb.tensor(a).double().numpy(), a.astype(np.float64))


def test_every_half_and_every_bfloat16_survives_the_way_through_float():
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    for d in (fb.float16, fb.bfloat16):
        t = fb.tensor(bits).view(d)
        back = t.float().to(d)
        nan = t.isnan().numpy()
        np.testing.assert_array_equal(back.view(fb.int16).numpy()[~nan], bits[~nan])
        assert back.isnan().numpy()[nan].all() and nan.sum() > 100
    np.testing.assert_array_equal(fb.tensor(bits).view(fb.float16).float().numpy(), bits.view(np.float16).astype(np.float32))


def test_complex_numbers_lose_their_imaginary_part():
    z = fb.tensor([1.5 + 2j, -3.5 - 1j, 0 + 1j])
    assert z.to(fb.float32).tolist() == [1.5, -3.5, 0] and z.to(fb.int32).tolist() == [1, -3, 0]
    assert z.to(fb.complex128).tolist() == [1.5 + 2j, -3.5 - 1j, 1j] and fb.tensor([2.0]).to(fb.complex64).tolist() == [2 + 0j]
    assert z.to(fb.bool).tolist() in ([True, True, True], [True, True, False])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["dense", "transposed", "sliced", "expanded", "reversed", "empty"]), st.sampled_from([fb.float16, fb.bfloat16, fb.int64, fb.bool]))
def test_any_layout(layout, d):
    a = np.random.default_rng(0).integers(-5, 5, (6, 7)).astype(np.float32)
    t, want = {"dense": lambda: (fb.tensor(a), a), "transposed": lambda: (fb.tensor(a).t(), a.T), "sliced": lambda: (fb.tensor(a)[::2, 1::3], a[::2, 1::3]),
               "expanded": lambda: (fb.tensor(a[:1]).expand(6, 7), np.broadcast_to(a[:1], (6, 7))), "reversed": lambda: (fb.tensor(a).flip(1), a[:, ::-1]),
               "empty": lambda: (fb.tensor(a)[:0], a[:0])}[layout]()
    got = t.to(d)
    np.testing.assert_array_equal(array_of(got), want.astype(np.float32 if d is fb.bfloat16 else d.np))
    if layout == "transposed":
        assert got.stride() == t.stride()


def test_to_gives_itself_where_nothing_changes():
    t = fb.zeros(2)
    other = fb.zeros(1, dtype=fb.float64)
    assert t.to(fb.float32) is t and t.to("cpu") is t and t.to(t) is t and t.float() is t and t.cpu() is t and t.type(fb.float32) is t
    assert t.to(fb.float32, copy=True) is not t and t.to(other).dtype is fb.float64 and t.to("cpu", fb.int8).dtype is fb.int8
    assert t.to(dtype=fb.half).dtype is fb.float16 and t.to(device="cpu", dtype=fb.int16).dtype is fb.int16 and t.type_as(other).dtype is fb.float64
    assert t.to(fb.float64, False, True).dtype is fb.float64
    for name, d in (("half", fb.float16), ("double", fb.float64), ("bfloat16", fb.bfloat16), ("int", fb.int32), ("long", fb.int64), ("short", fb.int16),
                    ("char", fb.int8), ("byte", fb.uint8), ("bool", fb.bool), ("cfloat", fb.complex64), ("cdouble", fb.complex128)):
        assert getattr(t, name)().dtype is d
    for wrong in ((3.5,), ([1],), (fb.float32, "x")):
        with pytest.raises(TypeError):
            t.to(*wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtyp'"):
        t.to(dtyp=fb.float32)


def test_gradients_flow_between_floating_types_in_the_sources_type():
    x = fb.tensor([1.0, 2.0], dtype=fb.float64, requires_grad=True)
    (x.half() * 3).float().sum().backward()
    assert x.grad.dtype is fb.float64 and x.grad.tolist() == [3, 3]
    assert gradcheck(lambda t: t.to(fb.complex128) * 2j, (x,))
    assert not x.long().requires_grad and x.long().float().requires_grad is False
    z = fb.tensor([1 + 2j], dtype=fb.complex128, requires_grad=True)
    assert gradcheck(lambda t: t.to(fb.float64) * 2, (z,))


def test_casts_on_every_device(device):
    a = np.array([1.5, -2.5, 300.0, np.nan])
    t = fb.tensor(a).to(device)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(t.half().cpu().numpy(), a.astype(np.float16))
    assert t[:3].to(fb.int16).cpu().tolist() == [1, -2, 300] and t.bool().all().item()
    assert str(fb.zeros(3).to(device, fb.float16).device) == device and t.to("cpu", fb.float32).dtype is fb.float32


@pytest.mark.parametrize("d", [fb.complex64, fb.complex128])
def test_a_complex_number_is_true_when_either_part_is(d, device):
    a = np.array([0, 1j, 2, -0.0, complex(0, np.nan), complex(np.nan, 0), 1e-30j, 3 + 4j])
    x = fb.tensor(a, dtype=d, device=device)
    expected = (a != 0).tolist()
    for made in (x.bool(), x.to(fb.bool), x.to(bool), x.to("cpu", fb.bool), fb.zeros(8, dtype=fb.bool, device=device).copy_(x),
                 fb.zeros(8, dtype=fb.bool).copy_(x), x.cpu().to(device, fb.bool), x.flip(0).bool().flip(0), fb.logical_or(x, x)):
        assert made.dtype is fb.bool and made.tolist() == expected
    assert x.repeat(2).reshape(2, 8).t()[::2].bool()[:, 1].tolist() == expected[::2]
    assert x[0].bool().item() is False and x[1].bool().item() is True and x[:0].bool().tolist() == []
    mask = fb.zeros(8, dtype=fb.bool, device=device)
    mask[1] = 1j
    assert mask.tolist() == [False, True] + [False] * 6
    assert fb.tensor([1j, 2 + 3j], device=device).to(fb.int32).tolist() == [0, 2]  # other types take the real part
