"""The calibration of simulated GPUs, through the driver on a fake libcuda."""

from __future__ import annotations

import pytest

from .running import on_fake, run


@pytest.mark.slow
@on_fake
def test_a_gpu_is_measured() -> None:
    found = run("eager", 0, file="cases_calibrate.py", FAKE_ABSENT="")
    assert [error for error in found.values() if error and not error.startswith("ended with 0")] == [], found
    assert "case_a_model_file_is_written_and_simulated" in found or "a_model_file_is_written_and_simulated" in found
