"""What PyTorch has removed or is about to: functions and methods that say what to call instead, for programs that name them."""

from __future__ import annotations

import math
from typing import Any

from ..errors import warn
from ..tensor import Tensor

# what follows the sentence that PyTorch's errors begin with
_INSTEAD = {
    "solve": "Call torch.linalg.solve(A, B): its arguments are in the other order, and it gives the solution alone. torch.linalg.lu_factor gives the "
             "factorization.",
    "lstsq": "Call torch.linalg.lstsq(A, B): its arguments are in the other order, and it gives residuals apart from the solution. torch.linalg.qr gives "
             "the decomposition.",
    "symeig": "Call torch.linalg.eigh(A, UPLO='U' if upper else 'L'), which takes the lower triangle by default, or torch.linalg.eigvalsh for the "
              "eigenvalues alone.",
    "eig": "Call torch.linalg.eig(A), whose results are complex, or torch.linalg.eigvals for the eigenvalues alone.",
    "matrix_rank": "Please use the `torch.linalg.matrix_rank` function instead. What was `symmetric` is its `hermitian`.",
}


def _gone(name: str) -> Any:
    since = "version 1.9"
    raise RuntimeError(f"This function was deprecated since {since} and is now removed: torch.{name}. {_INSTEAD[name]}")


def solve(input: Any, A: Any, *, out: Any = None) -> Any:  # noqa: A002, N803 (PyTorch's names)
    """Raises RuntimeError: `linalg.solve`."""
    return _gone("solve")


def lstsq(input: Any, A: Any, *, out: Any = None) -> Any:  # noqa: A002, N803
    """Raises RuntimeError: `linalg.lstsq`."""
    return _gone("lstsq")


def symeig(input: Any, eigenvectors: bool = False, upper: bool = True, *, out: Any = None) -> Any:  # noqa: A002
    """Raises RuntimeError: `linalg.eigh`."""
    return _gone("symeig")


def eig(self: Any, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> Any:
    """Raises RuntimeError: `linalg.eig`."""
    return _gone("eig")


def matrix_rank(input: Any, tol: Any = None, symmetric: bool = False, *, out: Any = None) -> Any:  # noqa: A002
    """Raises RuntimeError: `linalg.matrix_rank`."""
    return _gone("matrix_rank")


def _solve(self: Tensor, other: Any) -> Any:
    """Raises RuntimeError: `linalg.solve`."""
    return _gone("solve")


def _lstsq(self: Tensor, other: Any) -> Any:
    """Raises RuntimeError: `linalg.lstsq`."""
    return _gone("lstsq")


def _symeig(self: Tensor, eigenvectors: bool = False) -> Any:
    """Raises RuntimeError: `linalg.eigh`."""
    return _gone("symeig")


def _eig(self: Tensor, eigenvectors: bool = False) -> Any:
    """Raises RuntimeError: `linalg.eig`."""
    return _gone("eig")


def reinforce(self: Tensor, reward: Any) -> Any:
    """Raises RuntimeError: the `log_prob` of a distribution."""
    raise RuntimeError("reinforce() was removed.\nUse torch.distributions instead: m = torch.distributions.Categorical(probs); action = m.sample(); "
                       "loss = -m.log_prob(action) * reward; loss.backward()")


def resize(self: Tensor, *sizes: Any) -> Any:
    """The elements in another shape, not in place; deprecated: `reshape`.  Raises RuntimeError for another number of elements."""
    warn("non-inplace resize is deprecated")
    return _reshaped(self, sizes)


def resize_as(self: Tensor, tensor: Tensor) -> Any:
    """The elements in the shape of `tensor`, not in place; deprecated: `reshape`.  Raises RuntimeError for another number of elements."""
    warn("non-inplace resize_as is deprecated")
    return _reshaped(self, tuple(tensor.meta.shape))


def _reshaped(self: Any, sizes: tuple[Any, ...]) -> Any:
    if math.prod(sizes) != self.meta.numel:
        raise RuntimeError(f"requested resize to {'x'.join(map(str, sizes))} ({math.prod(sizes)} elements in total), but the given tensor has a size of "
                           f"{'x'.join(map(str, self.meta.shape))} ({self.meta.numel} elements). autograd's resize can only change the shape of a given "
                           "tensor, while preserving the number of elements.")
    return self.contiguous().view(sizes)


def _volatile(self: Tensor) -> bool:
    warn("volatile was removed (Variable.volatile is always False)")
    return False


def _set_volatile(self: Tensor, value: Any) -> None:
    warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")


def install(target: type) -> None:
    """Gives the Tensor these methods."""
    for name, method in {"solve": _solve, "lstsq": _lstsq, "symeig": _symeig, "eig": _eig, "reinforce": reinforce, "resize": resize,
                         "resize_as": resize_as}.items():
        method.__name__ = name
        setattr(target, name, method)
    setattr(target, "volatile", property(_volatile, _set_volatile, doc="False, with a warning: `no_grad` is what it was for."))  # noqa: B010
