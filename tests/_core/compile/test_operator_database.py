"""Samples of PyTorch's operator database through `compile`: function, method, in place and gradient give to the bit what they give without it.

The samples are those of `tools/conformance.py --check`; nothing of PyTorch's answers is needed, as the oracle is the eager call.
"""

from __future__ import annotations

import io
import json
import lzma
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch

_ANSWERS = Path(__file__).parents[2] / "conformance" / "answers.xz"
_CALLS = 6  # of each: eager, recorded, on trial, replayed
_PARTS = 10  # one operation in so many is tried here
_UNFILLED = ("empty", "resize")  # whose results are what memory holds


class _Spec:
    """What the instrument's classes hold, whichever they are."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state[1])


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module != "neutral":
            return super().find_class(module, name)
        return type(name, (_Spec,), {})


@cache
def _files() -> tuple[bytes, dict[str, tuple[int, int]]]:
    """All samples, and where each file is in them."""
    data = lzma.decompress(_ANSWERS.read_bytes())
    at = data.index(b"\n") + 1
    start = at + int(data[:at])
    places, end = {}, start
    for name, size in json.loads(data[at:start]).items():
        places[name] = end, end + size
        end += size
    return data, places


def operations() -> dict[str, Any]:
    data, places = _files()
    start, end = places["catalogue.json"]
    return json.loads(data[start:end])["ops"]


def cases(full: str, what: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is known of an operation, and its samples, in a type."""
    data, places = _files()
    found = places.get(f"{what}/{full}.pkl.z")
    return ({}, []) if found is None else _Unpickler(io.BytesIO(data[slice(*found)])).load()


def _tensor(x: Any, bases: dict[int, Any], grad: bool) -> Any:
    base = bases.setdefault(id(x.base), x.base.copy())
    made = torch.from_numpy(np.zeros(x.shape, base.dtype) if 0 in x.shape else np.lib.stride_tricks.as_strided(
        base[x.offset:], x.shape, [s * base.itemsize for s in x.strides]))
    # a tensor of the library's own memory, as programs have
    made = torch.empty_strided(x.shape, x.strides, dtype=getattr(torch, x.dtype)).copy_(made) if _own(x) else made.to(getattr(torch, x.dtype))
    made = made.conj() if x.conj else made
    return made.requires_grad_() if grad and x.rg and made.is_leaf else made


def _own(x: Any) -> bool:
    """Whether its elements lie apart."""
    return all(s > 0 for s, n in zip(x.strides, x.shape, strict=True) if n > 1) and len(set(x.strides)) == len(x.strides)


def built(tree: Any, bases: dict[int, Any], grad: bool) -> Any:
    """The arguments that a sample says. Raises LookupError for what is not plain."""
    if isinstance(tree, (tuple, list)):
        return type(tree)(built(x, bases, grad) for x in tree)
    if isinstance(tree, dict):
        return {k: built(v, bases, grad) for k, v in tree.items()}
    if isinstance(tree, slice):
        return slice(*[built(x, bases, grad) for x in (tree.start, tree.stop, tree.step)])
    if not isinstance(tree, _Spec):
        return tree
    if type(tree).__name__ == "TSpec" and tree.device == "cpu":
        return _tensor(tree, bases, grad)
    if type(tree).__name__ == "Ref":
        found = torch
        for part in tree.name.split("."):
            found = getattr(found, part)
        return torch.device("cpu") if tree.name == "cpu" else found
    raise LookupError(type(tree).__name__)


def _named(name: str) -> Any:
    for place in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.Tensor):
        found: Any = place
        for part in name.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return found
    raise LookupError(name)


def _function(f: Any) -> Any:
    def g(x: Any, args: Any, kwargs: Any) -> Any:
        return f(x, *args, **kwargs)
    return g


def _method(name: str) -> Any:
    def g(x: Any, args: Any, kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)
    return g


