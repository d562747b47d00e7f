"""torchrun's command line (`python -m torch.distributed.run`, and `torchrun`'s `main`): starts the ranks of a script on this host."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from . import agent

if TYPE_CHECKING:
    from collections.abc import Sequence


def get_args_parser() -> argparse.ArgumentParser:
    """What the command line accepts: torchrun's commonest arguments."""
    top = argparse.ArgumentParser(prog="torchrun", description="Starts the ranks of a script.", allow_abbrev=False)

    def add(name: str, **options: Any) -> None:
        top.add_argument(f"--{name}", f"--{name.replace('-', '_')}", **options)
    add("nnodes", default="1", help="how many hosts take part")
    add("nproc-per-node", default="1", help="how many ranks each has: a number, 'cpu', 'gpu' or 'auto'")
    add("node-rank", type=int, default=0, help="which host this is")
    add("rdzv-backend", default="static")
    add("rdzv-endpoint", default="", help="HOST:PORT of the first host's agent")
    add("rdzv-id", default="none")
    add("rdzv-conf", default="")
    add("standalone", action="store_true", help="one host, on a free port")
    add("max-restarts", type=int, default=0, help="how often all ranks are started again")
    add("monitor-interval", type=float, default=0.1)
    add("start-method", default="spawn")
    add("role", default="default")
    add("log-dir", default=None)
    add("master-addr", default="127.0.0.1", help="the first host")
    add("master-port", type=int, default=29500)
    add("local-addr", default=None)
    top.add_argument("-m", "--module", action="store_true", help="the script is a module's name")
    top.add_argument("--no-python", "--no_python", action="store_true", help="the script is a program")
    top.add_argument("--use-env", "--use_env", action="store_true", help=argparse.SUPPRESS)
    top.add_argument("training_script")
    top.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return top


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """The arguments read."""
    return get_args_parser().parse_args(args)


def _ranks(text: str) -> int:
    if text.isdigit():
        return int(text)
    from .. import cuda
    if text in ("gpu", "auto") and cuda.is_available():
        return int(cuda.device_count())
    if text in ("cpu", "auto"):
        return os.cpu_count() or 1
    raise ValueError(f"--nproc-per-node must be a number, 'cpu', 'gpu' or 'auto', got {text!r}")


def run(args: argparse.Namespace) -> int:
    """Starts the ranks that the arguments describe; the exit status."""
    nnodes = int(args.nnodes.partition(":")[2] or args.nnodes)
    endpoint: str | None = args.rdzv_endpoint or (f"{args.master_addr}:{args.master_port}" if nnodes > 1 else None)
    if args.standalone:
        endpoint = None
    script = [args.training_script, *args.training_script_args]
    if args.no_python:
        command = script
    else:  # the ranks see Flambeau as torch, as this process does
        command = [sys.executable, "-m", "flambeau", "run", *(["-m"] if args.module else []), *script]
    return agent.run(command, nproc=_ranks(args.nproc_per_node), nnodes=nnodes, node_rank=args.node_rank, endpoint=endpoint,
                     max_restarts=args.max_restarts, run_id=None if args.rdzv_id == "none" else args.rdzv_id)


def main(args: Sequence[str] | None = None) -> None:
    """The command.  Raises SystemExit with the status of the first rank that failed."""
    status = run(parse_args(args))
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    main()
