"""What a GPU reaches of the rates it is sold with: figures of one model, which the clock prices work by.

Shipped models have them from published measurements of one GPU, `H100`, as parts of its rated figures; the other models are taken to reach the same
parts of theirs.  Each of these is a fact that somebody else measured:
  moving    BabelStream on an H100 (Azure's AI-benchmarking-guide, ND H100 v5: triad 2.97 TB/s, dot 3.18, copy 2.90, of 3.35)
  links     nvbandwidth on the same machine (51 GB/s up and 52 down, of 63); from GPU to GPU 376 of 450 (github.com/NVIDIA/nccl/issues/1264)
  products  cuBLAS on an H100, 43 shapes of bfloat16 from the table that OpenXLA keeps of it (`matmul_interpolator_data.h`): `tools/predictions.py --fit`
            fits the rate and the start; what these give differs from them by 10.9 % in the mean
  attention cuDNN on an H100, 16,384 tokens, heads of 128, causal: 539 TFLOP/s of 989.5 (FlashAttention-3, arXiv 2407.08608, figure 5)
The host's time for a launch, the shortest kernel, and the set-up of a copy are round figures of many such GPUs.  `flambeau.simulated.calibrate` measures
all of them on the GPU at hand.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .models import Model

LAUNCH = 4e-6  # the host's time for one call that queues work: a few microseconds through any runtime
KERNEL = 2e-6  # an empty kernel, from start to end, on data-centre GPUs
COPY = 8e-6  # set-up of a copy over a link
PAGEABLE = 8.0  # GB/s through the driver's own staging buffer, reported for H100 hosts; pinned gets the link
PATTERNS = ("map", "turned", "gather", "scatter", "reduce", "rows", "scan", "copy")
TYPES = ("half", "tf32", "float32", "double")  # of products; half: both 16-bit types
PUBLISHED = "data sheet; parts reached as published for the H100"
# parts of the rated figures, as told above
_MOVED = 2.97 / 3.35
_MOVING = {"reduce": 3.18 / 3.35, "copy": 2.90 / 3.35}
_UP, _DOWN, PEER = 51 / 63, 52 / 63, 376 / 450
_RATE, _START, _ATTENTION = 0.830, 5.8e-6, 539 / 989.5
# How a library cuts a product: rows and columns that a block computes, and what part of a multiprocessor's rate it has then.
_TILES = ((128, 256, 1.0), (256, 128, 1.0), (128, 128, 0.7), (64, 64, 0.3))
_PARTS = (1, 2, 4, 8, 16)  # into so many pieces of k
_LEAST_DEPTH = 256  # of such a piece


class Reached:
    """Rates that are reached.  launch, kernel, setup: seconds (of the host for a launch, of the shortest kernel, before a copy).  up, down, pageable_up,
    pageable_down, peer: GB/s of copies.  moving: GB/s of the GPU's memory, by `PATTERNS`.  products: (TFLOP/s while all multiprocessors have whole tiles,
    seconds before the first) by `TYPES`.  attention: the part of 16-bit products' rated TFLOP/s that attention reaches."""

    __slots__ = ("launch", "kernel", "setup", "up", "down", "pageable_up", "pageable_down", "peer", "moving", "products", "attention")

    def __init__(self, launch: float, kernel: float, setup: float, up: float, down: float, pageable_up: float, pageable_down: float, peer: float,
                 moving: dict[str, float], products: dict[str, tuple[float, float]], attention: float) -> None:
        self.launch, self.kernel, self.setup = launch, kernel, setup
        self.up, self.down, self.pageable_up, self.pageable_down, self.peer = up, down, pageable_up, pageable_down, peer
        self.moving, self.products, self.attention = moving, products, attention


