"""Attention as CUDA C: softmax(Q K^T scale + mask) V without the scores ever leaving a block, and its gradients.

As on the CPU (`kernels/llvm/handwritten/attention.py`): the maximum of a row moves from tile to tile of keys and scales what was summed
before; the natural logarithm of each row's sum is kept, +inf for a row that sees nothing, so that the gradients make the weights
again.  cuDNN keeps the same, so that either may follow the other.  Sums are in float32 in a fixed order: queries' gradients are
added up by the block of the queries, keys' and values' by the block of the keys.
"""

from __future__ import annotations

import hashlib
import math
import struct
from string import Template
from typing import TYPE_CHECKING

from ....dtypes import bool_, float32
from ...kernel import Kernel
from .. import helpers
from . import attention_text as text

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...kernel import Launch

    Steps = dict[str, tuple[int, ...]]
    Choices = tuple[tuple[int, int], ...]

WARPS = 4
MOST_DEPTH, MOST_DEPTH_BACK = 256, 128
_LOG2E = 1.0 / math.log(2.0)
_PLAIN_SHARED = 99 << 10  # bytes that a block may have on every architecture from 8.0
_NUMBERS = ("heads group length source depth value_depth row_blocks query_blocks key_blocks all_rows scale scale2 "
            "q_batch q_head q_row k_batch k_head k_row v_batch v_head v_row o_batch o_head o_row mask_batch mask_head mask_row "
            "g_batch g_head g_row dq_batch dq_head dq_row dk_batch dk_head dk_row dv_batch dv_head dv_row").split()


class _Tiles:
    """How a kernel's work is cut: the warps of a block, tiles of 16 rows and of 8 columns that a warp has, and a block's shared memory."""

    __slots__ = ("warps", "rows", "columns", "shared")

    def __init__(self, warps: int, rows: int, columns: int, shared: int) -> None:
        self.warps, self.rows, self.columns, self.shared = warps, rows, columns, shared

    @property
    def block(self) -> int:
        """Rows of a block."""
        return self.warps * self.rows * 16


