"""PyTorch's operator database, asked of both libraries."""

from __future__ import annotations

import itertools

import numpy as np
import torch

import flambeau as fb

# samples are called otherwise than the function is named
OWN = {
    "where": lambda x, condition, other: fb.where(condition, x, other), "einsum": lambda tensors, equation: fb.einsum(equation, tensors),
    "nn.functional.embedding": lambda weight, idx, **kw: fb.nn.functional.embedding(idx, weight, **kw),
    "linalg.lstsq": lambda *a, **kw: tuple(fb.linalg.lstsq(*a, **kw))[:2],
    "T": lambda x: x.T, "H": lambda x: x.H, "mT": lambda x: x.mT, "mH": lambda x: x.mH,
    "double": lambda x, **kw: x.double(**kw), "cdouble": lambda x, **kw: x.cdouble(**kw),
    "__rdiv__": lambda x, o: o / x, "__rpow__": lambda x, o: o ** x, "__rmod__": lambda x, o: o % x, "__rsub__": lambda x, o: o - x,
}


def resolve(name):
    """Our function of an operator's name; None: not here."""
    found = fb
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return getattr(fb.Tensor, name, None)
    return found


def called(op):
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


def each(x, change):
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, (tuple, list)) and type(x) is not torch.Size:
        return type(x)(each(y, change) for y in x)
    if isinstance(x, dict):
        return {k: each(v, change) for k, v in x.items()}
    return x


def translated(x, tensor):
    """PyTorch's arguments as ours; tensor: makes ours of one of its tensors."""
    if isinstance(x, torch.Tensor):
        return tensor(x)
    if isinstance(x, torch.Size):
        return fb.Size(x)
    if isinstance(x, (torch.dtype, torch.memory_format, torch.layout)):
        return getattr(fb, str(x).rpartition(".")[2])
    if isinstance(x, torch.device):
        return fb.device(str(x))
    if isinstance(x, (tuple, list)):
        return type(x)(translated(y, tensor) for y in x)
    if isinstance(x, dict):
        return {k: translated(v, tensor) for k, v in x.items()}
    return x


def mine(t):
    t = t.detach().resolve_conj().resolve_neg()
    return fb.from_numpy(np.ascontiguousarray(t.numpy())) if t.ndim else fb.tensor(t.item(), dtype=getattr(fb, str(t.dtype).rpartition(".")[2]))


def outputs(x):
    if isinstance(x, (torch.Tensor, fb.Tensor)):
        return [x]
    if isinstance(x, (tuple, list)):
        return list(itertools.chain.from_iterable(outputs(y) for y in x))
    return []
