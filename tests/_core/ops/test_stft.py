"""stft against windows cut by hand, and istft as its inverse."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch


def by_hand(x: np.ndarray, n: int, hop: int, w: np.ndarray, center: bool) -> np.ndarray:
    if center:
        x = np.pad(x, n // 2, mode="reflect")
    frames = [x[i:i + n] * w for i in range(0, len(x) - n + 1, hop)]
    return np.fft.rfft(np.array(frames), axis=1).T


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "hop"), [(16, 4), (8, 8), (15, 5)])
def test_against_frames_by_hand(device: str, n: int, hop: int, center: bool) -> None:
    x = np.random.default_rng(0).standard_normal(100)
    w = np.hanning(n + 1)[:n] + 0.1
    got = torch.stft(torch.tensor(x, device=device), n, hop, window=torch.tensor(w, device=device), center=center, return_complex=True)
    np.testing.assert_allclose(got.cpu().numpy(), by_hand(x, n, hop, w, center), atol=1e-10)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("onesided", [False, True])
def test_the_inverse_gives_the_signal_back(device: str, normalized: bool, onesided: bool) -> None:
    x = torch.randn(3, 200, dtype=torch.float64, device=device)
    w = torch.hann_window(32, dtype=torch.float64, device=device)
    f = torch.stft(x, 32, 8, window=w, normalized=normalized, onesided=onesided, return_complex=True)
    assert f.shape == (3, 17 if onesided else 32, 26)
    back = torch.istft(f, 32, 8, window=w, normalized=normalized, onesided=onesided, length=200)
    np.testing.assert_allclose(back.cpu().numpy(), x.cpu().numpy(), atol=1e-10)


def test_gradients_and_padding_modes() -> None:
    x = torch.randn(24, dtype=torch.float64, requires_grad=True)
    for mode in ("reflect", "constant", "replicate", "circular"):
        assert torch.autograd.gradcheck(lambda x, mode=mode: torch.stft(x, 8, 4, pad_mode=mode, return_complex=True), (x,))
    f = torch.randn(5, 6, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f: torch.istft(f, 8, 4), (f,))


def test_errors() -> None:
    x = torch.randn(20)
    with pytest.raises(RuntimeError, match="return_complex"):
        torch.stft(x, 8)
    with pytest.raises(RuntimeError, match="0 < n_fft"):
        torch.stft(x, 99, center=False, return_complex=True)
    with pytest.raises(RuntimeError, match="hop_length > 0"):
        torch.stft(x, 8, 0, return_complex=True)
    with pytest.raises(RuntimeError, match="win_length=4"):
        torch.stft(x, 8, win_length=4, window=torch.ones(5), return_complex=True)
    with pytest.raises(RuntimeError, match="1D or 2D"):
        torch.stft(x.reshape(1, 4, 5), 4, return_complex=True)
    with pytest.raises(RuntimeError, match="window overlap add min"):
        torch.istft(torch.randn(5, 4, dtype=torch.complex64), 8, 8, window=torch.zeros(8))
    real = torch.stft(x, 8, return_complex=False)
    assert real.shape == (5, 11, 2) and real.dtype is torch.float32


@pytest.mark.parametrize("n,hop", [(12, 5), (12, 4), (40, 2), (16, 16), (9, 1)])
def test_frames_are_added_where_they_overlap(n, hop):
    """However many parts of a frame overlap, and whether or not the hop divides it."""
    rng = np.random.default_rng(n)
    signal = torch.tensor(rng.standard_normal((2, 200)), requires_grad=True)
    window = torch.ones(n, dtype=torch.float64) if hop == n else torch.tensor(rng.uniform(0.5, 1, n))
    back = torch.istft(torch.stft(signal, n, hop, window=window, return_complex=True), n, hop, window=window)
    length = back.shape[1]
    np.testing.assert_allclose(back.detach().numpy(), signal.detach().numpy()[:, :length], atol=1e-12)
    back.sum().backward()
    np.testing.assert_allclose(signal.grad.numpy()[:, :length], 1, atol=1e-10)
