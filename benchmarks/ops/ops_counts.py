"""What calls of a fixed sample of operations cost on any machine: `python benchmarks/ops/ops_counts.py [--write] [--only PATTERN]`.

For each line, at small and large sizes, forward and (small) with its backward pass: the launches that a call asks of the device, the bytes that these
read and write, the blocks of memory that they write beside the operands', and the Python functions that a warm call enters.  None of it depends
on how fast or busy the machine is; `tests/benchmarks/counts.toml` has what each may be at most, which CI holds.  --write: writes that table anew.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ |= {"FLAMBEAU_NUM_THREADS": "1"}

from ops_lines import Line, all_lines  # noqa: E402
from ops_timing import Work, entered, gradient_of, prepare  # noqa: E402
from ops_values import CASES  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "benchmarks" / "counts.toml"
SAMPLE = """x + y; x[1:3]; x[mask]; x[order]; o[order] = y; exp; where; clamp; nn.functional.gelu; nn.functional.elu; sum; std; max; argmax; logsumexp
 softmax; layer_norm; native_batch_norm; nn.functional.cross_entropy; cumsum; cat; stack; clone; Tensor.copy_; flip; roll; repeat_interleave; tril
 nn.functional.pad; gather; scatter_add; index_select; index_add; scatter_reduce; sort; topk; nonzero; searchsorted; equal
 mm; mv; dot; tensordot; nn.functional.linear; einsum; conv2d; nn.functional.max_pool1d; nn.functional.max_pool2d; nn.functional.avg_pool3d
 nn.functional.interpolate; nn.functional.grid_sample; nn.functional.scaled_dot_product_attention; fft.rfft; complex; zeros; arange"""
SLACK = 3  # Python functions, and a tenth: a helper more is no slow path
WARM = {"small": 40, "large": 3}


class Counts(NamedTuple):
    launches: int
    bytes: int
    blocks: int
    calls: int


def counted(lib: Any, work: Work, warm: int) -> Counts:
    """Of one call, after so many others."""
    from flambeau._core.runtime import dispatch
    work.block(warm)
    work.restore()
    calls = len(entered(work))
    launches: list[int] = []
    written: set[int] = set()

    def look(device: Any, stream: Any, prepared: Any, args: tuple[Any, ...]) -> None:
        launches.append(prepared.nbytes)
        written.update(args[:prepared.outputs])
    with dispatch.observe(launches=look):
        work.block(2)  # which bind what they launch anew
        work.restore()
        launches.clear()
        written.clear()
        work.block(1)
        found = Counts(len(launches), sum(launches), len(written), calls)
    work.restore()
    return found


def sample(lib: Any) -> list[Line]:
    """The lines, in the order of `SAMPLE`."""
    lines = {line.name: line for line in all_lines(lib)[0]}
    names = [name.strip() for name in re.split(r";|\n", SAMPLE)]
    return [lines.get(name) or lines[name.removeprefix("nn.functional.")] for name in names]


def measured(lib: Any, pattern: str = "") -> dict[str, Counts]:
    """By "name, size[, backward]"."""
    found = {}
    lib.set_num_threads(1)
    for line in sample(lib):
        if not re.search(pattern, line.name):
            continue
        for size, warm in WARM.items():
            case = CASES[size]
            lib.set_grad_enabled(False)
            found[f"{line.name}, {size}"] = counted(lib, prepare(lib, line, None, case), warm)
            gradient = gradient_of(lib, line, case) if size == "small" else None
            if gradient is not None:
                found[f"{line.name}, {size}, backward"] = counted(lib, prepare(lib, line, gradient, case), warm)
    return found


def ceilings() -> dict[str, Counts]:
    return {name: Counts(*numbers) for name, numbers in tomllib.loads(TABLE.read_text())["counts"].items()}


def written_table(found: dict[str, Counts]) -> str:
    rows = [f'{name!r} = [{", ".join(map(str, c))}]' for name, c in found.items()]
    return ("# What a call may cost at most: launches, bytes that they read and write, blocks of memory that they write, Python functions entered (and\n"
            "# a tenth and three more).\n"
            "# Written by `python benchmarks/ops/ops_counts.py --write`; a number that grows needs its reason in the commit.\n[counts]\n"
            + "\n".join(rows) + "\n")


def beyond(found: dict[str, Counts], most: dict[str, Counts]) -> list[str]:
    """What costs more than it may, or is not in the table."""
    told = []
    for name, counts in found.items():
        if name not in most:
            told.append(f"{name}: it is not in {TABLE.name}")
            continue
        limits = most[name]._replace(calls=most[name].calls + SLACK + most[name].calls // 10)
        told += [f"{name}: {what} {have}, at most {limit}" for what, have, limit in zip(Counts._fields, counts, limits, strict=True) if have > limit]
    return told


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(ROOT)} anew")
    options.add_argument("--only", metavar="PATTERN", default="", help="lines whose name this regular expression finds")
    chosen = options.parse_args()
    import flambeau
    found = measured(flambeau, chosen.only)
    if chosen.write:
        TABLE.write_text(written_table(({**ceilings()} if chosen.only else {}) | found))
        print(f"{len(found)} lines")
        return 0
    for name, c in found.items():
        print(f"{c.launches:4} launches {c.bytes:12} bytes {c.blocks:4} blocks {c.calls:5} calls  {name}")
    wrong = beyond(found, ceilings() if TABLE.exists() else {})
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
