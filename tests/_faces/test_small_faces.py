"""Small parts of PyTorch's inner modules that libraries call."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau import _tensor_str, _utils
from flambeau._higher_order_ops import associative_scan
from flambeau._jit_internal import boolean_dispatch


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_combinations(n: int, reverse: bool, device) -> None:
    g = np.random.default_rng(n)
    a, b = g.uniform(0.5, 1, (2, n, 3)), g.standard_normal((2, n, 3))

    def combine(left, right):  # of x -> a x + b, one after the other
        return left[0] * right[0], right[0] * left[1] + right[1]
    got = associative_scan(combine, (torch.tensor(a, device=device), torch.tensor(b, device=device)), 1, reverse=reverse)[1].cpu().numpy()
    state, order = np.zeros((2, 3)), range(n)[::-1] if reverse else range(n)
    for i in order:
        state = a[:, i] * state + b[:, i]
        np.testing.assert_allclose(got[:, i], state, rtol=1e-10)


def test_scans_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        associative_scan(lambda a, b: a, [], 0)
    with pytest.raises(ValueError, match="different lengths"):
        associative_scan(lambda a, b: a, [torch.ones(2), torch.ones(3)], 0)


def test_a_branch(device) -> None:
    x = torch.ones(2, device=device)
    for pred in (True, torch.tensor(True, device=device), x[:1] > 0):
        assert torch.cond(pred, lambda x: x + 1, lambda x: x - 1, (x,)).tolist() == [2, 2]
    assert torch.cond(x.sum() > 5, lambda: 1, lambda: 2) == 2
    with pytest.raises(RuntimeError, match="Expected pred to be bool or single-element tensor"):
        torch.cond(x > 0, lambda: 1, lambda: 2)


def test_the_table_of_operations() -> None:
    from flambeau import _ops
    assert _ops.ops.aten.add(torch.ones(1), 2).item() == 3


def test_tensors_of_files() -> None:
    store = torch.arange(6.0).untyped_storage()
    made = torch._utils._rebuild_tensor_v3(store, 1, (2, 2), (2, 1), True, None, torch.float32)
    assert made.tolist() == [[1, 2], [3, 4]] and made.requires_grad
    assert isinstance(torch._utils._rebuild_parameter(made.detach(), False), torch.nn.Parameter)


def test_tensors_in_one(device) -> None:
    parts = [torch.arange(6.0, device=device).reshape(2, 3), torch.tensor(7.0, device=device), torch.ones(2, device=device)]
    flat = _utils._flatten_dense_tensors(parts)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7, 1, 1]
    back = _utils._unflatten_dense_tensors(flat, parts)
    assert all(torch.equal(p, q) for p, q in zip(back, parts)) and list(_utils._accumulate([1, 2, 3])) == [1, 3, 6]
    assert _utils._get_device_index("cpu", allow_cpu=True) == -1 and _utils._get_device_index(1) == 1
    with pytest.raises(ValueError, match="non cpu"):
        _utils._get_device_index("cpu")


def test_exceptions_of_others() -> None:
    for kind in (ValueError, KeyError):
        try:
            raise kind("gone")
        except kind:
            kept = _utils.ExceptionWrapper(where="in worker 3")
        with pytest.raises(kind, match="(?s)in worker 3.*gone"):
            kept.reraise()


def test_how_tensors_print() -> None:
    before = repr(torch.tensor([1 / 3]))
    with _tensor_str.printoptions(precision=2):
        assert repr(torch.tensor([1 / 3])) == "tensor([0.33])" and _tensor_str.PRINT_OPTS.precision == 2
    assert repr(torch.tensor([1 / 3])) == before and _tensor_str.PRINT_OPTS.threshold == 1000
    with pytest.raises(AttributeError, match="no option 'color'"):
        _tensor_str.PRINT_OPTS.color  # noqa: B018
    assert _tensor_str._add_suffixes("Index([1]", ["dim_size=3"], 6, False) == "Index([1], dim_size=3)"


def test_a_function_of_two() -> None:
    chosen = boolean_dispatch("both", 1, False, lambda x, both=False: 2 * x, lambda x, both=False: x, "here", "chosen")
    assert chosen(3) == 3 and chosen(3, True) == 6 and chosen(3, both=True) == 6


def test_inner_names_of_the_core():
    from flambeau.autograd import forward_ad
    try:
        torch._C._set_fwd_grad_enabled(False)
        assert not forward_ad._is_fwd_grad_enabled()
        with forward_ad._set_fwd_grad_enabled(True):
            assert torch._C._is_fwd_grad_enabled()
        assert not torch._C._is_fwd_grad_enabled()
    finally:
        torch._C._set_fwd_grad_enabled(True)
    x, w = torch.rand(1, 2, 4, 4, 4), torch.rand(3, 2, 2, 2, 2)
    assert torch.equal(torch._C._nn.slow_conv3d(x, w, 2), torch.nn.functional.conv3d(x, w))
    assert torch.func._vmap(torch.sin, 0, 0)(x).equal(x.sin()) and torch.__config__._cxx_flags() == ""
    assert torch.jit._wait(torch.jit._fork(lambda: 3)) == 3


def test_what_trainers_of_large_models_import() -> None:
    done = subprocess.run([sys.executable, "-c", """
import flambeau.as_torch, logging, gc
import torch._dynamo.config, torch._inductor.config, torch._functorch.config, torch
torch._inductor.config.x = 3
assert torch._inductor.config.x == 3 and torch._dynamo.config.never_set is False
assert isinstance(torch.ops.aten.mm.default, torch._ops.OpOverload) and isinstance(torch.ops.aten.mm, torch._ops.OpOverloadPacket)
assert repr(torch.ops.torch_attn._varlen_attn.default) == "<OpOverload(op='torch_attn._varlen_attn', overload='default')>"
assert torch.ops._c10d_functional.all_reduce.default.name() == "_c10d_functional::all_reduce"
try:
    torch.ops.aten._scaled_dot_product_flash_attention.default(1)
