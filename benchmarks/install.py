"""What a user pays before the first line runs: import time, and the hard dependencies to download and to install."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

MB = 1e6


def import_seconds(module: str, rounds: int = 9) -> float:
    """Median seconds that `import module` adds to a bare start of Python, the two taken in turn."""

    def start(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - began

    start(f"import {module}")  # warms the file cache and the bytecode
    return statistics.median(start(f"import {module}") - start("pass") for _ in range(rounds))


def hard_dependencies(package: str) -> set[str]:
    """The distributions that installing `package` brings here, without itself."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [package]
    while waiting:
        for text in metadata.requires(waiting.pop()) or []:
            requirement = Requirement(text)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(name)
    return found


def installed_mb(names: set[str]) -> float:
    """Megabytes on disk of installed distributions, without the bytecode that Python adds."""
    total = 0
    for name in names:
        for file in metadata.files(name) or []:
            path = Path(str(file.locate()))
            if path.is_file() and path.suffix != ".pyc":
                total += path.stat().st_size
    return total / MB


def download_mb(names: set[str]) -> float:
    """Megabytes of the wheels of the installed versions, downloaded to be weighed."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = [f"{name}=={metadata.version(name)}" for name in sorted(names)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
             "--dest", folder, *wanted],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        return sum(file.stat().st_size for file in Path(folder).iterdir()) / MB
