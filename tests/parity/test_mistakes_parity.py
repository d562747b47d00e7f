"""The beginner's mistakes of tests/test_mistakes.py, made with PyTorch too: the same class of error, and each word and number that PyTorch's message has."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tests.test_mistakes as ours

torch = pytest.importorskip("torch")

# words of PyTorch's message that ours has not, and what it says in their place
OTHERWISE = {
    "torch.ones(2).new('abc')": ({"invalid", "type"}, "which kinds of data are taken"),
    "torch.from_numpy(np.array([object()]))": ({"numpy", "object_"}, "object"),
    "torch.zeros(2, device='gpu')": ({"ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "lazy", "vulkan", "mps", "hpu", "mtia",
                                      "privateuseone"}, "the devices that there are here"),
    "torch.zeros(-1)": ({"zeros", "size", "must", "non", "Dimension"}, "which dimension is negative, and all sizes"),
    "overwritten()": ({"Exp", "check_nan", "False"}, "ExpBackward0, by which grad_fn calls it"),
    "nn.Sequential(nn.Linear(2, 2), torch.relu)": ({"_VariableFunctionsClass"}, "torch.relu, by which programs know it"),
    "nn.Sequential(nn.Linear(2, 2), nn.ReLU)": ({"modules"}, "torch.nn.activation"),
    "nn.Embedding(3, 2)(torch.tensor([3]))": ({"range", "self"}, "the index, the dimension and its size"),
}


def words(text: str) -> set[str]:
    return {w for w in re.findall(r"\w+", text) if len(w) > 2 or w.isdigit()}


def facts(text: str) -> set[str]:
    """The words of a message.  One that lists all forms of a call says of this one the function, and what came besides what is right in some form."""
    listed = re.match(r"(\w+)\(\) received an invalid combination of arguments - got \((.*)\), but expected one of:", text)
    return words(text) if listed is None else {listed[1], *words(listed[2])} - {"int", "Tensor"}


def told(code: str, names: dict[str, Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        eval(code, names)
    return caught.value


# a fault of a GPU has no counterpart without one
@pytest.mark.parametrize("code", [code for code, gpu, _, _ in ours.MISTAKES if not gpu])
def test_a_message_tells_what_pytorchs_tells(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = vars(ours) | {"np": np}
    mine = told(code, names)
    for name, value in (("torch", torch), ("nn", torch.nn), ("F", torch.nn.functional)):
        monkeypatch.setattr(ours, name, value)
    theirs = told(code, vars(ours) | {"np": np})
    assert type(mine).__name__ == type(theirs).__name__, str(theirs)
    missing = facts(str(theirs)) - words(str(mine)) - OTHERWISE.get(code, (set(), ""))[0]
    assert missing == set(), f"PyTorch: {theirs}\nhere: {mine}"


def test_what_is_said_otherwise_is_a_mistake_of_the_table() -> None:
    assert OTHERWISE.keys() <= {code for code, *_ in ours.MISTAKES}
