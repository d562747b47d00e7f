"""Padding, shuffles, sliding blocks and one-hot codes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.autograd import gradcheck
from flambeau.nn import functional as F


def _random(*shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("mode,name", [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"),
                                       ("circular", "wrap")])
@pytest.mark.parametrize("shape,amounts", [((2, 3, 5), (2, 1)), ((2, 3, 4, 5), (1, 3, 2, 0)), ((3, 4, 3, 5),
                                                                                               (0, 2, 1, 1))])
def test_pad_against_numpy(mode, name, shape, amounts):
    x = _random(*shape)
    pairs = [(0, 0)] * len(shape)
    for i in range(len(amounts) // 2):
        pairs[-1 - i] = amounts[2 * i:2 * i + 2]
    t = flambeau.from_numpy(x.copy()).requires_grad_()
    np.testing.assert_array_equal(F.pad(t, amounts, mode).detach().numpy(), np.pad(x, pairs, name))
    assert gradcheck(lambda v: F.pad(v, amounts, mode), (t,))


@pytest.mark.parametrize("mode, name", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize("layout", ["rows", "channels last", "turned"])
def test_borders_are_copied_from_any_layout_and_have_gradients_of_any_order(mode, name, layout):
    x = _random(2, 3, 6, 5)
    t = flambeau.from_numpy(x.copy())
    t = t.contiguous(memory_format=flambeau.channels_last) if layout == "channels last" else t if layout == "rows" else t.mT.contiguous().mT
    t.requires_grad_()
    for amounts in ((2, 3, 4, 1), (0, 0, 5, 0), (1, 0, 0, 2)):
        made = F.pad(t, amounts, mode)
        want = np.pad(x, [(0, 0), (0, 0), amounts[2:], amounts[:2]], name)
        np.testing.assert_array_equal(made.detach().numpy(), want)
        np.testing.assert_array_equal(F.pad(t.detach(), amounts, mode).numpy(), want)  # by the same plan, unrecorded
        g = flambeau.from_numpy(_random(*want.shape)).requires_grad_()
        (back,) = flambeau.autograd.grad(made, t, g, create_graph=True)
        # the transpose of what pads: <pad(t), g> = <t, back>, and what back says of g is pad again
        np.testing.assert_allclose((back * t).sum().item(), (want * g.detach().numpy()).sum(), rtol=1e-12)
        (again,) = flambeau.autograd.grad(back, g, flambeau.from_numpy(x))
        np.testing.assert_array_equal(again.numpy(), want)


def test_constant_padding_crops_too():
    x = np.arange(12.0).reshape(3, 4)
    out = F.pad(flambeau.from_numpy(x), (-1, 2, 1, -1), value=7.0)
    expected = np.full((3, 5), 7.0)
    expected[1:, :3] = x[:2, 1:]
    np.testing.assert_array_equal(out.numpy(), expected)
    same = F.pad(flambeau.from_numpy(x), (0, 0))
    same.zero_()
    assert x[0, 1] == 1.0


@pytest.mark.parametrize("amounts,mode,error,text", [
    ((1,), "constant", RuntimeError, "must be divisible by 2"),
    ((0,) * 8, "constant", RuntimeError, "less than or equal to two times the input dimension"),
    ((-3, -3), "constant", RuntimeError, "resulted in a negative output size"),
    ((4, 0), "reflect", RuntimeError, "should be less than the corresponding input dimension"),
    ((5, 0), "circular", RuntimeError, "wrapping around more than once"),
    ((1, 1), "mirror", NotImplementedError, "Unrecognised padding mode mirror"),
])
def test_bad_padding(amounts, mode, error, text):
    with pytest.raises(error, match=text):
        F.pad(flambeau.zeros(2, 3, 4), amounts, mode)


def test_one_hot():
    np.testing.assert_array_equal(F.one_hot(flambeau.tensor([[0, 2], [1, 0]])).numpy(),
                                  np.eye(3, dtype=np.int64)[[[0, 2], [1, 0]]])
    assert F.one_hot(flambeau.zeros(0, dtype=flambeau.int64), 3).shape == (0, 3)
    for t, n, text in ((flambeau.tensor([0.0]), 2, "only applicable to index tensor"),
                       (flambeau.tensor([-1]), 2, "must be non-negative"),
                       (flambeau.tensor([2]), 2, "must be smaller than num_classes"),
                       (flambeau.zeros(0, dtype=flambeau.int64), -1, "Can not infer total number of classes")):
        with pytest.raises(RuntimeError, match=text):
            F.one_hot(t, n)


def test_shuffles():
    x = _random(2, 8, 3, 2)
    t = flambeau.from_numpy(x)
    shuffled = F.pixel_shuffle(t, 2)
    expected = x.reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)
    np.testing.assert_array_equal(shuffled.numpy(), expected)
    np.testing.assert_array_equal(F.pixel_unshuffle(shuffled, 2).numpy(), x)
    np.testing.assert_array_equal(F.channel_shuffle(t, 4).numpy()[:, [0, 1, 4]], x[:, [0, 2, 1]])
    for call in (lambda: F.pixel_shuffle(t, 3), lambda: F.pixel_unshuffle(t, 2), lambda: F.channel_shuffle(t, 3),
                 lambda: F.pixel_shuffle(t[0, 0], 2)):
        with pytest.raises(RuntimeError):
            call()


def test_unfold_and_fold_are_transposes():
    x = flambeau.from_numpy(_random(2, 3, 6, 5)).requires_grad_()
    geometry = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 0), "stride": (1, 2)}
    cols = F.unfold(x, **geometry)
    assert cols.shape == (2, 18, 12)
    padded = np.pad(x.detach().numpy(), ((0, 0), (0, 0), (1, 1), (0, 0)))
    block = padded[1, :, 2:5:2, 2:5]  # the block at row 2, column 1
    np.testing.assert_array_equal(cols.detach().numpy()[1, :, 5], block.reshape(-1))
    y = flambeau.from_numpy(_random(2, 18, 12)).requires_grad_()
    folded = F.fold(y, (6, 5), **geometry)
    left, right = (cols * y).sum().item(), (x * folded).sum().item()
    assert left == pytest.approx(right, rel=1e-12)
    assert gradcheck(lambda v: F.unfold(v, **geometry), (x,)) and gradcheck(lambda v: F.fold(v, (6, 5), **geometry),
                                                                            (y,))
    with pytest.raises(RuntimeError, match="number of sliding blocks"):
        F.fold(flambeau.zeros(1, 18, 11), (6, 5), **geometry)
    with pytest.raises(RuntimeError, match="components must be at least one"):
        F.unfold(flambeau.zeros(1, 1, 2, 2), 3)


def test_borders_met_before():
    """The second call on the same layout goes by what the first one kept: values, types and gradients as before."""
    for dtype in (flambeau.float32, flambeau.bfloat16, flambeau.int64):
        for value in (None, 2, 0.0, -0.0, -1):
            if dtype is flambeau.int64 and isinstance(value, float):
                continue
            for scale in (1, 1, -2):
                x = (flambeau.arange(6).reshape(2, 3) * scale).to(dtype)
                for t in (x, x.t()):
                    made = F.pad(t, (1, 2, 0, 1), value=value)
                    want = np.pad(np.array(t.tolist()), ((0, 1), (1, 2)), constant_values=value or 0)
                    assert made.dtype is dtype and made.is_contiguous() and made.tolist() == want.tolist()
                    assert str(float(made[0, 0])) == str(float(0 if value is None else value))
    w = flambeau.nn.Parameter(flambeau.ones(2, 3))
    names = set()
    for _ in range(3):
        w.grad = None
        made = F.pad(w, (1, 1))
        names.add(made.grad_fn.name())
        (made * flambeau.arange(5.0)).sum().backward()
        assert w.grad.tolist() == [[1.0, 2.0, 3.0]] * 2
        with flambeau.no_grad():
            assert F.pad(w, (1, 1)).grad_fn is None
    assert len(names) == 1


@pytest.mark.parametrize("wrong,says", [({"stride": 0}, "stride should be greater than zero, but got stride_height: 0 stride_width: 0"),
                                        ({"stride": (1, -1)}, "stride should be greater than zero, but got stride_height: 1 stride_width: -1"),
                                        ({"dilation": 0}, "dilation should be greater than zero, but got dilation_height: 0 dilation_width: 0"),
                                        ({"kernel_size": 0}, "kernel size should be greater than zero, but got kernel_height: 0 kernel_width: 0"),
                                        ({"padding": -1}, "padding should be non-negative, but got pad_height: -1 pad_width: -1")])
def test_sliding_blocks_of_impossible_geometry(wrong, says):
    geometry = {"kernel_size": 2, **wrong}
    for call in (lambda: F.unfold(flambeau.ones(1, 1, 4, 4), **geometry), lambda: F.fold(flambeau.ones(1, 4, 4), (4, 4), **geometry)):
        with pytest.raises(RuntimeError, match=says):
            call()


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("shape, amounts", [((3, 0, 10), 2), ((3, 0, 10, 10), 4), ((3, 0, 10, 10, 10), 6), ((2, 3, 0), 2)])
def test_pads_that_copy_want_elements(mode, shape, amounts):
    spatial = amounts // 2
    with pytest.raises(RuntimeError, match=f"Expected {spatial + 1}D or {spatial + 2}D"):
        F.pad(flambeau.ones(shape), (2,) * amounts, mode=mode)
    assert F.pad(flambeau.ones(0, 3, 10), (2, 2), mode=mode).shape == (0, 3, 14)


def test_sliding_blocks_that_do_not_fit():
    with pytest.raises(RuntimeError, match="Expected 3D or 4D"):
        F.unfold(flambeau.ones(3, 0, 3, 4), (2, 3))
    assert F.unfold(flambeau.ones(0, 3, 3, 4), (2, 3)).shape == (0, 18, 4)
    with pytest.raises(RuntimeError, match=r"calculated shape of the array of sliding blocks as \(-4, -3\)"):
        F.fold(flambeau.ones(1, 12, 12), (4, 5), (2, 2), dilation=8)
    with pytest.raises(RuntimeError, match="match the calculated number of sliding blocks"):
        F.fold(flambeau.ones(1, 6, 10), (4, 5), (2, 3))


def test_images_with_their_channels_innermost_stay_so():
    last = flambeau.channels_last
    x = flambeau.rand(2, 8, 4, 6).contiguous(memory_format=last).requires_grad_()
    y = x.detach().contiguous().requires_grad_()
    for call in (lambda t: F.pad(t, (1, 2, 0, 1)), lambda t: F.pad(t, (-1, 2, 0, 1), value=3), lambda t: F.pad(t, (1, 2, 0, 1), mode="reflect"),
                 lambda t: F.pad(t, (1, 2, -1, 1), mode="replicate"), lambda t: F.pad(t, (1, 2, 0, 1), mode="circular"),
                 lambda t: F.pad(t, (0, 0, 0, 0), mode="reflect"),
                 lambda t: F.pixel_shuffle(t, 2), lambda t: F.pixel_unshuffle(t, 2), lambda t: F.channel_shuffle(t, 4)):
        made, plain = call(x), call(y)
        assert made.is_contiguous(memory_format=last) and plain.is_contiguous() and flambeau.equal(made, plain)
        g = flambeau.rand(made.shape)
        (gx,), (gy,) = (flambeau.autograd.grad(r, t, g) for r, t in ((made, x), (plain, y)))
        assert flambeau.equal(gx, gy)
    assert flambeau.autograd.grad(F.pad(x, (1, 1, 1, 1), mode="reflect").sum(), x)[0].is_contiguous(memory_format=last)


def test_channels_are_dealt_out_by_another_name() -> None:
    x = flambeau.arange(8.0).reshape(1, 4, 2)
    assert flambeau.native_channel_shuffle(x, 2).tolist() == x.numpy().reshape(1, 2, 2, 2).transpose(0, 2, 1, 3).reshape(1, 4, 2).tolist()
    assert flambeau.nn.functional.native_channel_shuffle is flambeau.native_channel_shuffle
    with pytest.raises(RuntimeError, match="divisible by groups"):
        flambeau.native_channel_shuffle(x, 3)
