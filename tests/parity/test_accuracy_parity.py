"""No error of a function is larger than PyTorch's by more than one unit of the last place: a few points of each section of tools/accuracy.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

mp = pytest.importorskip("mpmath", reason="PyTorch brings it along")

from tools import accuracy  # noqa: E402

HELD = {"float32": ("lgamma", "i1", "bessel_j0", "ndtri", "zeta", "polygamma(2)"),
        "float64": ("digamma", "i1e", "bessel_y0", "ndtri", "erfc", "expm1", "tan", "polygamma(3)")}


@pytest.mark.parametrize(("dtype", "name"), [(dtype, name) for dtype, names in HELD.items() for name in names])
def test_errors_beside_pytorchs(dtype: str, name: str) -> None:
    assert [str(row) for row in accuracy.rows(name, dtype, 8, 3) if row.worse] == []


def test_units_of_the_last_place() -> None:
    assert accuracy.ulps(np.float64(1.0), mp.mpf(1), np.float64) == 0
    assert accuracy.ulps(np.float32(1.0 + 2.0 ** -23), mp.mpf(1), np.float32) == 1
    assert accuracy.ulps(np.float64(5e-324), mp.mpf(0), np.float64) == 1
    assert accuracy.ulps(np.float64(math.inf), mp.mpf(10) ** 400, np.float64) == 0
    assert accuracy.ulps(np.float64(math.inf), mp.mpf(1), np.float64) == math.inf
    assert accuracy.ulps(np.float64(math.inf), -mp.mpf(10) ** 400, np.float64) == math.inf


def test_zeros_are_changes_of_sign_and_no_poles() -> None:
    found = accuracy.zeros(lambda x: mp.tan(x), np.float64, [0.5, 1.0, 2.0, 3.0, 4.0])
    assert len(found) == 1 and abs(found[0] - math.pi) < 1e-15
    assert {np.nextafter(np.float64(2.0), 3), np.float64(2.0)} <= set(accuracy.neighbours(2.0, np.float64, 2.0, 3.0))
