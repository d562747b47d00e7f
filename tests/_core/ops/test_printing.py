"""How tensors print: texts as PyTorch prints them, options, devices, lazily copied values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb
from flambeau._core.runtime import dispatch

TEXTS = [
    ('zeros(2, 3)', (
        'tensor([[0., 0., 0.],\n'
        '        [0., 0., 0.]])'
    )),
    ('ones(3, dtype=fb.int32)', 'tensor([1, 1, 1], dtype=torch.int32)'),
    ('tensor(3)', 'tensor(3)'),
    ('tensor(2.5)', 'tensor(2.5000)'),
    ('tensor(float("nan"))', 'tensor(nan)'),
    ('tensor(True)', 'tensor(True)'),
    ('tensor([])', 'tensor([])'),
    ('tensor([], dtype=fb.int64)', 'tensor([], dtype=torch.int64)'),
    ('zeros(2, 0)', 'tensor([], size=(2, 0))'),
    ('zeros(0, 3, dtype=fb.int64)', 'tensor([], size=(0, 3), dtype=torch.int64)'),
    ('tensor([1.0, 2.5, -3.25])', 'tensor([ 1.0000,  2.5000, -3.2500])'),
    ('tensor([1.0, 2.0, 1000.0])', 'tensor([   1.,    2., 1000.])'),
    ('tensor([1.0, 2.0, 1001.0])', 'tensor([1.0000e+00, 2.0000e+00, 1.0010e+03])'),
    ('tensor([0.5, 12345.678])', 'tensor([5.0000e-01, 1.2346e+04])'),
    ('tensor([1e-5, 1.0])', 'tensor([1.0000e-05, 1.0000e+00])'),
    ('tensor([1e-5, 2e-5])', 'tensor([1.0000e-05, 2.0000e-05])'),
    ('tensor([1e10, 1.0])', 'tensor([1.0000e+10, 1.0000e+00])'),
    ('tensor([1e9])', 'tensor([1.0000e+09])'),
    ('tensor([float("inf"), -float("inf"), float("nan"), 1.5])', 'tensor([   inf,   -inf,    nan, 1.5000])'),
    ('tensor([0.0, float("inf"), 1.0])', 'tensor([0., inf, 1.])'),
    ('tensor([-0.0, 0.0])', 'tensor([-0., 0.])'),
    ('tensor([1 + 2j, -0.5 - 1j])', 'tensor([ 1.0000+2.j, -0.5000-1.j])'),
    ('tensor([1e-6 + 1j, 3 - 1e6j])', 'tensor([1.0000e-06+1.0000e+00j, 3.0000e+00-1.0000e+06j])'),
    ('tensor(1j, dtype=fb.complex128)', 'tensor(0.+1.j, dtype=torch.complex128)'),
    ('tensor([True, False])', 'tensor([ True, False])'),
    ('tensor([[1, -20], [300, 4]])', (
        'tensor([[  1, -20],\n'
        '        [300,   4]])'
    )),
    ('tensor([1, 2], dtype=fb.uint8)', 'tensor([1, 2], dtype=torch.uint8)'),
    ('tensor([1.5], dtype=fb.float16)', 'tensor([1.5000], dtype=torch.float16)'),
    ('tensor([1.5, 3.14159], dtype=fb.bfloat16)', 'tensor([1.5000, 3.1406], dtype=torch.bfloat16)'),
    ('tensor([1.0], dtype=fb.float64)', 'tensor([1.], dtype=torch.float64)'),
    ('arange(1001)', 'tensor([   0,    1,    2,  ...,  998,  999, 1000])'),
    ('arange(1000.0).reshape(10, 100)[:2]', (
        'tensor([[  0.,   1.,   2.,   3.,   4.,   5.,   6.,   7.,   8.,   9.,  10.,  11.,\n'
        '          12.,  13.,  14.,  15.,  16.,  17.,  18.,  19.,  20.,  21.,  22.,  23.,\n'
        '          24.,  25.,  26.,  27.,  28.,  29.,  30.,  31.,  32.,  33.,  34.,  35.,\n'
        '          36.,  37.,  38.,  39.,  40.,  41.,  42.,  43.,  44.,  45.,  46.,  47.,\n'
        '          48.,  49.,  50.,  51.,  52.,  53.,  54.,  55.,  56.,  57.,  58.,  59.,\n'
        '          60.,  61.,  62.,  63.,  64.,  65.,  66.,  67.,  68.,  69.,  70.,  71.,\n'
        '          72.,  73.,  74.,  75.,  76.,  77.,  78.,  79.,  80.,  81.,  82.,  83.,\n'
        '          84.,  85.,  86.,  87.,  88.,  89.,  90.,  91.,  92.,  93.,  94.,  95.,\n'
        '          96.,  97.,  98.,  99.],\n'
        '        [100., 101., 102., 103., 104., 105., 106., 107., 108., 109., 110., 111.,\n'
        '         112., 113., 114., 115., 116., 117., 118., 119., 120., 121., 122., 123.,\n'
        '         124., 125., 126., 127., 128., 129., 130., 131., 132., 133., 134., 135.,\n'
        '         136., 137., 138., 139., 140., 141., 142., 143., 144., 145., 146., 147.,\n'
        '         148., 149., 150., 151., 152., 153., 154., 155., 156., 157., 158., 159.,\n'
        '         160., 161., 162., 163., 164., 165., 166., 167., 168., 169., 170., 171.,\n'
        '         172., 173., 174., 175., 176., 177., 178., 179., 180., 181., 182., 183.,\n'
        '         184., 185., 186., 187., 188., 189., 190., 191., 192., 193., 194., 195.,\n'
        '         196., 197., 198., 199.]])'
    )),
    ('arange(10000).reshape(100, 100)', (
        'tensor([[   0,    1,    2,  ...,   97,   98,   99],\n'
        '        [ 100,  101,  102,  ...,  197,  198,  199],\n'
        '        [ 200,  201,  202,  ...,  297,  298,  299],\n'
        '        ...,\n'
        '        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n'
        '        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n'
        '        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])'
    )),
    ('arange(2000.0).reshape(2, 2, 500)', (
        'tensor([[[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 4.9700e+02,\n'
        '          4.9800e+02, 4.9900e+02],\n'
        '         [5.0000e+02, 5.0100e+02, 5.0200e+02,  ..., 9.9700e+02,\n'
        '          9.9800e+02, 9.9900e+02]],\n'
        '\n'
        '        [[1.0000e+03, 1.0010e+03, 1.0020e+03,  ..., 1.4970e+03,\n'
        '          1.4980e+03, 1.4990e+03],\n'
        '         [1.5000e+03, 1.5010e+03, 1.5020e+03,  ..., 1.9970e+03,\n'
        '          1.9980e+03, 1.9990e+03]]])'
    )),
    ('arange(27).reshape(3, 3, 3)', (
        'tensor([[[ 0,  1,  2],\n'
        '         [ 3,  4,  5],\n'
        '         [ 6,  7,  8]],\n'
        '\n'
        '        [[ 9, 10, 11],\n'
        '         [12, 13, 14],\n'
        '         [15, 16, 17]],\n'
        '\n'
        '        [[18, 19, 20],\n'
        '         [21, 22, 23],\n'
        '         [24, 25, 26]]])'
    )),
    ('ones(2, 2, requires_grad=True)', (
        'tensor([[1., 1.],\n'
        '        [1., 1.]], requires_grad=True)'
    )),
    ('ones(2, requires_grad=True) * 2', 'tensor([2., 2.], grad_fn=<MulBackward0>)'),
    ('ones(2, 3, requires_grad=True).sum()', 'tensor(6., grad_fn=<SumBackward0>)'),
    ('arange(24.0).reshape(2, 12)', (
        'tensor([[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11.],\n'
        '        [12., 13., 14., 15., 16., 17., 18., 19., 20., 21., 22., 23.]])'
    )),
    ('tensor([[0.1234567, 100.0]])', 'tensor([[  0.1235, 100.0000]])'),
    ('tensor([[[1.0]], [[2.0]]])', (
        'tensor([[[1.]],\n'
        '\n'
        '        [[2.]]])'
    )),
    ('full((3,), 7.0, dtype=fb.float64, requires_grad=True)', 'tensor([7., 7., 7.], dtype=torch.float64, requires_grad=True)'),
    ('nn.Parameter(fb.ones(2))', (
        'Parameter containing:\n'
        'tensor([1., 1.], requires_grad=True)'
    )),
    ('sort(fb.tensor([2.0, 1.0]))', (
        'torch.return_types.sort(\n'
        'values=tensor([1., 2.]),\n'
        'indices=tensor([1, 0]))'
    )),
    ('zeros(2, 3).shape', 'torch.Size([2, 3])'),
]
OPTIONS = [
    ({'precision': 2}, 'tensor([1.23456, 2.0])', 'tensor([1.23, 2.00])'),
    ({'sci_mode': True}, 'tensor([1.5, 20.0])', 'tensor([1.5000e+00, 2.0000e+01])'),
    ({'sci_mode': True}, 'tensor([1.0, 20.0])', 'tensor([1.0000e+00, 2.0000e+01])'),
    ({'sci_mode': False}, 'tensor([1e-5, 1e5])', 'tensor([     0.0000, 100000.0000])'),
    ({'threshold': 4, 'edgeitems': 1}, 'arange(9).reshape(3, 3)', 'tensor([[0,  ..., 2],\n        ...,\n        [6,  ..., 8]])'),
    ({'linewidth': 30}, 'arange(12.0)', 'tensor([ 0.,  1.,  2.,  3.,\n         4.,  5.,  6.,  7.,\n         8.,  9., 10., 11.])'),
    ({'profile': "short"}, 'tensor([1.23456, 2.0])', 'tensor([1.23, 2.00])'),
    ({'profile': "full"}, 'arange(1003)[:3]', 'tensor([0, 1, 2])'),
    ({'precision': 8}, 'tensor([0.1], dtype=fb.float64)', 'tensor([0.10000000], dtype=torch.float64)'),
    ({'linewidth': 20}, 'tensor([1.0], dtype=fb.float64)', 'tensor([1.],\n       dtype=torch.float64)'),
]


@pytest.mark.parametrize("code,text", TEXTS, ids=[c for c, _ in TEXTS])
def test_texts(code, text):
    made = eval("fb." + code, {"fb": fb, "float": float})
    assert repr(made) == text and str(made) == text


@pytest.fixture
def options():
    yield
    fb.set_printoptions(profile="default")


@pytest.mark.parametrize("given,code,text", OPTIONS, ids=[f"{o} {c}" for o, c, _ in OPTIONS])
def test_options(options, given, code, text):
    fb.set_printoptions(**given)
    assert repr(eval("fb." + code, {"fb": fb})) == text


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e6, 1e6, width=32)))
def test_printed_numbers_are_the_numbers_to_the_precision(a):
    text = repr(fb.tensor(a))
    assert text.startswith("tensor(") and text.endswith("dtype=torch.float64)")
    shown = eval(text[7:text.rindex(",", 0, text.rindex("dtype="))].replace("\n", ""), {"nan": math.nan, "inf": math.inf})
    shown = np.array(shown)
    assert shown.shape == a.shape
    if "e" in text.replace("tensor", "").replace("dtype", ""):
        np.testing.assert_allclose(shown, a, rtol=6e-5, atol=0)
    else:
        np.testing.assert_allclose(shown, a, atol=6e-5)


def test_devices_and_gradients_are_named(sim_gpus):
    assert repr(fb.tensor([1.0, 2.0], device="cuda:1")) == "tensor([1., 2.], device='cuda:1')"
    assert repr(fb.zeros(2, 0, device="cuda")) == "tensor([], device='cuda:0', size=(2, 0))"
    t = fb.ones(2, dtype=fb.float16, device="cuda", requires_grad=True)
    assert repr(t) == "tensor([1., 1.], device='cuda:0', dtype=torch.float16, requires_grad=True)"
    for made, name in ((t * 2, "MulBackward0"), (t + 1, "AddBackward0"), (t.sum(), "SumBackward0"), (t[0], "SelectBackward0"), (t.exp(), "ExpBackward0"),
                       (t.reshape(2, 1), "ViewBackward0"), (t.cpu(), "ToCopyBackward0")):
        assert f"grad_fn=<{name}>" in repr(made)


def test_printing_does_not_care_about_layout_or_grad_mode(device):
    t = fb.arange(6).reshape(2, 3).to(device)
    assert repr(t.t()).replace(f", device='{device}'", "") == "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])"
    assert f"{fb.tensor(2.5).to(device):.3f}" == "2.500" and f"{fb.tensor(7):>4d}" == "   7" and str(fb.tensor([1])) == "tensor([1])"
    with fb.no_grad():
        assert "requires_grad" in repr(fb.ones(1, requires_grad=True))


def test_a_default_type_is_not_shown():
    try:
        fb.set_default_dtype(fb.float64)
        assert repr(fb.tensor([1.0])) == "tensor([1.])" and repr(fb.ones(1, dtype=fb.float32)) == "tensor([1.], dtype=torch.float32)"
    finally:
        fb.set_default_dtype(fb.float32)


def test_wrong_options_are_refused():
    with pytest.raises(KeyError):
        fb.set_printoptions(profile="long")


def test_a_summary_reads_the_corners_alone():
    """What it leaves out is not copied: these elements take 64 GiB and more."""
    whole = fb.arange(2000.0).reshape(2, 1000)
    for t, small in ((fb.ones(1).expand(2**34), fb.ones(2000)), (fb.ones(1, 1).expand(2**20, 2**34), fb.ones(50, 50)),
                     (fb.ones(1, dtype=fb.bfloat16).expand(2**34), fb.ones(2000, dtype=fb.bfloat16)),
                     (fb.ones(1, dtype=fb.complex64).expand(5, 2**34), fb.ones(5, 2000, dtype=fb.complex64)),
                     (whole[:, :500].expand(2**20, 2, 500).transpose(0, 1), whole[:, :500].expand(9, 2, 500).transpose(0, 1))):
        assert repr(t) == repr(small)


def test_a_gpu_s_summary_brings_the_corners_alone(sim_gpus):
    x = fb.arange(10_000_000.0, device="cuda:0")
    crossed: list[int] = []
    with dispatch.observe(copies=lambda copy: crossed.append(copy.nbytes)):
        text = repr(x)
    assert text.startswith("tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., ") and 0 < sum(crossed) < 1000
