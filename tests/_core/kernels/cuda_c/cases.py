"""Launches on arrays: rendered, carried out on the CPU in several orders of threads, compared with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau._core.dtypes import bfloat16, bool_, dtype
from flambeau._core.kernels import interpret
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.programs import Program

from . import host


def values(d: dtype, shape: tuple[int, ...], rng: np.random.Generator, special: bool = True, small: bool = False) -> np.ndarray:
    """Stored elements, special values among them."""
    if d.is_complex:
        pair = np.empty(shape, d.np)
        pair.real, pair.imag = (values(d.to_real(), shape, rng, special, small) for _ in range(2))
        return pair
    if d is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if d.kind in "ui":
        info = np.iinfo(d.np)
        near = rng.integers(-5 if d.kind == "i" else 0, 6, shape).astype(d.np)
        if small:
            return near
        out = np.where(rng.random(shape) < 0.5, rng.integers(info.min, info.max, shape, dtype=d.np, endpoint=True), near)
        return np.where(rng.random(shape) < 0.2, rng.choice(np.array([0, 1, info.min, info.max], d.np), shape), out).astype(d.np)
    out = rng.standard_normal(shape).astype(np.float32)
    if special:
        out = np.where(rng.random(shape) < 0.2, rng.choice(np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 2.5], np.float32), shape), out)
    return interpret.narrow_bfloat16(out) if d is bfloat16 else out.astype(d.np)


class Operand:
    """An array laid out in memory of its own: how 0 contiguous, 1 with gaps, 2 axes turned round, 3 backwards, 4 one element on."""

    def __init__(self, content: np.ndarray, how: int = 0) -> None:
        shape, d = content.shape, content.dtype
        if how == 1 and shape:
            self.memory = np.zeros(tuple(2 * n for n in shape), d)
            self.view = self.memory[tuple(slice(0, 2 * n, 2) for n in shape)]
        elif how == 2:
            self.memory = np.zeros(shape[::-1], d)
            self.view = self.memory.transpose()
        elif how == 3 and shape:
            self.memory = np.zeros(shape, d)
            self.view = self.memory[..., ::-1]
        elif how == 4:
            self.memory = np.zeros(content.size + 1, d)
            self.view = self.memory[1:].reshape(shape)
        else:
            self.memory = np.zeros(shape, d)
            self.view = self.memory
        self.view[...] = content

    def over(self, shape: tuple[int, ...]) -> Operand:
        """The same elements seen over more axes, or more often."""
        self.view = np.broadcast_to(self.view, shape)
        return self

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(s // self.view.itemsize for s in self.view.strides)

    @property
    def address(self) -> int:
        return int(self.view.__array_interface__["data"][0])


class Case:
    """A program over a domain: operands with the strides the program is given (None: those of the view)."""

    def __init__(self, program: Program, domain: tuple[int, ...], outs: Sequence[Operand], ins: Sequence[Operand], numbers: Sequence[Any] = (),
                 rtol: float = 0.0, atol: float = 0.0, strides: dict[int, tuple[int, ...]] | None = None) -> None:
        self.program, self.domain, self.outs, self.ins, self.numbers = program, domain, list(outs), list(ins), list(numbers)
        self.rtol, self.atol = rtol, atol
        self.strides = tuple((strides or {}).get(k, o.strides) for k, o in enumerate([*outs, *ins]))
        self.kernel = render(program, domain, self.strides)

    def arguments(self) -> list[Any]:
        return [o.address for o in (*self.outs, *self.ins)] + self.numbers

    def check(self, batch: host.Batch, orders: Sequence[int] = host.ORDERS) -> None:
        before = [np.array(o.memory) for o in self.outs]
        results = []
        for order in orders:
            for o, b in zip(self.outs, before):
                o.memory[...] = b
            # operands may share memory: each byte is registered once
            memory = {id(o.memory): o.memory for o in (*self.outs, *self.ins)}
            batch.launch(self.kernel, list(memory.values()), self.arguments(), order)
            results.append([np.array(o.memory) for o in self.outs])
        for o, b in zip(self.outs, before):
            o.memory[...] = b
        with np.errstate(all="ignore"):
            interpret.prepare(self.program, self.domain, self.strides).entry(*self.arguments())
        what = f"{self.program.text()}\nover {self.domain} by {self.strides}"
        for later in results[1:]:
            for a, b in zip(results[0], later):
                assert a.tobytes() == b.tobytes(), f"the order of threads matters:\n{what}"
        for got, o, d in zip(results[0], self.outs, self.program.out_types):
            same(got, o.memory, d, self.rtol, self.atol, what)


def same(got: np.ndarray, want: np.ndarray, d: dtype, rtol: float, atol: float, what: str) -> None:
    if d is bfloat16:
        got, want = interpret.widen_bfloat16(got), interpret.widen_bfloat16(want)
    if d.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


def check_all(cases: Sequence[Case], orders: Sequence[int] = host.ORDERS) -> None:
    batch = host.Batch([c.kernel for c in cases])
    for c in cases:
        c.check(batch, orders)
