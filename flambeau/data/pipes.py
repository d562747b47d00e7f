"""Data sets that are made of one another, step by step: PyTorch's data pipes, of which the steps are a program's own.

``@functional_datapipe("doubled")`` on a class lets every pipe say ``pipe.doubled(...)`` for ``Doubled(pipe, ...)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .dataset import Dataset, IterableDataset

T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K", bound=type)


class _Steps:
    """What both kinds of pipes share: the steps that were given a name, each kind its own."""

    functions: dict[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Any:
        made = type(self).functions.get(name)
        if made is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(made, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Lets pipes of this kind say ``pipe.function_name(...)`` for ``function(pipe, ...)``."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False) -> None:
        """Lets pipes of this kind say ``pipe.function_name(...)`` for ``cls_to_register(pipe, ...)``.  Raises Exception for a name that is taken."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")

        @functools.wraps(cls_to_register, assigned=("__doc__",), updated=())
        def function(source_dp: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source_dp, *args, **kwargs)
        cls.functions[function_name] = function

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]

    def __repr__(self) -> str:
        return type(self).__name__

    __str__ = __repr__


class IterDataPipe(_Steps, IterableDataset[T_co]):
    """A stream of samples that other pipes take: subclasses define `__iter__`.

    One iterator of a pipe counts at a time: a new one, before which `reset` is called, ends the older one, whose next step raises RuntimeError.
    """

    functions: dict[str, Callable[..., Any]] = {}
    _turn = 0
    _within = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in vars(cls):
            cls.__iter__ = _one_at_a_time(vars(cls)["__iter__"])  # type: ignore[method-assign]

    def reset(self) -> None:
        """What a pipe with state does before it is gone through again: nothing here."""


def _one_at_a_time(given: Any) -> Any:
    @functools.wraps(given)
    def __iter__(self: Any) -> Iterator[Any]:
        if self._within:  # the method of a class that this one derives from
            return iter(given(self))
        self._turn = turn = self._turn + 1
        self.reset()

        def steps() -> Iterator[Any]:
            samples = None
            while True:
                if self._turn != turn:
                    raise RuntimeError(f"This iterator has been invalidated because another iterator has been created from the same IterDataPipe: {self!r}")
                self._within = True
                try:
                    samples = iter(given(self)) if samples is None else samples
                    sample = next(samples)
                except StopIteration:
                    return
                finally:
                    self._within = False
                yield sample
        return steps()
    return __iter__


class MapDataPipe(_Steps, Dataset[T_co]):
    """A map from keys to samples that other pipes take: subclasses define `__getitem__` and, mostly, `__len__`."""

    functions: dict[str, Callable[..., Any]] = {}


class functional_datapipe:
    """A class decorator: pipes of its kind make one of their own by ``pipe.name(...)``.  Raises TypeError for a class that is no pipe, Exception for a
    name that is taken.  enable_df_api_tracing is accepted."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: K) -> K:
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
