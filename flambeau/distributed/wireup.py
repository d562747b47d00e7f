"""How the ranks of a job find one another and begin MPI.

Under mpiexec or srun MPI knows its ranks by itself.  Everywhere else (env://, tcp://, file://, a store of one's own) rank 0 starts the job's hub,
a process of its own, tells its address and a secret through the store, and every rank begins MPI by the hub's process management interface.
"""

from __future__ import annotations

import atexit
import datetime
import fcntl
import math
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from .._core.drivers.collectives import mpi, parent
from . import hub
from .peers import PATIENCE, WELL, DistBackendError, Doing, Peers, Watch, died, user_line
from .stores import DistNetworkError, PrefixStore, Store, TCPStore, seconds

if TYPE_CHECKING:
    from .._core.drivers.collectives.interface import Communicator, Request


_FINALIZE = 5.0  # seconds that MPI has for its end


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
            if not (sys.flags.interactive or hasattr(sys, "ps1")):  # a session goes on after an error
                peers.goodbye()  # now: to write the traceback takes a while
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
        # every program is over: one that was killed only now is not waited for
        ending = threading.Thread(target=mpi.finish, daemon=True, name="MPI_Finalize")
        ending.start()
        ending.join(_FINALIZE)


_job: Job | None = None


def connect(store: Store | None, rank: int, size: int, timeout: Any, host: str) -> Job:
    """Connects this process with the others, or gives the connection there is.

    store: None where MPI knows the ranks.  host: the address of rank 0's interface, where its hub listens; with MPI's ranks it is found out.
    Raises ImportError without mpi4py, ValueError when the process is connected with another rank or world already, DistNetworkError when the others do
    not come in time.
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
        host = "127.0.0.1" if _on_one_host(comm) else _own_address()
        made = _hub(host, comm.size) if comm.rank == 0 else ("", 0, "")
        text = _told(comm, repr(made).encode())
        where, port, secret = _parts(text)
        parent.found(where, port, secret, comm.rank)
        _job = Job(comm, Peers((where, port), secret, comm.rank, comm.size))
        return _job
    limit, line, agents = seconds(timeout), user_line(sys._getframe(1)), _agents_store()
    if rank == 0:
        where, port, secret = _hub(host, size)
        store.set("flambeau/hub", repr((where, port, secret)))
    _meet(store, agents, rank, size, limit, line)
    where, port, secret = _parts(store.get("flambeau/hub"))
    peers = Peers((where, port), secret, rank, size, agents)
    watch = Watch(peers, rank, range(size), "init_process_group", line, math.inf)  # `_managed` has the limit
    try:
        _managed((where, port), secret, rank, size, limit, watch)
        comm = watch.over(mpi.begin)
    except BaseException as error:
        peers.how = f"init_process_group failed there: {type(error).__name__}"
        peers.goodbye()
        peers.close()
        raise
    finally:
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)
    _job = Job(comm, peers)
    return _job


def _agents_store() -> Store | None:
    """Where an agent says which ranks ended, if there is an agent: by a connection of its own, as the program may be waiting in its store."""
    env = os.environ
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or not env.get("MASTER_PORT", "").isdigit():
        return None
    made = TCPStore(env.get("MASTER_ADDR", "127.0.0.1"), int(env["MASTER_PORT"]), timeout=datetime.timedelta(seconds=30), wait_for_workers=False)
    return PrefixStore(f"run{env.get('TORCHELASTIC_RESTART_COUNT', '0')}/default_pg", made)


def _meet(store: Store, agents: Store | None, rank: int, size: int, limit: float, line: str) -> None:
    """Waits for the address of rank 0's hub.  Raises DistNetworkError, DistBackendError."""
    begun, pause, told = time.monotonic(), 0.001, PATIENCE
    while not _there(store, rank):
        waited = time.monotonic() - begun
        if waited > limit:
            raise DistNetworkError(f"init_process_group: rank {rank} of {size} waited {limit:.0f} s for rank 0: it timed out")
        _see(agents, rank, size, "init_process_group", line)
        if waited > told:
            told += PATIENCE
            print(f"flambeau.distributed: rank {rank} has waited {waited:.1f} s in init_process_group at {line}: rank 0 has not come", file=sys.stderr,
                  flush=True)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _there(store: Store, rank: int) -> bool:
    """Whether rank 0's hub has been told of."""
    try:
        return store.check(["flambeau/hub"])
    except DistNetworkError as error:
        raise DistNetworkError(f"init_process_group: rank {rank} was waiting for rank 0: {error}") from None


