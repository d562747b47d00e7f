"""Random histories of one call, told line by line: `python -m tests._core.engine.histories MODE FIRST LAST [STEPS]`, for `test_histories.py`.

A history calls one public operation a few times, always with the same layouts and constants, each time with operands that came about otherwise: in
memory of their own, behind other elements or at the very end of a storage, in memory that they share with one another or with `out`, resized to where
they are, with their `data` replaced, in an array, a file or NumPy's memory that may not be written; leaves, views of leaves, results, inference
tensors; with other and with hostile values.  Each block of memory lies between pages that nobody may touch.

MODE "bodies": nothing is learned.  MODE "learned": a call is learned when it has been made once.  MODE "at-once": it is learned before it is made.  All
must tell the same: results to the bit, layouts, versions, names of nodes, gradients, errors to the word, and all memory of all operands.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
import re
import resource
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests._core.runtime import guard_pages

STEPS = 9
MEMORY = 6 << 30  # address space: what asks for more gets an error
FLOATS = (0.0, float("nan"), 1.0, float("inf"), -0.0, float("-inf"), 1e30, -1e-30, 0.5)
WHOLE = (0, 1, 2, 3, -1, 1, 2, 1 << 30, -(1 << 31), 3)
# what has no like of its own a second time: addresses, memory that nobody wrote, threads, the process's settings
NOT = re.compile(r"data_ptr|empty|\bnew\b|resize|set_num|share_memory|manual|pin_memory|is_pinned|from_file|_cuda|cuda\b|\bto_mkldnn|storage|seed|grad_mode|"
                 r"set_default|printoptions|deterministic|__dlpack__|sparse|x\.new|repr|compile|fork|vmap|Generator|rng|stft|lobpcg|pca_lowrank|svd_lowrank|_dim$|set_anomaly|export|trace")


class History:
    """One of them.  lines: the public operations' (`public_operations.lines`)."""

    def __init__(self, seed: int, lines: list[Any]) -> None:
        import flambeau as torch

        from .public_operations import ops_lines, ops_timing, ops_values
        self.torch, self.random = torch, random.Random(seed)
        r = self.random
        self.line = line = r.choice(lines)
        values = ops_values.Values(torch)
        self.code, self.expression = ops_timing.compiled(line)
        self.scope: dict[str, Any] = {n: values[n] for n in ops_timing.used(line)}
        self.function = ops_lines.find(torch, line.path) if line.path else None
        self.names = [n for n, v in self.scope.items() if type(v) is torch.Tensor and v.layout is torch.strided]
        self.layouts: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]] = {}
        for n in self.names:
            t = values[n].detach()
            if r.random() < .05 and t.dim():
                t = t[:0]
            if r.random() < .1:
                t = t.to(r.choice([torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]))
            how = r.random()
            if how < .15 and t.dim() > 1:
                t = t.transpose(0, -1).contiguous().transpose(0, -1)
            elif how < .3 and t.dim():
                t = torch.stack([t, t], -1)[..., 0]
            elif how < .4 and t.dim() and t.numel():
                t = t[:1].expand(t.shape)
            self.layouts[n] = (tuple(t.shape), t.stride(), t.dtype)
            self.scope[n] = t
        operation = getattr(self.function, "__operation__", None)
        self.out = operation is not None and operation.out is not None and "Tensor." not in line.name and r.random() < .6
        self.wanting = r.random() < .4

    # --------------------------------------------------------------------------------------------------------------------- operands
    def reach(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
        """The elements from the first to behind the last."""
        return 0 if 0 in shape else sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1

    def memory(self, nbytes: int, dtype: Any) -> Any:
        """So many bytes of one kind or another, as a tensor of a type."""
        torch, kind = self.torch, self.random.random()
        count = nbytes // dtype.itemsize
        if kind < .7 or not nbytes:
            return torch.empty(count, dtype=dtype)
        if kind < .8:
            whole = np.zeros(nbytes, np.uint8)
            return torch.from_numpy(whole).view(dtype)
        if kind < .9:
            return torch.frombuffer(mmap.mmap(-1, nbytes), dtype=dtype)
        whole = np.zeros(nbytes + 8, np.uint8)[8:]
        return torch.from_dlpack(torch.from_numpy(whole)).view(dtype)

    def fill(self, t: Any, values: str) -> None:
        """All elements of a storage's tensor."""
        torch, dtype, n = self.torch, t.dtype, t.numel()
        if not n:
            return
        seed = self.random.randrange(1 << 30)
        if values == "hostile" and dtype is not torch.bool:
            few = FLOATS if dtype.is_floating_point or dtype.is_complex else [v for v in WHOLE if dtype.is_signed and dtype.itemsize > 3 or 0 <= v < 100]
            array = np.array([few[(k + seed) % len(few)] for k in range(n)])
        else:
            numbers = np.random.default_rng(seed)
            array = numbers.uniform(.1, .9, n) if dtype.is_floating_point or dtype.is_complex else numbers.integers(0, 2 if dtype is torch.bool else 4, n)
        made = torch.from_numpy(array).to(dtype)
        ctypes.memmove(t.data_ptr(), made.data_ptr(), n * dtype.itemsize)

    def operand(self, n: str, stores: dict[Any, Any], values: str) -> Any:
        """A tensor of a name's layout, anyhow."""
        torch, r = self.torch, self.random
        shape, strides, dtype = self.layouts[n]
        count = self.reach(shape, strides)
        share = stores.get(dtype)
        if share is not None and r.random() < .25:
            whole, at = share, 0
            room = whole.numel() - count
            if room >= 0:
                at = r.choice([0, 0, room, r.randrange(room + 1)])
                return whole.as_strided(shape, strides, at)
        before, behind = r.choice([0, 0, 1, 3, 16]), r.choice([0, 0, 5])
        whole = self.memory((before + count + behind) * dtype.itemsize, dtype)
        self.fill(whole, values)
        stores.setdefault(dtype, whole)
        self.wholes.append(whole)
        how = r.random()
        if how < .5:
            return whole.as_strided(shape, strides, before)
        if how < .65:
            t = torch.empty(0, dtype=dtype)
            return t.set_(whole.untyped_storage(), whole.storage_offset() + before, shape, strides)
        if how < .75:
            t = torch.zeros(1, dtype=dtype)
            t.data = whole.as_strided(shape, strides, before)
            return t
        if how < .85 and strides == torch.empty(shape, device="meta").stride():
            t = torch.zeros(1, dtype=dtype).resize_(shape)
            if t.numel():
                t.copy_(whole.as_strided(shape, strides, before))
            return t
        return whole.as_strided(shape, strides, before).detach()

    def lived(self, t: Any) -> Any:
        """The same with a history of autograd, where one is wanted."""
        r = self.random
        if not self.wanting or not (t.is_floating_point() or t.is_complex()) or r.random() < .3:
            return t
        how = r.random()
        if how < .5:
            return t.detach().requires_grad_(True)
        if how < .7:
            leaf = t.detach().requires_grad_(True)
            self.leaves.append(leaf)
            return leaf.view_as(leaf)
        if how < .85:
            leaf = self.torch.zeros(t.shape, dtype=t.dtype).requires_grad_(True)
            self.leaves.append(leaf)
            return t.detach() + leaf if 0 not in t.stride() else t
        with self.torch.inference_mode():
            return t.clone()

    def outs(self, made: Any, given: dict[str, Any]) -> Any:
        """A tensor for `out=`, or several, for a call that gave these."""
        torch, r = self.torch, self.random

        def one(like: Any) -> Any:
            how = r.random()
            if how < .35:
                return torch.full_like(like, 1)
            if how < .5:
                t = torch.empty(0, dtype=like.dtype)
                self.wholes.append(t)
                return t
            if how < .6:
                return torch.ones(3, dtype=like.dtype)
            same = [t for t in given.values() if t.dtype is like.dtype]
            if how < .8 and same:
                t = r.choice(same)
                if tuple(t.shape) == tuple(like.shape) and r.random() < .6:
                    return t
                whole = next((w for w in self.wholes if w.dtype is like.dtype and w.numel() >= like.numel()), None)
                if whole is not None:
                    return whole[whole.numel() - like.numel():].view(like.shape)
            if how < .9:
                return torch.full((*like.shape, 2), 1, dtype=like.dtype)[..., 0]
            return torch.full((*tuple(like.shape)[::-1],), 1, dtype=like.dtype).permute(*range(like.dim())[::-1])
        return one(made) if isinstance(made, torch.Tensor) else tuple([one(x) for x in made])

    # ------------------------------------------------------------------------------------------------------------------------ steps
    def step(self, k: int) -> str:
        torch, r = self.torch, self.random
        self.wholes: list[Any] = []
        self.leaves: list[Any] = []
        stores: dict[Any, Any] = {}
        values = r.choice(["usual", "usual", "hostile"])
        mode = r.choice(["", "", "", "no_grad", "inference_mode", "enable_grad"])
        given = {n: self.lived(self.operand(n, stores, values)) for n in self.names}
        scope = {**self.scope, **given, "call": self.function}
        out: Any = None
        if self.out and r.random() < .8:
            with contextlib.suppress(Exception):
                with torch.no_grad():
                    torch.manual_seed(5)
                    plain = {**self.scope, "call": self.function}
                    made = eval(self.code, plain)
                out = self.outs(made, given)
        if out is not None:
            f, sent = self.function, out
            scope["call"] = lambda *args, **kwargs: f(*args, **kwargs, out=sent)
        outs = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
        told: list[Any] = []
        torch.manual_seed(k)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with getattr(torch, mode)() if mode else contextlib.nullcontext():
                    made = eval(self.code, scope) if self.expression else exec(self.code, scope)
                told.append(self.said(made, [*given.values(), *outs]))
                told.append(self.gradients(made, [*given.values(), *self.leaves]))
            except Exception as error:
                told.append(f"{type(error).__name__}: {plain_words(str(error))}")
                made = None
        told.append([str(w.message)[:60] for w in warned])
        told.append([self.said(t, []) for t in [*given.values(), *outs]])
        told.append([self.bits(w) for w in self.wholes])
        return re.sub(r"\s+", " ", f"{mode or '-'} {values} {told}")

    def gradients(self, made: Any, of: list[Any]) -> Any:
        """Those of each result, for a gradient of one element and for a dense one.  Left out: their versions, and the signs of zeros, as pieces of a
        gradient are put together otherwise in a learned pass."""
        torch = self.torch
        wanting = [t for t in of if t.requires_grad]
        found: list[Any] = []
        for t in flat(torch, made):
            if not t.requires_grad or not wanting or t.numel() > 1 << 12 or any(t is x for x in of):
                continue
            for g in (torch.ones((), dtype=t.dtype).expand(t.shape), torch.arange(t.numel()).reshape(t.shape).to(t.dtype)):
                try:
                    given = torch.autograd.grad(t, wanting, g, retain_graph=True, allow_unused=True)
                    found.append([None if x is None else (*self.said(x, [])[:5], x.requires_grad, self.bits(x, False)) for x in given])
                except RuntimeError as error:
                    found.append(plain_words(str(error)))
        return found

    def said(self, x: Any, of: list[Any]) -> Any:
        torch = self.torch
        if isinstance(x, torch.Tensor):
            if x.layout is not torch.strided or type(x) is not torch.Tensor:
                return type(x).__name__, str(x.layout)
            same = next((k for k, t in enumerate(of) if t is x), None)
            if same is not None:
                return f"operand {same}"
            version = "inference" if x.is_inference() else x._version
            store = next((k for k, t in enumerate(of) if t.untyped_storage() == x.untyped_storage()), None)
            # of views of memory of their own bodies make some (`own_view`), and replays none
            view = store is not None and x._is_view()
            return (str(x.dtype), tuple(x.shape), x.stride(), x.storage_offset(), store, version, x.requires_grad, x.is_leaf, view,
                    x.grad_fn.name() if x.grad_fn is not None else "", self.bits(x))
        if isinstance(x, (list, tuple)):
            return type(x).__name__, [self.said(y, of) for y in x]
        return repr(x) if x is None or isinstance(x, (bool, int, float, complex, str)) else type(x).__name__

    def bits(self, t: Any, zeros: bool = True) -> str:
        """A tensor's bytes.  zeros: with the signs of zeros."""
        from flambeau._core.kernels.interpret import memory
        m = t.meta
        text = bytes(memory(t.ptr, tuple(m.shape), m.strides, m.dtype).tobytes()) if t.numel() else b""
        if not zeros:
            part = m.dtype.to_real().itemsize if m.dtype.is_complex else m.dtype.itemsize
            numbers = np.frombuffer(text, f"u{part}").copy()
            numbers[numbers == 1 << 8 * part - 1] = 0
            text = numbers.tobytes()
        return text.hex()


class _Everything(set[str]):
    def __contains__(self, x: object) -> bool:
        return True


def flat(torch: Any, x: Any) -> Iterator[Any]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for part in x:
            yield from flat(torch, part)


def plain_words(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\b\d{13,}\b|This process holds .*", "#", text)[:160]


def main(mode: str, first: int, last: int, steps: int = STEPS) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    guard_pages.install(lists=True)
    from flambeau._core import errors
    from flambeau._core.engine import learning

    from . import learned_at_once
    errors._said = _Everything()  # what a process is told once is no call's
    if mode == "bodies":
        learning.on = False
    elif mode == "learned":
        learned_at_once.soon()
    else:
        learned_at_once.install()
    from .public_operations import lines
    fit = [line for line in lines() if not NOT.search(line.text) and not NOT.search(line.path or line.name)]
    for seed in range(first, last):
        try:
            history = History(seed, fit)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        print(f"{seed} {history.line.name}{' out' if history.out else ''}: {history.line.text!r}", flush=True)
        for k in range(steps):
            print(f"{seed}.{k} {history.step(k)}", flush=True)
            guard_pages.sweep()
    print("learned", len(learning.learned), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
