"""Random programs under PyTorch and Flambeau in one process: programs/fuzz.py of the instruments makes, runs and compares them.

    python -m tools.fuzz.programs_process --instrument FILE --tree DIR --seeds FIRST:LAST --out FILE [--seconds N]
    python -m tools.fuzz.programs_process --instrument FILE --tree DIR --shrink FILE --out FILE

A line of JSON a program goes to the file: its seed and the classes of its differences.  A program that ends the process (a crash, or one
minute of work) is the last seed in `OUT.now`; who started this process goes on behind it.  `--shrink` reads [seed, class] pairs and writes the
shortest program that still shows that class.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from . import judge
from .classes import Class, class_of, error_words

Program = tuple[list[Any], list[str]]
Difference = tuple[Class, int, str]  # at which line, and in the instrument's words

LONGEST = 60  # seconds of processor time that one program may take


def load(path: Path, tree: Path) -> Any:
    """The instrument as a module, with the flambeau of `tree`."""
    sys.path.insert(0, str(tree))
    spec = importlib.util.spec_from_file_location("instrument_programs", path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    where = Path(str(module.flambeau.__file__)).resolve()
    if tree.resolve() not in where.parents:
        raise SystemExit(f"fuzz: flambeau came from {where}, not from {tree}")
    return module


def note_raising(instrument: Any) -> None:
    """Keeps in `instrument.raised`, for each line that was run under each library, whether it raised."""
    instrument.raised = []

    def noting(evaluate: Any) -> Any:
        def line(code: Any, env: dict[str, Any]) -> Any:
            instrument.raised.append(True)
            result = evaluate(code, env)
            instrument.raised[-1] = False
            return result
        return line

    instrument.eval, instrument.exec = noting(eval), noting(exec)


def on_simulated_gpu(instrument: Any) -> None:
    """Lets Flambeau make all tensors on a simulated GPU whose work waits until somebody asks: a missing wait shows as a wrong value."""
    flambeau = instrument.flambeau
    flambeau.simulate(gpus=1, memory="1GiB", queue="lazy")
    flambeau.set_default_device("cuda")
    numpy = flambeau.Tensor.numpy
    flambeau.Tensor.numpy = lambda self: numpy(self.cpu())  # the instrument reads results so

    def settled(evaluate: Any) -> Any:
        def line(code: Any, env: dict[str, Any]) -> Any:
            result = evaluate(code, env)
            flambeau.cuda.synchronize()  # an error of this line belongs to this line
            return result
        return line

    instrument.eval, instrument.exec = settled(instrument.eval), settled(instrument.exec)


def differences(instrument: Any, program: Program) -> list[Difference]:
    """All that differs in one program, in the order of its lines; the instrument stops at what makes the rest worthless."""
    instrument.ERRT.clear()
    instrument.SOFTK.clear()
    instrument.SOFTL.clear()
    instrument.raised.clear()
    _, lines = program
    try:
        last = instrument.run(program)
    except RecursionError as e:
        return [(("harness", "?", error_words("RecursionError", str(e))), len(lines) - 1, str(e)[:200])]
    except Exception as e:  # the instrument's own reading of a result failed
        return [(("harness", "?", error_words(type(e).__name__, str(e))), len(lines) - 1, f"{type(e).__name__}: {str(e)[:200]}")]
    if last and last[0].endswith("-after") and instrument.raised[-2:] == [True, True]:
        last = (last[0] + "-raising", *last[1:])  # both refused, and one had written something before
    found = [(class_of(kind, lines[n], text), n, text) for kind, n, text in [*instrument.SIDE, *([last] if last else [])]]
    for (_, theirs, ours), cases in instrument.ERRT.items():
        for their_text, our_text, line in cases:
            c = class_of("error-type", line, "")
            found.append(((c[0], c[1], f"{theirs} / {ours}"), lines.index(line), f"{theirs}: {their_text} / {ours}: {our_text}"))
    laid_out = []
    for (kind, prefix), texts in instrument.SOFTK.items():
        n = next(i for i, line in enumerate(lines) if instrument_prefix(line) == prefix)
        laid_out.append((class_of(kind, lines[n], ""), n, texts[0]))
    found += sorted(laid_out, key=lambda d: d[1])[:1]  # the first: from there on, other results inherit the layout
    return [(judged(instrument, program, c, n, text), n, text) for c, n, text in sorted(found, key=lambda d: d[1])]


def judged(instrument: Any, program: Program, c: Class, n: int, text: str) -> Class:
    """The class, its kind with the word that `judge` finds for it."""
    word = judge.word(instrument, program, c[0], n, text)
    return (f"{c[0]}-{word}", c[1], c[2]) if word else c


def instrument_prefix(line: str) -> str:
    """A line as the instrument keys strides and offsets."""
    return re.sub(r"v\[-?\d+\]", "v", line)[:40]


def shrunk(instrument: Any, program: Program, wanted: Class) -> tuple[Program, str]:
    """The program with as many lines as can be replaced by `v[0]`, and inputs made plain, that still differs so."""
    import numpy as np

    def text_of(candidate: Program) -> str | None:
        try:
            return next((text for c, n, text in differences(instrument, candidate) if c == wanted and n == len(candidate[1]) - 1), None)
        except Exception:
            return None

    inputs, lines = program
    first = next((n for c, n, _ in differences(instrument, program) if c == wanted), len(lines) - 1)
    lines = lines[:first + 1]
    best = text_of((inputs, lines)) or ""
    for i in range(len(lines) - 2, -1, -1):
        shorter = lines[:i] + ([] if lines[i].startswith("!") else ["v[0]"]) + lines[i + 1:]
        text = text_of((inputs, shorter))
        if text is not None:
            lines, best = shorter, text
    for i, (_, values, needs_grad) in enumerate(inputs):
        plain = (values.real if values.dtype.kind == "c" else values).astype(np.float64)
        for simpler in ((inputs[i][0], values, False), ("float32", plain, needs_grad)):
            candidate = inputs[:i] + [simpler] + inputs[i + 1:]
            text = text_of((candidate, lines))
            if text is not None:
                inputs, best = candidate, text
    return (inputs, lines), best


def as_text(program: Program, text: str) -> str:
    """A program in one line: inputs, the lines that matter, what came out."""
    inputs, lines = program
    given = ", ".join(f"v[{i}] {dtype}{list(values.shape)}{' grad' if g else ''}" for i, (dtype, values, g) in enumerate(inputs))
    steps = "; ".join(f"{'' if line.startswith('!') else f'v[{i}] = '}{line.removeprefix('!')}"
                      for i, line in _numbered(len(inputs), lines) if line != "v[0]")
    return f"{given} :: {steps} -> {text[:160]}"


def _numbered(first: int, lines: list[str]) -> list[tuple[int, str]]:
    out = []
    for line in lines:
        out.append((first, line))
        first += not line.startswith("!")
    return out


def run(instrument: Any, first: int, last: int, seconds: float, out: Path) -> None:
    now = Path(f"{out}.now")
    ends = time.monotonic() + seconds
    with out.open("a") as log:
        for seed in range(first, last):
            if time.monotonic() > ends:
                break
            now.write_text(str(seed))
            signal.setitimer(signal.ITIMER_PROF, LONGEST)  # its signal ends the process
            program = instrument.gen(seed)
            found = differences(instrument, program)
            log.write(json.dumps({"seed": seed, "lines": len(program[1]), "found": [[list(c), text[:200]] for c, _, text in found]}) + "\n")
            log.flush()
    now.write_text("done")


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--instrument", type=Path, required=True)
    p.add_argument("--tree", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seeds", default="0:1")
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--shrink", type=Path)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    a = p.parse_args()
    instrument = load(a.instrument, a.tree)
    note_raising(instrument)
    if a.device == "cuda":
        on_simulated_gpu(instrument)
    if a.shrink:
        with a.out.open("w") as out:
            for seed, c in json.loads(a.shrink.read_text()):
                program, text = shrunk(instrument, instrument.gen(seed), (c[0], c[1], c[2]))
                out.write(json.dumps([c, as_text(program, text)]) + "\n")
                out.flush()
        return
    first, last = map(int, a.seeds.split(":"))
    run(instrument, first, last, a.seconds, a.out)


if __name__ == "__main__":
    main()
