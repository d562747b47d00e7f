"""Parts of tracing that PyTorch calls experimental (torch.fx.experimental): answers to what libraries ask of a compiler that is not here."""

from __future__ import annotations

from typing import Any

from ..interop import stand_ins


def _always(answer: Any) -> Any:
    return lambda *args, **kwargs: answer


_WHY = "sizes are Python's ints here; there is no compiler that knows them by name"
stand_ins.module(f"{__name__}.proxy_tensor", {"get_proxy_mode": _always(None), **stand_ins.names(f"{__name__}.proxy_tensor", "make_fx() ProxyTorchDispatchMode",
                                                                                                _WHY)}, "Traces of kernels: none runs.")
stand_ins.module(f"{__name__}.symbolic_shapes", {
    "guard_or_false": bool, "guard_or_true": bool, "statically_known_true": bool, "guard_size_oblivious": bool, "definitely_true": bool,
    "free_symbols": _always(set()), "free_unbacked_symbols": _always(set()),
    **stand_ins.names(f"{__name__}.symbolic_shapes", "GuardOnDataDependentSymNode ShapeEnv SymNode DimDynamic", _WHY)}, "Sizes by name: all are ints.")

__all__: list[str] = []
