"""Layers that learn their input size from the first input they meet."""

from __future__ import annotations

from typing import Any

from ..autograd import no_grad
from .module import Module
from .parameter import is_lazy


class LazyModuleMixin(Module):
    """Stands before a layer's class in a lazy variant's bases. The first call asks `initialize_parameters` for the
    sizes, draws the values and turns the module into its `cls_to_become` for good; without one it stays of its class."""

    cls_to_become: type[Module] | None = None

    def has_uninitialized_params(self) -> bool:
        """Whether the sizes are still unknown."""
        return any(is_lazy(v) for table in (self._parameters, self._buffers) for v in table.values())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Takes the sizes from the arguments of a call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def materialize(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Gives the named parameters and buffers their shapes, and draws values if any had none."""
        fresh = False
        with no_grad():
            for name, shape in shapes.items():
                for table in (self._parameters, self._buffers):
                    value: Any = table.get(name)
                    if is_lazy(value):
                        value.materialize(shape)
                        fresh = True
        if fresh:
            self._become()
            self.reset_parameters()

    def _become(self) -> None:
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.has_uninitialized_params():
            self.initialize_parameters(*args, **kwargs)
        if isinstance(self, LazyModuleMixin):
            self._become()
        return Module.__call__(self, *args, **kwargs)


