"""Fourier transforms against NumPy: every form, length, axis and norm, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 6))
Z = X + 1j * RNG.normal(size=(3, 4, 6))
NORMS = [None, "backward", "ortho", "forward"]


def same(got, want, rtol=1e-10):
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("n,dim", [(None, -1), (None, 0), (5, 1), (9, -1), (1, 0), (4, 2)])
def test_one_axis(name, norm, n, dim):
    a = X if name in ("rfft", "ihfft") else Z
    if name in ("irfft", "hfft") and n == 1:
        n = 3
    same(getattr(fb.fft, name)(fb.tensor(a), n, dim, norm), getattr(np.fft, name)(a, n, dim, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("s,dim", [(None, None), (None, (0, 2)), ((3, 5), (1, 2)), ((6, 4), (2, 0))])
def test_several_axes(name, norm, s, dim):
    a = X if name.startswith("rfft") else Z
    two = name.endswith("2")
    dim = (-2, -1) if two and dim is None else dim
    same(getattr(fb.fft, name)(fb.tensor(a), s=s, dim=dim, norm=norm), getattr(np.fft, name)(a, s, dim if dim is not None else None, norm))


@pytest.mark.parametrize("name", ["fft", "ifft", "fft2", "ifftn"])
@pytest.mark.parametrize("n", [None, 4, 5, 99])
def test_real_numbers_are_taken_where_complex_ones_are(name, n):
    if n and name not in ("fft", "ifft"):
        same(getattr(fb.fft, name)(fb.tensor(X), (n, 3), (2, 0)), getattr(np.fft, name)(X, (n, 3), (2, 0)))
    else:
        same(getattr(fb.fft, name)(fb.tensor(X), *([n] if n else [])), getattr(np.fft, name)(X, *([n] if n else [])))
        same(getattr(fb.fft, name)(fb.tensor(X).permute(2, 0, 1)), getattr(np.fft, name)(X.transpose(2, 0, 1)))


def test_types_layouts_and_round_trips():
    assert fb.fft.fft(fb.tensor(X).float()).dtype is fb.complex64 and fb.fft.fft(fb.arange(4)).dtype is fb.complex64
    assert fb.fft.rfft(fb.tensor(X)).dtype is fb.complex128
    same(fb.fft.fft(fb.tensor(X).float()), np.fft.fft(X), 1e-4)
    same(fb.fft.fft(fb.tensor(Z).permute(2, 0, 1), dim=1), np.fft.fft(Z.transpose(2, 0, 1), axis=1))
    same(fb.fft.ifftn(fb.fft.fftn(fb.tensor(Z))), Z)
    same(fb.fft.irfft(fb.fft.rfft(fb.tensor(X)), 6), X)
    same(fb.fft.irfft(fb.fft.rfft(fb.tensor(X[..., :5])), 5), X[..., :5])
    out = fb.empty(0, dtype=fb.complex128)
    assert fb.fft.fft(fb.tensor(Z), out=out) is out
    assert fb.fft.fft(fb.zeros(0, 3)).shape == (0, 3)
    power = (fb.fft.fft(fb.tensor(Z), norm="ortho").abs() ** 2).sum().item()
    assert power == pytest.approx((np.abs(Z) ** 2).sum())


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        same(fb.fft.fftfreq(n, 0.5, dtype=fb.float64), np.fft.fftfreq(n, 0.5))
        same(fb.fft.rfftfreq(n, 0.5, dtype=fb.float64), np.fft.rfftfreq(n, 0.5))
        for axes in (None, (0,), (0, 2)):
            a = X[:, :, :n]
            same(fb.fft.fftshift(fb.tensor(a), axes), np.fft.fftshift(a, axes))
            same(fb.fft.ifftshift(fb.tensor(a), axes), np.fft.ifftshift(a, axes))


@pytest.mark.parametrize("call,message", [
    (lambda: fb.fft.fft(fb.tensor(Z), 0), "Invalid number of data points"), (lambda: fb.fft.fft(fb.tensor(Z), norm="unit"), "Invalid normalization mode"),
    (lambda: fb.fft.rfft(fb.tensor(Z)), "rfft expects a real input tensor, but got ComplexDouble"),
    (lambda: fb.fft.ihfft2(fb.tensor(Z)), "ihfftn expects a real-valued input tensor, but got ComplexDouble"),
    (lambda: fb.fft.fftn(fb.tensor(Z), dim=(0, 0)), "unique"),
    (lambda: fb.fft.fftn(fb.tensor(Z), s=(2,), dim=(0, 1)), "same length"), (lambda: fb.fft.fft(fb.tensor(Z), dim=3), "out of range"),
    (lambda: fb.fft.fft(fb.zeros(4, dtype=fb.float16)), "Unsupported dtype Half"),
    (lambda: fb.fft.rfft(fb.zeros(4, dtype=fb.bfloat16)), "Unsupported dtype BFloat16"),
    (lambda: fb.fft.ifft(fb.zeros(4, dtype=fb.complex32)), "MKL FFT doesn't support tensors of type: Half")])
def test_errors(call, message):
    with pytest.raises((RuntimeError, IndexError), match=message):
        call()


def test_lengths_and_axes_are_integers():
    z = fb.tensor(Z)
    assert fb.equal(fb.fft.fft(z, fb.tensor([4]), fb.tensor(0)), fb.fft.fft(z, 4, 0)) and fb.equal(fb.fft.fftn(z, (fb.tensor(2),), [0]), fb.fft.fftn(z, 2, 0))
    for call, message in ((lambda: fb.fft.fft(z, 2.0), r"fft_fft\(\): argument 'n' \(position 2\) must be int, not float"),
                          (lambda: fb.fft.irfft(z, fb.tensor([4.0])), r"fft_irfft\(\): argument 'n' \(position 2\) must be int, not Tensor"),
                          (lambda: fb.fft.fft(z, 2, 0.5), r"fft_fft\(\): argument 'dim' \(position 3\) must be int, not float"),
                          (lambda: fb.fft.fft2(z, fb.tensor([2, 2])), r"fft_fft2\(\): argument 's' \(position 2\) must be tuple of ints, not Tensor"),
                          (lambda: fb.fft.fftn(z, (2.0, 2)), "must be tuple of ints, but found element of type float at pos 0"),
                          (lambda: fb.quantile(z.real, 0.5, fb.ones(1)), r"quantile\(\): argument 'dim' \(position 3\) must be int, not Tensor")):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_halves_on_gpus(queue):
    """In float32 and rounded once, of lengths that cuFFT has plans for."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 8)).astype(np.float16)
    with fb.simulate(gpus=1, queue=queue):
        t = fb.tensor(x, device="cuda")
        for name, more in (("fft", ()), ("rfft", ()), ("ihfft", ()), ("ifft", ()), ("fft", (16,)), ("rfft", (4,)), ("irfft", (8,)), ("hfft", (4,))):
            made = getattr(fb.fft, name)(t, *more)
            want = getattr(np.fft, name)(x.astype(np.float64), *more)
            assert made.dtype is (fb.float16 if name in ("irfft", "hfft") else fb.complex32) and made.device.type == "cuda"
            wide = made.cpu().to(fb.complex64 if made.is_complex() else fb.float32).numpy()
            np.testing.assert_allclose(wide, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())
        back = fb.fft.ifftn(fb.fft.fftn(t.to(fb.complex32), s=(4, 8)))
        assert back.dtype is fb.complex32 and (back.real[:3].float().cpu() - fb.tensor(x).float()).abs().max() < 5e-3
        for call, size in ((lambda: fb.fft.fft(t, 6), r"\[6\]"), (lambda: fb.fft.irfft(t), r"\[14\]"), (lambda: fb.fft.rfft2(t), r"\[3, 8\]")):
            with pytest.raises(RuntimeError, match="cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a "
                                                   f"signal size of{size}"):
                call()
        with pytest.raises(RuntimeError, match="Unsupported dtype BFloat16"):
            fb.fft.fft(t.bfloat16())
        leaf = t.clone().requires_grad_()
        (fb.fft.fft(leaf).abs() ** 2).sum().backward()
        np.testing.assert_allclose(leaf.grad.float().cpu().numpy(), 16 * x.astype(np.float32), rtol=1e-2, atol=0.3)
    assert fb.fft.rfft(fb.ones(6, dtype=fb.float16, device="meta")).dtype is fb.complex32


