"""The order of messages between the processes of a pipeline."""

from __future__ import annotations

import pytest

from flambeau.distributed.pipelining.timetable import Message, Pass, timetable


def test_messages_are_in_the_order_in_which_they_are_made() -> None:
    orders = [[Pass(False, 0, 0), Pass(False, 0, 1), Pass(True, 0, 0), Pass(True, 0, 1)],
              [Pass(False, 1, 0), Pass(True, 1, 0), Pass(False, 1, 1), Pass(True, 1, 1)]]
    assert timetable(orders, {0: 0, 1: 1}) == [
        Message(Pass(False, 0, 0), 0, 1), Message(Pass(False, 0, 1), 0, 1), Message(Pass(True, 1, 0), 1, 0), Message(Pass(True, 1, 1), 1, 0)]


def test_stages_of_one_process_need_no_message() -> None:
    assert timetable([[Pass(False, 0, 0), Pass(False, 1, 0)]], {0: 0, 1: 0}) == []


def test_passes_that_wait_for_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for one another"):
        timetable([[Pass(True, 0, 0), Pass(False, 0, 0)], [Pass(False, 1, 0), Pass(True, 1, 0)]], {0: 0, 1: 1})
