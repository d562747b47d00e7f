"""The command line: `flambeau info` and `flambeau demo` (also as `python -m flambeau`)."""

from __future__ import annotations

import argparse
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

    demo = commands.add_parser("demo", help="train a small network on handwritten digits and show what it learnt")
    demo.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: a real GPU if there is one, else a simulated one)"
    )
    demo.add_argument("--epochs", type=_positive, help="times through the training images (default: 10)")
    demo.add_argument("--seed", type=int, default=0, help="of the weights and the order of the images (default: 0)")
    return top


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
    try:
        if chosen.command == "info":
            from flambeau import inventory

            inventory.show(as_json=chosen.json)
            return 0
        from flambeau.demo import learn, train

        return train.run(chosen.device, chosen.epochs or learn.EPOCHS, chosen.seed)
    except KeyboardInterrupt:
        print("flambeau: stopped", file=sys.stderr)
        return 130
    except RuntimeError as error:  # a device that is not there, no memory: said in full by the error itself
        print(f"flambeau: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
