"""What a routine is said to write it writes, all of it and no more, whatever lay there; and what it is not said to read changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau._core import dtypes
from flambeau._core.compile import extents
from flambeau._core.drivers.cpu import backend
from flambeau._core.kernels.specs import Attention, AttentionGradient, Convolution, Product, Search
from flambeau._core.layout import contiguous_strides

_AROUND = 96  # elements before and behind each operand


def _products() -> list[Product]:
    found = []
    for d in (dtypes.float32, dtypes.float64):
        for m, n, k, batch in ((3, 5, 4, 1), (3, 5, 4, 2), (96, 80, 100, 1), (40, 64, 256, 2)):
            for wide in (0, 7):
                a, b, c = (k + wide, 1, m * (k + wide)), (n + wide, 1, k * (n + wide)), (n + wide, 1, m * (n + wide))
                found.append(Product(d, m, n, k, a, b, c, batch))
                found.append(Product(d, m, n, k, (1, m + wide, k * (m + wide)), b, c, batch))
        found.append(Product(d, 96, 80, 100, (100, 1, 0), (80, 1, 0), (80, 1, 0), epilogue="bias"))
        found.append(Product(d, 96, 80, 100, (100, 1, 0), (80, 1, 0), (80, 1, 0), epilogue="bias relu"))
        found.append(Product(d, 96, 80, 100, (100, 1, 0), (80, 1, 0), (80, 1, 0), epilogue="relu gradient"))
    return found


def _convolutions() -> list[Convolution]:
    found = []
    for stride, padding, groups in ((1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 1, 4)):
        x, w = (2, 4, 9, 11), (8, 4 // groups, 3, 3)
        y = (2, 8, (9 + 2 * padding - 3) // stride + 1, (11 + 2 * padding - 3) // stride + 1)
        for kind in ("forward", "images", "weights"):
            found.append(Convolution(kind, dtypes.float32, *[(shape, contiguous_strides(shape)) for shape in (x, w, y)], (padding,) * 2, (stride,) * 2, (1, 1),
                                     groups))
    return found


def _attentions() -> list[Any]:
    found: list[Any] = []
    for d, group, causal in ((dtypes.float32, 1, True), (dtypes.float32, 2, False), (dtypes.float64, 1, False)):
        for rows in (5, 70):
            sizes = 2, 4, group, rows, rows + 3, 8, 8
            steps = {"q": (rows * 32, 8, 32, 1), "k": ((rows + 3) * 32, 8, 32, 1), "v": ((rows + 3) * 32, 8, 32, 1), "o": (rows * 40, 10, 40)}
            found.append(Attention(d, None, causal, False, sizes, 0.3, tuple(steps.items())))
            more = steps | {"g": (rows * 32, 8, 32), "dq": (rows * 32, 8, 32), "dk": ((rows + 3) * 32, 8, 32), "dv": ((rows + 3) * 32, 8, 32)}
            found.append(AttentionGradient(d, None, causal, False, sizes, 0.3, tuple(more.items())))
    return found


_NUMBER = {Product: 3, Attention: 5, AttentionGradient: 9, Convolution: 3}


@pytest.mark.parametrize("spec", [*_products(), *_convolutions(), *_attentions()], ids=lambda s: type(s).__name__)
def test_all_is_written_and_only_what_is_known_is_read(spec: Any) -> None:
    prepared = backend.prepare(spec)
    if prepared is None or prepared.program is not None:
        pytest.skip("no routine here")
    known = extents.of(prepared)
    assert known is not None
    assert set(known.outputs) == set(range(len(known.outputs)))
    count = _NUMBER[type(spec)] + (type(spec) is Product and bool(spec.epilogue))
    d = np.dtype(spec.dtype.name)

    def whole(k: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        if k in known.outputs or k in known.inputs:
            return known.outputs.get(k) or known.inputs[k]
        shape, strides = {"forward": (spec.x, spec.w), "images": (spec.w, spec.y), "weights": (spec.x, spec.y)}[spec.kind][k - 1]
        return shape, strides, spec.dtype.itemsize

    def views(fill: list[float]) -> tuple[list[Any], list[Any]]:
        buffers, made = [], []
        random = np.random.default_rng(1)
        for k in range(count):
            domain, strides, size = whole(k)
            length = sum((n - 1) * s for n, s in zip(domain, strides, strict=True)) + 1
            kind = d if size == d.itemsize else np.dtype(np.float64)
            buffer = np.full(length + 2 * _AROUND, fill[k], kind)
            view = np.lib.stride_tricks.as_strided(buffer[_AROUND:], domain, [s * kind.itemsize for s in strides])
            if k not in known.outputs:
                view[...] = random.standard_normal(domain)
            buffers.append(buffer)
            made.append(view)
        return buffers, made

    results = []
    for fill in (3.0, float("nan")):
        buffers, made = views([fill] * count)
        before = [b.copy() for b in buffers]
        room = np.zeros(prepared.workspace + 64, np.uint8)
        room[...] = 0xFF
        prepared.entry(*[b.ctypes.data + _AROUND * b.itemsize for b in buffers],
                       *([room.ctypes.data] if prepared.workspace or type(spec) is Convolution else []))
        results.append([v.copy() for k, v in enumerate(made) if k in known.outputs])
        for k, v in enumerate(made):
            if k in known.outputs:
                v[...] = fill  # outside nothing may have changed
            assert buffers[k].tobytes() == before[k].tobytes()
    for a, b in zip(*results, strict=True):
        assert np.isfinite(a).all()
        assert a.tobytes() == b.tobytes()


def test_of_others_nothing_is_known() -> None:
    made = backend.prepare(Search(dtypes.float32, dtypes.int64, (4,), 8, ((1,), (1,), (1,)), False))
    assert made is not None
    assert extents.of(made) is None
    added = Product(dtypes.float32, 96, 80, 100, (100, 1, 0), (80, 1, 0), (80, 1, 0), beta=1.0)
    made = backend.prepare(added)
    assert made is not None
    assert extents.of(made) is None  # it reads what it writes
