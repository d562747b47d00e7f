"""What a notebook shows of a tensor."""

from __future__ import annotations

import html
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


def test_what_has_no_rows_of_values_is_told_as_text():
    for t in (fb.eye(3).to_sparse(), fb.eye(3).to_sparse_csr(), fb.empty(3, 3, device="meta"), fb.eye(4).to_sparse_bsr((2, 2))):
        text, cells = shown(t)
        assert f"<pre>{html.escape(repr(t))}</pre>" in text and cells == []
    assert shown(fb.conj(fb.tensor([1 + 2j])))[1] == ["1-2j"]
    assert shown(fb.conj(fb.tensor([1 + 2j])).imag)[1] == ["-2"]
    assert fb.nn.parameter.UninitializedParameter()._repr_html_() == "&lt;UninitializedParameter&gt;"


def test_a_lazy_module_before_its_first_call():
    text = fb.nn.Sequential(fb.nn.LazyLinear(3), fb.nn.Linear(2, 2))._repr_html_()
    assert "weight of no shape yet, bias of no shape yet" in text and "6 numbers in parameters" in text


def test_a_gpu(sim_gpus):
    text, cells = shown(fb.arange(3, device="cuda"))
    assert "cuda:0" in text and cells == ["0", "1", "2"]


def test_a_module_is_a_table_of_its_parts():
    tied = fb.nn.Linear(4, 4)
    model = fb.nn.Sequential(fb.nn.Sequential(tied, fb.nn.Dropout(0.5)), fb.nn.ReLU(), tied)
    text, cells = shown(model.eval())
    assert "<b>Sequential</b>" in text and "20 numbers in parameters, mode: evaluation" in text
    rows = [cells[i:i + 6] for i in range(0, len(cells), 6)]
    assert [r[0].replace("\xa0", "") for r in rows] == ["(all)", "0", "0.0", "0.1", "1"]
    assert rows[2][1:] == ["Linear", "in_features=4, out_features=4, bias=True", "weight (4, 4), bias (4,)", "20", "cpu"]
    assert rows[3][2] == "p=0.5, inplace=False" and rows[4][4] == ""

    class Odd(fb.nn.Module):
        def extra_repr(self):
            return "<script>"
    assert "<script>" not in Odd()._repr_html_() and "&lt;script&gt;" in Odd()._repr_html_()


def test_transfers_are_a_table_with_their_findings():
    with fb.simulate(gpus=1):
        with fb.transfers(show=False, title="a <title>") as moved:
            x = fb.ones(4)
            for _ in range(4):
                x.to("cuda")
        text, cells = shown(moved)
    assert "a &lt;title&gt;" in text and "<li><b>hoist</b>" in text
    assert cells[1] == "h2d" and cells[2] == "cpu to cuda:0" and cells[4:6] == ["4", "64 B"]
    with fb.transfers(show=False) as nothing:
        pass
    assert "Nothing moved between devices." in shown(nothing)[0]


def test_a_trace_is_its_page_in_a_frame():
    with fb.trace("a <trace>") as t:
        fb.ones(3) + 1
        assert t._repr_html_().startswith("&lt;flambeau.trace")
    text = t._repr_html_()
    page = Balanced()
    page.feed(text)
    assert page.open == [] and text.count("<") == 2 and text.startswith('<iframe title="a &lt;trace&gt;" srcdoc="&lt;!')
