"""Every loop program that operations make has CUDA C, and OpenCL C: no GPU hands one to the host."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.dtypes import dtype
from flambeau._core.kernels import cuda_c, interpret, opencl_c, target
from flambeau._core.kernels.expr import walk
from flambeau._core.kernels.programs import PreparedLaunch, Program
from flambeau._core.ops.table import TABLE
from flambeau._core.runtime import dispatch

TYPES = ("float32", "bfloat16", "complex64", "int64", "bool")
# operations that wait, ask for files or a great deal of memory
LEFT_OUT = {"combinations", "cartesian_prod"}


def forms(d: Any) -> list[tuple[Any, ...]]:
    """Arguments that operations may take."""
    x = torch.arange(24).reshape(4, 6).sub(7).to(d)
    y, square, at = x.flip(1), x[:, :4], torch.tensor([[0, 1, 3, 2, 0, 1]] * 4)
    image = torch.arange(96).reshape(2, 3, 4, 4).to(d)
    return [(x,), (x, y), (x, y, x), (x, 1), (x, 1, at), (x, 1, at, y), (x, 0, at[0, :3], y[:3]), (square, square), ([x, y],), (x, at),
            (x, x != 0), (x, x != 0, y), (x, x != 0, 1), (x, 2, 1), (x, at[:, 0]), (image, 2), (image, (2, 2)), (x.reshape(2, 3, 4), y.reshape(2, 4, 3)),
            (x, x[0], y[0]), (x, (6,)),
            (x, at[0, :4]), (x[0], y[0]), (image, image)]


def gather(seen: dict[Any, tuple[Program, Any, Any]]) -> int:
    """Calls every operation with all of that, forward and back; gives how many calls were taken."""
    taken = 0
    for name in TYPES:
        d = getattr(torch, name)
        args = forms(d)
        for row in list(TABLE.values()):
            if row.name in LEFT_OUT:
                continue
            for given in args:
                fresh = [a.clone() if isinstance(a, torch.Tensor) else a for a in given]
                try:
                    if (d.is_floating_point or d.is_complex) and isinstance(fresh[0], torch.Tensor):
                        fresh[0].requires_grad_()
                    out = row.function(*fresh)
                    taken += 1
                    if isinstance(out, torch.Tensor) and out.requires_grad:
                        out.sum().abs().backward()
                except Exception:  # arguments that the operation does not take
                    continue
    return taken


@pytest.fixture(scope="module")
def programs() -> dict[Any, tuple[Program, Any, Any]]:
    seen: dict[Any, tuple[Program, Any, Any]] = {}

    def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch:
        if all(isinstance(e.dtype, dtype) for e in walk(program.roots())):  # an argument taken for a type is no program
            seen.setdefault((program.key, tuple(map(len, strides))), (program, domain, strides))
        return interpret.prepare(program, domain, strides)
    before = target._prepare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dispatch.changed()
        target._prepare = prepare
        try:
            assert gather(seen) > 2000
        finally:
            target._prepare = before
            dispatch.changed()
    return seen


@pytest.mark.parametrize("render", [cuda_c.render, opencl_c.render], ids=["cuda", "opencl"])
def test_no_program_is_left_to_the_host(programs: dict[Any, tuple[Program, Any, Any]], render: Any) -> None:
    kinds = {kind: sum(p.kind == kind for p, _, _ in programs.values()) for kind in ("map", "reduce", "rows", "scan")}
    assert kinds["map"] > 1500 and kinds["reduce"] > 100 and kinds["rows"] > 10 and kinds["scan"] > 20, kinds
    left = []
    for program, domain, strides in programs.values():
        try:
            render(program, domain, strides)
        except Exception as e:
            left.append(f"{e!r}: {program.text()}")
    assert not left, f"{len(left)} of {len(programs)} programs go to the host:\n" + "\n".join(left[:40])
