"""Runs the tests of devices on a real GPU: ``python -m tests._core.drivers.nvidia.hardware [options] [-- what pytest is given]`` (`make test-gpu`).

After some faults a process can use its GPU no more, and a kernel that never ends never gives it back.  So the tests run in worker
processes (`hardware_worker`), one test at a time; a worker whose GPU died, that crashed, or whose test took longer than it may, is
ended, its test named as the cause, and the rest goes on in a new one.  Several workers share the GPU, each with a context of its own;
tests marked `alone` wait until the others are done.  Files take turns, so that where the time ends early each has been heard.

What came of it is printed at the end in few lines, failures gathered by their cause, and written to build/test-gpu.md and
build/test-gpu.json (both anew every few seconds, so that a run that is cut off leaves what it had).
Exit status: 0 where all that ran passed (also where there is no GPU, which is said), 1 where something failed or was not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
_START = 90.0  # seconds in which a worker must have found its tests
_WRITE_EVERY = 5.0


class Result:
    """What came of a test: "passed", "failed", "skipped", "died" (its GPU did), "crashed" (its process did), "hung" or "cut off"."""

    __slots__ = ("name", "outcome", "seconds", "cause", "text")

    def __init__(self, name: str, outcome: str, seconds: float, cause: str = "", text: str = "") -> None:
        self.name, self.outcome, self.seconds, self.cause, self.text = name, outcome, seconds, cause, text

    def told(self) -> dict[str, Any]:
        return {s: getattr(self, s) for s in self.__slots__}


class Worker:
    """One life of a worker process."""

    def __init__(self, number: int, command: list[str], log: Path, environment: dict[str, str]) -> None:
        to_worker, self._commands = os.pipe()
        self.reports, from_worker = os.pipe()
        os.set_blocking(self.reports, False)
        self.log, self.begun_at = log, log.stat().st_size if log.exists() else 0
        with open(log, "ab") as f:
            self.process = subprocess.Popen(command, stdout=f, stderr=f, stdin=subprocess.DEVNULL, pass_fds=(to_worker, from_worker), cwd=ROOT,
                                            env=environment | {"HARDWARE_PIPES": f"{to_worker},{from_worker}"})
        os.close(to_worker)
        os.close(from_worker)
        self.number, self.ready, self.test, self.since, self.first = number, False, "", time.monotonic(), True
        self._rest = b""

    def give(self, test: str) -> None:
        self.test, self.since = test, time.monotonic()
        try:
            os.write(self._commands, test.encode() + b"\n")
        except BrokenPipeError:
            pass  # its end shows in `heard`

    def heard(self) -> tuple[list[dict[str, Any]], bool]:
        """What it said since, and whether that was the last."""
        ended = False
        while True:
            try:
                data = os.read(self.reports, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                ended = True
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines], ended

    def end(self, kill: bool = False) -> None:
        """Does not wait: it takes the system a while to end a process that has a GPU."""
        os.close(self._commands)
        os.close(self.reports)
        if kill:
            self.process.kill()

    def status(self) -> str:
        """How its process ended."""
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "its end not yet seen"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"

    def where(self) -> str:
        """The stack of a process that hangs, as it writes it."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        return self.said()

    def said(self) -> str:
        """The end of what it printed in this life."""
        with open(self.log, "rb") as f:
            f.seek(max(self.begun_at, f.seek(0, os.SEEK_END) - 6000))
            return f.read().decode(errors="replace")


