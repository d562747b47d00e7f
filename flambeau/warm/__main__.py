"""One group of programs in this process: `python -m flambeau.warm NAME`, for `flambeau warm`.

--beside: makes what comes through its standard input, a socket, for a program that goes on meanwhile.
--behind NAME ...: several of them, or all, in processes of the lowest priority.  --one-behind NAME: one, in such a process.
"""

from __future__ import annotations

import json
import os
import sys

from .._core.kernels import cache
from . import behind, make


def main(words: list[str]) -> int:
    """Returns the exit status."""
    if words[0] == "--behind":
        return behind.work(words[1:])
    if words[0] == "--beside":
        import socket

        from .._core.kernels.llvm import beside
        os.nice(5)
        beside.serve(socket.socket(fileno=0))
        return 0
    cache.behind = words[0] == "--one-behind"
    kernels, seconds = make(words[-1])
    print(json.dumps({"kernels": kernels, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
