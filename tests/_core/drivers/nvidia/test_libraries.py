"""cuBLASLt's epilogues, cuFFT and cuSOLVER, through the driver on fake libraries."""

from __future__ import annotations

import os
from typing import Any

import pytest

from flambeau._core.drivers.nvidia import libraries

from .running import each_case, on_fake, run

test_case = each_case("cases_libraries.py")


@on_fake
def test_absent_libraries_are_said_once() -> None:
    found = run("lazy", 1, "end_absent_libraries", file="cases_libraries.py", FAKE_ABSENT="cufft cusolver cublas")
    assert not found.get("end_absent_libraries", found[""])


def test_where_libraries_are_looked_for(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import machinery, util
    spec = machinery.ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(util, "find_spec", lambda name: spec)
    assert libraries.find("cufft") == "libcufft.so.12"  # the system's
    older = tmp_path / "cufft" / "lib"
    older.mkdir(parents=True)
    (older / "libcufft.so.11").touch()
    assert libraries.find("cufft") == os.path.join(older, "libcufft.so.11")  # CUDA 12's package
    newer = tmp_path / "cu13" / "lib"
    newer.mkdir(parents=True)
    (newer / "libcufft.so.12").touch()
    assert libraries.find("cufft") == os.path.join(newer, "libcufft.so.12")
    for known in libraries.KNOWN.values():
        assert known.extra.startswith("cuda") and known.package.startswith("nvidia-") and all(".so." in f for f in known.files)


@pytest.mark.skipif(not os.path.isabs(libraries.find("cublasLt")), reason="nvidia-cublas is not installed")
@pytest.mark.parametrize("name, epilogue", [
    ("float32", "bias"), ("bfloat16", "bias"), ("float16", "row sums"), ("complex64", ""), ("complex128", ""), ("float32", "bias relu"),
    ("float16", "bias relu signs"), ("bfloat16", "bias gelu"), ("bfloat16", "bias gelu input"), ("float32", "relu gradient"), ("float16", "gelu gradient")])
def test_epilogues_of_the_real_library(name: str, epilogue: str) -> None:
    """NVIDIA's own library takes the descriptions; that needs no GPU."""
    import ctypes

    import flambeau as torch
    from flambeau._core.drivers.nvidia import blaslt
    made = blaslt.Description(blaslt.load(), getattr(torch, name), 8, 24, 4, (4, 1, 0), (1, 4, 0), (24, 1, 0), 1, False, True, epilogue)
    value, size = ctypes.c_uint32(), ctypes.c_size_t()
    assert made.lib.cublasLtMatmulDescGetAttribute(made.matmul, 7, ctypes.byref(value), 4, ctypes.byref(size)) == 0
    # the header's: RELU 2, BIAS 4, DRELU 8, GELU 32, DGELU 64, with a matrix beside 128, BGRADB 512
    assert value.value == {"": 1, "bias": 4, "row sums": 512, "bias relu": 2 | 4, "bias relu signs": 2 | 4 | 128, "bias gelu": 4 | 32,
                           "bias gelu input": 4 | 32 | 128, "relu gradient": 8 | 128, "gelu gradient": 64 | 128}[epilogue]
    made.put(4096)
    for place, used in ((8, epilogue.startswith("bias") or epilogue == "row sums"), (11, value.value & 128)):
        where = ctypes.c_void_p()
        assert made.lib.cublasLtMatmulDescGetAttribute(made.matmul, place, ctypes.byref(where), 8, ctypes.byref(size)) == 0
        assert where.value == (4096 if used else None)
    lead = ctypes.c_int64()
    assert made.lib.cublasLtMatmulDescGetAttribute(made.matmul, 12, ctypes.byref(lead), 8, ctypes.byref(size)) == 0
    assert lead.value == (0 if not value.value & 128 else 128 if "relu" in epilogue else 24)
    assert ctypes.sizeof(made.number(1 - 2j)) == {"float32": 4, "bfloat16": 4, "float16": 4, "complex64": 8, "complex128": 16}[name]
