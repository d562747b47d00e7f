"""The benchmark of GPUs: what it measures, and that all of it runs, tiny, on the fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests._core.drivers.nvidia.running import on_fake

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
import bench_gpu  # noqa: E402
import gpu_lines  # noqa: E402


def test_what_is_measured() -> None:
    names = [line.name for line in gpu_lines.all_lines()]
    assert len(set(names)) == len(names)
    for way in ("pinned up", "pinned down", "pageable up", "pageable down"):
        assert [n.removeprefix(way + " ") for n in names if n.startswith(way)] == ["1 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB", "1 GiB"]
    for kind in ("bfloat16", "float16", "float32", "TF32"):
        assert f"matmul {kind} 4096" in names and f"matmul {kind} 8192" in names
    for text in ("a + b", "tanh-GELU", "softmax", "layer_norm", "sum of", "conv2d", "attention", "times a + b of 16x16", "host's time: a + b",
                 "demo's CNN", "GPT of 124M, bf16", "feed-forward with", "softmax bf16", "layer_norm bf16", "GELU bf16", "cross_entropy float32",
                 "cross_entropy bf16", "dropout", "randn", "into 10", "into 1000", "into 1000000", "16 hot rows", "cumsum over axis 0", "cumsum over axis 1",
                 "sort of", "top 50", "ResNet-50", "ConvNeXt-T", "a mask", "no mask"):
        assert any(text in n for n in names), text
    assert [line.name.split(",")[0].split(" of ")[0] for line in gpu_lines.all_lines(gpu_lines.SMOKE)]


class _Clock:
    """A library whose work takes the time it says, one repetition after another; the last of them from then on."""

    def __init__(self, *takes: float) -> None:
        self.takes, self.now, self.calls, self.cuda = list(takes), 100.0, 0, self

    def perf_counter(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.now += 1e-6

    def work(self) -> None:
        self.now += self.takes[min(self.calls, len(self.takes) - 1)]
        self.calls += 1


@pytest.mark.parametrize("takes, steady, calls", [
    ((0.03,), 0.03, 2 + 1 + 17),  # two, one to begin with, and half a second in which none was faster
    ((0.4,), 0.4, 2 + 1 + 6),  # six of them, though they take longer
    ((10.0, 0.3, *[0.22] * 5, 0.017), 0.017, 2 + 5 + 2 + 30),  # two repetitions of 17 ms are a group
    ((1.0, 0.2, *[0.08 * 0.98 ** k for k in range(60)]), 0.08 * 0.98 ** 59, 2 + 60 + 20),  # none is much faster than the one before
    ((30.0, 9.0, 5.0), 5.0, 3),  # four seconds are all it has
    ((1e-4,), 1e-4, 2 + 5200)])
def test_a_line_is_warm_when_its_time_is_steady(monkeypatch: pytest.MonkeyPatch, takes: tuple[float, ...], steady: float, calls: int) -> None:
    t = _Clock(*takes)
    monkeypatch.setattr(bench_gpu, "time", t)
    assert bench_gpu.warmed(t, t.work) == pytest.approx(steady, rel=0.02)
    assert t.calls == pytest.approx(calls, rel=0.05)


def test_a_time_that_falls_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    t = _Clock(*[2.0 * 0.9 ** k for k in range(30)])
    monkeypatch.setattr(bench_gpu, "time", t)
    bench_gpu.warmed(t, t.work)
    assert bench_gpu._WARMED <= t.now - 100.0 - 3.8 < bench_gpu._WARMED + 2.0  # the first two take 3.8


def bench(tmp_path: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]], dict[str, Any]]:
    """What `bench_gpu` says, the rows of its table, and its figures."""
    table = tmp_path / "table.md"
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")}
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "bench_gpu.py"), "--smoke", "--table", str(table), *options],
                          capture_output=True, text=True, env=environment, timeout=900, check=False)
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in table.read_text().splitlines() if line.startswith("| ")][1:]
    return done, rows, json.loads(table.with_suffix(".json").read_text())


@on_fake
def test_where_the_time_goes(tmp_path: Path) -> None:
    """Each launch of a step has a name, a time and how often it was; all of them are in the total."""
    table = tmp_path / "where.md"
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")}
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "where.py"), "--smoke", "--only", "a step of a GPT", "--most", "5", "--table",
                           str(table)], capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (head,) = [line for line in table.read_text().splitlines() if line.startswith("###") and "flambeau" in line]
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in table.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 6 and rows[-1][2].endswith("others") and any("attention" in row[2] or "matmul" in row[2] for row in rows)
    clock, total = head.split(": ")[-1].split("; ")
    assert abs(sum(float(row[0]) for row in rows) - float(total.split(" ms")[0])) < 0.1 and int(total.split(" in ")[1].split()[0]) > 20
    assert 0 < float(clock.split("busy for ")[1]) <= float(clock.split(" ms")[0])


@pytest.mark.slow
@on_fake
def test_every_line_runs(tmp_path: Path) -> None:
    """All of them, against a stand-in for PyTorch."""
    done, rows, told = bench(tmp_path, "--against", "flambeau")
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert [r[0] for r in rows] == [line.name for line in gpu_lines.all_lines(gpu_lines.SMOKE)] == list(told["seconds"])
    assert sum(r[-1].endswith(("us", "ms")) for r in rows) == sum(line.compiled for line in gpu_lines.all_lines()) > 5
    for name, one, other, ratio, *_ in rows:
        assert one.endswith(("us", "ms")) and other.endswith(("us", "ms")), (name, one, other)  # a time, not an error
        both = told["seconds"][name]
        assert abs(float(ratio) - both["torch"] / both["flambeau"]) < 0.01 and both["flambeau"] > 0
    assert set(told["bounds"]) >= {"link up", "link down", "memory", "launches"} and min(told["bounds"].values()) > 0 and "Fake H200" in told["about"]


@on_fake
@pytest.mark.parametrize("kind, said", [("fault", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"), ("crash", "the process ended with -6: Fatal Python error: Aborted"),
                                        ("hang", "given up after 5 s < bench_gpu.py:"), ("error", "ValueError: planted / here")])
def test_a_line_that_goes_wrong(tmp_path: Path, kind: str, said: str) -> None:
    """It is told, and the others are measured all the same."""
    done, rows, told = bench(tmp_path, "--only", "host's time: ", "--against", "absent_module", "--plant", f"{kind}:time: sum of", "--each", "5")
    assert done.returncode == 1 and "Flambeau alone is measured" in done.stdout, done.stdout + done.stderr
    wrong = [r for r in rows if not r[2].endswith(("us", "ms"))]
    assert [r[0] for r in wrong] == ["host's time: sum of rows"] == told["missed"] and said in wrong[0][2], wrong
    assert len(rows) == 15 and all(not r[1] and not r[3] for r in rows)
    assert f"0 lines not begun, {int(kind != 'error')} processes lost" in done.stdout


@on_fake
def test_the_time_is_kept(tmp_path: Path) -> None:
    done, rows, _ = bench(tmp_path, "--only", "host's time: ", "--against", "absent_module", "--plant", "hang:time: relu", "--limit", "6")
    assert done.returncode == 1 and rows[1][2].endswith("us") and rows[3][1] == "not begun", done.stdout
    assert rows[2][2].startswith("the time was over < bench_gpu.py:"), rows[2]


@on_fake
def test_compilers_come_last_and_only_where_they_are_wanted(tmp_path: Path) -> None:
    done, rows, _ = bench(tmp_path, "--only", "softmax ", "--against", "flambeau")
    assert done.returncode == 0 and [r[-1].endswith(("us", "ms")) for r in rows] == [True] * len(rows) and len(rows) > 1, done.stdout
    shown = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| softmax")]
    assert shown == [r[0] for r in rows] * 2
    for options, begun in ((("--no-compile",), len(rows)), (("--no-compile", "--first", "1"), len(rows) - 1)):
        done, less, _ = bench(tmp_path, "--only", "softmax ", "--against", "flambeau", *options)
        assert [r[-1] for r in less] == [""] * len(rows) and sum(r[1] != "not begun" for r in less) == begun, done.stdout


def test_aims() -> None:
    """Against PyTorch, against a measured limit, and both."""
    import bench_gpu
    bounds = {"link up": 50e9, "memory": 4e12}
    line = gpu_lines.Line("pageable up", lambda t: t, 3.0, 10 ** 9, against="link up", part=0.78)
    for torch, mine, want in ((0.1, 0.025, True), (0.1, 0.03, False), (0.05, 0.021, False), (None, 0.02, True), ("ValueError", 0.02, True), (0.1, "no", None)):
        text, reached = bench_gpu.row(line, {"torch": torch, "flambeau": mine}, bounds)
        assert reached is want and ("reached" if want else "MISSED" if want is False else "3 times and 0.78") in text, text
    assert "40.00 GB/s, 0.80 of the link up" in bench_gpu.row(line, {"torch": 0.1, "flambeau": 0.025}, bounds)[0]
    assert bench_gpu.row(gpu_lines.Line("matmul", lambda t: t, 0.98, flops=2e12), {"torch": 1.0, "flambeau": 1.0}, bounds) == \
        ("| matmul | 1000.000 ms | 1000.000 ms | 1.00 | 2.0 TFLOP/s | 0.98 times: reached |  |  |", True)


def test_every_line_says_its_limit() -> None:
    """The bytes at the measured rate, the operations at the data sheet's, or the launches."""
    import bench_gpu
    bounds = {"link up": 50e9, "link down": 50e9, "memory": 4e12, "launches": 1e6} | bench_gpu.rates("NVIDIA H200")
    for line in gpu_lines.all_lines():
        seconds, what = line.limit(bounds)
        assert seconds >= 1e-6 and what, line.name
        assert what == (line.against or "launches") or seconds > (line.flops or line.nbytes) / bounds[line.against], line.name
        if line.flops:
            assert line.against in bounds, line.name
    assert gpu_lines.Line("x", lambda t: t, nbytes=8 * 10 ** 9, against="memory").limit(bounds) == (2e-3, "memory")
    assert gpu_lines.Line("x", lambda t: t, flops=989.5e9, against="bfloat16 products").limit(bounds)[0] == pytest.approx(1e-3)
    assert gpu_lines.Line("x", lambda t: t, launches=7).limit(bounds) == (7e-6, "launches")
    assert gpu_lines.Line("x", lambda t: t).limit({}) == (0.0, "") and not bench_gpu.rates("a GPU")
    row, _ = bench_gpu.row(gpu_lines.Line("x", lambda t: t, nbytes=4 * 10 ** 9, against="memory"), {"flambeau": 2e-3, "compiled": 1.5e-3}, bounds)
    assert row.endswith("| 1.000 ms (memory) | 1.500 ms |"), row


@pytest.mark.slow
@on_fake
def test_the_hosts_time(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu" / "host_cost.py"), "--json", str(figures), "--only", "a + b"], check=True,
                   capture_output=True, timeout=300)
    told = json.loads(figures.read_text())
    import host_cost
    assert set(told["microseconds"]) == {name for name in host_cost.NAMES if "a + b" in name}
    assert not told["real"] and 0 < told["microseconds"]["a + b"]["flambeau"] < 60
