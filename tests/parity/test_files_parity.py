"""Files both ways between PyTorch and Flambeau, each read without trust."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest

import flambeau
from flambeau.io import safetensors

torch = pytest.importorskip("torch")

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", "complex64",
          "complex128"]


def _here(value, **options):
    """A value that PyTorch saved, as Flambeau loads it."""
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    stream.seek(0)
    return flambeau.load(stream)


def _there(value, **options):
    """A value that Flambeau saved, as PyTorch loads it."""
    stream = io.BytesIO()
    flambeau.save(value, stream, **options)
    stream.seek(0)
    return torch.load(stream, weights_only=True)


def _bits(t):
    return t.detach().contiguous().reshape(-1).view(type(t).__module__.startswith("flambeau") and flambeau.uint8 or torch.uint8).tolist()


def _same(one, two):
    assert str(one.dtype) == str(two.dtype) and tuple(one.shape) == tuple(two.shape) and tuple(one.stride()) == tuple(two.stride())
    assert one.storage_offset() == two.storage_offset() and one.requires_grad == two.requires_grad
    assert one.untyped_storage().nbytes() == two.untyped_storage().nbytes()
    assert _bits(one) == _bits(two)


def _tensors(lib, name):
    d = getattr(lib, name)
    base = (lib.arange(24) % 2).reshape(2, 3, 4).to(d)
    found = {"base": base, "turned": base.permute(2, 0, 1), "row": base[1, 2], "step": base[:, ::2, 1:], "empty": base[:0], "wide": base[:, :1].expand(2, 5, 4),
             "scalar": base[0, 0, 1]}
    if name.startswith(("float", "bfloat", "complex")):
        found["grad"] = lib.ones(3, dtype=d, requires_grad=True)
        found["parameter"] = lib.nn.Parameter(lib.zeros(2, 2, dtype=d))
        found["frozen"] = lib.nn.Parameter(base[0], requires_grad=False)
    return found


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_both_ways(name):
    mine, theirs = _tensors(flambeau, name), _tensors(torch, name)
    for found, wanted in ((_here(theirs), mine), (_there(mine), theirs)):
        assert list(found) == list(wanted)
        for key, t in wanted.items():
            _same(found[key], t)
            assert type(found[key]).__name__ == type(t).__name__
        found["base"].fill_(1)
        assert bool((found["row"] == 1).all()) and bool((found["turned"] == 1).all())


def _containers(lib):
    p = lib.nn.Parameter(lib.ones(2))
    p.note = "kept"
    t = lib.zeros(2)
    t.note = {"a": 1}
    return {"odict": OrderedDict(a=1), "tuple": (1, (2.5, None)), "list": [True, "text", "\u00fc" * 300], "bytes": b"\x00\xff", "set": {1, 2}, "big": 1 << 100,
            "nan": float("inf"), 5: "int", (1, 2): "tuple", "dtype": lib.float16, "size": lib.Size([1, 2]), "device": lib.device("cuda:1"), "p": p, "t": t,
            "layout": lib.strided, "complex": 1 - 2j, "array": bytearray(b"x"), "deep": [[[[[[]]]]]]}


@pytest.mark.parametrize("protocol", [2])
def test_containers_both_ways(protocol):
    for found, lib in ((_here(_containers(torch), pickle_protocol=protocol), flambeau), (_there(_containers(flambeau), pickle_protocol=protocol), torch)):
        wanted = _containers(lib)
        for name in ("p", "t"):
            assert found[name].note == wanted[name].note and type(found[name]) is type(wanted[name])
            assert found.pop(name).tolist() == wanted.pop(name).tolist()
        assert found == wanted and type(found["odict"]) is OrderedDict and type(found["size"]) is lib.Size


def test_protocols_that_pytorch_writes():
    for protocol in (2, 3, 4, 5):
        found = _here({"a": torch.ones(2), "b": [b"x", {"y"}]}, pickle_protocol=protocol)
        assert found["a"].tolist() == [1.0, 1.0] and found["b"] == [b"x", {"y"}]


def test_lazy_conjugates_are_done():
    t = torch.tensor([1 + 2j, -3j])
    found = _here([t.conj(), t, torch.ones(2, requires_grad=True, dtype=torch.complex64).conj()])
    assert found[0].tolist() == [1 - 2j, 3j] and found[1].tolist() == t.tolist() and found[2].requires_grad
    assert _here(t.conj().imag).tolist() == [-2.0, 3.0]  # negated lazily, and real


@pytest.mark.skipif(not hasattr(flambeau, "sparse_coo_tensor"), reason="sparse tensors are not there")
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_both_ways():
    def made(lib):
        return [lib.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3)), lib.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3)).coalesce(),
                lib.sparse_coo_tensor([[1, 4]], [[1, 2], [3, 4]], (5, 2)), lib.eye(3).to_sparse_csr()]

    for found, wanted in ((_here(made(torch)), made(flambeau)), (_there(made(flambeau)), made(torch))):
        for a, b in zip(found, wanted, strict=True):
            assert a.layout is b.layout and a.dtype is b.dtype and a.to_dense().tolist() == b.to_dense().tolist()
        assert not found[0].is_coalesced() and found[1].is_coalesced()


def test_storages_both_ways():
    for found in (_here(torch.arange(3, dtype=torch.uint8).untyped_storage()), _there(flambeau.arange(3, dtype=flambeau.uint8).untyped_storage())):
        assert list(found) == [0, 1, 2] and found.nbytes() == 3


def _model(lib):
    nn = lib.nn
    return nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_training_goes_on_in_the_other_library(kind):
    """Five steps there, five here, against ten there; and the other way round."""
    x = np.random.default_rng(0).standard_normal((4, 1, 4, 4)).astype(np.float32)

    def steps(lib, net, trainer, schedule, count):
        for _ in range(count):
            trainer.zero_grad()
            net(lib.from_numpy(x)).square().mean().backward()
            trainer.step()
            schedule.step()

    def made(lib):
        net = _model(lib)
        options = {"lr": 0.01, **({"momentum": 0.9} if kind == "SGD" else {})}
        trainer = getattr(lib.optim, kind)(net.parameters(), **options)
        return net, trainer, lib.optim.lr_scheduler.StepLR(trainer, 3)

    def state(parts):
        return {"net": parts[0].state_dict(), "trainer": parts[1].state_dict(), "schedule": parts[2].state_dict(), "epoch": 5}

    def restored(parts, saved):
        for part, name in zip(parts, ("net", "trainer", "schedule")):
            part.load_state_dict(saved[name])
        return parts

    start = made(torch)
    begin = io.BytesIO()
    torch.save(state(start), begin)
    steps(torch, *start, 10)
    wanted = {k: v.numpy() for k, v in start[0].state_dict().items()}
    for first, second in ((torch, flambeau), (flambeau, torch)):
        begin.seek(0)
        parts = restored(made(first), first.load(begin))
        steps(first, *parts, 5)
        middle = io.BytesIO()
        first.save(state(parts), middle)
        middle.seek(0)
        parts = restored(made(second), second.load(middle))
        steps(second, *parts, 5)
        for key, v in parts[0].state_dict().items():
            np.testing.assert_allclose(v.numpy(), wanted[key], rtol=1e-4, atol=1e-5, err_msg=key)
        assert parts[0].state_dict()._metadata == start[0].state_dict()._metadata


def test_a_whole_module_of_pytorch_loads_here_when_it_is_trusted():
    net = _model(torch).eval()
    stream = io.BytesIO()
    torch.save(net, stream)
    stream.seek(0)
    with pytest.raises(flambeau.serialization.UnsafeFileError, match="torch.nn.modules.container.Sequential"):
        flambeau.load(stream)
    x = np.ones((1, 1, 4, 4), np.float32)
    wanted = net(torch.from_numpy(x)).detach().numpy()
    stream.seek(0)
    np.testing.assert_allclose(flambeau.load(stream, weights_only=False)(flambeau.from_numpy(x)).detach().numpy(), wanted, rtol=1e-4, atol=1e-6)
    kinds = [flambeau.nn.Sequential, flambeau.nn.Conv2d, flambeau.nn.BatchNorm2d, flambeau.nn.ReLU, flambeau.nn.Flatten, flambeau.nn.Linear]
    stream.seek(0)
    with flambeau.serialization.safe_globals(kinds):
        np.testing.assert_allclose(flambeau.load(stream)(flambeau.from_numpy(x)).detach().numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_paths_maps_and_names(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"a": torch.arange(5000.0), "b": torch.ones(3, dtype=torch.bfloat16)}, path)
    for found in (flambeau.load(path), flambeau.load(path, mmap=True), flambeau.load(str(path), map_location="cpu")):
        assert found["a"].tolist() == list(range(5000)) and found["b"].tolist() == [1.0] * 3
    flambeau.save({"a": flambeau.arange(5000.0)}, path)
    for found in (torch.load(path), torch.load(path, mmap=True)):
        assert found["a"].tolist() == list(range(5000))


def test_files_of_gpus_that_are_not_there():
    with flambeau.simulate(gpus=2):
        stream = io.BytesIO()
        flambeau.save({"a": flambeau.arange(3.0, device="cuda:1")}, stream)
    stream.seek(0)
    assert torch.load(stream, map_location="cpu")["a"].tolist() == [0, 1, 2]
    stream.seek(0)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(stream)


@pytest.mark.parametrize("weights_only", [True, False])
def test_the_format_before_zip_archives(weights_only, tmp_path):
    value = {name: _tensors(torch, name) for name in DTYPES if name not in ("uint16", "uint32", "uint64")}
    value["net"] = _model(torch).state_dict()
    path = tmp_path / "old.pth"
    torch.save(value, path, _use_new_zipfile_serialization=False)
    found = flambeau.load(path, weights_only=weights_only)
    for name in value:
        if name != "net":
            for key, t in value[name].items():
                _same(found[name][key], t)
    assert {k: v.tolist() for k, v in found["net"].items()} == {k: v.tolist() for k, v in value["net"].items()}
    found["int8"]["base"].fill_(1)
    assert bool((found["int8"]["row"] == 1).all())
    whole = path.read_bytes()
    for n in [*range(400), *range(400, len(whole), 97), len(whole) - 1]:
        with pytest.raises(flambeau.errors.FileFormatError):
            flambeau.load(io.BytesIO(whole[:n]))
    harmful = io.BytesIO()
    torch.save([1, subprocess.run], harmful, _use_new_zipfile_serialization=False)
    harmful.seek(0)
    with pytest.raises(flambeau.serialization.UnsafeFileError, match=r"GLOBAL \w+\.run was not"):
        flambeau.load(harmful)


def test_safetensors_both_ways(tmp_path):
    theirs = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    for name in DTYPES[:-1]:
        theirs.save_file({"x": (torch.arange(6) % 2).reshape(2, 3).to(getattr(torch, name))}, path)
        found = safetensors.load_file(path)["x"]
        assert str(found.dtype) == f"torch.{name}" and found.shape == (2, 3)
        safetensors.save_file({"x": found}, path)
        assert theirs.load_file(path)["x"].dtype is getattr(torch, name)
        assert _bits(theirs.load_file(path)["x"]) == _bits(found)


def test_safetensors_torch_itself_runs_on_flambeau(tmp_path):
    """The package's module for PyTorch, in a process where `torch` is Flambeau."""
    pytest.importorskip("safetensors")
    script = tmp_path / "script.py"
    script.write_text("""
import sys, torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
path = sys.argv[1]
tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.zeros(0, 2), "d": torch.tensor(3)}
save_file(tensors, path)
for found in (load_file(path), load(save(tensors))):
    assert {k: (v.dtype, v.tolist()) for k, v in found.items()} == {k: (v.dtype, v.tolist()) for k, v in tensors.items()}, found
with safe_open(path, framework="pt") as f:
    assert f.get_slice("a")[:, 1:].tolist() == [[1, 2], [4, 5]]
net = torch.nn.Linear(2, 2)
save_model(net, path)
other = torch.nn.Linear(2, 2)
assert load_model(other, path) == (set(), []) and other.weight.tolist() == net.weight.tolist()
print("torch is", torch.__version__)
""")
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script), str(tmp_path / "a.safetensors")], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flambeau" in done.stdout
