"""torch.backends, torch.accelerator, torch.compiler, torch.jit, torch.hub: what scripts set and ask."""

from __future__ import annotations

import hashlib
import warnings

import pytest

import flambeau as torch


def test_switches_read_back_as_set() -> None:
    b = torch.backends
    before = b.cudnn.benchmark
    b.cudnn.benchmark = True
    assert b.cudnn.benchmark
    with b.cudnn.flags(enabled=False, deterministic=True):
        assert not b.cudnn.enabled and b.cudnn.deterministic
    assert b.cudnn.enabled and not b.cudnn.deterministic and b.cudnn.benchmark
    b.cudnn.benchmark = before
    assert not b.cuda.matmul.allow_tf32
    b.cuda.matmul.allow_tf32 = True
    assert torch.get_float32_matmul_precision() == "high"
    b.cuda.matmul.allow_tf32 = False
    assert torch.get_float32_matmul_precision() == "highest"
    assert b.mps.is_available() is False and (b.cudnn.version() or 90000) >= 90000
    with b.cuda.sdp_kernel(enable_flash=False):
        assert not b.cuda.flash_sdp_enabled()
    assert b.cuda.flash_sdp_enabled()
    assert b.cpu.get_cpu_capability() in ("AVX512", "AVX2", "NEON", "DEFAULT")
    assert torch.version.cuda is None


def test_the_accelerator_is_the_gpus_there_are() -> None:
    a = torch.accelerator
    with torch.simulate(gpus=2):
        assert a.is_available() and a.device_count() == 2
        assert a.current_accelerator() == torch.device("cuda")
        with a.device_index(1):
            assert a.current_device_index() == 1
        a.set_device_index(0)
        a.synchronize()
        assert a.memory_allocated() == 0


def test_compile_and_jit_give_back_what_they_get() -> None:
    def f(x: int) -> int:
        return x + 1

    assert torch.compile(f) is f and torch.compiler.disable(f) is f and not torch.compiler.is_compiling()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.jit._warned = False
        assert torch.jit.script(f) is f and torch.jit.trace(f, (1,)) is f
    assert len(seen) == 1 and "TorchScript" in str(seen[0].message)
    assert not torch.jit.is_scripting() and torch.jit.annotate(int, 3) == 3
    with pytest.raises(NotImplementedError, match="state dict"):
        torch.jit.save(f, "x")


def test_hub_fetches_once_and_checks(tmp_path) -> None:
    source = tmp_path / "weights"
    torch.save({"w": torch.ones(2)}, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
    url = source.as_uri()
    folder = tmp_path / "cache"
    got = torch.hub.load_state_dict_from_url(url, str(folder), progress=False, check_hash=True, file_name=f"w-{digest}.pt")
    assert got["w"].tolist() == [1.0, 1.0]
    source.unlink()
    again = torch.hub.load_state_dict_from_url(url, str(folder), progress=False, file_name=f"w-{digest}.pt")
    assert again["w"].tolist() == [1.0, 1.0]
    other = tmp_path / "other"
    other.write_bytes(b"abc")
    with pytest.raises(RuntimeError, match="invalid hash"):
        torch.hub.download_url_to_file(other.as_uri(), str(tmp_path / "out"), "0000", progress=False)
    assert not (tmp_path / "out").exists() and sorted(p.name for p in folder.iterdir()) == [f"w-{digest}.pt"]
    with pytest.raises(NotImplementedError, match="source='local'"):
        torch.hub.load("someone/repo", "model")
    (tmp_path / "hubconf.py").write_text("def model(n):\n    return n + 1\n")
    assert torch.hub.load(str(tmp_path), "model", 2, source="local") == 3