FORMS = {"fft": lambda z: fb.fft.fft(z * z, 5), "ifft": lambda z: fb.fft.ifft(z * z, dim=0, norm="ortho"), "fftn": lambda z: fb.fft.fftn(z * z),
         "irfft": lambda z: fb.fft.irfft(z * z, 4),
         "irfft odd": lambda z: fb.fft.irfft(z, 5), "hfft": lambda z: fb.fft.hfft(z), "irfft2": lambda z: fb.fft.irfft2(z * z)}
REAL = {"rfft": lambda x: fb.fft.rfft(x * x), "rfft odd": lambda x: fb.fft.rfft(x, 5), "ihfft": lambda x: fb.fft.ihfft(x),
        "rfftn": lambda x: fb.fft.rfftn(x * x), "rfft long": lambda x: fb.fft.rfft(x * x, 75), "irfft long": lambda x: fb.fft.irfft(x * x, 73),
        "fft of real": lambda x: fb.fft.fft(x * x), "ifft of real": lambda x: fb.fft.ifft(x * x, dim=0), "fftn of real": lambda x: fb.fft.fftn(x * x),
        "real fft": lambda x: fb.fft.fft(x).abs() ** 2, "shift": lambda x: fb.fft.fftshift(x * x)}


@pytest.mark.parametrize("name", [*FORMS, *REAL])
def test_gradients_match_finite_differences(name):
    t = fb.tensor(Z[:2, 0, :3] if name in FORMS else X[:2, 0, :4], requires_grad=True)
    f = {**FORMS, **REAL}[name]
    assert gradcheck(f, (t,), check_forward_ad=True) and gradgradcheck(f, (t,))


def test_on_every_device(device):
    z = fb.tensor(Z).to(device)
    got = fb.fft.fft2(z)
    assert str(got.device) == device
    same(got.cpu(), np.fft.fft2(Z))
    same(fb.fft.irfft(fb.fft.rfft(fb.tensor(X).to(device)), 6).cpu(), X)


def test_frequencies_of_no_points_and_of_no_spacing():
    assert fb.fft.fftfreq(0).tolist() == []
    assert np.isnan(fb.fft.rfftfreq(0).numpy()).all() and fb.fft.rfftfreq(0).shape == (1,)
    with np.errstate(all="ignore"):
        wanted = np.array([0.0, 1.0, -1.0]) * np.float64(np.inf)
    np.testing.assert_array_equal(fb.fft.fftfreq(3, 0.0).numpy(), wanted.astype(np.float32))
