"""What an eager operation on a GPU costs the host: ``python benchmarks/gpu/host_cost.py [--torch] [--json FILE] [--only TEXT]``.

Where there is no GPU it runs on the tests' fake libcuda, which takes launches and does nothing with them, so that what is left is our
own time and the bindings'.  Microseconds an operation, the least of several rounds.  --torch measures PyTorch beside, on a real GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
_ROUNDS, _TIMES = 60, 100  # many short rounds: one of them meets a quiet moment
AIM = 1.5  # microseconds for a + b
NAMES = ("a + b", "a += b", "relu", "sum", "sum of rows", "softmax", "a @ w", "linear", "a + b, taped", "relu, taped", "linear, taped", "transposed view",
         "a + b on another stream", "(x * v).sum(), forward and back", "linear, sum, forward and back")


def lines(t: Any) -> dict[str, Callable[[], Any]]:
    """The operations by name (`NAMES`), for a library's module."""
    f = t.nn.functional
    a, b = t.ones(16, 16, device="cuda"), t.ones(16, 16, device="cuda")
    w, bias = t.ones(16, 16, device="cuda"), t.ones(16, device="cuda")
    x, v, p = (t.ones(16, 16, device="cuda", requires_grad=True) for _ in range(3))
    row = t.ones(16, device="cuda", requires_grad=True)

    def backward() -> None:
        (x * v).sum().backward()
        x.grad = v.grad = None

    def layer() -> None:
        f.linear(a, p, row).sum().backward()
        p.grad = row.grad = None
    stream = t.cuda.Stream()

    def elsewhere() -> None:
        with t.cuda.stream(stream):
            a + b
    return {
        "a + b": lambda: a + b, "a += b": lambda: a.add_(b), "relu": lambda: a.relu(), "sum": lambda: a.sum(), "sum of rows": lambda: a.sum(1),
        "softmax": lambda: a.softmax(1), "a @ w": lambda: a @ w, "linear": lambda: f.linear(a, w, bias), "a + b, taped": lambda: x + b,
        "relu, taped": lambda: x.relu(), "linear, taped": lambda: f.linear(a, p, row), "transposed view": lambda: a.t(),
        "a + b on another stream": elsewhere, "(x * v).sum(), forward and back": backward, "linear, sum, forward and back": layer,
    }


def measure(t: Any, call: Callable[[], Any], rounds: int = _ROUNDS, times: int = _TIMES) -> float:
    """Microseconds of one call."""
    for _ in range(20):
        call()
    t.cuda.synchronize()
    best = float("inf")
    for _ in range(rounds):
        since = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - since) / times)
        t.cuda.synchronize()
    return best * 1e6


def fake(order: str = "none", memory: int = 0) -> bool:
    """Puts the tests' fake libcuda in place; False where it cannot be built.  order: "none" takes launches and drops them, "eager" carries
    them out at once.  memory: bytes of a GPU, where more than usual are wanted."""
    sys.path.insert(0, str(ROOT / "tests" / "_core" / "drivers" / "nvidia"))
    import cases  # type: ignore[import-not-found]
    import host_kernels  # type: ignore[import-not-found]
    if host_kernels.GXX is None:
        return False
    cases.MEMORY = memory or cases.MEMORY
    cases.start(order, 0)
    return True


def absent(smoke: bool) -> str:
    """Why nothing can be measured; "" where there is a GPU, or where `smoke` is all that is wanted and the tests' fake driver plays one."""
    if smoke:
        os.environ.pop("FLAMBEAU_SIM_GPUS", None)
        from flambeau._core.drivers.nvidia import probe
        if not probe.look().count and not fake("eager", 1 << 30):  # each stream and graph has 32 MiB for cuBLASLt
            return "nothing was tried: the fake driver needs g++"
    import flambeau
    if not flambeau.cuda.is_available():
        from flambeau._core.runtime import gpus
        return f"nothing was measured: {gpus.why_none()}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", action="store_true", help="PyTorch beside, on a real GPU")
    parser.add_argument("--json", default="", help="a file for the figures")
    parser.add_argument("--only", default="", help="operations whose name holds this text")
    parser.add_argument("--profile", action="store_true", help="where the time goes, by function, instead of figures")
    options = parser.parse_args()
    os.environ.pop("FLAMBEAU_SIM_GPUS", None)
    from flambeau._core.drivers.nvidia import probe
    real = bool(probe.look().count)
    if not real and not fake():
        print("host_cost: no GPU here, and the fake driver needs g++")
        return 2
    import flambeau
    found: dict[str, dict[str, float]] = {}
    others: dict[str, Callable[[], Any]] = {}
    torch: Any = importlib.import_module("torch") if options.torch and real else None
    if torch is not None and torch.cuda.is_available():
        others = lines(torch)
    print(f"{'on a ' + flambeau.cuda.get_device_name(0) if real else 'on the fake driver'}: microseconds an operation")
    for name, call in lines(flambeau).items():
        if options.only not in name:
            continue
        if options.profile:
            import cProfile
            measure(flambeau, call, 1, 20)
            with cProfile.Profile() as profile:
                for _ in range(2000):
                    call()
            print(name)
            profile.print_stats("tottime")
            continue
        found[name] = {"flambeau": measure(flambeau, call)}
        if others:
            found[name]["torch"] = measure(torch, others[name])
        beside = f"   torch {found[name]['torch']:7.2f}   {found[name]['torch'] / found[name]['flambeau']:.2f} times" if others else ""
        print(f"  {name:34} {found[name]['flambeau']:7.2f}{beside}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"real": real, "microseconds": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
