"""Three hosts: network namespaces that the test makes and takes away again, joined by a bridge in a fourth; each has an address and a name of its own.

Messages go by TCP, as between hosts: the kernel they share would let MPI use shared memory.  Skipped, with what is lacking, where this user may not
make namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .ranks import environment, needs_mpi

pytestmark = needs_mpi
COUNT = 3
# no file of the machine says these names, as in a cluster whose nodes know one another by address alone
NET = "10.253.77"


@dataclass
class Hosts:
    """The namespaces of the hosts, and of the bridge between them."""

    names: list[str]
    bridge: str

    def address(self, host: int) -> str:
        return f"{NET}.{host + 1}"

    def command(self, host: int, command: list[str]) -> list[str]:
        """The command, to be started on a host."""
        name = self.names[host]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh", *command]

    def start(self, host: int, command: list[str], **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(host, command), env=environment(UCX_TLS="tcp,self", **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)

    def limit(self, rate: str) -> None:
        """So many bits a second from each host on; "" for as many as there can be."""
        for name in self.names:
            if rate:
                _do("tc", "-n", name, "qdisc", "replace", "dev", "v0", "root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
            else:
                _do("tc", "-n", name, "qdisc", "del", "dev", "v0", "root")


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    for program in ("ip", "unshare", "hostname"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here to make hosts of network namespaces with")
    made = Hosts([f"fb{os.getpid()}h{i}" for i in range(COUNT)], f"fb{os.getpid()}b")
    try:
        try:
            _do("ip", "netns", "add", made.bridge)
            _do("ip", "-n", made.bridge, "link", "add", "br0", "type", "bridge")
            _do("ip", "-n", made.bridge, "link", "set", "br0", "up")
            for i, name in enumerate(made.names):
                _do("ip", "netns", "add", name)
                _do("ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", f"p{i}", "netns", made.bridge)
                _do("ip", "-n", made.bridge, "link", "set", f"p{i}", "master", "br0", "up")
                _do("ip", "-n", name, "addr", "add", f"{made.address(i)}/24", "dev", "v0")
                _do("ip", "-n", name, "link", "set", "v0", "up")
                _do("ip", "-n", name, "link", "set", "lo", "up")
        except OSError as error:
            pytest.skip(f"hosts cannot be made of network namespaces here: {error}")
        yield made
    finally:
        for name in (*made.names, made.bridge):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _script(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(source))
    return [sys.executable, "-m", "flambeau", "run", str(path)]


def _outs(processes: list[subprocess.Popen[str]], timeout: float = 120) -> list[str]:
    try:
        return [p.communicate(timeout=timeout)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()


SUM = """
    import socket, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.full((1000,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, socket.gethostname())
    print(f"sum {x[-1].item()} of {dist.get_world_size()} on {len(set(names))} hosts")
"""


def test_agents_on_three_hosts(hosts: Hosts, tmp_path: Path) -> None:
    command = _script(tmp_path, SUM)
    agents = [hosts.start(r, [*command[:4], "--nproc", "2", "--nnodes", "3", "--node-rank", str(r), "--rdzv-endpoint", f"{hosts.address(0)}:29511", command[4]])
              for r in range(COUNT)]
    outs = _outs(agents)
    assert all(out.count("sum 21.0 of 6 on 3 hosts") == 2 for out in outs), outs


def test_environment_variables_on_three_hosts(hosts: Hosts, tmp_path: Path) -> None:
    command = _script(tmp_path, SUM)
    ranks = [hosts.start(r, command, RANK=str(r), WORLD_SIZE="3", MASTER_ADDR=hosts.address(0), MASTER_PORT="29512") for r in range(COUNT)]
    outs = _outs(ranks)
    assert all("sum 6.0 of 3 on 3 hosts" in out for out in outs), outs


def test_mpiexec_on_three_hosts(hosts: Hosts, tmp_path: Path) -> None:
    mpiexec = shutil.which("mpiexec", path=sysconfig.get_path("scripts"))
    if mpiexec is None:
        pytest.skip("no mpiexec beside this Python")
    shell = tmp_path / "remote-shell"  # stands in for ssh: remote-shell [options] ADDRESS COMMAND...
    shell.write_text(textwrap.dedent(f"""\
        #!/bin/sh
        while [ "${{1#-}}" != "$1" ]; do shift; done
        host={hosts.names[0][:-1]}$((${{1##*.}} - 1)); shift
        exec ip netns exec $host unshare --uts sh -c "hostname $host && $*"
        """))
    shell.chmod(0o700)
    command = [mpiexec, "-launcher", "ssh", "-launcher-exec", str(shell), "-iface", "v0", "-hosts", ",".join(map(hosts.address, range(COUNT))), "-n", "3"]
    out, = _outs([hosts.start(0, [*command, *_script(tmp_path, SUM)])])
    assert out.count("sum 6.0 of 3 on 3 hosts") == 3, out


def test_a_slow_network(hosts: Hosts, tmp_path: Path) -> None:
    """Bytes take the time that the network gives them, and nothing else breaks."""
    if shutil.which("tc") is None:
        pytest.skip("no tc here to limit a network's bandwidth with")
    command = _script(tmp_path, """
        import time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        x = torch.ones(250_000)  # a million bytes
        dist.all_reduce(torch.ones(1))
        dist.barrier()
        begun = time.monotonic()
        dist.broadcast(x, 0)
        dist.barrier()
        print(f"took {time.monotonic() - begun:.3f} s, sum {x.sum().item()}")
        """)
    took = {}
    for rate in ("8mbit", ""):
        try:
            if rate:
                hosts.limit(rate)
        except OSError as error:
            pytest.skip(f"tc cannot limit a network's bandwidth here: {error}")
        ranks = [hosts.start(r, command, RANK=str(r), WORLD_SIZE="3", MASTER_ADDR=hosts.address(0), MASTER_PORT="29513") for r in range(COUNT)]
        outs = _outs(ranks)
        if rate:
            hosts.limit("")
        assert all("sum 250000.0" in out for out in outs), outs
        took[rate] = max(float(re.findall(r"took ([0-9.]+) s", out)[0]) for out in outs)
    assert took["8mbit"] > 0.9 and took["8mbit"] > 2 * took[""], took  # a million bytes at 8 Mbit/s take a second


def test_a_host_that_the_network_loses(hosts: Hosts, tmp_path: Path) -> None:
    """No connection is closed, as when the power fails: the kernels' questions stay without an answer."""
    command = _script(tmp_path, """
        import time, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        print("ready", flush=True)
        begun = time.monotonic()
        try:
            while True:
                dist.all_reduce(torch.ones(4))
                time.sleep(0.05)
        except dist.DistBackendError as error:
            print(f"ERROR after {time.monotonic() - begun:.1f} s: {error}", flush=True)
        """)
    ranks = [hosts.start(r, command, RANK=str(r), WORLD_SIZE="3", MASTER_ADDR=hosts.address(0), MASTER_PORT="29514") for r in range(COUNT)]
    try:
        for p in ranks:
            assert p.stdout is not None and p.stdout.readline() == "ready\n"
        lost = time.monotonic()
        _do("ip", "-n", hosts.bridge, "link", "set", "p2", "down")
        try:
            outs = _outs(ranks, 60)
        finally:
            _do("ip", "-n", hosts.bridge, "link", "set", "p2", "up")
        assert time.monotonic() - lost < 40
    finally:
        for p in ranks:
            p.kill()
    assert all("rank 2 is gone: it died" in out for out in outs[:2]), outs
    assert "hub, a process on rank 0's host, is gone or cannot be reached" in outs[2], outs
