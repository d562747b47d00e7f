"""The benchmark of GPUs: what it measures, and that all of it runs, tiny, on the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers.nvidia.running import on_fake

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
import gpu_lines  # noqa: E402


def test_what_is_measured() -> None:
    names = [line.name for line in gpu_lines.all_lines()]
    assert len(set(names)) == len(names)
    for way in ("pinned up", "pinned down", "pageable up", "pageable down"):
        assert [n.removeprefix(way + " ") for n in names if n.startswith(way)] == ["1 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB", "1 GiB"]
    for kind in ("bfloat16", "float16", "float32", "TF32"):
        assert f"matmul {kind} 4096" in names and f"matmul {kind} 8192" in names
    for text in ("a + b", "tanh-GELU", "softmax", "layer_norm", "sum of", "conv2d", "attention", "times a + b of 16x16", "demo's CNN", "GPT of 124M, bf16"):
        assert any(text in n for n in names), text
    assert [line.name.split(",")[0].split(" of ")[0] for line in gpu_lines.all_lines(gpu_lines.SMOKE)]


@pytest.mark.slow
@on_fake
def test_every_line_runs(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")}
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "bench_gpu.py"), "--smoke", "--table", str(table)], capture_output=True,
                          text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    rows = [line.split("|")[1:] for line in table.read_text().splitlines() if line.startswith("| ") and not line.startswith("| work")]
    assert [r[0].strip() for r in rows] == [line.name for line in gpu_lines.all_lines(gpu_lines.SMOKE)]
    assert all(r[2].strip().endswith(("us", "ms")) for r in rows), rows  # a time, not an error


@pytest.mark.slow
@on_fake
def test_the_hosts_time(tmp_path: Path) -> None:
    import json
    figures = tmp_path / "figures.json"
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "host_cost.py"), "--json", str(figures), "--only", "a + b"], check=True,
                   capture_output=True, timeout=300)
    told = json.loads(figures.read_text())
    assert not told["real"] and 0 < told["microseconds"]["a + b"]["flambeau"] < 60
