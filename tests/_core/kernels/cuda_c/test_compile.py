"""Every family of kernels compiles for every architecture, within limits on registers and without spills; no GPU needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from flambeau._core.dtypes import ALL, bfloat16, bool_, complex64, complex128, dtype, float16, float32, float64, int8, int64, uint64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import philox
from flambeau._core.kernels.cuda_c import Kernel, compile, nvrtc, render
from flambeau._core.kernels.cuda_c.handwritten import channelwise, nonzero, searching, sorting, stepwise, topk
from flambeau._core.kernels.cuda_c.nvrtc import CompileError, build
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan


@cache
def _missing() -> str:
    """Why nothing can be compiled here; empty where it can be."""
    if util.find_spec("cuda") is None or util.find_spec("cuda.bindings") is None:
        return "no cuda-bindings here"
    try:
        build('extern "C" __global__ void k() {}', "sm_90")
    except Exception as e:  # whatever keeps it from working is the reason to skip
        return f"NVRTC does not work here: {e}"
    return ""


@pytest.fixture(autouse=True)
def compiler() -> None:
    """Asked by the first test and not when tests are collected, since NVRTC takes long to load."""
    if _missing():
        pytest.skip(_missing())


ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
REAL = [d for d in ALL if not d.is_complex]


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[k + 1:])) for k in range(len(shape)))


def maps() -> Iterator[Kernel]:
    flat, square = (100000,), (300, 500)
    for d in REAL:
        x, y = E.input(0, d), E.input(1, d)
        yield render(Map((x + y,), (d, d)), flat, ((1,),) * 3)
        yield render(Map(tuple(E.cast(x, t) for t in REAL), (d,)), square, ((500, 1),) * len(REAL) + ((1, 300),))
    for d in (float32, float64, bfloat16):
        x, y = E.input(0, d), E.input(1, d)
        functions = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sqrt rsqrt floor ceil
            round trunc""".split()
        for part in range(3):
            outs = tuple(E.unary(op, x) for op in functions[part::3])
            yield render(Map(outs, (d,)), square, ((500, 1),) * (len(outs) + 1))
        for binary in ("pow atan2 hypot copysign nextafter", "fmod rem floordiv truncdiv maximum minimum"):
            outs = tuple(E.binary(op, x, y) for op in binary.split())
            yield render(Map(outs, (d, d)), square, ((500, 1),) * (len(outs) + 1) + ((0, 1),))
    for d in (int8, int64, uint64, bool_):
        x, y = E.input(0, d), E.input(1, d)
        binary = "add sub mul floordiv truncdiv rem fmod pow maximum minimum and or xor shl shr".split()
        yield render(Map(tuple(E.binary(op, x, y) for op in binary), (d, d)), flat, ((1,),) * (len(binary) + 2))
    w = philox.words(philox.counter_at(E.coord(-1), E.scalar(1, uint64)), E.scalar(0, uint64))
    yield render(Map((philox.normal(w, float32),), (), (uint64, uint64)), flat, ((1,),))
    z = E.input(0, complex64)
    yield render(Map((E.exp(z) * z, E.sqrt(z)), (complex64,)), flat, ((1,),) * 3)
    for d in (float32, bfloat16):  # big ones, whose threads do more
        x, y = (E.cast(E.input(k, d), float32) for k in range(2))
        for n in (1024, 1023):
            yield render(Map((E.cast(x * E.erf(x + y), d), x - y), (d, d)), (4096, n), ((n, 1), (n, 1), (n, 1), (0, 1)))
            yield render(Map((x + y,), (d, d)), (4096, n), ((n, 1), (n, 1), (0, 1)))
        yield render(Map((x,), (d,)), (1 << 22,), ((1,), (1,)))
        yield render(Map((E.gather(0, E.input(1, int64) * 3, d),), (d, int64)), (4096, 1023), ((1023, 1), (0, 0), (1, 4096)))
    yield render(Map((E.gather(0, E.input(1, int64), float16),), (float16, int64)), square, ((500, 1), (), (1, 300)))
    yield render(Map((E.input(0, float32) * 2.0,), (float32,)), (1 << 16, 1 << 16), ((1 << 16, 1), (1, 1 << 16)))


def across() -> Iterator[Kernel]:
    for d in (float32, float64, bfloat16, int8, complex64):
        x, y = E.input(0, d), E.input(1, d)
        yield render(Map((x,), (d,)), (1000, 3000), ((3000, 1), (1, 1000)))
        yield render(Map((x + y,), (d, d)), (64, 112, 112), ((112 * 112, 112, 1), (1, 112 * 64, 64), (0, 0, 1)))
        yield render(Map((x,), (d,)), (1 << 16, 1 << 16), ((1 << 16, 1), (1, 1 << 16)))


