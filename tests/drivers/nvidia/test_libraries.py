"""cuBLASLt's epilogues, cuFFT and cuSOLVER, through the driver on fake libraries."""

from __future__ import annotations

import os
from typing import Any

import pytest

from flambeau.drivers.nvidia import libraries

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
@pytest.mark.parametrize("name, epilogue", [("float32", "bias"), ("bfloat16", "bias"), ("float16", "row sums"), ("complex64", ""), ("complex128", "")])
def test_epilogues_of_the_real_library(name: str, epilogue: str) -> None:
    """NVIDIA's own library takes the descriptions; that needs no GPU."""
    import ctypes

    import flambeau as torch
    from flambeau.drivers.nvidia import blaslt
    made = blaslt.Description(blaslt.load(), getattr(torch, name), 8, 6, 4, (4, 1, 0), (1, 4, 0), (6, 1, 0), 1, False, True, epilogue)
    value, size = ctypes.c_uint32(), ctypes.c_size_t()
    assert made.lib.cublasLtMatmulDescGetAttribute(made.matmul, 7, ctypes.byref(value), 4, ctypes.byref(size)) == 0
    assert value.value == {"": 1, "bias": 4, "row sums": 512}[epilogue]
    made.bias(4096)
    row = ctypes.c_void_p()
    assert made.lib.cublasLtMatmulDescGetAttribute(made.matmul, 8, ctypes.byref(row), 8, ctypes.byref(size)) == 0 and row.value == 4096
    assert ctypes.sizeof(made.number(1 - 2j)) == {"float32": 4, "bfloat16": 4, "float16": 4, "complex64": 8, "complex128": 16}[name]
