"""`torch._ops`: the table of operations by name, and what its entries are, where programs look for them."""

from __future__ import annotations

from flambeau._core import ops
from flambeau.interop.aten import Overload as OpOverload
from flambeau.interop.aten import Packet as OpOverloadPacket

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]