def reductions() -> Iterator[Kernel]:
    layouts = (((1000,), (1,)), ((1 << 22,), (1,)), ((64, 64), (64, 1)), ((64, 5000), (5000, 1)), ((512, 4096), (1, 512)), ((1000, 4), (4, 1)),
               ((7, 1 << 20), (1, 7)), ((2, 5000), (1, 2)))
    for d in (float32, float64, bfloat16, bool_):
        x = E.input(0, d)
        for shape, strides in layouts if d is float32 else layouts[3:5]:
            out = dense(shape[:-1])
            for how in ("sum", "prod", "max", "min", *(("and", "or") if d.kind in "biu" else ())):
                if how in ("sum", "max"):
                    yield render(Reduce((x,), (how,), (E.acc(0, d),), (d,)), shape, (out, strides))
            yield render(Reduce((x,), ("argmax",), (E.acc(0, d), E.acc(1, int64)), (d,)), shape, (out, out, strides))
    for d in (float32, bfloat16):
        x = E.cast(E.input(0, d), float32)
        yield render(Reduce((x, x * x), ("sum", "sum"), (E.acc(0, float32), E.acc(1, float32)), (d,)), (256, 64, 3136),
                     ((1,), (1,), (3136, 256 * 3136, 1)))
    x = E.input(0, float32)
    for shape, strides in layouts:
        out = dense(shape[:-1])
        yield render(Reduce((x, x * x), ("sum", "sum"), (E.acc(0, float32), E.acc(1, float32)), (float32,)), shape, (out, out, strides))


def softmax(d: dtype) -> Rows:
    x = E.cast(E.input(0, d), float32) if d.itemsize < 4 else E.input(0, d)
    e = E.exp(x - E.acc(0, x.dtype))
    return Rows((("reduce", "max", x), ("reduce", "sum", e), ("map", 0, E.cast(e / E.acc(1, x.dtype), d))), (d,))


def layer_norm(d: dtype) -> Rows:
    x, w, b = (E.cast(E.input(k, d), float32) for k in range(3))
    n = E.scalar(0, float32)
    mean = E.acc(0, float32) / n
    rstd = E.rsqrt(E.acc(1, float32) / n + 1e-5)
    return Rows((("reduce", "sum", x), ("reduce", "sum", (x - mean) * (x - mean)), ("row", 1, mean), ("row", 2, rstd),
                 ("map", 0, E.cast((x - mean) * rstd * w + b, d))), (d, d, d), (float32,))


def rows() -> Iterator[Kernel]:
    for d in (float32, float64, float16, bfloat16):
        for n in (10, 1000, 4096, 16384, 20000, 50257) if d is float32 else (1000, 16384, 50257):
            yield render(softmax(d), (64, n), ((n, 1), (n, 1)))
            if d is not float64:
                yield render(layer_norm(d), (64, n), ((n, 1), (1, 0), (1, 0), (n, 1), (0, 1), (0, 1)))
        yield render(softmax(d), (8, 56, 64), ((64 * 56, 1, 56), (64 * 56, 1, 56)))
        yield render(softmax(d), (8, 1000003), ((1, 8), (1, 8)))
        for n in (1 << 20, 1000003):
            yield render(softmax(d), (1, n), ((n, 1), (n, 1)))
            if d is not float64:
                yield render(layer_norm(d), (8, n), ((n, 1), (1, 0), (1, 0), (n, 1), (0, 1), (0, 1)))


def scans() -> Iterator[Kernel]:
    for d in (float32, bfloat16, int64, bool_):
        for how in ("sum", "max", *(("logsumexp",) if d is float32 else ())):
            if d is bool_ and how == "sum" or d is bfloat16 and how == "max":
                continue
            posts = (E.acc(0, d), *((E.acc(1, int64),) if how in ("max", "min") else ()))
            for shape, strides in (((4, 100), (100, 1)), ((40, 3000), (3000, 1)), ((1 << 20,), (1,)), ((9000, 30), (1, 9000))):
                yield render(Scan(E.input(0, d), how, posts, (d,), (), how == "max"), shape, (strides,) * (len(posts) + 1))
            for shape in ((9000, 20), (300, 50001), (1, 50001)) if d in (float32, bfloat16) else ():
                yield render(Scan(E.input(0, d), how, posts, (d,)), shape, ((shape[1], 1),) * (len(posts) + 1))
            if d is float32:
                yield render(Scan(E.input(0, d), how, posts, (d,)), (1000, 100000), ((1, 1000),) * (len(posts) + 1))


