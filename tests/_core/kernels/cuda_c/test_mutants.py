"""Kernels broken on purpose are caught by the checks that all kernels pass: what those checks are worth."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from flambeau._core.dtypes import bool_, complex64, float32, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import GPU, Kernel
from flambeau._core.kernels.cuda_c.handwritten import searching
from flambeau._core.kernels.loops import maps
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, values
from tests._core.kernels.cuda_c.test_nonzero import nonzero_jobs
from tests._core.kernels.cuda_c.test_sorting import Job, sort_job
from tests._core.kernels.cuda_c.test_topk import first_job, one_job

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
RNG = np.random.default_rng(1)
X = E.input(0, float32)


def total(n: int, rows: int = 2) -> Case:
    return Case(Reduce((X,), ("sum",), (E.acc(0, float32),), (float32,)), (rows, n), [Operand(np.zeros(rows, np.float32))],
                [Operand(values(float32, (rows, n), RNG, False))], (), 1e-4, 1e-4)


def columns() -> Case:
    a = Operand(values(float32, (70, 40), RNG, False))
    a.view = a.view.T
    return Case(Reduce((X,), ("sum",), (E.acc(0, float32),), (float32,)), (40, 70), [Operand(np.zeros(40, np.float32))], [a], (), 1e-4, 1e-4)


def softmax(n: int) -> Case:
    e = E.exp(X - E.acc(0, float32))
    program = Rows((("reduce", "max", X), ("reduce", "sum", e), ("map", 0, e / E.acc(1, float32))), (float32,))
    return Case(program, (3, n), [Operand(np.zeros((3, n), np.float32))], [Operand(values(float32, (3, n), RNG, False))], (), 1e-4, 1e-6)


def long_softmax() -> Case:
    e = E.exp(X - E.acc(0, float32))
    program = Rows((("reduce", "max", X), ("reduce", "sum", e), ("map", 0, e / E.acc(1, float32)), ("row", 1, E.acc(0, float32))), (float32,))
    return Case(program, (1, 40001), [Operand(np.zeros((1, 40001), np.float32)), Operand(np.zeros(1, np.float32))],
                [Operand(values(float32, (1, 40001), RNG, False))], (), 1e-4, 1e-6, {1: (1, 0)})


def running(n: int) -> Case:
    program = Scan(X, "max", (E.acc(0, float32), E.acc(1, int64)), (float32,))
    return Case(program, (2, n), [Operand(np.zeros((2, n), np.float32)), Operand(np.zeros((2, n), np.int64))],
                [Operand(values(float32, (2, n), RNG, False))])


def odd_softmax() -> Case:
    """Rows that are read again, one of which begins between two vectors."""
    e = E.exp(X - E.acc(0, float32))
    program = Rows((("reduce", "max", X), ("reduce", "sum", e), ("row", 0, E.acc(1, float32))), (float32,))
    a = values(float32, (2, 25601), RNG, False)
    a[1, 0] = 9.0
    return Case(program, (2, 25601), [Operand(np.zeros(2, np.float32))], [Operand(a)], (), 1e-4, 1e-6, {0: (1, 0)})


def pieces() -> Case:
    return Case(Scan(X, "max", (E.acc(0, float32), E.acc(1, int64)), (float32,)), (1, 70000),
                [Operand(np.zeros((1, 70000), np.float32)), Operand(np.zeros((1, 70000), np.int64))],
                [Operand(RNG.integers(0, 2, (1, 70000)).astype(np.float32))])


def summed_pieces() -> Case:
    return Case(Scan(X, "sum", (E.acc(0, float32),), (float32,)), (1, 70000), [Operand(np.zeros((1, 70000), np.float32))],
                [Operand(RNG.integers(1, 9, (1, 70000)).astype(np.float32))])


def short_runs() -> Case:
    return Case(Scan(X, "sum", (E.acc(0, float32),), (float32,)), (37, 28), [Operand(np.zeros((37, 28), np.float32))],
                [Operand(np.round(values(float32, (37, 28), RNG, False)))])


def side_by_side() -> Case:
    x, out = (Operand(np.round(values(float32, (20000, 8), RNG, False))) for _ in range(2))
    for o in (x, out):
        o.view = o.view.T
    return Case(Scan(X, "sum", (E.acc(0, float32),), (float32,)), (8, 20000), [out], [x])


def strips() -> Case:
    """Rows side by side of which blocks have strips, as a smaller machine would."""
    before, GPU.cores, GPU.launch = (GPU.cores, GPU.launch), 1, 0.0
    try:
        x, out = (Operand(np.round(values(float32, (900, 40), RNG, False))) for _ in range(2))
        for o in (x, out):
            o.view = o.view.T
        return Case(Scan(X, "sum", (E.acc(0, float32),), (float32,)), (40, 900), [out], [x])
    finally:
        GPU.cores, GPU.launch = before


def doubled(n: int, how: int = 0) -> Case:
    return Case(Map((X + X,), (float32,)), (n,), [Operand(np.zeros(n, np.float32), how)], [Operand(values(float32, (n,), RNG, False), how)])


def strided_rounds() -> Case:
    """A map whose threads read several elements before they write."""
    most, maps.BIG = maps.BIG, 1000
    try:
        return doubled(3001, 1)
    finally:
        maps.BIG = most


def in_order(n: int, rows: int = 2, few: bool = False) -> Job:
    return sort_job(float32, (rows, n), RNG, few=few)


def occurrences() -> Job:
    a = RNG.integers(0, 20, 3000)
    job = Job(searching.occurrences(3000, 20), [Operand(np.zeros(20, np.int64))], [Operand(a)], [np.bincount(a, minlength=20)])
    job.start = 0
    return job


def turned() -> Case:
    a = Operand(values(float32, (40, 70), RNG, False), 2)
    return Case(Map((X + 1.0,), (float32,)), (40, 70), [Operand(np.zeros((40, 70), np.float32))], [a])


def products() -> Case:
    z = E.input(0, complex64)
    a = np.exp(1j * RNG.standard_normal((2, 3000))).astype("c8")
    return Case(Reduce((z,), ("prod",), (E.acc(0, complex64),), (complex64,)), (2, 3000), [Operand(np.zeros(2, "c8"))], [Operand(a)], (), 1e-3, 1e-3)


def changed(c: Case | Job, pattern: str, new: str, count: int = 1) -> Case | Job:
    """The case with its kernel's text changed."""
    k = c.unbroken = c.kernel
    text, found = re.subn(pattern, new, k.source, count=count)
    assert found, f"nothing like {pattern} in\n{k.source}"
    c.kernel = Kernel(text, k.launches, k.arguments, k.block, k.workspace, k.nbytes, k.flops, k.program)
    return c


