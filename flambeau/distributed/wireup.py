"""How the ranks of a job find one another and begin MPI.

Under mpiexec or srun MPI knows its ranks by itself.  Everywhere else (env://, tcp://, file://, a store of one's own) rank 0 starts the job's hub,
a process of its own, tells its address and a secret through the store, and every rank begins MPI by the hub's process management interface.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from .._core.drivers.collectives import mpi
from . import hub
from .peers import DistBackendError, Peers
from .stores import DistNetworkError, DistStoreError, Store, seconds

if TYPE_CHECKING:
    from .._core.drivers.collectives.interface import Communicator

# what launchers of MPI set for each rank: Hydra's and Slurm's PMI, Open MPI and PMIx
_LAUNCHED = ("PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


class Job:
    """The processes that are connected, once for the life of this process: MPI begins and ends once."""

    def __init__(self, comm: Communicator, peers: Peers) -> None:
        self.comm, self.peers = comm, peers
        self.failed = False
        hook = sys.excepthook

        def noted(kind: Any, value: Any, trace: Any) -> None:
            last = trace
            while last is not None and last.tb_next is not None:
                last = last.tb_next
            where = f" ({os.path.basename(last.tb_frame.f_code.co_filename)}:{last.tb_lineno})" if last is not None else ""
            peers.how = f"it raised {kind.__name__}: {str(value)[:500]}{where}"
            hook(kind, value, trace)
        sys.excepthook = noted
        atexit.register(self.finish)

    def finish(self) -> None:
        """Ends MPI when all ranks came to their end; where one failed there is nobody to end it with."""
        if self.failed and not self.peers.how:
            self.peers.how = "communication had failed there"
        if not self.peers.how:
            from . import world
            world.settle()
        self.peers.goodbye()
        if self.peers.how:
            return
        while not self.peers.all_ended.wait(0.05):
            if self.peers.gone or self.peers._lost:
                return
        mpi.finish()


_job: Job | None = None


def launched_by_mpi() -> bool:
    """Whether an MPI launcher started this process and it is not told otherwise by RANK."""
    return "RANK" not in os.environ and any(name in os.environ for name in _LAUNCHED)


def connect(store: Store | None, rank: int, size: int, timeout: Any, host: str) -> Job:
    """Connects this process with the others, or gives the connection there is.

    host: the address of rank 0's interface, where its hub listens.  Raises ImportError without mpi4py, ValueError when the process is connected
    with another rank or world already, DistNetworkError when the others do not come in time.
    """
    global _job
    if _job is not None:
        if (_job.comm.rank, _job.comm.size) != (rank, size) and rank >= 0:
            raise ValueError(f"init_process_group: this process is rank {_job.comm.rank} of {_job.comm.size} already, MPI begins once in a process; "
                             f"got rank {rank} of {size}")
        return _job
    try:
        mpi.load()
    except ImportError as error:
        raise ImportError(f"init_process_group: several processes communicate by MPI, and mpi4py with an MPI library is not installed ({error}); "
                          "pip install 'flambeau[mpi]'") from None
    if store is None:
        comm: Communicator = mpi.begin()
        made = _hub("127.0.0.1" if comm.size == 1 else host, comm.size) if comm.rank == 0 else ("", 0, "")
        text = _told(comm, repr(made).encode())
        where, port, secret = _parts(text)
        _job = Job(comm, Peers((where, port), secret, comm.rank, comm.size))
        return _job
    limit = seconds(timeout)
    if rank == 0:
        where, port, secret = _hub(host, size)
        store.set("flambeau/hub", repr((where, port, secret)))
    try:
        store.wait(["flambeau/hub"], timeout)
    except DistStoreError as error:
        raise DistNetworkError(f"init_process_group: rank {rank} of {size} waited {limit:.0f} s for rank 0: {error}") from None
    where, port, secret = _parts(store.get("flambeau/hub"))
    _managed((where, port), secret, rank, size, limit)
    try:
        comm = mpi.begin()
    finally:
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)
    _job = Job(comm, Peers((where, port), secret, rank, size))
    return _job


def _parts(text: bytes) -> tuple[str, int, str]:
    """The hub's host, port and secret, out of what `repr` made of them."""
    host, port, secret = text.decode().strip("()").split(", ")
    return host.strip("'"), int(port), secret.strip("'")


def _told(comm: Communicator, text: bytes) -> bytes:
    """Rank 0's text on all ranks."""
    import numpy as np
    room = np.zeros(512, np.uint8)
    room[:len(text)] = np.frombuffer(text, np.uint8)
    request = comm.broadcast(room.ctypes.data, room.nbytes, 0)
    while not request.test():
        time.sleep(0.0005)
    return room.tobytes().rstrip(b"\0")


def _hub(host: str, size: int) -> tuple[str, int, str]:
    """Starts the hub on an interface; its address and secret."""
    secret = secrets.token_hex(16)
    process = subprocess.Popen([sys.executable, "-I", "-S", hub.__file__, host, str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, start_new_session=True, close_fds=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(secret.encode() + b"\n")
    process.stdin.close()
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        raise DistNetworkError(f"init_process_group: rank 0 cannot listen on {host!r}, which MASTER_ADDR or the address of init_method names")
    process.returncode = 0  # it outlives this process; nobody is to warn that it was not waited for
    return host, int(line), secret


def _managed(address: tuple[str, int], secret: str, rank: int, size: int, limit: float) -> None:
    """Hands MPI a connection to the hub, once all ranks have one: until then Python waits, and can be interrupted."""
    made = socket.create_connection(address, min(limit, 30))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall((f'{{"kind": "pmi", "rank": {rank}, "secret": "{secret}", "host": "{socket.gethostname()}"}}\n').encode())
    made.settimeout(0.2)
    heard, end = b"", time.monotonic() + limit
    while not heard.endswith(b"\n"):
        try:
            more = made.recv(1)
        except TimeoutError:
            if time.monotonic() > end:
                made.close()
                raise DistNetworkError(f"init_process_group: rank {rank} waited {limit:.0f} s for all {size} ranks; some did not come") from None
            continue
        if not more:
            raise DistBackendError("init_process_group: the hub of rank 0 is gone, or took this rank for a stranger")
        heard += more
    made.settimeout(None)
    os.set_inheritable(made.fileno(), True)
    os.environ.update(PMI_FD=str(made.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    made.detach()  # MPI's from now on
