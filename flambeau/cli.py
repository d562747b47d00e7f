"""The command line: `flambeau info`, `smi`, `demo`, `run`, `warm` and `completion` (also as `python -m flambeau`)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

EXIT_USAGE = 2


def parser() -> argparse.ArgumentParser:
    """What the command line accepts."""
    import flambeau

    top = argparse.ArgumentParser(
        prog="flambeau", description="PyTorch-shaped tensors on the CPU, on GPUs and on simulated GPUs."
    )
    top.add_argument("--version", action="version", version=f"flambeau {flambeau.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    info = commands.add_parser("info", help="what this machine has: devices, memory, libraries, versions, caches")
    info.add_argument("--json", action="store_true", help="print it as JSON")

    smi = commands.add_parser("smi", help="what the GPUs do, and which programs and lines hold their memory")
    smi.add_argument("--json", action="store_true", help="print it as JSON")
    smi.add_argument("--watch", type=_seconds, nargs="?", const=1.0, metavar="SECONDS", help="print it again every so many seconds (default: 1)")

    demo = commands.add_parser("demo", help="train a small network on handwritten digits and show what it learnt")
    demo.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: a real GPU if there is one, else a simulated one)"
    )
    demo.add_argument("--epochs", type=_positive, help="times through the training images (default: 10)")
    demo.add_argument("--seed", type=int, default=0, help="of the weights and the order of the images (default: 0)")
    demo.add_argument("--no-page", action="store_true", help="write no page (default: flambeau-demo.html in this folder)")

    run = commands.add_parser("run", help="run a PyTorch script, unmodified, on Flambeau")
    run.add_argument("--sim-gpus", type=_count, metavar="N", help="let it see N simulated GPUs (with one of the next five: 1)")
    run.add_argument("--sim-model", metavar="NAME", help="which GPU is simulated, such as H200 or A100 (default: H200)")
    run.add_argument("--sim-memory", metavar="SIZE", help="the memory of each simulated GPU, such as 8GiB (default: the model's)")
    run.add_argument("--queue", metavar="ORDER", help="when simulated GPUs do their work: eager, lazy or random (default: eager)")
    run.add_argument("--sim-network", metavar="NAME",
                     help="what joins simulated machines, such as NDR or 100GbE, or gigabits a second for each GPU (default: NDR)")
    run.add_argument("--sim-node", type=_positive, metavar="N", help="how many ranks a simulated machine has (default: as many as really run on one)")
    run.add_argument("--report", metavar="PAGE.html", help="write a page of what ran where")
    run.add_argument("--ledger", action="store_true", help="print what moved between devices, by line")
    run.add_argument("--nproc", "--nproc-per-node", "--nproc_per_node", type=_positive, metavar="N",
                     help="run it as N processes on this machine, which meet by torch.distributed")
    run.add_argument("--nnodes", type=_positive, default=1, metavar="N", help="how many machines take part (default: 1)")
    run.add_argument("--node-rank", "--node_rank", type=_count, default=0, metavar="K", help="which of them this is")
    run.add_argument("--rdzv-endpoint", "--rdzv_endpoint", metavar="HOST:PORT", help="where the first machine's agent listens")
    run.add_argument("--max-restarts", "--max_restarts", type=_count, default=0, metavar="N", help="start all again after a failure, so often")
    run.add_argument("-m", dest="module", action="store_true", help="the script is a module's name")
    run.add_argument("-c", dest="code", nargs=argparse.REMAINDER, metavar="CODE", help="run this text; what follows are its own arguments")
    run.add_argument("script", nargs="?", help="a Python file that says `import torch`; - reads it from stdin")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")

    warm = commands.add_parser("warm", help="compile the kernels that usual programs need, ahead and on all cores")
    warm.add_argument("--only", metavar="GROUP", action="append", help="of this kind of program, such as mlp or language (may be given again)")
    warm.add_argument("--jobs", type=_positive, metavar="N", help="so many processes at a time (default: one a core)")

    complete = commands.add_parser("completion", help="print the completion of these words for a shell")
    complete.add_argument("shell", choices=("bash", "zsh", "fish"), help='which shell, such as in: eval "$(flambeau completion bash)"')
    return top


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return number


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit status: 0 done, 1 it failed (said on stderr), 2 wrong usage."""
    top = parser()
    chosen = top.parse_args(arguments)
    if chosen.command is None:
        top.print_help()
        return EXIT_USAGE
    if chosen.command == "run":  # what the script raises is the script's own
        from flambeau.script import command, tracebacks

        if chosen.code is not None:
            if not chosen.code:
                top.error("run: -c needs the text to run")
            program, own = command.Program("-c", code=chosen.code[0]), chosen.code[1:]
        elif chosen.script is not None:
            program, own = command.Program(chosen.script, chosen.module), chosen.arguments
        else:
            top.error("run: name a script, or give its text by -c")
        wrong = command.simulate(chosen.sim_gpus, chosen.sim_model, chosen.sim_memory, chosen.queue, chosen.sim_network, chosen.sim_node)
        if wrong:
            top.error(f"run: {wrong}")
        if chosen.nproc is not None or chosen.nnodes > 1:
            return command.run_many(program, own, nproc=chosen.nproc or 1, nnodes=chosen.nnodes, node_rank=chosen.node_rank,
                                    endpoint=chosen.rdzv_endpoint, max_restarts=chosen.max_restarts, report=chosen.report, ledger=chosen.ledger)
        tracebacks.shorten()
        command.tell_of_slow_compilation()
        return command.run(program, own, report=chosen.report, ledger=chosen.ledger)
    try:
        status = _told(chosen, top)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("flambeau: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # who read it has read enough, as `head` does: nothing is wrong, and nothing more can be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RuntimeError as error:  # a device that is not there, no memory: said in full by the error itself
        print(f"flambeau: {error}", file=sys.stderr)
        return 1


def _told(chosen: argparse.Namespace, top: argparse.ArgumentParser) -> int:
    """The commands that tell something, and the demo."""
    if chosen.command == "completion":
        from flambeau import completion

        print(completion.script(chosen.shell, top), end="")
        return 0
    if chosen.command == "info":
        from flambeau import inventory

        inventory.show(as_json=chosen.json)
        return 0
    if chosen.command == "smi":
        from flambeau import smi as management

        management.show(as_json=chosen.json, watch=chosen.watch)
        return 0
    if chosen.command == "warm":
        from flambeau import warm as ahead

        for name in chosen.only or ():
            if name not in ahead.names():
                top.error(f"warm: argument --only: {name!r} is none of {', '.join(ahead.names())}")
        return ahead.run(chosen.only, chosen.jobs)
    from flambeau.demo import learn, train

    return train.run(chosen.device, chosen.epochs or learn.EPOCHS, chosen.seed, page=not chosen.no_page)


if __name__ == "__main__":
    sys.exit(main())