def smaller(c: Case, by: int) -> Case:
    """The case with less dynamic shared memory."""
    k = c.unbroken = c.kernel
    launches = tuple((name, grid, block, shared - by) for name, grid, block, shared in k.launches)
    c.kernel = Kernel(k.source, launches, k.arguments, k.block, k.workspace, k.nbytes, k.flops, k.program)
    return c


def table(width: int = 4) -> Case:
    from tests._core.kernels.cuda_c.test_scatter import by_rows
    return by_rows("add", float32, 1500, (width,), 600, RNG)


def hot_table() -> Case:
    """Several levels of pieces."""
    from tests._core.kernels.cuda_c.test_scatter import by_rows
    return by_rows("add", float32, 1500, (4,), 3, RNG)


BARRIER = r"__syncthreads\(\);"
MUTANTS = {
    "no barrier before the warps' sums are read": lambda: changed(total(3000), BARRIER, ""),
    "no barrier before columns are added": lambda: changed(columns(), BARRIER, ""),
    "no barrier before a row's maximum is read": lambda: changed(softmax(3000), BARRIER, ""),
    "no barrier before a row's sum is read": lambda: changed(softmax(3000), r"(?s)(__syncthreads\(\);.*?)__syncthreads\(\);", r"\1"),
    "totals of a tile written over those of the one before": lambda: changed(running(5000), r"\^= 1\)", "^= 0)"),
    "a piece scanned behind its own total": lambda: changed(pieces(), r"< \(int\)blockIdx.y;", "< (int)blockIdx.y + 1;"),
    "a piece's total of too little": lambda: changed(summed_pieces(), r"(i\d+) >= (begin\d+);", r"\1 > \2;"),
    "equal extremes told apart the wrong way": lambda: changed(pieces(), r", -\(long long\)\(i", ", (long long)(i", 0),
    "no barrier before what comes before is read": lambda: changed(pieces(), r"(?s)(void [^\n]* scan_[0-9a-f]{12}\(.*?)__syncthreads\(\);", r"\1"),
    "a lane of another row taken in": lambda: changed(short_runs(), r"if \(lane\d+ >= 1\)", "if (true)"),
    "rows beyond the last written": lambda: changed(short_runs(), r"(row\d+) < (count\d+) \? \(int\)(.*) : 0;", r"true ? (int)\3 : 0;"),
    "a row of its own that begins a piece too early": lambda: changed(side_by_side(), r"(piece\d+) \* (piece\d+);", r"(\1 ? \1 - 1 : 0) * \2;"),
    "no barrier before the warps' totals are read": lambda: changed(running(5000), BARRIER, ""),
    "a barrier that only some threads reach": lambda: changed(total(3000), BARRIER, "if (threadIdx.x < 128) { __syncthreads(); }"),
    "no barrier before the warps of a strip are joined": lambda: changed(strips(), BARRIER, ""),
    "a strip's arrays that are not taken in turn": lambda: changed(strips(), r"(side\d+) \^= 1", r"\1 ^= 0"),
    "rows beyond a strip's last written": lambda: changed(strips(), r"> k && (mine\d+) < count\d+", r"> k && \1 >= 0"),
    "a warp of a strip that begins with its own": lambda: changed(strips(), r"if \(g == (warp\d+)\)", r"if (g == \1 + 1)"),
    "one element too many": lambda: changed(doubled(1001), r"(const int left\d+ = .*?) : 4;", r"\1 + 1 : 4;"),
    "one element too many in a strided map": lambda: changed(doubled(250, 1), r"if \((i\d+) >= (n\d+)\) return;", r"if (\1 > \2) return;"),
    "one element too many in a row": lambda: changed(softmax(999), r"if \((i\d+) < (n\d+)\)", r"if (\1 <= \2)", 0),
    "the last block taken for a whole one": lambda: changed(strided_rounds(), r">= 1024\) \{", ">= 900) {"),
    "a round that goes where another went": lambda: changed(strided_rounds(), r"\+ r \* 256", "+ (r & 1) * 256"),
    "the last elements left out": lambda: changed(total(3001), r"if \((end\d+|n\d+) - (r\d+) > k\)", r"if (\1 - \2 > k + 1)"),
    "the wrong mask": lambda: changed(total(3000), "0xffffffffu", "0x0000ffffu", 0),
    "a shuffle that half the warp skips": lambda: changed(total(100), r"const float (x\d+) = shuffle\((s\d+), 16\);",
                                                         r"float \1 = 0; if (threadIdx.x < 16) \1 = shuffle(\2, 16);"),
    "a shuffle that goes too far": lambda: changed(total(100), r"shuffle\((s\d+), 16\)", r"shuffle(\1, 48)"),
    "accumulated by all without atomics": lambda: changed(total(100), r"if \(true && \(int\)threadIdx.x == 0\)", "if (true)"),
    "blocks that add to one place": lambda: changed(total(40000, 1), r"(a\d+)\[at\d+\] = (s\d+);", r"\1[0] += \2;"),
    "too little shared memory": lambda: changed(total(3000), r"__shared__ float (\w+)\[8\]", r"__shared__ float \1[7]"),
    "too little shared memory for columns": lambda: changed(columns(), r"__shared__ float (\w+)\[(\d+)\]", r"__shared__ float \1[\2 - 32]"),
    "shared memory that not all have written": lambda: changed(total(3000), r"if \(\(threadIdx.x & 31\) == 0\)", "if (threadIdx.x == 0)"),
    "more lanes than warps": lambda: changed(total(3000), r"(lane\d+) < 8 \?", r"\1 < 9 ?"),
    "an aligned access where nothing is aligned": lambda: changed(doubled(1000, 4), r"const bool (whole\d+) = .*;", r"const bool \1 = true;"),
    "digits added up before all are counted": lambda: changed(in_order(300), r"(<< \(digit >> 2\) \* 16\);\n  \}\n)  __syncthreads\(\);", r"\1"),
    "keys read before all are in place": lambda: changed(in_order(300), r"(from\[e\];\n  \}\n)  __syncthreads\(\);", r"\1"),
    "digits counted in a column of another": lambda: changed(in_order(300), r"= word \+ \(\(Word\)1", "= word + ((Word)2"),
    "equal elements of a short row turned round": lambda: changed(in_order(30), "j < own", "j > own"),
    "warps in the wrong order": lambda: changed(in_order(300), r"if \(k < warp\)", "if (k > warp)"),
    "a NaN like any number": lambda: changed(in_order(60), r"if \(size > .*\n", ""),
    "a zero below a zero": lambda: changed(in_order(60, few=True), r"if \(size == 0\).*\n", ""),
    "descending, without the order turned": lambda: changed(sort_job(float32, (2, 60), RNG, True), r"return \(Key\)~k", "return k"),
    "an element too many moved": lambda: changed(in_order(4100, 1), r"(?s)(sort_move_.*)i < left; (.*?)position = ", r"\1i <= left; \2position = "),
    "the run of a digit begins too late": lambda: changed(in_order(4100, 1), r"run\[digit\] = i;", "run[digit] = i + 1;"),
    "digits of a tile counted without atomics": lambda: changed(in_order(4100, 1), r"atomicAdd\((count \+ .*), 1\);", r"*(\1) += 1;"),
    "the tiles' counts not yet summed": lambda: changed(in_order(4100, 1), r"if \(lane >= by\) ahead \+= x;", ""),
    "one element too few selected": lambda: changed(first_job(float32, (1, 3000), 5, RNG), "needed = rank \\+ 1", "needed = rank"),
    "the last of equal ones selected": lambda: changed(one_job(float32, (2, 3000), 1400, RNG), "ahead == rank", "ahead == have - 1 - rank"),
    "a digit found before it is told": lambda: changed(first_job(float32, (1, 3000), 5, RNG), r"(found\[2\] = mine;\n    \}\n)    __syncthreads\(\);", r"\1"),
    "an element beyond the last looked at": lambda: changed(nonzero_jobs(bool_, (2047,), RNG)[0], r"begin < (.*) - e &&", r"begin <= \1 - e &&"),
    "places written before what comes before": lambda: changed(nonzero_jobs(bool_, (5000,), RNG)[1], r"return ahead \+ sum - x", "return ahead"),
    "occurrences added up without atomics": lambda: changed(occurrences(), r"atomicAdd\((counts \+ i), (.*)\);", r"*(\1) += \2;"),
    "a row that does not fit its shared memory": lambda: smaller(softmax(17000), 16),
    "a row kept in too little of it": lambda: changed(softmax(17000), r"(h\d+)\[(i\d+) / 4\]", r"\1[\2 / 8]", 0),
    "rows of one offset of which each writes": lambda: changed(table(), r"if \((i\d+) > 0 && .*? return;", ""),
    "rows added in the order they were sorted from": lambda: changed(table(), r"\(int\)a\d+\[(j\d+( \+ k)?)\]", r"(\1)", 0),
    "rows of the next offset taken too": lambda: changed(table(), r"(a\d+)\[(j\d+) \+ 3\] ==", r"\1[\2 + 2] =="),
    "pieces of an offset put a place further": lambda: changed(hot_table(), r"\? (i\d+) / 32 :", r"? \1 / 32 + 1 :"),
    "pieces of an offset left out": lambda: changed(hot_table(), r"const bool (inner\d+) = .*;", r"const bool \1 = false;"),
    "what is there added with each piece": lambda: changed(hot_table(), r"if \(!inner\d+\) \{", "if (true) {"),
    "the last piece taken for all": lambda: changed(hot_table(), r"if \((inner\d+) \|\| cut", r"if (!\1 && cut"),
    "a column beyond the last written": lambda: changed(table(5), r"if \((own\d+) < (width\d+)\)", r"if (\1 <= \2)", 0),
    "a row read before it has arrived": lambda: changed(softmax(17000), r"copy_async_wait<0>\(\);", ""),
    "a piece's sum left out": lambda: changed(long_softmax(), r"for \(int (c\d+) = \(int\)threadIdx.x;", r"for (int \1 = (int)threadIdx.x + 1;", 0),
    "pieces joined before all is in place": lambda: changed(long_softmax(), r"(?s)(rows1_.*?)__syncthreads\(\);", r"\1"),
    "a sum kept by a maximum that is no more": lambda: changed(odd_softmax(), r"(s\d+) = s\d+ \* exp_of_float32\(.*\);", r"\1 = \1;", 0),
    "pieces that overlap": lambda: changed(long_softmax(), r"(n\d+) : (begin\d+) \+ (piece\d+)", r"\1 : \2 + \3 + 4", 0),
    "a value of a row that each piece writes": lambda: changed(long_softmax(), r" && blockIdx.y == 0", ""),
    "neighbours beyond a row's end": lambda: changed(long_softmax(), r"/ 4 \* 4;", "/ 4 * 4 + 4;"),
    "a row's first elements left out": lambda: changed(odd_softmax(), r"(before\d+) = .*;", r"\1 = 0;"),
    "the second of two reads beyond the end": lambda: changed(long_softmax(), r"more\d+ \? (i\d+ [+-] \d+) : i\d+", r"\1", 0),
    "no barrier before a tile is read across": lambda: changed(turned(), BARRIER, ""),
    "a tile with too little room": lambda: changed(turned(), r"\[32\]\[33\]", "[31][33]"),
    "a tile read as it was written": lambda: changed(turned(), r"(tile\d+)\[(x\d+)\]\[(y\d+) \+ r\];", r"\1[\3 + r][\2];"),
    "a tile that reaches past the end": lambda: changed(turned(), r"if \((x\d+) < (left\d+) && ", "if (true && "),
    "a product whose imaginary part comes late": lambda: changed(products(), r"(?s)const float (z\d+) = (.*?);\n(.*?)\n(\s+\w+ = )\1;", r"\3\n\4\2;"),
    "threads that leave before a barrier": lambda: changed(softmax(3000), r"(float s\d+ = __int_as_float)", r"if (threadIdx.x > 200) return; \1"),
}


