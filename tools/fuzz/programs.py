"""The part `programs`: runs programs_process.py in processes of its own, goes on after crashes, compares with what is known."""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from . import classes
from .classes import Class

RECORDED = "0:24000"  # what --write runs
CHECKED = 4000  # of these, how many a check without --seeds runs
HEAD = """Differences between PyTorch and Flambeau that random programs show: `make fuzz FUZZ="--only programs --write"` renews counts and examples.
Families and reasons are written by hand and stay. A class without a reason is a difference that nobody has judged yet."""

UNLIKELY = 1e-4  # of each thing that is counted: tests/tools/test_fuzz.py says how often a run fails although nothing changed
ENDED = ("crash", "hang", "exit")

Found = dict[int, list[tuple[Class, str]]]  # by seed: class, the instrument's words


def check(root: Path, instruments: Path, a: argparse.Namespace) -> bool:
    kept = Path(__file__).parent / "known" / "programs.toml"
    known = classes.read(kept)
    if a.fresh:
        seeds = drawn(a.fresh)
        return told_of_fresh("programs", known, collect(root, instruments, root, seeds, a.seconds, a.device), seeds)
    seeds = a.seeds or (RECORDED if a.write else checked(known))
    found = collect(root, instruments, root, seeds, a.seconds, a.device)
    counts = classes.total([c for c, _ in ds] for ds in found.values())
    bad = sum(1 for ds in found.values() if ds)
    open_to_all = sum(1 for ds in found.values() if any(known.comparable(c) for c, _ in ds))
    print(f"fuzz: {len(found)} programs (seeds {seeds}), {bad} differ, {open_to_all} where both could give the same, {len(counts)} classes")
    if a.write:
        return renew(root, instruments, kept, known, found, counts, seeds)
    if a.against:
        return beside(root, instruments, a, seeds, found)
    result = classes.compare(counts, known, share(known, found))
    for c, before, now in result.risen:
        print(f"  more often: {classes.said(c)}: {now}, recorded {before}")
    show(root, instruments, result.new, found, a.device)
    return not result.new and not result.risen


def drawn(programs: int) -> str:
    """Seeds that nobody ran."""
    first = random.SystemRandom().randrange(1 << 30, 1 << 40)
    return f"{first}:{first + programs}"


