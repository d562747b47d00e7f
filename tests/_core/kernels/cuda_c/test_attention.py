"""Attention's kernels on the CPU: against NumPy in doubles, in three orders of threads, with every access checked."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, bool_, float16, float32, float64
from flambeau._core.kernels.cuda_c.handwritten.attention import Attention
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.attention_cases import Case

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")

# sizes: batch, query heads, query heads a key head, queries, keys, depth, depth of values
CASES = {
    "plain": lambda d: Case(d, (2, 2, 1, 70, 100, 16, 16)),
    "one of each": lambda d: Case(d, (1, 1, 1, 1, 1, 8, 8)),
    "causal": lambda d: Case(d, (1, 2, 1, 150, 150, 32, 32), causal=True),
    "causal, fewer keys": lambda d: Case(d, (1, 1, 1, 140, 40, 16, 16), causal=True),
    "causal, more keys": lambda d: Case(d, (1, 1, 1, 40, 200, 16, 16), causal=True),
    "shared keys": lambda d: Case(d, (2, 4, 2, 66, 70, 16, 16), causal=True, order="blhd"),
    "odd depths": lambda d: Case(d, (1, 2, 1, 33, 70, 5, 3)),
    "values deeper": lambda d: Case(d, (1, 1, 1, 65, 66, 16, 40)),
    "far from aligned": lambda d: Case(d, (1, 2, 1, 20, 30, 6, 9), off=1),
    "boolean mask": lambda d: Case(d, (2, 2, 1, 40, 70, 16, 16), mask=bool_),
    "rows that see nothing": lambda d: Case(d, (2, 2, 1, 40, 70, 16, 16), mask=bool_, unseen=True, causal=True),
    "added mask": lambda d: Case(d, (1, 2, 1, 40, 70, 16, 16), mask=d),
    "added float32 mask": lambda d: Case(d, (1, 2, 2, 40, 70, 16, 16), mask=float32, causal=True),
    "dropout": lambda d: Case(d, (2, 2, 1, 40, 70, 16, 16), p=0.3),
    "all together": lambda d: Case(d, (1, 4, 2, 40, 70, 24, 20), mask=bool_, p=0.2, causal=True, order="blhd"),
    "negative scale": lambda d: Case(d, (1, 1, 1, 40, 70, 16, 16), scale=-0.4),
    "large scores": lambda d: Case(d, (1, 1, 1, 40, 140, 16, 16), scale=4.0, size=2.0),
    "deep": lambda d: Case(d, (1, 1, 1, 70, 70, 128, 128), shared=227 << 10),
    "little shared memory": lambda d: Case(d, (1, 1, 1, 70, 40, 64, 64), shared=40 << 10),
}


@pytest.mark.parametrize("d", [float32, float16, bfloat16], ids=lambda d: d.name)
def test_against_numpy(d: object) -> None:
    cases = {name: make(d) for name, make in CASES.items()}
    made = {name: c.kernels() for name, c in cases.items()}
    batch = host.Batch([k for kernels in made.values() for k in kernels])
    failed = []
    for name, c in cases.items():
        try:
            c.check(batch, made[name], host.ORDERS if name in ("plain", "all together") else (7,))
        except AssertionError as error:
            failed.append(f"{name}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("d", [float32, bfloat16], ids=lambda d: d.name)
def test_depth_256_goes_forward(d: object) -> None:
    c = Case(d, (1, 1, 1, 70, 40, 256, 250), shared=227 << 10)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="gradient"):
        c.plan.backward()
    kernels = c.kernels(False)
    c.check(host.Batch(kernels), kernels)


def test_what_is_not_a_number_shows() -> None:
    """A NaN in a query or a key that is seen makes the row NaN, and no other."""
    c = Case(float32, (1, 1, 1, 40, 70, 16, 16), causal=True)
    q = c.arrays["q"].reshape(40, 16)
    q[7, 3] = np.nan
    kernels = c.kernels(False)
    c.launch(host.Batch(kernels), kernels[0], "o lse q k v", 0)
    assert (np.isnan(c.arrays["o"].reshape(40, 16)).any(1) == (np.arange(40) == 7)).all()


def test_what_there_is_no_kernel_for() -> None:
    st = (0, 0, 16)
    steps = dict.fromkeys("qkvo", st)
    for d, sizes, more in ((float64, (1, 1, 1, 4, 4, 16, 16), {}), (float32, (1, 1, 1, 4, 4, 257, 16), {}), (float32, (1, 1, 1, 0, 4, 16, 16), {}),
                           (float32, (1, 1, 1, 4, 4, 16, 16), {"q": (0, 0, 16, 2)}), (float32, (1, 1, 1, 1 << 30, 4, 16, 16), {})):
        with pytest.raises(NotImplementedError):
            Attention(d, None, False, False, sizes, 1.0, steps | more)
    with pytest.raises(NotImplementedError, match="shared memory"):
        Attention(float32, None, False, False, (1, 1, 1, 4, 4, 128, 128), 1.0, steps, 20 << 10).forward()
