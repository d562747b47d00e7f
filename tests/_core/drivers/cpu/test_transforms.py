"""The CPU's Fourier transforms against NumPy's in double precision: sizes, axes, kinds, threads, memory that is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from math import prod

import numpy as np
import pytest

import flambeau as fb
from flambeau._core import dtypes
from flambeau._core.drivers.cpu import real_transforms, transform_rows, transforms
from flambeau._core.kernels.specs import Fft, RealFft

TYPES = {"complex64": (dtypes.complex64, np.float32, np.complex64), "complex128": (dtypes.complex128, np.float64, np.complex128)}
WAYS = (("r2c", False), ("r2c", True), ("c2r", False))
PAD = 64  # numbers before and behind what may be written


def close(got, want, item):
    """Within a few units in the last place of the norm, which grow as the logarithm of the size does."""
    size = max(want.size, 2)
    norm = np.linalg.norm(want)
    assert np.linalg.norm(got - want) <= (1 + np.log2(size) / 2) * np.finfo(np.float32 if item == 8 else np.float64).eps * max(norm, 1e-300)


def launch(made, source, shape, kind):
    """The launch's result, written between numbers that must stay as they are; the source must stay too."""
    room = np.full(prod(shape) + 2 * PAD, 7, kind)
    before, work = source.copy(), np.empty(made.workspace, np.uint8)
    out = room[PAD:PAD + prod(shape)]
    made.entry(out.ctypes.data, source.ctypes.data, *([work.ctypes.data] if made.workspace else []))
    assert (room[:PAD] == 7).all() and (room[-PAD:] == 7).all() and (source == before).all()
    return out.reshape(shape)


def numbers(shape, kind, seed=0):
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(kind).kind == "c" else x).astype(kind)


def check_complex(name, shape, axes, inverse=False, scale=1.0):
    d, _, kind = TYPES[name]
    x = numbers(shape, kind)
    wide = x.astype(np.complex128)
    want = np.fft.ifftn(wide, axes=axes, norm="forward") if inverse else np.fft.fftn(wide, axes=axes)
    close(launch(transforms.transform(Fft(d, shape, axes, inverse, scale)), x, shape, kind), want * scale, x.itemsize)


