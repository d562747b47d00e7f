"""Programs in processes of their own, for tests of what would end this one, hang it, or take its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = "import resource\nresource.setrlimit(resource.RLIMIT_AS, ({0}, {0}))\nimport flambeau as torch\n"


def run(code: str, memory: int = 6 << 30, seconds: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `code` did, which finds `torch`, in a process with so many bytes of addresses. Raises TimeoutExpired after so many seconds."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", HEAD.format(memory) + code], capture_output=True, text=True, timeout=seconds, env=env, cwd=ROOT)


def says(code: str, memory: int = 6 << 30, seconds: float = 60, **environment: str) -> str:
    """What it printed; fails where it did not end well."""
    done = run(code, memory, seconds, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
