"""Names of `torch.autograd` that are functions and modules, in any order of imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flambeau as fb


@pytest.mark.parametrize("program", [
    "from flambeau.autograd.gradcheck import gradcheck", "import flambeau.autograd.gradcheck", "from flambeau.autograd import gradcheck",
    "from flambeau.autograd.gradcheck import GradcheckError, gradgradcheck",
    "from flambeau.script.importer import install\ninstall()\nfrom torch.autograd.gradcheck import gradcheck\nimport torch.autograd.gradcheck"])
def test_gradcheck_stays_a_function(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{program}\nimport flambeau\nassert type(flambeau.autograd.gradcheck).__name__ == 'function'"],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_modules_of_modes() -> None:
    from flambeau.autograd import anomaly_mode, grad_mode
    assert grad_mode.no_grad is fb.no_grad
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled") as said, anomaly_mode.detect_anomaly():
        assert fb.is_anomaly_enabled()
    assert said[0].filename == __file__ and not fb.is_anomaly_enabled()
