"""A share of the damaged files on every run; `python tests/io/fuzz.py --count 100000` tries the rest."""

from __future__ import annotations

import os
import subprocess
import sys


def test_two_thousand_damaged_files():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run([sys.executable, os.path.join(here, "fuzz.py"), "--count", "2000", "--seed", "7"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(here))})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'refused'" in done.stdout
