"""Maps onto constrained sets: `biject_to` one to one, `transform_to` any that is easy to optimize through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from . import constraints, transforms
from .utils import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F")
__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """From types of constraints to functions that make a transform onto one."""

    def __init__(self) -> None:
        self._registry: dict[type, Any] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Registers ``factory(constraint)``; a decorator without it.  Raises TypeError for what is no constraint."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform from unconstrained numbers onto the constraint.  Raises NotImplementedError where none is registered."""
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints") from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[F], F]:
    def register(factory: F) -> F:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory
    return register


@_both(constraints.real)
def _identity(constraint: Any) -> Any:
    return transforms.identity_transform


def _independent(registry: ConstraintRegistry) -> Any:
    def make(constraint: Any) -> Any:
        return transforms.IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)
    return make


def _joined(registry: ConstraintRegistry, kind: Any, lengths: bool) -> Any:
    def make(constraint: Any) -> Any:
        parts = [registry(c) for c in constraint.cseq]
        return kind(parts, constraint.dim, constraint.lengths) if lengths else kind(parts, constraint.dim)
    return make


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _independent(_registry))
    _registry.register(constraints.cat, _joined(_registry, transforms.CatTransform, True))
    _registry.register(constraints.stack, _joined(_registry, transforms.StackTransform, False))


@_both(constraints.positive, constraints.nonnegative)
def _positive(constraint: Any) -> Any:
    return transforms.ExpTransform()


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> Any:
    exp = transforms.ExpTransform()
    bound = constraint.lower_bound
    if is_number(bound) and bound == 0:
        return exp
    return transforms.ComposeTransform([exp, transforms.AffineTransform(bound, 1)])


@_both(constraints.less_than)
def _below(constraint: Any) -> Any:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)])


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    sigmoid = transforms.SigmoidTransform()
    if is_number(low) and low == 0 and is_number(high) and high == 1:
        return sigmoid
    return transforms.ComposeTransform([sigmoid, transforms.AffineTransform(low, high - low)])


biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda constraint: transforms.PositiveDefiniteTransform())


@_both(constraints.corr_cholesky)
def _correlation(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()
