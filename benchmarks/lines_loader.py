"""Data loading: batches by worker processes."""

from __future__ import annotations

from typing import Any

from line import Line, Work

SAMPLES, BATCH, WORKERS = 2048, 64, 2
SHAPE = (3, 64, 64)


class Images:
    """Images in memory as a data set has them: an image and its class, normalised when asked for."""

    def __init__(self, lib: Any) -> None:
        self.images = lib.rand(SAMPLES, *SHAPE)
        self.classes = lib.arange(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return (self.images[i] - 0.5) * 2.0, i % 10


class Ready(Images):
    """Images that need no work, so that what is timed is collating and sending."""

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.images[i], self.classes[i]


def epoch(dataset: Any, workers: int = WORKERS) -> Any:
    def setup(lib: Any) -> Work:
        loader = lib.utils.data.DataLoader(dataset(lib), batch_size=BATCH, shuffle=True, num_workers=workers,
                                           persistent_workers=workers > 0)  # fmt: skip

        def work() -> None:
            for images, classes in loader:
                assert images.shape[0] == classes.shape[0]

        return work

    return setup


def start(lib: Any) -> Work:
    data = Ready(lib)

    def work() -> None:
        next(iter(lib.utils.data.DataLoader(data, batch_size=BATCH, num_workers=WORKERS)))

    return work


LINES = [
    Line("loader, 2 workers, 2,048 images of 3x64x64, batches of 64", 1.0, epoch(Ready)),
    Line("loader, 2 workers, the same, normalised by the workers", 1.0, epoch(Images)),
    Line("loader, no workers, the same images", 1.0, epoch(Ready, workers=0)),
    Line("loader, 2 workers started, first batch, ended", 1.0, start),
]  # fmt: skip
