"""Collectives as launches of NVIDIA GPUs: NCCL queues them on a stream (`drivers/collectives/nccl`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Collective
    from .launches import Launches


def collective(launches: Launches, device: int, spec: Collective) -> PreparedLaunch:
    """The call returns when the communication is queued."""
    driver, carry_out = launches.driver, spec.carry_out

    def call(stream: Any, addresses: tuple[Any, ...]) -> None:
        driver._use(device)
        carry_out(stream, addresses)
    return launches.call(spec.name, device, call, spec.outputs, nbytes=spec.nbytes)
