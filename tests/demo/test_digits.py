"""The digits and their split."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from flambeau.demo import digits


def test_shapes_types_and_range() -> None:
    data = digits.load()
    assert data.train_images.shape == (1442, 1, 8, 8) and data.test_images.shape == (355, 1, 8, 8)
    assert data.train_images.dtype == np.float32 and data.train_labels.dtype == np.int64
    assert data.train_images.min() == 0.0 and data.train_images.max() == 1.0
    assert len(data.train_labels) == 1442 and len(data.test_labels) == 355


def test_the_held_out_fifth_never_changes_and_holds_every_digit_alike() -> None:
    a, b = digits.load(), digits.load()
    assert np.array_equal(a.test_images, b.test_images)
    counts = np.bincount(a.test_labels, minlength=10)
    assert counts.min() >= 34 and counts.max() <= 36
    assert int(a.test_labels[:10].sum()) == int(b.test_labels[:10].sum())


def test_no_image_is_in_both_parts_by_place() -> None:
    """Every line of the file is in exactly one part: the pixel sums add up to the file's."""
    data = digits.load()
    with gzip.open(digits.FILE, "rt") as lines:
        total = np.loadtxt(lines, delimiter=",")[:, :-1].sum()
    assert (data.train_images.sum(dtype=np.float64) + data.test_images.sum(dtype=np.float64)) * 16 == total


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("1," * 64 + "1\n", "expected"), ("17," * 64 + "1\n", "pixels"), ("1," * 64 + "10\n", "labels")],
)
def test_a_file_that_is_not_the_digits_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "other.csv.gz"
    with gzip.open(path, "wt") as out:
        out.write(line * (3 if complaint == "expected" else digits.COUNT))
    with pytest.raises(ValueError, match=complaint):
        digits.load(path)
