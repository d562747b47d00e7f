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
    """What a run measures: the sizes of its values, their type and how many threads work.

    n: of x, y, z and most others.  sizes: the letters in shapes below; m: of matrices to factorize and of nested lists.  device: where they lie.
    rounded: to which type the numbers are rounded first, so that a wider one sees the same.
    skips: lines that
    would take minutes or all memory, as their work or their result grows with a higher power of n.
    """

    name: str
    n: int
    sizes: dict[str, int]
    dtype: str = "float32"
    threads: int = 1
    device: str = "cpu"
    rounded: str = ""
    skips: frozenset[str] = frozenset()


SMALL = Case("small", 4, {"m": 4, "B": 1, "C": 3, "K": 4, "L": 8, "H": 8, "D": 4, "b": 1, "h": 2, "t": 4, "d": 4, "e": 4, "s": 3, "w": 4,
                           "T": 8, "V": 4, "S": 32})
LARGE = Case("large", 1024, {"m": 256, "B": 8, "C": 32, "K": 64, "L": 4096, "H": 56, "D": 16, "b": 4, "h": 8, "t": 256, "d": 64, "e": 256, "s": 32, "w": 256,
                             "T": 128, "V": 64, "S": 1 << 17},
             skips=frozenset(("kron", "multilabel_margin_loss", "bilinear", "combinations", "cartesian_prod", "repr(x)", "list(x)", "x.flatten().tolist()")))
MIDDLE = Case("middle", 96, {"m": 32, "B": 2, "C": 16, "K": 32, "L": 256, "H": 14, "D": 6, "b": 2, "h": 4, "t": 48, "d": 32, "e": 64, "s": 8, "w": 64,
                             "T": 32, "V": 16, "S": 4096}, skips=frozenset(("kron", "multilabel_margin_loss")))
CASES = {c.name: c for c in (SMALL, MIDDLE, LARGE)}


class Values:
    """Named values of one library; asked for by name like a dict, and each made once."""

    def __init__(self, lib: Any, case: Case = SMALL) -> None:
        self.lib, self.case, self.n = lib, case, case.n
        self.sizes = {"n": case.n, **case.sizes}
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
        made = self.lib.from_numpy(np.ascontiguousarray(array)).clone().to(self.case.device)
        if array.dtype != np.float64:
            return made
        return made.to(getattr(self.lib, self.case.rounded or self.case.dtype)).to(getattr(self.lib, self.case.dtype))

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
    """A tensor of this shape, where letters stand for the case's sizes: "4h" for four times h."""
    return lambda values: values.uniform(*[size(values, s) for s in shape])


def size(values: Values, s: int | str) -> int:
    return s if isinstance(s, int) else int(s[:-1] or 1) * values.sizes[s[-1]]


def _definite(values: Values) -> Any:
    a = values.random.uniform(0.1, 0.9, (values.sizes["m"],) * 2)
    return values.tensor(a @ a.T + values.sizes["m"] * np.eye(values.sizes["m"]))


def _triangle(values: Values) -> Any:
    m = values.sizes["m"]
    return values.tensor(np.tril(values.random.uniform(0.1, 0.9, (m, m))) / m + np.eye(m))


def _factors(values: Values, name: str) -> tuple[Any, Any]:
    """A factorization and its pivots; that of a type which has none is rounded from float32's."""
    given = values["definite"]
    made = getattr(values.lib.linalg, name)(given.float() if given.itemsize < 4 else given)
    return made[0].to(given.dtype), made[1]