def check_real(name, shape, axes, kind, inverse, scale=1.0, adjoint=False, whole=False):
    d, real, complex_ = TYPES[name]
    last = axes[-1]
    half = (*shape[:last], shape[last] // 2 + 1, *shape[last + 1:])
    made = real_transforms.real_transform(RealFft(kind, d, shape, axes, inverse, scale, True, adjoint, whole))
    if made is None:
        return False
    weight = np.ones([shape[last] // 2 + 1 if a == last else 1 for a in range(len(shape))])
    if adjoint:
        np.moveaxis(weight, last, 0)[1:(shape[last] + 1) // 2] = 2.0 if kind == "r2c" else 0.5
    if kind == "r2c":
        x = numbers(shape, real)
        want = np.fft.fftn(x.astype(np.float64), axes=axes) if whole else np.fft.rfftn(x.astype(np.float64), axes=axes) * weight
        close(launch(made, x, shape if whole else half, complex_), (want.conj() if inverse else want) * scale, 2 * x.itemsize)
    else:
        x = numbers(half, complex_)
        wide = x.astype(np.complex128)
        lengths = [shape[a] for a in axes]
        want = np.fft.irfftn((wide if inverse else wide.conj()) * weight, lengths, axes=axes, norm="forward")
        close(launch(made, x, shape, real), want * scale, x.itemsize)
    return True


@pytest.mark.parametrize("name", TYPES)
def test_every_small_size(name):
    for n in range(1, 131):
        for shape, axis in (((n,), 0), ((3, n), 1), ((21, n), 1), ((2, n, 3), 1), ((n, 18), 0)):
            for inverse in (False, True):
                check_complex(name, shape, (axis,), inverse)
                served = [check_real(name, shape, (axis,), kind, inverse, 0.5, whole=whole) for kind, whole in WAYS]
                assert all(served) or n % 2


LARGE = [256, 1000, 1009, 2 * 509, 3 * 5 * 7 * 11 * 13, 30030, 1 << 16, 127 * 127, 131 * 8, 1 << 17]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("n", LARGE)
def test_large_sizes(name, n):
    for shape, axis in (((n,), 0), ((3, n), 1), ((n, 2), 0)):
        for inverse in (False, True):
            check_complex(name, shape, (axis,), inverse)
            for kind, whole in WAYS:
                assert check_real(name, shape, (axis,), kind, inverse, whole=whole) or (n % 2 or not transform_rows.factors(n // 2)) and len(shape) > 1


def test_a_million():
    check_complex("complex64", (1 << 20,), (0,))
    assert check_real("complex64", (1 << 20,), (0,), "r2c", False)
    check_complex("complex64", (1000003,), (0,), True, 1e-6)


SHAPES = [((8, 6, 10), (0, 1, 2)), ((8, 6, 10), (2, 0)), ((64, 64), (0, 1)), ((5, 50, 70), (1, 2)), ((4, 3, 5, 2, 6), (0, 1, 2, 3, 4)), ((256, 512), (0, 1)),
          ((12, 139, 4), (1, 2)), ((3, 1, 8), (1, 2)), ((33, 20, 24), (1, 2)), ((40, 64, 64), (1, 2)), ((2, 33, 8, 9, 14), (2, 3, 4)),
          ((2, 33, 4, 60, 14), (1, 3, 4)), ((40, 4, 300), (2, 1)), ((40, 30, 2), (1, 2)), ((40, 10, 500), (1, 2))]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape,axes", SHAPES)
def test_several_axes(name, shape, axes):
    for inverse in (False, True):
        check_complex(name, shape, axes, inverse, 0.25)
        for kind, whole in WAYS:
            for adjoint in (False, True):
                assert check_real(name, shape, axes, kind, inverse, 0.25, adjoint and not whole, whole)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape,axes", [((1, 99), (1,)), ((2, 401), (1,)), ((7, 135), (1,)), ((3, 8, 125), (1, 2)), ((5, 6, 1009), (0, 2))])
def test_rows_of_odd_length_are_taken_in_pairs(name, shape, axes):
    for inverse in (False, True):
        for kind, whole in WAYS:
            for adjoint in (False, True):
                assert check_real(name, shape, axes, kind, inverse, 0.25, adjoint and not whole, whole)


def test_more_axes_than_stages_are_taken_in_groups():
    shape = (*[1] * 13, 2, 3)
    assert transforms.transform(Fft(dtypes.complex128, shape, tuple(range(15)), False)) is None
    x = numbers(shape, np.complex128)
    np.testing.assert_allclose(fb.fft.fftn(fb.tensor(x)).numpy(), np.fft.fftn(x), atol=1e-11)
    np.testing.assert_allclose(fb.fft.rfftn(fb.tensor(x.real.copy())).numpy(), np.fft.rfftn(x.real), atol=1e-11)


def test_results_do_not_depend_on_the_threads():
    x = fb.tensor(numbers((96, 1000), np.complex64))
    long, real = fb.tensor(numbers((1 << 17,), np.complex64)), fb.tensor(numbers((300, 512), np.float32))
    before, results = fb.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            results.append([f().numpy() for f in (lambda: fb.fft.fft2(x), lambda: fb.fft.ifft(x, dim=0), lambda: fb.fft.fft(long),
                                                  lambda: fb.fft.rfft2(real), lambda: fb.fft.irfft2(x))])
    finally:
        fb.set_num_threads(before)
    for those in zip(*results, strict=True):
        for other in those[1:]:
            assert (those[0] == other).all()


@pytest.mark.parametrize("n", [8, 15, 64, 1009, 1024])
def test_what_is_not_finite_spreads(n):
    x = numbers((3, n), np.complex128)
    x[1, n // 2] = np.nan
    got = fb.fft.fft(fb.tensor(x)).numpy()
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()
    x[1, n // 2] = np.inf
    assert not np.isfinite(fb.fft.fft(fb.tensor(x)).numpy()[1]).any()


@pytest.mark.parametrize("n", [16, 100, 127, 1000, 1009, 4096, 1 << 16])
def test_accuracy_of_float32(n):
    """Of numbers of like size: the error of the norm is some units of 2**-24, as theory says of a fast transform."""
    x = numbers((2, n), np.complex64)
    want = np.fft.fft(x.astype(np.complex128))
    got = fb.fft.fft(fb.tensor(x)).numpy()
    assert np.linalg.norm(got - want) < 3.5 * 2.0 ** -24 * np.linalg.norm(want)


def test_few_launches_with_large_tables_are_kept():
    def made(n):
        return transforms.transform(Fft(dtypes.complex64, (n,), (0,), False))
    first = made(1 << 18)
    assert not first.lasting and made(1 << 18) is first and made(1 << 10).lasting
    for k in range(1, 10):
        made((1 << 18) + 1024 * k)
    assert len(transforms._large) <= 8 and made(1 << 18) is not first
    x = fb.tensor(numbers((1 << 18,), np.complex64))
    results = [fb.fft.fft(x).numpy() for _ in range(6)]
    assert all((r == results[0]).all() for r in results)


def test_roots_are_exact_where_they_can_be():
    made = transform_rows.roots(8, np.arange(8))
    h = np.sqrt(0.5)
    assert np.abs(made - np.array([1, h - h * 1j, -1j, -h - h * 1j, -1, -h + h * 1j, 1j, h + h * 1j])).max() < 1.2e-16
    assert (made[[0, 2, 4, 6]] == [1, -1j, -1, 1j]).all()
    n = 12345
    angle = 8 * np.arctan(np.longdouble(1)) * np.arange(n) / n
    want = np.cos(angle) - 1j * np.sin(angle)
    assert np.abs(transform_rows.roots(n, np.arange(n)) - want).max() < 2.5e-16


@pytest.mark.parametrize("setting,value", [("FLAMBEAU_CPU", "x86-64-v3"), ("FLAMBEAU_CPU", "x86-64-v2"), ("FLAMBEAU_KERNELS", "interpret")])
def test_on_other_processors(setting, value):
    """With vectors of 32 bytes, and without fused operations and masks; and where nothing is generated."""
    import platform
    if setting == "FLAMBEAU_CPU" and platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    code = """
import numpy as np, flambeau as fb
for n in (1, 6, 30, 64, 77, 131, 1000):
    for shape, dim in (((3, n), 1), ((20, n), 1), ((n, 5), 0)):
        x = np.random.default_rng(n).standard_normal((*shape, 2)) @ (1, 1j)
        np.testing.assert_allclose(fb.fft.fft(fb.tensor(x), dim=dim).numpy(), np.fft.fft(x, axis=dim), atol=1e-10)
        np.testing.assert_allclose(fb.fft.rfft(fb.tensor(x.real.copy()), dim=dim).numpy(), np.fft.rfft(x.real, axis=dim), atol=1e-10)
        np.testing.assert_allclose(fb.fft.irfft(fb.tensor(x), 2 * n, dim=dim).numpy(), np.fft.irfft(x, 2 * n, axis=dim), atol=1e-10)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, setting: value}, timeout=300)