class Run:
    """All of it: which tests wait, which run, what came of them."""

    def __init__(self, options: argparse.Namespace, rest: list[str]) -> None:
        self.options, self.rest = options, rest
        self.began = time.monotonic()
        self.out = Path(options.out)
        self.logs = self.out / "test-gpu-logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.logs.iterdir():
            old.unlink()
        self.selector = selectors.DefaultSelector()
        self.workers: list[Worker] = []
        self.ended: list[Worker] = []
        self.waiting: deque[str] = deque()
        self.alone: deque[str] = deque()
        self.results: list[Result] = []
        self.known: set[str] = set()
        self.about: dict[str, Any] = {}
        self.restarts = self.barren = 0  # workers that ended before their time, and those of them, in a row, that had run nothing
        self.trouble = ""
        self.files: list[str] = []
        self.written = 0.0

    # -------------------------------------------------------------------------------------------------------- workers
    def start(self, number: int) -> None:
        given = [a for a in self.rest if (ROOT / a.split("::")[0]).exists()]
        paths, flags = self.files or given, [a for a in self.rest if a not in given]
        plugins = [word for name in self.options.plugin for word in ("-p", name)]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--ignore=tests/parity", "-p", "no:cacheprovider", "--capture=sys", *plugins,
                   "-p", "tests._core.drivers.nvidia.hardware_worker", *flags, *paths]
        share = str(max(1, (os.cpu_count() or 1) // self.options.workers))
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        environment |= {"OMP_NUM_THREADS": share, "OPENBLAS_NUM_THREADS": share, "PYTHONUNBUFFERED": "1",
                        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
        worker = Worker(number, command, self.logs / f"worker-{number}.log", environment)
        self.workers.append(worker)
        self.selector.register(worker.reports, selectors.EVENT_READ, worker)

    def stop(self, worker: Worker, kill: bool = False) -> None:
        self.selector.unregister(worker.reports)
        self.workers.remove(worker)
        self.ended.append(worker)
        worker.end(kill)

    def replace(self, worker: Worker) -> None:
        """A new one in a worker's place, if there is work for it."""
        self.restarts += 1
        self.barren = self.barren + 1 if worker.first else 0
        if self.barren >= (4 if self.known else 2):
            self.trouble = "workers end before they have run anything: " + last_words(worker.said())
        elif not self.known or self.waiting or self.alone and not self.workers:
            self.start(worker.number)

    # ---------------------------------------------------------------------------------------------------------- tests
    def listed(self, message: dict[str, Any]) -> None:
        """The first worker's list is everybody's."""
        if self.known:
            return
        self.about = message["about"]
        order = by_turns(message["tests"])
        if self.options.again:
            before = {r["name"]: r["outcome"] for r in json.loads(Path(self.options.again).read_text())["results"]}
            order = [t for t in order if before.get(t) not in ("passed", "skipped")]
        alone = set(message["alone"])
        self.known = set(order)
        if not order and "none" not in self.about:
            self.trouble = f"no test was found {self.about.get('unread', '')}"
        self.waiting.extend(t for t in order if t not in alone)
        self.alone.extend(t for t in order if t in alone)
        self.files = sorted({t.split("::")[0] for t in order}) if not self.options.keep_paths else []
        if order:
            print(f"{len(order)} tests of {len(self.files) or 'the'} files, {self.options.workers} workers; {self.about.get('device', '')}", flush=True)

    def feed(self, worker: Worker) -> None:
        """The next test, or none: then the worker ends."""
        if not worker.ready or worker.test:
            return
        if self.waiting:
            worker.give(self.waiting.popleft())
        elif self.alone and not any(w.test for w in self.workers):
            worker.give(self.alone.popleft())

    def done(self, worker: Worker, message: dict[str, Any]) -> None:
        self.results.append(Result(worker.test, message["outcome"], message["seconds"], message["cause"], message["text"]))
        worker.test, worker.first = "", False
        self.barren = 0

    def lost(self, worker: Worker) -> None:
        """The worker's process has ended by itself."""
        said = worker.said()
        self.stop(worker)
        if worker.test:
            self.results.append(Result(worker.test, "crashed", time.monotonic() - worker.since,
                                       f"the process ended with {worker.status()}: {last_words(said)}", said))
            worker.first = False
        elif not worker.ready:
            print(f"a worker ended before it had found its tests:\n{said[-3000:]}", flush=True)
        self.replace(worker)

    def hung(self, worker: Worker) -> None:
        said = worker.where()
        self.results.append(Result(worker.test, "hung", time.monotonic() - worker.since,
                                   f"it took longer than {self.options.each:g} s; it was in {stack_top(said)}", said))
        self.stop(worker, kill=True)
        worker.first = False
        self.replace(worker)

    # ------------------------------------------------------------------------------------------------------- the loop
    def carry_out(self) -> None:
        for number in range(self.options.workers):
            self.start(number)
        while self.workers and not self.trouble:
            now = time.monotonic()
            if now - self.began > self.options.limit:
                break
            for key, _ in self.selector.select(0.25):
                worker = key.data
                messages, ended = worker.heard()
                died = False
                for message in messages:
                    if "tests" in message:
                        self.listed(message)
                        worker.ready, worker.since = True, time.monotonic()
                    else:
                        self.done(worker, message)
                        died = message["outcome"] == "died"
                if died:
                    self.stop(worker)
                    self.replace(worker)
                elif ended:
                    self.lost(worker)
            for worker in list(self.workers):
                self.feed(worker)
                if worker.test and time.monotonic() - worker.since > self.options.each * (2 if worker.first else 1):
                    self.hung(worker)
                elif not worker.ready and time.monotonic() - worker.since > _START:
                    self.trouble = f"a worker did not find its tests within {_START:g} s; it was in {stack_top(worker.where())}"
                elif worker.ready and not worker.test and not self.waiting and not self.alone:
                    self.stop(worker)
            if now - self.written > _WRITE_EVERY:
                self.write()
        for worker in list(self.workers):
            if worker.test:
                self.results.append(Result(worker.test, "cut off", time.monotonic() - worker.since, "it was under way when the time was over"))
            self.stop(worker, kill=True)
        for worker in self.ended:
            worker.process.poll()

    # -------------------------------------------------------------------------------------------------------- telling
    def summary(self) -> list[str]:
        by: dict[str, int] = {}
        for r in self.results:
            by[r.outcome] = by.get(r.outcome, 0) + 1
        missing = len(self.known) - len(self.results)
        took = time.monotonic() - self.began
        lines = [f"{', '.join(f'{n} {what}' for what, n in sorted(by.items())) or 'nothing ran'}, {missing} not reached, in {took:.0f} s; "
                 f"{self.restarts} workers had to be replaced"]
        if self.trouble:
            lines.append(f"stopped: {self.trouble}")
        for cause, those in gathered([r for r in self.results if r.outcome not in ("passed", "skipped")]):
            lines.append(f"- {len(those)} x [{those[0].outcome}] {cause}")
            lines += [f"    {r.name}" for r in those[:4]] + ([f"    and {len(those) - 4} more"] if len(those) > 4 else [])
        skips = gathered([r for r in self.results if r.outcome == "skipped"])
        lines += [f"- {len(those)} x [skipped] {cause}" for cause, those in skips]
        slow = sorted(self.results, key=lambda r: -r.seconds)[:8]
        lines.append("slowest: " + "; ".join(f"{r.seconds:.1f} s {r.name}" for r in slow))
        return lines

    def write(self) -> None:
        self.written = time.monotonic()
        told = {"about": self.about, "seconds": round(time.monotonic() - self.began, 1), "tests": len(self.known), "restarts": self.restarts,
                "trouble": self.trouble, "results": [r.told() for r in self.results]}
        put(self.out / "test-gpu.json", json.dumps(told, indent=0) + "\n")
        page = ["# Tests on a GPU", "", *[f"{k}: {v}  " for k, v in self.about.items()], "", "```", *self.summary(), "```", ""]
        for cause, those in gathered([r for r in self.results if r.outcome not in ("passed", "skipped")]):
            page += [f"## {len(those)} x {cause}", "", *[f"- `{r.name}` {r.outcome}" for r in those], "", "```", those[0].text[-5000:], "```", ""]
        put(self.out / "test-gpu.md", "\n".join(page))

    @property
    def failed(self) -> bool:
        return bool(self.trouble) or len(self.results) < len(self.known) or any(r.outcome not in ("passed", "skipped") for r in self.results)


def put(path: Path, text: str) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def by_turns(tests: list[str]) -> list[str]:
    """The first of each file, then the second of each, and so on."""
    files: dict[str, deque[str]] = {}
    for t in tests:
        files.setdefault(t.split("::")[0], deque()).append(t)
    order = []
    while files:
        for name in list(files):
            order.append(files[name].popleft())
            if not files[name]:
                del files[name]
    return order


def gathered(results: list[Result]) -> list[tuple[str, list[Result]]]:
    """Results by cause, numbers and addresses in its text not minded; the most frequent first."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        key = re.sub(r"0x[0-9a-f]+|[_-][0-9a-f]{12}\b|[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", r.cause)[:100]
        groups.setdefault(key, []).append(r)
    return [(those[0].cause[:300], those) for those in sorted(groups.values(), key=lambda g: -len(g))]


def last_words(said: str) -> str:
    fatal = re.search("Fatal Python error: .*", said)
    if fatal:
        return f"{fatal[0]} in {stack_top(said)}"
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("  ") and "Extension modules" not in line]
    return " / ".join(lines[-2:])[:300] if lines else "it said nothing"


def stack_top(said: str) -> str:
    """The innermost places of the last stack that `faulthandler` wrote."""
    stack = said.rpartition("Current thread")[2] or said.rpartition("most recent call first")[2]
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stack)
    return " < ".join(f"{Path(file).name}:{line} {name}" for file, line, name in frames[:4]) or "a place unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="processes that share the GPU")
    parser.add_argument("--limit", type=float, default=440.0, help="seconds for everything")
    parser.add_argument("--each", type=float, default=60.0, help="seconds for a test; twice that for a worker's first")
    parser.add_argument("--out", default=str(ROOT / "build"), help="the folder for test-gpu.md, test-gpu.json and the workers' output")
    parser.add_argument("--plugin", action="append", default=[], help="a plugin for the workers' pytest; tests._core.drivers.nvidia.fake_gpu plays a GPU")
    parser.add_argument("--again", default="", help="a test-gpu.json: those of its tests that did not pass, and those it did not reach")
    parser.add_argument("--keep-paths", action="store_true", help="workers that come later look for tests everywhere too")
    own, _, rest = split(sys.argv[1:])
    run = Run(parser.parse_args(own), rest)
    try:
        run.carry_out()
    finally:
        for worker in [*run.workers, *run.ended]:
            if worker.process.poll() is None and (worker in run.workers or worker.status().startswith("its end")):
                worker.process.kill()
    if run.about.get("none"):
        print(f"test-gpu: skipped, because {run.about['none']}")
        return 0
    run.write()
    print("\n".join(run.summary()))
    print(f"all of it: {run.out / 'test-gpu.md'}")
    return 1 if run.failed else 0


def split(words: list[str]) -> tuple[list[str], str, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], "--", words[at + 1:]


if __name__ == "__main__":
    sys.exit(main())
