"""Runs cases on the fake libraries, each order in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flambeau._core.drivers.nvidia import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(HERE))
import host_kernels  # noqa: E402

has_bindings = util.find_spec("cuda") is not None and probe.bindings_version() is not None
on_fake = pytest.mark.skipif(host_kernels.GXX is None or not has_bindings,
                             reason="the fake libcuda needs g++ and cuda-bindings (pip install 'flambeau[cuda]')")


def named(*files: str) -> list[str]:
    """The cases of these files."""
    return [line.split("(")[0][4:] for file in files for line in (HERE / file).read_text().splitlines() if line.startswith("def case_")]


def run(order: str, seed: int, *only: str, file: str = "cases.py", **environment: str) -> dict[str, Any]:
    """Runs cases in a process of their own; gives each one's error, "" where it passed."""
    env = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS")} | environment
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(HERE / file), order, str(seed), *only], capture_output=True, text=True, env=env, timeout=600)
    found: dict[str, Any] = {"": f"ended with {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}"}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        found[told.get("name", "told")] = told.get("error", told)
    return found


def each_case(file: str, orders: Sequence[str] = ("eager", "lazy", "random")) -> Callable[..., None]:
    """A test of each case of a file in each order; all cases of an order run in one process, when the first is asked for."""
    results = functools.cache(functools.partial(run, file=file))

    @on_fake
    @pytest.mark.parametrize("case", named(file))
    @pytest.mark.parametrize("order", orders)
    def test_case(order: str, case: str) -> None:
        found = results(order, 5)
        error = found.get(case, f"it was not reached: {found['']}")
        assert not error, error
    return test_case
