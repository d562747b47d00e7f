"""Digits drawn as text."""

from __future__ import annotations

import numpy as np

from flambeau.demo import show


def test_a_picture_has_two_characters_a_pixel() -> None:
    image = np.zeros((8, 8), dtype=np.float32)
    image[0, 0], image[7, 7], image[3, 3] = 1.0, 0.5, 0.26
    lines = show.picture(image)
    assert [len(line) for line in lines] == [16] * 8
    assert lines[0] == "██" + " " * 14 and lines[7] == " " * 14 + "▒▒" and lines[3][6:8] == "░░"
    assert show.picture(image, show.ASCII_SHADES)[0].startswith("@@")


def test_a_gallery_fits_the_width_and_marks_mistakes() -> None:
    images = [np.ones((8, 8), dtype=np.float32)] * 5
    text = show.gallery(images, [1, 2, 3, 4, 5], [1, 2, 3, 4, 6], width=60, ascii_only=True).plain
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("@" * 16) for line in lines) == 5 * 8
    assert text.count("WRONG") == 1 and "seen 5, is 6  WRONG" in text


def test_a_narrow_terminal_gets_one_picture_a_row() -> None:
    images = [np.zeros((8, 8), dtype=np.float32)] * 2
    text = show.gallery(images, [0, 1], [0, 1], width=5).plain
    assert text.count("seen") == 2 and len(text.splitlines()) == 2 * 10
