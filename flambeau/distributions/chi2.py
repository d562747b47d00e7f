"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from .._core.layout import Size
from . import constraints
from .gamma import Gamma


class Chi2(Gamma):
    """The chi-squared distribution with `df` degrees of freedom: Gamma(df / 2, 1 / 2)."""

    arg_constraints = {"df": constraints.positive}
    _fields = Gamma._fields

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Chi2, _instance)
        return super().expand(Size(batch_shape), new)

    df = property(lambda self: self.concentration * 2)
