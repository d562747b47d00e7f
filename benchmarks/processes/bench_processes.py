"""Collectives and data-parallel steps of two ranks, beside PyTorch's gloo in the same run: `make bench-processes`.

Each side's ranks are processes of one thread each, started by the same agent, one side after the other, best of several rounds.  Lines: all_reduce of 1 KB,
1 MB and 100 MB; 16 MB of bfloat16 and of float32; a training step of 3 M parameters alone and under DistributedDataParallel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
ROUNDS = 5


def rank_main(side: str, out: str) -> None:
    """One rank of one side; rank 0 writes what it measured."""
    if side == "torch":
        import torch
        import torch.distributed as dist
    else:
        import flambeau as torch
        import flambeau.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found: dict[str, float] = {}

    def measure(name: str, call: object, times: int) -> None:
        for _ in range(2):
            call()  # type: ignore[operator]
        best = float("inf")
        for _ in range(ROUNDS):
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(times):
                call()  # type: ignore[operator]
            best = min(best, (time.perf_counter() - begun) / times)
        found[name] = best

    for name, nbytes, times in (("all_reduce 1 KB", 1 << 10, 300), ("all_reduce 1 MB", 1 << 20, 20), ("all_reduce 100 MB", 100 << 20, 1)):
        t = torch.ones(nbytes // 4)
        measure(name, lambda t=t: dist.all_reduce(t, op=dist.ReduceOp.MAX), times)
    for kind in ("bfloat16", "float32"):
        d = getattr(torch, kind)
        t = torch.ones((16 << 20) // (2 if kind == "bfloat16" else 4), dtype=d)
        measure(f"all_reduce 16 MB {kind}", lambda t=t: dist.all_reduce(t, op=dist.ReduceOp.MAX), 2)
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    x = torch.randn(64, 1024)

    def step(model: object, opt: object) -> None:
        opt.zero_grad()  # type: ignore[attr-defined]
        (model(x) ** 2).mean().backward()  # type: ignore[operator]
        opt.step()  # type: ignore[attr-defined]
    if rank == 0:
        opt = torch.optim.SGD(net.parameters(), lr=1e-3)
        best = float("inf")
        for _ in range(4 * ROUNDS):
            begun = time.perf_counter()
            step(net, opt)
            best = min(best, time.perf_counter() - begun)
        found["step, 3 M parameters, alone"] = best
    dist.barrier()
    model = nn.parallel.DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    measure("step, 3 M parameters, 2 ranks", lambda: step(model, opt), 4)
    if rank == 0:
        Path(out).write_text(json.dumps({"world": world, "seconds": found}))
    dist.barrier()


def main() -> None:
    """Both sides, and their ratios."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--nproc", type=int, default=2)
    reading.add_argument("--side", help=argparse.SUPPRESS)
    reading.add_argument("--out", help=argparse.SUPPRESS)
    given = reading.parse_args()
    if given.side:
        rank_main(given.side, given.out)
        return
    os.environ.pop("OPENBLAS_CORETYPE", None)
    from flambeau.distributed import agent
    sides = ["flambeau"] + (["torch"] if importlib.util.find_spec("torch") else [])
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in sides:
            out = os.path.join(folder, side)
            # PyTorch's rank 0 has to serve the store itself: its client does not speak to ours
            extra = {"TORCHELASTIC_USE_AGENT_STORE": "False"} if side == "torch" else {}
            command = [sys.executable, str(HERE), "--side", side, "--out", out]
            if side == "torch":
                port = str(agent.free_port("127.0.0.1"))
                command = ["env", f"MASTER_PORT={port}", *[f"{k}={v}" for k, v in extra.items()], *command]
            status = agent.run(command, nproc=given.nproc, prefix=False)
            if status:
                sys.exit(status)
            results[side] = json.loads(Path(out).read_text())["seconds"]
    print(f"{given.nproc} ranks, one thread each, {os.cpu_count()} cores; microseconds")
    print(f"{'':34}" + "".join(f"{s:>14}" for s in sides) + ("   torch / flambeau" if len(sides) > 1 else ""))
    for name, seconds in results["flambeau"].items():
        row = f"{name:34}" + "".join(f"{1e6 * results[s][name]:14.1f}" for s in sides)
        print(row + (f"{results['torch'][name] / seconds:18.2f}" if len(sides) > 1 else ""))


if __name__ == "__main__":
    main()
