"""`flambeau demo`: trains the network of `learn` on the digits, live in the terminal, and shows what it learnt."""

from __future__ import annotations

import os
import tempfile
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
FOLLOWED = 4
PAGE = "flambeau-demo.html"


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


def train(
    console: Console, learner: learn.Learner, data: digits.Digits, epochs: int
) -> tuple[float, torch.Progress]:
    """Trains for `epochs` and shows it; the last accuracy, and the epochs."""
    test_images, test_labels = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    accuracy = 0.0
    with torch.Progress(epochs, learner.batches, "Learning, epoch by epoch", console=console) as progress:
        for _ in progress:
            loss = learner.epoch(after_step=lambda: progress.advance(learn.BATCH))
            accuracy = learner.accuracy(test_images, test_labels)
            progress.log(**{"loss": loss, "test accuracy": accuracy})
    return accuracy, progress


def write_page(learner: learn.Learner, data: digits.Digits, progress: torch.Progress) -> str:
    """The page of a training: its epochs, and a few images followed to their answers. Gives its path.

    It goes into the current folder, or into a temporary one where that cannot be written.
    """
    images = torch.from_numpy(data.test_images[:FOLLOWED])
    learner.net.eval()
    with torch.trace(f"Flambeau: {FOLLOWED} digits on their way through the network") as trace, torch.no_grad():
        there = images.to(learner.images.device)
        learner.net(there).argmax(dim=1).cpu()
    trace.training.append(progress)
    trace.models.append(torch.trace_model(learner.net, there, title="The network, layer by layer"))
    try:
        return os.path.abspath(trace.save(PAGE))
    except OSError:
        return trace.save(os.path.join(tempfile.mkdtemp(prefix="flambeau-"), PAGE))


def examples(seen: NDArray[np.int64], truth: NDArray[np.int64]) -> list[int]:
    """Which test images to draw: a few that were seen wrongly, if any, then others spread over the test set."""
    wrong = [i for i in range(len(truth)) if seen[i] != truth[i]][:MISTAKES_SHOWN]
    spread = [i for i in range(7, len(truth), len(truth) // SHOWN) if i not in wrong]
    return (spread[: SHOWN - len(wrong)] + wrong)[:SHOWN]


def run(
    device: str | None = None,
    epochs: int = learn.EPOCHS,
    seed: int = 0,
    console: Console | None = None,
    page: bool = True,
) -> int:
    """The whole demo; `page`: write a page about it. Returns the exit status: 0, or 1 if a full training stays below 98 % on the held-out digits."""
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
    accuracy, progress = train(console, learner, data, epochs)

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
                  f"{epochs} epochs in {progress.seconds:.1f} s on {chosen}.")  # fmt: skip
    if page:
        where = write_page(learner, data, progress)
        console.print(f"A page with the epochs, the layers and the transfers: {where}", markup=False, soft_wrap=True)
    if epochs >= learn.EPOCHS and accuracy < GOAL:
        console.print(f"That is below {GOAL:.0%}, which this demo should reach: something is wrong.", style="bold red")
        return 1
    return 0
