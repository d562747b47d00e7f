"""Windows against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports scipy.signal when it is first asked for

import flambeau as torch
from flambeau.signal import windows

CASES = [("hann", {}), ("hamming", {}), ("blackman", {}), ("nuttall", {}), ("bartlett", {}), ("cosine", {}), ("gaussian", {"std": 2.5}),
         ("exponential", {"tau": 1.7}), ("general_cosine", {"a": [0.4, 0.3, 0.2, 0.1]}), ("general_hamming", {"alpha": 0.7})]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("m", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("sym", [True, False])
def test_against_scipy(device: str, name: str, options: dict, m: int, sym: bool) -> None:
    got = getattr(windows, name)(m, sym=sym, dtype=torch.float64, device=device, **options)
    assert got.shape == (m,) and str(got.device) == str(torch.device(device) if device == "cpu" else got.device)
    if m:
        np.testing.assert_allclose(got.cpu().numpy(), getattr(scipy.signal.windows, name)(m, sym=sym, **options), atol=1e-12)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett"])
def test_the_older_names(device: str, name: str) -> None:
    f = getattr(torch, name + "_window")
    for periodic in (True, False):
        got = f(9, periodic, dtype=torch.float64, device=device)
        np.testing.assert_allclose(got.cpu().numpy(), getattr(scipy.signal.windows, name)(9, sym=not periodic), atol=1e-12)
    assert f(0).shape == (0,) and f(1).tolist() == [1.0] and f(4, dtype=torch.float16).dtype is torch.float16


def test_errors() -> None:
    with pytest.raises(ValueError, match="non-negative window length"):
        windows.hann(-1)
    with pytest.raises(ValueError, match="float32 or float64"):
        windows.hann(3, dtype=torch.float16)
    with pytest.raises(ValueError, match="Tau"):
        windows.exponential(3, tau=0)
    with pytest.raises(ValueError, match="Standard deviation"):
        windows.gaussian(3, std=-1)
    with pytest.raises(ValueError, match="empty"):
        windows.general_cosine(3, a=[])
    with pytest.raises(RuntimeError, match="non-negative window_length"):
        torch.hann_window(-2)
    assert windows.hann(5, requires_grad=True).requires_grad
