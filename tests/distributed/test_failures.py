"""What happens when a rank differs, dies, stalls, raises or ends too early: a named error on the others, in time, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time

import pytest

from .ranks import checked, environment, free_port, needs_mpi, run

pytestmark = needs_mpi


@pytest.mark.parametrize(("one", "other", "told"), [
    ("dist.all_reduce(x)", "dist.broadcast(x, 0)", ("all_reduce(torch.float32, 8 elements, SUM), number 2, at script.py:",
                                                       "broadcast(torch.float32, 8 elements, from 0), number 2, at script.py:")),
    ("dist.all_reduce(x)", "dist.all_reduce(x[:4])", ("8 elements", "4 elements")),
    ("dist.all_reduce(x)", "dist.all_reduce(x.double())", ("torch.float32", "torch.float64")),
    ("dist.all_reduce(x)", "dist.all_reduce(x, op=dist.ReduceOp.MAX)", ("SUM", "MAX")),
    ("dist.all_reduce(x, async_op=True).wait()", "dist.barrier()", ("all_reduce", "barrier")),
    ("dist.new_group([0, 1])", "dist.broadcast(x, 0)", ("new_group([0, 1])", "broadcast")),
    ("dist.new_group([0])", "dist.new_group([1])", ("new_group([0])", "new_group([1])")),
])
def test_different_calls_are_told_on_every_rank(tmp_path, one: str, other: str, told: tuple[str, ...]) -> None:
    out = checked(tmp_path, f"""
        import time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(8)
        dist.all_reduce(x)
        begun = time.monotonic()
        try:
            if dist.get_rank() == 0:
                {one}
            else:
                {other}
        except dist.DistBackendError as error:
            print("ERROR", str(error).replace(chr(10), " "))
        """)
    errors = [line for line in out.splitlines() if "ERROR" in line]
    assert len(errors) == 2
    for line in errors:
        assert "different collectives" in line and all(t in line for t in told), line


DIES = """
    import os, signal, sys, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.ones(8)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        {how}
    begun = time.monotonic()
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        print("ERROR", round(time.monotonic() - begun, 2), error, flush=True)
        time.sleep(0.2)
"""


@pytest.mark.parametrize(("how", "told"), [
    ("os.kill(os.getpid(), signal.SIGKILL)", "by signal SIGKILL. Rank 0 was waiting for it in all_reduce(torch.float32, 8 elements, SUM) at script.py:10"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "before that it had done all_reduce(torch.float32, 8 elements, SUM) (number 1) at script.py:5"),
    ("os._exit(3)", "rank 1 is gone: it died (process "),
    ("os._exit(3)", "with status 3. Rank 0"),
    ("raise ValueError('no such data')", "rank 1 is gone: it raised ValueError: no such data (script.py:7)"),
    ("sys.exit(0)", "rank 1 has ended its program"),
])
def test_a_rank_that_is_gone(tmp_path, how: str, told: str) -> None:
    done = run(tmp_path, DIES.format(how=how))
    line = next(x for x in done.stdout.splitlines() if "ERROR" in x)
    assert told in line and "all_reduce(torch.float32, 8 elements, SUM)" in line and "script.py:10" in line
    assert (done.returncode == 0) == ("exit(0)" in how)
    if "raise" in how:
        assert "rank 1 failed first, with status 1" in done.stderr and "ValueError: no such data" in done.stderr


@pytest.mark.parametrize(("how", "told"), [("os.kill(os.getpid(), 9)", "by signal SIGKILL"), ("os._exit(3)", "with status 3")])
def test_a_rank_that_dies_before_it_meets_the_others(tmp_path, how: str, told: str) -> None:
    done = run(tmp_path, f"""
        import os, torch, torch.distributed as dist
        if os.environ["RANK"] == "1":
            {how}
        try:
            dist.init_process_group("gloo")
        except dist.DistBackendError as error:
            print("ERROR", error, flush=True)
        """, 3)
    lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
    assert len(lines) == 2 and all(f"rank 1 is gone: it died, {told}" in x and "in init_process_group at script.py:6" in x for x in lines), done


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_ends_well_before_it_meets_the_others(tmp_path, who: int) -> None:
    begun = time.monotonic()
    done = run(tmp_path, f"""
        import os, sys, torch, torch.distributed as dist
        if os.environ["RANK"] == "{who}":
            sys.exit(0)
        try:
            dist.init_process_group("gloo")
        except dist.DistBackendError as error:
            print("ERROR", error, flush=True)
        """)
    assert f"ERROR rank {who} has ended its program without init_process_group; rank {1 - who} was waiting for it in init_process_group at script.py:6" in (
        done.stdout), done
    assert done.returncode == 0 and time.monotonic() - begun < 60


def test_ranks_that_no_group_needs_may_end(tmp_path) -> None:
    """A rank of the agent's that the group does not count."""
    out = checked(tmp_path, """
        import os, sys, time, torch, torch.distributed as dist
        if os.environ["RANK"] == "2":
            sys.exit(0)
        time.sleep(1)
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=int(os.environ["RANK"]), world_size=2)
        dist.barrier()
        print("through")
        """, 3)
    assert out.count("through") == 2


