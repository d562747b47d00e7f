"""Collectives as launches of the CPU, and of simulated GPUs, which carry them out when they have their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.programs import PreparedLaunch

if TYPE_CHECKING:
    from ...kernels.specs import Collective


def collective(spec: Collective) -> PreparedLaunch:
    """The entry returns when the communication is done."""
    carry_out = spec.carry_out

    def entry(*addresses: int) -> None:
        carry_out(None, addresses)
    return PreparedLaunch(spec.name, entry, outputs=spec.outputs, nbytes=spec.nbytes, keep=spec)