def scatters() -> Iterator[Kernel]:
    for d in (float32, bfloat16, int64):
        for mode in ("set", "add"):
            for n, extent in ((100, 50), (100000, 0), (3000, 1000), (100000, 1000000), (100000, 1 << 33)):
                yield render(Map((E.input(0, d),), (d, int64), (), ((mode, E.input(1, int64)),)).within(extent), (n,), ((0,), (1,), (1,)))


def scattered_rows() -> Iterator[Kernel]:
    for d in (float32, bfloat16, complex64):
        offset = E.input(1, int64) * E.scalar(0, int64) + E.coord(1) * E.scalar(1, int64)
        for rows in (50, 1000, 20000):
            for mode in ("set", "add"):
                program = Map((E.input(0, d),), (d, int64), (int64, int64), ((mode, offset),), (1,), 768).within(768 * 50257)
                yield render(program, (rows, 768), ((0, 0), (768, 1), (1, 0)))
                if mode == "add":
                    yield render(program.within(0), (rows, 20), ((0, 0), (20, 1), (1, 0)))


def pairs() -> Iterator[Kernel]:
    for d in (complex64, complex128):
        z = E.input(0, d)
        for how in ("prod", "max", "argmin"):
            posts = (E.acc(0, d), *((E.acc(1, int64),) if how == "argmin" else ()))
            for shape, strides in (((64, 5000), (5000, 1)), ((512, 4096), (1, 512)), ((1 << 20,), (1,))):
                yield render(Reduce((z,), (how,), posts, (d,)), shape, (dense(shape[:-1]),) * len(posts) + (strides,))
        for how in ("sum", "prod", "min"):
            posts = (E.acc(0, d), *((E.acc(1, int64),) if how == "min" else ()))
            for shape, strides in (((4, 100), (100, 1)), ((1 << 20,), (1,)), ((9000, 30), (1, 9000))):
                yield render(Scan(z, how, posts, (d,)), shape, (strides,) * (len(posts) + 1))
        for mode in ("add", "mul", "max"):
            yield render(Map((z,), (d, int64), (), ((mode, E.input(1, int64)),)), (5000,), ((0,), (1,), (1,)))
        yield render(Rows((("reduce", "prod", z), ("map", 0, z * E.acc(0, d))), (d,)), (64, 1000), ((1000, 1),) * 2)
        yield render(Map((E.binary("maximum", z, E.input(1, d)), z < E.input(1, d)), (d, d)), (1000,), ((1,),) * 4)
    yield render(Map((E.input(0, float32),), (float32, int64), (), (("add", E.input(1, int64)),)), (1 << 31,), ((0,), (1,), (1,)))


def ordering() -> Iterator[Kernel]:
    """Sorting and its kin, which no loop program describes; types of one size differ in how a key is made."""
    for d in (bool_, int8, bfloat16, float32, int64, float64):
        for n in (30, 300, 2000, 100000):
            yield sorting.sort(d, (3, n), ((n, 1),) * 3, d is float32, n)
        yield topk.one(d, (3, 7, 5000), ((7, 1, 0),) * 2 + ((35000, 1, 7),), 0, "median")
        yield topk.first(d, (3, 100000), ((5, 1), (5, 1), (100000, 1)), True, 5)
        yield nonzero.count(d, (30, 500), (500, 1))
        yield nonzero.write(d, (30, 500), (1, 30))
    for k in (600, 2000):
        yield topk.first(float64, (3, 5000), ((k, 1), (k, 1), (5000, 1)), False, k)
    for right in (False, True):
        yield searching.search(float32, int64, (4, 50), 1000, (50, 1), (1000, 1), (50, 1), right)
    for bins in (10, 4000, 5000):
        yield searching.occurrences(100000, bins)
    yield searching.check((50, 60), (1, 50), -5, 5, 0, 0, 1)
    for d in (float32, float64, int8, int64, uint64):
        for name in ("igamma", "igammac") if d.kind == "f" else ("gcd", "lcm"):
            yield stepwise.kernel(name, d, 1000)
    yield nonzero.spread(1000)
    yield nonzero.put(float32, (30, 500), 600, ((600, 1), (500, 1), (1, 30)))


