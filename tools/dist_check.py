"""The files of a release, tried as a user has them: `make dist-check`, and the workflow of releases.

    python tools/dist_check.py FOLDER VENV

FOLDER holds one sdist and one wheel, as `python -m build` makes them.  VENV is made anew: the wheel is installed there, with nothing but what it asks
for, and run outside the checkout.  Said and refused: files of the package that the wheel lacks or has beyond it, files that the sdist lacks, a wheel
made of the sdist that holds other files, a program that fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What a first user does; each line says what must come out.
PROGRAM = """
import os, flambeau as torch
from flambeau import nn
assert not os.path.abspath(torch.__file__).startswith(os.environ["CHECKOUT"]), torch.__file__
torch.manual_seed(0)
x = torch.linspace(-1, 1, 64).reshape(64, 1)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), 2 * x + 1)
    loss.backward()
    optimizer.step()
assert loss.item() < 1e-3
torch.simulate(gpus=1)
with torch.trace() as t:
    (x.to("cuda") + 10).cpu()
t.save("trace.html")  # the page's scripts travel with the package
torch.save(model.state_dict(), "model.pt")
assert set(torch.load("model.pt")) == {"weight", "bias"}
"""
COMMANDS = (["--version"], ["info", "--json"], ["demo", "--epochs", "1", "--no-page"], ["completion", "bash"])


def tracked(under: str = "") -> set[str]:
    """The files that git tracks there, by their paths from the root."""
    listed = subprocess.run(["git", "ls-files", "-z", *([under] if under else [])], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(filter(None, listed.stdout.split("\0")))


def packaged(names: set[str]) -> set[str]:
    """Those of a wheel's names that are no metadata."""
    return {n for n in names if ".dist-info/" not in n}


def differences(wheel: set[str], expected: set[str]) -> list[str]:
    """What is wrong with a wheel's files, a line each."""
    return [*(f"the wheel lacks {n}" for n in sorted(expected - wheel)), *(f"the wheel has {n}, which is not in git" for n in sorted(wheel - expected))]


def wanted_in_wheel() -> set[str]:
    """What a wheel holds: the package, and the module that pytest loads."""
    return tracked("flambeau") | {"pytest_flambeau.py"}


def wrong(folder: Path) -> list[str]:
    """What is wrong with the files of a release."""
    wheels, sources = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        return [f"{folder}: one wheel and one sdist are expected, got {[p.name for p in (*wheels, *sources)]}"]
    with zipfile.ZipFile(wheels[0]) as archive:
        found = differences(packaged(set(archive.namelist())), wanted_in_wheel())
    with tarfile.open(sources[0]) as tar:
        names = {n.partition("/")[2] for n in tar.getnames()}
    needed = wanted_in_wheel() | {"pyproject.toml", "README.md", "LICENSE", "NOTICE"}
    return found + [f"the sdist lacks {n}" for n in sorted(needed - names)]


def run(venv: Path, wheel: Path) -> None:
    """Installs the wheel in a new environment and runs it, in a folder and with a cache of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    bin = venv.resolve() / "bin"
    subprocess.run([bin / "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FLAMBEAU_"))}
        own |= {"FLAMBEAU_CACHE_DIR": folder, "CHECKOUT": str(ROOT / "flambeau")}
        subprocess.run([bin / "python", "-c", PROGRAM], check=True, cwd=folder, env=own)
        for command in COMMANDS:
            subprocess.run([bin / "flambeau", *command], check=True, cwd=folder, env=own, stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Tries the files; the exit status is 0 where all is well."""
    folder, venv = map(Path, arguments)
    told = wrong(folder)
    print(*told, sep="\n", file=sys.stderr)
    if told:
        return 1
    run(venv, next(folder.glob("*.whl")).resolve())
    print(f"dist-check: {', '.join(p.name for p in sorted(folder.iterdir()))}: whole, installed and run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
