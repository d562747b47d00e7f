"""Work of simulated GPUs that is done before the call that queues it returns, whatever the queue; and the order by a seed of the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau._core.runtime import gpus
from flambeau.suite.watch import in_order


def missing_wait() -> float:
    """What the host sees of a copy for which it does not wait."""
    x = torch.ones(1000, device="cuda:1")
    host, stream = torch.zeros(1000).pin_memory(), torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream):
        host.copy_(x, non_blocking=True)
    return float(host.sum().item())


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_a_missing_wait_does_not_show(queue: str) -> None:
    with torch.simulate(gpus=2, queue=queue):
        with in_order():
            assert missing_wait() == 1000
        assert gpus.start().driver.prompt is False  # type: ignore[attr-defined]
    with torch.simulate(gpus=2, queue=queue):
        assert missing_wait() == 0 or queue != "lazy"


def test_the_seed_of_the_environment() -> None:
    code = "import flambeau as t; from flambeau._core.runtime import gpus; t.ones(1, device='cuda'); print(gpus.start().driver._random.random())"
    env = {**os.environ, "FLAMBEAU_SIM_GPUS": "1", "FLAMBEAU_SIM_QUEUE": "random"}
    said = [subprocess.run([sys.executable, "-c", code], env={**env, "FLAMBEAU_SIM_SEED": seed}, capture_output=True, text=True, check=True).stdout
            for seed in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]
