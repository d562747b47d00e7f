"""Kernels and libraries on the fake libcuda get addresses that a GPU sees: here they could read the host's memory, and on hardware that is
a fault."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Every launch from now on is looked at."""
    from flambeau.drivers.nvidia.launches import Launches
    plain, library = Launches._call, Launches.call

    def call(self: Launches, device: int, kernel: Any, prepared: Any, steps: Any) -> Any:
        launch, driver, codes, peers = plain(self, device, kernel, prepared, steps), self.driver, kernel.arguments, self.driver._devices[device].peers

        def look(stream: Any, args: tuple[Any, ...]) -> None:
            assert stream.device == device, f"'{prepared.name}' of GPU {device} goes to a stream of GPU {stream.device}"
            for k, (code, address) in enumerate(zip(codes, args, strict=True)):
                if code == "P" and address and not driver.is_pinned(address):
                    owner = driver.owner(address)
                    assert owner == device or owner in peers, f"'{prepared.name}' of GPU {device}: argument {k} is {address:#x}, on {owner}: {codes} {args}"
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
    Launches._call, Launches.call = call, routine  # type: ignore[method-assign]
