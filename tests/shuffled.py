"""A pytest plugin that runs the tests in another order, by a seed: a test that needs another before it, or that leaves something behind, shows.

    SHUFFLE=7 python -m pytest -p tests.shuffled tests/nn

`make test-shuffled` does so with all of them, by a seed that nobody ran unless SHUFFLE gives one.  The tests of a file stay together, so that what they
share is made once; files come in any order, and so do the tests of each.
"""

from __future__ import annotations

import os
import random
from itertools import groupby

import pytest

os.environ.setdefault("SHUFFLE", str(random.randrange(10000)))  # workers, which are started later, find it there


def shuffled(items: list[pytest.Item], number: int) -> list[pytest.Item]:
    """The tests in an order of this number."""
    draw = random.Random(number)
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    draw.shuffle(files)
    for group in files:
        draw.shuffle(group)
    return [item for group in files for item in group]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = shuffled(items, int(os.environ["SHUFFLE"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"the order was that of SHUFFLE={os.environ['SHUFFLE']}")
