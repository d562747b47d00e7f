"""Grad modes: whether operations are recorded, per thread and per context.

`grad_enabled` is the fast reader operations call.  Inference mode also turns recording off.
"""

from __future__ import annotations

import functools
import inspect
from contextvars import ContextVar, Token
from typing import Any

from ..runtime import versions

_grad: ContextVar[bool] = ContextVar("grad", default=True)
_inference = versions.inference
grad_enabled = _grad.get


def is_inference_mode_enabled() -> bool:
    """Whether this is inside `inference_mode`."""
    return _inference.get()


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require grad are recorded here."""
    return _grad.get()


class no_recording:
    """Grad mode off for one block, as cheaply as can be: what operations use; programs have `no_grad`."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = _grad.get()
        try:
            _grad.set(False)
        except BaseException:  # an interrupt behind the switch
            _grad.set(self.before)
            raise

    def __exit__(self, *exc: object) -> None:
        _grad.set(self.before)


class DecoratorContextManager:
    """A context manager that is a decorator too, for functions, generator functions and classes; each call enters what `clone` gives."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another one of the same arguments: of a class whose `__init__` takes any, its own `clone`."""
        return type(self)()

    def __call__(self, function: Any) -> Any:
        if inspect.isclass(function):
            function.__init__ = self(function.__init__)  # type: ignore[method-assign]
            return function
        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def generate(*args: Any, **kwargs: Any) -> Any:
                # only the generator's own steps run in the mode, not its consumer's
                with self.clone():
                    steps = function(*args, **kwargs)
                step, given = steps.send, None
                while True:
                    try:
                        with self.clone():
                            value = step(given)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        step, given = steps.send, (yield value)
                    except GeneratorExit:
                        with self.clone():
                            steps.close()
                        raise
                    except BaseException as error:
                        step, given = steps.throw, error
            return generate

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)
        return run


class NoParamDecoratorContextManager(DecoratorContextManager):
    """One without arguments, which may decorate by its name alone."""

    def __new__(cls, orig_func: Any = None) -> Any:
        self = super().__new__(cls)
        if orig_func is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(orig_func)


class _Mode(DecoratorContextManager):
    """Switches of autograd that are set while a block runs."""

    def __init__(self) -> None:
        self._tokens: list[list[tuple[ContextVar[bool], Token[bool]]]] = []

    def _enter(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> _Mode:
        self._enter()
        return self

    def __exit__(self, *exc: object) -> None:
        for var, token in reversed(self._tokens.pop()):
            _reset(var, token)


def _reset(var: ContextVar[bool], token: Token[bool]) -> None:
    try:
        var.reset(token)
    except ValueError:  # left in another context than it was entered in (a generator resumed elsewhere)
        var.set(bool(token.old_value) if token.old_value is not Token.MISSING else var is _grad)


class no_grad(_Mode, NoParamDecoratorContextManager):
    """Context and decorator in which nothing is recorded."""

    def __init__(self, orig_func: Any = None) -> None:
        super().__init__()

    def _enter(self) -> None:
        self._tokens.append([(_grad, _grad.set(False))])


class enable_grad(no_grad):
    """Context and decorator in which operations are recorded again inside `no_grad`; in inference mode nothing is."""

    def _enter(self) -> None:
        self._tokens.append([(_grad, _grad.set(not _inference.get()))])


class set_grad_enabled(_Mode):
    """Turns recording on or off: at once when called as a function, and back again when used as a context."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._before = _grad.set(self.mode and not _inference.get())

    def clone(self) -> _Mode:
        return set_grad_enabled(self.mode)

    def _enter(self) -> None:
        self._tokens.append([(_grad, self._before)])

    def __call__(self, function: Any) -> Any:
        _reset(_grad, self._before)
        return super().__call__(function)


class inference_mode(_Mode):
    """`no_grad` for code whose tensors never meet autograd; with `mode=False` the opposite, inside such code.

    Tensors whose memory is made there are inference tensors (`is_inference`), and so are views of them. They count no versions; outside they may be
    read, but neither written in place nor saved for a gradient: RuntimeError. `clone()` gives a normal tensor.
    """

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self.__init__(True)  # type: ignore[misc]
            return self(mode)
        return self

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self.mode = True if callable(mode) else bool(mode)

    def clone(self) -> _Mode:
        clone: _Mode = inference_mode(self.mode)
        return clone

    def _enter(self) -> None:
        self._tokens.append([(_grad, _grad.set(not self.mode)), (_inference, _inference.set(self.mode))])
        if self.mode:
            versions.ever[:] = versions.entered[:] = (*versions.entered, None)

    def __exit__(self, *exc: object) -> None:
        if self.mode:
            versions.entered.pop()
        super().__exit__(*exc)
