"""The arguments of `make bench-ops`: by a name, the same value for either library.

A call is written with these names (`torch.addmm(x, y, z)` is "x, y, z"); a value is made when a line first asks for it, from
NumPy's numbers with a fixed seed, so that both libraries see the same ones.  `Case` says of what size and type; the only
one yet is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any
Make = Callable[["Values"], Any]


class Case(NamedTuple):
    """What a run measures: further ones (1,024 x 1,024, bfloat16, transposed, 2 threads) are further cases of this."""

    name: str
    n: int
    dtype: str = "float32"
    threads: int = 1


SMALL = Case("small", 4)


class Values:
    """Named values of one library; asked for by name like a dict, and each made once."""

    def __init__(self, lib: Any, case: Case = SMALL) -> None:
        self.lib, self.case, self.n = lib, case, case.n
        self.random = np.random.default_rng(0)
        self.made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.made:
            self.random = np.random.default_rng(sum(map(ord, name)))
            self.made[name] = VALUES[name](self)
        return self.made[name]

    # ------------------------------------------------------------------------------------------- tensors from numbers
    def tensor(self, array: Array) -> Any:
        """A tensor with memory of its own, in the case's type if its numbers are real."""
        made = self.lib.from_numpy(np.ascontiguousarray(array)).clone()
        return made.to(getattr(self.lib, self.case.dtype)) if array.dtype == np.float64 else made

    def uniform(self, *shape: int) -> Any:
        """Numbers in the domain of nearly all functions: (0.1, 0.9)."""
        return self.tensor(self.random.uniform(0.1, 0.9, shape))

    def whole(self, low: int, high: int, *shape: int) -> Any:
        return self.tensor(self.random.integers(low, high, shape))

    def complex(self, *shape: int) -> Any:
        return self.tensor((self.random.uniform(0.1, 0.9, shape) + 1j * self.random.uniform(0.1, 0.9, shape)).astype(np.complex64))

    def mask(self, *shape: int) -> Any:
        return self.tensor(self.random.uniform(size=shape) > 0.5)


def uniform(*shape: Any) -> Make:
    """A tensor of this shape, where "n" stands for the case's n."""
    return lambda values: values.uniform(*[values.n if s == "n" else s for s in shape])


def _definite(values: Values) -> Any:
    a = values.random.uniform(0.1, 0.9, (values.n, values.n))
    return values.tensor(a @ a.T + values.n * np.eye(values.n))


def _triangle(values: Values) -> Any:
    return values.tensor(np.tril(values.random.uniform(0.1, 0.9, (values.n, values.n))) + np.eye(values.n))


def _lu(values: Values) -> Any:
    return values.lib.linalg.lu_factor(values["definite"])