@pytest.mark.parametrize(("how", "told"), [("os.kill(os.getpid(), signal.SIGKILL)", "it died (process "), ("raise ValueError('no such data')", "it raised")])
def test_a_rank_that_is_gone_under_mpiexec(tmp_path, how: str, told: str) -> None:
    """Hydra ends all by SIGKILL at once: the parents of the ranks leave them the time to tell."""
    mpiexec = shutil.which("mpiexec", path=sysconfig.get_path("scripts"))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(DIES.format(how=how)).replace("time.sleep(0.2)", "raise"))
    done = subprocess.run([mpiexec, "-n", "3", sys.executable, "-m", "flambeau", "run", str(script)], env=environment(), capture_output=True, text=True,
                          timeout=120, stdin=subprocess.DEVNULL)
    lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
    assert done.returncode and len(lines) == 2, done.stdout + done.stderr
    for line in lines:
        assert f"rank 1 is gone: {told}" in line and "before that it had done all_reduce(torch.float32, 8 elements, SUM) (number 1)" in line
        assert "SIGKILL" not in how or "by signal SIGKILL" in line
        assert float(line.split()[1]) < 10  # one second on a quiet machine
    assert done.stderr.count("DistBackendError: rank 1 is gone") == 2


def test_what_killed_ranks_left_is_cleared_away() -> None:
    import mmap

    from flambeau.distributed import agent
    paths = [f"/dev/shm/ucx_shm_posix_test{os.getpid()}{kind}" for kind in ("left", "mapped", "young")]
    try:
        for path in paths:
            with open(path, "wb") as f:
                f.write(bytes(4096))
            if "young" not in path:
                os.utime(path, (time.time() - 10,) * 2)
        with open(paths[1], "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ):
            agent._clean(None)  # type: ignore[arg-type]
        assert [os.path.exists(path) for path in paths] == [False, True, True]
    finally:
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)


def test_a_bus_error_names_the_shared_memory(tmp_path) -> None:
    done = run(tmp_path, "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGBUS)")
    assert "rank 1 failed first, by signal SIGBUS; MPI's shared memory lies in /dev/shm, which has" in done.stderr and done.returncode == 128 + 7


def test_a_process_that_a_rank_forked_is_no_rank(tmp_path) -> None:
    out = checked(tmp_path, """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(4)
        dist.all_reduce(x)
        if not (child := os.fork()):
            for call in (lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, async_op=True).wait(), lambda: dist.send(x, 1 - dist.get_rank()),
                         lambda: dist.barrier()):
                try:
                    call()
                except dist.DistBackendError as error:
                    print("ERROR", dist.get_rank(), error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        dist.all_reduce(x)
        print("sum", x.tolist())
        """)
    assert out.count("this process was forked from rank ") == 8 and out.count("sum [4.0, 4.0, 4.0, 4.0]") == 2, out


def test_a_store_that_never_comes(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import datetime, torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))\n")
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script)], capture_output=True, text=True, timeout=60, env=environment(
        RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port())))
    assert done.returncode == 1 and "rank 1 was waiting for rank 0" in done.stderr and "client socket has timed out after 1000ms" in done.stderr


@pytest.mark.parametrize("late", [0, 1])
def test_who_has_not_met_the_others_is_told_of(tmp_path, late: int) -> None:
    done = run(tmp_path, f"""
        import os, time, torch, torch.distributed as dist
        if os.environ["RANK"] == "{late}":
            time.sleep(9)
        dist.init_process_group("gloo")
        print("through")
        """)
    assert done.returncode == 0 and done.stdout.count("through") == 2
    assert f"rank {1 - late} has waited 5." in done.stderr and ("rank 0 has not come" if late == 0 else "rank 1 never came") in done.stderr