def _see(store: Store | None, rank: int, size: int, what: str, line: str) -> None:
    """Raises DistBackendError where an agent says that a rank ended before it came.  One that ended well is missed only where this group is all of
    the agents' ranks: others may not belong to it."""
    agents = os.environ.get("RANK") == str(rank) and os.environ.get("WORLD_SIZE") == str(size)
    for r, how in died(store).items():
        if how != WELL:
            raise DistBackendError(f"rank {r} is gone: it died, {how}. Rank {rank} was waiting for it in {what} at {line}")
        if agents:
            raise DistBackendError(f"rank {r} has ended its program without init_process_group; rank {rank} was waiting for it in {what} at {line}")


def _parts(text: bytes) -> tuple[str, int, str]:
    """The hub's host, port and secret, out of what `repr` made of them."""
    host, port, secret = text.decode().strip("()").split(", ")
    return host.strip("'"), int(port), secret.strip("'")


def _on_one_host(comm: Communicator) -> bool:
    """Whether all ranks have the same host name."""
    import numpy as np

    from .._core.dtypes import int64
    name = zlib.crc32(socket.gethostname().encode())
    both = np.array([name, -name], np.int64)
    _done(comm.all_reduce(both.ctypes.data, 2, int64, "min"))
    return bool(both[0] == -both[1])


def _own_address() -> str:
    """An address of this host that others can reach: MASTER_ADDR where that is told, else what the host's name means, else that of an interface."""
    for name in (os.environ.get("MASTER_ADDR", ""), socket.gethostname()):
        try:
            found = socket.gethostbyname(name) if name else "127."
        except OSError:
            continue
        if not found.startswith("127."):  # Debian's installer gives a host's name the address 127.0.1.1
            return found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(made, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue
            if answer[20:21] != b"\x7f":
                return socket.inet_ntoa(answer[20:24])
    return "127.0.0.1"


def _done(request: Request) -> None:
    while not request.test():
        time.sleep(0.0005)


def _told(comm: Communicator, text: bytes) -> bytes:
    """Rank 0's text on all ranks."""
    import numpy as np
    room = np.zeros(512, np.uint8)
    room[:len(text)] = np.frombuffer(text, np.uint8)
    _done(comm.broadcast(room.ctypes.data, room.nbytes, 0))
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


def _managed(address: tuple[str, int], secret: str, rank: int, size: int, limit: float, watch: Watch) -> None:
    """Hands MPI a connection to the hub, once all ranks have one: until then Python waits, and can be interrupted."""
    made = socket.create_connection(address, min(limit, 30))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall((f'{{"kind": "pmi", "rank": {rank}, "secret": "{secret}", "host": "{socket.gethostname()}"}}\n').encode())
    made.settimeout(0.2)
    heard, end = b"", time.monotonic() + limit
    peers = watch.peers
    assert peers is not None
    doing = peers.doing[threading.get_ident()] = Doing(1, watch.what, watch.line, "")
    try:
        while not heard.endswith(b"\n"):
            try:
                more = made.recv(1)
            except TimeoutError:
                if time.monotonic() > end:
                    raise DistNetworkError(f"init_process_group: rank {rank} waited {limit:.0f} s for all {size} ranks; some did not come") from None
                watch.look()
                _see(peers.store, rank, size, watch.what, watch.line)
                continue
            if not more:
                raise DistBackendError("init_process_group: the hub of rank 0 is gone, or took this rank for a stranger")
            heard += more
    except BaseException:
        made.close()
        raise
    finally:
        if peers.doing.get(threading.get_ident()) is doing:
            del peers.doing[threading.get_ident()]
    made.settimeout(None)
    os.set_inheritable(made.fileno(), True)
    os.environ.update(PMI_FD=str(made.fileno()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    made.detach()  # MPI's from now on
