"""Failures planted in jobs of several processes: who, when and how are drawn, and every other rank must tell of it by name, in time.

    python tools/failures.py [--rounds 1000] [--seed N] [--from K] [--only SIGKILL,differ] [--seconds S]

A round is a job of 2 to 4 ranks that makes its group, calls collectives of every kind, trains a step, and ends.  One of its ranks does what must not
be, at a place of the program or at a moment.  Ranks are forked, so that a round takes a fraction of a second; some rounds are started by
`flambeau run`.  A round fails where a rank hangs, says nothing, names another culprit, is late, or leaves a process or shared memory behind.  The
seed is printed; `--seed N --from K --rounds 1` runs a round again.

The times of `LIMITS` hold for a quiet machine.  What the machine itself was late by meanwhile is measured beside each round, and allowed for.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import faulthandler
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau import distributed as dist
from flambeau._core.drivers.collectives import mpi
from flambeau.distributed import agent as agents
from flambeau.distributed.peers import DIED

DEATHS = ("SIGKILL", "SIGSEGV", "SIGABRT", "_exit")
# how a rank fails, and within how many seconds the others must say so
LIMITS = {**dict.fromkeys(DEATHS, 1.0), "raise": 1.0, "exit": 3.0, "differ": 0.05, "late": 1.5, "stopped": 1.5, "sleeps": 5.5, "keeps the lock": 6.5,
          "hub": 1.0, "never": 2.5, "interrupt": 2.0}
PATIENT = {"late", "stopped", "never"}  # those after which only the time-out ends the waiting
MEETING = 8.0  # seconds that ranks wait for one that may never have come, and that no agent sees
END = 20.0  # seconds in which all processes of a round must be gone


@dataclass
class Plan:
    """A failure: `how`, by rank `who` of `size`, at a `place` of the program, or `delay` seconds after it began to make its group.
    agent: an agent sees the ranks die.  launched: `flambeau run` starts them."""

    size: int
    who: int
    how: str
    place: str
    delay: float
    agent: bool
    launched: bool
    log: str = ""

    @staticmethod
    def drawn(rng: random.Random, kinds: list[str]) -> Plan:
        size, how = rng.choice((2, 2, 2, 3, 4)), rng.choice(kinds)
        launched = how in (*DEATHS, "raise", "exit", "differ") and rng.random() < 0.03
        who = 0 if how == "hub" else rng.randrange(size)
        places = ["start"] if how == "never" else list(STEPS) if how not in (*DEATHS, "raise", "exit") else ["start", *STEPS, "end"]
        if how == "differ":  # messages between two ranks are no collective: nothing says which belong together
            places.remove("around")
        at_once = how in DEATHS and rng.random() < 0.4
        return Plan(size, who, how, "" if at_once else rng.choice(places), rng.uniform(0, 0.25) if at_once else 0.0, launched or rng.random() < 0.5, launched)


def unseen(plan: Plan) -> bool:
    """Whether nobody can see the rank fail, as it may not have met the others."""
    return plan.place in ("", "start") and not plan.agent and plan.how != "never"


# ------------------------------------------------------------------------------------------------------------------ the program
def _model(rank: int, size: int) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4)).sum().backward()


def _around(rank: int, size: int) -> None:
    x, y = torch.ones(4), torch.zeros(4)
    sent = dist.isend(x, (rank + 1) % size)
    dist.recv(y, (rank - 1) % size)
    assert sent is not None
    sent.wait()


def _later(rank: int, size: int) -> None:
    work = dist.all_reduce(torch.ones(8), async_op=True)
    assert work is not None
    work.wait()


def _pieces(rank: int, size: int) -> None:
    dist.all_to_all_single(torch.zeros(size), torch.ones(size))


STEPS: dict[str, Callable[[int, int], Any]] = {
    "all_reduce": lambda rank, size: dist.all_reduce(torch.ones(8)),
    "large": lambda rank, size: dist.all_reduce(torch.ones(1 << 18)),
    "async": _later,
    "group": lambda rank, size: dist.new_group(list(range(size))),
    "broadcast": lambda rank, size: dist.broadcast(torch.ones(8), 0),
    "objects": lambda rank, size: dist.all_gather_object([None] * size, {"rank": rank}),
    "to all": _pieces, "around": _around, "barrier": lambda rank, size: dist.barrier(), "model": _model}
_OTHERS: list[Callable[[], Any]] = [  # than any step above calls
    lambda: dist.all_reduce(torch.ones(5)), lambda: dist.all_reduce(torch.ones(8), op=dist.ReduceOp.MAX), lambda: dist.broadcast(torch.ones(8), 1),
    lambda: dist.all_reduce(torch.ones(8).double()), lambda: dist.reduce(torch.ones(8), 0)]


def play(plan: Plan, rank: int) -> None:
    """One rank of the program; what happened goes to the log."""
    def say(**what: Any) -> None:
        with open(plan.log, "a") as f:
            f.write(json.dumps({"rank": rank, "time": time.monotonic(), **what}) + "\n")

    def fail() -> None:
        say(planted=plan.how)
        if plan.how in DEATHS[:-1]:
            os.kill(os.getpid(), getattr(signal, plan.how))
        elif plan.how == "_exit":
            os._exit(3)
        elif plan.how == "raise":
            raise ValueError("planted")
        elif plan.how == "exit":
            sys.exit(0)
        elif plan.how in ("late", "never"):
            time.sleep(60)
        elif plan.how == "sleeps":
            time.sleep(6.5)
        elif plan.how == "keeps the lock":
            ctypes.PyDLL(None).sleep(8)
        elif plan.how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif plan.how == "hub":
            for pid in _children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        elif plan.how == "interrupt":
            time.sleep(0.2)
            for pid in sorted(_children(os.getppid()), key=lambda pid: pid == os.getpid()):
                os.kill(pid, signal.SIGINT)
            time.sleep(60)

    began, mine, size = time.monotonic(), rank == plan.who, plan.size
    try:
        if mine and plan.place == "start":
            fail()
        if mine and not plan.place:
            threading.Timer(plan.delay, fail).start()
        began = time.monotonic()
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2 if plan.how == "never" else MEETING if unseen(plan) else 60))
        dist.world._set_pg_timeout(datetime.timedelta(seconds=1 if plan.how in PATIENT else 60))
        for _ in range(40 if not plan.place else 1):
            for name, step in STEPS.items():
                began = time.monotonic()
                if mine and name == plan.place:
                    if plan.how == "differ":
                        say(planted="differ")
                        random.Random(plan.log).choice(_OTHERS)()
                    else:
                        fail()
                step(rank, size)
        if mine and plan.place == "end":
            fail()
        say(well=True, began=began)
    except (dist.DistError, KeyboardInterrupt) as error:
        say(error=type(error).__name__, text=str(error), began=began)
        sys.exit(7)


def _children(pid: int) -> list[int]:
    found = []
    for each in os.listdir("/proc"):
        if each.isdigit():
            try:
                if int(Path("/proc", each, "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(each))
            except OSError:
                continue
    return found


# ------------------------------------------------------------------------------------------------------------------ a round
class Lateness(threading.Thread):
    """How late this machine was meanwhile: the longest that a thread overslept, and how much longer than its processor time some work took."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.slept, self.slowed, self.over = 0.0, 1.0, threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            begun = time.monotonic()
            time.sleep(0.02)
            awake, used = time.monotonic(), time.thread_time()
            while time.thread_time() - used < 0.01:
                pass
            self.slept = max(self.slept, awake - begun - 0.02)
            self.slowed = max(self.slowed, (time.monotonic() - awake) / 0.01)
            self.over.wait(0.07)

    def allowed(self, limit: float) -> float:
        """A limit for this machine."""
        return limit * min(self.slowed, 10.0) + 10 * self.slept + (0.2 if self.slowed < 1.5 else 2.0)