VALUES: dict[str, Make] = {
    "n": lambda v: v.n, "nn": lambda v: v.n * v.n, "half": lambda v: v.n // 2, "last": lambda v: v.n - 1, "shape": lambda v: (v.n, v.n),
    "strides": lambda v: (v.n, 1), "torch": lambda v: v.lib,
    # matrices and vectors
    **{name: uniform("n", "n") for name in ("x", "y", "z")},
    **{name: uniform("n") for name in ("v", "w")},
    **{name: uniform(2, "n", "n") for name in ("b1", "b2", "b3")},
    "row": uniform(1, "n"), "one": lambda v: v.tensor(np.ones((v.n, v.n))), "zero": lambda v: v.tensor(np.zeros((v.n, v.n))),
    "scalar": lambda v: v.tensor(np.array(0.5)), "sorted_": lambda v: v.tensor(np.linspace(0.0, 1.0, v.n)),
    "definite": _definite, "right": uniform("m", "m"), "right1": uniform("m"),
    "low": lambda v: v.tensor(v.random.uniform(0.1, 0.9, (v.sizes["m"],) * 2) / v.sizes["m"]),
    "triangle": _triangle, "lu": lambda v: _factors(v, "lu_factor")[0], "pivots": lambda v: _factors(v, "lu_factor")[1],
    "ldl": lambda v: _factors(v, "ldl_factor")[0], "ldl_pivots": lambda v: _factors(v, "ldl_factor")[1],
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
    "line": uniform("B", "C", "L"), "image": uniform("B", "C", "H", "H"), "volume": uniform("B", "C", "D", "D", "D"), "image4": uniform("B", "K", "H", "H"),
    "k1": uniform("K", "C", 3), "k2": uniform("K", "C", 3, 3), "k3": uniform("K", "C", 3, 3, 3),
    "t1": uniform("C", "K", 3), "t2": uniform("C", "K", 3, 3), "t3": uniform("C", "K", 3, 3, 3), "bias4": uniform("K"),
    "w3": uniform("C"), "bias3": uniform("C"), "mean3": uniform("C"), "var3": uniform("C"),
    "columns": lambda v: v.uniform(v.sizes["B"], 4 * v.sizes["C"], (v.sizes["H"] // 2) ** 2),
    "folded": lambda v: (v.sizes["H"] // 2 + 1,) * 2, "theta_size": lambda v: (v.sizes["B"], v.sizes["C"], v.sizes["H"], v.sizes["H"]),
    "batch": lambda v: v.sizes["B"], "channels": lambda v: v.sizes["K"], "pixels": lambda v: v.sizes["H"] ** 2,
    "grid": lambda v: v.tensor(v.random.uniform(-0.9, 0.9, (v.sizes["B"], v.sizes["H"] // 2, v.sizes["H"] // 2, 2))),
    "theta": uniform("B", 2, 3), "pooled": lambda v: v.lib.nn.functional.max_pool2d(v["image"], 2), "tbc": uniform(4, 1, 3), "tbc_w": uniform(3, 3, 4),
    "pool1": lambda v: v.lib.nn.functional.max_pool1d(v["line"], 2, return_indices=True),
    "pool2": lambda v: v.lib.nn.functional.max_pool2d(v["image"], 2, return_indices=True),
    "pool3": lambda v: v.lib.nn.functional.max_pool3d(v["volume"], 2, return_indices=True),
    "p1": lambda v: v["pool1"][0], "i1": lambda v: v["pool1"][1], "p2": lambda v: v["pool2"][0], "i2": lambda v: v["pool2"][1],
    "p3": lambda v: v["pool3"][0], "i3": lambda v: v["pool3"][1],
    "signal": uniform("S"), "window": lambda v: v.lib.hamming_window(v["frame"], device=v.case.device), "frame": lambda v: 8 if v.n < 16 else 256,
    "spectrum": lambda v: v.complex(v["frame"] // 2 + 1, v.sizes["S"] // v["frame"] * 4 + 1),
    # layers
    **{name: uniform("b", "h", "t", "d") for name in ("q", "k", "heads")},
    **{name: uniform("t", "b", "e") for name in ("sq", "sk", "sv")}, "width": lambda v: v.sizes["e"], "nh": lambda v: 2 if v.n < 16 else 8,
    "in_w": uniform("3e", "e"), "in_b": uniform("3e"), "out_w": uniform("e", "e"), "out_b": uniform("e"), "bilinear_w": uniform(3, "n", "n"),
    "log_probs": lambda v: v.tensor(np.log(v.random.dirichlet(np.ones(v.sizes["V"]), (v.sizes["T"], v.sizes["B"])))),
    "labels": lambda v: v.whole(1, v.sizes["V"], v.sizes["B"], 3 * v.sizes["T"] // 8),
    "input_len": lambda v: v.tensor(np.full(v.sizes["B"], v.sizes["T"])), "target_len": lambda v: v.tensor(np.full(v.sizes["B"], 3 * v.sizes["T"] // 8)),
    "seq": uniform("s", "B", "w"), "h0": uniform(1, "B", "w"), "g4": uniform("4w", "w"), "g3": uniform("3w", "w"), "gb4": uniform("4w"), "gb3": uniform("3w"),
    # other things
    "array": lambda v: np.ones((v.n, v.n), np.float32), "nested": lambda v: [[0.5] * v.sizes["m"] for _ in range(v.sizes["m"])],
    "memory": lambda v: bytearray(4 * v.n),
    "scalar1": uniform(1), "sparse_c": lambda v: v["sparse"].coalesce(),
    "sparse": lambda v: (v["x"] * v["mask"]).to_sparse(), "csr": lambda v: (v["x"] * v["mask"]).to_sparse_csr(),
    "coordinates": lambda v: v.tensor(np.array([[0, 1, 2], [1, 2, 3]])), "three": uniform(3),
    "rows_at": lambda v: v.tensor(np.array([0, 1, 2, 3, 3])), "columns_at": lambda v: v.tensor(np.array([1, 2, 3])),
        # what a line may write into: made anew for each line, and its numbers put back between the blocks
    "o": uniform("n", "n"), "o_row": uniform(1, "n"), "o_v": uniform("n"), "o_b": uniform(2, "n", "n"), "o_one": lambda v: v["one"].clone(),
    "o_double": lambda v: v["x"].double(),
    "o_whole": lambda v: v.whole(1, 9, v.n, v.n), "o_mask": lambda v: v.mask(v.n, v.n), "o_c": lambda v: v.complex(v.n, v.n),
    "o_image": uniform("B", "C", "H", "H"),
}
