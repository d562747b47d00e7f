"""What NVIDIA GPUs have for a spec: kernels of our own and libraries.

Each kind's function is given the driver's launches, the device and the spec, and gives a prepared launch, or None where the caller must do
otherwise (a type the library does not take, a library that is not installed and can be done without).  A module is imported when
one of its kinds is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...kernels import specs
from ...kernels.specs import Loop, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch
    from .launches import Launches

# the kind of work: (module of this folder, function)
_WHERE: dict[type[Spec], tuple[str, str]] = {
    specs.Sort: ("ordering", "sort"),
    specs.Element: ("ordering", "element"),
    specs.NonzeroCount: ("ordering", "nonzero_count"),
    specs.NonzeroWrite: ("ordering", "nonzero_write"),
    specs.Spread: ("ordering", "spread"),
    specs.Put: ("ordering", "put"),
    specs.Search: ("ordering", "search"),
    specs.Occurrences: ("ordering", "occurrences"),
    specs.Check: ("ordering", "check"),
    specs.Stepwise: ("stepwise", "stepwise"),
    specs.JoinedMaps: ("foreach", "maps"),
    specs.JoinedReductions: ("foreach", "reductions"),
    specs.Product: ("blaslt", "product"),
    specs.Fft: ("cufft", "transform"),
    specs.RealFft: ("cufft", "transform"),
    specs.Lapack: ("cusolver", "lapack"),
    specs.Convolution: ("convolutions", "convolution"),
    specs.Attention: ("attention", "forward"),
    specs.AttentionGradient: ("attention", "backward"),
    specs.Collective: ("collectives", "collective"),
}
_found: dict[type[Spec], Callable[[Launches, int, Spec], PreparedLaunch | None]] = {}


def prepare(launches: Launches, device: int, spec: Spec) -> PreparedLaunch | None:
    """The launch, or None where there is none for this."""
    if type(spec) is Loop:
        return launches.prepare(spec.program, spec.domain, spec.strides)
    kind = type(spec)
    make = _found.get(kind)
    if make is None:
        where = _WHERE.get(kind)
        if where is None:
            return None
        make = _found[kind] = getattr(import_module("." + where[0], __package__), where[1])
    prepared = make(launches, device, spec)
    if prepared is not None:
        prepared.spec = spec
    return prepared


def serves(kind: type[Spec]) -> bool:
    """Whether there are launches for specs of this kind at all."""
    return kind in _WHERE or kind is Loop
