"""The handwritten digits that the demo learns: 1,797 real images of 8 by 8 pixels (see DIGITS.md)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = Path(__file__).with_name("digits.csv.gz")
COUNT, SIDE = 1797, 8
HELD_OUT_EVERY = 5


class Digits(NamedTuple):
    """Images are float32 (N, 1, 8, 8) from 0 (white) to 1 (black); labels are int64 (N,) from 0 to 9."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def load(path: Path = FILE) -> Digits:
    """The digits in two parts that never change: of each digit, every fifth image is held out for testing.

    The file has its writers one after another, so a fifth taken so holds every writer and every digit. Raises
    ValueError if the file does not hold what it should.
    """
    import numpy as np

    with gzip.open(path, "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    if table.shape != (COUNT, SIDE * SIDE + 1):
        raise ValueError(f"{path}: {table.shape} numbers, expected {(COUNT, SIDE * SIDE + 1)}")
    pixels, labels = table[:, :-1], table[:, -1]
    if pixels.min() < 0 or pixels.max() > 16 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{path}: pixels must be 0 to 16 and labels 0 to 9")
    images = (pixels.reshape(-1, 1, SIDE, SIDE) / 16).astype(np.float32)
    held_out = np.zeros(COUNT, dtype=bool)
    for digit in range(10):
        held_out[np.flatnonzero(labels == digit)[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]] = True
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out])
