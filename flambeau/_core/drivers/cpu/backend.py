"""What the CPU has for a spec: generated kernels, libraries by pointer, NumPy.

A module is imported when one of its kinds of work is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...kernels import specs, target
from ...kernels.specs import Loop, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch

# the kind of work: (module of this folder, function)
_WHERE: dict[type[Spec], tuple[str, str]] = {
    specs.Product: ("products", "product"),
    specs.RowsProduct: ("products", "rows_product"),
    specs.Convolution: ("convolutions", "convolution"),
    specs.Attention: ("attention", "forward"),
    specs.AttentionGradient: ("attention", "backward"),
    specs.Sort: ("ordering", "sort"),
    specs.Element: ("ordering", "element"),
    specs.Search: ("ordering", "search"),
    specs.Among: ("ordering", "among"),
    specs.NonzeroFirst: ("nonzero_histogram", "nonzero_first"),
    specs.NonzeroCount: ("nonzero_histogram", "nonzero_count"),
    specs.NonzeroWrite: ("nonzero_histogram", "nonzero_write"),
    specs.Chosen: ("nonzero_histogram", "chosen"),
    specs.Spread: ("nonzero_histogram", "spread"),
    specs.Occurrences: ("nonzero_histogram", "occurrences"),
    specs.Histogram: ("nonzero_histogram", "histogram"),
    specs.Check: ("nonzero_histogram", "check"),
    specs.Blocks: ("nonzero_histogram", "blocks"),
    specs.Stepwise: ("stepwise", "stepwise"),
    specs.Fft: ("transforms", "transform"),
    specs.RealFft: ("real_transforms", "real_transform"),
    specs.Lapack: ("factorizations", "prepare"),
    specs.Draw: ("draws", "draw"),
    specs.Collective: ("collectives", "collective"),
}
_found: dict[type[Spec], Callable[[Spec], PreparedLaunch | None]] = {}


def prepare(spec: Spec) -> PreparedLaunch | None:
    """The launch; None where there is none for this."""
    if type(spec) is Loop:
        return target.prepare(spec.program, spec.domain, spec.strides)
    kind = type(spec)
    make = _found.get(kind)
    if make is None:
        where = _WHERE.get(kind)
        if where is None:
            return None
        make = _found[kind] = getattr(import_module("." + where[0], __package__), where[1])
    prepared: PreparedLaunch | None = make(spec)
    if prepared is not None and prepared.program is None:
        prepared.spec = spec
    return prepared


def serves(kind: type[Spec]) -> bool:
    """Whether there are launches for specs of this kind at all."""
    return kind in _WHERE or kind is Loop
