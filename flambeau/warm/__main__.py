"""One group of programs in this process: `python -m flambeau.warm NAME`, for `flambeau warm`.

--behind NAME ...: several of them, or all, in processes of the lowest priority.  --one-behind NAME: one, in such a process.
"""

from __future__ import annotations

import json
import sys

from .._core.kernels import cache
from . import behind, make


def main(words: list[str]) -> int:
    """Returns the exit status."""
    if words[0] == "--behind":
        return behind.work(words[1:])
    cache.behind = words[0] == "--one-behind"
    kernels, seconds = make(words[-1])
    print(json.dumps({"kernels": kernels, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
