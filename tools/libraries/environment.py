"""An environment that has the libraries people build on, and not torch.

    python tools/libraries/environment.py FOLDER [NAME ...]

pip has no way to leave one requirement out, and most of these libraries require torch. So each is installed without its requirements, and
what its own metadata requires is installed after it in the same way, except what stands for PyTorch itself. The environment's own pip and
its copy of `packaging` decide about versions and markers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

# what Flambeau is in the place of, and what serves torch alone
LEFT_OUT = frozenset("torch torchvision torchaudio triton torchdata".split())

# Run by the environment's Python: for each installed distribution that was named, what it requires and does not have.
_WANTED = """
import importlib.metadata as m, json, sys
from pip._vendor.packaging.requirements import Requirement
found = set()
for name in sys.argv[1:]:
    asked = Requirement(name)
    extras = [{"extra": e} for e in asked.extras] + [{"extra": ""}]
    for line in m.distribution(asked.name).requires or []:
        need = Requirement(line)
        if need.marker is not None and not any(need.marker.evaluate(e) for e in extras):
            continue
        try:
            if m.version(need.name) in need.specifier and not need.extras:
                continue
        except m.PackageNotFoundError:
            pass
        need.marker = None
        found.add(str(need))
print(json.dumps(sorted(found)))
"""


def _plain(requirement: str) -> str:
    """The name in a requirement, as indexes write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(@]", requirement.strip(), maxsplit=1)[0]).lower()


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments], check=True)


def make(folder: Path) -> Path:
    """An environment with this checkout of Flambeau in it; gives its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        _pip(python, "install", "--editable", str(Path(__file__).resolve().parent.parent.parent))
    return python


def install(python: Path, *names: str, left_out: frozenset[str] = LEFT_OUT) -> None:
    """Installs libraries and all they require, but for `left_out`."""
    asked: set[str] = set()
    wanted = list(names)
    while wanted:
        asked.update(_plain(name) for name in wanted)
        _pip(python, "install", "--no-deps", *wanted)
        said = subprocess.run([python, "-c", _WANTED, *wanted], check=True, capture_output=True, text=True).stdout
        wanted = [need for need in json.loads(said) if _plain(need) not in left_out and not _plain(need).startswith("nvidia-") and _plain(need) not in asked]


def versions(python: Path) -> dict[str, str]:
    """What is installed: name, version."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    said = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    return {_plain(name): version for name, version in json.loads(said).items()}


if __name__ == "__main__":
    install(make(Path(sys.argv[1])), *sys.argv[2:])
