"""Predictions beside published measurements: the page is what the program gives, and tells its error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import predictions  # noqa: E402

from flambeau._core.drivers.simulated import reached  # noqa: E402


def test_the_page_is_what_the_clock_predicts() -> None:
    text = predictions.page()
    assert predictions.PAGE.read_text(encoding="utf-8") == text, "run python tools/predictions.py"
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(predictions.FIGURES) >= 10 and {r[0] for r in rows} == {"A100", "H100", "H200"}
    errors = [abs(float(r[3].split()[0]) / float(r[2].split()[0]) - 1) for r in rows]
    assert f"sizes is {100 * sum(errors) / len(errors):.1f} %" in text and max(errors) < 0.25
    assert all(len(r[5]) > 10 for r in rows)  # each has its source


def test_the_rates_of_products_are_those_that_the_cited_shapes_give() -> None:
    told = predictions.fit()
    assert f"{reached._RATE:.3f} of the rated" in told and f"; {reached._START * 1e6:.1f} us before" in told and "10.9 %" in told


def test_an_old_page_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(predictions, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(predictions, "FIGURES", predictions.FIGURES[:1])
    assert predictions.main(["--check"]) == 1 and "is old" in capsys.readouterr().err
    assert predictions.main([]) == 0 and predictions.main(["--check"]) == 0
