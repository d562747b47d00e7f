"""What installing Flambeau with an extra downloads: ``python benchmarks/extras.py [EXTRA...]`` (by default `cuda`; "" is none).

pip resolves the package at the repository's root with the extra and fetches every wheel, for this platform, into a folder that is then
deleted; what is weighed are those files, without the package's own.  Exit status: 1 where `cuda` weighs more than it may.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MB = 1e6
MOST = {"cuda": 700.0}  # MB


def weigh(extra: str, folder: Path) -> dict[str, float]:
    """Megabytes of each wheel that ``flambeau[extra]`` needs.  Raises RuntimeError with pip's words where it cannot be resolved."""
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(folder), target],
                          capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise RuntimeError(f"pip download {target}: {done.stderr.strip()[-1000:]}")
    return {file.name: file.stat().st_size / MB for file in folder.iterdir() if not file.name.startswith("flambeau-")}


def table(extra: str, sizes: dict[str, float]) -> str:
    """The wheels, the heaviest first, and their sum."""
    lines = [f"flambeau[{extra}]" if extra else "flambeau"]
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        project, version, *_ = name.split("-")
        lines.append(f"  {size:8.1f} MB  {project.replace('_', '-')} {version}")
    limit = f" of at most {MOST[extra]:.0f}" if extra in MOST else ""
    return "\n".join([*lines, f"  {sum(sizes.values()):8.1f} MB in all{limit}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", default=["cuda"], metavar="EXTRA")
    heavy = False
    for extra in parser.parse_args().extras:
        with tempfile.TemporaryDirectory() as folder:
            sizes = weigh(extra, Path(folder))
        print(table(extra, sizes), flush=True)
        heavy = heavy or sum(sizes.values()) > MOST.get(extra, float("inf"))
    return int(heavy)


if __name__ == "__main__":
    sys.exit(main())
