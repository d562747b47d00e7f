"""The most memory that a training step of the character GPT takes at once, beyond what lives before it, as it is and compiled.

    python benchmarks/step_memory.py torch|flambeau

prints both in bytes, as JSON.  Flambeau's are those of `explain`; PyTorch's are sums over the profiler's notes of what is allocated and freed.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from lines_models import character_gpt

WARM = 3  # calls before the one that is measured: PyTorch compiles, and optimizers make their state


def _of_flambeau(lib: Any) -> tuple[int, int]:
    step = character_gpt()(lib)
    step()
    peak: tuple[int, int] = lib.explain(step)().peak
    return peak


def _of_torch(lib: Any) -> tuple[int, int]:
    def most(step: Any) -> int:
        for _ in range(WARM):
            step()
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
            step()
        now = highest = 0
        notes = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
        for e in sorted(notes, key=lambda e: e.start_ns()):
            now += e.nbytes()
            highest = max(highest, now)
        return highest
    return most(character_gpt()(lib)), most(lib.compile(character_gpt()(lib)))


def main() -> int:
    package = sys.argv[1]
    eager, compiled = (_of_torch if package == "torch" else _of_flambeau)(importlib.import_module(package))
    print(json.dumps({"eager": eager, "compiled": compiled}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
