"""What the extras say, and how their downloads are told."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

from flambeau._core.drivers.nvidia import libraries

ROOT = Path(__file__).resolve().parents[2]


def loaded(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_library_has_an_extra_that_brings_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        found = set()
        for text in extras[extra]:
            inner = re.fullmatch(r"flambeau\[(.*)\]", text)
            found |= brought(inner.group(1)) if inner else {re.split(r"[><=]", text)[0]}
        return found
    for known in libraries.KNOWN.values():
        assert known.package in brought(known.extra), known
    assert brought("cuda") < brought("cuda-fft") < brought("cuda-math")
    assert not {p for p in brought("cuda12") if p.startswith("nvidia-") and not p.endswith("-cu12")}


def test_the_table_of_downloads() -> None:
    extras = loaded("benchmarks/extras.py")
    told = extras.table("cuda", {"nvidia_cublas-13.1-py3-none-any.whl": 450.0, "rich-15.0-py3-none-any.whl": 0.25})
    assert told.splitlines() == ["flambeau[cuda]", "     450.0 MB  nvidia-cublas 13.1", "       0.2 MB  rich 15.0", "     450.2 MB in all of at most 700"]