VALUES: dict[str, Make] = {
    "n": lambda v: v.n, "nn": lambda v: v.n * v.n, "half": lambda v: v.n // 2, "last": lambda v: v.n - 1, "shape": lambda v: (v.n, v.n),
    "strides": lambda v: (v.n, 1), "torch": lambda v: v.lib,
    # matrices and vectors
    **{name: uniform("n", "n") for name in ("x", "y", "z")},
    **{name: uniform("n") for name in ("v", "w")},
    **{name: uniform(2, "n", "n") for name in ("b1", "b2", "b3")},
    "row": uniform(1, "n"), "one": lambda v: v.tensor(np.ones((v.n, v.n))), "zero": lambda v: v.tensor(np.zeros((v.n, v.n))),
    "scalar": lambda v: v.tensor(np.array(0.5)), "sorted_": lambda v: v.tensor(np.linspace(0.0, 1.0, v.n)),
    "definite": _definite, "triangle": _triangle, "lu": lambda v: _lu(v)[0], "pivots": lambda v: _lu(v)[1],
    "ldl": lambda v: v.lib.linalg.ldl_factor(v["definite"])[0], "ldl_pivots": lambda v: v.lib.linalg.ldl_factor(v["definite"])[1],
    "signs": lambda v: v.tensor(np.where(v.random.uniform(size=(v.n, v.n)) > 0.5, 1.0, -1.0)),
    "v_signs": lambda v: v.tensor(np.where(v.random.uniform(size=v.n) > 0.5, 1.0, -1.0)),
    "points": uniform("n", 3), "points2": uniform("n", 3), "pairs": uniform("n", "n", 2), "many": uniform(2, "n"),
    "v6": uniform(6), "cube": lambda v: v.tensor(np.eye(4).reshape(4, 2, 2) + 0.1),
    # whole numbers, indices and masks
    "whole": lambda v: v.whole(1, 9, v.n, v.n), "whole2": lambda v: v.whole(1, 4, v.n, v.n),
    "index": lambda v: v.whole(0, v.n, v.n, v.n), "order": lambda v: v.tensor(v.random.permutation(v.n)),
    "target": lambda v: v.whole(0, v.n, v.n), "mask": lambda v: v.mask(v.n, v.n), "mask2": lambda v: v.mask(v.n, v.n),
    "offsets": lambda v: v.tensor(np.array([0, v.n // 2])), "lengths": lambda v: v.tensor(np.array([v.n // 2, v.n - v.n // 2])),
    # complex numbers
    "c": lambda v: v.complex(v.n, v.n), "c2": lambda v: v.complex(v.n, v.n), "cv": lambda v: v.complex(v.n),
    # signals, images and their kernels
    "line": uniform(1, 3, 8), "image": uniform(1, 3, 8, 8), "volume": uniform(1, 3, 4, 4, 4), "image4": uniform(1, 4, 8, 8),
    "k1": uniform(4, 3, 3), "k2": uniform(4, 3, 3, 3), "k3": uniform(4, 3, 3, 3, 3),
    "t1": uniform(3, 4, 3), "t2": uniform(3, 4, 3, 3), "t3": uniform(3, 4, 3, 3, 3), "bias4": uniform(4),
    "w3": uniform(3), "bias3": uniform(3), "mean3": uniform(3), "var3": uniform(3), "columns": uniform(1, 12, 4),
    "grid": lambda v: v.tensor(v.random.uniform(-0.9, 0.9, (1, 4, 4, 2))), "grid3": lambda v: v.tensor(v.random.uniform(-0.9, 0.9, (1, 4, 4, 4, 3))),
    "theta": uniform(1, 2, 3), "pooled": lambda v: v.lib.nn.functional.max_pool2d(v["image"], 2), "tbc": uniform(4, 1, 3), "tbc_w": uniform(3, 3, 4),
    "pool1": lambda v: v.lib.nn.functional.max_pool1d(v["line"], 2, return_indices=True),
    "pool2": lambda v: v.lib.nn.functional.max_pool2d(v["image"], 2, return_indices=True),
    "pool3": lambda v: v.lib.nn.functional.max_pool3d(v["volume"], 2, return_indices=True),
    "p1": lambda v: v["pool1"][0], "i1": lambda v: v["pool1"][1], "p2": lambda v: v["pool2"][0], "i2": lambda v: v["pool2"][1],
    "p3": lambda v: v["pool3"][0], "i3": lambda v: v["pool3"][1],
    "signal": uniform(32), "window": lambda v: v.lib.hamming_window(8), "spectrum": lambda v: v.complex(5, 17),
    # layers
    **{name: uniform(1, 2, "n", 4) for name in ("q", "k", "heads")},
    **{name: uniform("n", 1, 4) for name in ("sq", "sk", "sv")},
    "in_w": uniform(12, 4), "in_b": uniform(12), "out_w": uniform(4, 4), "out_b": uniform(4), "bilinear_w": uniform(3, "n", "n"),
    "log_probs": lambda v: v.tensor(np.log(v.random.dirichlet(np.ones(4), (8, 1)))), "labels": lambda v: v.whole(1, 4, 1, 3),
    "input_len": lambda v: v.tensor(np.array([8])), "target_len": lambda v: v.tensor(np.array([3])),
    "seq": uniform(3, 1, "n"), "h0": uniform(1, 1, "n"), "g4": uniform(16, 4), "g3": uniform(12, 4), "gb4": uniform(16), "gb3": uniform(12),
    # other things
    "array": lambda v: np.ones((v.n, v.n), np.float32), "nested": lambda v: [[0.5] * v.n for _ in range(v.n)], "memory": lambda v: bytearray(4 * v.n),
    "scalar1": uniform(1), "sparse_c": lambda v: v["sparse"].coalesce(),
    "sparse": lambda v: (v["x"] * v["mask"]).to_sparse(), "csr": lambda v: (v["x"] * v["mask"]).to_sparse_csr(),
    "coordinates": lambda v: v.tensor(np.array([[0, 1, 2], [1, 2, 3]])), "three": uniform(3),
    "rows_at": lambda v: v.tensor(np.array([0, 1, 2, 3, 3])), "columns_at": lambda v: v.tensor(np.array([1, 2, 3])),
        # what a line may write into: made anew for each line, and its numbers put back between the blocks
    "o": uniform("n", "n"), "o_row": uniform(1, "n"), "o_v": uniform("n"), "o_b": uniform(2, "n", "n"), "o_one": lambda v: v["one"].clone(),
    "o_double": lambda v: v["x"].double(),
    "o_whole": lambda v: v.whole(1, 9, v.n, v.n), "o_mask": lambda v: v.mask(v.n, v.n), "o_c": lambda v: v.complex(v.n, v.n),
    "o_image": uniform(1, 3, 8, 8),
}
