"""Adaptive softmax against the full one."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn


def test_adaptive_softmax_is_a_distribution(device: str) -> None:
    torch.manual_seed(0)
    m = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 12], div_value=2.0, head_bias=True).to(device)
    x, y = torch.randn(9, 16, device=device, requires_grad=True), torch.tensor([0, 4, 5, 11, 12, 19, 3, 7, 15], device=device)
    full = m.log_prob(x)
    np.testing.assert_allclose(full.exp().sum(1).detach().cpu().numpy(), np.ones(9), rtol=1e-5)
    out, loss = m(x, y)
    np.testing.assert_allclose(out.detach().cpu().numpy(), full.gather(1, y[:, None])[:, 0].detach().cpu().numpy(), atol=1e-5)
    assert loss.item() == pytest.approx(-out.mean().item(), rel=1e-6) and m.predict(x).tolist() == full.argmax(1).tolist()
    loss.backward()
    assert x.grad is not None and all(p.grad is not None for p in m.parameters())
    assert m(x[0], y[0]).output.shape == ()
    with pytest.raises(RuntimeError, match="Target values"):
        m(x, y + 1)
    for cutoffs in ([], [5, 5], [0, 3], [20]):
        with pytest.raises(ValueError, match="cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs)
