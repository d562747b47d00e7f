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


LISTS = HEAD.replace("install()", "install(lists=True)") + """
import ctypes
from flambeau._core.engine import learning
def calls(n=6, like=torch.ones(3, 5)):
    for _ in range(n):
        y = torch.ones(5, requires_grad=True)
        torch.nn.functional.layer_norm(like, (5,), y).sum().backward()
        made = torch.cumsum(like, 0)
    return made
"""


def test_with_lists_calls_are_learned_in_such_memory() -> None:
    said = processes.says(LISTS + """
made = calls()
print(sorted(set(learning.learned)), made[2, 4].item(), -(made.ptr + made.meta.nbytes) % 4096 < 8)
""", WHERE="cpu").rstrip()
    assert said.startswith("['cumsum'") and "'layer_norm'" in said and said.endswith("3.0 True")


@pytest.mark.parametrize("what,ends", [("", False), ("guard_pages.sweep()", True)])
def test_what_was_given_back_may_not_be_touched_after_a_sweep(what: str, ends: bool) -> None:
    done = processes.run(LISTS + f"p = calls().ptr\n{what}\nctypes.string_at(p, 4)\ncalls()\nguard_pages.sweep()\ncalls()\n", WHERE="cpu")
    assert done.returncode == (-signal.SIGSEGV if ends else 0), done.stderr
