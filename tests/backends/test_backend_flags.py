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


def test_ways_of_attention() -> None:
    """`sdpa_kernel` sets the switches of `backends.cuda` for its block, and puts them back."""
    from flambeau._core.ops import attention
    from flambeau.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel
    c = torch.backends.cuda
    every = {SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.OVERRIDEABLE}

    def enabled() -> list[bool]:
        return [c.math_sdp_enabled(), c.flash_sdp_enabled(), c.mem_efficient_sdp_enabled(), c.cudnn_sdp_enabled()]
    assert enabled() == [True] * 4 and set(_cur_sdpa_kernel_backends()) == every and attention._ways() == (True, True, False)
    with sdpa_kernel(SDPBackend.MATH):
        assert enabled() == [True, False, False, False] and attention._ways() == (False, False, False)
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            assert enabled() == [False, True, False, True] and attention._ways() == (True, True, False)
        assert enabled() == [True, False, False, False]
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION], set_priority=True):
        assert attention._ways() == (False, True, False)
        assert _cur_sdpa_kernel_backends(with_priority=True) == [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    with pytest.raises(ZeroDivisionError), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        assert enabled() == [False, False, False, True] and attention._ways() == (True, False, False)
        raise ZeroDivisionError
    c.enable_flash_sdp(False)
    c.enable_mem_efficient_sdp(False)
    assert attention._ways() == (True, False, False)
    c.enable_flash_sdp(True)
    c.enable_mem_efficient_sdp(True)
    c.enable_cudnn_sdp(False)
    assert attention._ways() == (False, True, False)
    c.enable_cudnn_sdp(True)
    with c.sdp_kernel(enable_flash=False, enable_math=False, enable_mem_efficient=False):
        assert enabled() == [False, False, False, True]
    with torch.backends.cudnn.flags(enabled=False, deterministic=True):
        assert attention._ways() == (False, True, True)
    torch.use_deterministic_algorithms(True)
    assert attention._ways() == (True, True, True)
    torch.use_deterministic_algorithms(False)
    assert enabled() == [True] * 4 and set(_cur_sdpa_kernel_backends()) == every and attention._ways() == (True, True, False)


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


def test_compile_and_jit_run_what_they_get() -> None:
    def f(x: int) -> int:
        return x + 1

    assert torch.compile(f)(1) == 2 and torch.compile(f, backend="eager") is f and torch.compile(f, disable=True) is f
    assert torch.compiler.disable(f) is f and not torch.compiler.is_compiling()
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


def test_which_library_does_products() -> None:
    chosen = torch.backends.cuda.preferred_blas_library()
    assert chosen.name == "Cublaslt" and torch.backends.cuda.preferred_blas_library("default") is torch.backends.cuda.preferred_blas_library(chosen) is chosen
    for wrong, told in (("cublas", "Cannot set"), ("x", "Unknown input value")):
        with pytest.raises(RuntimeError, match=told):
            torch.backends.cuda.preferred_blas_library(wrong)
    with pytest.raises(TypeError):
        torch.backends.cuda.preferred_blas_library(3)


def test_whether_attention_may_be_a_kernel() -> None:
    b = torch.backends.cuda
    assert b.is_ck_sdpa_available() is False and b.fp16_bf16_reduction_math_sdp_allowed() is False
    b.allow_fp16_bf16_reduction_math_sdp(True)
    assert b.fp16_bf16_reduction_math_sdp_allowed()
    b.allow_fp16_bf16_reduction_math_sdp(False)
    q = torch.ones(1, 2, 8, 16)
    with pytest.warns(UserWarning, match="not on a GPU"):
        assert not b.can_use_flash_attention(b.SDPAParams(q, q, q, None, 0.0, False, False), True)
    with torch.simulate(gpus=1):
        assert b.is_flash_attention_available()
        q = q.cuda()
        plain, masked = b.SDPAParams(q, q, q, None, 0.0, True, False), b.SDPAParams(q, q, q, q, 0.0, False, False)
        assert plain.query is q and plain.is_causal and masked.attn_mask is q
        assert b.can_use_flash_attention(plain) and b.can_use_efficient_attention(masked) and not b.can_use_flash_attention(masked)
        assert not b.can_use_efficient_attention(b.SDPAParams(q.double(), q, q, None, 0.0, False, False))
        with b.sdp_kernel(enable_flash=False):
            assert not b.can_use_flash_attention(plain) and b.can_use_efficient_attention(plain)


def test_there_is_no_apple_gpu_to_ask() -> None:
    m = torch.backends.mps
    for call in (m.get_name, m.get_core_count, m.is_macos13_or_newer, lambda: m.is_macos_or_newer(14, 0)):
        with pytest.raises(RuntimeError, match="without MPS backend"):
            call()
