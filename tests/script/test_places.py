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
    ("torch._functorch.vmap", "vmap", "flambeau.func"), ("torch._functorch.eager_transforms", "vjp", "flambeau.func"),
    ("torch._vmap_internals", "vmap", "flambeau.func"), ("torch._lowrank", "svd_lowrank", "flambeau"), ("torch.optim._muon", "Muon", "flambeau.optim"),
    ("torch.nn.utils.weight_norm", "WeightNorm", "flambeau.nn.utils.weight_norms"),
    ("torch.multiprocessing.spawn", "ProcessRaisedException", "flambeau.multiprocessing"),
    ("torch.utils.data._utils.worker", "WorkerInfo", "flambeau.data.workers"),
    ("torch.utils.data._utils.pin_memory", "pin_memory", "flambeau.data.pinning:pin"),
    ("torch.utils._contextlib", "_DecoratorContextManager", "flambeau._core.autograd.mode:DecoratorContextManager"),
    ("torch.cuda.amp.common", "amp_definitely_not_available", "flambeau.cuda.amp"), ("torch.nn.parallel.comm", "reduce_add", "flambeau.cuda.comm"),
    ("torch.jit._script", "ScriptModule", "flambeau.jit"),
    ("torch._C._nn", "_parse_to", "flambeau.nn.conversion:parse_to"), ("torch._dynamo.eval_frame", "OptimizedModule", "flambeau._dynamo"),
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


def test_functions_that_share_a_modules_name(tmp_path) -> None:
    code = """import flambeau.as_torch, torch
import torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm, torch.multiprocessing.spawn
from torch.nn.utils.weight_norm import WeightNorm
assert all(type(f).__name__ == "function" for f in (torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm, torch.multiprocessing.spawn))
print("all")"""
    assert run(tmp_path, code).stdout == "all\n"


def test_modules_of_flambeaus_own_are_not_torchs(tmp_path) -> None:
    code = """import flambeau.as_torch, torch, torch.utils.data, torchvision.ops, flambeau.data
for name in ("data", "vision", "interop", "nn.module", "nn.linear"):
    try:
        __import__("torch." + name)
    except ModuleNotFoundError as error:
        assert error.name == "torch." + name
    else:
        raise AssertionError(name)
assert not hasattr(torch, "vision") and "vision" not in dir(torch) and not {"data", "simulated"} & {*torch.__all__}
for module, told in ((torch.nn.modules.conv, "torch.nn.modules.conv"), (torch.utils.data, "torch.utils.data"), (torchvision.ops, "torchvision.ops")):
    try:
        module.nothing
    except AttributeError as error:
        assert f"module '{told}' has no attribute 'nothing'" in str(error), error
print("all")"""
    assert run(tmp_path, code).stdout == "all\n"


def test_functorchs_own_package(tmp_path) -> None:
    code = """import flambeau.as_torch, torch, functorch
from functorch import make_functional, make_functional_with_buffers, combine_state_for_ensemble, vmap, grad
net = torch.nn.Linear(2, 3)
f, params = make_functional(net)
x = torch.ones(4, 2)
assert torch.equal(f(params, x), net(x)) and f([torch.zeros(3, 2), torch.ones(3)], x).tolist() == [[1.0] * 3] * 4 and params[0] is not net.weight
assert len(grad(lambda p: f(p, x).sum())(params)) == 2
normed = torch.nn.BatchNorm1d(2).eval()
try:
    make_functional(normed)
except RuntimeError as error:
    assert "has buffers" in str(error)
f, params, buffers = make_functional_with_buffers(normed, disable_autograd_tracking=True)
assert torch.equal(f(params, buffers, x), normed(x)) and not params[0].requires_grad and len(buffers) == 3
nets = [torch.nn.Linear(2, 3) for _ in range(5)]
f, params, buffers = combine_state_for_ensemble(nets)
assert torch.allclose(vmap(f, in_dims=(0, 0, None))(params, buffers, x), torch.stack([n(x) for n in nets]))
assert not hasattr(torch, "functorch") and torch.is_tensor(x) and isinstance(x.untyped_storage(), torch.StorageBase)
assert not torch._C._is_torch_function_mode_enabled() and torch._C._is_alias_of(x, x[1:]) and {torch.qint8: 1}[torch.qint8] == 1
from torch.overrides import TorchFunctionMode
with TorchFunctionMode():
    assert torch._C._is_torch_function_mode_enabled()
from torch.nn.modules.padding import _ConstantPadNd, _ReflectionPadNd, _ReplicationPadNd, _CircularPadNd, _size_4_t
from torch.nn.modules.conv import _size_2_t
from torch.nn.modules.pooling import _ratio_3_t
from torch.nn.modules.transformer import _detect_is_causal_mask, _generate_square_subsequent_mask, _get_seq_len
assert _detect_is_causal_mask(_generate_square_subsequent_mask(3)) and _get_seq_len(torch.ones(2, 5, 4), True) == 5
assert isinstance(torch.nn.ZeroPad2d(1), torch.nn.ConstantPad2d) and issubclass(torch.nn.ReflectionPad3d, _ReflectionPadNd)
assert not isinstance(x, torch.fx._symbolic_trace.ScriptObject)
from torch.nn.modules.module import _global_parameter_registration_hooks as table
handle = torch.nn.modules.module.register_module_parameter_registration_hook(lambda *args: None)
assert len(table) == 1
handle.remove()
assert not table
print("all")"""
    assert run(tmp_path, code).stdout == "all\n"


def test_modules_that_are_left_out_are_imported_and_say_so(tmp_path) -> None:
    code = """import flambeau.as_torch, torch
from torch.ao import quantization
from torch.ao.quantization import QuantStub, prepare
assert torch.ao.quantization is quantization
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, load
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
import torch.ao.nn.quantized, torch.onnx.symbolic_helper, torch.nested
class Mode(TorchDispatchMode): pass
for call in (QuantStub, lambda: prepare(1), lambda: load("x"), Mode, lambda: torch.nested.nested_tensor([1])):
    try:
        call()
    except NotImplementedError as error:
        assert "torch." in str(error), error
    else:
        raise AssertionError(call)
assert CUDA_HOME is None and not isinstance(torch.ones(1), QuantStub) and not is_traceable_wrapper_subclass(torch.ones(1))
assert not hasattr(torch.ao.nn.quantized, "Linear") and torch._guards.detect_fake_mode() is None
print("all")"""
    assert run(tmp_path, code).stdout == "all\n"


@pytest.mark.parametrize("module", sorted({*places.MOVED.values()} | {m for near in places.NEAR.values() for m in near}))
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
