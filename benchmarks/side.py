"""One side of the comparison, in a process of its own: `python side.py torch|jax|flambeau|plain`.

The last is Flambeau too: its plain way, for lines that have nothing of theirs to be compared with.

Reads one JSON order a line from standard input and answers each with one JSON line: {"prepare": NAME} makes a line's
work and finds how often to repeat it for a sample that the clock can see; {"sample": true} times one sample (seconds
a call); {"drop": true} frees it. An order that fails is answered with {"error": TEXT}. Two processes, because two
thread pools in one process slow each other down.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from typing import Any

from lines_heavy import LINES as HEAVY
from lines_jax import LINES as JAX
from lines_loader import LINES as LOADER
from lines_memory import LINES as MEMORY
from lines_models import LINES as MODELS
from lines_small import LINES as SMALL
from lines_transfers import LINES as TRANSFERS

LINES = [*SMALL, *MEMORY, *HEAVY, *MODELS, *JAX, *LOADER, *TRANSFERS]
SAMPLE_SECONDS = 0.004
THREADS = 2


def main(side: str) -> None:
    lib = importlib.import_module("flambeau" if side == "plain" else side)
    by_name = {line.name: line for line in LINES}
    work: Any = None
    repeats, clocked = 1, False
    answers = sys.stdout
    sys.stdout = sys.stderr  # what the work prints is no answer
    for order_text in sys.stdin:
        order = json.loads(order_text)
        answer: dict[str, Any] = {}
        try:
            if "prepare" in order:
                line = by_name[order["prepare"]]
                if side != "jax":  # which has as many threads as the process has cores
                    lib.set_num_threads(THREADS)
                clocked = line.clocked
                setup = line.ours if side == "flambeau" and line.ours is not None else line.setup
                work = setup(lib)
                for _ in range(3):
                    work()
                repeats = 1
                while not clocked:
                    started = time.perf_counter()
                    for _ in range(repeats):
                        work()
                    if time.perf_counter() - started >= SAMPLE_SECONDS:
                        break
                    repeats *= 2
            elif "sample" in order:
                work()  # wakes what slept while the other side ran
                gc.disable()
                started = time.perf_counter()
                for _ in range(repeats):
                    result = work()
                answer["seconds"] = result if clocked else (time.perf_counter() - started) / repeats
                gc.enable()
            else:
                work = None
                gc.collect()
        except Exception as error:
            text = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {text[0] if text else ''}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
