"""Anomaly detection: errors and NaNs in a backward pass name the forward line."""

from __future__ import annotations

from .._core.autograd.tape import anomaly
from .._core.errors import warn


class set_detect_anomaly:
    """Turns anomaly detection on or off, as a call or for a `with` block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (anomaly.lines, anomaly.check_nan)
        anomaly.detect(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        anomaly.detect(*self._before)


class detect_anomaly(set_detect_anomaly):
    """Anomaly detection for a `with` block."""

    def __init__(self, check_nan: bool = True) -> None:
        warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.")
        super().__init__(True, check_nan)
