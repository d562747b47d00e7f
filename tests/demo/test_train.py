"""The demo as a person runs it: it learns, on the CPU and on a simulated GPU, and says what it did."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import flambeau as torch
from flambeau.demo import digits, learn, train


def run(device: str, epochs: int) -> tuple[int, str]:
    shown = io.StringIO()
    status = train.run(device, epochs, console=Console(file=shown, width=100, highlight=False), page=False)
    return status, shown.getvalue()


def test_an_epoch_lowers_the_loss_and_reports_it() -> None:
    status, shown = run("cpu", 2)
    assert status == 0
    rows = [line.split() for line in shown.splitlines() if line.startswith("epoch ")]
    assert [row[1] for row in rows] == ["1/2", "2/2"]
    assert float(rows[1][3]) < float(rows[0][3])
    assert "the CPU, as asked" in shown and "Test accuracy" in shown and shown.count("seen ") == train.SHOWN


@pytest.mark.usefixtures("sim_gpus")
def test_a_page_tells_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    assert train.run("cuda:0", 1, console=Console(file=shown, width=100, highlight=False)) == 0
    page = (tmp_path / train.PAGE).read_text("utf-8")
    assert f"transfers: {tmp_path / train.PAGE}" in shown.getvalue()
    for part in ("Learning, epoch by epoch", "The network, layer by layer", "<b>Conv2d</b>", "test accuracy", '"cpu"', '"cuda:0"'):
        assert part in page
    assert os.listdir(tmp_path) == [train.PAGE]


def test_a_folder_that_cannot_be_written_does_not_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    data = digits.load()
    learner = learn.Learner(torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
    progress = torch.Progress(1)
    progress.log(loss=1.0)
    monkeypatch.chdir(gone)
    gone.rmdir()  # nothing can be written here any more
    path = train.write_page(learner, data, progress)
    assert os.path.isfile(path) and str(gone) not in path
    shutil.rmtree(os.path.dirname(path))


@pytest.mark.slow
def test_it_reaches_98_percent_on_every_device(device: str) -> None:
    status, shown = run(device, learn.EPOCHS)
    assert status == 0, shown
    accuracy = float(shown.split("Test accuracy ")[1].split("%")[0])
    assert accuracy >= 98


@pytest.mark.usefixtures("sim_gpus")
def test_a_simulated_gpu_is_said_to_be_one() -> None:
    _, sentence = train.choose_device("cuda:1")
    assert sentence.startswith("cuda:1, a simulated GPU")


def test_the_examples_show_the_mistakes_and_others() -> None:
    truth = np.arange(355) % 10
    seen = truth.copy()
    seen[[3, 100, 200, 300]] = 11
    chosen = train.examples(seen, truth)
    assert len(chosen) == len(set(chosen)) == train.SHOWN
    assert [i for i in chosen if seen[i] != truth[i]] == [3, 100, 200]
    assert len(train.examples(truth, truth)) == train.SHOWN


def test_the_same_seed_learns_the_same() -> None:
    data = digits.load()

    def first_loss() -> float:
        learner = learn.Learner(torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels), seed=3)
        return next(learner.steps()).item()

    assert first_loss() == first_loss()
