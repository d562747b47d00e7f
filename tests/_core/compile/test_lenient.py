"""A recording that lets everything go on says what it met first."""

from __future__ import annotations

import flambeau as torch
from flambeau._core.compile.lenient import Lenient
from flambeau._core.runtime import capture


def test_it_goes_on_and_tells() -> None:
    with Lenient() as recording:
        y = torch.ones(2) + 1
        assert y.tolist() == [2.0, 2.0]
        assert (y * 2).sum().item() == 8.0
        assert recording.refused is None  # two numbers, or one, are a condition
        assert torch.cat([y, y]).tolist() == [2.0] * 4
        assert y.numpy().tolist() == [2.0, 2.0]
    assert recording.refused == "it looks at a tensor's values"
    assert recording.launches()
    recording.close()
    assert not capture.active
