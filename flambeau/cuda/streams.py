"""Streams and events (torch.cuda.streams): the names of `flambeau.cuda` under their other address."""

from __future__ import annotations

from .._core.runtime.streams import Event, ExternalStream, Stream

__all__ = ["Event", "ExternalStream", "Stream"]
