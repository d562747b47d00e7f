"""The score against PyTorch's operator database, as a check and as docs/conformance.md.

    python tools/conformance.py --check     a fixed part of it, CPU and simulated GPU, with answers kept in the repository (what CI runs)
    python tools/conformance.py --write     all of it: six types, both devices, aliasing rules; writes docs/conformance.md
    python tools/conformance.py --gpu       that fixed part on a real GPU; what differs there goes to build/conformance/gpu.md
    python tools/conformance.py --pack      chooses the fixed part anew and writes its answers to tests/conformance

The instrument is ../shared/opinfo, or what the variable OPINFO names (see its README).  PyTorch's answers to all of it are made once, by PyTorch, into
build/conformance/answers (or --answers DIR has them); scoring needs no PyTorch, and --check not even those answers.  Why an
operation is not whole stands in tests/conformance/reasons.toml: a failure without a reason fails --check, a reason without a
failure is named by --write.  Where the instrument is absent this says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import pickle
import resource
import subprocess
import sys
import time
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("OPINFO") or ROOT.parent / "shared" / "opinfo").resolve()
BUILD = ROOT / "build" / "conformance"
KEPT = ROOT / "tests" / "conformance" / "answers.xz"
REASONS = ROOT / "tests" / "conformance" / "reasons.toml"
SUITE = ROOT / "tests" / "conformance" / "suite.md"  # counted by hand
PAGE = ROOT / "docs" / "conformance.md"

TYPES = ("float32", "float64", "bfloat16", "complex64", "int64", "bool")
CORE = ("func", "method", "inplace", "grad")  # what "whole" asks for
OTHER = ("operator", "out", "alias", "sharing", "error")
SAID = {"func": "values", "method": "as a method", "inplace": "in place", "grad": "gradient", "operator": "as an operator", "out": "out=",
        "alias": "under another name", "sharing": "view or copy", "error": "refusal", **{t: t for t in TYPES}}
FLOOR = 98.0  # percent of the public operations whole on the fixed part, below which --check fails
NUMERIC = {"value", "grad"}  # failures that another CPU's rounding can bring about
SPARE = 6  # as many operations may newly differ in these before --check fails

# of the fixed part: samples of an operation in float32 and of its refusals, in another type, and how large one may be, in bytes
SAMPLES, SAMPLES_ELSEWHERE, LARGEST, LARGEST_ONLY = 2, 1, 2500, 12000

Result = dict[str, Any]
Failure = tuple[str, str, str, str]  # operation, type, check, device


# ------------------------------------------------------------------------------------------------------- the instrument
def run(program: str, name: str, device: str, *options: str) -> Result:
    """One run of a program of the instrument; its JSON."""
    BUILD.mkdir(parents=True, exist_ok=True)
    out = BUILD / f"{name}.json"
    log = BUILD / f"{name}.log"  # a worker that gives no answer leaves its threads' stacks here
    out.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    command = [sys.executable, str(SHARED / program), "--path", str(ROOT), "--device", device, "--json", str(out), "--log", str(log), *options]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment.setdefault("FLAMBEAU_SIM_GPUS", "2")
    environment.setdefault("FLAMBEAU_SIM_QUEUE", "lazy")  # work runs where it is waited for: no switches between threads, and a missing wait shows
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=BUILD, check=False)
    if not out.exists():
        raise SystemExit(f"conformance: the instrument failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    found: Result = json.loads(out.read_text())
    if "no answer after" in done.stdout + json.dumps(found):
        print(f"conformance, {device}: where a worker stood that gave no answer:\n{log.read_text(errors='replace')[-6000:]}")
    return found


def score(name: str, device: str, answers: Path) -> Result:
    # a GPU finds some bad inputs only while it runs: their errors would come at the next sample, whichever that is
    return run("opinfo_score.py", name, device, "--dtypes", "all", "--oracle", str(answers), *(["--no-errors"] if device == "cuda" else []))


def processor_seconds() -> float:
    """Processor time of what ran under this process so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ------------------------------------------------------------------------------------------------------- the fixed part
