"""Runs programs on the libraries people build on, by Flambeau and by PyTorch, and writes docs/libraries.md.

    python tools/libraries [--folder build/libraries] [--only NAME ...] [--alone] [--no-install] [--sim-gpus N]

Two environments are made: one with the libraries and without torch, in which `flambeau run` runs the programs of `programs/`, and one
that has the same libraries and PyTorch, which runs the same files.  The second sees the first's libraries by a path file, so each is
installed once.  A case differs where a number is more than 1e-4 away (of its size, or of 1), or a token, a text or a shape is another.
--alone: without PyTorch: whether the programs run.  Exit status: 0 if all agree, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TORCH = "torch==2.13.0"
TOLERANCE = 1e-4
# a program and the packages it is on; what they need besides is found by `environment`
PROGRAMS: dict[str, tuple[str, ...]] = {
    "transformers": ("transformers", "accelerate", "pillow"),
    "peft": ("peft", "transformers"),
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "timm": ("timm", "open_clip_torch", "pillow"),
    "small": ("einops", "safetensors", "datasets", "torchmetrics", "torchdiffeq", "x-transformers", "skorch", "scikit-learn", "sentence-transformers", "monai"),
    "graphs": ("torch_geometric", "captum"),
    "images": ("diffusers", "kornia"),
    "probability": ("pyro-ppl", "gpytorch", "botorch"),
    "agents": ("stable-baselines3",),
    "others": ("einx", "pytorch-metric-learning", "vector-quantize-pytorch"),
    "keras": ("keras",),
    "fields": ("fastai", "pytorch-ignite", "tensordict", "torchrl", "e3nn", "zuko", "opacus"),
    "more": ("torchdata", "opacus", "pytorch_optimizer", "linear_operator", "torchsde", "nflows", "normflows"),
}
NEEDS_TORCHVISION = ("timm",)  # see names_only


def difference(a: Any, b: Any) -> float:
    """How far two results are apart; infinity where they are not of one form."""
    if isinstance(a, list) and isinstance(b, list):
        return max((difference(x, y) for x, y in zip(a, b)), default=0.0) if len(a) == len(b) else float("inf")
    if isinstance(a, dict) and isinstance(b, dict):
        return max((difference(v, b.get(k)) for k, v in a.items()), default=0.0) if len(a) == len(b) else float("inf")
    if isinstance(a, bool) or isinstance(b, bool) or not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
        return 0.0 if a == b else float("inf")
    if a == b or (a != a and b != b):
        return 0.0
    return abs(a - b) / max(1.0, abs(b)) if a - b == a - b else float("inf")


def cases(output: str) -> dict[str, dict[str, Any]]:
    """The cases that a program printed."""
    found = [json.loads(line.removeprefix("CASE ")) for line in output.splitlines() if line.startswith("CASE ")]
    return {one["case"]: one for one in found}


def run(command: list[str], paths: list[Path], **variables: str) -> tuple[dict[str, dict[str, Any]], str]:
    """The cases of a program, and the last line it wrote to its log."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "OPENBLAS_CORETYPE") and not k.startswith("FLAMBEAU_SIM")}
    made = subprocess.run(command, capture_output=True, text=True, check=False, env={
        **kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", **variables})
    log = made.stderr.strip().splitlines()
    return cases(made.stdout), log[-1] if made.returncode and log else ""


def _oracle(folder: Path, libraries: Path) -> Path:
    """The environment with PyTorch, which sees the libraries of the other; gives its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TORCH], check=True)
        inside = subprocess.run([libraries, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True)
        own = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True)
        (Path(own.stdout.strip()) / "libraries.pth").write_text(inside.stdout)
    return python


def _said(mine: dict[str, Any] | None, theirs: dict[str, Any] | None, alone: bool) -> tuple[str, bool]:
    """What the page says of one case, and whether that is well."""
    if mine is None or "error" in mine:
        return f"stops: {(mine or {}).get('error', 'not reached')[:160]}".replace("\n", " "), False
    if alone:
        return "runs", True
    if theirs is None or "error" in theirs:
        return f"PyTorch stops: {(theirs or {}).get('error', 'not reached')[:160]}".replace("\n", " "), False
    apart = difference(mine["gave"], theirs["gave"])
    return "equal" if apart == 0 else f"{apart:.1e} apart" if apart <= TOLERANCE else f"**differs** by {apart:.1e}", apart <= TOLERANCE


def page(parts: dict[str, list[str]], versions: dict[str, str]) -> str:
    """docs/libraries.md."""
    lines = [
        "# Libraries", "",
        "Programs on the libraries that people build on, run unmodified by `flambeau run` in an environment that has no torch, beside the same",
        "files on PyTorch. Weights and inputs are numbers of NumPy's, the same for both. `make libraries` makes both environments, runs all and",
        "writes this page; a difference is of the largest number in a case, by its size or by 1. The second column is the same program with",
        'device "cuda", on simulated GPUs (`flambeau run --sim-gpus 2`), beside PyTorch on the CPU. One thread of PyTorch on a busy machine: the',
        "seconds, of the CPU, hold the first compilation of each kernel and are no benchmark.", ""]
    for program, rows in parts.items():
        named = ", ".join(f"{name} {versions.get(environment._plain(name), '?')}" for name in PROGRAMS[program])
        lines += [f"## {named}", "", "| case | on the CPU | on simulated GPUs | s, Flambeau | s, PyTorch |", "|---|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "libraries")
    parser.add_argument("--only", nargs="+", choices=sorted(PROGRAMS), default=sorted(PROGRAMS, key=list(PROGRAMS).index))
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--sim-gpus", type=int, default=2, help="how many simulated GPUs the cases run on too; 0: on the CPU alone")
    chosen = parser.parse_args()
    python = environment.make(chosen.folder / "environment")
    if not chosen.no_install:
        environment.install(python, *sorted({name for program in chosen.only for name in PROGRAMS[program]}))
    oracle = None if chosen.alone else _oracle(chosen.folder / "oracle", python)
    good = True
    parts: dict[str, list[str]] = {}
    for program in chosen.only:
        file = str(HERE / "programs" / f"with_{program}.py")
        command = [str(python), "-m", "flambeau", "run"]
        found = [run([*command, file], [ROOT])]
        if chosen.sim_gpus:
            found.append(run([*command, "--sim-gpus", str(chosen.sim_gpus), file], [ROOT], LIBRARIES_DEVICE="cuda"))
        theirs: dict[str, dict[str, Any]] = {}
        if oracle is not None:
            paths = [HERE / "names_only"] if program in NEEDS_TORCHVISION else []
            theirs, _ = run([str(oracle), file], paths, OMP_NUM_THREADS="1")
        by_device = [mine or {program: {"case": program, "error": log}} for mine, log in found]
        parts[program] = []
        for name in dict.fromkeys(name for mine in by_device for name in mine):
            said = [_said(mine.get(name), theirs.get(name), chosen.alone) for mine in by_device]
            seconds = [f"{one[name]['seconds']:.1f}" if "seconds" in one.get(name, {}) else "" for one in (by_device[0], theirs)]
            parts[program].append(f"| {name} | {said[0][0]} | {said[1][0] if len(said) > 1 else ''} | {seconds[0]} | {seconds[1]} |")
            good = good and all(fine for _, fine in said)
        print(f"{program}: " + "; ".join(parts[program]), flush=True)
    if not chosen.alone:
        kept = chosen.folder / "results.json"
        parts = {**(json.loads(kept.read_text()) if kept.exists() else {}), **parts}
        kept.write_text(json.dumps(parts))
        parts = {program: parts[program] for program in PROGRAMS if program in parts}  # those of earlier runs too
        (ROOT / "docs" / "libraries.md").write_text(page(parts, environment.versions(python)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
