"""The demo as a person runs it: it learns, on the CPU and on a simulated GPU, and says what it did."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import flambeau as torch
from flambeau.demo import digits, learn, train


def run(device: str, epochs: int) -> tuple[int, str]:
    shown = io.StringIO()
    status = train.run(device, epochs, console=Console(file=shown, width=100, highlight=False))
    return status, shown.getvalue()


def test_an_epoch_lowers_the_loss_and_reports_it() -> None:
    status, shown = run("cpu", 2)
    assert status == 0
    rows = [line.split() for line in shown.splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert [row[0] for row in rows] == ["1", "2"] and float(rows[1][1]) < float(rows[0][1])
    assert "the CPU, as asked" in shown and "Test accuracy" in shown and shown.count("seen ") == train.SHOWN


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
