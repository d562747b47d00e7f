"""The same program on many arrays as one launch, carried out on the CPU, gives what it gives on each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, dtype, float16, float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels.cuda_c import Kernel, foreach
from flambeau._core.kernels.programs import Map, Reduce
from flambeau._core.ops.norms import norm_program
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Operand, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
SIZES = (3, 1, 20, 257, 8192, 8193, 20000, 1, 64)


def momentum(d: dtype, state: dtype) -> Map:
    """p and m from p, m, g and two numbers."""
    wide = d.opmath
    p, m, g = E.cast(E.input(0, d), wide), E.cast(E.input(1, state), wide), E.cast(E.input(2, d), wide)
    m = m * E.scalar(1, wide) + g
    return Map((E.cast(p - E.scalar(0, wide) * m, d), E.cast(m, state)), (d, state, d), (wide, wide))


class Lists:
    """Lists of arrays, what a launch makes of them, and what the program makes of each."""

    def __init__(self, program: Map, sizes: Sequence[int], types: Sequence[dtype], into: Sequence[int], numbers: Sequence[float] = (), how: int = 0,
                 arrays: Sequence[int] | None = None, shared: Sequence[Operand] = (), told: E.Expr | None = None) -> None:
        rng = np.random.default_rng(len(sizes))
        self.lists = [[Operand(values(d, (n,), rng, False), how) for d in types] for n in sizes]
        self.arrays, self.shared = list(arrays or range(len(types))), list(shared)
        self.told = [Operand(np.zeros(1, np.int32))] if told is not None else []
        self.kernel = foreach.maps(program, self.arrays, into, sizes, told)
        self.program, self.into, self.numbers = program, list(into), list(numbers)

    def check(self, batch: host.Batch, orders: Sequence[int] = host.ORDERS) -> list[int]:
        flat = [o for each in self.lists for o in each]
        before, told = [o.view.copy() for o in flat], []
        for each in self.lists:  # by the interpreter, in place
            ins = [self.shared[-1 - k] if k < 0 else each[k] for k in self.arrays]
            steps = [(1,)] * len(self.into) + [(0,) if k < 0 else (1,) for k in self.arrays]
            interpret.prepare(self.program, (len(each[0].view),), tuple(steps)).entry(
                *[each[k].address for k in self.into], *[o.address for o in ins], *self.numbers)
        want = [o.view.copy() for o in flat]
        for order in orders:
            for o, b in zip(flat, before):
                o.view[...] = b
            for o in self.told:
                o.view[...] = 0
            operands = [*self.told, *self.shared, *flat]
            batch.launch(self.kernel, [o.memory for o in operands], [*self.numbers, *[o.address for o in operands]], order)
            for o, w in zip(flat, want):
                assert o.view.tobytes() == w.tobytes()
            told += [int(o.view[0]) for o in self.told]
        return told


def test_maps() -> None:
    jobs = [Lists(momentum(d, d), SIZES[:n], (d, d, d), (0, 1), (0.1, 0.9), how) for d in (float32, float64, bfloat16, float16)
            for n, how in ((1, 0), (8, 0), (9, 4))]
    jobs.append(Lists(momentum(bfloat16, float32), SIZES, (bfloat16, float32, bfloat16), (0, 1), (0.1, 0.9)))
    batch = host.Batch([j.kernel for j in jobs])
    for j in jobs:
        j.check(batch)


def test_as_many_as_there_is_room_for() -> None:
    most = foreach.most(3, 2)
    job = Lists(momentum(float32, float32), [7 + k % 3 for k in range(most)], (float32,) * 3, (0, 1), (0.5, 0.5))
    assert job.kernel.words * 8 <= 4096
    job.check(host.Batch([job.kernel]))
    with pytest.raises(NotImplementedError):
        foreach.maps(momentum(float32, float32), (0, 1, 2), (0, 1), [1] * (most + 1))


def test_lists_of_other_lengths_share_a_text() -> None:
    kernels = [foreach.maps(momentum(float32, float32), (0, 1, 2), (0, 1), sizes) for sizes in ((5,), (100000, 7), (1,) * 8)]
    assert len({k.key for k in kernels}) == 1 and len({k.words for k in kernels}) == 1


def test_a_shared_factor() -> None:
    x, f = E.input(0, bfloat16), E.input(1, float32)
    program = Map((E.cast(E.cast(x, float32) * f, bfloat16),), (bfloat16, float32))
    jobs = [Lists(program, SIZES, (bfloat16,), (0,), arrays=(0, -1), shared=[Operand(np.full(1, 0.3, np.float32))])]
    batch = host.Batch([j.kernel for j in jobs])
    for j in jobs:
        j.check(batch)


@pytest.mark.parametrize("where", [None, 0, 5, 8])
def test_told(where: int | None) -> None:
    """Whether any element of any list fulfils a condition."""
    x = E.input(0, float32)
    job = Lists(Map((x * E.scalar(0, float32),), (float32,), (float32,)), SIZES, (float32,), (0,), (0.5,), told=E.compare("gt", x, E.const(50.0, float32)))
    if where is not None:
        job.lists[where][0].view[-1] = 100.0
    assert job.check(host.Batch([job.kernel])) == [int(where is not None)] * 3


def norm(program: Reduce, sizes: Sequence[int], d: dtype, how: int = 0) -> tuple[Kernel, list[Operand], Operand, Operand]:
    rng = np.random.default_rng(1)
    arrays = [Operand(values(d, (n,), rng, False), how) for n in sizes]
    kernel, workspace = foreach.reductions(program, sizes)
    out = Operand(np.zeros(len(sizes), arrays[0].view.dtype))
    return kernel, arrays, out, Operand(np.full(workspace, 0xFF, np.uint8))


def test_reductions() -> None:
    jobs = []
    for d in (float32, float64, bfloat16):
        for p in (1.0, 2.0, 3.0, float("inf")):
            jobs.append((norm(norm_program(d, p, d), (*SIZES, 65536, 65537, 150000), d, 4 if p == 1.0 else 0), d, p))
    jobs.append((norm(norm_program(float32, 2.0, float32), [3] * foreach.most(1, 2), float32), float32, 2.0))
    batch = host.Batch([kernel for (kernel, *_), _, _ in jobs])
    for (kernel, arrays, out, work), d, p in jobs:
        seen = []
        for order in host.ORDERS:
            out.view[...] = 0
            batch.launch(kernel, [o.memory for o in (out, work, *arrays)], [o.address for o in (out, work, *arrays)], order)
            seen.append(out.view.tobytes())
        assert seen[0] == seen[1] == seen[2]
        wide = [interpret.widen_bfloat16(o.view) if d is bfloat16 else o.view for o in (out, *arrays)]
        np.testing.assert_allclose(wide[0], [np.linalg.norm(a.astype(float), p) for a in wide[1:]], rtol=1e-2 if d is bfloat16 else 1e-5)


@pytest.mark.parametrize("old, new", [
    (") <= b", ") < b"),  # the list before
    (" - (int)(entry", " - 1 - (int)(entry"),  # the chunk before
    ("? (int)rest : 8192", "? (int)rest + 1 : 8192"),  # one element too many
    ("done + (int)threadIdx.x", "done + 1 + (int)threadIdx.x"),  # one left out
    ("low * 3 + 1", "low * 3 + 2"),  # another array
])
def test_mutants_are_caught(old: str, new: str) -> None:
    job = Lists(momentum(float32, float32), SIZES, (float32,) * 3, (0, 1), (0.1, 0.9))
    k = job.kernel
    assert old in k.source, k.source
    job.kernel = Kernel(k.source.replace(old, new), k.launches, k.arguments, k.block, 0, 0, 0)
    with pytest.raises(AssertionError):
        job.check(host.Batch([job.kernel]), (0,))