def pack(answers: Path) -> None:
    """Chooses few and small samples of every operation and type, and keeps their answers in one file."""
    sys.path.insert(0, str(SHARED))
    from score import load, thin  # type: ignore[import-not-found]
    catalogue = json.loads((answers / "catalogue.json").read_text())
    kept: dict[str, bytes] = {"catalogue.json": json.dumps(catalogue).encode()}
    operations, samples = set(), 0
    for full, info in catalogue["ops"].items():
        for what in (*info["dtypes"], *(("error",) if info["errors"] else ())):
            if not (answers / what / f"{full}.pkl.z").exists():
                continue
            about, cases = load(str(answers), full, what)
            sized = [(len(pickle.dumps(c)), c) for c in cases if c["kind"] != "skip"]
            small = [c for n, c in sized if n <= LARGEST]
            if not small and sized:
                n, least = min(sized, key=lambda pair: pair[0])
                small = [least] if n <= LARGEST_ONLY and what == info["default"] else []
            chosen = thin(small, SAMPLES if what in (info["default"], "error") else SAMPLES_ELSEWHERE)
            kept[f"{what}/{full}.pkl.z"] = pickle.dumps((dict(about, log=[]), chosen), protocol=4)
            samples += len(chosen)
            operations.update([full] if chosen and what != "error" else [])
    index = json.dumps({name: len(data) for name, data in kept.items()}).encode()
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_bytes(lzma.compress(b"%d\n" % len(index) + index + b"".join(kept.values()), preset=9))
    print(f"conformance: {samples} samples of {len(operations)} operations kept in {KEPT.relative_to(ROOT)}, {KEPT.stat().st_size >> 10} KiB")


def unpack() -> Path:
    """The kept answers as the files that the instrument reads."""
    folder = BUILD / "fixed"
    stamp = folder / "stamp"
    mark = str(zlib.crc32(KEPT.read_bytes()))
    if stamp.exists() and stamp.read_text() == mark:
        return folder
    data = lzma.decompress(KEPT.read_bytes())
    at = data.index(b"\n") + 1
    size = int(data[:at])
    index: dict[str, int] = json.loads(data[at:at + size])
    at += size
    for name, n in index.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = data[at:at + n]
        path.write_bytes(part if name.endswith(".json") else zlib.compress(part, 1))
        at += n
    stamp.write_text(mark)
    return folder


# ------------------------------------------------------------------------------------------------------------- counting
def public(result: Result) -> dict[str, Result]:
    return {name: o for name, o in result["ops"].items() if o["tested"] and o["group"] != "internal"}


def counts(o: Result, checks: tuple[str, ...], types: tuple[str, ...] | None = None) -> tuple[int, int]:
    """(passed, asked) of an operation in these checks and types."""
    passed = asked = 0
    for kind, by in o["checks"].items():
        for check in checks:
            n = by.get(check) if types is None or kind in types else None
            if n:
                passed += n["pass"]
                asked += n["pass"] + n["fail"] + n["missing"]
    return passed, asked


def first_type(o: Result) -> tuple[str, ...]:
    """float32, or where an operation refuses it the first type that it takes."""
    return (next((t for t in ("float32", "complex64", "int64", "bool", "bfloat16", "float64") if t in o["checks"]), "float32"),)


def whole(o: Result, single: bool) -> bool:
    passed, asked = counts(o, CORE, first_type(o) if single else None)
    return passed == asked


def share(pairs: Iterator[tuple[int, int]]) -> tuple[int, int]:
    found = list(pairs)
    return sum(p for p, _ in found), sum(n for _, n in found)


def percent(pair: tuple[int, int]) -> str:
    return f"{100 * pair[0] / pair[1]:.1f} % ({pair[0]} of {pair[1]})" if pair[1] else "–"


