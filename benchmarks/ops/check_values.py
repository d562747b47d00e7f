"""Whether every line of `make bench-ops` gives what PyTorch gives: its results, and the gradients of those that have some.

    python benchmarks/ops/check_values.py [--device cuda] [--size small|middle|large] [--dtype bfloat16] [--part 3/8] [--first N] [--json FILE]

A difference is told where it exceeds some hundred units in the last place of the result's largest number and ours is further than PyTorch's from what
PyTorch gives in float64 of the same numbers, or where one side raises and the other does not.  Results that are random, or that hold what memory
held before, differ of themselves (`RANDOM`).  The results so far are written after each line, and a process whose GPU has died ends with status 3:
another goes on with `--first`, the line after it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]
from ops_lines import Line, all_lines  # noqa: E402
from ops_timing import Gradient, _call, _outputs, gradient_of, on_device  # noqa: E402
from ops_values import CASES, Case, Values  # noqa: E402

RANDOM = re.compile(r"(empty|rand|dropout|bernoulli|multinomial|normal|poisson|binomial|exponential_|geometric_|cauchy_|uniform_|random_|rrelu|gumbel|"
                    r"native_dropout|_like_|set_|resize_|fractional_max_pool|lowrank|data_ptr|storage|hash|id\(|seed|repr)")


def numbers(lib: Any, result: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers of a result, in order."""
    if isinstance(result, lib.Tensor):
        t = result.detach()
        if t.layout is not lib.strided:
            t = t.to_dense()
        t = t.resolve_conj().resolve_neg().cpu()
        if t.dtype is lib.bfloat16 or t.dtype is lib.float16:
            t = t.float()
        yield t.numpy(force=True)
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from numbers(lib, part)
    elif isinstance(result, (bool, int, float, complex)):
        yield np.asarray(result)


def incoming(lib: Any, result: Any) -> Any:
    """A gradient whose elements differ: of equal ones many a gradient is what cancelling leaves (softmax's, a normalization's)."""
    if result.layout is not lib.strided:
        return lib.ones_like(result)
    random = np.random.default_rng(result.numel())
    made = random.uniform(0.5, 1.5, tuple(result.shape))
    if result.is_complex():
        made = made + 1j * random.uniform(0.5, 1.5, made.shape)
    return lib.from_numpy(np.asarray(made)).to(result.device, result.dtype)


def found(lib: Any, line: Line, gradient: Gradient | None, case: Case) -> list[np.ndarray[Any, Any]] | str:
    """The numbers of a line, and of its gradients; or the error's words."""
    lib.manual_seed(0)
    lib.set_grad_enabled(gradient is not None)
    values = Values(lib, case)
    try:
        result = _call(lib, line, values, gradient.inputs if gradient else ())
        if gradient is None:
            return list(numbers(lib, result))
        outputs = [t for _, t in _outputs(lib.Tensor, result)]
        lib.autograd.backward(outputs, [incoming(lib, t) for t in outputs])
        return [a for n in gradient.inputs if values[n].grad is not None for a in numbers(lib, values[n].grad)]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip()[:160]}"


def difference(ours: list[np.ndarray[Any, Any]] | str, theirs: list[np.ndarray[Any, Any]] | str, tolerance: float) -> str:
    """What is not alike, in words; "" where all is."""
    if isinstance(ours, str) or isinstance(theirs, str):
        return "" if isinstance(ours, str) and isinstance(theirs, str) else f"raises {ours}" if isinstance(ours, str) else f"raises only there: {theirs}"
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return f"shapes {[a.shape for a in ours]}, there {[b.shape for b in theirs]}"
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype:
            return f"dtype {a.dtype}, there {b.dtype}"
        if a.dtype.kind not in "fc":
            if (a != b).any():
                return f"result {k}: {int((a != b).sum())} of {a.size} differ"
            continue
        a, b = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (a, b))
        if (np.isfinite(a) != np.isfinite(b)).any():
            return f"result {k}: {int((np.isfinite(a) != np.isfinite(b)).sum())} of {a.size} are finite on one side only"
        whole = np.isfinite(a)
        error = float(np.abs(a[whole] - b[whole]).max(initial=0.0))
        if error > tolerance * max(float(np.abs(b[whole]).max(initial=0.0)), 1e-6):
            return f"result {k}: an error of {error:.3g} at numbers up to {np.abs(b[whole]).max(initial=0.0):.3g}"
    return ""


def nearer(ours: list[np.ndarray[Any, Any]] | str, theirs: list[np.ndarray[Any, Any]] | str, exact: list[np.ndarray[Any, Any]] | str) -> bool:
    """Whether every result of ours is as near as theirs to the result in float64."""
    if isinstance(ours, str) or isinstance(theirs, str) or isinstance(exact, str) or len(exact) != len(ours):
        return False
    for a, b, c in zip(ours, theirs, exact, strict=True):
        if a.dtype.kind not in "fc" or a.shape != b.shape or a.shape != c.shape:
            return False
        with np.errstate(invalid="ignore"):
            errors = [np.where((v == c) | (np.isnan(v) & np.isnan(c)), 0.0, np.abs(v.astype(c.dtype) - c)) for v in (a, b)]
        mine, other = (float(np.nan_to_num(e, nan=np.inf).max(initial=0.0)) for e in errors)
        if mine > other:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", choices=CASES, default="middle")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--part", default="1/1", help="of how many parts, which")
    parser.add_argument("--first", type=int, default=0, help="the line of the part to begin with")
    parser.add_argument("--json", default="", help="write what differs there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch, ours = importlib.import_module("torch"), importlib.import_module("flambeau")
    torch.backends.cudnn.allow_tf32 = ours.backends.cudnn.allow_tf32 = False
    case = CASES[options.size]._replace(device=options.device, dtype=options.dtype)
    part, parts = map(int, options.part.split("/"))
    lines = [line for line in all_lines(ours, torch)[0] if not RANDOM.search(line.name) and line.name not in case.skips][part - 1::parts]
    told: dict[str, Any] = {"case": [options.size, options.dtype, options.device], "differ": {}, "next": 0, "held": 0}
    if options.first and options.json and Path(options.json).exists():
        told = json.loads(Path(options.json).read_text())

    def keep() -> None:
        if options.json:
            Path(options.json).write_text(json.dumps(told, indent=1))
    tolerance = {"float32": 2e-4, "float64": 1e-10}.get(options.dtype, 2e-2)
    for number, line in enumerate(lines):
        if number < options.first:
            continue
        told["next"] = number + 1
        keep()
        if options.device != "cpu" and not on_device(line, ours, case):
            continue
        gradient = gradient_of(torch, line, case)
        for what, g in (("", None), (" (gradient)", gradient)):
            if what and g is None:
                continue
            pair = found(ours, line, g, case), found(torch, line, g, case)
            words = difference(*pair, tolerance)
            if words and options.dtype != "float64" and nearer(*pair, found(torch, line, g, case._replace(dtype="float64", rounded=options.dtype))):
                words = ""
            told["held"] += 1
            if words:
                told["differ"][line.name + what] = words
                print(f"{line.name}{what}: {words}", flush=True)
        if options.device != "cpu":
            try:
                ours.cuda.synchronize()
                torch.cuda.synchronize()
            except RuntimeError as error:
                told["differ"][line.name] = f"ended the GPU: {str(error)[:200]}"
                keep()
                return 3
    keep()
    print(f"{told['held']} results of {len(lines)} lines held, {len(told['differ'])} differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
