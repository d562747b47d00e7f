"""Pointwise operations: one row each, a formula and its names."""

from __future__ import annotations

from ..kernels import expr as E
from .table import pointwise

mul = pointwise("mul", "input other", lambda x, y: x * y, aliases=("multiply",), doc="input * other.")
sub_ = pointwise("sub", "input other", lambda x, y, alpha: x - alpha * y, numbers={"alpha": 1}, keyword=("alpha",), aliases=("subtract",))
tanh = pointwise("tanh", "input", E.tanh, promote="float")
