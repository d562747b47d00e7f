"""The memory of source lines: on while its switch is, and nothing is left of it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from inspect import currentframe
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.engine import interpreters
from flambeau._core.runtime.provenance import provenance


def here() -> str:
    """The caller's line, as `file:line`."""
    frame: Any = currentframe().f_back  # type: ignore[union-attr]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    """The switch is off before and after a test."""
    with provenance(False):
        yield


def test_results_remember_the_user_s_line() -> None:
    with provenance():
        x = torch.ones(2, 2); line = here()  # noqa: E702 (the same line)
        assert provenance.of(x) == line
        y = torch.relu(x); line = here()  # noqa: E702
        assert provenance.of(y) == line
        y = x + 1; line = here()  # noqa: E702
        assert provenance.of(y) == line
        y = x.t(); line = here()  # noqa: E702
        assert provenance.of(y) == line
        y = torch.nn.functional.softmax(x, dim=0); line = here()  # noqa: E702
        assert provenance.of(y) == line
        y = x.data; line = here()  # noqa: E702
        assert provenance.of(y) == line
    assert provenance.of(x.data) is None


def test_each_of_several_results_remembers_it() -> None:
    x = torch.arange(4.0)
    with provenance():
        parts = [*torch.max(x, dim=0), *x.split(2)]; line = here()  # noqa: E702 (the same line)
    assert [provenance.of(t) for t in parts] == [line] * 4 and provenance.of(x) is None


def test_what_is_written_in_place_keeps_the_line_that_made_it() -> None:
    with provenance():
        x = torch.ones(2); line = here()  # noqa: E702 (the same line)
        x.add_(1)
        x += 1
    assert provenance.of(x) == line


def test_nothing_is_remembered_and_the_own_code_runs_while_it_is_off() -> None:
    x = torch.ones(2)
    torch.relu(x)
    code, stack = torch.relu.__code__, interpreters._stack
    with provenance():
        assert provenance.enabled() and torch.relu.__code__ is not code
        with provenance(False):
            assert provenance.of(torch.relu(x)) is None and torch.relu.__code__ is code
        assert provenance.of(torch.relu(x)) is not None
        with provenance():  # it is on already
            assert len(interpreters._stack) == len(stack) + 1
        assert provenance.enabled()
    assert not provenance.enabled() and interpreters._stack == stack
    assert provenance.of(torch.relu(x)) is None and torch.relu.__code__ is code  # put back by the call


def test_it_is_off_again_after_an_error_in_an_operation() -> None:
    with pytest.raises(RuntimeError), provenance():
        torch.matmul(torch.ones(2), torch.ones(3))
    torch.matmul(torch.ones(2), torch.ones(2))
    assert not provenance.enabled() and torch.matmul.__operation__.own


def test_the_values_are_the_same_with_and_without() -> None:
    def work() -> Any:
        leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
        torch.nn.functional.layer_norm(leaf @ leaf.t(), (2,)).pow(2).sum().backward()
        return leaf.grad.tolist()
    plain = work()
    with provenance():
        assert work() == plain


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("", False)])
def test_the_environment_turns_it_on(value: str, on: bool) -> None:
    code = "import flambeau as t; from flambeau._core.runtime.provenance import provenance as p; print(p.enabled(), p.of(t.ones(1)) is not None)"
    made = subprocess.run([sys.executable, "-c", code], env={**os.environ, "FLAMBEAU_PROVENANCE": value}, capture_output=True, text=True, check=True)
    assert made.stdout.split() == [str(on)] * 2
