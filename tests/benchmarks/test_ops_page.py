"""The page that `make bench-ops` writes from figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "ops"))
import ops_page  # noqa: E402


def figures(case: str, threads: int, **ratios: float) -> dict[str, Any]:
    lines = {f"{name}, {mode}": {"family": "operators" if "|" in name else "rows", "mode": mode, "us": 1.0, "calls": 3, "torch_us": ratio, "ratio": ratio}
             for name, ratio in ratios.items() for mode in ("forward", "forward + backward")}
    return {"case": case, "dtype": "float32", "threads": threads, "lines": lines, "not timed": {"foo, forward": "needs a GPU"}, "without a gradient": []}


def test_sums_the_worst_first_and_a_sheet_for_each_family() -> None:
    said = ops_page.page([figures("small", 1, **{"x | y": 0.5, "softmax": 2.0, "var": 0.05}), figures("large", 2, softmax=4.0)], "a machine", 2e10)
    assert "Machine: a machine." in said and "20.0 GB/s" in said
    assert "| small, 1 thread, forward | 3 | 0.37x | 2 | 0.050 |" in said
    assert "| large, 2 threads, with backward | 1 | 4.00x | 0 | 4.00 |" in said
    worst = said[said.index("## The worst"):said.index("## The families")]
    assert worst.index("`var`") < worst.index("`x \\| y`") < worst.index("`softmax`")
    rows = said[said.index("### rows"):]
    assert "| `var` | 0.050 | 0.050 |  |  |" in rows and "| `softmax` | 2.00 | 2.00 | 4.00 | 4.00 |" in rows and rows.index("`var`") < rows.index("`softmax`")
    assert said.index("### operators") < said.index("### rows")  # 0.5 in the mean, and 0.63
    assert "- `foo`: needs a GPU" in said


def test_a_busy_machine_and_a_sample_are_told() -> None:
    quiet, busy = figures("small", 1, add=2.0) | {"of": 1, "load": 1.4}, figures("small", 1, add=2.0) | {"of": 9, "load": 8.2}
    assert "busy" not in ops_page.page([quiet]) and "sample" not in ops_page.page([quiet])
    assert "busy machine (a load of up to 7 beside" in ops_page.page([busy]) and "sample of the operations" in ops_page.page([quiet, busy])
    assert "1 of 1, 1 of 9." in ops_page.page([quiet, busy])


def test_the_page_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(figures("small", 1, add=2.0)))
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "ops" / "bench_ops.py"), "--page", str(tmp_path / "speed.md"), str(tmp_path / "a.json")],
                          capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "speed.md").read_text()
    assert said.startswith("# Speed beside PyTorch") and "Python " in said and "| `add` | 2.00 | 2.00 |" in said
