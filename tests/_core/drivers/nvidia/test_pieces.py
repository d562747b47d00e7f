"""What is cut into pieces for many blocks, through the driver on a fake libcuda: the CPU's results."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_pieces.py")
