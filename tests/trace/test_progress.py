"""A training shown as it goes: live in a terminal, in lines elsewhere, as table and chart on the page."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

import flambeau as torch
from flambeau.trace import chart, chart_svg, progress


def console(terminal: bool, width: int = 80) -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, width=width, height=30, force_terminal=terminal, highlight=False), shown


def test_a_line_for_each_epoch_where_there_is_no_terminal() -> None:
    where, shown = console(False)
    with torch.Progress(3, batches=4, console=where) as p:
        for epoch in p:
            for _ in p.track([torch.zeros(8)] * 4):
                time.sleep(0.001)
            p.log(loss=torch.tensor(1.5 / epoch), accuracy=0.25 * epoch)
    lines = shown.getvalue().splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"epoch 1/3  loss 1\.5000  accuracy 25\.00%  [\d,]+ samples/s  [\d.]+ ms  \d+ s left", lines[0])
    assert lines[2].startswith("epoch 3/3  loss 0.5000  accuracy 75.00%") and "left" not in lines[2]
    assert "\x1b" not in shown.getvalue()
    for row in p.rows:
        assert row["samples/s"] == pytest.approx(32 / row["seconds"])
    assert p.seconds == pytest.approx(sum(row["seconds"] for row in p.rows))


def test_live_in_a_terminal() -> None:
    where, shown = console(True)
    with torch.Progress(4, batches=2, title="Digits", console=where) as p:
        for epoch in p:
            p.advance(16)
            p.advance(16)
            p.log(loss=1 / epoch, accuracy=epoch / 4)
            p._live.refresh()
    out = shown.getvalue()
    assert "\x1b[" in out and "Digits" in out
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out)
    for part in ("accuracy", "samples/s", "100.00%", "0.2500", "loss by epoch, 1 to 4", "epoch 4/4", "⠉"):
        assert part in last or part == "⠉"
    assert any(0x2800 < ord(ch) < 0x2900 for ch in last)


def test_names_are_not_read_as_markup() -> None:
    where, shown = console(True)
    with torch.Progress(1, title="[/red] of [bold]", console=where) as p:
        for _ in p:
            p.log(**{"[red]a[/x]": 2.0})
            p._live.refresh()
    assert "[/red] of [bold]" in shown.getvalue() and "[red]a[/x]" in shown.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_live_view_fits(width: int) -> None:
    where, shown = console(True, width)
    with torch.Progress(50, batches=10, console=where) as p:
        for epoch in range(1, 31):
            p.advance(4)
            p.log(loss=1 / epoch)
    lines = where.render_lines(p.render())
    text = ["".join(s.text for s in line) for line in lines]
    assert max(len(line.rstrip()) for line in text) <= width and not any("…" in line for line in text)
    assert len(text) <= 30  # no taller than the terminal
    assert any("epoch 31/50" in line and "left" in line for line in text)


def test_the_time_left_follows_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    p = torch.Progress(10, batches=4)
    assert p.remaining is None
    now[0] += 8
    p.log(loss=1.0)
    assert p.remaining == pytest.approx(72)
    now[0] += 2
    p.advance()
    assert p.remaining == pytest.approx(8.75 * 10 / 1.25)
    assert "batches/s" not in p.rows[0] and p.rows[0]["seconds"] == 8
    assert [progress.clock(s) for s in (0.4, 59, 83, 7390)] == ["0 s", "59 s", "1:23", "2:03:10"]


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        torch.Progress(0)
    p = torch.Progress(1)
    p.log(loss=1.0)
    with pytest.raises(ValueError, match="1 epochs were announced"):
        p.log(loss=1.0)


def test_metrics_may_come_and_go() -> None:
    p = torch.Progress(3)
    p.log(loss=1.0)
    p.log(loss=0.5, accuracy=0.5)
    p.log(accuracy=0.75)
    assert p.columns() == ["epoch", "loss", "seconds", "accuracy"]
    assert p.series() == {"loss": [1.0, 0.5], "accuracy": [0.5, 0.75]}
    where, shown = console(False)
    where.print(p.table())
    assert shown.getvalue().count("\n") >= 4


def test_the_chart_in_characters() -> None:
    rows = chart.lines([4.0, 2.0, 1.0, 0.0], 30, 5, "loss", fancy=False)
    assert len(rows) == 6 and rows[0].startswith("4 |*") and rows[4].startswith("0 |") and rows[4].endswith("*")
    assert all(row.isascii() and len(row) <= 30 for row in rows[:5])
    assert chart.lines([1.0], 30, 5, "loss") == [] and chart.lines([float("nan")] * 5, 30, 5, "loss") == []
    assert len(chart.lines([1.0, float("inf"), 2.0], 30, 5, "loss")) == 6
    assert len(chart.lines([2.0, 2.0], 30, 5, "loss")) == 6


def test_the_chart_on_the_page() -> None:
    svg = chart_svg.chart("loss", [2.0, 1.0, float("nan"), 0.5])
    assert svg.count("<circle") == 3 and "epoch 4: loss 0.5" in svg and "nan" not in svg
    assert chart_svg.chart("loss", [float("nan")]) == ""
    assert "<circle" in chart_svg.chart("loss", [1.0])
    assert chart_svg.ticks(0, 1) == pytest.approx([0, 0.5, 1]) and chart_svg.ticks(3, 3) == [3]
    assert chart_svg.ticks(-0.3, 2.1) == pytest.approx([0, 1, 2])


def test_the_page_has_table_and_chart(tmp_path: Path) -> None:
    p = torch.Progress(2, title="Digits")
    p.log(loss=1.25, accuracy=0.5)
    p.log(loss=0.25, accuracy=0.875)
    page = Path(p.save(tmp_path / "t.html")).read_text("utf-8")
    assert page.count("<svg") == 2 and "87.50%" in page and "1.2500" in page and "<h1>Digits</h1>" in page
