"""Attention's kernels broken on purpose are caught by the checks that they pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from flambeau._core.dtypes import bool_, float16, float32
from flambeau._core.kernels.cuda_c import Kernel
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.attention_cases import Case

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
Broken = tuple[Case, list[Kernel]]


def plain(d: Any = float16, **more: Any) -> Case:
    return Case(d, (1, 2, 1, 70, 70, 16, 16), **more)


def tall(d: Any = float16, **more: Any) -> Case:
    """So long that each kernel takes several tiles."""
    return Case(d, (1, 1, 1, 140, 140, 16, 16), **more)


def changed(c: Case, pattern: str, new: str, back: bool = False, count: int = 1) -> Broken:
    """The case with the text of one of its kernels changed."""
    kernels = c.kernels(back)
    k = kernels[-1]
    text, found = re.subn(pattern, new, k.source, count=count)
    assert found, f"nothing like {pattern} in\n{k.source}"
    kernels[-1] = Kernel(text, k.launches, k.arguments, k.block, k.workspace, k.nbytes, k.flops)
    return c, kernels


def less_shared(c: Case) -> Broken:
    (k,) = c.kernels(False)
    return c, [Kernel(k.source, tuple((n, g, b, shared - 64) for n, g, b, shared in k.launches), k.arguments, k.block, k.workspace, 0, 0)]


AFTER = r"(?s)({}.*?){}"
WAIT, BARRIER = r"copy_async_wait<0>\(\);", r"__syncthreads\(\);"


def after(begin: str, what: str) -> str:
    return AFTER.format(begin, what)


MUTANTS: dict[str, Callable[[], Broken]] = {
    "no barrier before keys are multiplied": lambda: changed(tall(), BARRIER, ""),
    "no barrier before values are multiplied": lambda: changed(tall(), r"(?s)(__syncthreads\(\);.*?)__syncthreads\(\);", r"\1"),
    "no waiting for the keys": lambda: changed(tall(), after("attention_forward", WAIT), r"\1"),
    "no waiting for the values": lambda: changed(tall(), r"(?s)(copy_async_wait<0>\(\);.*?)copy_async_wait<0>\(\);\n    __sync", r"\1__sync"),
    "outputs not scaled to a new maximum": lambda: changed(tall(size=3.0), r"o\[m\]\[n\]\[2 \* j\] \*= again, ", ""),
    "the sum not scaled to a new maximum": lambda: changed(tall(size=3.0), r"sum\[m\]\[j\] \* again", "sum[m][j]"),
    "a maximum of half the row": lambda: changed(plain(float32, size=30.0), r"high = fmaxf\(high, __shfl_xor_sync\(0xffffffffu, high, 2\)\);", ""),
    "a key too many": lambda: changed(plain(), r"key >= h.source", "key > h.source"),
    "each query does not see its own key": lambda: changed(plain(causal=True), r"key > query", "key >= query"),
    "each query sees the next key": lambda: changed(plain(causal=True), r"key > query", "key > query + 1"),
    "the edge forgotten": lambda: changed(tall(causal=True), r"c \+ COLUMNS > row\)\);", "c > row));"),
    "a row that sees nothing divides by zero": lambda: changed(plain(mask=bool_, unseen=True), r"none \? 0\.0f : 1\.0f / all", "1.0f / all"),
    "the mask turned round": lambda: changed(plain(mask=bool_), r"mask\[at\] \? x : -INFINITE", "mask[at] ? -INFINITE : x"),
    "the mask of another head": lambda: changed(plain(mask=float16), r"head \* \(Wide\)a.w\[w_mask_head\]", "0"),
    "what lies beyond the keys is read": lambda: changed(plain(), r"there \? at : from, there \? 16 : 0", "at, 16", count=0),
    "every warp has the first rows": lambda: changed(plain(), r"rows \+ warp \* \(MT \* 16 \* LD\)", "rows"),
    "values as they lie": lambda: changed(plain(), r"load_matrices_transposed\(y", "load_matrices(y"),
    "the other half of the keys": lambda: changed(plain(), r"\(lane >> 3 & 1\) \* 8", "0"),
    "the wrong shared head": lambda: changed(Case(float16, (1, 4, 2, 20, 20, 16, 16)), r"h\.head / shared_by", "h.head % 2"),
    "too little shared memory": lambda: less_shared(plain()),
    "a column too many": lambda: changed(Case(float32, (1, 1, 1, 20, 20, 5, 5)), r"c \+ 1 < depth", "c + 1 <= depth"),
    "a row too many": lambda: changed(plain(), r"if \(r < limit\)", "if (r <= limit)"),
    "a pair where nothing is aligned": lambda: changed(Case(float16, (1, 1, 1, 20, 20, 6, 6), off=1), r"const bool pairs = .*;", "const bool pairs = true;"),
    "a chunk where nothing is aligned": lambda: changed(Case(float16, (1, 1, 1, 20, 20, 6, 6), off=1), "WHOLE = false", "WHOLE = true"),
    "the numbers of another place": lambda: changed(plain(p=0.4), r"query \* \(unsigned long long\)source", "query * (unsigned long long)length + 1"),
    "weights kept without their factor": lambda: changed(plain(p=0.4), r">= p \? factor", ">= p ? 1.0f"),
    "no order within the warp": lambda: changed(plain(float32), r"(p\[m\]\[n\]\[i\];\n)  __syncwarp\(\);", r"\1"),
    "a sum without its logarithm": lambda: changed(plain(), r"log2f\(all\)", "all"),
    "gradients without the rows' sums": lambda: changed(plain(), r" - delta\[m\]\[i >> 1\]", "", True),
    "the tile that is being read is filled": lambda: changed(tall(), r"turn \^ 1\) \* STEP", "turn) * STEP", True),
    "no barrier in the queries' gradient": lambda: changed(tall(), after("attention_queries", BARRIER), r"\1", True),
    "no barrier in the keys' gradient": lambda: changed(tall(), after("attention_keys", BARRIER), r"\1", True),
    "no waiting in the keys' gradient": lambda: changed(tall(), after("attention_keys", WAIT), r"\1", True),
    "queries begin too late": lambda: changed(tall(causal=True), r"first / COLUMNS \* COLUMNS", "(first / COLUMNS + 1) * COLUMNS", True),
    "only the first of the heads that share": lambda: changed(Case(float16, (1, 4, 2, 20, 20, 16, 16)), r"each \* shared_by", "each", True),
    "the keys' gradient without the scale": lambda: changed(plain(), r"store\(dk, scale", "store(dk, one", True),
    "values' gradient without dropout": lambda: changed(plain(p=0.4), r"s\[m\]\[n\]\[2 \* j \+ e\] = p \* keep", "s[m][n][2 * j + e] = p", True),
    "statistics of the other tile": lambda: changed(tall(), r"\(\*stat\)\[COLUMNS\] = stats\[turn & 1\]", "(*stat)[COLUMNS] = stats[turn + 1 & 1]", True),
    "only half a row's products summed": lambda: changed(Case(float16, (1, 1, 1, 20, 20, 16, 40)), r"int lanes = 16", "int lanes = 8", True),
}


@pytest.fixture(scope="module")
def built() -> tuple[dict[str, Broken], host.Batch]:
    cases = {name: make() for name, make in MUTANTS.items()}
    every = []
    for at, (_, kernels) in enumerate(cases.values()):  # mutants of one kernel must not share its name
        k = kernels[-1]
        tag = re.findall(r"_([0-9a-f]{12})$", k.entry)[0]
        new = f"{tag[:9]}{at:03x}"
        kernels[-1] = Kernel(k.source.replace(tag, new), tuple((n.replace(tag, new), *rest) for n, *rest in k.launches), k.arguments, k.block,
                             k.workspace, k.nbytes, k.flops)
        every += kernels
    return cases, host.Batch(every)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_caught(name: str, built: tuple[dict[str, Broken], host.Batch]) -> None:
    cases, batch = built
    c, kernels = cases[name]
    with pytest.raises(AssertionError) as caught:  # a LaunchError, a wrong result, or one that depends on the order
        c.check(batch, kernels, (0, 7))
    assert "g++" not in str(caught.value)
