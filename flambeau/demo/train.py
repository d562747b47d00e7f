"""`flambeau demo`: trains the network of `learn` on the digits, live in the terminal, and shows what it learnt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import flambeau as torch
from flambeau.demo import digits, learn, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

GOAL = 0.98
SHOWN = 8
MISTAKES_SHOWN = 3


def choose_device(wanted: str | None) -> tuple[torch.device, str]:
    """The device to train on, and a sentence that says which it is and why.

    Without a wish: a real GPU if there is one, else a simulated one.
    """
    if wanted is not None and torch.device(wanted).type == "cpu":
        return torch.device("cpu"), "the CPU, as asked"
    if not torch.cuda.is_available():
        torch.simulate(gpus=1 if wanted is None else (torch.device(wanted).index or 0) + 1)
    device = torch.device(wanted or "cuda:0")
    it = torch.cuda.get_device_properties(device)
    if it.simulated:
        return device, f"{device}, a simulated GPU ({it.name}): the CPU plays its part"
    return device, f"{device}, a real GPU ({it.name})"


def train(console: Console, learner: learn.Learner, data: digits.Digits, epochs: int) -> tuple[float, float]:
    """Trains for `epochs` with a live progress bar and a table that grows; the last accuracy and the seconds taken."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for heading in ("epoch", "loss", "test accuracy", "seconds"):
        table.add_column(heading, justify="right")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("batches"),
        TimeRemainingColumn(), console=console,
    )  # fmt: skip
    work = bar.add_task("learning", total=epochs * learner.batches)
    test_images, test_labels = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    accuracy, started = 0.0, time.perf_counter()
    with Live(Group(table, bar), console=console, refresh_per_second=8):
        for epoch in range(1, epochs + 1):
            begun = time.perf_counter()
            loss = learner.epoch(after_step=lambda: bar.advance(work))
            accuracy = learner.accuracy(test_images, test_labels)
            seconds = time.perf_counter() - begun
            table.add_row(str(epoch), f"{loss:.4f}", f"{accuracy:.2%}", f"{seconds:.2f}")
    return accuracy, time.perf_counter() - started


def examples(seen: NDArray[np.int64], truth: NDArray[np.int64]) -> list[int]:
    """Which test images to draw: a few that were seen wrongly, if any, then others spread over the test set."""
    wrong = [i for i in range(len(truth)) if seen[i] != truth[i]][:MISTAKES_SHOWN]
    spread = [i for i in range(7, len(truth), len(truth) // SHOWN) if i not in wrong]
    return (spread[: SHOWN - len(wrong)] + wrong)[:SHOWN]


def run(device: str | None = None, epochs: int = learn.EPOCHS, seed: int = 0, console: Console | None = None) -> int:
    """The whole demo. Returns the exit status: 0, or 1 if a full training stays below 98 % on the held-out digits."""
    from rich.console import Console

    console = console or Console(highlight=False)
    data = digits.load()
    chosen, sentence = choose_device(device)
    console.print(f"Flambeau learns handwritten digits: {len(data.train_labels)} to learn from, "
                  f"{len(data.test_labels)} held out for testing.")  # fmt: skip
    console.print(f"Device: {sentence}.\n")
    learner = learn.Learner(
        torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels), epochs, chosen, seed
    )
    accuracy, seconds = train(console, learner, data, epochs)

    seen = learner.predict(torch.from_numpy(data.test_images)).numpy()
    console.print("\nSome of the held-out images:\n")
    some = examples(seen, data.test_labels)
    ascii_only = not (console.encoding or "").lower().startswith("utf")
    console.print(
        show.gallery(
            [data.test_images[i, 0] for i in some],
            [int(seen[i]) for i in some],
            [int(data.test_labels[i]) for i in some],
            console.width,
            ascii_only,
        )
    )
    right = int((seen == data.test_labels).sum())
    console.print(f"Test accuracy {accuracy:.2%}: {right} of {len(seen)} digits it had never seen; "
                  f"{epochs} epochs in {seconds:.1f} s on {chosen}.")  # fmt: skip
    if epochs >= learn.EPOCHS and accuracy < GOAL:
        console.print(f"That is below {GOAL:.0%}, which this demo should reach: something is wrong.", style="bold red")
        return 1
    return 0
