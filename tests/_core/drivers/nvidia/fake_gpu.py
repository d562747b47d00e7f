"""A pytest plugin that plays NVIDIA GPUs: tests marked `gpu` then run, through the driver itself, on the fake libraries.

    FAKE_ORDER=lazy python -m pytest -m gpu -p tests._core.drivers.nvidia.fake_gpu

`make test-fake-gpu` does so.  FAKE_ORDER: when queued work is done: "eager" (at once), "lazy" (the default: when something waits for it) or "random", by
FAKE_SEED.  Kernels are compiled by g++, which takes a while the first time.  Left out are tests of the compilers themselves, since NVRTC
looks for a real driver, and those that launch kernels by the ten thousand, whose threads are fibers here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests._core.drivers.nvidia import cases

FOLDER = Path(__file__).parent
cases.MEMORY = 2 << 30
cases.start(os.environ.get("FAKE_ORDER", "lazy"), int(os.environ.get("FAKE_SEED", "1")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") or "gradcheck_twice" in item.name or "lbfgs" in item.name:
            item.add_marker(pytest.mark.skip(reason="launches kernels by the ten thousand"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path in (FOLDER.parent, FOLDER.parents[1] / "kernels", FOLDER.parents[2] / "parity") else None
