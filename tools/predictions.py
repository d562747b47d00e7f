"""Writes docs/predictions.md: what the virtual clock predicts for H100, A100 and H200, beside figures that others measured and published.

``python tools/predictions.py`` writes the page, ``--check`` says whether it is what the program gives now, ``--fit`` tells from which figures the rate
and the start of products were taken (`flambeau/_core/drivers/simulated/reached.py`).

What a GPU reaches of its rated figures was taken from one H100 (the module above lists the sources).  Nothing was taken from the figures here: those
of the A100 and the H200 tell how far these parts carry over, those of the H100 how far they do to other work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "gpu")]
PAGE = ROOT / "docs" / "predictions.md"
AZURE = "Azure AI-benchmarking-guide"  # github.com/Azure/AI-benchmarking-guide, Azure_Results


class Figure(NamedTuple):
    """value: as published, in `unit`.  predict: gives the same on a simulated GPU of the model that carries nothing out."""

    gpu: str
    what: str
    value: float
    unit: str
    source: str
    predict: Callable[[], float]


def _seconds(work: Callable[[], Any]) -> float:
    from flambeau.simulated import calibrate
    return calibrate.on_device(work, calibrate.How())


def _product(kind: str, m: int, n: int, k: int) -> float:
    import flambeau as t
    a, b = t.empty(m, k, device="cuda", dtype=getattr(t, kind)), t.empty(k, n, device="cuda", dtype=getattr(t, kind))
    return 2 * m * n * k / _seconds(lambda: a @ b) / 1e12


def _attention(batch: int, heads: int, length: int, depth: int) -> float:
    import flambeau as t
    q = t.empty(batch, heads, length, depth, device="cuda", dtype=t.float16)
    return 4 * batch * heads * length * length * depth / _seconds(lambda: t.nn.functional.scaled_dot_product_attention(q, q, q)) / 1e12


def _added() -> float:
    import flambeau as t
    a, b = (t.empty(1 << 28, device="cuda") for _ in range(2))
    return 12 * (1 << 28) / _seconds(lambda: a + b) / 1e9


def _dot() -> float:
    import flambeau as t
    a, b = (t.empty(1 << 28, device="cuda") for _ in range(2))
    return 8 * (1 << 28) / _seconds(lambda: t.linalg.vecdot(a, b)) / 1e9


def _copied() -> float:
    import flambeau as t
    from flambeau.simulated import calibrate
    a, b = (t.empty(1 << 26, device="cuda") for _ in range(2))
    return 8 * (1 << 26) / _seconds(calibrate._copy(a, b, 4 << 26)) / 1e9


def _up() -> float:
    import flambeau as t
    from flambeau.simulated import calibrate
    host, there = t.empty(1 << 26).pin_memory(), t.empty(1 << 26, device="cuda")
    return (4 << 26) / _seconds(calibrate._copy(there, host, 4 << 26)) / 1e9


def _ring(model: str, nbytes: int) -> float:
    from flambeau._core.drivers.simulated import clock, models
    return 2 * 7 / 8 * nbytes / clock.collective_seconds(models.model(model), "all_reduce", nbytes, 8, 1, models.network("NDR")) / 1e9


def _gpt() -> float:
    """Milliseconds of a step of GPT-2 124M, 64 x 1,024 tokens, with the sum of its gradients of 16 bits over eight GPUs."""
    import gpu_lines

    import flambeau as t
    from flambeau._core.drivers.simulated import clock, models
    from flambeau.simulated import calibrate
    step = gpu_lines._gpt(t, 64, 1024, 12, 768, 12, 50304)
    gradients = 2 * 124_439_808
    return 1e3 * (calibrate.by_wall(step, calibrate.How())
                  + clock.collective_seconds(models.model("A100"), "all_reduce", gradients, 8, 1, models.network("NDR")))


FIGURES = (
    Figure("H100", "bfloat16 product, 6,144 x 17,920 x 2,816", 792.1, "TFLOP/s", "S. Bekman, ml-engineering: maximum achievable matmul FLOPS",
           lambda: _product("bfloat16", 6144, 17920, 2816)),
    Figure("A100", "bfloat16 product, 6,912 x 16,384 x 2,048", 267.9, "TFLOP/s", "S. Bekman, ml-engineering: maximum achievable matmul FLOPS",
           lambda: _product("bfloat16", 6912, 16384, 2048)),
    Figure("A100", "float16 product, 1,024 x 1,024 x 1,024", 119.4, "TFLOP/s", f"{AZURE}, ND A100 v4: cuBLASLt", lambda: _product("float16", 1024, 1024, 1024)),
    Figure("A100", "float16 product, 802,816 x 192 x 768", 157.8, "TFLOP/s", f"{AZURE}, ND A100 v4: cuBLASLt", lambda: _product("float16", 802816, 192, 768)),
    Figure("H100", "attention forward, 16,384 tokens, 16 heads of 128, float16", 595.0, "TFLOP/s", "FlashAttention-3 (arXiv 2407.08608), figure 5: cuDNN",
           lambda: _attention(1, 16, 16384, 128)),
    Figure("A100", "attention forward, 2 x 8,192 tokens, heads of 64, float16", 179.5, "TFLOP/s", f"{AZURE}, ND A100 v4: FlashAttention 2",
           lambda: _attention(2, 32, 8192, 64)),
    Figure("H100", "copy within the GPU's memory, read and written", 2573.0, "GB/s", "github.com/NVIDIA/nccl/issues/1264: p2pBandwidthLatencyTest", _copied),
    Figure("H200", "a + b of float32, large", 4150.0, "GB/s", f"{AZURE}, ND H200 v5: BabelStream add", _added),
    Figure("A100", "a + b of float32, large", 1700.0, "GB/s", f"{AZURE}, ND A100 v4: BabelStream add", _added),
    Figure("A100", "dot product of float32, large", 1750.0, "GB/s", f"{AZURE}, ND A100 v4: BabelStream dot", _dot),
    Figure("A100", "pinned copy to the GPU", 26.28, "GB/s", f"{AZURE}, ND A100 v4: nvbandwidth", _up),
    Figure("A100", "all-reduce of 8 GiB over 8 GPUs (bus)", 231.58, "GB/s", f"{AZURE}, ND A100 v4: nccl-tests", lambda: _ring("A100", 8 << 30)),
    Figure("H200", "all-reduce of 4 GiB over 8 GPUs (bus)", 475.0, "GB/s", "github.com/NVIDIA/nccl-tests/issues/272, by the switches' own sums (NVLS)",
           lambda: _ring("H200", 4 << 30)),
    Figure("A100", "step of GPT-2 124M, 64 x 1,024 tokens a GPU, 8 GPUs, bfloat16", 300.0, "ms", "llm.c, scripts/run_gpt2_124M.sh", _gpt),
)
# Products of bfloat16 on an H100: batch, m, n, k, TFLOP/s, of OpenXLA's xla/service/gpu/model/matmul_interpolator_data.h (sm_90).
FITTED = (
    (1, 256, 256, 256, 6.453), (1, 512, 512, 512, 40.72), (1, 512, 512, 256, 21.62), (1, 256, 256, 1024, 19.46), (1, 1024, 512, 512, 82.24),
    (1, 1024, 1024, 256, 82.04), (1, 1024, 1024, 1024, 236.3), (1, 1024, 1024, 4096, 470.1), (1, 512, 512, 4096, 174.5), (1, 256, 256, 4096, 84.3),
    (1, 1024, 4096, 256, 209.7), (1, 1024, 4096, 512, 338.9), (1, 1024, 4096, 2048, 634.2), (1, 1024, 4096, 4096, 738.5), (1, 2048, 1024, 1024, 373.3),
    (1, 2048, 2048, 512, 345.5), (1, 2048, 1024, 4096, 653.1), (1, 2048, 4096, 256, 299.3), (1, 2048, 4096, 512, 450.4), (1, 2048, 4096, 2048, 715.4),
    (1, 2048, 4096, 4096, 753.6), (1, 4096, 4096, 1024, 677.4), (1, 4096, 2048, 2048, 716.1), (1, 4096, 1024, 2048, 632.0), (1, 4096, 512, 2048, 521.7),
    (1, 4096, 256, 4096, 376.2), (1, 4096, 256, 1024, 217.2), (1, 4096, 256, 256, 82.24), (1, 512, 4096, 4096, 644.1), (1, 512, 4096, 2048, 522.2),
    (4, 2048, 4096, 4096, 801.9), (4, 2048, 4096, 256, 458.9), (4, 2048, 4096, 512, 607.3), (4, 1024, 1024, 4096, 735.9), (4, 4096, 2048, 1024, 687.9),
    (2, 4096, 4096, 1024, 693.0), (4, 1024, 1024, 256, 214.7), (4, 256, 256, 2048, 117.7), (2, 2048, 2048, 4096, 756.7), (4, 512, 512, 512, 142.2),
    (4, 1024, 4096, 256, 391.3), (1, 512, 2048, 4096, 430.5), (1, 1024, 512, 4096, 298.9))


def predictions() -> list[tuple[Figure, float]]:
    from flambeau.simulated import calibrate
    found = []
    for figure in FIGURES:
        with calibrate.priced([figure.gpu]):
            found.append((figure, figure.predict()))
    return found


def page() -> str:
    """The page's text."""
    lines = ["# Predictions beside published measurements", "", "This page is made by `python tools/predictions.py` from the program itself.", "",
             "A simulated GPU's clock prices work by what a GPU reaches of the figures it is sold with. These parts were taken from published measurements "
             "of one H100; `flambeau/_core/drivers/simulated/reached.py` lists them. Below are figures that nothing was taken from, most of them of an A100 "
             "and an H200. Who has a GPU measures the parts there: `python -m flambeau.simulated.calibrate` writes a model file, whose report tells the "
             "error of ten programs.", "", "| GPU | work | published | predicted | error | source |", "|---|---|---|---|---|---|"]
    errors = []
    for figure, found in predictions():
        errors.append(found / figure.value - 1)
        lines.append(f"| {figure.gpu} | {figure.what} | {figure.value:g} {figure.unit} | {found:.4g} {figure.unit} | {100 * errors[-1]:+.0f} % "
                     f"| {figure.source} |")
    mean = 100 * sum(map(abs, errors)) / len(errors)
    return "\n".join([*lines, "", f"The mean of the errors' sizes is {mean:.1f} %, of {len(errors)} figures.", "",
                      "The all-reduce of the H200 is predicted as a ring, which NCCL does not use there; the step of GPT-2 is Flambeau's own program, and the "
                      "published one a program in C of its own kernels."]) + "\n"


def fit() -> str:
    from flambeau._core.drivers.simulated import reached
    from flambeau.simulated import calibrate
    measured = [((b, m, n, k), 2 * b * m * n * k / rate / 1e12) for b, m, n, k, rate in FITTED]
    rate, start = calibrate.fitted(measured, 132)
    errors = [abs((reached.product_seconds(rate * 1e12, 132, *shape) + start) / seconds - 1) for shape, seconds in measured]
    return (f"{rate:.1f} TFLOP/s, {rate / 989.5:.3f} of the rated 989.5; {start * 1e6:.1f} us before; the mean of the errors' sizes is "
            f"{100 * sum(errors) / len(errors):.1f} %, of {len(measured)} shapes")


def main(arguments: list[str]) -> int:
    """Writes the page, or checks it."""
    if arguments == ["--fit"]:
        print(fit())
        return 0
    text = page()
    if arguments == ["--check"]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
            print("predictions: docs/predictions.md is old: run `python tools/predictions.py`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
