"""What training steps launch on an NVIDIA GPU: on the fake libcuda."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_steps.py", ("eager", "random"))
