"""Graphs of NVIDIA GPUs on the fake libcuda, which refuses during a capture what the real one refuses."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_graphs.py")
