"""The page and the trace events of all ranks: unequal work is planted, and who waited for whom, where and for how long is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.simulated.models import MODELS
from flambeau._core.drivers.simulated.reached import LAUNCH
from flambeau.trace import ranks
from tests.distributed.ranks import checked, environment, free_port, needs_mpi, run

from .browser import BROWSER, DRIVER, window

UNEQUAL = """
import torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, n = dist.get_rank(), dist.get_world_size()
much, x = torch.zeros(1 << 20, device="cuda"), torch.ones(1 << 18, device="cuda")
torch.cuda.synchronize()
dist.barrier()
dist.all_reduce(x)  # all are there
torch.cuda.synchronize()
for step in range(3):
    for _ in range({}):
        much.mul_(1.0)
    dist.all_reduce(x)  # here
    x.mul_(1 / n)
    torch.cuda.synchronize()
    dist.barrier()  # all hosts begin together
"""
EACH = LAUNCH  # seconds of one multiplication: the GPU is done with it before the host has queued the next
assert 2 * 4 * (1 << 20) / (MODELS["H200"].bandwidth * 1e9) < EACH


def line_of(text: str) -> str:
    """Where the comment "here" stands in the script that a job ran."""
    return f"script.py:{next(i for i, line in enumerate(text.splitlines(), 1) if line.endswith('# here'))}"


def waits(tmp_path: Path, nproc: int, much: str) -> dict[str, Any]:
    """What the trace events of a job say beside the events; they are looked at, too."""
    source = UNEQUAL.format(much)
    checked(tmp_path, source, nproc, "--sim-gpus", "1", "--report", "all.json")
    told: dict[str, Any] = json.loads((tmp_path / "all.json").read_text())
    names = {e["args"]["name"].partition(":")[0] for e in told["traceEvents"] if e["name"] == "process_name"}
    assert names == {f"rank {r}" for r in range(nproc)} and told["otherData"]["ranks"] == nproc and told["otherData"]["predicted"]
    shown: dict[tuple[int, int], float] = {}
    for e in told["traceEvents"]:
        if found := re.fullmatch(r"wait for rank (\d+)", e["name"]):
            key = e["pid"] // 1000, int(found[1])
            shown[key] = shown.get(key, 0.0) + e["dur"]
    summed: dict[tuple[int, int], float] = {}
    for w in told["otherData"]["waited"]:
        summed[w["rank"], w["for"]] = summed.get((w["rank"], w["for"]), 0.0) + w["seconds"] * 1e6
    assert shown == pytest.approx(summed, abs=0.01)
    assert not list(tmp_path.glob("*.part")) and (tmp_path / "all-rank0.json").exists()
    here = line_of((tmp_path / "script.py").read_text())
    return {**told["otherData"], "waited": [w for w in told["otherData"]["waited"] if w["line"] == here],
            "carried": [c for c in told["otherData"]["carried"] if c["line"] == here]}


@needs_mpi
def test_two_ranks_of_which_one_has_more_to_do(tmp_path: Path) -> None:
    told = waits(tmp_path, 2, "40 if rank == 1 else 0")
    (w,) = told["waited"]
    assert (w["rank"], w["for"], w["where"], w["what"], w["count"]) == (0, 1, "cuda:0", "all_reduce", 3)
    assert w["seconds"] == pytest.approx(3 * 40 * EACH, rel=1e-4)
    (c,) = told["carried"]
    assert (c["what"], c["count"], c["bytes"]) == ("all_reduce", 6, 6 * 4 * (1 << 18))


@needs_mpi
def test_four_ranks_wait_for_the_slowest_and_the_page_says_it(tmp_path: Path) -> None:
    told = waits(tmp_path, 4, "(0, 10, 40, 20)[rank]")
    assert {(w["rank"], w["for"]) for w in told["waited"]} == {(0, 2), (1, 2), (3, 2)}
    times = {w["rank"]: w["seconds"] for w in told["waited"]}
    assert times == pytest.approx({0: 120 * EACH, 1: 90 * EACH, 3: 60 * EACH}, rel=1e-4)
    checked(tmp_path, UNEQUAL.format("(0, 10, 40, 20)[rank]"), 4, "--sim-gpus", "1", "--report", "all.html")
    page = (tmp_path / "all.html").read_text()
    rows = re.findall(r"<td class=\"\">rank (\d)</td><td class=\"\">rank (\d)</td><td class=\"\">cuda:0</td><td class=\"num\">~(\d+) µs</td>",
                      page.replace("\N{NO-BREAK SPACE}", " "))
    assert [(int(a), int(b)) for a, b, _ in rows[:3]] == [(0, 2), (1, 2), (3, 2)]
    assert [int(t) for _, _, t in rows[:3]] == pytest.approx([120e6 * EACH, 90e6 * EACH, 60e6 * EACH], abs=0.6)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])  # type: ignore[index]
    assert [lane["device"] for lane in data["lanes"] if lane["gpu"]] == [f"rank {r} cuda:0" for r in range(4) for _ in range(2)]
    rank = [lane["device"].split()[1] for lane in data["lanes"]]
    assert all(not data["lanes"][host]["gpu"] and rank[host] == rank[lane] for host, lane in zip(data["stages"]["host"], data["stages"]["lane"], strict=True))
    count = len(data["stages"]["i"])
    assert sorted(data["stages"]["i"]) == list(range(1, count + 1)) and max(data["works"]["stage"]) < count and min(data["stages"]["start"]) >= 0
    assert "Bytes by line" in page and "all-rank" not in page


@needs_mpi
def test_the_time_of_a_step_is_that_of_the_longest(tmp_path: Path) -> None:
    checked(tmp_path, """
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        x, much = torch.ones(64, 512, device="cuda"), torch.zeros(1 << 20, device="cuda")
        for _ in range(5):
            for _ in range(dist.get_rank() * 100):
                much.mul_(1.0)
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
        """, 2, "--sim-gpus", "1", "--report", "all.json")
    told = json.loads((tmp_path / "all.json").read_text())["otherData"]
    assert 100 * EACH < told["step"] < 1.8 * 100 * EACH


@needs_mpi
def test_without_gpus_waits_are_measured(tmp_path: Path) -> None:
    checked(tmp_path, """
        import time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        rank, x = dist.get_rank(), torch.ones(8)
        dist.barrier()
        time.sleep(0.6 * rank)
        dist.all_reduce(x)  # here
        time.sleep(0.6 * (1 - rank))
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        time.sleep(0.6 * rank)
        dist.barrier()
        """, 2, "--report", "all.json")
    told = json.loads((tmp_path / "all.json").read_text())["otherData"]
    assert not told["predicted"] and told["step"] is None
    long = [w for w in told["waited"] if w["seconds"] > 0.3]
    assert sorted((w["rank"], w["for"], w["what"], w["where"]) for w in long) == [
        (0, 1, "all_reduce", "host"), (0, 1, "barrier", "host"), (1, 0, "all_reduce", "host")]
    assert line_of((tmp_path / "script.py").read_text()) in [w["line"] for w in long]


@needs_mpi
def test_each_of_several_hosts_joins_its_own_ranks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n")
    agents = [subprocess.Popen([sys.executable, "-m", "flambeau", "run", "--nproc", "1", "--nnodes", "2", "--node-rank", str(k), "--rdzv-endpoint",
                                f"127.0.0.1:{port}", "--report", "all.html", "script.py"], env=environment(), cwd=tmp_path)
              for port in (free_port(),) for k in range(2)]
    assert [a.wait(100) for a in agents] == [0, 0]
    assert [(tmp_path / f"all-node{k}.html").read_text().count(f"rank {k} cpu") > 0 for k in range(2)] == [True, True]
    assert not (tmp_path / "all.html").exists()


@needs_mpi
def test_a_rank_that_dies_is_missed(tmp_path: Path) -> None:
    done = run(tmp_path, """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(3) * 2
        if dist.get_rank() == 1:
            os._exit(3)
        """, 2, "--report", "all.html")
    assert done.returncode == 3 and "page of all ranks" in done.stderr and "without rank 1, of which nothing came" in done.stderr
    assert "1 ranks" in (tmp_path / "all.html").read_text() and not list(tmp_path.glob("*.part"))


def test_parts_are_put_beside_one_another_by_a_common_clock(tmp_path: Path) -> None:
    with torch.simulate(gpus=1):
        with torch.trace("both") as t:
            x = torch.ones(100, device="cuda")
            (x + 1).sum().item()
    for rank in (1, 4):
        ranks.write_part(t, str(tmp_path / "p.json"), rank)
    part = json.loads((tmp_path / "p-rank4.json.part").read_text())
    part["zero"] += 1e-3
    part["began"] += 1e-3
    (tmp_path / "p-rank4.json.part").write_text(json.dumps(part))
    assert ranks.join(str(tmp_path / "p.json"), (1, 2, 4), str(tmp_path / "p.json")) == [2]
    told = json.loads((tmp_path / "p.json").read_text())
    mine = {p: [e for e in told["traceEvents"] if e["pid"] // 1000 == p and "ts" in e] for p in (1, 4)}
    assert len(mine[1]) == len(mine[4]) > 3
    assert all(b["ts"] - a["ts"] == pytest.approx(1000, abs=1e-3) for a, b in zip(mine[1], mine[4], strict=True))
    flows = [e["id"] for e in told["traceEvents"] if e["ph"] == "s"]
    assert len(set(flows)) == len(flows) > 1
    columns = ranks.joined([part["columns"], part["columns"]], [0, 1], [0.0, 0.5])
    half = len(columns["stages"]["i"]) // 2
    assert [b - a for a, b in zip(columns["stages"]["start"][:half], columns["stages"]["start"][half:])] == pytest.approx([5e5] * half)
    assert columns["span"] == pytest.approx(part["columns"]["span"] + 5e5)


@pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="no chromium with chromedriver on this machine")
def test_the_page_is_drawn(tmp_path: Path) -> None:
    with torch.simulate(gpus=1):
        with torch.trace("both") as t:
            x = torch.ones(1000, device="cuda")
            for _ in range(50):
                x = x + 1
            x.sum().item()
    kernel = next(w for s in t.stages for w in s.works if w.lane[0] != "cpu")
    kernel.collective, kernel.waits = True, (1, kernel.start - 3e-5, kernel.start)
    for rank in range(2):
        ranks.write_part(t, str(tmp_path / "p.html"), rank)
    assert ranks.join(str(tmp_path / "p.html"), range(2), str(tmp_path / "p.html")) == []
    (tmp_path / "profile").mkdir()
    with window(tmp_path / "profile") as browser:
        for view in ("time", "steps"):
            browser.open(str(tmp_path / "p.html"), "#" + view)
            assert browser.run("document.querySelector('html').dataset.view") == view and browser.errors() == []
            assert browser.run("[...document.querySelectorAll('.names b')].map(b => b.textContent)") == [
                "rank 0 cpu", "rank 0 cuda:0", "rank 1 cpu", "rank 1 cuda:0"]
        assert browser.run("document.querySelectorAll('#waits tbody tr').length") == 2
        browser.run("document.querySelector('g[data-stage=\"1\"]').dispatchEvent(new PointerEvent('pointerenter'))")
        assert "rank 1, ~30 µs" in browser.run("document.getElementById('tip').textContent")


def test_no_parts_make_no_page(tmp_path: Path) -> None:
    assert ranks.join(str(tmp_path / "p.html"), range(2), str(tmp_path / "p.html")) == [0, 1] and not list(tmp_path.iterdir())
