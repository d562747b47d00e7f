"""Memory between pages that nobody may touch."""

from __future__ import annotations

import signal

import pytest

from tests import processes

HEAD = """
import sys
from tests._core.runtime import guard_pages
guard_pages.install()
DEVICE = sys.modules["os"].environ["WHERE"]
if DEVICE != "cpu":
    torch.simulate(gpus=1, memory="256MiB", queue=DEVICE)
    DEVICE = "cuda"
x = torch.ones(1000, device=DEVICE)
"""
BEYOND = HEAD + """
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.programs import Map
from flambeau._core.kernels.specs import Loop
from flambeau._core.runtime import dispatch
program = Map((E.input(0, torch.float32) + 1.0,), (torch.float32,))
run = dispatch.bind(x.meta.device, dispatch.require(x.meta.device, Loop(program, (1000,), ((1,), (1,)))))
out = torch.empty(1000, device=DEVICE)
run(out.ptr, x.ptr)
print("within", out.sum().item(), flush=True)
run(out.ptr, x.ptr + OFFSET)
if DEVICE == "cuda":
    torch.cuda.synchronize()
print("beyond", flush=True)
"""


@pytest.mark.parametrize("where", ["cpu", "eager", "lazy"])
@pytest.mark.parametrize("side,offset", [("end", 64), ("begin", -64)])
def test_a_kernel_that_goes_beyond_its_operands_ends_the_process_there(where: str, side: str, offset: int) -> None:
    done = processes.run(BEYOND.replace("OFFSET", str(offset)), WHERE=where, GUARD_SIDE=side)
    assert done.stdout.split() == ["within", "2000.0"] and done.returncode == -signal.SIGSEGV, done.stderr


@pytest.mark.parametrize("where", ["cpu", "eager", "lazy"])
def test_programs_run_as_ever_and_get_memory_back(where: str) -> None:
    assert processes.says(HEAD + """
for k in range(9000):
    y = x * 2 + k
big = [torch.ones(1 << 20, device=DEVICE).sum().item() for _ in range(200)]
layer = torch.nn.Linear(30, 7, device=DEVICE)
layer(torch.ones(5, 30, device=DEVICE)).relu().sum().backward()
print(y[0].item(), set(big), layer.weight.grad.shape[1])
""", WHERE=where).split() == ["9001.0", "{1048576.0}", "30"]


def test_memory_that_was_given_back_may_not_be_touched() -> None:
    done = processes.run(HEAD + "import ctypes\np = x.ptr\ndel x\nctypes.string_at(p, 4)\n", WHERE="cpu")
    assert done.returncode == -signal.SIGSEGV
