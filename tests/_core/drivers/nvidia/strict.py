"""Kernels and libraries on the fake libcuda get addresses that a GPU sees: here they could read the host's memory, and on hardware that is
a fault."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Every launch from now on is looked at."""
    from flambeau._core.drivers.nvidia.launches import Launches
    plain, library, default = Launches._call, Launches.call, getattr(Launches, "direct", None)

    def call(self: Launches, device: int, kernel: Any, prepared: Any, steps: Any) -> Any:
        launch, driver, codes, peers = plain(self, device, kernel, prepared, steps), self.driver, kernel.arguments, self.driver._devices[device].peers

        def look(stream: Any, args: tuple[Any, ...]) -> None:
            assert stream.device == device, f"'{prepared.name}' of GPU {device} goes to a stream of GPU {stream.device}"
            addresses(driver, device, peers, prepared.name, codes, args)
            launch(stream, args)
        return look

    def routine(self: Launches, name: str, device: int, given: Any, *rest: Any, **more: Any) -> Any:
        driver, peers = self.driver, self.driver._devices[device].peers

        def look(stream: Any, args: tuple[Any, ...]) -> None:
            assert stream.device == device, f"'{name}' of GPU {device} goes to a stream of GPU {stream.device}"
            for k, address in enumerate(args):
                if isinstance(address, int) and address > 1 << 40 and not driver.is_pinned(address):  # a number so large is an address
                    owner = driver.owner(address)
                    assert owner == device or owner in peers, f"'{name}' of GPU {device}: argument {k} is {address:#x}, on {owner}: {args}"
            given(stream, args)
        return library(self, name, device, look, *rest, **more)
    def direct(self: Launches, device: int, prepared: Any, stream: Any) -> Any:
        launch, driver = default(self, device, prepared, stream), self.driver
        if launch is None:
            return None
        peers, codes = driver._devices[device].peers, prepared.keep.arguments

        def look(*args: Any) -> None:
            addresses(driver, device, peers, prepared.name, codes, args)
            launch(*args)
        return look
    Launches._call, Launches.call = call, routine  # type: ignore[method-assign]
    if default is not None:
        Launches.direct = direct  # type: ignore[attr-defined]


def addresses(driver: Any, device: int, peers: set[int], name: str, codes: str, args: tuple[Any, ...]) -> None:
    """Refuses what a kernel could not reach."""
    for k, (code, address) in enumerate(zip(codes, args, strict=True)):
        if code == "P" and address and not driver.is_pinned(address):
            owner = driver.owner(address)
            assert owner == device or owner in peers, f"'{name}' of GPU {device}: argument {k} is {address:#x}, on {owner}: {codes} {args}"
