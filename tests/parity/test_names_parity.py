"""The names that scripts use (those in bold in docs/names.md), with the parameters PyTorch's have: names, order, defaults.

What PyTorch's take is read from its signatures where they are Python's, and from its operators' schemas where they are not.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import flambeau

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]
EMPTY = inspect.Parameter.empty
PAGE = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
COMMON = re.findall(r"^\| \*\*`(torch\.[\w.]+)`\*\* \| here", PAGE, re.M)
# operators whose name differs from that of the function
OPERATORS = {"torch.linalg.": "linalg_", "torch.fft.": "fft_", "torch.special.": "special_"}
# parameters that are ours in another way: why
APART = {
    ("torch.Tensor.to", None): "three overloads, told in its docstring", ("torch.norm", "dtype"): "`out` is named",
    ("torch.nn.attention.flex_attention.BlockMask", None): "the blocks by rows alone: no kernel here asks for them by columns",
    ("torch.nn.attention.flex_attention.create_block_mask", "device"): "None stands for the default device",
    ("torch.Size", None): "a tuple's parameter has no name", ("torch.isin", None): "one name each for tensors and numbers",
    ("torch.normal", "input"): "the schema of an inner overload", ("torch.sparse_coo_tensor", "layout"): "inner",
    ("torch.Tensor.copy_", "other"): "the schema of an inner overload", ("torch.Tensor.uniform_", None): "`from` is a word of Python's",
    ("torch.searchsorted", None): "the schema's self", ("torch.Tensor.split", None): "the name of the method's other overload",
    ("torch.tensor_split", None): "one parameter stands for two overloads", ("torch.nn.functional.conv1d", "padding"): "two overloads",
    ("torch.nn.functional.conv2d", "padding"): "two overloads", ("torch.nn.functional.conv3d", "padding"): "two overloads",
    ("torch.hub.load_state_dict_from_url", "weights_only"): "nothing else is read here",
    ("torch.jit.ScriptModule", None): "left out; a Module here", ("torch.nn.init.normal", None): "the older name, which passes on what it gets",
    ("torch.nn.parallel.DistributedDataParallel", None): "one process; more come with a later milestone",
    ("torch.save", "pickle_module"): "None stands for pickle", ("torch.save", "_disable_byteorder_record"): "inner",
    ("torch.utils.checkpoint.checkpoint", "context_fn"): "None stands for no context",
    ("torch.utils.data.random_split", "generator"): "None stands for the default generator",
    ("torch.nn.TransformerEncoderLayer", "activation"): "the name of the function stands for it",
    ("torch.nn.TransformerDecoderLayer", "activation"): "the name of the function stands for it",
    ("torch.nn.Transformer", "activation"): "the name of the function stands for it",
}
# PyTorch's schema has an `out` that its Python functions do not take
NO_OUT = {f"torch.{n}" for n in """argsort bincount clone diag_embed empty_like flip full_like hann_window kaiser_window ones_like rand_like randn_like
 repeat_interleave roll sparse_coo_tensor std_mean unique_consecutive var_mean zeros_like nn.functional.linear""".split()}
# what only the compiler, a quantized or named tensor or a build of PyTorch takes
INNER = {"names", "_internal", "_stacklevel", "self", "out_dtype"}


def find(package, name: str):
    import importlib
    found = package
    for depth, part in enumerate(name.split(".")[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(package.__name__ + "." + ".".join(name.split(".")[1:depth]))
        found = getattr(found, part)
    return found


def schemas() -> dict:
    by: dict = {}
    for s in torch._C._jit_get_all_schemas():
        space, _, name = s.name.partition("::")
        if space == "aten" and s.arguments and not s.overload_name.startswith(("int", "float", "complex", "str", "bool", "t")) and (
                "Tensor" in str(s.returns[0].type if s.returns else "")):
            by.setdefault(name, []).append(s)
    return by


SCHEMAS = schemas()


def of_python(found, method: bool):
    """(name, default, keyword-only) of each parameter; None where Python cannot tell."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    if [p.kind for p in parameters] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return None
    if method and parameters:
        parameters = parameters[1:]
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [(star.get(p.kind, "") + p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in parameters]


def of_torch(name: str):
    """The overloads of a function of PyTorch."""
    found = find(torch, name)
    method = name.startswith("torch.Tensor.")
    if isinstance(found, property) or not callable(found) or inspect.isgetsetdescriptor(found):
        return []
    got = of_python(found, method)
    if got is not None:
        return [got]
    short = name.rpartition(".")[2]
    for start, prefix in OPERATORS.items():
        if name.startswith(start):
            short = prefix + short
    overloads = []
    for s in SCHEMAS.get(short, []):
        if any("Dimname" in str(a.type) or a.name == "dimname" for a in s.arguments) or "Dimname" in s.overload_name or "dimname" in s.overload_name:
            continue
        listed = []
        for i, a in enumerate(s.arguments):
            if a.name == "self" and i == 0:
                if method:
                    continue
                listed.append(("input", EMPTY, False))
            elif a.is_out:
                if not method and name not in NO_OUT and "out" not in [n for n, *_ in listed]:
                    listed.append(("out", None, True))
            else:
                listed.append((a.name, a.default_value if a.has_default_value() else EMPTY, a.kwarg_only))
        if not method or (s.arguments and s.arguments[0].name == "self"):
            overloads.append(listed)
    return overloads


def same(theirs, ours) -> bool:
    if theirs is EMPTY or theirs is None or ours is None:
        return True  # None here stands for what the overloads have between them
    if isinstance(theirs, list) and (not theirs or isinstance(ours, int) and set(theirs) == {ours}):
        return True  # one number for all axes
    if isinstance(theirs, (bool, int, float, str)) and isinstance(ours, (bool, int, float, str)):
        return theirs == ours
    return str(theirs).replace("torch.", "") == str(ours).replace("torch.", "") or type(theirs).__module__ != "builtins"


def differences(name: str) -> list[str]:
    ours = of_python(find(flambeau, name), name.startswith("torch.Tensor."))
    found = []
    if name.startswith("torch.utils.tensorboard."):
        pytest.importorskip("tensorboard")
    overloads = of_torch(name)
    if not overloads or (name, None) in APART:
        return []
    if ours is None:
        return ["ours tells nothing of its parameters"]
    mine = {n: d for n, d, _ in ours}
    stars = any(n.startswith("*") and not n.startswith("**") for n in mine)
    for overload in overloads:
        for n, default, _ in overload:
            n = n.lstrip("*") if n.startswith("*") else n
            if n in INNER or (name, n) in APART or (n in ("args", "kwargs") and f"*{n}" not in mine and f"**{n}" not in mine):
                continue
            if n not in mine and f"*{n}" not in mine and f"**{n}" not in mine and n + "_" not in mine:
                found.append(f"no {n}")
            elif n in mine and not same(default, mine[n]):
                found.append(f"{n}={mine[n]!r}, not {default!r}")
    # in order: the parameters that may go without their name, of the overloads that ours has whole
    places = [n for n, _, keyword in ours if not keyword and not n.startswith("*")]
    orders = [[n for n, _, keyword in o if not keyword and not n.startswith("*")] for o in overloads]
    if not stars and orders and not any(o == places[:len(o)] for o in orders) and not any((name, n) in APART for n in orders[0]):
        found.append(f"order {places}, not {orders[0]}")
    return sorted(set(found))


@pytest.mark.parametrize("name", COMMON)
def test_parameters_are_pytorchs(name: str) -> None:
    assert differences(name) == []
