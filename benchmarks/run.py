"""How fast Flambeau is beside PyTorch: one command, one table.

    python benchmarks/run.py [--only PATTERN] [--rounds N] [--json FILE] [--no-install]

Each line is measured by two processes, one a library, both at two threads, that take turns for many rounds; the
ratio is of the medians: above 1, Flambeau is faster. A line that fails says why in the table. OPENBLAS_CORETYPE,
which halves OpenBLAS where it is set to an older CPU, is unset for both.  ``jax.jit`` runs in an environment of its own (`make bench` makes it); where
that could not be installed, its lines say so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import install
from rich.console import Console
from rich.table import Table
from side import LINES, THREADS

HERE = Path(__file__).resolve().parent
SECONDS_A_LINE = 12.0
MIN_ROUNDS = 5
JAX = HERE.parent / ".venv-jax" / "bin" / "python"
REST = 0.004  # lets the other side's spinning threads fall asleep


NAMED = {"plain": "Flambeau's own plain way", "jax": "jax.jit"}


class Failed(Exception):
    """A side could not do what it was asked; the message is its error."""


class Side:
    """A process that runs one library's half of each line."""

    def __init__(self, name: str) -> None:
        self.name = name
        environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OMP_PROC_BIND")}
        environment |= {"OMP_NUM_THREADS": str(THREADS), "FLAMBEAU_NUM_THREADS": str(THREADS)}
        environment["PYTHONPATH"] = str(HERE.parent)
        self.process = subprocess.Popen(
            [str(JAX) if name == "jax" else sys.executable, str(HERE / "side.py"), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
            text = self.process.stdout.readline()
        except BrokenPipeError:
            text = ""
        if not text:
            raise Failed(f"{self.name}: the process died (exit {self.process.wait()})")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Pair:
    """Both sides; one that died is started anew for the next line."""

    def __init__(self) -> None:
        self.sides: dict[str, Side] = {}

    def side(self, name: str) -> Side:
        if name == "jax" and not JAX.exists():
            raise Failed("jax could not be installed here")
        if name not in self.sides or self.sides[name].process.poll() is not None:
            self.sides[name] = Side(name)
        return self.sides[name]

    def measure(self, line: str, rounds: int, other: str = "torch") -> dict[str, Any]:
        """Median seconds a call of both sides, or the error of the one that failed."""
        try:
            theirs, ours = self.side(other), self.side("flambeau")
            theirs.ask(prepare=line)
            ours.ask(prepare=line)
            samples: list[tuple[float, float]] = []
            started = time.perf_counter()
            while len(samples) < rounds:
                if len(samples) >= MIN_ROUNDS and time.perf_counter() - started > SECONDS_A_LINE:
                    break
                time.sleep(REST)
                a = theirs.ask(sample=True)["seconds"]
                time.sleep(REST)
                samples.append((a, ours.ask(sample=True)["seconds"]))
            a, b = (statistics.median(column) for column in zip(*samples, strict=True))
            return {f"{other}_s": a, "flambeau_s": b, "ratio": a / b, "rounds": len(samples)}
        except Failed as error:
            return {"error": str(error)}
        finally:
            for side in self.sides.values():
                if side.process.poll() is None:
                    side.ask(drop=True)

    def close(self) -> None:
        for side in self.sides.values():
            side.close()


def duration(seconds: float, nbytes: int = 0) -> str:
    if nbytes:
        return f"{duration(seconds)}\n{nbytes / seconds / 1e9:.1f} GB/s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def mark(good: bool) -> str:
    return "[green]pass[/]" if good else "[bold red]short[/]"


def costs() -> list[tuple[str, float, str, Callable[[str], float]]]:
    """(name, at most, unit, measure of a package) of what is paid before the first line."""
    return [
        ("import, beyond bare Python", 150, "ms", lambda package: 1e3 * install.import_seconds(package)),
        ("hard dependencies installed", 320, "MB", lambda package: install.installed_mb(_brought(package))),
        ("hard dependencies to download", 130, "MB", lambda package: install.download_mb(_brought(package))),
        ("memory of a compiled character GPT's step, of what it takes as it is", 80, "%", _share_of_memory),
    ]


def _share_of_memory(package: str) -> float:
    """Percent; see `step_memory.py`."""
    made = subprocess.run([sys.executable, str(HERE / "step_memory.py"), package], capture_output=True, text=True, timeout=900, check=False)
    if made.returncode:
        raise RuntimeError(made.stderr.strip().splitlines()[-1])
    found = json.loads(made.stdout.splitlines()[-1])
    return 100.0 * float(found["compiled"] / found["eager"])


def _brought(package: str) -> set[str]:
    return install.hard_dependencies(package) | ({"torch"} if package == "torch" else set())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def weigh(measure: Callable[[str], float], package: str) -> float | str:
    try:
        return measure(package)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    options = argparse.ArgumentParser(description="How fast Flambeau is beside PyTorch.")
    options.add_argument("--only", metavar="PATTERN", default="", help="lines whose name this regular expression finds")
    options.add_argument("--rounds", type=int, default=31, help="samples of each side (default 31)")
    options.add_argument("--json", metavar="FILE", help="write the figures there too")
    options.add_argument("--no-install", action="store_true", help="leave out import time and sizes")
    chosen = options.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    figures: dict[str, Any] = {"machine": platform.machine(), "threads": THREADS, "lines": {}}

    versions = " beside ".join(f"{name} {_version(name)}" for name in ("flambeau", "torch"))
    table = Table(title=f"{versions}: both at {THREADS} threads, medians of interleaved runs, OPENBLAS_CORETYPE unset")
    table.add_column("line", overflow="fold")
    for heading in ("torch", "flambeau", "ratio", "at least", ""):
        table.add_column(heading, justify="right")
    pair, short, beside = Pair(), 0, "torch"
    with console.status("") as status:
        for line in LINES:
            if not re.search(chosen.only, line.name, re.IGNORECASE):
                continue
            status.update(line.name)
            other = line.beside
            if other != beside:
                beside = other
                table.add_section()
                table.add_row(f"[bold]beside {NAMED[other]}, in torch's column[/]" if other != "torch" else "")
            result = figures["lines"][line.name] = pair.measure(line.name, max(chosen.rounds, MIN_ROUNDS), other)
            result["target"] = line.target
            target = f"{line.target:g}x"
            if "error" in result:
                short += 1
                table.add_row(f"{line.name}\n[red]{result['error']}[/]", "", "", "error", target, mark(False))
                continue
            short += result["ratio"] < line.target
            table.add_row(line.name, *[duration(result[f"{side}_s"], line.nbytes) for side in (other, "flambeau")],
                          f"{result['ratio']:.2f}x", target, mark(result["ratio"] >= line.target))  # fmt: skip
        pair.close()
        if not chosen.no_install:
            table.add_section()
            for name, at_most, unit, measure in costs():
                if not re.search(chosen.only, name, re.IGNORECASE):
                    continue
                status.update(name)
                values = [weigh(measure, package) for package in ("torch", "flambeau")]
                figures["lines"][name] = {"torch": values[0], "flambeau": values[1], "at_most": at_most, "unit": unit}
                ours = values[1]
                good = isinstance(ours, float) and ours <= at_most
                short += not good
                shown = [f"{value:.0f} {unit}" if isinstance(value, float) else "error" for value in values]
                errors = [f"\n[red]{value}[/]" for value in values if isinstance(value, str)]
                table.add_row(name + "".join(errors), *shown, "", f"at most {at_most} {unit}", mark(good))
    console.print(table)
    console.print(f"{short} short of their target" if short else "every line reaches its target")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
