"""A training in a notebook: a bar, what is left, the epochs as a table and charts, which follow the work."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from .chart_svg import chart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .progress import Progress

_EVERY = 0.125  # seconds between two pictures
_MOST_ROWS = 12
_BAR = "height:8px;width:min(30em,100%);border-radius:4px;background:color-mix(in srgb,currentColor 18%,transparent);overflow:hidden"
# the charts are drawn by classes, which the page of a trace styles in a sheet of its own
_LOOKS = (".flambeau-training svg{width:min(26em,100%);height:auto;color:inherit}.flambeau-training svg text{font:11px system-ui,sans-serif;fill:currentColor}"
          ".flambeau-training svg .grid{stroke:currentColor;opacity:.15}.flambeau-training svg .curve{fill:none;stroke:#2a78c8;stroke-width:1.5}"
          ".flambeau-training svg .dot{fill:#2a78c8}.flambeau-training td,.flambeau-training th{text-align:right;padding:0 .8em}")


def kernel_display() -> Callable[..., Any] | None:
    """What shows things in the notebook that this program runs in; None elsewhere. IPython is looked for, not loaded."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    shell = ipython.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:  # the shell in a terminal
        return None
    from importlib import import_module
    return import_module("IPython.display").display  # type: ignore[no-any-return]


class Picture:
    """The display of one training; `refresh` draws it anew, at most eight times a second."""

    def __init__(self, progress: Progress, display: Callable[..., Any]) -> None:
        self._progress = progress
        self._handle = display(progress, display_id=True)
        self._last = time.perf_counter()

    def refresh(self, always: bool = False) -> None:
        now = time.perf_counter()
        if always or now - self._last >= _EVERY:
            self._last = now
            self._handle.update(self._progress)


def html(p: Progress) -> str:
    """The training so far."""
    from .progress import cell
    columns, done = p.columns(), p.done
    parts = [f"<style>{_LOOKS}</style>", f"<p><b>{escape(p.title)}</b></p>" if p.title else "",
             f'<div role="progressbar" aria-valuemin="0" aria-valuemax="{p.epochs}" aria-valuenow="{done:.2f}" style="{_BAR}">'
             f'<div style="height:100%;width:{100 * done / p.epochs:.1f}%;background:#2a78c8"></div></div>', f"<p>{escape(p.told())}</p>"]
    if p.rows:
        head = "".join(f"<th>{escape(c)}</th>" for c in columns)
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell(c, row[c])) if c in row else ''}</td>" for c in columns) + "</tr>" for row in p.rows[-_MOST_ROWS:])
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        parts += [chart(name, values) for name, values in p.series().items() if len(values) > 1]
    return f'<div class="flambeau-training">{"".join(parts)}</div>'