def whole(make: Callable[[], Case | Job]) -> Case | Job:
    """The same case as it was before it was broken."""
    c = make()
    c.kernel = c.unbroken
    return c


@pytest.fixture(scope="module")
def built() -> tuple[dict[str, Case | Job], host.Batch]:
    cases = {name: make() for name, make in MUTANTS.items()}
    for at, c in enumerate(cases.values()):  # mutants of one kernel must not share its name
        k = c.kernel
        (tag,) = set(re.findall(r"__global__ void __launch_bounds__\([\d, ]+\) [a-z_0-9]+_([0-9a-f]{12})\(", k.source))
        new = f"{tag[:9]}{at:03x}"
        c.kernel = Kernel(k.source.replace(tag, new), tuple((n.replace(tag, new), *rest) for n, *rest in k.launches), k.arguments, k.block,
                          k.workspace, k.nbytes, k.flops, k.program)
    return cases, host.Batch([c.kernel for c in cases.values()])


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_caught(name: str, built: tuple[dict[str, Case | Job], host.Batch]) -> None:
    cases, batch = built
    with pytest.raises(AssertionError) as caught:  # a LaunchError, a wrong result, or one that depends on the order
        cases[name].check(batch)
    assert "g++" not in str(caught.value)


def test_not_caught_unbroken() -> None:
    cases = [whole(make) for make in MUTANTS.values()]
    batch = host.Batch([c.kernel for c in cases])
    for c in cases:
        c.check(batch)
