"""Kernels in two steps: the same bits before and after, little of LLVM's care in the program itself, and nothing lost where the process dies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flambeau._core import hooks
from flambeau._core.kernels import cache
from flambeau._core.kernels.llvm import beside, elf
from flambeau._core.kernels.llvm import compile as compiler

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not compiler.is_x86(), reason="code of x86-64 on Linux")

TRAINING = """
import hashlib, json, os, sys
import flambeau as torch
from flambeau import nn
from flambeau._core.kernels import cache
from flambeau._core.kernels.llvm import beside, compile as compiler
from flambeau.warm import behind
behind.start = lambda *groups: False  # kernels of other programs are not this test's
behind._cores = lambda: 2
exec(os.environ.get("BEFORE", ""))

def train():
    torch.manual_seed(0)
    if os.environ.get("PLAIN"):
        return plain()
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    h = hashlib.sha256()
    for _ in range(3):
        x, y = torch.randn(5, 1, 12, 12), torch.randint(0, 10, (5,))
        loss = nn.functional.cross_entropy(model(x), y) + model(x).softmax(-1).std() * torch.rand(())
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        h.update(loss.detach().numpy().tobytes())
    for p in model.parameters():
        h.update(p.detach().numpy().tobytes())
    return h.hexdigest()

def plain():
    model = nn.Sequential(nn.Linear(23, 19), nn.ReLU(), nn.LayerNorm(19), nn.Linear(19, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    h = hashlib.sha256()
    for n in (5, 37):
        x, y = torch.rand(n, 23), torch.rand(n, 3)
        loss = nn.functional.mse_loss(model(x), y) + model(x).abs().max() + x.where(x > 0.5, -x).var(0).sum() + x.to(torch.float16).float()[:, ::2].sum()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        h.update(loss.detach().numpy().tobytes() + x.to(torch.bfloat16).float().cumsum(1).numpy().tobytes())
    return h.hexdigest()

told = {"first": train()}
told["careful"] = compiler.careful
told["waited"] = beside.wait(200)
told.update(again=train(), made=cache.made, quick=beside.quick, turned=beside.turned, llvm="llvmlite" in sys.modules, compiled=compiler.compiled)
exec(os.environ.get("AFTER", ""))
print(json.dumps(told))
"""


def run(folder: Path, **env: str) -> dict[str, Any]:
    surroundings = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder), "FLAMBEAU_WARM": "1", "FLAMBEAU_NUM_THREADS": "2", **env}
    done = subprocess.run([sys.executable, "-c", TRAINING], env=surroundings, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("one_step"), FLAMBEAU_WARM="0")


def test_a_first_training_leaves_the_care_to_a_process_beside_it(tmp_path: Path, one_step: dict[str, Any]) -> None:
    assert one_step["quick"] == 0 and one_step["careful"] == one_step["made"] == one_step["compiled"] > 30
    first = run(tmp_path)
    assert first["made"] == one_step["made"]
    assert first["quick"] == first["turned"] >= first["made"] - 4 and first["waited"]  # all but a few texts with state, and the first ones
    assert first["careful"] == first["made"] - first["quick"]
    assert first["first"] == first["again"] == one_step["first"] == one_step["again"]
    second = run(tmp_path)
    assert (second["made"], second["compiled"], second["llvm"]) == (0, 0, False)
    assert second["first"] == one_step["first"]


DEAF = """
import socket
from flambeau._core import hooks
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
hooks.compilers = lambda: [ours]
"""


def test_quick_code_alone_gives_the_bits_of_plans_for_avx512_too(tmp_path: Path, one_step: dict[str, Any]) -> None:
    deaf = run(tmp_path, BEFORE=DEAF + "\nbeside.wait = lambda seconds: True")
    assert deaf["quick"] > 20 and deaf["turned"] == 0 and deaf["first"] == deaf["again"] == one_step["first"]
    # the texts of another CPU's plans, carried out by this one's instructions
    wide = run(tmp_path, BEFORE=DEAF + "\nbeside.wait = lambda seconds: True\ncompiler.to_object = compiler._quick_object", FLAMBEAU_CPU="icelake-server",
               PLAIN="1")
    assert wide["quick"] > 20 and wide["first"] == wide["again"]


@pytest.mark.parametrize("when", ["theirs.close()", "compiler._quick_object = lambda ir, make=compiler._quick_object: (theirs.close(), make(ir))[1]"])
def test_a_process_that_died_costs_only_the_good_code(tmp_path: Path, one_step: dict[str, Any], when: str) -> None:
    told = run(tmp_path, BEFORE=DEAF + when)
    assert told["waited"] and told["turned"] == 0 and told["first"] == told["again"] == one_step["first"]


def test_a_program_that_closes_what_it_does_not_know_keeps_its_own_sockets(tmp_path: Path) -> None:
    after = """
if not beside._compilers:
    raise SystemExit("no compiler")
os.closerange(3, 200)
mine = []
while not mine or mine[-1].fileno() < 60:  # over the numbers that were in use
    mine += socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for s in mine:
    s.setblocking(False)
before = beside.quick
told["sum"] = torch.linspace(0, 1, 7).cosh().log1p().sum().item()
told["quick"] -= before != beside.quick
for s in mine:
    try:
        raise SystemExit(s.recv(100))
    except BlockingIOError:
        pass
"""
    told = run(tmp_path, BEFORE="import socket", AFTER=after)
    assert told["quick"] == told["turned"] > 20 and told["sum"] > 0


def test_a_forked_child_makes_its_kernels_in_one_step(tmp_path: Path) -> None:
    after = """
pid = os.fork()
if not pid:
    before = beside.quick
    torch.linspace(0, 1, 7).cosh().log1p().sum().item()
    os._exit(0 if beside.quick == before and train() == told["again"] else 1)
told["child"] = os.waitpid(pid, 0)[1]
"""
    assert run(tmp_path, AFTER=after)["child"] == 0


@pytest.mark.parametrize("line", ["@kept = internal global ptr null", "@kept = internal thread_local global i64 0", 'module asm "nop"',
                                  "declare void @llvm.x86.avx512.some()"])
def test_what_cannot_be_there_twice_is_made_in_one_step(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_compilers", [object()])
    ir = f"{line}\ndefine void @f() #0 {{\n  ret void\n}}\n"
    assert beside.functions(ir, ("f",), "name", lambda text: pytest.fail("compiled")) is None  # type: ignore[arg-type]


def test_a_jump_is_turned() -> None:
    import ctypes
    text = "define i32 @one() #0 {\n  ret i32 1\n}\ndefine i32 @two() #0 {\n  ret i32 2\n}\n"
    found, _, memory = elf.load(compiler.to_object(text), compiler.address_of)
    addresses, words, jumps = elf.jumps({"f": found["one"]})
    f = ctypes.CFUNCTYPE(ctypes.c_int)(addresses["f"])
    assert f() == 1
    ctypes.c_uint64.from_address(words["f"]).value = found["two"]
    assert f() == 2
    del memory, jumps


def test_few_kernels_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(hooks, "compilers", lambda: asked.append(1) or [])
    monkeypatch.setattr(beside, "_compilers", None)
    monkeypatch.setattr(cache, "made", beside.FEW - 1)
    assert not beside.possible() and not asked
    monkeypatch.setattr(cache, "made", beside.FEW)
    assert not beside.possible() and asked == [1]
    assert not beside.possible() and asked == [1]


def test_what_is_sent_is_kept_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import threading
    import zlib
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = cache.key("sent")
    ours.send(zlib.compress(f"{name}\ndefine void @f() #0 {{\n  ret void\n}}\n".encode()))
    serving = threading.Thread(target=beside.serve, args=(theirs,))
    serving.start()
    assert ours.recv(256).decode() == name and cache.load(name) is not None
    ours.close()
    serving.join(60)
    assert not serving.is_alive()
    theirs.close()
