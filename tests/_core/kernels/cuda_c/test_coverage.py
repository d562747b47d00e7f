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


def small(d: Any) -> list[tuple[Any, ...]]:
    """Arguments of no element, of one, and of no axis."""
    made: list[tuple[Any, ...]] = []
    for shape in ((), (0,), (3, 0), (1, 1)):
        x, at = torch.ones(shape).to(d), torch.zeros(shape, dtype=torch.int64)
        made += [(x,), (x, x), (x, x, x), (x, 0), (x, -1, at), (x, -1, at, x), ([x, x],), (x, x != 0), (x, x != 0, 1), (x, 1, -1), (x, (0,))]
    image, wide = torch.ones(0, 3, 4, 4).to(d), torch.ones(2, 3, 0, 4).to(d)
    return [*made, *((t, *more) for t in (image, wide) for more in ((), (2,), ((2, 2),), (torch.ones(3, 3, 1, 1).to(d),)))]


def gather(forms: Any, types: tuple[str, ...]) -> int:
    """Calls every operation with all of these, forward and back; gives how many calls were taken."""
    taken = 0
    for name in types:
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


def programs_of(forms: Any, types: tuple[str, ...], key: Any) -> dict[Any, tuple[Program, Any, Any]]:
    """The loop programs that those calls make, one of each key."""
    seen: dict[Any, tuple[Program, Any, Any]] = {}

    def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch:
        # an argument taken for a type, or for a size, is no program
        if all(isinstance(e.dtype, dtype) for e in walk(program.roots())) and all(isinstance(n, int) for n in domain):
            seen.setdefault(key(program, domain, strides), (program, domain, strides))
        return interpret.prepare(program, domain, strides)
    before = target._prepare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dispatch.changed()
        target._prepare = prepare
        try:
            assert gather(forms, types) > 2000
        finally:
            target._prepare = before
            dispatch.changed()
    return seen


@pytest.fixture(scope="module")
def programs() -> dict[Any, tuple[Program, Any, Any]]:
    return programs_of(forms, TYPES, lambda program, domain, strides: (program.key, tuple(map(len, strides))))


@pytest.fixture(scope="module")
def programs_of_little() -> dict[Any, tuple[Program, Any, Any]]:
    return programs_of(small, ("float32", "int64"), lambda program, domain, strides: (program.key, domain, strides))


def left(programs: dict[Any, tuple[Program, Any, Any]], render: Any) -> list[str]:
    """What each program that cannot be rendered fails with."""
    found = []
    for program, domain, strides in programs.values():
        try:
            render(program, domain, strides)
        except Exception as e:
            found.append(f"{e!r}: {program.text()} over {domain} by {strides}")
    return found


@pytest.mark.parametrize("render", [cuda_c.render, opencl_c.render], ids=["cuda", "opencl"])
def test_no_program_is_left_to_the_host(programs: dict[Any, tuple[Program, Any, Any]], render: Any) -> None:
    kinds = {kind: sum(p.kind == kind for p, _, _ in programs.values()) for kind in ("map", "reduce", "rows", "scan")}
    assert kinds["map"] > 1500 and kinds["reduce"] > 100 and kinds["rows"] > 10 and kinds["scan"] > 20, kinds
    failed = left(programs, render)
    assert not failed, f"{len(failed)} of {len(programs)} programs go to the host:\n" + "\n".join(failed[:40])


@pytest.mark.parametrize("render", [cuda_c.render, opencl_c.render], ids=["cuda", "opencl"])
def test_no_element_or_one(programs_of_little: dict[Any, tuple[Program, Any, Any]], render: Any) -> None:
    """A scalar's cumsum had no operand that moves, and so no width."""
    kinds = {kind: sum(p.kind == kind for p, _, _ in programs_of_little.values()) for kind in ("map", "reduce", "rows", "scan")}
    assert kinds["map"] > 1500 and kinds["reduce"] > 100 and kinds["rows"] > 10 and kinds["scan"] > 20, kinds
    failed = left(programs_of_little, render)
    assert not failed, f"{len(failed)} of {len(programs_of_little)} programs go to the host:\n" + "\n".join(failed[:40])
