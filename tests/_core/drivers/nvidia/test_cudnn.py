"""Convolutions by cuDNN: through the driver on the fake libraries, and the real library's descriptors, which need no GPU."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.drivers.nvidia import cudnn, libraries

from .running import each_case

test_case = each_case("cases_cudnn.py")


NUMBERS = ((1, 1), (2, 1), (1, 1))
PLAIN = {"x": ((2, 4, 8, 8), (256, 64, 8, 1)), "w": ((6, 2, 3, 3), (18, 9, 3, 1)), "y": ((2, 6, 4, 8), (192, 32, 8, 1))}
LAST = {"x": ((2, 4, 8, 8), (256, 1, 32, 4)), "w": ((6, 2, 3, 3), (18, 1, 6, 2)), "y": ((2, 6, 4, 8), (192, 1, 48, 6))}


@pytest.mark.skipif(not os.path.isabs(libraries.find("cudnn")), reason="nvidia-cudnn is not installed (pip install 'flambeau[cuda-dnn]')")
@pytest.mark.parametrize("operands", [PLAIN, LAST], ids=["plain", "last"])
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_descriptors_of_the_real_library(name: str, operands: dict[str, Any]) -> None:
    """NVIDIA's own library takes the descriptors, and works out the same size of the result."""
    lib = cudnn.load()
    assert (cudnn.version() or 0) >= 90000
    for kind in ("forward", "images", "weights"):
        made = cudnn.Description(lib, kind, getattr(torch, name), operands["x"], operands["w"], operands["y"], NUMBERS, 2, kind == "forward", True)
        out = (ctypes.c_int * 4)()
        assert lib.cudnnGetConvolutionNdForwardOutputDim(made.convolution, made.x, made.w, 4, out) == 0
        assert tuple(out) == operands["y"][0]
        kind_of, rank, sizes, strides = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * 4)(), (ctypes.c_int * 4)()
        assert lib.cudnnGetTensorNdDescriptor(made.y, 4, ctypes.byref(kind_of), ctypes.byref(rank), sizes, strides) == 0
        assert (tuple(sizes), tuple(strides)) == operands["y"]


class _Anything:
    """A library that takes every descriptor."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: 0


@pytest.mark.parametrize("change", [
    {"x": ((2, 4, 8, 8), (256, 64, 1, 8))}, {"w": ((6, 2, 3, 3), (18, 1, 6, 2))}, {"x": ((2, 4, 1 << 15, 1 << 15), (1 << 32, 1 << 30, 1 << 15, 1))}])
def test_what_is_not_asked_of_it(change: dict[str, Any]) -> None:
    """Strides that are neither of the two formats, operands of both, and too many elements."""
    o: dict[str, Any] = PLAIN | change
    library: Any = _Anything()
    with pytest.raises(cudnn.Unsupported):
        cudnn.Description(library, "forward", torch.float32, o["x"], o["w"], o["y"], NUMBERS, 2, False, True)
    with pytest.raises(cudnn.Unsupported):
        cudnn.Description(library, "forward", torch.complex64, PLAIN["x"], PLAIN["w"], PLAIN["y"], NUMBERS, 2, False, True)


def test_axes_of_length_one_have_no_order() -> None:
    o = LAST | {"w": ((6, 2, 1, 1), (2, 1, 1, 1))}
    cudnn.Description(_Anything(), "forward", torch.float32, o["x"], o["w"], o["y"], NUMBERS, 2, False, True)  # type: ignore[arg-type]