class Attention:
    """One attention: what its text is made for, and the numbers of its launches.

    d: float32, float16 or bfloat16; mask: None, bool, float32 or d.  sizes: batch, query heads, query heads a key head, queries,
    keys, depth, depth of values.  steps: of "q", "k", "v", "o", "mask", "g", "dq", "dk", "dv" along batch, head and row in elements;
    columns are neighbours.  The addresses of operands are multiples of 16 bytes.  shared: bytes of shared memory that a block may
    have.  Raises NotImplementedError for what there is no kernel for.
    """

    def __init__(self, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float, steps: Steps,
                 shared: int = _PLAIN_SHARED) -> None:
        self.d, self.mask, self.causal, self.drop, self.sizes, self.scale, self.steps, self.most = d, mask, causal, drop, sizes, scale, steps, shared
        self.depth, self.value_depth = sizes[5], sizes[6]
        self.tensor = d.itemsize == 2
        if d.name not in ("float32", "float16", "bfloat16") or not 0 < max(self.depth, self.value_depth) <= MOST_DEPTH or not min(sizes):
            raise NotImplementedError(f"attention of {d}, depth {self.depth}")
        if mask is not None and mask not in (bool_, float32, d) or max(sizes[3:5]) >= 1 << 30 or sizes[0] * sizes[1] >= 1 << 24:
            raise NotImplementedError("attention with such a mask, or of so many")
        if any(len(s) > 3 and s[3] != 1 and sizes[5 + (name == "v")] > 1 for name, s in steps.items()):
            raise NotImplementedError("columns that are no neighbours")
        self.wide, self.value_wide = -(-self.depth // 16) * 16, -(-self.value_depth // 16) * 16
        self.deep, self.heavy = max(self.wide, self.value_wide), drop or mask is not None
        gap = 16 // d.itemsize  # elements of a chunk too
        self.whole = not any(n % gap for name, s in steps.items() if name in ("q", "k", "v", "g") for n in (*s[:3], *sizes[5:]))
        self.ld, self.ldv = self.wide + gap, self.value_wide + gap

    # ------------------------------------------------------------------------------------------------------------ tiles
    def _fit(self, choices: Choices, rows: int, columns: int) -> _Tiles:
        """The first choice that fits the shared memory; rows, columns: elements that each row and column of a block takes."""
        for warps, mt, nt in (*((WARPS, *c) for c in choices), (2, 1, 4), (2, 1, 2), (1, 1, 2)):
            taken = warps * mt * 16 * rows + nt * 8 * columns
            if not self.tensor:
                taken += warps * mt * 16 * (nt * 8 + 4)  # a warp's own piece
            if taken * self.d.itemsize <= self.most - 1024:  # what is known of columns lies beside it
                return _Tiles(warps, mt, nt, taken * self.d.itemsize)
        raise NotImplementedError(f"attention of {self.d}, depth {self.depth}: too little shared memory")

    # What is tried first has as many registers as a thread may, and spills few or none (tests/_core/kernels/cuda_c/test_compile.py).
    def forward_tiles(self) -> _Tiles:
        choices: Choices
        if self.deep <= 64:
            choices = ((1, 8),) if self.drop else ((2, 4), (1, 8)) if self.heavy else ((2, 8), (2, 4), (1, 8))
        elif self.deep <= 128:
            choices = ((2, 8), (1, 8)) if self.tensor and not self.heavy else ((1, 8),)
        else:
            choices = () if self.heavy else ((1, 8),)
        return self._fit((*choices, (1, 4), (1, 2)), self.ld, self.ld + self.ldv)

    def query_tiles(self) -> _Tiles:
        choices: Choices = () if self.drop else ((2, 4), (1, 8)) if self.deep <= 64 else ((1, 8),)
        return self._fit((*choices, (1, 4), (1, 2)), self.ld + self.ldv, 2 * (self.ld + self.ldv))

    def key_tiles(self) -> _Tiles:
        choices: Choices = ((1, 8),) if self.deep <= 64 or (self.tensor and not self.heavy) else ()
        if self.deep <= 64 and not self.heavy:
            choices = ((2, 4), *choices)
        return self._fit((*choices, (1, 4), (1, 2)), self.ld + self.ldv, 2 * (self.ld + self.ldv))

    # ------------------------------------------------------------------------------------------------------------- text
    def _kernel(self, operands: list[str], parts: list[str], tiles: dict[str, _Tiles], launches: list[tuple[str, int, int, int]], workspace: int,
                products: int) -> Kernel:
        batch, heads, group, length, source = self.sizes[:5]
        numbers = ["seed", "offset", "p"] if self.drop else []
        names = [*operands, *(["mask"] if self.mask is not None else []), *(["work"] if workspace else []), *numbers, *_NUMBERS]
        every = ["o", "lse", "q", "k", "v", "mask", "work", "seed", "offset", "p", "g", "dq", "dk", "dv", *_NUMBERS]
        of_16 = self.d.name
        pre = self.mask not in (None, bool_) or not self.scale > 0
        kind = 0 if self.mask is None else 1 if self.mask is bool_ else 2 if self.mask is float32 else 3
        constants = {"D": self.wide, "DV": self.value_wide, "LD": self.ld, "LDV": self.ldv, "ND": self.wide // 8, "NV": self.value_wide // 8,
                     "MASK": kind, "MASK_SIZE": self.mask.itemsize if self.mask is not None else 1}
        for prefix, t in tiles.items():
            constants |= {f"{prefix}WARPS": t.warps, f"{prefix}MT": t.rows, f"{prefix}NT": t.columns}
        flags = {"CAUSAL": self.causal, "DROP": self.drop, "PRE": pre, "WHOLE": self.whole}
        lines = [f"struct Args {{ unsigned long long w[{len(names)}]; }};", "#define INFINITE __int_as_float(0x7f800000)",
                 "#define NATURAL 0.693147180559945309f", "#define BINARY 1.44269504088896341f",
                 "enum { " + ", ".join(f"w_{n} = {names.index(n) if n in names else 0}" for n in every) + " };",
                 "constexpr int " + ", ".join(f"{n} = {v}" for n, v in constants.items()) + ";",
                 "constexpr bool " + ", ".join(f"{n} = {str(v).lower()}" for n, v in flags.items()) + ";"]
        needed = {"copy_async", "half" if of_16 == "float16" else "bfloat"}
        if self.tensor:
            needed |= {"mma", "load_matrices"}
        body = [text.TENSOR if self.tensor else text.PLAIN, text.COMMON, text.TENSOR_PRODUCTS if self.tensor else text.PLAIN_PRODUCTS, *parts]
        whole = "\n".join([*lines, helpers.text(needed), *(part.strip("\n") for part in body)]) + "\n"
        tag = hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()
        source_text = Template(whole).substitute(tag=tag, name=of_16, packed="bf16x2" if of_16 == "bfloat16" else "f16x2")
        values = {"heads": heads, "group": group, "length": length, "source": source, "depth": self.depth, "value_depth": self.value_depth,
                  "all_rows": batch * heads * length, "scale": _bits(self.scale), "scale2": _bits(self.scale * _LOG2E)}
        for name, steps in self.steps.items():
            values |= {f"{name}_{axis}": steps[k] for k, axis in enumerate(("batch", "head", "row"))}
        for prefix, rows in (("", "row_blocks"), ("Q", "query_blocks"), ("K", "key_blocks")):
            if prefix in tiles:
                values[rows] = -(-(source if prefix == "K" else length) // tiles[prefix].block)
        arguments = "P" * (len(operands) + (self.mask is not None) + bool(workspace)) + ("qqd" if self.drop else "")
        planned: tuple[Launch, ...] = tuple((f"{stem}_{tag}", (blocks, 1, 1), (threads, 1, 1), shared) for stem, blocks, threads, shared in launches)
        seen = 0.5 if self.causal else 1.0
        flops = int(products * batch * heads * length * source * (self.depth + self.value_depth) * seen)
        nbytes = (products // 2) * batch * heads * (length + source // group) * (self.depth + self.value_depth) * self.d.itemsize
        return Kernel(source_text, planned, arguments, tuple(values.get(n, 0) for n in _NUMBERS), workspace, nbytes, flops)

    def forward(self) -> Kernel:
        """``(O, LSE, Q, K, V, [mask,] [seed, offset, p])``; LSE is float32, (batch, heads, queries), contiguous: the natural logarithm."""
        batch, heads, _, length = self.sizes[:4]
        tiles = self.forward_tiles()
        blocks = batch * heads * -(-length // tiles.block)
        return self._kernel(["o", "lse", "q", "k", "v"], [text.FORWARD], {"": tiles}, [("attention_forward", blocks, tiles.warps * 32, tiles.shared)], 0, 2)

    def backward(self) -> Kernel:
        """``(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask,] workspace, [seed, offset, p])``; the gradients of keys and values are of the
        key heads."""
        if max(self.depth, self.value_depth) > MOST_DEPTH_BACK:
            raise NotImplementedError(f"the gradient of attention of depth {self.depth}")
        batch, heads, group, length, source = self.sizes[:5]
        queries, keys = self.query_tiles(), self.key_tiles()
        rows = batch * heads * length
        launches = [("attention_delta", -(-rows // 8), 256, 0),
                    ("attention_queries", batch * heads * -(-length // queries.block), queries.warps * 32, queries.shared),
                    ("attention_keys", batch * (heads // group) * -(-source // keys.block), keys.warps * 32, keys.shared)]
        return self._kernel(["dq", "dk", "dv", "g", "o", "lse", "q", "k", "v"], [text.DELTA, text.QUERIES, text.KEYS], {"Q": queries, "K": keys}, launches,
                            -(-4 * rows // 256) * 256, 7)


def _bits(x: float) -> int:
    """A double's bits as a number."""
    found: int = struct.unpack("<Q", struct.pack("<d", x))[0]
    return found
