"""Sorting, selecting, searching and compaction through the driver on a fake libcuda: the CPU's results to the bit."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_sorting.py")
