"""Files of a trace: trace events whose nesting is valid, a page that stands alone, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.trace import Trace, answer, save

from .trace_events import Read


def step(gpus: int) -> Trace:
    device = "cuda:0" if gpus else "cpu"
    with torch.trace("A <step> & more") as t:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
        x = torch.randn(5, 4).to(device)
        model(x).square().mean().backward()
        if gpus:
            with torch.cuda.stream(torch.cuda.Stream()):
                y = x * 2
            y.to("cuda:1").cpu()
        [x.sum().item() for _ in range(3)]
    return t


@pytest.fixture(params=[0, 2])
def traced(request: pytest.FixtureRequest) -> Any:
    with torch.simulate(gpus=2, model="A100"):
        yield step(request.param)


def test_trace_events_nest(traced: Trace, tmp_path: Path) -> None:
    path = traced.save(tmp_path / "trace.json")
    whole = json.loads(Path(path).read_text("utf-8"))
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for e in whole["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= set(e)
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["ts"] >= 0
            tracks[e["pid"], e["tid"]].append(e)
    named = {(e["pid"], e["tid"]) for e in whole["traceEvents"] if e["name"] == "thread_name"}
    assert set(tracks) <= named
    for events in tracks.values():
        open_: list[float] = []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            end = e["ts"] + e["dur"]
            while open_ and open_[-1] <= e["ts"] + 2e-4:
                open_.pop()
            assert not open_ or end <= open_[-1] + 2e-4, (e, open_)  # in the one it lies in, whole
            open_.append(end)
    assert sum(e["ph"] == "X" and e["cat"] == "stage" for e in whole["traceEvents"]) == len(traced.stages)
    assert any(e["ph"] == "X" and e["cat"] == "group" and e["name"] == "backward" for e in whole["traceEvents"])


def test_trace_events_have_a_track_for_each_stream_and_an_arrow_for_each_transfer(tmp_path: Path) -> None:
    with torch.simulate(gpus=2, model="A100"):
        t = step(2)
    whole = json.loads(Path(t.save(tmp_path / "t.json")).read_text("utf-8"))
    events = whole["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [n for n in names.values() if n.startswith("cuda:0")] == ["cuda:0 (NVIDIA A100-SXM4-80GB, simulated; predicted times)"]
    assert [n for n in names.values() if n.startswith("host")]
    gpu = next(p for p, n in names.items() if n.startswith("cuda:0"))
    streams = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == gpu]
    assert sorted(streams) == ["default stream", "stream 1"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(ends) and set(starts) == set(ends)
    assert sum(e["cat"] == "transfer" for e in starts.values()) == len(t.transfers())
    assert all(ends[i]["ts"] >= s["ts"] for i, s in starts.items())
    assert all(e["args"]["time"] == "predicted" for e in events if e["ph"] == "X" and e["pid"] == gpu)
    assert whole["otherData"]["times"].startswith("Times with ~ are predicted for NVIDIA A100-SXM4-80GB")


class Reader(HTMLParser):
    """Checks that tags close in order, and notes what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "data", "action")]
        if tag not in ("meta", "br", "line", "circle", "path", "input"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "path"):
            assert self.stack.pop() == tag


def test_the_page_is_one_well_formed_file_without_links(traced: Trace, tmp_path: Path) -> None:
    progress = torch.Progress(2, title="Two <epochs>", trace=traced)
    progress.log(loss=1.0)
    progress.log(loss=float("nan"))
    traced.findings.append("</script><b>not markup</b>")
    content = Path(traced.save(tmp_path / "trace.html")).read_text("utf-8")
    reader = Reader()
    reader.feed(content)
    assert reader.stack == [] and reader.links == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert content.count("</script>") == 2 and "&lt;step&gt; &amp; more" in content and "Two &lt;epochs&gt;" in content
    data = re.search(r'id="data">(.*?)</script>', content, re.S)
    assert data is not None and json.loads(data.group(1))["stages"]["i"] == [s.index for s in traced.stages]