def of_channels() -> Iterator[Kernel]:
    """Convolutions of one channel a group, of channels before and after the axes."""
    for d in (float32, float64, float16, bfloat16):
        for kernel, step, apart in (((3, 3), 1, 1), ((7, 7), 1, 1), ((5, 5), 2, 1), ((3, 31), 1, 1), ((2, 4), 1, 3)):
            for strides in ((96 * 4096, 4096, 64, 1), (96 * 4096, 1, 64 * 96, 96)):
                image = ((8, 96, 64, 64), strides)
                s = channelwise.shape(image, image, kernel, (1, 1), (step, step), (apart, apart))
                yield from (channelwise.forward(d, s, step == 1), channelwise.images(d, s), channelwise.weights(d, s))


FAMILIES = {"channels": of_channels, "ordering": ordering, "pairs": pairs, "across": across, "scattered": scattered_rows, "map": maps,
            "reduce": reductions, "rows": rows,
            "scan": scans, "scatter": scatters}


# Registers a thread may have: several functions of doubles in one kernel take most
LIMITS = {"channels": 160, "ordering": 128, "pairs": 96, "across": 48, "scattered": 64, "map": 168, "reduce": 80, "rows": 80, "scan": 80, "scatter": 64}


def usage(log: str) -> dict[str, tuple[int, int]]:
    """Registers and bytes spilt of each kernel."""
    found = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", log, re.S)
    return {name: (int(registers), int(stores) + int(loads)) for name, stores, loads, registers in found}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_compiles(family: str, arch: str) -> None:
    everything = {k.key: k for k in FAMILIES[family]()}
    # one translation unit of many kernels: starting the compiler is what costs
    kernels = list(everything.values())
    for start in range(0, len(kernels), 24):
        part = kernels[start:start + 24]
        text = "".join(f"namespace k{k.key} {{\n{k.source}}}\n" for k in part)
        _, log = build(text, arch, ("--ptxas-options=-v",))
        found = usage(log)
        assert set(found) == {name for k in part for name, *_ in k.launches}
        for k in part:
            for name, _, block, _ in k.launches:
                registers, spilt = found[name]
                # 65536 registers are what a multiprocessor has for a block
                # around the call that divides doubles ptxas may put some registers away, and now and then one where it has enough
                most = 8 if k.program is None else 32 if any(d is float64 for d in k.program.inputs) else 0
                limit = LIMITS["ordering" if name.startswith("sort_") else family]
                fits = spilt <= most and registers <= limit and registers * block[0] * block[1] <= 65536
                assert fits, f"{name} {block}: {registers} registers, {spilt} bytes spilt: {k.program.text()[:200] if k.program else k.entry}"


def test_a_kernel_fits_an_sm_with_its_block() -> None:
    for family in FAMILIES.values():
        for kernel in family():
            for _, grid, block, shared in kernel.launches:
                threads = block[0] * block[1] * block[2]
                assert threads % 32 == 0 and threads <= 1024 and shared <= 99 << 10
                assert grid[0] < 1 << 31 and grid[1] <= 65535 and grid[2] <= 65535
            assert 8 * kernel.words <= 4096  # bytes of parameters on every architecture


def test_cubins_are_kept_by_content_architecture_and_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    made = []
    real = nvrtc.build
    monkeypatch.setattr(nvrtc, "build", lambda source, arch, extra=(): made.append(arch) or real(source, arch, extra))
    kernel = render(Map((E.input(0, float32) * 3.0,), (float32,)), (100,), ((1,), (1,)))
    first = compile(kernel.source, "sm_90")
    assert first[:4] == b"\x7fELF" and compile(kernel.source, "sm_90") == first and made == ["sm_90"]
    assert compile(kernel.source, "sm_80") != first and made == ["sm_90", "sm_80"]
    (entry, *_rest) = [f for f in Path(tmp_path).rglob("*") if f.is_file()]
    entry.write_bytes(entry.read_bytes()[:-10])  # a damaged entry is made anew
    compile(kernel.source, "sm_90"), compile(kernel.source, "sm_80")
    assert len(made) == 3
    monkeypatch.setattr(nvrtc, "_version", "0.0")
    compile(kernel.source, "sm_90")
    assert len(made) == 4
    assert os.listdir(tmp_path)


def test_a_rejected_text_shows_the_compilers_words() -> None:
    with pytest.raises(CompileError, match="nonsense"):
        build("nonsense;", "sm_90")
    with pytest.raises(ValueError, match="sm_90"):
        build("", "ninety")
