"""The part `guard`: guard_process.py on the CPU and on simulated GPUs, in processes of its own; goes on after crashes, compares with what is known.

Classes are (device and kind, function, words).  Kinds: `crash` (a signal), `hang` (half a minute), `base` and `odd` (an exception that is none of the
five which bad arguments may raise), `device` (an error of the device that only waiting for it shows), `differs` (a replay from the call of the body).
"learned" is the CPU again, with calls that are learned before they are made (`repeated`); of it crashes, hangs and differences alone count.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import classes
from .classes import Class

MODES = ("cpu", "learned", "cuda", "cudalazy")
WRONG = ("crash", "hang", "exit", "differs")  # of calls with any arguments
RECORDED = 6000  # calls of each
HANGS = 90  # seconds without a new call, after which the process is ended
FINE = {"RuntimeError", "TypeError", "ValueError", "IndexError", "NotImplementedError"}
HEAD = """Calls with hostile arguments that crash, hang or raise what bad arguments should not: `make fuzz FUZZ="--only guard --write"` renews them.
Reasons are written by hand and stay."""

Call = tuple[int, str, str]  # seed, function, the call as the instrument writes it


def fresh(root: Path, instruments: Path, calls: int, seconds: float) -> bool:
    """So many calls of each device that nobody made before; only `WRONG` counts.  Of the CPU, half as many and a quarter learned, as those take twice
    as long."""
    first = random.SystemRandom().randrange(1 << 40)
    failed = []
    for mode in MODES:
        here = {"cpu": -(-calls // 2), "learned": -(-calls // 4)}.get(mode, calls)
        begin = first + calls if mode == "learned" else first
        print(f"fuzz: guard, {mode}: seeds {begin}:{begin + here}", flush=True)
        text, found = collect(root, instruments, root, mode, begin, begin + here, seconds)
        failed += [(c, call) for c, call in found if c[0].split()[1] in WRONG]
        print(f"fuzz: guard, {mode}: {len(told(text))} calls{', each made thirteen times' if mode == 'learned' else ''}", flush=True)
    for c, call in failed:
        print(f"  {classes.said(c)}\n       {call}")
    return not failed


def check(root: Path, instruments: Path, a: argparse.Namespace) -> bool:
    if a.fresh:
        return fresh(root, instruments, a.fresh, a.seconds)
    kept = Path(__file__).parent / "known" / "guard.toml"
    known = classes.read(kept)
    first, last = map(int, (a.seeds or f"0:{known.about.get('calls', RECORDED) if not a.write else RECORDED}").split(":"))
    if a.against:
        return beside(root, instruments, a.against.resolve(), first, last, a.seconds)
    found: list[tuple[Class, str]] = []
    calls = 0
    for mode in MODES:
        text, here = collect(root, instruments, root, mode, first, last, a.seconds)
        calls += len(told(text))
        found += here
    counts = classes.total([[c for c, _ in found]])
    print(f"fuzz: {calls} guarded calls, {len(counts)} classes")
    examples: dict[Class, str] = {}
    for c, call in found:
        examples.setdefault(c, call)
    if a.write:
        classes.write(kept, classes.renewed(known, counts, examples, {"calls": last - first}), HEAD)
        return True
    new = classes.compare(counts, known).new
    for c in new:
        print(f"  new: {classes.said(c)}\n       {examples[c]}")
    return not new


def collect(root: Path, instruments: Path, tree: Path, mode: str, first: int, last: int, seconds: float) -> tuple[str, list[tuple[Class, str]]]:
    """All that the calls of one device printed, and what is out of order; after a crash or a hang, a new process goes on behind it."""
    build = root / "build" / "fuzz"
    state = build / f"guard-{mode}.state"
    found: list[tuple[Class, str]] = []
    everything = ""
    ends = time.monotonic() + (seconds or 1e9)
    while first < last and time.monotonic() < ends:
        code, text = one_process(root, instruments, tree, mode, first, last - first, state, ends)
        everything += text
        found += [((f"{mode} {kind}", name, words), line) for kind, name, words, line in outcomes(text) if mode != "learned" or kind in WRONG]
        now = state.read_text() if state.exists() else ""
        if now.startswith("DONE") or time.monotonic() > ends:
            break
        seed, name, call = split(now)
        if seed < 0:
            raise SystemExit(f"fuzz: the guard did not start:\n{text[-2000:]}")
        what = "hang" if code in (None, -signal.SIGKILL) else "crash" if code else "exit"
        found.append(((f"{mode} {what}", name, signal.Signals(-code).name if code and code < 0 and what == "crash" else ""), call[:200]))
        print(f"  {mode}: seed {seed} ended its process ({what}): {call[:160]}")
        first = seed + 1
    return everything, found


def one_process(root: Path, instruments: Path, tree: Path, mode: str, first: int, count: int, state: Path, ends: float) -> tuple[int | None, str]:
    """Exit status (None: it hung and was ended) and all that the process printed."""
    command = [sys.executable, "-m", "tools.fuzz.guard_process", str(instruments / "guard"), str(tree), mode, str(first), str(count), str(state)]
    log = state.with_suffix(".log")
    state.unlink(missing_ok=True)
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=root, env={**os.environ, "VERB": "1"}, stdout=out, stderr=subprocess.STDOUT)
        code: int | None = None
        while code is None:
            try:
                code = process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                still = time.time() - (state.stat().st_mtime if state.exists() else process_start(log))
                if still > HANGS or time.monotonic() > ends:
                    process.kill()
                    process.wait()
                    break
    return code, log.read_text(errors="replace")


def process_start(log: Path) -> float:
    return log.stat().st_mtime  # the log is empty until the first call


def beside(root: Path, instruments: Path, other: Path, first: int, last: int, seconds: float) -> bool:
    """Prints the calls of which another checkout says something else: another result's type, shape, strides and device, or another error."""
    names = {tree: functions(root, instruments, tree) for tree in (root, other)}
    os.environ["ONLY"] = ",".join(name for name in names[root] if name in names[other])  # the seeds choose among them: both need the same
    differ = 0
    for mode in MODES:
        if mode == "learned":
            continue  # what it prints are differences already
        here, there = (told(collect(root, instruments, tree, mode, first, last, seconds)[0]) for tree in (root, other))
        for seed in sorted(here.keys() & there.keys()):
            if here[seed] != there[seed]:
                differ += 1
                print(f"  {mode}: {here[seed][0]}\n      there: {there[seed][1]}\n      here:  {here[seed][1]}")
    print(f"fuzz: {differ} guarded calls differ from {other.name}'s")
    return not differ


