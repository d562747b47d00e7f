"""Through how many files of the package a warm call passes: `python benchmarks/ops/trips.py [--json] [--show NAME]`.

Counted under `sys.setprofile` in this thread.  A stay is a run of steps, into a function or back to its caller, in one
file; few files and few stays are what a reader of the trip has to open.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import flambeau

PACKAGE = str(Path(flambeau.__file__).parent) + "/"
WARM = 5


class Trip(NamedTuple):
    files: int
    calls: int
    stays: int
    path: list[str]  # the functions that were entered, as file:name


def counted(work: Callable[[], Any]) -> Trip:
    """The trip of one call, after a few unwatched ones."""
    for _ in range(WARM):
        work()
    entered: list[str] = []
    steps: list[str] = []

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "return":
            frame = frame.f_back
        elif event != "call":
            return
        if frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
            file = frame.f_code.co_filename.removeprefix(PACKAGE)
            steps.append(file)
            if event == "call":
                entered.append(f"{file}:{frame.f_code.co_qualname}")

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()  # and the end of its result
    finally:
        sys.setprofile(before)
    return Trip(len({e.partition(":")[0] for e in entered}), len(entered), sum(1 for _ in groupby(steps)), entered)


def works() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The trips that are watched, by name."""
    f = flambeau
    f.manual_seed(0)
    a, b = f.rand(4, 4), f.rand(4, 4)
    with f.no_grad():
        yield "a + b", lambda: a + b
    linear = f.nn.Linear(4, 4)
    yield "Linear", lambda: linear(a)
    yield "softmax", lambda: f.softmax(a, 1)
    leaves = [f.rand(4, 4, requires_grad=True) for _ in range(2 * (WARM + 1))]
    products, one = [x * y for x, y in zip(leaves[::2], leaves[1::2], strict=True)], f.ones(4, 4)
    yield "backward of a * b", lambda: products.pop().backward(one)
    with f.simulate(gpus=2):
        yield 'x.to("cuda")', lambda: a.to("cuda")
        there, other = a.to("cuda"), a.to("cuda:1")
        yield "x.cuda()", lambda: a.cuda()
        yield "x.cpu()", lambda: there.cpu()
        yield "cuda to half", lambda: there.to(f.float16)
        yield "cuda:0 to cuda:1", lambda: there.to("cuda:1")
        yield "copy_ up", lambda: there.copy_(a)
        yield "copy_ down", lambda: b.copy_(there)
        yield "copy_ across", lambda: other.copy_(there)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--json", action="store_true", help="the numbers as JSON")
    options.add_argument("--show", metavar="NAME", help="list the functions that this trip enters")
    chosen = options.parse_args()
    found = {name: counted(work) for name, work in works()}
    if chosen.json:
        print(json.dumps({name: trip._asdict() for name, trip in found.items()}))
        return 0
    for name, trip in found.items():
        print(f"{name:20} {trip.files:3} files  {trip.calls:3} calls  {trip.stays:3} stays")
    print("\n".join(found[chosen.show].path) if chosen.show else "", end="\n" if chosen.show else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
