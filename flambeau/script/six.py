"""Names of `torch._six`, which PyTorch had until 1.13."""

from __future__ import annotations

import collections.abc as container_abcs
from math import inf, nan

string_classes = (str, bytes)
int_classes = int
FileNotFoundError = FileNotFoundError  # noqa: A001, PLW0127 (the module's own name)

__all__ = ["FileNotFoundError", "container_abcs", "inf", "int_classes", "nan", "string_classes"]