def test_the_ending_decides_and_others_are_refused(tmp_path: Path) -> None:
    with torch.trace() as t:
        torch.ones(2)
    for name in ("a.html", "a.HTM", "a.json"):
        assert t.save(str(tmp_path / name)) == str(tmp_path / name)
    for name in ("a.txt", "a"):
        with pytest.raises(ValueError, match="a page ends in '.html'"):
            t.save(tmp_path / name)
    with pytest.raises(FileNotFoundError) as told:
        t.save(tmp_path / "nowhere" / "a.html")
    assert told.value.filename == str(tmp_path / "nowhere" / "a.html")  # the file that was asked for
    assert sorted(os.listdir(tmp_path)) == ["a.HTM", "a.html", "a.json"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        save.write(str(path), "new \ud800")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["trace.html"]

    def refuse(*args: object) -> None:
        raise OSError("disk full")
    monkeypatch.setattr(save.os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        save.write(str(path), "new")
    monkeypatch.undo()
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["trace.html"]
    save.write(str(path), "new")
    before = os.umask(0o022)
    os.umask(before)
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o666 & ~before


def test_a_file_whose_name_is_no_text_is_shown_by_a_sign_that_is(tmp_path: Path) -> None:
    name = os.fsdecode(b"/tmp/\xe9t\xe9.py")
    with torch.trace(f"of {name}") as t:
        exec(compile("torch.ones(3) + 1", name, "exec"), {"torch": torch})
    text = Path(t.save(tmp_path / "a.html")).read_text("utf-8")
    assert "<title>of /tmp/?t?.py</title>" in text and 'data-line="?t?.py:1"' in text and '"?t?.py:1"' in text
    json.loads(Path(t.save(tmp_path / "a.json")).read_text("utf-8"))


def test_an_empty_trace_can_be_saved(tmp_path: Path) -> None:
    with torch.trace() as t:
        pass
    assert "Flambeau trace" in Path(t.save(tmp_path / "a.html")).read_text("utf-8")
    assert [e for e in json.loads(Path(t.save(tmp_path / "a.json")).read_text("utf-8"))["traceEvents"] if e["ph"] == "X"] == []


def test_a_viewer_reads_waits_arrows_and_memory(tmp_path: Path) -> None:
    with torch.simulate(gpus=2, model="A100"):
        t = step(2)
    read = Read(t.save(tmp_path / "t.json"))
    waits = [s for s in read.slices if s["cat"] == "wait"]
    told = [(d, start, end) for s in t.stages for d, start, end in s.waits]
    assert len(waits) == len(told) > 0 and {w["name"] for w in waits} == {f"wait for {d or 'GPUs'}" for d, _, _ in told}
    assert sum(w["dur"] for w in waits) == pytest.approx(1e6 * sum(end - start for _, start, end in told), abs=0.1)
    assert all(w["parent"]["cat"] == "stage" and w["process"].startswith("host") for w in waits)
    arrows: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for category, source, target in read.arrows:
        arrows[category].append((source, target))
    stages = {s["args"]["stage"]: s for s in read.slices if s["cat"] == "stage"}
    assert sorted((a["args"]["stage"], b["args"]["stage"]) for a, b in arrows["data"]) == sorted(
        (q.index, s.index) for s in t.stages for q in s.sources if q.index)
    works = [w for w in read.slices if w["cat"] in ("kernel", "copy") and w["process"].startswith("cuda")]
    launched = arrows["launch"] + arrows["transfer"]
    assert len(launched) == len(works) and all(a is stages[b["args"]["stage"]] for a, b in launched)
    for work, wait in arrows["wait"]:
        assert wait["cat"] == "wait" and work["ts"] + work["dur"] <= wait["ts"] + wait["dur"] + 1e-3
        assert wait["name"] in ("wait for GPUs", f"wait for {work['process'].split()[0]}")
    assert len(arrows["wait"]) == len(waits)
    for peak in answer.peaks(t):
        curve = next(c for (process, name), c in read.counters.items() if name == "memory in use"
                     and process.startswith("host" if peak.device == "cpu" else peak.device))
        assert max(n for _, n in curve) == peak.nbytes and len(curve) == len(peak.curve)
