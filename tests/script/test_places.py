"""Inner paths that libraries import by: each gives the thing itself, not another of its name."""

from __future__ import annotations

import importlib

import pytest

import flambeau
from flambeau.script import places

from .test_run import run

# (module of PyTorch's, name in it, where it is here)
IMPORTED = [
    ("torch.nn.modules.module", "_IncompatibleKeys", "flambeau.nn.state"), ("torch.nn.modules.module", "_EXTRA_STATE_KEY_SUFFIX", "flambeau.nn.state"),
    ("torch.nn.modules.conv", "_pair", "flambeau.nn.sizes"), ("torch.nn.modules.adaptive", "AdaptiveLogSoftmaxWithLoss", "flambeau.nn"),
    ("torch.nn.modules.pooling", "FractionalMaxPool2d", "flambeau.nn"), ("torch.nn.modules.transformer", "_get_activation_fn", "flambeau.nn.transformer"),
    ("torch.nn.modules.loss", "Tensor", "flambeau"), ("torch.optim.adamax", "Adamax", "flambeau.optim"), ("torch.optim.adamw", "AdamW", "flambeau.optim"),
    ("torch.optim.sgd", "Optimizer", "flambeau.optim"), ("torch.optim.optimizer", "_use_grad_for_differentiable", "flambeau.optim.optimizer"),
    ("torch.nn.parallel.scatter_gather", "scatter", "flambeau.nn.parallel"), ("torch.nn.parallel.parallel_apply", "parallel_apply", "flambeau.nn.parallel"),
    ("torch.distributed.nn.functional", "all_gather", "flambeau.distributed.nn"), ("torch.distributions.transforms", "Tensor", "flambeau"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter", "flambeau.utils.data.dataloader"),
    ("torch.distributions.utils", "_standard_normal", "flambeau.distributions.utils"), ("torch.jit", "_overload", "flambeau.jit"),
    ("torch._C._nn", "_parse_to", "flambeau.nn.moves:parse_to"), ("torch._dynamo.eval_frame", "OptimizedModule", "flambeau._dynamo"),
]


def test_names_of_inner_modules(tmp_path) -> None:
    lines = ["import importlib, flambeau.as_torch"]
    for module, name, place in IMPORTED:
        where, _, other = place.partition(":")
        lines.append(f"from {module} import {name} as found")
        lines.append(f"assert found is importlib.import_module({where!r}).{other or name}, {(module, name)!r}")
    lines += ["import torch.nn.parallel.replicate, torch, torch.torch", "assert callable(torch.nn.parallel.replicate)",
              "assert torch.nn.parallel.scatter_gather.scatter and torch.torch.Tensor is torch.Tensor", "print('all')"]
    assert run(tmp_path, "\n".join(lines)).stdout == "all\n"


@pytest.mark.parametrize("module", sorted({*places.MOVED.values()} - {"flambeau.cuda.comm"} | {m for near in places.NEAR.values() for m in near}))
def test_each_place_exists(module: str) -> None:
    assert importlib.import_module(module) is not None


def test_what_a_library_swallowed_is_told(tmp_path) -> None:
    made = run(tmp_path, """
        def load():
            try:
                from torch.nn import NoSuchLayer
            except ImportError as error:
                raise RuntimeError("Could not import module 'Model'") from error
        load()
    """, check=False)
    last = made.stderr.strip().splitlines()[-1]
    assert "NoSuchLayer" in last and "script.py:4" in last and "first cause" in last
    made = run(tmp_path, """
        from torch.distributed.rpc import RRef
        def load():
            try:
                RRef(1)
            except Exception as error:
                raise ValueError("nothing to see") from None
        load()
    """, check=False)
    assert "RRef: this kind of work over several processes" in made.stderr.strip().splitlines()[-1]


def test_version_is_the_same_by_both_ways() -> None:
    from flambeau.script import VERSION, packages
    assert packages.VERSIONS["torch"] == str(VERSION) and flambeau.__version__ != str(VERSION)
