"""Floating-point operations of a stretch of program (torch.utils.flop_counter): of matrix products, convolutions and attention.

They are counted where they are launched, on any device, forward and backward: a product of (m, k) and (k, n) is 2 m n k.  What a module's
forward launches is counted for it too; what backward launches is in "Global" alone.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .._core.runtime import dispatch
from ..interop.aten import aten
from ..nn.hooks import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["FlopCounterMode"]

# the beginning of a launch's name, and PyTorch's name of the operation
_KINDS = (("matmul", "mm"), ("convolution_weights", "convolution"), ("convolution", "convolution"), ("attention", "scaled_dot_product_attention"))
_UNITS = ("", "K", "M", "B", "T", "P")


class FlopCounterMode:
    """A ``with`` block that counts; mods is accepted, as every module is looked at.

    depth: how many levels of modules `get_table` shows.  display: print the table at the end.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self._names: dict[int, str] = {}
        self._open: list[str] = []
        self._close: list[Any] = []

    def _launched(self, device: Any, stream: Any, prepared: Any, args: Any) -> None:
        name = getattr(prepared, "name", "")
        kind = next((to for begin, to in _KINDS if name.startswith(begin)), None)
        if kind is None or not prepared.flops:
            return
        key = getattr(aten, kind)
        for module in {"Global", *self._open}:
            self.flop_counts[module][key] += prepared.flops

    def _enter_module(self, module: Any, args: Any) -> None:
        if id(module) not in self._names:
            top = type(module).__name__
            for name, part in module.named_modules():
                self._names.setdefault(id(part), f"{top}.{name}" if name else top)
        self._open.append(self._names[id(module)])

    def _leave_module(self, module: Any, args: Any, output: Any) -> None:
        if self._open:
            self._open.pop()

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._open.clear()
        self._close = [register_module_forward_pre_hook(self._enter_module).remove,
                       register_module_forward_hook(self._leave_module, always_call=True).remove, dispatch.observe(launches=self._launched).close]
        return self

    def __exit__(self, *exc: object) -> None:
        for close in self._close:
            close()
        self._close.clear()
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """All that was counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """For "Global" and each module by its path, the count of each operation."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A table of modules and operations with their counts and shares."""
        levels = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self.flop_counts, key=lambda name: (name != "Global", name)):
            if module.count(".") + 1 > levels:
                continue
            counts = self.flop_counts[module]
            rows.append((module, _short(sum(counts.values())), f"{sum(counts.values()) / total:.2%}"))
            rows += [(f" - {op!r}"[:-1].replace("<OpOverloadPacket(op='", "").replace("')", ""), _short(n), f"{n / total:.2%}") for op, n in counts.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _short(n: int) -> str:
    """A count in thousands, millions, ..."""
    unit = 0
    value = float(n)
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    return f"{value:.3f}{_UNITS[unit]}" if unit else str(n)