def told_of_fresh(part: str, known: classes.Known, found: Found, seeds: str) -> bool:
    """Prints what programs that nobody ran show beside what the recorded ones did.  Wrong is what ends its process; and what shows so often, all
    differences, a family or a class, that it would come once in `1 / UNLIKELY` runs if nothing had changed.  Other classes that are not known
    are told, for somebody to judge."""
    bad = {seed for seed, ds in found.items() if ds}
    at: dict[Class, list[int]] = {}
    for seed in sorted(bad):
        for c in {c for c, _ in found[seed]}:
            at.setdefault(c, []).append(seed)
    rest = {seed for seed in bad if any(not known.has(c) for c, _ in found[seed])}
    both = sum(1 for ds in found.values() if any(known.comparable(c) for c, _ in ds))
    print(f"fuzz: {part}: {len(found)} programs (seeds from {seeds}), {len(bad)} differ, {both} where both could give the same, {len(rest)} in a class that is "
          "not known")
    recorded = int(known.about.get("programs", 0))
    share_of_all = len(found) / max(len(found) + recorded, 1)

    def unlikely(now: int, before: int) -> bool:
        return recorded > 0 and classes.chance(now, before, share_of_all) < UNLIKELY
    wrong = []
    if unlikely(len(bad), int(known.about.get("differ", 0))):
        wrong.append(f"  more programs differ: {len(bad)} of {len(found)}, recorded {known.about['differ']} of {recorded}")
    for f in known.families:
        seen = {seed for c, s in at.items() if known.family(c) is f for seed in s}
        if unlikely(len(seen), f.count):
            wrong.append(f"  more often: {f.reason}: {len(seen)} programs, seed {min(seen)}, recorded {f.count} of {recorded}")
    for c, s in sorted(at.items()):
        if known.family(c) is not None:
            continue
        before = known.classes[c].count if c in known.classes else 0
        often = c[0] in ENDED or unlikely(len(s), before)
        text = next(t for d, t in found[s[0]] if d == c)
        line = f"{classes.said(c)}: {len(s)} programs, seed {s[0]}: {text[-300:]}"
        if often:
            wrong.append(f"  new: {line}" if not before else f"  more often: recorded {before} of {recorded}: {line}")
        elif c not in known.classes:
            print(f"  rare: {line}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return not wrong


def checked(known: classes.Known) -> str:
    first, last = map(int, known.about.get("seeds", RECORDED).split(":"))
    return f"{first}:{min(last, first + CHECKED)}"


def share(known: classes.Known, found: Found) -> float:
    """Which part of the recorded programs ran; 0 where others ran too."""
    first, last = map(int, known.about.get("seeds", "0:0").split(":"))
    return len(found) / (last - first) if found and all(first <= seed < last for seed in found) else 0.0


def beside(root: Path, instruments: Path, a: argparse.Namespace, seeds: str, found: Found) -> bool:
    """Prints the differences that the checkout `a.against` does not show on the same seed."""
    other = collect(root, instruments, a.against.resolve(), seeds, a.seconds, a.device)
    ours: dict[Class, int] = {}
    gone: Counter[Class] = Counter()
    for seed in sorted(found.keys() & other.keys()):
        now, before = Counter(c for c, _ in found[seed]), Counter(c for c, _ in other[seed])
        for c in now - before:
            ours.setdefault(c, seed)
        gone.update(before - now)
    for c, n in sorted(gone.items()):
        print(f"  gone: {classes.said(c)}: {n}")
    show(root, instruments, sorted(ours), {seed: [(c, "") for c in ours if ours[c] == seed] for seed in ours.values()}, a.device)
    return not ours


def show(root: Path, instruments: Path, new: list[Class], found: Found, device: str) -> None:
    first = first_seeds(found)
    small = shrink(root, instruments, root, {c: first[c] for c in new if c in first}, device)
    for c in new:
        print(f"  new: {classes.said(c)}: seed {first.get(c)}\n       {small.get(c, '')}")


def renew(root: Path, instruments: Path, kept: Path, known: classes.Known, found: Found, counts: Counter[Class], seeds: str) -> bool:
    first = first_seeds(found)
    wanted = {c: first[c] for c in counts if known.family(c) is None and c in first}
    examples = {c: f"seed {first[c]}: {text}" for c, text in shrink(root, instruments, root, wanted, "cpu").items()}
    start, last = seeds.split(":")[0], max(found, default=0) + 1
    about = {"seeds": f"{start}:{last}", "programs": len(found), "differ": sum(1 for ds in found.values() if ds)}
    kept.parent.mkdir(exist_ok=True)
    classes.write(kept, classes.renewed(known, counts, examples, about), HEAD)
    return True


def first_seeds(found: Found) -> dict[Class, int]:
    out: dict[Class, int] = {}
    for seed in sorted(found):
        for c, _ in found[seed]:
            out.setdefault(c, seed)
    return out


# ------------------------------------------------------------------------------------------------------- processes
def command(instruments: Path, tree: Path, out: Path, device: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "tools.fuzz.programs_process", "--instrument", str(instruments / "programs" / "fuzz.py"),
            "--tree", str(tree), "--out", str(out), "--device", device, *more]


def collect(root: Path, instruments: Path, tree: Path, seeds: str, seconds: float, device: str = "cpu") -> Found:
    """The differences by seed."""
    out = root / "build" / "fuzz" / f"programs-{'here' if tree == root else 'there'}.jsonl"
    return in_processes(root, out, command(instruments, tree, out, device), seeds, seconds)


def in_processes(root: Path, out: Path, begins: list[str], seeds: str, seconds: float) -> Found:
    """What a command finds by seed.  A program that ends the process is a class of its own, and the next process goes on behind it."""
    out.unlink(missing_ok=True)
    now = Path(f"{out}.now")
    found: Found = {}
    first, last = map(int, seeds.split(":"))
    ends = time.monotonic() + (seconds or 1e9)
    while first < last and time.monotonic() < ends:
        now.unlink(missing_ok=True)
        left = ("--seconds", str(ends - time.monotonic())) if seconds else ()
        run = [*begins, "--seeds", f"{first}:{last}", *left]
        done = subprocess.run(run, cwd=root, check=False, capture_output=True, text=True)
        at = now.read_text() if now.exists() else ""
        if done.returncode == 0:
            break
        if not at:
            raise SystemExit(f"fuzz: the instrument did not start:\n{done.stderr[-2000:]}")
        found[int(at)] = [(ended(done.returncode, done.stderr), "")]
        print(f"  seed {at} ended its process: {classes.said(found[int(at)][0][0])}")
        first = int(at) + 1
    found.update(read(out))
    return found


def ended(code: int, stderr: str) -> Class:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return "hang", "", ""
    if code < 0:
        return "crash", "", signal.Signals(-code).name
    return "exit", "?", classes.error_words("", (stderr.strip().splitlines() or [""])[-1])


def read(out: Path) -> Found:
    found: Found = {}
    if out.exists():
        for line in out.read_text().splitlines():
            entry: dict[str, Any] = json.loads(line)
            found[entry["seed"]] = [((c[0], c[1], c[2]), text) for c, text in entry["found"]]
    return found


def shrink(root: Path, instruments: Path, tree: Path, wanted: dict[Class, int], device: str) -> dict[Class, str]:
    """The shortest programs of classes; a class that no longer shows when its program runs alone has none."""
    ask, out = root / "build" / "fuzz" / "shrink.json", root / "build" / "fuzz" / "shrunk.jsonl"
    out.unlink(missing_ok=True)
    alone = {c: s for c, s in wanted.items() if c[0] not in ENDED}
    if not alone:
        return {}
    ask.write_text(json.dumps([[s, list(c)] for c, s in alone.items()]))
    subprocess.run(command(instruments, tree, out, device, "--shrink", str(ask)), cwd=root, check=False, capture_output=True)
    texts: dict[Class, str] = {}
    for line in out.read_text().splitlines() if out.exists() else []:
        c, text = json.loads(line)
        texts[c[0], c[1], c[2]] = text
    return texts
