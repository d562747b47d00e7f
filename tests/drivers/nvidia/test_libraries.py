"""cuBLASLt's epilogues, cuFFT and cuSOLVER, through the driver on fake libraries."""

from __future__ import annotations

import os
from typing import Any

import pytest

from flambeau.drivers.nvidia import libraries

from .running import named, on_fake, run

CASES = named("cases_libraries.py")


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return {}


@on_fake
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["eager", "lazy", "random"])
def test_case(results: dict[str, dict[str, Any]], order: str, case: str) -> None:
    if order not in results:
        results[order] = run(order, 5, file="cases_libraries.py")
    error = results[order].get(case, f"it was not reached: {results[order]['']}")
    assert not error, error


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
