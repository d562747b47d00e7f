"""Random numbers of GPUs (torch.cuda.random): a generator for each, made when first used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._core.runtime import generators, gpus

if TYPE_CHECKING:
    from .._core.runtime.generators import Generator


def _default(device: Any) -> Generator:
    return generators.default(gpus.resolve(device))  # a seed is no use of the GPU


def manual_seed(seed: int) -> None:
    """Seeds the current GPU; nothing happens where there is none."""
    if gpus.count():
        _default(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds every GPU; nothing happens where there is none."""
    for i in range(gpus.count()):
        _default(i).manual_seed(seed)


def seed() -> None:
    """Seeds the current GPU from the operating system."""
    if gpus.count():
        _default(None).seed()


def seed_all() -> None:
    """Seeds every GPU with one number from the operating system."""
    if gpus.count():
        manual_seed_all(_default(0).seed())


def initial_seed() -> int:
    """The seed of the current GPU."""
    return _default(None).initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a GPU's generator, as a uint8 CPU tensor."""
    return _default(device).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Restores what `get_rng_state` gave."""
    _default(device).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of all GPUs."""
    return [get_rng_state(i) for i in range(gpus.count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Restores what `get_rng_state_all` gave."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
