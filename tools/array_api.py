"""Runs the public test suite of the array API standard (github.com/data-apis/array-api-tests) on `flambeau.interop.array_api`.

    python tools/array_api.py --suite FOLDER [--examples 20] [-- pytest's arguments]

FOLDER is a checkout of the suite with its submodule; the suite needs pytest, hypothesis, pytest-json-report and ndindex.
What is left out stands with its reason in tests/interop/array_api_skips.txt, by the beginning of a test's name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPS = ROOT / "tests" / "interop" / "array_api_skips.txt"


def skips() -> list[str]:
    """The beginnings of the names of tests that are left out."""
    return [line.strip() for line in SKIPS.read_text(encoding="utf-8").splitlines() if line.strip() and not line.startswith("#")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("rest", nargs="*")
    options = parser.parse_args()
    deselect = [f"--deselect={name}" for name in skips()]
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["ARRAY_API_TESTS_MODULE"] = "flambeau.interop.array_api"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "array_api_tests", "-q", "-p", "no:cacheprovider", "--disable-deadline",
               "--max-examples", str(options.examples), *deselect, *options.rest]
    return subprocess.run(command, cwd=options.suite, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
