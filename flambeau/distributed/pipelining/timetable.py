"""When each process of a pipeline does what, and in which order two processes exchange messages.

Every process knows the passes of all, in order.  Each pass takes one unit of time and begins once what it needs is there; so the messages between two
processes have one order, which both keep, in both directions.  No message then waits behind one that its receiver asks for later, also where the messages
of a pair lie behind one another on a stream, as NCCL's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of a microbatch through a stage."""

    backward: bool
    stage: int
    microbatch: int


class Message(NamedTuple):
    """What a pass gives to the stage after it, or backward to the one before."""

    made: Pass
    sender: int
    receiver: int


def _needs(p: Pass, stages: int) -> list[Pass]:
    """The passes before a pass."""
    if not p.backward:
        return [Pass(False, p.stage - 1, p.microbatch)] if p.stage else []
    own = Pass(False, p.stage, p.microbatch)
    return [own] if p.stage == stages - 1 else [own, Pass(True, p.stage + 1, p.microbatch)]


def timetable(orders: Sequence[Sequence[Pass]], where: Mapping[int, int]) -> list[Message]:
    """The messages between processes, in the order in which they are made.

    orders: the passes of each process.  where: which process has a stage.  Raises ValueError for orders in which some pass never begins.
    """
    stages = len(where)
    next_of, done = [0] * len(orders), set[Pass]()
    found: list[Message] = []
    while any(at < len(order) for at, order in zip(next_of, orders)):
        now = [(k, orders[k][at]) for k, at in enumerate(next_of) if at < len(orders[k]) and done.issuperset(_needs(orders[k][at], stages))]
        if not now:
            stuck = {k: orders[k][at] for k, at in enumerate(next_of) if at < len(orders[k])}
            raise ValueError(f"pipelining: these passes wait for one another: {stuck}")
        for k, p in now:
            next_of[k] += 1
            to = p.stage + (-1 if p.backward else 1)
            if to in where and where[to] != k:
                found.append(Message(p, k, where[to]))
        done.update(p for _, p in now)
    return found