def _in_place(name: str) -> Any:
    def g(x: Any, args: Any, kwargs: Any) -> Any:
        y = x.clone()
        getattr(y, name)(*args, **kwargs)
        return y
    return g


def _gradient(f: Any) -> Any:
    def g(x: Any, args: Any, kwargs: Any) -> Any:
        made = f(x, *args, **kwargs)
        those = [y for y in (made if isinstance(made, (tuple, list)) else (made,)) if isinstance(y, torch.Tensor) and y.requires_grad]
        leaves = [y for y in (x, *args) if isinstance(y, torch.Tensor) and y.requires_grad]
        return torch.autograd.grad([y.abs().sum() for y in those], leaves, allow_unused=True)
    return g


def _forms(about: dict[str, Any], full: str, case: dict[str, Any]) -> dict[str, Any]:
    name = about["name"]
    if case["kind"] == "grad":
        return {"gradient": _gradient(_named(name))}
    forms = {"function": _function(_named(name))}
    if about.get("method") and hasattr(torch.Tensor, name):
        forms["method"] = _method(name)
    if about.get("inplace") and isinstance(case.get("inplace"), tuple) and case["inplace"][0] == "ok" and hasattr(torch.Tensor, name + "_"):
        forms["in place"] = _in_place(name + "_")
    return forms


def _bits(x: Any) -> Any:
    """What is compared of a result."""
    if isinstance(x, torch.Tensor):
        if not x.meta.plain or x.is_sparse:
            return repr(x)
        values = x.detach().resolve_conj().resolve_neg()
        values = values.float() if x.dtype is torch.bfloat16 else values
        return str(x.dtype), tuple(x.shape), tuple(x.stride()), x.requires_grad, np.nan_to_num(values.numpy()).tolist(), np.isnan(values.numpy()).tolist()
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [_bits(part) for part in x]
    return repr(x)


def _lived(g: Any, case: dict[str, Any], call: int) -> Any:
    """All that a call gives, leaves and changes."""
    x, args, kwargs = built(case["in"], {}, case["kind"] == "grad")
    if call % 2 and isinstance(x, torch.Tensor) and x.dtype.is_floating_point:  # other values, of the same signs
        x = x.detach().mul(0.75).requires_grad_(x.requires_grad)
    torch.manual_seed(case["seed"] % 1000 + call)
    try:
        made: Any = _bits(g(x, args, kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        made = type(error).__name__, str(error)
    return made, _bits([x, *args]), torch.rand(1).item()


def differences(full: str, what: str) -> tuple[list[str], int, int]:
    """Forms and calls of an operation that differ when compiled; how many forms there were, and of how many a record was kept."""
    about, those = cases(full, what)
    found, forms, kept = [], 0, 0
    for case in those:
        if case["kind"] not in ("fwd", "grad"):
            continue
        try:
            built(case["in"], {}, False)
            functions = _forms(about, full, case)
        except (LookupError, AttributeError):
            continue
        for form, g in functions.items():
            made = torch.compile(g)
            forms += 1
            for call in range(_CALLS):
                wanted, given = _lived(g, case, call), _lived(made, case, call)
                if wanted != given:
                    found.append(f"{full} {what} {form} sample {case['i']} call {call}: {str(given)[:200]} is not {str(wanted)[:200]}")
                    break
            kept += bool(made.__compiled__.records or any(k.trials for k in made.__compiled__.kinds.values()))
    return found, forms, kept


@pytest.mark.usefixtures("always_kept")
def test_samples_of_operations_are_theirs_when_compiled() -> None:
    found, forms, kept = [], 0, 0
    for full, info in list(operations().items())[::_PARTS]:
        if not info["name"].startswith(_UNFILLED) and info["group"] != "internal":
            wrong, asked, of = differences(full, info["default"])
            found, forms, kept = found + wrong, forms + asked, kept + of
    assert not found
    assert kept > forms / 2 > 50
