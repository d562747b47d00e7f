"""`torch.utils.data._utils`, which programs reach into."""

from __future__ import annotations

import atexit

from ....data import workers as worker
from . import collate, fetch, pin_memory, signal_handling

HAS_NUMPY = True
MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between looks whether the process at the other end lives
python_exit_status = False  # whether Python is about to end


def _set_python_exit_flag() -> None:
    global python_exit_status
    python_exit_status = True


atexit.register(_set_python_exit_flag)

__all__ = ["HAS_NUMPY", "MP_STATUS_CHECK_INTERVAL", "collate", "fetch", "pin_memory", "signal_handling", "worker"]
