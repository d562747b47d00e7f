"""The API pages: every public name is on one, with a signature and words about it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("api_pages", ROOT / "tools" / "api_pages.py")
assert spec is not None and spec.loader is not None
api_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api_pages)


@pytest.mark.parametrize("title, space, about", api_pages.PAGES)
def test_every_public_name_has_a_docstring(title, space, about):
    text, count, bare = api_pages.page(title, space, about)
    assert bare == [] and count > 0
    assert text.startswith("# torch") and text.count("\n## ") == count


def test_signatures_are_told():
    names = dict(api_pages.members(api_pages.resolve(""), ""))
    assert api_pages.signature("add", names["add"]).startswith("add(input: Any, other: Any, *, alpha: Any = 1, out: Any = None)")
    assert api_pages.signature("zeros", names["zeros"]).startswith("zeros(*size, out=None, dtype=None")
    opaque = [n for n, v in names.items() if callable(v) and not isinstance(v, type) and api_pages.signature(n, v) in (f"{n}(*args, **kwargs)", f"{n}(...)")]
    assert opaque == []


def test_docstrings_of_operations_say_more_than_their_name():
    names = dict(api_pages.members(api_pages.resolve(""), ""))
    said = {n: api_pages.text_of(v) for n, v in names.items() if callable(v)}
    assert [n for n, text in said.items() if len(re.sub(r"\W", "", text)) < 8] == []


def test_defaults_stand_as_python_has_them():
    names = dict(api_pages.members(api_pages.resolve("nn"), "nn"))
    told = api_pages.signature("Conv2d", names["Conv2d"])
    assert "padding_mode: str = 'zeros'" in told and "'str'" not in told and "bias: bool = True" in told
    functions = dict(api_pages.members(api_pages.resolve("nn.functional"), "nn.functional"))
    assert "reduction: str = 'mean'" in api_pages.signature("mse_loss", functions["mse_loss"])
