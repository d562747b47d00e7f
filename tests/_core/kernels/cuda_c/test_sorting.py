"""Sorting kernels, carried out on the CPU in three orders of threads, give what NumPy gives, positions too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from flambeau._core.drivers.cpu import row_order
from flambeau._core.dtypes import ALL, bool_, dtype, float32, int64, uint8
from flambeau._core.kernels.cuda_c import Kernel
from flambeau._core.kernels.cuda_c.handwritten import sorting
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Operand, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
REAL = [d for d in ALL if not d.is_complex]


class Job:
    """A kernel, its operands (outputs first), numbers, and what its outputs must be; `start` is what their bytes are before."""

    def __init__(self, kernel: Kernel, outs: Sequence[Operand], ins: Sequence[Operand], want: Sequence[np.ndarray], numbers: Sequence[int] = ()) -> None:
        self.kernel, self.outs, self.ins, self.want, self.start = kernel, list(outs), list(ins), list(want), 0xA5
        self.own = [o.address for o in (*outs, *ins)] + list(numbers)

    def check(self, batch: host.Batch, orders: Sequence[int] = host.ORDERS) -> None:
        for order in orders:
            for o in self.outs:
                o.memory.view(np.uint8)[...] = self.start
            memory = {id(o.memory): o.memory for o in (*self.outs, *self.ins)}
            batch.launch(self.kernel, list(memory.values()), self.own, order)
            for o, w in zip(self.outs, self.want):
                assert np.ascontiguousarray(o.view).tobytes() == np.ascontiguousarray(w.astype(o.view.dtype)).tobytes(), \
                    f"{self.kernel.entry}, order {order}:\n{o.view}\n{w}"


def check_all(jobs: Sequence[Job], orders: Sequence[int] = host.ORDERS) -> None:
    batch = host.Batch([j.kernel for j in jobs])
    for j in jobs:
        j.check(batch, orders)


def sort_job(d: dtype, shape: tuple[int, ...], rng: np.random.Generator, descending: bool = False, width: int | None = None, how: tuple[int, int] = (0, 0),
             few: bool = False) -> Job:
    """Rows of the last axis sorted; how: the layouts of source and results."""
    a = values(d, shape, rng, True, few)
    if d.kind == "f":  # NaN of either sign and any payload is one
        bits = a.view(f"u{d.itemsize}")
        bits[rng.random(shape) < 0.05] = (1 << 8 * d.itemsize) - 1 - int(rng.integers(0, 5))
    width = shape[-1] if width is None else width
    to = (*shape[:-1], width)
    source = Operand(a, how[0])
    outs = [Operand(np.zeros(to, a.dtype), how[1]), Operand(np.zeros(to, np.int64), how[1])]
    at = row_order.order(a.reshape(-1, shape[-1]), d, descending)[:, :width].reshape(to)
    kernel = sorting.sort(d, shape, [outs[0].strides, outs[1].strides, source.strides], descending, width)
    return Job(kernel, outs, [source], [np.take_along_axis(a, at, -1), at])


def test_every_type() -> None:
    rng, jobs = np.random.default_rng(1), []
    for d in REAL:
        for descending in (False, True):
            jobs.append(sort_job(d, (5, 40), rng, descending))
            jobs.append(sort_job(d, (2, 300), rng, descending))
    check_all(jobs)


def test_long_rows_of_every_type() -> None:
    rng = np.random.default_rng(2)
    types = [d for d in REAL if d.name in "bool uint8 int16 bfloat16 float32 int64 float64".split()]
    check_all([sort_job(d, (2, 4500), rng, bool(k % 2)) for k, d in enumerate(types)], (0, 7))


def test_sizes_around_what_blocks_take() -> None:
    rng = np.random.default_rng(3)
    jobs = [sort_job(float32, (3, n), rng) for n in (1, 2, 63, 64, 65, 511, 512, 513, 1024, 1025, 2049, 4095, 4096, 4097, 8193)]
    jobs += [sort_job(int64, (1, n), rng) for n in (512, 2047, 2048)]
    check_all(jobs, (0, 7))


def test_layouts() -> None:
    rng, jobs = np.random.default_rng(4), []
    for source in range(4):
        for result in range(4):
            jobs.append(sort_job(float32, (2, 3, 20), rng, how=(source, result)))
            jobs.append(sort_job(float32, (2, 2, 100), rng, how=(source, result)))
    jobs.append(sort_job(uint8, (2, 3, 4200), rng, how=(2, 1)))
    jobs.append(sort_job(bool_, (2, 3, 4200), rng, how=(1, 2)))
    check_all(jobs, (0, 7))


def test_only_the_first() -> None:
    rng = np.random.default_rng(5)
    check_all([sort_job(float32, (3, n), rng, True, k) for n, k in ((30, 4), (900, 17), (5000, 33), (5000, 1))], (0, 7))


def test_many_equal_ones_keep_their_order() -> None:
    rng = np.random.default_rng(6)
    check_all([sort_job(d, (2, n), rng, k % 2 == 0, few=True) for d in (float32, int64, uint8) for k, n in enumerate((60, 700, 5000))], (0, 7))


def test_nothing_to_do_has_no_launches() -> None:
    assert not sorting.sort(float32, (0, 5), [(5, 1)] * 3, False, 5).launches
    assert not sorting.sort(float32, (5, 5), [(5, 1)] * 3, False, 0).launches
