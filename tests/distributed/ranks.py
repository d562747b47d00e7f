"""Scripts run by several ranks, started by the agent as a user would."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py here, which several processes communicate by")


def environment(**more: str) -> dict[str, str]:
    """This process's environment for a script of its own: several ranks print to one pipe, each line in one piece."""
    others = ("RANK", "WORLD_SIZE", "MASTER_", "FLAMBEAU_SIM", "PMI", "PYTHONUNBUFFERED")
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
    return {**env, **more}


def free_port() -> int:
    """A port that nobody listened at a moment ago: tests run beside each other."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run(tmp_path: Path, source: str, nproc: int = 2, *options: str, arguments: tuple[str, ...] = (), timeout: float = 120,
        **env: str) -> subprocess.CompletedProcess[str]:
    """The script's output, of all ranks."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source))
    return subprocess.run([sys.executable, "-m", "flambeau", "run", "--nproc", str(nproc), *options, str(script), *arguments], env=environment(**env),
                          capture_output=True, text=True, timeout=timeout, cwd=tmp_path)


def checked(tmp_path: Path, source: str, nproc: int = 2, *options: str, **env: str) -> str:
    """Its output; the script must have ended well."""
    done = run(tmp_path, source, nproc, *options, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
