"""What tests of compiled functions may ask for."""

from __future__ import annotations

import pytest

from flambeau._core.compile import compiled


@pytest.fixture
def always_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could be kept is, however long it takes."""
    monkeypatch.setattr(compiled, "pays", lambda *times: True)
    monkeypatch.setattr(compiled, "_TIMED", 1)
    monkeypatch.setattr(compiled, "AFTER", 1)
