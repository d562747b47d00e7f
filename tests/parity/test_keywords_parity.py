"""Each parameter that PyTorch's own signatures name may be named here: `x.reshape(shape=…)`, `torch.hsplit(x, sections=2)`, `x.addmm_(mat1=…, mat2=…)`."""

from __future__ import annotations

import torch

import flambeau as fb  # noqa: F401 (fills the table)
from flambeau._core.engine import fronts
from flambeau._core.ops.table import TABLE

ONLY_IN_SCRIPTS = {("einsum", "a"), ("polar", "a")}  # overloads of TorchScript's


def _operations():
    for row in TABLE.values():
        for name, function, shown in ((row.name, row.function, row.method or "torch" in row.spaces), (row.name + "_", row.inplace, True)):
            if function is not None and shown:
                yield name, function.__operation__.started()


def test_parameters_have_pytorch_s_names():
    unknown, asked = set(), 0
    for name, operation in _operations():
        signature = operation.signature
        known = {*signature.names(), signature.listed(), "out"}
        for schema in torch._C._jit_get_schemas_for_operator("aten::" + name):
            if signature.more is not None or any("Dimname" in str(a.type) for a in schema.arguments):
                continue
            for a in schema.arguments:
                if a.name not in ("self", "names") and not a.is_out:
                    asked += 1
                    if not {a.name, fronts.OTHER_NAMES.get(a.name)} & known:
                        unknown.add((name, a.name))
    assert unknown <= ONLY_IN_SCRIPTS and asked > 2500, unknown
