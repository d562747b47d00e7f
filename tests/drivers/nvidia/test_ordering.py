"""Sorting, selecting, searching and compaction through the driver on a fake libcuda: the CPU's results to the bit."""

from __future__ import annotations

from typing import Any

import pytest

from .running import named, on_fake, run

CASES = named("cases_sorting.py")


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return {}


@on_fake
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["eager", "lazy", "random"])
def test_case(results: dict[str, dict[str, Any]], order: str, case: str) -> None:
    if order not in results:
        results[order] = run(order, 5, file="cases_sorting.py")
    error = results[order].get(case, f"it was not reached: {results[order]['']}")
    assert not error, error