def test_the_hub_is_gone(tmp_path) -> None:
    out = checked(tmp_path, """
        import os, signal, subprocess, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        if dist.get_rank() == 0:
            for pid in subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout.splitlines():
                if "hub.py" in pid:
                    os.kill(int(pid.split()[0]), signal.SIGKILL)
        try:
            dist.all_reduce(torch.ones(2)) if dist.get_rank() else dist.recv(torch.ones(2), 1)
        except dist.DistBackendError as error:
            print("ERROR", error, flush=True)
        """)
    assert out.count("hub, a process on rank 0's host, is gone") == 2


def test_killed_ranks_leave_no_shared_memory(tmp_path) -> None:
    """Without an agent that would clear it away."""
    script = tmp_path / "script.py"
    script.write_text("import os, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"
                      "names = {line.split()[-1] for line in open('/proc/self/maps') if '/dev/shm/' in line and '(deleted)' not in line}\n"
                      "print('left', names, flush=True)\nos.kill(os.getpid(), 9)\n")
    port = str(free_port())
    ranks = [subprocess.Popen([sys.executable, "-m", "flambeau", "run", str(script)], env=environment(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                                                                     MASTER_PORT=port),
                              stdout=subprocess.PIPE, text=True) for r in range(2)]
    assert [p.communicate(timeout=60)[0] for p in ranks] == ["left set()\n"] * 2


@pytest.mark.parametrize("call", ["dist.all_reduce(x)", "dist.send(x, 0) if dist.get_rank() else dist.recv(x, 1)"])
def test_a_rank_that_does_not_come_is_told_of(tmp_path, call: str) -> None:
    done = run(tmp_path, f"""
        import time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(8)
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(7)
        {call}
        print("through")
        """)
    assert done.returncode == 0 and done.stdout.count("through") == 2
    assert "rank 0 has waited 5" in done.stderr and "at script.py:8 in <module>" in done.stderr
    assert "rank 1 has not come: it is at script.py:7 in <module>; its last was barrier() (number 1) at script.py:5" in done.stderr


def test_the_time_is_up(tmp_path) -> None:
    out = checked(tmp_path, """
        import datetime, time, torch, torch.distributed as dist
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
        short = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
        dist.barrier()
        if dist.get_rank() == 0:
            try:
                dist.all_reduce(torch.ones(2), group=short)
            except dist.DistBackendError as error:
                print("ERROR", error)
        else:
            time.sleep(2)
        """)
    assert "the timeout is 1.0 s" in out


def test_a_rank_that_never_starts(tmp_path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("import datetime, torch.distributed as dist\ndist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))\n")
    for rank, told in (("0", "some did not come"), ("1", "timed out")):
        env = environment(RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        begun = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script)], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode and "DistNetworkError" in done.stderr and told in done.stderr, done.stderr
        assert time.monotonic() - begun < 30


WAITS = """
    import os, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    print("pid", os.getpid(), flush=True)
    while True:
        dist.all_reduce(torch.ones(4))
        time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_agent_ends_and_nothing_is_left(tmp_path, number: int) -> None:
    script = tmp_path / "waits.py"
    script.write_text("\n".join(line[4:] for line in WAITS.splitlines()))
    agent = subprocess.Popen([sys.executable, "-m", "flambeau", "run", "--nproc", "2", str(script)], env=environment(), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    pids = [int(agent.stdout.readline().split()[-1]) for _ in range(2)]
    begun = time.monotonic()
    agent.send_signal(number)
    agent.wait(20)
    if number != signal.SIGKILL:
        assert agent.returncode == 128 + number
    while any(_runs(pid) for pid in pids) and time.monotonic() - begun < 20:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)
    agent.stdout.close()
    if agent.stderr is not None:
        agent.stderr.close()


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_all_ranks_start_again(tmp_path) -> None:
    done = run(tmp_path, """
        import os, torch, torch.distributed as dist
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            dist.init_process_group("gloo")
            x = torch.ones(1)
            dist.all_reduce(x)
            if os.environ["TORCHELASTIC_RESTART_COUNT"] != "2" and dist.get_rank() == 1:
                os.kill(os.getpid(), 9)
            dist.barrier()
            print("through", x.item(), os.environ["TORCHELASTIC_RESTART_COUNT"])
        main()
        """, 2, "--max-restarts", "2")
    assert done.returncode == 0 and done.stdout.count("through 2.0 2") == 2
    assert done.stderr.count("starting all ranks again") == 2 and "by signal SIGKILL" in done.stderr
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("mpich_shm_")] if os.path.isdir("/dev/shm") else True