def published(model: Model) -> Reached:
    """What a model reaches if it reaches the parts of its rated figures that an H100 does."""
    rated = {"half": model.half, "tf32": model.tf32, "float32": model.float32, "double": model.double_products}
    return Reached(LAUNCH, KERNEL, COPY, model.pcie * _UP, model.pcie * _DOWN, min(PAGEABLE, model.pcie * _UP), min(PAGEABLE, model.pcie * _DOWN),
                   model.nvlink * PEER, {p: model.bandwidth * _MOVING.get(p, _MOVED) for p in PATTERNS},
                   {t: (_RATE * rated[t], _START) for t in TYPES}, _ATTENTION)


def product_seconds(rate: float, processors: int, batch: int, m: int, n: int, k: int) -> float:
    """Of `batch` products of an (m, k) by a (k, n) matrix, without the start: whole tiles in whole turns of all multiprocessors.

    rate: operations a second of all of them.  The fastest of the ways to cut it; a vector has kernels of its own, which have no tiles."""
    if min(m, n) == 1:
        return 2.0 * batch * m * n * k / rate
    best = float("inf")
    for rows, columns, part in _TILES:
        for pieces in _PARTS:
            if pieces > 1 and k < pieces * _LEAST_DEPTH:
                break
            turns = -(-batch * pieces * -(-m // rows) * -(-n // columns) // processors)
            best = min(best, turns * 2.0 * rows * columns * k / pieces / (rate / processors * part))
    return best


# ------------------------------------------------------------------------------------------------------------------ files
_TIMES = ("launch", "kernel", "setup")
_LINKS = ("up", "down", "pageable_up", "pageable_down", "peer")


def read(path: Path) -> tuple[dict[str, Any], str, Reached]:
    """(rated figures by the names of `Model`, where the figures come from, what is reached) of a model file.  Raises ValueError for what is none."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        seconds, links = found["seconds"], found["links"]
        products = {t: (float(found["products"][t][0]), float(found["products"][t][1])) for t in TYPES}
        plain: dict[str, Any] = {n: float(seconds[n]) for n in _TIMES} | {n: float(links[n]) for n in _LINKS}
        reached = Reached(**plain, moving={p: float(found["memory"][p]) for p in PATTERNS}, products=products, attention=float(found["attention"]))
        source = str(found["source"])
        rated = dict(found["rated"])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"model: {path} cannot be read as a model file: {error}") from error
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"model: {path} is no model file of `python -m flambeau.simulated.calibrate`: {type(error).__name__}: {error}") from error
    numbers = [*reached.moving.values(), *[rate for rate, _ in products.values()], reached.up, reached.down, reached.pageable_up, reached.pageable_down,
               reached.attention]
    times = [reached.launch, reached.kernel, reached.setup, *[start for _, start in products.values()]]
    if not all(0 < x < float("inf") for x in numbers) or not all(0 <= x < 1 for x in (*times, reached.peer / 1e6)):
        raise ValueError(f"model: {path} has a rate that is not above 0, or a time that is not from 0 to 1 s")
    return rated, source, reached


def text(rated: dict[str, Any], source: str, reached: Reached, notes: list[str]) -> str:
    """A model file.  notes: lines that only people read."""
    def row(values: dict[str, Any]) -> list[str]:
        return [f"{name} = {_value(value)}" for name, value in values.items()]
    return "\n".join([
        *[f"# {line}" for line in notes], f"source = {_value(source)}", f"attention = {_value(reached.attention)}  # of half's rated TFLOP/s", "", "[rated]",
        *row(rated), "", "[seconds]  # the host's for a launch, the shortest kernel's, a copy's before its first byte",
        *row({n: getattr(reached, n) for n in _TIMES}), "", "[links]  # GB/s", *row({n: getattr(reached, n) for n in _LINKS}), "",
        "[memory]  # GB/s of the GPU's memory by pattern of access", *row(reached.moving), "",
        "[products]  # TFLOP/s of whole tiles, and seconds before the first", *row({t: list(v) for t, v in reached.products.items()})]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
