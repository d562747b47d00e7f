"""The examples of the names used most: each runs, there is one for each of the 200, and the API pages show them."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import flambeau as torch

ROOT = Path(__file__).resolve().parent.parent
USED = ROOT.parent / "shared" / "api_frequency.tsv"
spec = importlib.util.spec_from_file_location("api_pages", ROOT / "tools" / "api_pages.py")
assert spec is not None and spec.loader is not None
api_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api_pages)
EXAMPLES = api_pages.examples()


@pytest.mark.parametrize("names", list(dict.fromkeys(map(tuple, (e.names for e in EXAMPLES.values())))), ids=lambda n: n[0])
def test_an_example_runs(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    example = EXAMPLES[names[0]]
    for at in ("torch", "torch.distributed"):  # as under `flambeau run`
        monkeypatch.setitem(sys.modules, at, torch if at == "torch" else torch.distributed)
    torch.manual_seed(1)
    exec(compile("\n" * example.line + example.code, str(api_pages.EXAMPLES), "exec"), {"torch": torch, "__name__": "__main__"})
    for name in names:  # the example says each of its names
        last = name.removesuffix(" (assigned)").rpartition(".")[2]
        assert re.search(rf"\b{re.escape(last)}\b", example.code), name


def test_each_of_the_200_names_used_most_has_one() -> None:
    assert len(EXAMPLES) >= 200
    if not USED.is_file():
        pytest.skip("the table of names is not beside this checkout")
    with USED.open(encoding="utf-8", newline="") as rows:
        most = [row["qualified name"] for row in csv.DictReader(rows, delimiter="\t")][:200]
    assert [name for name in most if name not in EXAMPLES] == []


def test_the_pages_show_them() -> None:
    shown = api_pages.page("nn", "nn", "")[0]
    assert 'layer = torch.nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)' in shown.partition("\n## Conv2d\n")[2].partition("\n## ")[0]
    assert "x.flatten" in api_pages.page("tensor", "Tensor", "")[0] or "flatten(1)" in api_pages.page("tensor", "Tensor", "")[0]
