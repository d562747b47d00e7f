"""The report on kernels: instructions of machine code are counted rightly, and a kernel that wastes memory, banks or registers is caught."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, float32, int64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import Kernel, render
from flambeau._core.kernels.programs import Map, Scan
from tests._core.drivers.nvidia.running import on_fake
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.test_compile import _missing

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
import kernel_programs  # noqa: E402
import kernel_report  # noqa: E402
import sass  # noqa: E402

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
X = E.input(0, float32)
N = 1 << 14


def counts(body: str, **more: Any) -> dict[str, int]:
    """What warp 1 of a block of 128 threads issues, by opcode without its parts."""
    if _missing() or sass.disassembler() is None:
        pytest.skip(_missing() or "no nvdisasm here")
    source = ("struct Args { unsigned long long w[4]; };\n"
              f'extern "C" __global__ void __launch_bounds__(128) k(const Args a) {{\n'
              f"  float* p = (float*)a.w[0]; int n = (int)a.w[1], t = threadIdx.x; {body} }}")
    kernel = Kernel(source, (("k", (1, 1, 1), (128, 1, 1), 0),), "Pqqq", (), 0, 0, 0)
    cubin, _ = kernel_report.compiled(source)
    found: dict[str, int] = {}
    for op, n in sass.follow(sass.functions(cubin)["k"], kernel.pack(1 << 40, more.get("n", 0), 0, 0), (1, 1, 1), (128, 1, 1), (0, 0, 0), 1).items():
        found[op.split(".")[0]] = found.get(op.split(".")[0], 0) + n
    return found


def test_a_loop_is_followed_as_often_as_it_runs() -> None:
    for n in (0, 1, 7, 100):
        assert counts("for (int i = 0; i < n; i++) p[i * 128 + t] = 1.0f;", n=n).get("STG", 0) == n
        # warp 1 has threads 32 to 63
        assert counts("for (int i = t; i < n; i += 32) p[i] = 1.0f;", n=n).get("STG", 0) == max(0, -(-(n - 32) // 32))


def test_lanes_that_part_issue_both_ways() -> None:
    assert counts("if (t & 1) { p[t] = 1.0f; __threadfence(); } else { p[t + 500] = 2.0f; __threadfence_block(); p[t + 900] = 3.0f; }")["STG"] == 3
    assert "STG" not in counts("if (t < 32) p[t] = 1.0f;")


def test_divisions_of_integers_are_worked_out() -> None:
    assert counts("for (int i = 0; i < 1000 / n; i++) p[i * 128 + t] = 1.0f;", n=7)["STG"] == 1000 // 7


def test_a_division_goes_the_usual_way() -> None:
    found = counts("p[t] = p[t] / p[t + 128];")
    assert found["MUFU"] == 1 and found["FFMA"] <= 6 and "RET" not in found


def test_pipes_and_occupancy() -> None:
    ops = "FFMA IADD3.X IMAD.WIDE MUFU.EX2 F2F.BF16.F32 DADD LDG.E.128 SHFL.BFLY BRA ULDC.64 F2FP.BF16.PACK_AB"
    assert [sass.pipe(op) for op in ops.split()] == "fma alu int special special double memory shuffle other other alu".split()
    assert [sass.occupancy(*x) for x in ((32, 256, 0), (64, 256, 0), (33, 1024, 0), (32, 1024, 120 << 10), (255, 256, 0))] == [1, 0.5, 0.5, 0.5, 0.125]


def test_every_call_has_a_bound() -> None:
    assert list(kernel_report.bounds()) == [line.name for line in kernel_programs.lines()]


@on_fake
def test_the_check_passes() -> None:
    """One call; `make kernel-report` does all."""
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "kernel_report.py"), "--check", "--only", "turned copy bfloat16"],
                          capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=300, check=False)
    assert done.returncode == 0 and "| turned copy bfloat16" in done.stdout, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------------- mutants
def changed(kernel: Kernel, pattern: str, new: str) -> Kernel:
    text, found = re.subn(pattern, new, kernel.source)
    assert found, f"nothing like {pattern} in\n{kernel.source}"
    return Kernel(text, kernel.launches, kernel.arguments, kernel.block, kernel.workspace, kernel.nbytes, kernel.flops, kernel.program)


def doubled() -> Kernel:
    return render(Map((X + X,), (float32,)), (N,), ((1,), (1,)))


def turned() -> Kernel:
    return render(Map((X + 1.0,), (float32,)), (128, 128), ((128, 1), (1, 128)))


def running() -> Kernel:
    return render(Scan(X, "sum", (E.acc(0, float32),), (float32,)), (8, 2048), ((2048, 1), (2048, 1)))


def rounded() -> Kernel:
    x = E.cast(E.input(0, bfloat16), float32)
    return render(Map((E.cast(x * 3.0, bfloat16),), (bfloat16,)), (N,), ((1,), (1,)))


def hot() -> Kernel:
    """All elements to one offset."""
    program = Map((X,), (float32, int64), (), (("add", E.input(1, int64)),)).within(8)
    return render(program, (N,), ((0,), (1,), (1,)))


MUTANTS = {
    "an uncoalesced access": (doubled, r"\(int\)threadIdx.x;", "((int)threadIdx.x % 32) * 8 + (int)threadIdx.x / 32;", "efficiency"),
    "a bank conflict": (turned, r"\[32\]\[33\]", "[32][32]", "turns"),
    "a spill": (running, r"__launch_bounds__\((\d+)\)", r"__launch_bounds__(\1, 2048 / \1)", "spilt"),
    "an element at a time": (doubled, r"const bool (whole\d+) = .*;", r"const bool \1 = false;", "slots"),
    "a function of doubles": (rounded, r"__fmul_rn\(t(\d+), ", r"__fmul_rn((float)sqrt((double)t\1), ", "fraction"),
}


def figures(kernel: Kernel) -> kernel_report.Row:
    memory = np.zeros(2 * N + 64, np.float32)
    at = memory.ctypes.data + -memory.ctypes.data % 128
    line = kernel_programs.Line("a kernel", lambda t, fill: lambda: None, 8 * N, N)
    # as if it were of a size at which a launch does not count
    row = kernel_report.Row(line, list(kernel_report.parts(kernel, (at, at + 4 * N))))
    return row._replace(parts=[p._replace(seconds={k: v for k, v in p.seconds.items() if k != "launch"}) for p in row.parts])


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    make, pattern, new, what = MUTANTS[name]
    if what not in ("efficiency", "turns") and (_missing() or sass.disassembler() is None):
        pytest.skip(_missing() or "no nvdisasm here")
    kernel = make()
    good = figures(kernel)
    held = {"a kernel": good.figures()}
    assert not kernel_report.beyond([good], held)
    found = kernel_report.beyond([figures(changed(kernel, pattern, new))], held)
    assert any(f"a kernel: {what} " in told for told in found), found


def test_one_thread_that_does_all_is_seen() -> None:
    """A sum whose pieces go on to the end of their offset: the busiest thread's reads become the limit."""
    def longest(kernel: Kernel) -> float:
        memory = np.zeros(4 * N + kernel.workspace // 4 + 64, np.float32)
        at = memory.ctypes.data + -memory.ctypes.data % 256
        return max(p.seconds["longest thread"] for p in kernel_report.parts(kernel, (at, at + 4 * N, at + 8 * N, at + 16 * N)))
    kernel = hot()
    assert longest(kernel) < 5e-5 < 5e-4 < longest(changed(kernel, r"stop(\d+) < n(\d+) \? stop\1 : n\2", r"n\2"))


def test_a_loop_that_ends_by_what_memory_holds_is_told() -> None:
    """Offsets that meet nowhere: the loops over their elements run once, which only the requests tell."""
    memory = np.zeros(1 << 22, np.float32)
    at = memory.ctypes.data + -memory.ctypes.data % 256
    np.ctypeslib.as_array((ctypes.c_int64 * N).from_address(at + 8 * N))[...] = np.arange(N)
    program = Map((X,), (float32, int64), (), (("add", E.input(1, int64)),)).within(N)
    kernel = render(program, (N,), ((0,), (1,), (1,)))
    apply = next(p for p in kernel_report.parts(kernel, (at, at + 4 * N, at + 8 * N, at + 16 * N)) if "apply" in p.name)
    if apply.slots:
        assert not apply.sure and sum(apply.slots.values()) / N < 100
