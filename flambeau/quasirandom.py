"""Quasirandom numbers: points that fill a cube more evenly than independent random ones.

Sobol's sequence: I. M. Sobol, USSR Computational Mathematics and Mathematical Physics 7(4), 1967; in the order of Gray's code after P. Bratley and
B. L. Fox, "Algorithm 659", ACM TOMS 14(1), 1988; with the direction numbers of S. Joe and F. Y. Kuo, SIAM J. Sci. Comput. 30, 2008, which
SciPy brings.  Scrambling multiplies the digits of each coordinate by a random lower triangular matrix and shifts them (J. Matousek, J. Complexity 14, 1998).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import dtypes, ops
from ._core.tensor import Tensor
from .random import Generator

__all__ = ["SobolEngine"]

_BITS = 30


def _published(dimension: int) -> tuple[Any, Any]:
    """The primitive polynomials (a bit a coefficient) and first direction numbers, a row a coordinate."""
    from importlib.util import find_spec
    from pathlib import Path
    spec = find_spec("scipy")
    if spec is None or spec.origin is None:
        raise ImportError("SobolEngine needs SciPy, which has the direction numbers: pip install scipy")
    with np.load(Path(spec.origin).parent / "stats" / "_sobol_direction_numbers.npz") as found:
        return found["poly"][:dimension].astype(np.int64), found["vinit"][:dimension].astype(np.int64)


def _directions(dimension: int) -> Any:
    """int64 (dimension, 30): what each bit of a point's number does to its coordinates."""
    poly, first = _published(dimension)
    v = np.ones((dimension, _BITS), np.int64)
    degree = np.array([int(p).bit_length() - 1 for p in poly])
    for m in np.unique(degree[1:]):
        rows = np.flatnonzero(degree == m)
        rows = rows[rows > 0]
        part = np.zeros((len(rows), _BITS), np.int64)
        part[:, :m] = first[rows, :m]
        for j in range(int(m), _BITS):
            new = part[:, j - m].copy()
            for k in range(int(m)):
                new ^= np.where(poly[rows] >> (m - 1 - k) & 1, part[:, j - k - 1] << (k + 1), 0)
            part[:, j] = new
        v[rows] = part
    return v << np.arange(_BITS - 1, -1, -1)


class SobolEngine:
    """Draws the points of a (scrambled) Sobol sequence in [0, 1)^dimension, one after another.

    scramble: random digits, by `seed` (None: another one each time).  Raises ValueError for a dimension outside [1, 21201].
    """

    MAXBIT = _BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got {dimension}")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.sobolstate = ops.from_numpy(_directions(dimension))
        self.shift = ops.zeros(dimension, dtype=dtypes.int64, device="cpu")
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self.num_generated = 0

    def _scramble(self) -> None:
        g = None
        if self.seed is not None:
            g = Generator()
            g.manual_seed(self.seed)
        digits = ops.randint(2, (self.dimension, _BITS), device="cpu", generator=g).numpy()
        self.shift = ops.from_numpy((digits << np.arange(_BITS)).sum(1))
        lower = np.tril(ops.randint(2, (self.dimension, _BITS, _BITS), device="cpu", generator=g).numpy())
        lower[:, np.arange(_BITS), np.arange(_BITS)] = 1
        places = np.arange(_BITS - 1, -1, -1)  # the highest digit first
        state = self.sobolstate.numpy()
        bits = state[:, :, None] >> places & 1
        state[...] = ((np.einsum("dpk,djk->djp", lower, bits) & 1) << places).sum(2)

    def _points(self, n: int) -> Any:
        """int64 (n, dimension): the points that come next, the current one among them; the state moves on."""
        first = self.num_generated
        numbers = np.arange(max(first - 1, 0), first + n - 1)
        at = [(~int(k) & (int(k) + 1)).bit_length() - 1 for k in numbers]  # the lowest bit that is 0
        steps = self.sobolstate.numpy()[:, at].T
        start = self.quasi.numpy()[None].copy()
        found = np.bitwise_xor.accumulate(np.concatenate((start, steps)), 0)
        self.quasi = ops.from_numpy(found[-1].copy())
        self.num_generated += n
        return found if first == 0 else found[1:]

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points, (n, dimension), of `dtype` (the default type if None); also into `out`, which is resized."""
        result: Tensor = ops.from_numpy(self._points(n)).to(dtypes.settled(dtype)) / 2 ** _BITS
        if out is None:
            return result
        out.resize_as_(result).copy_(result)
        return out

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2**m points.  Raises ValueError where the number of points drawn so far would then be no power of two."""
        total = self.num_generated + 2 ** m
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously "
                             f"generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()' instead.")
        return self.draw(2 ** m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out the next `n` points."""
        self._points(n)
        return self

    def reset(self) -> SobolEngine:
        """Begins again with the first point, scrambled as it was."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def __repr__(self) -> str:
        told = [f"dimension={self.dimension}"] + ["scramble=True"] * self.scramble + ([f"seed={self.seed}"] if self.seed is not None else [])
        return f"{type(self).__name__}({', '.join(told)})"
