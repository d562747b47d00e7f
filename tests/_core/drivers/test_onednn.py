"""oneDNN: probed, optional, and right where it is."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.drivers.cpu import onednn

absent = onednn.why()


def told(code: str, path: str) -> str:
    environment = dict(os.environ, FLAMBEAU_ONEDNN=path)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


def test_a_file_that_is_no_library_is_told_and_does_no_harm(tmp_path) -> None:
    bad = tmp_path / "libdnnl.so.3"
    bad.write_bytes(b"no library")
    code = ("import flambeau as t; from flambeau._core.drivers.cpu import onednn; a = t.ones(3, 3, dtype=t.bfloat16);"
            "print((a @ a).tolist()[0], onednn.library(), onednn.why())")
    out = told(code, str(bad))
    assert out.startswith("[3.0, 3.0, 3.0] None") and "cannot be used" in out
    assert "not installed" in told(code, "")


@pytest.mark.skipif(absent is not None, reason=f"oneDNN: {absent}")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (4, 64, 32, 16), (2, 1, 100, 1), (1, 128, 256, 64)])
def test_products(dtype, shape) -> None:
    batch, m, n, k = shape
    a, b = torch.randn(batch, m, k).to(dtype), torch.randn(batch, k, n).to(dtype)
    want = a.double().numpy() @ b.double().numpy()
    eps = torch.finfo(dtype).eps
    for x, y in ((a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT)):
        got = (x @ y).double().numpy()
        np.testing.assert_allclose(got, want, rtol=2 * eps, atol=4 * eps * np.sqrt(k))
    np.testing.assert_allclose((a[0] @ b[0]).double().numpy(), want[0], rtol=2 * eps, atol=4 * eps * np.sqrt(k))
