"""A layer and its activation as one product of cuBLASLt, through the driver on a fake one."""

from __future__ import annotations

from .running import each_case

test_case = each_case("cases_activations.py")
