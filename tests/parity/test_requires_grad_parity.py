"""Which results of all public operations require grad, where every operand that may does: those of PyTorch's, so that no gradient is left out unsaid."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau
from tests._core.engine.public_operations import ops_lines, ops_timing, ops_values

torch = pytest.importorskip("torch")

# what has derivatives here and none in PyTorch
MORE = frozenset(("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
                  "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "hermite_polynomial_h",
                  "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
                  *(f"{shifted}chebyshev_polynomial_{kind}" for kind in "tuvw" for shifted in ("", "shifted_"))))
OWN = {
    "detach_copy": "PyTorch's requires grad and raises in the backward pass: a copy of what is detached has no history here",
    "view_as_complex_copy": "PyTorch refuses what needs a gradient, which is that of view_as_complex",
    "nn.functional.soft_margin_loss": "PyTorch refuses targets that require grad, which have their gradient here",
    "to_dlpack": "PyTorch's private function takes what requires grad",
}


def flags(tensor: type, result: Any) -> list[bool]:
    if isinstance(result, tensor):
        return [result.requires_grad]  # type: ignore[attr-defined]
    return [f for part in result for f in flags(tensor, part)] if isinstance(result, (tuple, list)) else []


def asked(lib: Any, line: Any) -> list[bool] | None:
    lib.manual_seed(0)
    values = ops_values.Values(lib)
    names = [n for n in ops_timing.used(line) if isinstance(values[n], lib.Tensor) and n not in ops_timing.NEVER
             and (values[n].is_floating_point() or values[n].is_complex())]
    try:
        return flags(lib.Tensor, ops_timing._call(lib, line, values, tuple(names)))
    except Exception:  # what raises is other tests' matter
        return None


def test_results_require_grad_as_pytorchs():
    lines = [line for line in ops_lines.all_lines(flambeau, torch)[0] if line.name not in OWN and line.name.removeprefix("special.") not in MORE]
    assert len(lines) > 800
    grad = [lib.is_grad_enabled() for lib in (flambeau, torch)]
    differ = {}
    try:
        for lib in (flambeau, torch):
            lib.set_grad_enabled(True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for line in lines:
                ours, theirs = asked(flambeau, line), asked(torch, line)
                if ours is not None and theirs is not None and ours != theirs:
                    differ[line.name] = ours, theirs
    finally:
        for lib, on in zip((flambeau, torch), grad, strict=True):
            lib.set_grad_enabled(on)
    assert not differ
