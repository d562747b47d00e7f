"""The hub of a job: a process of its own that wires the ranks up and sees who is there.

It needs Python's standard library alone and is run as a file, so that it is up in some 30 ms.  It serves three kinds of connections:

``pmi``    MPICH's process management interface, version 1 (the line protocol of MPICH's "PMI v1 wire protocol" page), so that MPI starts from
           RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT with no mpiexec.  It cannot be a thread of a rank: MPI_Init holds the GIL.
``parent`` what the parent of a rank saw of its end (`_core/drivers/collectives/parent.py`); the connection is closed when all ranks have ended.
``watch``  a side channel of JSON lines from each rank.  A channel that ends without a goodbye is a rank that died: the others are told at once.
           A rank that waits for long asks for the state of all; the hub asks round and answers with one text.

Nothing that arrives is unpickled; a line is read up to a limit, and a connection that does not begin with the job's secret is closed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

_LONGEST = 1 << 20  # of a line
_SILENT = 6  # seconds without a word from another host's kernel, after which a connection is broken


def keep_alive(made: socket.socket) -> None:
    """Has the kernel break a connection whose other host is gone: it lost its power, or the network, and says nothing any more.  A host whose
    processes are only stopped answers."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", _SILENT - 2), ("TCP_USER_TIMEOUT", 1000 * _SILENT)):
        if hasattr(socket, name):  # Linux has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Hub:
    """The state of one job of `size` ranks."""

    def __init__(self, size: int, secret: str, name: str) -> None:
        self.size, self.secret, self.name = size, secret, name
        self.lock = threading.Lock()
        self.values: dict[str, str] = {}
        self.pmi: dict[int, socket.socket] = {}
        self.hosts: dict[int, str] = {}
        self.barrier: list[socket.socket] = []
        self.watched: dict[int, socket.socket] = {}
        self.about: dict[int, dict[str, Any]] = {}
        self.ended: set[int] = set()
        self.dead: set[int] = set()
        self.endings: dict[int, str] = {}
        self.answers: dict[int, dict[int, dict[str, Any]]] = {}
        self.asked = 0
        self.open = 0
        self.seen = 0
        self.quiet = time.monotonic()

    # ------------------------------------------------------------------------------------------------ connections
    def serve(self, listener: socket.socket) -> None:
        """Takes connections until every rank that came has gone, or nobody came for two minutes."""
        listener.settimeout(0.5)
        while True:
            try:
                made, _ = listener.accept()
            except TimeoutError:
                with self.lock:
                    if self.open == 0 and (self.seen and time.monotonic() - self.quiet > 1.0 or time.monotonic() - self.quiet > 120):
                        return
                continue
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(made)
            with self.lock:
                self.open += 1
            threading.Thread(target=self._connection, args=(made,), daemon=True).start()

    def _connection(self, made: socket.socket) -> None:
        try:
            made.settimeout(30)
            lines = made.makefile("rb")
            first = _parsed(lines.readline(_LONGEST))
            if first is None or first.get("secret") != self.secret or not isinstance(first.get("rank"), int) or not 0 <= first["rank"] < self.size:
                return
            made.settimeout(None)
            self.seen += 1
            if first.get("kind") == "pmi":
                self._pmi(made, lines, first["rank"], str(first.get("host")))
            elif first.get("kind") == "watch":
                self._watch(made, lines, first)
            elif first.get("kind") == "parent":
                self._parent(first["rank"], str(first.get("how", "")))
        except OSError:
            pass
        finally:
            made.close()
            with self.lock:
                self.open -= 1
                self.quiet = time.monotonic()

    # ------------------------------------------------------------------------------------------------ PMI
    def _pmi(self, made: socket.socket, lines: Any, rank: int, host: str) -> None:
        with self.lock:
            self.pmi[rank], self.hosts[rank] = made, host
            if len(self.pmi) == self.size:
                self.values["PMI_process_mapping"] = _mapping([self.hosts[i] for i in range(self.size)])
                for each in self.pmi.values():
                    each.sendall(b"cmd=go\n")
        while line := lines.readline(_LONGEST):
            text = line.decode(errors="replace").rstrip("\n")
            words = dict(part.split("=", 1) for part in text.split() if "=" in part)
            answer = self._answer(made, words, text)
            if answer:
                made.sendall((answer + "\n").encode())

    def _answer(self, made: socket.socket, words: dict[str, str], text: str) -> str:
        command = words.get("cmd")
        if command == "init":
            return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
        if command == "get_maxes":
            return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"
        if command == "get_appnum":
            return "cmd=appnum appnum=0 rc=0"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self.size} rc=0"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self.name} rc=0"
        if command == "put":
            self.values[words.get("key", "")] = text.split("value=", 1)[-1]
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            key = words.get("key", "")
            value = self.values.get(key)
            return (f"cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown" if value is None
                    else f"cmd=get_result rc=0 msg=success value={value}")
        if command == "barrier_in":
            with self.lock:
                self.barrier.append(made)
                if len(self.barrier) == self.size:
                    for each in self.barrier:
                        each.sendall(b"cmd=barrier_out rc=0\n")
                    self.barrier.clear()
            return ""
        return "cmd=finalize_ack rc=0" if command == "finalize" else ""

    # ------------------------------------------------------------------------------------------------ who is there
    def _watch(self, made: socket.socket, lines: Any, first: dict[str, Any]) -> None:
        rank = first["rank"]
        with self.lock:
            self.watched[rank], self.about[rank] = made, first
            for gone in self.dead:
                _send(made, {"gone": gone, "how": self.about[gone].get("how", "it ended")})
        while line := _readline(lines):
            said = _parsed(line)
            if said is None:
                continue
            if said.get("say") == "bye":
                how = str(said.get("how", ""))
                if how:
                    self._died(rank, how)
                else:
                    self._ended(rank)
            elif said.get("say") == "where":
                threading.Thread(target=self._ask_round, args=(rank,), daemon=True).start()
            elif said.get("say") == "state":
                with self.lock:
                    found = self.answers.get(int(said.get("id", 0)))
                    if found is not None:
                        found[rank] = said
        with self.lock:
            self.watched.pop(rank, None)
        if rank not in self.ended:
            self._died(rank, f"it died (process {first.get('pid')} on {first.get('host')})")

    def _died(self, rank: int, how: str) -> None:
        with self.lock:
            if rank not in self.dead:
                self.dead.add(rank)
                self.about[rank]["how"] = how + self.endings.get(rank, "")
                self._tell_of(rank)

    def _tell_of(self, rank: int) -> None:
        for r, each in self.watched.items():
            if r != rank:
                _send(each, {"gone": rank, "how": self.about[rank]["how"]})

    def _parent(self, rank: int, how: str) -> None:
        with self.lock:
            self.endings[rank] = f", {how}"
            if rank in self.dead:
                self.about[rank]["how"] += self.endings[rank]
                self._tell_of(rank)
        while self.watched:
            time.sleep(0.02)

    def _ended(self, rank: int) -> None:
        with self.lock:
            self.ended.add(rank)
            for each in self.watched.values():
                _send(each, {"all": True} if len(self.ended) == self.size else {"ended": rank})

    def _ask_round(self, asker: int) -> None:
        with self.lock:
            self.asked += 1
            number = self.asked
            answers = self.answers[number] = {}
            present = dict(self.watched)
            for each in present.values():
                _send(each, {"ask": number})
        end = time.monotonic() + 1.0
        while len(answers) < len(present) and time.monotonic() < end:
            time.sleep(0.01)
        with self.lock:
            del self.answers[number]
            made = self.watched.get(asker)
            if made is not None:
                _send(made, {"states": {str(r): s for r, s in answers.items()}, "ended": sorted(self.ended),
                             "came": sorted(self.about), "pids": {str(r): a.get("pid") for r, a in self.about.items()}})


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _readline(lines: Any) -> bytes:
    try:
        found: bytes = lines.readline(_LONGEST)
    except OSError:
        found = b""
    return found


def _send(made: socket.socket, what: dict[str, Any]) -> None:
    try:
        made.sendall((json.dumps(what) + "\n").encode())
    except OSError:
        pass


def _mapping(hosts: list[str]) -> str:
    """Which rank is on which host, as MPICH reads it: blocks of equal size, or each rank by itself."""
    order = list(dict.fromkeys(hosts))
    each = hosts.count(order[0])
    if hosts == [h for h in order for _ in range(each)]:
        return f"(vector,(0,{len(order)},{each}))"
    return "(vector," + ",".join(f"({order.index(h)},1,1)" for h in hosts) + ")"


def main() -> None:
    """`hub.py HOST SIZE`: the secret is read from standard input, the port is written to standard output."""
    host, size = sys.argv[1], int(sys.argv[2])
    secret = sys.stdin.readline().strip()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(2 * size + 8)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # a pipe that a launcher waits for is not kept open
    Hub(size, secret, f"kvs_{os.getpid()}_{time.time_ns() & 0xffffffff:x}").serve(listener)


if __name__ == "__main__":
    main()