def _forked(plan: Plan, folder: str) -> tuple[dict[int, int], int]:
    """The ranks as children of this process: the id of each; and the store's port."""
    port = _serve() if plan.agent else agents.free_port("127.0.0.1")
    env = {"WORLD_SIZE": str(plan.size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": str(plan.agent)}
    found = {}
    for rank in range(plan.size):
        pid = os.fork()
        if not pid:
            os.environ.update(env, RANK=str(rank))
            out = os.open(os.path.join(folder, f"out{rank}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            faulthandler.enable()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            play(plan, rank)
            sys.exit(0)
        found[rank] = pid
    return found, port


def _serve() -> int:
    """A process that serves a store, as an agent does; its port.  It ends when this one does, or after a minute."""
    read, write = os.pipe()
    if not os.fork():
        os.close(read)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        os.close(write)
        time.sleep(60)
        os._exit(0)
    os.close(write)
    port = int(os.read(read, 16))
    os.close(read)
    return port


def carry_out(plan: Plan) -> tuple[str, float]:
    """What is wrong about a round, "" if nothing is; and the longest time a rank took to tell, as a part of its limit."""
    folder = tempfile.mkdtemp(prefix="failures")  # in no `with`: a forked rank leaves through here
    plan.log = os.path.join(folder, "log")
    Path(plan.log).touch()
    lateness = Lateness()
    before = set(_children(os.getpid()))
    if plan.launched:
        lateness.start()
        Path(folder, "plan").write_text(json.dumps(asdict(plan)))
        command = [sys.executable, "-m", "flambeau", "run", "--nproc", str(plan.size), __file__, "--play", os.path.join(folder, "plan")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired as error:
            return f"the agent hangs: {error.output!r}", 0.0
        codes: dict[int, int | None] = {}
        Path(folder, "out").write_text(done.stdout + done.stderr)
    else:
        pids, port = _forked(plan, folder)
        lateness.start()
        codes = _ends(plan, pids, port, lateness)
    lateness.over.set()
    lateness.join()
    for pid in set(_children(os.getpid())) - before:
        os.kill(pid, signal.SIGKILL)  # the store
        os.waitpid(pid, 0)
    said = [json.loads(line) for line in Path(plan.log).read_text().splitlines()]
    told = "".join(p.read_text(errors="replace") for p in sorted(Path(folder).glob("out*")))
    shutil.rmtree(folder)
    wrong, late = judged(plan, said, told, codes, lateness)
    return (f"{wrong}\n{plan}\n{chr(10).join(map(str, said))}\n{codes}\n{told[-3000:]}" if wrong else ""), late


def _ends(plan: Plan, pids: dict[int, int], port: int, lateness: Lateness) -> dict[int, int | None]:
    """How each rank ended; None for one that had to be killed.  Says how a rank ended, as an agent does, where the round has one."""
    codes: dict[int, int | None] = {}
    begun = time.monotonic()
    while len(codes) < len(pids):
        left = [rank for rank in pids if rank not in codes]
        for rank in left:
            done, status = os.waitpid(pids[rank], os.WNOHANG)
            if done:
                codes[rank] = code = os.waitstatus_to_exitcode(status)
                if plan.agent and (len(codes) == 1 or not any(codes.values())):
                    dist.TCPStore("127.0.0.1", port, wait_for_workers=False).append(f"run0/default_pg/{DIED}", f"{rank} {agents.ending(code)}\n")
        left = [rank for rank in left if rank not in codes]
        if time.monotonic() - begun > lateness.allowed(END + limit(plan)) or left == [plan.who] and plan.how in PATIENT:
            for rank in left:
                os.kill(pids[rank], signal.SIGABRT if plan.how not in PATIENT else signal.SIGKILL)  # faulthandler says where it was
            time.sleep(0.3)
            for rank in left:
                os.kill(pids[rank], signal.SIGKILL)
                os.waitpid(pids[rank], 0)
                codes[rank] = None
        time.sleep(0.005)
    return codes


# ------------------------------------------------------------------------------------------------------------------ what must be said
def expected(plan: Plan) -> str:
    """What the error must say, as a regular expression."""
    who = plan.who
    if plan.how in DEATHS:
        how = f".*(by signal {plan.how}|with status 3)" if plan.agent else ""
        store = "|store at .* does not answer" if not plan.agent and who == 0 else ""
        start = "|rank 0|some did not come" if unseen(plan) else ""
        return f"rank {who} is gone: it died{how}{store}{start}"
    if plan.how == "raise":
        return f"rank {who} is gone: it raised ValueError: planted|rank {who} is gone: it died, with status 1|store at .* does not answer" + (
            "|some did not come|rank 0" if plan.place == "start" else "")
    if plan.how == "exit":
        return f"rank {who} has ended its program" + ("|rank 0|some did not come|store at .* does not answer" if plan.place == "start" else "")
    return {"differ": "different collectives.*" + ".*".join(f"rank {r}: " for r in range(plan.size)), "late": "the timeout is 1.0 s",
            "stopped": "the timeout is 1.0 s", "never": "some did not come|rank 0|timed out", "hub": "hub, .*is gone", "interrupt": ""}.get(plan.how, "nothing")


def judged(plan: Plan, said: list[dict[str, Any]], told: str, codes: dict[int, int | None], lateness: Lateness) -> tuple[str, float]:
    """What is wrong about what the ranks said, and how late the latest was."""
    planted = next((s["time"] for s in said if "planted" in s), None)
    if planted is None:
        wrong = [rank for rank, code in codes.items() if code]
        return (f"ranks {wrong} failed by themselves" if wrong else ""), 0.0  # the program was over before the moment came
    latest = 0.0
    goes_on = plan.how in ("sleeps", "keeps the lock")
    for rank in range(plan.size):
        if rank == plan.who and plan.how not in ("differ", "hub", "interrupt"):
            continue
        if codes.get(rank, 0) is None:
            return f"rank {rank} hangs", 0.0
        mine = [s for s in said if s["rank"] == rank and ("error" in s or "well" in s)]
        if not mine and codes.get(rank, 0) and re.search(r"Fatal error in \w*Init", told):
            continue  # a rank died while MPI began, which then ends the others itself, with words of its own
        if not mine:
            return f"rank {rank} says nothing and ends with {codes.get(rank)}", 0.0
        if "well" in mine[0]:
            if not goes_on and plan.place not in ("", "end") and plan.how not in ("hub", "exit"):
                return f"rank {rank} was not told", 0.0
            continue
        text, late = mine[0]["text"], mine[0]["time"] - max(planted, mine[0]["began"])
        if goes_on:
            return f"rank {rank} failed, though all went on", 0.0
        if not re.search(expected(plan), text, re.DOTALL):
            return f"rank {rank} does not say {expected(plan)!r}", 0.0
        latest = max(latest, late)
        if late > lateness.allowed(limit(plan)):
            return f"rank {rank} says so after {late:.2f} s, of {limit(plan):.2f} ({lateness.allowed(limit(plan)):.2f} on this machine)", late
    if goes_on:
        how = f"rank {plan.who} has not come: it is at" if plan.how == "sleeps" else f"rank {plan.who} .*does not answer"
        waited = re.search(r"has waited ([0-9.]+) s", told)
        if not waited or not re.search(how, told):
            return "nobody said who is waited for", 0.0
        latest = float(waited[1])
        if latest > lateness.allowed(limit(plan)):
            return f"said after {latest:.2f} s", latest
    return "", latest


def limit(plan: Plan) -> float:
    """Within how many seconds the others must tell."""
    return LIMITS[plan.how] + (MEETING if unseen(plan) else 0.0)


def main() -> int:
    p = argparse.ArgumentParser(prog="failures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=1000)
    p.add_argument("--from", dest="first", type=int, default=0)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--only", default=",".join(LIMITS))
    p.add_argument("--seconds", type=float, default=0, help="stop after so long")
    p.add_argument("--play", default=None, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.play:
        play(Plan(**json.loads(Path(a.play).read_text())), int(os.environ["RANK"]))
        return 0
    seed = random.SystemRandom().randrange(10 ** 6) if a.seed is None else a.seed
    print(f"failures: seed {seed}", flush=True)
    mpi.load()
    _model_alone()
    until, failed, done, late, count = time.monotonic() + (a.seconds or 1e9), 0, 0, Counter[str](), Counter[str]()
    slowest: dict[str, float] = {}
    for k in range(a.first, a.first + a.rounds):
        if time.monotonic() > until:
            break
        plan = Plan.drawn(random.Random(f"{seed} {k}"), a.only.split(","))
        wrong, took = carry_out(plan)
        done += 1
        count[plan.how] += 1
        slowest[plan.how] = max(slowest.get(plan.how, 0.0), took)
        late[plan.how] += took > limit(plan)
        if wrong:
            failed += 1
            print(f"failures: round {k}: {wrong}", flush=True)
    for how, number in count.items():
        print(f"  {how:15} {number:4} rounds, told after at most {slowest[how]:.2f} s; later than {LIMITS[how]} s in {late[how]}")
    print(f"failures: {done} rounds, {failed} failed")
    return 1 if failed else 0


def _model_alone() -> None:
    """What ranks compile is compiled before they are forked."""
    torch.nn.Linear(4, 2)(torch.ones(3, 4)).sum().backward()


if __name__ == "__main__":
    sys.exit(main())