def failures(result: Result) -> list[Failure]:
    device = result["meta"]["device"]
    return [(name, kind, check, device) for name, o in public(result).items() for kind, by in o["checks"].items()
            for check, n in by.items() if n["fail"] + n["missing"]]


# -------------------------------------------------------------------------------------------------------------- reasons
def reasons() -> list[Result]:
    with REASONS.open("rb") as f:
        listed: list[Result] = tomllib.load(f)["reason"]
    return listed


def explains(reason: Result, failure: Failure) -> bool:
    name, kind, check, device = failure
    return (name in reason["ops"] and check in reason.get("checks", (check,)) and device in reason.get("devices", (device,))
            and (check == "error" or kind in reason.get("types", (kind,))))


def unexplained(found: list[Failure], listed: list[Result]) -> list[Failure]:
    return [f for f in found if not any(explains(r, f) for r in listed)]


def stale(found: list[Failure], listed: list[Result]) -> list[str]:
    """The reasons that nothing needs: operations, types, checks and devices that do not fail."""
    idle = []
    for r in listed:
        for name in r["ops"]:
            mine = [f for f in found if f[0] == name and explains(r, f)]
            if not mine:
                idle.append(name)
            for key, place in (("types", 1), ("checks", 2), ("devices", 3)):
                idle += [f"{name} ({value})" for value in r.get(key, ()) if mine and not any(f[place] == value for f in mine)
                         and not any(f[place] == value for n in r["ops"] for f in found if f[0] == n)]
    return idle


# ----------------------------------------------------------------------------------------------------------------- page
def totals(results: dict[str, Result]) -> list[str]:
    lines = ["| | CPU | simulated GPU |", "|---|---|---|"]

    def row(title: str, of: Any) -> None:
        lines.append(f"| {title} | " + " | ".join(of(results[device]) for device in ("cpu", "cuda")) + " |")
    row("operations whole, float32", lambda r: percent(share((int(whole(o, True)), 1) for o in public(r).values())))
    row("operations whole, all six types", lambda r: percent(share((int(whole(o, False)), 1) for o in public(r).values())))
    row("gradients, float32", lambda r: percent(share(counts(o, ("grad",), first_type(o)) for o in public(r).values())))
    for check in (*CORE, *OTHER):
        row({"func": "samples: values, type, structure", "grad": "samples: gradients", "error": "what PyTorch refuses is refused"}.get(
            check, f"samples: {SAID[check]}"), lambda r, check=check: percent(share(counts(o, (check,)) for o in public(r).values())))
    row("aliasing rules", lambda r: percent((r["alias"]["all"]["pass"], r["alias"]["all"]["of"])))
    return lines


def groups(results: dict[str, Result]) -> list[str]:
    lines = ["| group | operations | float32 | six types | float32, GPU | six types, GPU | gradients, six types |", "|---|---|---|---|---|---|---|"]
    names = sorted({o["group"] for o in public(results["cpu"]).values()})
    for group in names:
        here = {device: [o for o in public(r).values() if o["group"] == group] for device, r in results.items()}
        cells = [str(sum(whole(o, single) for o in here[device])) for device in ("cpu", "cuda") for single in (True, False)]
        lines.append(f"| {group} | {len(here['cpu'])} | {' | '.join(cells)} | {percent(share(counts(o, ('grad',)) for o in here['cpu']))} |")
    return lines


def aliasing(results: dict[str, Result]) -> list[str]:
    lines = ["| rules of | CPU | simulated GPU |", "|---|---|---|"]
    for group, n in results["cpu"]["alias"]["groups"].items():
        other = results["cuda"]["alias"]["groups"][group]
        lines.append(f"| {group} | {n['pass']} of {n['of']} | " + (f"{other['pass']} of {other['of']} |" if other["of"] else "– |"))
    return lines


