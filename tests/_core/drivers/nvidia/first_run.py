"""The first minutes on an NVIDIA GPU: ``python -m tests._core.drivers.nvidia.first_run [--again]`` (`make gpu-first`, `make gpu-again`).

First small steps, each in a process of its own that may take --each seconds and, where it takes longer, shows its stack (`first_steps`); then
the device tests, the benchmark, the calibration of simulated GPUs (whose model file is among the results) and the operator database's fixed part,
each with a limit of its own.  A part that fails or hangs keeps
none of the others from being tried.  All of it goes into one folder, which is packed beside itself after each part, so that a machine that is
taken away leaves what there was.  --again does what did not pass before: those steps, and those of the tests.

Exit status: 0 where all passed, 1 where something did not, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from tests._core.drivers.nvidia import first_steps

ROOT = first_steps.ROOT
HERE = Path(__file__).resolve().parent


def carried_out(command: list[str], limit: float, log: Path, **environment: str) -> tuple[str, float]:
    """Runs a command; gives "passed" or what became of it, and its seconds.  What it says goes to `log`."""
    since = time.monotonic()
    with open(log, "wb") as f:
        process = subprocess.Popen(command, stdout=f, stderr=f, stdin=subprocess.DEVNULL, cwd=ROOT, env=os.environ | environment, start_new_session=True)
        try:
            status = process.wait(limit)
            outcome = "passed" if status == 0 else f"ended by {signal.Signals(-status).name}" if status < 0 else f"failed with status {status}"
        except subprocess.TimeoutExpired:
            outcome = f"hung: more than {limit:.0f} s"
            _end(process)
    return outcome, time.monotonic() - since


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those it started; one that waits for its GPU may take long, and nobody waits for it."""
    for how in (signal.SIGABRT, signal.SIGKILL):  # the first makes faulthandler show the stack
        try:
            os.killpg(process.pid, how)
            process.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def said(log: Path) -> str:
    """The line of a log that tells most: its last, or where it was when it was ended."""
    lines = [line.rstrip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    where = [line.strip() for line in lines if line.startswith("  File ") and ("first_steps" in line or "flambeau" in line)]
    if any(line.startswith("Fatal Python error") for line in lines) and where:
        return where[0]
    return lines[-1][:300] if lines else ""


class Run:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, Path(options.out)
        self.began = time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)
        self.told = self.out / "first.json"
        before = json.loads(self.told.read_text()) if options.again and self.told.exists() else {}
        self.before: dict[str, Any] = before.get("results", {})
        self.results: dict[str, Any] = dict(self.before)
        # NumPy's wheel has an OpenBLAS of its own where scipy-openblas64 is absent; caches that are cold make the first import slow
        self.environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYTHONFAULTHANDLER": "1"}
        if options.fake:
            self.environment["FIRST_FAKE"] = "1"

    @property
    def left(self) -> float:
        return float(self.options.limit) - (time.monotonic() - self.began)

    def one(self, name: str, command: list[str], limit: float, needs: float = 1.0) -> str:
        """A step or part, unless it passed before; its outcome."""
        if self.before.get(name, {}).get("outcome") == "passed":
            return "passed"
        log = self.out / f"{name.replace(' ', '_')}.log"
        outcome, seconds = "not reached", 0.0
        if self.left > needs:
            outcome, seconds = carried_out(command, min(limit, self.left), log, **self.environment)
        cause = said(log) if outcome not in ("passed", "not reached") else ""
        self.results[name] = {"outcome": outcome, "seconds": round(seconds, 2), "cause": cause}
        print(f"{seconds:7.1f} s  {name}: {outcome}{f'  [{cause}]' if cause else ''}", flush=True)
        self.write()
        return outcome

    def write(self) -> None:
        self.told.write_text(json.dumps({"seconds": round(time.monotonic() - self.began, 1), "results": self.results}, indent=1) + "\n")
        aside = self.out.with_name(self.out.name + ".tar.gz.part")
        with tarfile.open(aside, "w:gz") as archive:
            archive.add(self.out, self.out.name)
        aside.replace(self.out.with_name(self.out.name + ".tar.gz"))

    def steps(self) -> bool:
        """The small ones; whether a kernel ran, without which the rest is of no use."""
        for name in first_steps.STEPS:
            if self.options.only and name not in self.options.only.split(","):
                continue
            # a first import finds nothing in the file system's cache
            limit = self.options.each * (6 if name == "import" else 1)
            self.one(name, [sys.executable, "-X", "faulthandler", str(HERE / "first_steps.py"), name], limit)
        return bool(self.results.get("kernel", {}).get("outcome") == "passed")

    def parts(self) -> None:
        """The large ones, which share what time is left."""
        tests = [sys.executable, "-m", "tests._core.drivers.nvidia.hardware", "--out", str(self.out)]
        told = self.out / "test-gpu.json"
        if self.options.again and told.exists():
            aside = told.replace(self.out / "test-gpu-before.json")
            tests += ["--again", str(aside)]
        share = {"device tests": 0.55, "benchmark": 0.5, "calibration": 0.5, "operator database": 1.0}
        commands = {"device tests": [*tests, "--limit"], "operator database": [sys.executable, "tools/conformance.py", "--gpu"],
                    "calibration": [sys.executable, "-m", "flambeau.simulated.calibrate", "--out", str(self.out / "measured.toml")],
                    "benchmark": [sys.executable, "benchmarks/gpu/bench_gpu.py", "--table", str(self.out / "bench-gpu.md"), "--limit"]}
        for name, part in share.items():
            limit = max(0.0, self.left - 5) * part
            command = commands[name]
            # they end by themselves a little before they would be ended
            self.one(name, [*command, f"{limit - 8:.0f}"] if command[-1] == "--limit" else command, limit, needs=20.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--again", action="store_true", help="what did not pass before")
    parser.add_argument("--limit", type=float, default=590.0, help="seconds for everything")
    parser.add_argument("--each", type=float, default=10.0, help="seconds for a step; six times that for the first import")
    parser.add_argument("--out", default=str(ROOT / "build" / "gpu-first"), help="the folder for what it finds, packed into a .tar.gz beside it")
    parser.add_argument("--steps", action="store_true", help="the steps alone")
    parser.add_argument("--only", default="", help="of the steps, a comma list")
    parser.add_argument("--fake", action="store_true", help="on the tests' fake libraries, which need g++ and no GPU")
    options = parser.parse_args()
    if not options.fake:
        from flambeau._core.drivers.nvidia import probe
        found = probe.look()
        if not found.count:
            print(f"gpu-first: skipped, because {found.why or 'there is no GPU here'}")
            return 2
    run = Run(options)
    if run.steps() and not options.steps:
        run.parts()
    wrong = [name for name, r in run.results.items() if r["outcome"] != "passed"]
    print(f"{len(run.results) - len(wrong)} of {len(run.results)} passed in {time.monotonic() - run.began:.0f} s; all of it is in {run.out}.tar.gz")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
