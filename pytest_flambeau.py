"""The pytest plugin: a project's unmodified suite on Flambeau in PyTorch's place, its tests of `cuda` on simulated GPUs.

    pytest --flambeau --sim-gpus 2 [--queue lazy|random --seed N] [--ledger] [--beside PYTHON]

It lies outside the package, so that pytest, which loads it at each start, imports nothing of Flambeau until `--flambeau` is given.
"""

from __future__ import annotations

import copy
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

import pytest

# Short names, which mean something only together with --flambeau: a project's own --seed stays its own otherwise.
_SHORT = {"--queue": "--sim-queue", "--seed": "--sim-seed", "--ledger": "--sim-ledger", "--beside": "--flambeau-beside"}


class _AsWritten:
    """Finds Flambeau's modules before pytest does, which would rewrite the asserts of all that a plugin's distribution has, and then reads
    the 800 modules of the package in a way of its own, several times slower than Python's."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] == "flambeau" else None


sys.meta_path.insert(0, _AsWritten)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("flambeau", "a suite on Flambeau in PyTorch's place")
    group.addoption("--flambeau", action="store_true", default=False,
                    help="`import torch` means Flambeau; --queue, --seed, --ledger and --beside are then short for the options below")
    group.addoption("--sim-gpus", type=int, default=2, metavar="N", help="how many simulated GPUs there are (2)")
    group.addoption("--sim-model", default="H200", metavar="NAME", help="which GPU each of them is (H200)")
    group.addoption("--sim-memory", default=None, metavar="SIZE", help="the memory of each, such as 2GiB (the model's)")
    group.addoption("--sim-queue", default="eager", choices=["eager", "lazy", "random"],
                    help="when queued work is done: beside the host, when somebody waits for it, or in an order by --sim-seed")
    group.addoption("--sim-seed", type=int, default=0, metavar="N", help="the seed of that order (0)")
    group.addoption("--sim-ledger", action="store_true", default=False, help="at the end, a table of what moved between devices, by line")
    group.addoption("--flambeau-beside", default=None, metavar="PYTHON",
                    help="then run the suite with the PyTorch of this interpreter too, and show both in one table")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any, parser: Any, args: list[str]) -> None:
    """Takes the name `torch` before any conftest imports it."""
    if not early_config.known_args_namespace.flambeau:
        return
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        args[i] = _SHORT.get(name, name) + equals + value
    options = parser.parse_known_args(args, namespace=copy.copy(early_config.known_args_namespace))
    from flambeau.suite.plugin import begin
    begin(early_config, options)