def where_it_fails(mine: list[Failure]) -> str:
    """Types and checks, and the device when it is one only."""
    kinds = [t for t in (*TYPES, "error") if any(f[1] == t for f in mine)]
    checks = [c for c in (*CORE, *OTHER) if any(f[2] == c for f in mine)]
    devices = {f[3] for f in mine}
    spoken = ["every type" if len(kinds) >= 5 else ", ".join(SAID[k] for k in kinds if k != "error"), ", ".join(SAID[c] for c in checks)]
    return ": ".join(s for s in spoken if s) + ("; CPU only" if devices == {"cpu"} else "; GPU only" if devices == {"cuda"} else "")


def why(found: list[Failure], listed: list[Result], core: bool) -> list[str]:
    lines = ["| operation | where | why |", "|---|---|---|"]
    names = list(dict.fromkeys(f[0] for f in found))
    for name in sorted(names):
        if any(f[0] == name and f[2] in CORE for f in found) is not core:
            continue
        mine = [f for f in found if f[0] == name]
        for r in [r for r in listed if name in r["ops"]]:
            part = [f for f in mine if explains(r, f)]
            if part:
                lines.append(f"| `{name}` | {where_it_fails(part)} | {' '.join(r['why'].split())} |")
        rest = unexplained(mine, listed)
        if rest:
            lines.append(f"| `{name}` | {where_it_fails(rest)} | not yet looked into |")
    return lines


def page(results: dict[str, Result], listed: list[Result]) -> str:
    found = failures(results["cpu"]) + failures(results["cuda"])
    untested = sorted(n for n, o in results["cpu"]["ops"].items() if not o["tested"])
    internal = [o for o in results["cpu"]["ops"].values() if o["tested"] and o["group"] == "internal"]
    return "\n".join([
        "# Conformance", "",
        "PyTorch's own operator database (OpInfo, of PyTorch 2.13) asked of Flambeau: every sample that it has, in six types (" + ", ".join(TYPES) + "),",
        "on the CPU and on a simulated GPU.  An operation is *whole* when every sample of it gives PyTorch's values, shape, type and structure, as",
        "function, as method and in place, and its gradient is PyTorch's, by the tolerances of PyTorch's own tests.  The aliasing rules are checks of",
        "views, strides, versions and memory shared with NumPy.  What must be refused is asked on the CPU, as a GPU finds bad indices only while it runs.",
        "`make conformance-page` makes this page; `make conformance` asks a fixed part again.", "",
        *totals(results), "", "## Operations whole, by group", "", *groups(results), "", "## Aliasing rules", "", *aliasing(results), "",
        "## Not whole, and why", "", *why(found, listed, True), "", "## Whole, with a difference elsewhere", "",
        "Values, methods, in-place forms and gradients are PyTorch's; one of `out=`, views, other names or refusals is not.", "",
        *why(found, listed, False), "", "## Not counted", "",
        f"{len(internal)} operations of PyTorch's inner workings, of which {sum(whole(o, False) for o in internal)} are whole here; and those that "
        "the database cannot ask without a GPU of NVIDIA's or with no sample: " + ", ".join(f"`{n}`" for n in untested) + ".", "", SUITE.read_text()])


def write(answers: Path) -> int:
    started, used = time.monotonic(), processor_seconds()
    if not (answers / "catalogue.json").exists():
        print(f"conformance: making PyTorch's answers, once, in {answers}")
        subprocess.run([sys.executable, str(SHARED / "opinfo_score.py"), "--build-only", "--dtypes", "all", "--oracle", str(answers)], check=True)
        started, used = time.monotonic(), processor_seconds()
    results = {}
    for device in ("cpu", "cuda"):
        results[device] = score(f"all-{device}", device, answers)
        results[device]["alias"] = run("alias_score.py", f"alias-{device}", device, "--quiet")
    listed = reasons()
    PAGE.write_text(page(results, listed))
    found = failures(results["cpu"]) + failures(results["cuda"])
    print("\n".join(totals(results)))
    print(f"conformance: {time.monotonic() - started:.0f} s, {processor_seconds() - used:.0f} s of processor time; wrote {PAGE.relative_to(ROOT)}")
    missing, idle = unexplained(found, listed), stale(found, listed)
    for name, kind, check, device in missing:
        print(f"conformance: no reason is given for {name}, {kind}, {SAID[check]}, {device}")
    if idle:
        print("conformance: reasons that nothing needs any more:", ", ".join(idle))
    return bool(missing or idle)


