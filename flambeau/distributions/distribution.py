"""`Distribution`: what all distributions have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from .._core import ops
from .._core.autograd.mode import no_grad
from .._core.errors import warn
from .._core.layout import Size, broadcast_shapes
from .._core.tensor import Tensor
from . import constraints
from .utils import lazy_property

_ops: Any = ops


class Distribution:
    """A probability distribution, or a batch of independent ones.

    Args:
        batch_shape: the shape of the batch of distributions.
        event_shape: the shape of one sample of one of them.
        validate_args: check parameters and values (default: as `set_default_validate_args` says, at first that of
            `__debug__`).

    Raises ValueError for a parameter outside its constraint.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__
    # the tensors that `expand` broadcasts, each with the number of its own last axes
    _fields: ClassVar[dict[str, int]] = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args takes a bool, not {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = Size(), event_shape: Any = Size(), validate_args: bool | None = None) -> None:  # noqa: B008
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            limits = self.arg_constraints
        except NotImplementedError:
            limits = {}
            warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                 "distribution with `validate_args=False` to turn off validation.")
        for name, constraint in limits.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # computed from what was given
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                                 f"to satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    # ------------------------------------------------------------------------------------------------------------- shapes
    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = Size()) -> Size:  # noqa: B008
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its batch broadcast to `batch_shape`; parameters are views."""
        new = self._get_checked_instance(_own_class(self), _instance)
        batch_shape = Size(batch_shape)
        for name, own in self._fields.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                new.__dict__[name] = value.expand((*batch_shape, *value.shape[value.dim() - own:]))
        self._expand_more(new, batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        """What a class keeps beside its `_fields`."""

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                                      "define a custom .expand() method.")
        return type(self).__new__(type(self)) if _instance is None else _instance

    # ------------------------------------------------------------------------------------------------------ what it tells
    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The mode."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    # ------------------------------------------------------------------------------------------------------------ samples
    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Samples of shape ``sample_shape + batch_shape + event_shape``, outside the tape."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Samples as a differentiable function of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """`sample((n,))`."""
        warn("sample_n will be deprecated. Use .sample((n,)) instead")
        return self.sample(Size((n,)))

    # ------------------------------------------------------------------------------------------------------ probabilities
    def log_prob(self, value: Any) -> Any:
        """The log of the density (or probability) at `value`, of shape ``sample_shape + batch_shape``."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The cumulative distribution function at `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The inverse of the cumulative distribution function at `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution along a new first axis; repeated over the batch if `expand`."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy of each distribution of the batch, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return _ops.exp(self.entropy())

    def _enumerated(self, values: Any, expand: bool) -> Any:
        """Scalar `values`, as `enumerate_support` gives them."""
        values = values.reshape((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def _validate_sample(self, value: Any) -> None:
        """Raises ValueError unless `value` fits the shapes and the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        own = value.dim() - len(self._event_shape)
        if value.shape[max(own, 0):] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}.")
        actual, expected = value.shape, (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(actual), reversed(expected), strict=False):
            if i not in (1, j) and j != 1:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {Size(expected)}.")
        try:
            support = self.support
        except NotImplementedError:
            warn(f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution with "
                 "`validate_args=False` to turn off validation.")
            return
        if support is None:
            raise AssertionError(f"{type(self)} has no support")
        if not bool(support.check(value).all()):
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def __repr__(self) -> str:
        names = [n for n in self.arg_constraints if n in self.__dict__]
        shown = ", ".join(f"{n}: {v if getattr(v, 'numel', lambda: 1)() == 1 else v.size()}" for n, v in
                          ((n, self.__dict__[n]) for n in names))
        return f"{type(self).__name__}({shown})"


def _own_class(d: Distribution) -> type:
    """The class whose `expand` this is: the one that names the fields."""
    return next(c for c in type(d).__mro__ if "_fields" in c.__dict__ or "expand" in c.__dict__)


def common_shape(*shapes: Any) -> Size:
    """The shape that all of these broadcast to."""
    return Size(broadcast_shapes(*shapes))