def functions(root: Path, instruments: Path, tree: Path) -> list[str]:
    state = root / "build" / "fuzz" / "guard-names.state"
    _, text = one_process(root, instruments, tree, "cuda", 0, 0, state, time.monotonic() + HANGS)
    found = re.search(r"^NAMES (.*)$", text, re.MULTILINE)
    if not found:
        raise SystemExit(f"fuzz: the guard did not start:\n{text[-2000:]}")
    return found[1].split(",")


def told(text: str) -> dict[int, tuple[str, str]]:
    """By seed: the call, and the result or the error; the second is empty where the process ended."""
    out: dict[int, tuple[str, str]] = {}
    at = -1
    for line in text.splitlines():
        seed, _, call = split(line)
        if seed >= 0:
            at = seed
            out[at] = (_plain(call), "")
        elif line.startswith(("   -> ", "   !! ")):
            out[at] = (out[at][0], _plain(line[3:]))
    return out


def _plain(text: str) -> str:
    """Without addresses, paths, names of attributes and how much memory is in use."""
    return re.sub(r"0x[0-9a-f]+|\b\d{13,}\b| from '/[^']*'|(?<=has no attribute )'\w+'|This process holds .*", "#", text)[:240]


def split(line: str) -> Call:
    found = re.match(r"(\d+) (\S+) args=", line)
    return (int(found[1]), found[2], line) if found else (-1, "", line)


def outcomes(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Kind, function, words and call of each line that tells of something out of order."""
    name, call = "", ""
    for line in text.splitlines():
        seed, here, whole = split(line)
        if seed >= 0:
            name, call = here, _plain(whole)
        elif line.startswith("   !! "):
            kind = line[6:].partition(" ")[0]
            if kind not in FINE and not kind.startswith("Out"):
                yield "odd", name, classes.error_words(kind, line[6:].partition(" ")[2]), call
        elif line.startswith("SLOW>30s"):
            yield "hang", name, "", call
        elif line.startswith("BASE "):
            yield "base", name, line.split()[1], call
        elif line.startswith("DEVERR "):
            yield "device", name, line.split()[1], call
        elif line.startswith("DIFF "):
            yield "differs", name, classes.plain_words(line[5:]), call
