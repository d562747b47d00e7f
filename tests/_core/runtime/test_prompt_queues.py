"""Work of simulated GPUs that is done before the call that queues it returns, whatever the queue; and the order by a seed of the environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import flambeau as torch
from flambeau._core.runtime import gpus
from flambeau.suite.watch import in_order


@pytest.mark.parametrize("queue", ["eager", "lazy", "random"])
def test_a_missing_wait_does_not_show(queue: str) -> None:
    with torch.simulate(gpus=2, queue=queue):
        host = torch.zeros(100000).pin_memory()
        x = torch.ones(100000, device="cuda:1")
        with in_order(), torch.cuda.stream(torch.cuda.Stream("cuda:1")):
            host.copy_(x * 2, non_blocking=True)
            assert host.sum().item() == 200000
        assert gpus.start().driver.prompt is False  # type: ignore[attr-defined]
        if queue == "lazy":
            later, stream = torch.zeros(100000).pin_memory(), torch.cuda.Stream("cuda:1")
            with torch.cuda.stream(stream):
                later.copy_(x, non_blocking=True)
            assert later.sum().item() == 0


def test_the_seed_of_the_environment() -> None:
    code = "import flambeau as t; from flambeau._core.runtime import gpus; t.ones(1, device='cuda'); print(gpus.start().driver._random.random())"
    env = {**os.environ, "FLAMBEAU_SIM_GPUS": "1", "FLAMBEAU_SIM_QUEUE": "random"}
    said = [subprocess.run([sys.executable, "-c", code], env={**env, "FLAMBEAU_SIM_SEED": seed}, capture_output=True, text=True, check=True).stdout
            for seed in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]