def check() -> int:
    answers, listed, bad = unpack(), reasons(), 0
    used = processor_seconds()
    for device in ("cpu", "cuda"):
        result = score(f"fixed-{device}", device, answers)
        ops = public(result)
        pair = share((int(whole(o, False)), 1) for o in ops.values())
        print(f"conformance, {device}: {percent(pair)} of the public operations whole on the fixed samples; gradients "
              f"{percent(share(counts(o, ('grad',)) for o in ops.values()))}")
        new = unexplained(failures(result), listed)
        names = sorted({f[0] for f in new})
        hard = [n for n in names if set(ops[n]["tags"]) - NUMERIC]
        for name in names:
            print(f"conformance, {device}: {name}: {'; '.join(f'{c}: {m}' for c, m in ops[name]['first'].items())[:400]}")
        bad |= 100 * pair[0] < FLOOR * pair[1] or bool(hard) or len(names) > SPARE
        for what, rule in run("alias_score.py", f"alias-{device}", device, "--quiet")["checks"].items():
            if rule["status"] not in ("pass", "skip"):
                print(f"conformance, {device}: {what}: {rule['message']}")
                bad = 1
    print(f"conformance: {'failed' if bad else 'as it should be'}; {processor_seconds() - used:.0f} s of processor time")
    return bad


def gpu(jobs: int, more: list[str]) -> int:
    """The fixed part on a real GPU, in several processes, each of which ends when its GPU does."""
    os.environ["FLAMBEAU_SIM_GPUS"] = ""
    result = run("opinfo_score.py", "gpu", "cuda", "--dtypes", "all", "--oracle", str(unpack()), "--no-errors", "--module", "tests.conformance.mortal",
                 "--jobs", str(jobs), "--timeout", "60", "--log", str(BUILD / "gpu.log"), *more)
    ops, new = public(result), unexplained(failures(result), reasons())
    names = sorted({f[0] for f in new})
    total = share((int(whole(o, False)), 1) for o in ops.values())
    lines = [f"conformance, GPU: {percent(total)} of the public operations whole on the fixed samples; {len(names)} differ without a reason"]
    lines += [f"{name}: {'; '.join(f'{c}: {m}' for c, m in ops[name]['first'].items())[:400]}" for name in names]
    (BUILD / "gpu.md").write_text("\n\n".join(lines) + "\n")
    print("\n".join(lines))
    return bool(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="a fixed part, with the kept answers (the default)")
    which.add_argument("--write", action="store_true", help="all of it, into docs/conformance.md")
    which.add_argument("--gpu", action="store_true", help="the fixed part on a real GPU")
    which.add_argument("--pack", action="store_true", help="choose the fixed part anew")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)), help="processes of --gpu")
    parser.add_argument("--ops", default="", help="of --gpu: a comma list of operations")
    parser.add_argument("--answers", type=Path, default=BUILD / "answers", help="PyTorch's answers to all of it")
    chosen = parser.parse_args()
    if not (SHARED / "opinfo_score.py").exists():
        print(f"conformance: skipped, because the instrument is not beside this checkout: there is no {SHARED.parent.name}/{SHARED.name} next to {ROOT.name}")
        return 0
    if chosen.gpu:
        return gpu(chosen.jobs, ["--ops", chosen.ops] if chosen.ops else [])
    if chosen.pack:
        pack(chosen.answers)
        return 0
    return write(chosen.answers.resolve()) if chosen.write else check()


if __name__ == "__main__":
    sys.exit(main())
