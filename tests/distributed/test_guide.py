"""The guide's page on many processes, each example under two ranks."""

from __future__ import annotations

import pytest

from ..test_docs_examples import blocks
from .ranks import checked, needs_mpi

PAGE = [(where, source) for where, source in blocks() if "8-many-processes" in where]


@needs_mpi
@pytest.mark.parametrize(("where", "source"), PAGE, ids=[where for where, _ in PAGE])
def test_example_under_two_ranks(tmp_path, where: str, source: str) -> None:
    assert checked(tmp_path, source + "\nprint('finished')\n").count("finished") == 2
