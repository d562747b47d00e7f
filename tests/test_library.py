"""Operations under names of the user's own, and futures."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import library
from flambeau.library import custom_op, register_fake


def test_a_named_operation_with_a_gradient():
    @custom_op("test_library::cube", mutates_args=())
    def cube(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
        """k x³."""
        return x ** 3 * k

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert cube(x.detach()).tolist() == [1.0, 8.0]
    cube.register_autograd(lambda ctx, g: (3 * ctx.saved_tensors[0] ** 2 * g * ctx.k, None), setup_context=setup)
    torch.ops.test_library.cube(x, k=2.0).sum().backward()
    assert x.grad.tolist() == [6.0, 24.0]
    assert cube.__doc__ == "k x³." and "test_library::cube" in repr(cube)
    register_fake("test_library::cube", lambda x, k=1.0: torch.empty_like(x))
    with pytest.raises(AttributeError, match="nothing"):
        _ = torch.ops.test_library.nothing
    with pytest.raises(AttributeError, match="no_such_space"):
        _ = torch.ops.no_such_space


def test_kernels_by_device(sim_gpus):
    @custom_op("test_library::where_am_i", mutates_args=(), device_types="cpu")
    def where_am_i(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @where_am_i.register_kernel("cuda")
    def _(x):
        return x + 2
    assert where_am_i(torch.zeros(1)).item() == 1 and where_am_i(torch.zeros(1, device="cuda")).item() == 2
    with pytest.raises(ValueError, match="namespace::name"):
        custom_op("plain", lambda x: x, mutates_args=())
    with pytest.raises(RuntimeError, match="custom_op"):
        torch.library.register_autograd("test_library::unknown", None)


def test_futures():
    first, second = torch.futures.Future(), torch.futures.Future()
    doubled, both = first.then(lambda f: f.value() * 2), torch.futures.collect_all([first, second])
    with pytest.raises(RuntimeError, match="before it is set"):
        first.value()
    first.set_result(3)
    assert doubled.wait() == 6 and first.done() and not both.done()
    second.set_exception(KeyError("gone"))
    assert both.wait() == [first, second]
    with pytest.raises(KeyError, match="gone"):
        torch.futures.wait_all([first, second])
    with pytest.raises(RuntimeError, match="once"):
        first.set_result(4)


def test_names_of_the_cpu_and_of_hubs(tmp_path):
    with torch.cpu.amp.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    (tmp_path / "hubconf.py").write_text('def tiny(width=2):\n    """A tiny model."""\n    return width\n\n_hidden = 1\n')
    assert torch.hub.list(str(tmp_path)) == ["tiny"] and torch.hub.help(str(tmp_path), "tiny") == "A tiny model."
    assert torch.hub.load(str(tmp_path), "tiny", source="local", width=3) == 3
    with pytest.raises(NotImplementedError, match="network"):
        torch.hub.list("owner/repository")
    with pytest.raises(FileNotFoundError):
        torch.hub.load(str(tmp_path / "none"), "tiny", source="local")


def test_operations_by_schema(sim_gpus):
    torch.library.define("test_library::scaled", "(Tensor x, float by=2.0, *, int? more=None, int[] sizes=[1, 2]) -> Tensor")
    op = torch.ops.test_library.scaled
    with pytest.raises(NotImplementedError, match="Could not run 'test_library::scaled' with arguments on the device 'cpu'"):
        op(torch.ones(2))

    @torch.library.impl("test_library::scaled", "cpu")
    def _(x, by=2.0, *, more=None, sizes=(1, 2)):
        return x * by
    assert op(torch.ones(2)).tolist() == op.default(torch.ones(2)).tolist() == [2, 2] and list(op.__signature__.parameters) == ["x", "by", "more", "sizes"]
    with pytest.raises(NotImplementedError, match="'cuda'"):
        op(torch.ones(2, device="cuda"))
    torch.library.impl("test_library::scaled", "CompositeExplicitAutograd", lambda x, by=2.0, **more: x + by)
    assert op(torch.ones(2, device="cuda"), 3.0).tolist() == [4, 4]
    for bad in ("Tensor x -> Tensor", "(Tensor x)"):
        with pytest.raises(RuntimeError, match="expected a schema like"):
            torch.library.define("test_library::bad", bad)
    with pytest.raises(RuntimeError, match="already"):
        torch.library.define("test_library::scaled", "(Tensor x) -> Tensor")
    lib = torch.library.Library("test_library", "FRAGMENT")
    assert lib.define("twice(Tensor x) -> Tensor") == "twice"
    lib.impl("twice", lambda x: 2 * x, "CPU")
    assert torch.ops.test_library.twice(torch.ones(1)).item() == 2
    with pytest.raises(ValueError, match="Unsupported kind"):
        torch.library.Library("test_library", "NEW")


def test_libraries_that_are_compiled_for_pytorch(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_refused", {})  # other tests ask for spaces that are not there
    for load in (torch.ops.load_library, torch.classes.load_library):
        with pytest.raises(OSError, match=r"Could not load this library: .*absent\.so: there is no such file"):
            load(tmp_path / "absent.so")
    other, known = tmp_path / "_C.so", tmp_path / "_torchaudio.abi3.so"
    other.write_bytes(b"")
    known.write_bytes(b"")
    with pytest.raises(OSError, match=r"_C\.so: Flambeau loads no code that is compiled for PyTorch"):
        torch.ops.load_library(str(other))
    assert str(other) not in torch.ops.loaded_libraries
    with pytest.raises(AttributeError, match=r"'_OpNamespace' 'other_space' object has no attribute 'work'; libraries .*_C\.so"):
        _ = torch.ops.other_space.work
    assert not hasattr(torch.ops.other_space, "__wrapped__")
    torch.ops.load_library(known)
    torch.ops.load_library(known)
    assert str(known) in torch.ops.loaded_libraries and torch.classes.loaded_libraries is torch.ops.loaded_libraries
    assert torch.ops._torchaudio.cuda_version() is None and torch.ops._torchaudio.is_align_available() is True
    out = torch.zeros(1, 1, 3)
    assert torch.ops.torchaudio._lfilter_core_loop(torch.ones(1, 1, 2), torch.tensor([[-0.5, 1.0]]), out) is out
    assert out.tolist() == [[[0.0, 1.0, 1.5]]]
    torch.ops.import_module("json")


def test_classes_of_libraries():
    with pytest.raises(RuntimeError, match=r"Tried to instantiate class 'some.Kind', but it does not exist!"):
        _ = torch.classes.some.Kind
    assert not hasattr(torch.classes, "__wrapped__") and not hasattr(torch.classes.some, "__wrapped__")


def test_operations_of_triton_are_operations():
    from flambeau.library import triton_op, wrap_triton

    @triton_op("mine::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return wrap_triton(lambda y: y * 2)(x)
    assert twice(torch.ones(2)).tolist() == [2, 2] and torch.ops.mine.twice(torch.ones(1)).tolist() == [2]
