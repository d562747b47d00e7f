"""What a notebook shows of a tensor."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import flambeau as fb


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def shown(t):
    text = t._repr_html_()
    page = Balanced()
    page.feed(text)
    assert not page.open
    return text, page.cells


def test_a_matrix_is_a_table():
    text, cells = shown(fb.arange(6.0).reshape(2, 3).requires_grad_())
    assert cells == ["0", "1", "2", "3", "4", "5"]
    assert "shape (2, 3), float32, cpu, a leaf that requires grad" in text


@pytest.mark.parametrize("shape, count", [((), 1), ((3,), 3), ((12, 12), 144), ((13, 2), 21), ((1, 13), 11), ((100, 100), 111)])
def test_long_axes_are_shortened(shape, count):
    t = fb.arange(fb.Size(shape).numel()).reshape(shape)
    _, cells = shown(t)
    assert len(cells) == count
    numbers = [int(c) for c in cells if re.fullmatch(r"\d+", c)]
    assert numbers[0] == 0 and numbers[-1] == t.numel() - 1


def test_other_kinds():
    assert "shape (0, 3)" in shown(fb.ones(0, 3))[0]
    assert "<pre>" in shown(fb.ones(2, 2, 2))[0]
    assert shown(fb.tensor([True, False]))[1] == ["True", "False"]
    assert shown(fb.tensor([1 + 2j]))[1] == ["1+2j"]
    assert shown(fb.tensor([float("nan"), float("inf")]))[1] == ["nan", "inf"]
    assert shown(fb.tensor([1.5], dtype=fb.bfloat16))[1] == ["1.5"]
    assert "with a history" in shown(fb.ones(2, requires_grad=True) * 2)[0]


def test_a_gpu(sim_gpus):
    text, cells = shown(fb.arange(3, device="cuda"))
    assert "cuda:0" in text and cells == ["0", "1", "2"]
