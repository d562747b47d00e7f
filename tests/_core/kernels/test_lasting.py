"""The end of a process whose threads run machine code."""

from __future__ import annotations

import gc

from flambeau._core.kernels import lasting
from tests import processes


def test_what_is_kept_is_never_freed() -> None:
    gone: list[int] = []

    class Thing:
        def __del__(self) -> None:
            gone.append(1)
    Thing()
    assert gone == [1]
    lasting.keep(Thing())
    gc.collect()
    assert gone == [1]


def test_builtins_and_workers_outlive_the_modules() -> None:
    """Workers that look for work, and builtins that are freed after all else, find their code and what it needs."""
    for _ in range(3):
        assert processes.run("""
import builtins, threading
torch.set_num_threads(4)
x = torch.ones(1 << 20)
for _ in range(20):
    y = x + 1
from flambeau._core.kernels import native
builtins.late = [*native._builtins.values(), native.make_entry([(0, 1, 1)], (), 0)]
def go_on():
    while True:
        torch.ones(1 << 18).add_(1)
for _ in range(2):
    threading.Thread(target=go_on, daemon=True).start()
""").stderr == ""
