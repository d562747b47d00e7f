"""Annotations of what programs see can be evaluated: libraries ask `typing.get_type_hints` of classes that derive from ours, and of constructors."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import flambeau as torch

MODULES = ("nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "optim", "optim.lr_scheduler", "data", "utils.data", "distributions",
           "autograd", "fx", "cuda", "func", "vision.models", "vision.transforms")


def _shown(module):
    """The classes and functions of a module that are ours, with the constructors of the classes; names that are served at first use too."""
    for name in sorted({*dir(module), *getattr(module, "__all__", ())}):
        found = getattr(module, name)
        if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__.startswith("flambeau") and not name.startswith("_"):
            yield name, found
            made = vars(found).get("__init__") if inspect.isclass(found) else None
            if inspect.isfunction(made):
                yield f"{name}.__init__", made


@pytest.mark.parametrize("name", MODULES)
def test_hints_of_what_a_module_shows_can_be_read(name):
    unread = {}
    for shown, found in _shown(importlib.import_module(f"flambeau.{name}")):
        try:
            typing.get_type_hints(found)
        except (NameError, TypeError, AttributeError) as error:
            unread[shown] = str(error)
    assert set(unread) <= {"Node.__init__"}, unread  # which names the Graph that is made of it


def test_hints_of_classes_derived_from_ours():
    class Net(torch.nn.Module):
        config: dict[str, int]

    class Marked(torch.Tensor):
        mark: int

    assert typing.get_type_hints(Net)["config"] == dict[str, int] and typing.get_type_hints(Marked)["mark"] is int
    for kind in (torch.Tensor, torch.dtype, torch.device, torch.Size, torch.Generator, torch.nn.Parameter, torch.cuda.Stream):
        typing.get_type_hints(kind)


def test_what_is_served_at_first_use_is_told_by_dir():
    """By which notebooks complete names, and Python says what a misspelt one may have meant."""
    here: dict[str, set[str]] = {}
    for found in re.finditer(r"^\| `torch((?:\.\w+)*)\.(\w+)` \| here \|", (Path(__file__).parents[1] / "docs" / "names.md").read_text("utf-8"), re.MULTILINE):
        here.setdefault(found[1], set()).add(found[2])
    unsaid = {}
    for space, names in here.items():
        if importlib.util.find_spec(f"flambeau{space}") is None if space != ".Tensor" else True:
            continue
        module = importlib.import_module(f"flambeau{space}")
        missing = sorted((names | set(getattr(module, "__all__", ()))) - set(dir(module)) - {"Storage"})
        if missing:
            unsaid[space] = missing
    assert len(here) > 30 and unsaid == {}
    code = "import flambeau as torch\nimport flambeau.distributions\ntorch.distributions.Norml"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert made.stderr.rstrip().endswith("module 'flambeau.distributions' has no attribute 'Norml'. Did you mean: 'Normal'?")
