"""Floats of 8 bits, by going through all 256 codes with exact fractions."""

from __future__ import annotations

import copy
import io
import math
from fractions import Fraction

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.dtypes import SMALL

TYPES = sorted(SMALL, key=lambda d: d.name)


def meaning(code: int, d) -> Fraction | float:
    """What a code stands for, by the words of the formats."""
    exponent_bits, mantissa, bias, most = SMALL[d]
    if d.name == "float8_e8m0fnu":
        return math.nan if code == 255 else Fraction(2) ** (code - 127)
    sign, low = (-1 if code & 128 else 1), code & 127
    if d.name.endswith("fnuz") and code == 128:
        return math.nan
    if low > most:
        return sign * math.inf if d.name == "float8_e5m2" and low == 0x7C else math.nan
    exponent, rest = low >> mantissa, low & (1 << mantissa) - 1
    if exponent:
        return sign * (1 + Fraction(rest, 1 << mantissa)) * Fraction(2) ** (exponent - bias)
    return sign * Fraction(rest, 1 << mantissa) * Fraction(2) ** (1 - bias)


def nearest(x: float, d) -> int:
    """The code of the nearest number by trying all that are not negative; ties to the even code, then the format's rule for what is too large."""
    most = SMALL[d][3]
    size = abs(Fraction(x))
    codes = range(most + 1)
    distance = {c: abs(meaning(c, d) - size) for c in codes}
    best = min(codes, key=lambda c: (distance[c], c % 2))
    half = (meaning(most, d) - meaning(most - 1, d)) / 2
    over = size - meaning(most, d)
    if over > half or (over == half and most % 2):
        best = {"float8_e4m3fn": most, "float8_e5m2": most + 1}.get(d.name, None)
    if d.name.endswith("fnuz"):
        return 128 if best is None else best + (128 if x < 0 and best else 0)
    return best + (128 if math.copysign(1, x) < 0 else 0)


def cases() -> list[float]:
    g = np.random.default_rng(0)
    spread = (g.standard_normal(150) * np.exp(g.uniform(-12, 12, 150))).astype(np.float32).tolist()
    return [0.0, -0.0, 1.0, -1.5, 464.0, 465.0, 480.0, 240.0, 248.0, 249.0, 57344.0, 61440.0, 61439.0, 1e6, -1e6, 1e-9, -1e-9, 0.001953125,
            0.0009765625, *spread]


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_what_codes_mean(d, device) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    for code, value in enumerate(codes.view(d).to(torch.float64).tolist()):
        want = float(meaning(code, d))
        assert value == want or (math.isnan(value) and math.isnan(want)), code
    back = codes.view(d).to(torch.float32).to(d).view(torch.uint8)
    finite = codes.view(d).to(torch.float32).isfinite()
    assert torch.equal(back[finite], codes[finite])


@pytest.mark.parametrize("d", [d for d in TYPES if d.name != "float8_e8m0fnu"], ids=str)
def test_the_nearest_code(d, device) -> None:
    x = cases()
    assert torch.tensor(x, device=device).to(d).view(torch.uint8).tolist() == [nearest(v, d) for v in x]
    assert torch.tensor([math.nan], device=device).to(d).to(torch.float32).isnan().all()


def test_powers_of_two(device) -> None:
    x = torch.tensor([1.0, 1.49, 1.5, 3.0, 0.75, -2.0, 2.0**-126, 2.0**-127, 0.0, 1.5 * 2.0**127, math.inf], device=device)
    assert x.to(torch.float8_e8m0fnu).view(torch.uint8).tolist() == [127, 127, 128, 129, 127, 128, 1, 0, 0, 255, 255]


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_carried_and_converted(d, device) -> None:
    x = torch.tensor([0.5, 1.0, 2.0, 4.0], device=device)
    y = x.to(d)
    assert y.dtype is d and y.element_size() == 1 and y.is_floating_point() and y.tolist() == x.tolist() and y[1].item() == 1.0
    assert torch.cat([y, y]).reshape(2, 4).t().contiguous().tolist() == [[v, v] for v in x.tolist()]
    assert y[torch.tensor([2, 0], device=device)].tolist() == [2, 0.5]
    assert x.double().to(d).long().tolist() == [0, 1, 2, 4] and x.bfloat16().to(d).half().tolist() == x.tolist()
    assert torch.ones(2, dtype=d, device=device).tolist() == [1, 1] and torch.full((2,), 2.0, dtype=d, device=device).tolist() == [2, 2]
    z = torch.zeros(4, device=device).copy_(y)
    assert torch.equal(z, x) and torch.empty(4, dtype=d, device=device).copy_(x).tolist() == x.tolist()
    assert (y == y).all() and not (y != y).any() and torch.where(x > 1, y, y.flip(0)).tolist() == [4, 2, 2, 4]
    assert repr(y.cpu()) == f"tensor([0.5000, 1.0000, 2.0000, 4.0000], dtype=torch.{d.name})" and copy.deepcopy(y).tolist() == y.tolist()
    assert y.to("cpu").to(device).tolist() == x.tolist()


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_files_and_limits(d) -> None:
    y = torch.tensor([0.5, 1.0, 2.0]).to(d)
    file = io.BytesIO()
    torch.save({"y": y}, file)
    file.seek(0)
    again = torch.load(file)["y"]
    assert again.dtype is d and again.tolist() == y.tolist()
    f, finite = torch.finfo(d), [float(meaning(c, d)) for c in range(256) if math.isfinite(meaning(c, d))]
    assert (f.max, f.min, f.bits, f.dtype) == (max(finite), min(finite), 8, d.name)
    assert f.eps == (0.125 if d.name == "float8_e5m2fnuz" else 2.0 ** -SMALL[d][1])  # the first is what PyTorch says


def test_a_gradient_goes_through() -> None:
    x = torch.ones(2, requires_grad=True)
    (x.to(torch.float8_e5m2).to(torch.float32) * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_sizes_and_what_is_no_number(d, device) -> None:
    codes = np.arange(256, dtype=np.uint8)
    x = torch.from_numpy(codes).view(d).to(device)
    told = [float(meaning(int(c), d)) for c in codes]
    np.testing.assert_array_equal(x.isnan().cpu().numpy(), np.isnan(told))
    assert x.abs().dtype is d
    np.testing.assert_array_equal(x.abs().float().cpu().numpy(), np.abs(np.asarray(told, np.float32)))


@pytest.mark.parametrize("name", ["add", "mul", "neg", "exp", "mm", "sum"])
def test_nothing_is_computed(name: str) -> None:
    y = torch.ones(2, 2).to(torch.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match="Float8_e4m3fn"):
        getattr(torch, name)(*([y] if name in ("neg", "exp", "sum") else [y, y]))
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported"):
        torch.promote_types(y.dtype, torch.float32)
    with pytest.raises(TypeError, match="unsupported ScalarType Float8_e4m3fn"):
        y.numpy()
