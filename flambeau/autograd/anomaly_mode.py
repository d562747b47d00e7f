"""`torch.autograd.anomaly_mode`: where PyTorch keeps anomaly detection."""

from __future__ import annotations

from .anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
