"""Attention on NVIDIA GPUs, through the driver on the fake libraries."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_attention.py", ["eager", "random"])
