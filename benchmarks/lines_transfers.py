"""Copies between host memory and a GPU: Flambeau's staging beside its plain ways."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from line import Line, Work

N = 16 << 20  # elements of float32: 64 MiB
NBYTES = 4 * N


def simulated(lib: Any, queue: str = "eager") -> Any:
    """One simulated GPU from here on; what holds it must be kept by the work."""
    return lib.simulate(gpus=1, memory="1GiB", queue=queue)


def link(copy: Callable[[Any, Any, Any], Any], pinned: bool = False) -> Callable[[Any], Work]:
    """Seconds on the clock of a simulated H200 for a copy of the host's `x` to `there`, or back."""

    def setup(lib: Any) -> Work:
        from flambeau.simulated import clock

        held = simulated(lib, "lazy")
        x, there = lib.zeros(N, pin_memory=pinned), lib.zeros(N, device="cuda")

        def work() -> float:
            lib.cuda.synchronize()
            before = clock()
            copy(held, x, there)
            lib.cuda.synchronize()
            return float(clock() - before)

        return work

    return setup


def plain_up(_: Any, x: Any, there: Any) -> None:
    """By the driver alone, as a runtime without staging of its own does."""
    from flambeau._core.runtime import gpus

    g = gpus.gpu()
    g.driver.memcpy(g.default_handle, there.data_ptr(), x.data_ptr(), NBYTES)


def plain_down(_: Any, x: Any, there: Any) -> None:
    from flambeau._core.runtime import gpus

    g = gpus.gpu()
    g.driver.memcpy(g.default_handle, x.data_ptr(), there.data_ptr(), NBYTES)


def memcpy(lib: Any) -> Work:
    """The host's memcpy, one thread, slot after slot of the size that staging uses."""
    from flambeau._core.runtime.staging import SLOT

    x, slots = lib.zeros(N), lib.zeros(SLOT)  # four slots
    source, target = x.data_ptr(), slots.data_ptr()

    def work() -> Any:
        for at in range(0, NBYTES, SLOT):
            ctypes.memmove(target + at % (4 * SLOT), source + at, SLOT)
        return x, slots

    return work


def filling(threads: int) -> Callable[[Any], Work]:
    """The same by the staging ring's own filling."""

    def setup(lib: Any) -> Work:
        from flambeau._core.runtime import staging

        lib.set_num_threads(threads)
        x, slots = lib.zeros(N), lib.zeros(staging.SLOT)
        source, target = x.data_ptr(), slots.data_ptr()

        def work() -> Any:
            for k, (_, fill) in enumerate(staging.bytes_out(source, NBYTES, staging.SLOT)):
                fill(target + k % 4 * staging.SLOT)
            return x, slots

        return work

    return setup


def strided(move: Callable[[Any, Any], Any]) -> Callable[[Any], Work]:
    def setup(lib: Any) -> Work:
        held = simulated(lib)
        x = lib.rand(4096, 4096).t()
        return lambda: (move(lib, x), held)

    return setup


def training(kept: bool) -> Callable[[Any], Work]:
    """A step of a small convolutional network on a simulated GPU, batch and loss carried, with or without the ledger."""

    def setup(lib: Any) -> Work:
        held, nn = simulated(lib), lib.nn
        net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                            nn.Flatten(), nn.Linear(512, 10)).to("cuda")
        optimizer = lib.optim.SGD(net.parameters(), lr=0.01)
        images, labels = lib.randn(64, 1, 8, 8), lib.randint(0, 10, (64,))
        if not kept:
            from flambeau._core.runtime import ledger

            if ledger._watching is not None:
                ledger._watching.close()

        def work() -> Any:
            x, y = images.to("cuda"), labels.to("cuda")
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.item(), held

        return work

    return setup


LINES = [
    Line("a training step with the ledger always kept, against one without", 0.98, training(False), training(True), beside="plain"),
    Line("64 MiB up the link of a simulated H200, staged, against the driver's own way", 2.0, link(plain_up),
         link(lambda _, x, there: there.copy_(x)), beside="plain", clocked=True, nbytes=NBYTES),
    Line("64 MiB down, staged, against the driver's own way", 2.0, link(plain_down),
         link(lambda _, x, there: x.copy_(there)), beside="plain", clocked=True, nbytes=NBYTES),
    Line("64 MiB up, staged, against pinned memory", 0.35, link(lambda _, x, there: there.copy_(x), pinned=True),
         link(lambda _, x, there: there.copy_(x)), beside="plain", clocked=True, nbytes=NBYTES),
    Line("filling staging slots, 64 MiB, one thread, against memcpy", 1.0, memcpy, filling(1), beside="plain", nbytes=NBYTES),
    Line("filling staging slots, 64 MiB, two threads, against memcpy by one", 1.2, memcpy, filling(2), beside="plain", nbytes=NBYTES),
    Line("transposed 4096x4096 to a GPU as float16, packed and cast while staging, against doing so first", 1.0,
         strided(lambda lib, x: x.contiguous().half().to("cuda")), strided(lambda lib, x: x.to("cuda", lib.float16)), beside="plain"),
]  # fmt: skip
