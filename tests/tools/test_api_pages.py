"""The API pages: every public name is on one, with a signature and words about it."""

from __future__ import annotations

import importlib.util
import inspect
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


def test_each_name_of_pytorchs_that_is_here_is_on_its_page():
    """By docs/names.md, where there is a page of its namespace; what Python's own modules have is Python's to tell of."""
    here: dict[str, set[str]] = {space: set() for _, space, _ in api_pages.PAGES}
    for found in re.finditer(r"^\| `torch\.([\w.]+)` \| here \|", (ROOT / "docs" / "names.md").read_text("utf-8"), re.MULTILINE):
        space, _, name = found[1].rpartition(".")
        here.setdefault(space, set()).add(name)
    missing, looked = [], 0
    for _, space, _ in api_pages.PAGES:
        owner = api_pages.resolve(space)
        told = {name for name, _ in api_pages.members(owner, space)}
        for name in sorted(here[space] - set(getattr(owner, "_ELSEWHERE", ()))):  # without what PyTorch's module has from its others
            value = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else getattr(owner, name, None)
            if inspect.isfunction(value) and str(value.__module__).startswith("flambeau"):
                looked += 1
                if name not in told:
                    missing.append(f"{space}.{name}")
    assert looked > 1300 and missing == []
    functions: dict[str, object] = {}
    exec("from flambeau.nn.functional import *", functions)  # as many programs say
    assert {"relu", "cross_entropy", "scaled_dot_product_attention", "tanh", "conv2d"} <= set(functions)


def test_signatures_are_told():
    names = dict(api_pages.members(api_pages.resolve(""), ""))
    assert api_pages.signature("add", names["add"]).startswith("add(input: Any, other: Any, *, alpha: Any = 1, out: Any = None)")
    assert api_pages.signature("zeros", names["zeros"]).startswith("zeros(*size, dtype=None, layout=None, device=None")
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
