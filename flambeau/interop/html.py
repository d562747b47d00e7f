"""What a notebook shows: a tensor with its values, a module with its parts."""

from __future__ import annotations

import html
from typing import Any

from .._core.autograd import tape
from .._core.ops.memory_format import strided
from .._core.tensor import Tensor

_ROWS, _EDGE = 12, 5  # at most so many rows or columns; of longer axes so many from either end


def _shown(n: int) -> list[int | None]:
    """The places of an axis to show; None where some are left out."""
    return list(range(n)) if n <= _ROWS else [*range(_EDGE), None, *range(n - _EDGE, n)]


def _cell(value: Any) -> str:
    if isinstance(value, bool) or isinstance(value, int):
        return str(value)
    return html.escape(f"{value:.4g}")


def repr_html(self: Tensor) -> str:
    """A heading (shape, type, device, grad) and, for up to two axes, a table of the values, shortened; more axes as text, and what has no rows of values."""
    import numpy as np
    m = self.meta
    facts = [f"shape ({', '.join(map(str, m.shape))})", m.dtype.name, str(m.device)]
    if self.node is not None:
        facts.append("a leaf that requires grad" if self.node[tape.SEQ] == 0 else "with a history")
    head = f"<div class=\"flambeau-tensor\"><b>tensor</b> <span style=\"opacity:.65\">{html.escape(', '.join(facts))}</span>"
    if not m.numel or len(m.shape) > 2 or m.device.type == "meta" or self.layout is not strided:
        body = "" if not m.numel else f"<pre>{html.escape(repr(self))}</pre>"
        return f"{head}{body}</div>"
    from .._core.ops.reading import values
    rows, columns = (1, *m.shape)[-2:] if m.shape else (1, 1)
    grid = self.detach().resolve_conj().resolve_neg().reshape(rows, columns)
    lines = []
    for i in _shown(rows):
        if i is None:
            lines.append("<tr><td>&#8942;</td></tr>")
            continue
        row = grid[i]
        ends = np.concatenate([values(row[:_ROWS]), values(row[max(columns - _ROWS, 0):])])
        cells = ["<td>&#8230;</td>" if j is None else f"<td>{_cell(ends[j if j < _ROWS else j - columns].item())}</td>" for j in _shown(columns)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"{head}<table>{''.join(lines)}</table></div>"


def module(root: Any) -> str:
    """A table of a module's parts: name, type, settings, the shapes of its own parameters and how many numbers they hold, and where they are."""
    rows, total, seen = [], 0, set()
    for name, part in root.named_modules():
        own = [(n, p) for n, p in part._parameters.items() if p is not None]
        known = [p for _, p in own if not hasattr(p, "materialize")]  # those of a lazy module get their shapes when it is called
        new = sum(p.numel() for p in known if id(p) not in seen)
        seen |= {id(p) for p in known}
        total += new
        shapes = ", ".join(f"{n} {'of no shape yet' if hasattr(p, 'materialize') else tuple(p.shape)}" for n, p in own)
        where = ", ".join(sorted({str(p.device) for _, p in own}))
        cells = ("&nbsp;" * 3 * name.count(".") + html.escape(name or "(all)"), *map(html.escape, (type(part).__name__, part.extra_repr(), shapes)),
                 f"{new:,}" if own else "", html.escape(where))
        rows.append("<tr>" + "".join(f'<td style="text-align:left">{c}</td>' for c in cells) + "</tr>")
    heads = "".join(f'<th style="text-align:left">{h}</th>' for h in ("name", "type", "settings", "parameters", "numbers", "device"))
    mode = "training" if root.training else "evaluation"
    return (f'<div class="flambeau-module"><b>{html.escape(type(root).__name__)}</b> <span style="opacity:.65">{total:,} numbers in parameters, '
            f"mode: {mode}</span><table><tr>{heads}</tr>{''.join(rows)}</table></div>")
