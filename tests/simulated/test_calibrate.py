"""The calibration of simulated GPUs: on one that carries nothing out, it finds that one's own figures again."""

from __future__ import annotations

from pathlib import Path

import pytest

import flambeau as torch
from flambeau._core.drivers.simulated import models, reached
from flambeau.simulated import calibrate, workloads


def same(found: reached.Reached, want: reached.Reached, rel: float) -> None:
    for name in ("launch", "kernel", "setup", "up", "down", "pageable_up", "pageable_down", "peer", "attention"):
        assert getattr(found, name) == pytest.approx(getattr(want, name), rel=rel), name
    assert found.moving == pytest.approx(want.moving, rel=rel)
    for kind, (rate, start) in want.products.items():
        assert found.products[kind] == (pytest.approx(rate, rel=rel), pytest.approx(start, rel=rel, abs=2e-7)), kind


@pytest.mark.parametrize("name", ["H200"])
def test_a_simulated_gpu_is_measured_as_its_model(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "measured.toml")
    with calibrate.priced([name]):
        lines = calibrate.calibrate(path, calibrate.How())
    made, want = models.model(path), models.MODELS[name]
    assert made.rated() == want.rated() and made.source.startswith(f"measured on {want.full_name}, simulated, 20")
    same(made.reached, want.reached, 0.02)
    rows = [line.split("|") for line in lines if line.startswith("| ")][1:]
    assert len(rows) == len(workloads.workloads(torch, workloads.SMALL)) == 10
    assert all(abs(int(row[4].split()[0])) <= 2 for row in rows), rows  # of the programs, in percent


def test_a_slower_gpu_is_told_as_one(tmp_path: Path) -> None:
    """Half the rates, twice the times: each figure of a file is what is priced by, and measured again."""
    h = models.MODELS["H200"]
    r = h.reached
    half = reached.Reached(2 * r.launch, 2 * r.kernel, 2 * r.setup, r.up / 2, r.down / 2, r.pageable_up / 2, r.pageable_down / 2, r.peer / 2,
                           {p: v / 2 for p, v in r.moving.items()}, {t: (v / 2, 2 * s) for t, (v, s) in r.products.items()}, r.attention / 2)
    half.moving["gather"] /= 4
    (tmp_path / "half.toml").write_text(reached.text(h.rated(), "a test", half, []))
    name = str(tmp_path / "half.toml")
    with calibrate.priced([name, name]):
        _, found, told = calibrate.measure(calibrate.How())
    same(found, half, 0.02)
    assert len(told) == 4 * len(calibrate.SHAPES)
    with torch.simulate(1, name):
        x = torch.zeros(1 << 22, device="cuda")
        torch.cuda.synchronize()
        begun = torch.simulated.clock()
        y = x + 1
        torch.cuda.synchronize()
        took = torch.simulated.clock() - begun
        assert took == pytest.approx(2 * r.launch + (32 << 20) / (half.moving["map"] * 1e9), rel=1e-6) and y[0].item() == 1


def test_products_are_fitted_to_what_was_measured() -> None:
    shapes = calibrate.SHAPES
    measured = [(s, reached.product_seconds(3e14, 100, *s) + 4e-6) for s in shapes]
    rate, start = calibrate.fitted(measured, 100)
    assert rate == pytest.approx(300, rel=0.01) and start == pytest.approx(4e-6, rel=0.05)


def test_the_command_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), torch.simulate(0):
        calibrate.main(["--out", str(tmp_path / "x.json")])
    assert "ends with .toml" in capsys.readouterr().err
    with torch.simulate(0):
        assert calibrate.main(["--out", str(tmp_path / "x.toml")]) == 2
    assert "nothing was measured" in capsys.readouterr().out


GOOD = reached.text(models.MODELS["H200"].rated(), "a \"quoted\" source", models.MODELS["H200"].reached, ["a note"])


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD)
    made = models.model(str(path))
    assert made.rated() == models.MODELS["H200"].rated() and made.source == 'a "quoted" source'
    same(made.reached, models.MODELS["H200"].reached, 1e-5)


@pytest.mark.parametrize("wrong, told", [
    ("", "is no model file"), ("source = 3", "is no model file"), ("]", "cannot be read"), (GOOD.replace("map = ", "maps = "), "'map'"),
    (GOOD.replace("launch = 4e-06", "launch = -1"), "a time that is not"), (GOOD.replace("kernel = 2e-06", "kernel = nan"), "a time that is not"),
    (GOOD.replace("half = [", "half = ['x', "), "is no model file"), (GOOD.replace("nvlink = 450\n", ""), "lacks nvlink"),
    (GOOD.replace("nvlink = 450", "nvlink = 450\nspeed = 3"), "has speed"),
    (GOOD.replace("processors = 132", "processors = 'many'"), "under .rated. that is none"),
    (GOOD.replace("up = 51", "up = 0"), "a rate that is not above 0")])
def test_what_is_no_model_file_is_told(tmp_path: Path, wrong: str, told: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(wrong)
    with pytest.raises(ValueError, match=told) as raised:
        torch.simulate(1, str(path))
    assert str(path) in str(raised.value) and str(raised.value).startswith("model: ")
    with pytest.raises(ValueError, match="cannot be read"):
        torch.simulate(1, str(tmp_path / "absent.toml"))
