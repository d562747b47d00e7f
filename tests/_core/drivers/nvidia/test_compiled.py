"""Compiled functions of NVIDIA GPUs on the fake libcuda."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_compiled.py")