except NotImplementedError as error:
    assert "call scaled_dot_product_attention" in str(error)
from torch._higher_order_ops import flex_attention
from typing import NamedTuple
class Made(NamedTuple):
    n: torch.types.Number
assert isinstance(3.0, torch.types.Number) and isinstance(True, torch.types._Number)
from torch.distributed._composable.fsdp.fully_shard import FSDPModule
from torch.distributed._composable.fsdp import fully_shard
assert callable(fully_shard) and isinstance(FSDPModule, type)
assert torch.distributed.Backend.default_device_backend_map["cuda"] == "nccl"
from torch.utils.viz._cycles import observe_tensor_cycles
told = []
end = observe_tensor_cycles(told.append)
flags = gc.get_debug()
class Holds: pass
a = Holds(); a.me = a; del a
gc.collect()
assert told == [] and gc.garbage == []
end(); end()
assert gc.get_debug() == flags & ~gc.DEBUG_SAVEALL
print("imported")
"""], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "imported" in done.stdout, done.stderr


def test_devices_that_are_not_here_answer_as_in_pytorch() -> None:
    assert torch.xpu.memory_allocated() == torch.xpu.max_memory_reserved() == 0 and torch.xpu.memory_stats() == {}
    assert torch.xpu.is_bf16_supported() is False
    for ask in (torch.xpu.current_device, torch.xpu.get_device_properties, torch.xpu.mem_get_info, torch.xpu.get_device_name):
        with pytest.raises(AssertionError, match="XPU"):
            ask()
    with pytest.raises(RuntimeError, match="mps"):
        torch.mps.current_allocated_memory()
    x = torch.ones(2)
    assert not any((x.is_mkldnn, x.is_xla, x.is_mtia, x.is_vulkan, x.is_ipu, x.is_maia, x.is_nested, x.is_quantized))


def test_the_compilers_own_switches_are_accepted() -> None:
    torch._inductor.cudagraph_mark_step_begin()
    with torch._inductor.utils.fresh_inductor_cache():
        assert torch.ones(2).sum().item() == 2


def test_a_guard_around_random_states_can_be_asked_for() -> None:
    guard = torch._C._DisableFuncTorch()
    state = torch.get_rng_state()
    del guard
    assert torch.equal(state, torch.get_rng_state())


def test_errors_of_a_compiler_can_be_caught() -> None:
    from flambeau._dynamo.exc import BackendCompilerFailed, TorchDynamoException, Unsupported
    assert issubclass(BackendCompilerFailed, TorchDynamoException) and issubclass(Unsupported, RuntimeError)
    with pytest.raises(ZeroDivisionError):
        try:
            1 / 0  # noqa: B018
        except (TorchDynamoException, BackendCompilerFailed):
            pass


def test_types_of_the_compiled_core_are_names_for_annotations() -> None:
    for name in ("DeviceObjType", "FloatType", "DispatchKeySet", "FunctionSchema", "CompilationUnit"):
        kind = getattr(torch, name)
        assert kind is getattr(torch._C, name) and not isinstance(1, kind)
        with pytest.raises(NotImplementedError, match=f"torch._C.{name}: Flambeau has no compiler"):
            kind()
    assert torch.DisableTorchFunctionSubclass is torch._C.DisableTorchFunctionSubclass


def test_a_loop(device) -> None:
    start = (torch.tensor(0, device=device), torch.ones(2, device=device))
    count, x = torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), start)
    assert count.item() == 3 and x.tolist() == [8, 8]
    assert torch.while_loop(lambda i: False, lambda i: (i + 1,), [5]) == (5,)
    assert torch.while_loop(lambda i: i < 3, lambda i: i + 1, (0,)) == 3
    for wrong, told in ((lambda: torch.while_loop(1, 2, ()), "to be callable"), (lambda: torch.while_loop(len, len, 3), "tuple or list"),
                        (lambda: torch.while_loop(lambda x: x > 0, lambda x: x, (start[1],)), "boolean scalar"),
                        (lambda: torch.while_loop(lambda i: True, lambda i: (1, 2), (0,)), "2 values for 1")):
        with pytest.raises(RuntimeError, match=told):
            wrong()


def test_work_that_is_forked_is_done() -> None:
    made = torch.fork(lambda a, b=0: a + b, 1, b=2)
    assert torch.jit.fork is torch.fork and made.done() and made.value() == torch.wait(made) == 3
    with pytest.raises(ZeroDivisionError):
        torch.jit.fork(lambda: 1 / 0)


def test_what_the_core_says_of_itself() -> None:
    assert torch.has_lapack is torch.has_spectral is True and torch.has_mkl is torch.backends.mkl.is_available()
    assert torch.has_openmp is torch.backends.openmp.is_available() and torch.compiled_with_cxx11_abi() is True
    assert torch.Tag.core.value == 0 and torch.Tag["view_copy"].value == 19 and torch.Tag.pointwise in torch.Tag and torch._C.Tag is torch.Tag
    assert torch.TYPE_CHECKING is False
    with pytest.raises(NotImplementedError, match="smaller type"):
        torch.per_tensor_affine()
    assert not isinstance(torch.ones(1), torch.per_channel_symmetric)


def test_pairs_for_scripts() -> None:
    from flambeau._jit_internal import assert_int_or_pair
    assert_int_or_pair(3, "x", "{}")
    assert_int_or_pair((1, 2), "x", "{}")
    with pytest.raises(AssertionError, match="x must be"):
        assert_int_or_pair((1, 2, 3), "x", "{} must be")
