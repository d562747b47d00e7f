"""Attention on NVIDIA GPUs, through the driver on the fake libcuda."""

from __future__ import annotations

from typing import Any

import pytest

from .running import named, on_fake, run


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return {}


@on_fake
@pytest.mark.parametrize("case", named("cases_attention.py"))
@pytest.mark.parametrize("order", ["eager", "random"])
def test_case(results: dict[str, dict[str, Any]], order: str, case: str) -> None:
    if order not in results:
        results[order] = run(order, 5, file="cases_attention.py")
    error = results[order].get(case, f"it was not reached: {results[order]['']}")
    assert not error, error
