"""Calls made again and again in a process where calls are learned before they are made: for guard_process.py.

Each call is made by the operation's body, and as a replay: with the operands as they are, elsewhere in their storages with other values, and with
hostile values; each time on copies of their own.  A replay must give what the body gives, to the bit and to the word of an error: values, types,
layouts, versions, names of nodes, what became of the operands, gradients.  What differs is printed as `DIFF what`.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MOST = 1 << 20  # bytes of all operands of a call that is made again
SECONDS = 0.2  # that such a call may take
FLOATS = (0.0, float("nan"), 1.0, float("inf"), -0.0, float("-inf"), 1e30, -1e-30, 0.5)
WHOLE = (0, -1, 1, 2, 3, 5, 127, 1 << 31, -(1 << 63), (1 << 63) - 1)
VARIANTS = (("the same", 0, ""), ("the same", 0, ""), ("the same", 0, ""), ("elsewhere", 3, "other"), ("hostile", 0, "hostile"), ("elsewhere", 5, ""))


class Repeated:
    """`call(f, args, kwargs)` as above.  T: the package.  sweep: what is called when all that was given back may be forgotten."""

    def __init__(self, T: Any, sweep: Callable[[], None]) -> None:
        from flambeau._core import tensor
        from flambeau._core.engine import fields
        from flambeau._core.runtime import capture
        self.T, self.sweep, self.tensors, self.now = T, sweep, tensor, capture.now
        self.unfilled = fields.of("unfilled")

    def call(self, f: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.sweep()
        given = [args, kwargs]
        if self.fit(given):
            before = ""
            for name, shift, values in VARIANTS:
                with self.by_bodies():
                    started = time.thread_time()
                    wanted = self.outcome(f, self.copied(given, {}, shift, values))
                    if time.thread_time() - started > SECONDS:
                        break
                found = self.outcome(f, self.copied(given, {}, shift, values))
                if found != wanted and name != before:
                    print(f"DIFF {name}: {difference(wanted, found)}", flush=True)
                    before = name
        return f(*args, **kwargs)

    @contextlib.contextmanager
    def by_bodies(self) -> Iterator[None]:
        """No learned plan is found, and none is made."""
        self.now.hold(1)
        try:
            yield
        finally:
            self.now.hold(-1)

    # ------------------------------------------------------------------------------------------------------------------- operands
    def all(self, x: Any) -> Iterator[Any]:
        """The tensors in arguments or results."""
        if isinstance(x, self.T.Tensor):
            yield x
        elif isinstance(x, (list, tuple, dict)):
            for part in x.values() if isinstance(x, dict) else x:
                yield from self.all(part)

    def plain(self, t: Any) -> bool:
        return type(t) is self.T.Tensor and t.meta.plain and t.device.type == "cpu"

    def fit(self, given: Any) -> bool:
        tensors = list(self.all(given))
        return all(map(self.plain, tensors)) and sum(t.store.meta.nbytes for t in tensors) <= MOST

    def copied(self, x: Any, storages: dict[int, Any], shift: int, values: str) -> Any:
        """Copies of operands that lie to one another as these do.  shift: so many elements more in their storages.  values: "other", "hostile" ones."""
        if isinstance(x, self.T.Tensor):
            m, store = x.meta, x.store
            more = shift * m.dtype.itemsize
            found = storages.get(id(store))
            if found is None:
                nbytes = store.meta.nbytes
                found = self.T.empty(nbytes + more, dtype=self.T.uint8).store
                ctypes.memset(found.ptr, 0, more)
                ctypes.memmove(found.ptr + more, store.ptr, nbytes)
                if values:
                    self.change(found.ptr + more, nbytes, m.dtype, values)
                storages[id(store)] = found
            made: Any = object.__new__(self.T.Tensor)
            made.meta, made.store, made.ptr, made.node, made.base = m, found, found.ptr + more + x.ptr - store.ptr, None, None
            return made.requires_grad_(True) if x.requires_grad else made
        if isinstance(x, dict):
            return {k: self.copied(v, storages, shift, values) for k, v in x.items()}
        return type(x)(self.copied(v, storages, shift, values) for v in x) if type(x) in (list, tuple) else x

    def change(self, address: int, nbytes: int, dtype: Any, values: str) -> None:
        width = dtype.itemsize
        if nbytes <= width:
            return
        if values == "other":  # the last element comes first
            before = ctypes.string_at(address, nbytes)
            ctypes.memmove(address, before[-width:] + before[:-width], nbytes)
        elif dtype is not self.T.bool:
            few = FLOATS if dtype.is_floating_point or dtype.is_complex else [v & (1 << 8 * width) - 1 for v in WHOLE]
            signed = few if few is FLOATS or not dtype.is_signed else [v - (1 << 8 * width) if v >> 8 * width - 1 else v for v in few]
            pattern = self.T.tensor(list(signed), dtype=dtype)
            text = ctypes.string_at(pattern.ptr, pattern.meta.nbytes)
            ctypes.memmove(address, (text * (nbytes // len(text) + 1))[:nbytes], nbytes)

    # ------------------------------------------------------------------------------------------------------------------- outcomes
    def outcome(self, f: Any, given: Any) -> list[Any]:
        """What a call gives, with gradients, and what it leaves."""
        operands = list(self.all(given))
        leaves = [t for t in operands if t.requires_grad]
        unfilled = getattr(getattr(f, "__operation__", None), "name", "") in self.unfilled or getattr(f, "__name__", "").startswith("resize")
        self.T.manual_seed(7)
        told: list[Any] = []
        try:
            made = f(*given[0], **given[1])
            told.append(self.said(made, operands, unfilled))
            for t in self.all(made):
                if t.requires_grad and t.numel() < 1 << 16 and leaves and not any(t is x for x in operands):
                    told.append(self.gradients(t, leaves))
        except Exception as error:
            told.append((type(error).__name__, plain(str(error))))
        return [*told, *[self.said(t, [], unfilled) for t in operands]]

    def gradients(self, t: Any, leaves: list[Any]) -> Any:
        """Without versions and the signs of zeros: a learned pass puts pieces of a gradient together otherwise."""
        told: list[Any] = []
        for g in (self.T.ones((), dtype=t.dtype).expand(t.shape), self.T.arange(t.numel()).reshape(t.shape).to(t.dtype)):
            try:
                found = self.T.autograd.grad(t, leaves, g, retain_graph=True, allow_unused=True)
                told.append([None if x is None else (str(x.dtype), tuple(x.shape), x.stride(), self.unsigned(x)) for x in found])
            except RuntimeError as error:
                told.append(plain(str(error)))
        return told

    def said(self, x: Any, operands: list[Any], unfilled: bool) -> Any:
        if isinstance(x, self.T.Tensor):
            same = next((k for k, t in enumerate(operands) if t is x), -1)
            if same >= 0 or not self.plain(x):
                return "operand", same, str(x.dtype), tuple(x.shape)
            of = next((k for k, t in enumerate(operands) if t.store is x.store), -1)
            values = b"" if unfilled or x.numel() > 1 << 18 else self.values(x)
            name = x.grad_fn.name() if x.requires_grad and not x.is_leaf else ""
            return str(x.dtype), tuple(x.shape), x.stride(), x.storage_offset(), of, x.requires_grad, name, x._version, values
        if isinstance(x, (list, tuple)):
            return type(x).__name__, [self.said(part, operands, unfilled) for part in x]
        return repr(x) if x is None or type(x) in (bool, int, float, complex, str) else type(x).__name__

    def unsigned(self, t: Any) -> bytes:
        """The values, zeros without a sign."""
        part = t.dtype.itemsize // (2 if t.dtype.is_complex else 1)
        numbers = np.frombuffer(self.values(t), f"u{part}").copy()
        numbers[numbers == 1 << 8 * part - 1] = 0
        return numbers.tobytes()

    def values(self, t: Any) -> bytes:
        with self.by_bodies():
            t = t.detach().contiguous()
        return ctypes.string_at(t.ptr, t.meta.nbytes)


def plain(text: str) -> str:
    """Without addresses and how much memory is in use."""
    return re.sub(r"0x[0-9a-f]+|\b\d{13,}\b|This process holds .*", "#", text)


def difference(a: Any, b: Any) -> str:
    """Where two outcomes differ first."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b) and a:
        return next((f"{k}: {difference(x, y)}" for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), "")
    return f"by the body {str(a)[:200]} / as a replay {str(b)[:200]}"
