"""NVIDIA's own cuDNN takes our graphs of attention and convolutions, for GPUs that are only described to it: `make check-cudnn`."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flambeau._core.drivers.nvidia import cudnn, cudnn_attention, libraries
from tests._core.kernels.cuda_c import build

from . import real_cudnn

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
_MISSING = [name for name in ("cudnn", "cublasLt", "nvrtc") if not os.path.isabs(libraries.find(name))]
pytestmark = pytest.mark.skipif(bool(_MISSING or build.COMPILER is None), reason=(
    f"{', '.join(libraries.KNOWN[name].name for name in _MISSING)} not installed as packages (make check-cudnn)" if _MISSING else "there is no g++"))


@functools.cache
def said(capability: int) -> dict[str, Any]:
    """What the library says of each graph."""
    stub = build.build((HERE / "stub_cuda.cc").read_text(), ["-std=c++20", "-O1", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"], ".so", (), "libcuda.so.1")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(HERE / "real_cudnn.py"), str(stub), str(capability)], capture_output=True, text=True, timeout=900,
                          env=os.environ | {"PYTHONPATH": paths, "LD_LIBRARY_PATH": os.pathsep.join([str(stub.parent), os.environ.get("LD_LIBRARY_PATH", "")])})
    found: dict[str, Any] = {"": f"ended with {done.returncode}\n{done.stderr[-3000:]}"}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            found[f"{told['name']}, {told['what']}" if "name" in told else "version"] = told
    return found


@pytest.mark.parametrize("what", ["forward", "backward", "backward in a fixed order"])
@pytest.mark.parametrize("name", real_cudnn.SHAPES)
@pytest.mark.parametrize("capability", real_cudnn.DEVICES)
def test_graphs_are_taken(capability: int, name: str, what: str) -> None:
    """The library has an engine for each, and makes it ready; what it may refuse is known."""
    found = said(capability)
    told = found.get(f"{name}, {what}")
    assert told is not None, found[""]
    deep = max(real_cudnn.SHAPES[name][3][5:])
    if "engine" not in told and what != "forward" and deep > 128 and (capability != 900):
        pytest.skip(f"no gradient of depth {deep} there: {told.get('why', 'no engine')}")
    assert "engine" in told, told
    assert told["workspace"] >= 0 and told.get("again", told["workspace"]) == told["workspace"]
    batch, heads, _, length, source = real_cudnn.SHAPES[name][3][:5]
    if what == "forward":
        assert told["workspace"] < 1 << 20
    elif what == "backward":
        assert told["workspace"] < 64 * batch * heads * (length + source) * deep + (1 << 20)


@pytest.mark.parametrize("d", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", real_cudnn.CONVOLUTIONS)
@pytest.mark.parametrize("capability", real_cudnn.DEVICES)
def test_convolutions_are_taken(capability: int, name: str, d: str) -> None:
    """There is an engine that need not be compiled for each: for addresses of any alignment, without TF32, and in a fixed order."""
    found = said(capability)
    asked = {key: told for key, told in found.items() if key.startswith(f"{name} {d}, ")}
    assert len(asked) == (4 if len(real_cudnn.CONVOLUTIONS[name][0]) == 3 else 8), found[""]
    for key, told in asked.items():
        assert len(told["engines"]) == 6 and all(told["engines"]), (key, told)


def test_its_version_serves() -> None:
    assert not cudnn_attention.why_not(cudnn.version())
