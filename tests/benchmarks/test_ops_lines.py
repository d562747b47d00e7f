"""`make bench-ops`: which lines it has, and that they run, without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import flambeau

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "ops"))
import ops_calls  # noqa: E402
import ops_lines  # noqa: E402
import ops_timing  # noqa: E402
import ops_values  # noqa: E402


def test_every_public_operation_is_a_line_or_says_why_not() -> None:
    lines, reasons = ops_lines.all_lines(flambeau)
    names = {line.name for line in lines}
    assert len(names) == len(lines) > 900
    assert names >= {"add", "nn.functional.relu6", "conv2d", "linalg.svd", "fft.rfft2", "special.ndtr", "Tensor.add_", "Tensor.item", "x + y", "x[1:3]",
                     "o[mask] = 0.5"}
    known = {name for names in ops_calls.SKIPPED.values() for name in names.split()} | {"native_dropout_backward", "max_unpool"}
    assert {path.rpartition(".")[2] for path in reasons} <= known


def test_every_argument_is_a_value() -> None:
    lines, _ = ops_lines.all_lines(flambeau)
    for line in lines:
        code, _ = ops_timing.compiled(line)
        loose = line.text.split("(")[0] if "(" in line.text and not line.path else ""
        for name in code.co_names:
            at = f".{name}" in line.text or f"{name}=" in line.text
            assert at or name in ops_values.VALUES or name in ("call", "abs", "len", "bool", "float", "int", "list", "repr", loose), line


def test_a_call_with_its_gradient() -> None:
    line = next(line for line in ops_lines.all_lines(flambeau)[0] if line.name == "Tensor.add_")
    gradient = ops_timing.gradient_of(flambeau, line)
    assert gradient == (("o", "zero"), ("",))
    assert "o = from_o.clone()" in ops_timing.source(line, gradient) and "from_o.grad = None" in ops_timing.source(line, gradient)
    assert ops_timing.prepare(flambeau, line, gradient).block(2) > 0
    nothing = next(line for line in ops_lines.all_lines(flambeau)[0] if line.name == "argmax")
    assert ops_timing.gradient_of(flambeau, nothing) is None


def run(*options: str) -> tuple[str, dict[str, Any]]:
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops" / "bench_ops.py"), *options], capture_output=True, text=True, env=environment,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    at = options.index("--json") + 1 if "--json" in options else 0
    return done.stdout, json.loads(Path(options[at]).read_text()) if at else {}


def test_a_few_lines_run(tmp_path: Path) -> None:
    chosen = r"^(add|linalg.svd|Tensor.mul_|conv2d|x\[1:3\]|o\[0\] = v|zeros|layer_norm|Tensor.tolist|split) "
    said, figures = run("--alone", "--only", chosen, "--json", str(tmp_path / "figures.json"))
    assert not figures["not timed"], said
    assert len(figures["lines"]) == 18 and all(r["us"] > 0 for r in figures["lines"].values()), said
    assert set(figures["without a gradient"]) == {"zeros", "Tensor.tolist"}


def test_calls_with_out(tmp_path: Path) -> None:
    said, figures = run("--alone", "--out", "--only", r"^(add|topk|softmax|Tensor.mul_|x\[1:3\]) ", "--json", str(tmp_path / "figures.json"))
    assert set(figures["lines"]) == {"add, with out=", "topk, with out=", "softmax, with out="} and not figures["not timed"], said
    assert all(r["calls"] <= 4 for r in figures["lines"].values()), said


def test_where_a_call_spends_its_time() -> None:
    said, _ = run("--profile", "std")
    assert "us a call without the profiler" in said and "function calls" in said and "<operation std>:std" in said


def test_the_report(tmp_path: Path) -> None:
    import bench_ops
    lines = {"a, forward": {"family": "views", "mode": "forward", "us": 2.0, "calls": 9, "torch_us": 1.0, "ratio": 0.5},
             "b, forward": {"family": "rows", "mode": "forward", "us": 1.0, "calls": 3, "torch_us": 2.0, "ratio": 2.0}}
    old = {"lines": {"a, forward": {"ratio": 1.0, "calls": 7}, "b, forward": {"ratio": 1.0}}}
    said = bench_ops.report({"lines": lines, "not timed": {"c": "needs a GPU"}}, 1, old)
    assert "0.500" in said and "b, forward  [rows]" not in said
    assert "geometric mean  1.00x   below 1x:    1" in said and "1 slower by more than 15 %" in said and "c: needs a GPU" in said
    assert "more Python calls than then: 1 lines" in said and "+2  a, forward" in said


def test_views_beside_an_addition() -> None:
    import bench_ops
    lines = {"x + y, forward": {"family": "operators and indexing", "mode": "forward", "us": 0.5},
             "eye, forward": {"family": "creation", "mode": "forward", "us": 1.0},
             "view, forward": {"family": "views", "mode": "forward", "us": 0.7}, "view, forward + backward": {"family": "views", "mode": "x", "us": 9.0}}
    assert [line.split() for line in bench_ops.beside_add(lines)[1:]] == [
        "views and creation beside our x + y (0.50 us): 1 of 2 lines above 1.5x".split(), ["2.00x", "1.00", "us", "eye,", "forward"]]
    assert bench_ops.beside_add({"eye, forward": lines["eye, forward"]}) == []
