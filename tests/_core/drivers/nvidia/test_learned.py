"""Calls on NVIDIA GPUs that are learned: on the fake libcuda."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_learned.py", ("eager", "random"))
