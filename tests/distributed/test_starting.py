"""All the ways in which ranks are started: the agent, torchrun's command line, bare environment variables, tcp and file addresses, mp.spawn, mpiexec."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap

import pytest

from .ranks import environment, free_port, needs_mpi

pytestmark = needs_mpi

SCRIPT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group(*sys.argv[1:2] or ["gloo"])
x = torch.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(f"sum {x.tolist()} of {dist.get_world_size()}")  # in one write: two ranks may share a pipe
"""


def _all(commands: list[list[str]], environments: list[dict[str, str]], timeout: float = 90) -> list[str]:
    processes = [subprocess.Popen(c, env=e, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c, e in zip(commands, environments)]
    outs = [p.communicate(timeout=timeout)[0] for p in processes]
    assert all(p.returncode == 0 for p in processes), outs
    return outs


def _script(tmp_path, source: str = SCRIPT) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(source))
    return str(path)


def test_bare_environment_variables(tmp_path) -> None:
    command, port = [sys.executable, "-m", "flambeau", "run", _script(tmp_path)], str(free_port())
    outs = _all([command] * 2, [environment(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port) for r in range(2)])
    assert all("sum [3.0, 3.0] of 2" in out for out in outs)


def test_torchruns_command_line(tmp_path) -> None:
    out, = _all([[sys.executable, "-m", "flambeau", "run", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", _script(tmp_path), "mpi"]],
                [environment()])
    assert out.count("sum [3.0, 3.0] of 2") == 2


def test_two_agents_as_two_hosts(tmp_path) -> None:
    command = [sys.executable, "-m", "flambeau", "run", "--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--node-rank"]
    outs = _all([[*command, str(r), _script(tmp_path)] for r in range(2)], [environment()] * 2)
    assert all("sum [3.0, 3.0] of 2" in out for out in outs)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "file://{path}/meet"])
def test_addresses(tmp_path, address: str) -> None:
    script = _script(tmp_path, f"""
        import sys, torch, torch.distributed as dist
        dist.init_process_group("gloo", init_method="{address.format(path=tmp_path, port=free_port())}", rank=int(sys.argv[1]), world_size=2)
        x = torch.ones(2)
        dist.all_reduce(x)
        print("sum " + str(x.tolist()))
        """)
    outs = _all([[sys.executable, "-m", "flambeau", "run", script, str(r)] for r in range(2)], [environment()] * 2)
    assert all("sum [2.0, 2.0]" in out for out in outs)
    assert not os.path.exists(tmp_path / "meet")


def test_a_store_of_ones_own_and_processes_that_were_spawned(tmp_path) -> None:
    script = _script(tmp_path, """
        import datetime, torch, torch.distributed as dist, torch.multiprocessing as mp

        def work(rank, port):
            store = dist.TCPStore("127.0.0.1", port, timeout=datetime.timedelta(seconds=30))
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            x = torch.full((2,), float(rank))
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
            assert x.tolist() == [1.0, 1.0]
            store.add("done", 1)
            dist.destroy_process_group()

        if __name__ == "__main__":
            master = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            mp.spawn(work, args=(master.port,), nprocs=2)
            print("done", master.add("done", 0))
        """)
    out, = _all([[sys.executable, "-m", "flambeau", "run", script]], [environment()])
    assert "done 2" in out


def test_mpiexec(tmp_path) -> None:
    mpiexec = shutil.which("mpiexec", path=sysconfig.get_path("scripts"))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    out, = _all([[mpiexec, "-n", "2", sys.executable, "-m", "flambeau", "run", _script(tmp_path)]], [environment()])
    assert out.count("sum [3.0, 3.0] of 2") == 2


def test_each_rank_has_its_page_and_its_ledger(tmp_path) -> None:
    out, = _all([[sys.executable, "-m", "flambeau", "run", "--nproc", "2", "--sim-gpus", "1", "--report", str(tmp_path / "page.html"), "--ledger",
                  _script(tmp_path, SCRIPT.replace("torch.ones(2)", "torch.ones(2, device='cuda')")), "nccl"]], [environment()])
    assert out.count("sum [3.0, 3.0] of 2") == 2 and "[rank 0] transfers of script.py" in out and "[rank 1] transfers of script.py" in out
    pages = [(tmp_path / f"page-rank{r}.html").read_text() for r in range(2)]
    assert all("all_reduce" in page for page in pages)
