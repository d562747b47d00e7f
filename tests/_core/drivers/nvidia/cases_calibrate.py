"""The calibration of simulated GPUs on the fake libcuda, tiny: every measurement and program is carried out.  Its figures mean nothing.

``python cases_calibrate.py eager 0 [case ...]``, as `cases.py`.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import cases  # type: ignore[import-not-found]

_FAKE = cases.start(sys.argv[1], int(sys.argv[2])) if __name__ == "__main__" else None


def case_a_model_file_is_written_and_simulated() -> None:
    import flambeau as torch
    from flambeau.simulated import calibrate
    name = torch.cuda.get_device_name(0)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "fake.toml")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert calibrate.main(["--small", "--out", path]) == 0
        assert "The mean of the errors' sizes" in said.getvalue()
        text = Path(path).read_text(encoding="utf-8")
        assert text.count("\n# | ") == 11 and f"measured on {name}" in text, text
        with torch.simulate(1, path):
            assert (torch.ones(3, device="cuda") + 1).tolist() == [2, 2, 2]
            assert name in torch.cuda.get_device_name(0)


if __name__ == "__main__":
    cases.main(globals())
