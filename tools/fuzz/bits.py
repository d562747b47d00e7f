"""The same random programs in two checkouts of Flambeau, compared to the bit: types, shapes, strides, values, gradients, errors with their words.

    python -m tools.fuzz --only bits --against DIR --seeds FIRST:LAST [--device cuda]

No known classes here: between two checkouts nothing may differ but what a change wants to.  The process part of this file runs in a process of
its own for each checkout and writes a line of JSON a program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from . import classes
from .programs_process import load, on_simulated_gpu

MOST = 25  # classes that are printed


def check(root: Path, instruments: Path, a: argparse.Namespace) -> bool:
    """Prints where programs begin to differ, one example for each operation."""
    here, there = (collect(root, instruments, tree, a.seeds or "0:4000", a.device) for tree in (root, a.against.resolve()))
    found: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for seed in sorted(here.keys() & there.keys()):
        for line, now, before in zip(here[seed]["lines"], here[seed]["said"], there[seed]["said"], strict=True):
            if now != before:  # what follows may be its consequence
                op = classes.operation(line)
                counts[op] += 1
                found.setdefault(op, [f"seed {seed}: {line}", f"there: {before}", f"here:  {now}"])
                break
    print(f"fuzz: {len(here)} programs to the bit, {sum(counts.values())} differ in {len(counts)} operations")
    for op, n in counts.most_common(MOST):
        print(f"  {op}: {n}", *found[op], sep="\n      ")
    if missing := here.keys() ^ there.keys():
        print(f"  ended one of the processes: seeds {sorted(missing)[:10]}")
    return not counts and not missing


def collect(root: Path, instruments: Path, tree: Path, seeds: str, device: str) -> dict[int, dict[str, list[str]]]:
    """What each line of each program said, by seed; a program that ends its process is absent."""
    out = root / "build" / "fuzz" / f"bits-{'here' if tree == root else 'there'}.jsonl"
    out.unlink(missing_ok=True)
    first, last = map(int, seeds.split(":"))
    found: dict[int, dict[str, list[str]]] = {}
    while first < last:
        command = [sys.executable, "-m", "tools.fuzz.bits", str(instruments / "programs" / "fuzz.py"), str(tree), str(first), str(last), device, str(out)]
        done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
        for line in out.read_text().splitlines() if out.exists() else []:
            entry = json.loads(line)
            found[entry["seed"]] = entry
        if done.returncode == 0:
            break
        if not out.exists():
            raise SystemExit(f"fuzz: bits did not start:\n{done.stderr[-2000:]}")
        at = max((s for s in found), default=first - 1) + 1
        print(f"  seed {at} ended its process in {tree.name}")
        first = at + 1
    return found


# ------------------------------------------------------------------------------------------------------- the process
def say(instrument: Any, value: Any) -> str:
    """A value in a few words that change with any of its bits."""
    kind, *parts = instrument.summ(value)
    if kind == "T":
        dtype, shape, strides, offset, values, needs_grad, leaf = parts
        steps = [s if n > 1 else "-" for s, n in zip(strides, shape, strict=True)]  # nobody takes a step along an axis of one
        return f"{dtype}{list(shape)} strides {steps} at {offset} bits {zlib.crc32(values.tobytes()):08x} grad {needs_grad} leaf {leaf}"
    if kind == "L":
        return "[" + ", ".join(say(instrument, v) for v in value) + "]"
    return f"{kind} {parts}"[:160]


def line_by_line(instrument: Any, program: Any) -> list[str]:
    """What each line gives, and what it changes in the values before it."""
    inputs, lines = program
    flambeau = instrument.flambeau
    v = [instrument.mk(flambeau, i) for i in inputs]
    env = {"T": flambeau, "v": v}
    evaluate, execute = getattr(instrument, "eval", eval), getattr(instrument, "exec", exec)
    said = []
    for line in lines:
        code, result, text = instrument.comp(line), None, ""
        try:
            if line.startswith("!"):
                execute(code, env)
            else:
                result = evaluate(code, env)
                text = say(instrument, result)
        except Exception as e:
            text = f"{type(e).__name__}: {str(e)[:160]}"
        if not line.startswith("!"):
            first = result[0] if isinstance(result, (tuple, list)) and result and all(instrument.isT(i) for i in result) else result
            v.append(first if instrument.isT(first) else flambeau.zeros(2, 2))
        if line.startswith("!") or "_(" in line:
            try:
                grads = [t.grad for t in v if t.requires_grad and t.is_leaf]
                text += " then " + f"{zlib.crc32(' '.join(say(instrument, t) for t in [*v, *grads]).encode()):08x}"
            except Exception as e:
                text += f" then {type(e).__name__}: {str(e)[:100]}"
        said.append(text)
    return said


def main() -> None:
    path, tree, first, last, device, out = sys.argv[1:]
    instrument = load(Path(path), Path(tree))
    if device == "cuda":
        on_simulated_gpu(instrument)
    with Path(out).open("a") as log:
        for seed in range(int(first), int(last)):
            program = instrument.gen(seed)
            log.write(json.dumps({"seed": seed, "lines": program[1], "said": line_by_line(instrument, program)}) + "\n")
            log.flush()


if __name__ == "__main__":
    main()
