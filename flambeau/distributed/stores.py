"""Key-value stores that processes meet at: `HashStore`, `FileStore`, `TCPStore`, `PrefixStore` (torch.distributed's names and rules).

A key is a str, a value bytes (a str is encoded as UTF-8).  `get` and `wait` wait for keys that are not there yet, at most `timeout`.  What other
processes send is kept as bytes; nothing is ever unpickled here.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .hub import keep_alive

DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)
_LONGEST = 1 << 30  # bytes of one message


class DistError(RuntimeError):
    """An error of the distributed library."""


class DistStoreError(DistError):
    """A store could not answer: above all, keys that did not come in time."""


class DistNetworkError(DistError):
    """A connection could not be made, or broke."""


def seconds(timeout: Any) -> float:
    """A timeout in seconds, from a timedelta or a number.  Raises TypeError for anything else."""
    if isinstance(timeout, datetime.timedelta):
        return timeout.total_seconds()
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        return float(timeout)
    raise TypeError(f"timeout must be a datetime.timedelta, got {type(timeout).__name__}")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store's value must be a str or bytes, got {type(value).__name__}")


class Store:
    """What all stores do.  A store of one's own implements `set`, `get`, `add`, `wait`, `check`, `delete_key`, `num_keys`, `compare_set`."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> datetime.timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long `get` and `wait` wait from now on."""
        seconds(timeout)
        self._timeout = timeout

    def set(self, key: str, value: Any) -> None:
        """Puts a value at a key."""
        self._change(key, lambda old: _bytes(value))

    def get(self, key: str) -> bytes:
        """The value at a key, once it is there.  Raises DistStoreError when it does not come in time."""
        self.wait([key])
        found = self._read(key)
        if found is None:
            raise DistStoreError(f"key {key!r} was deleted while it was read")
        return found

    def add(self, key: str, amount: int) -> int:
        """Adds to the number at a key, which begins at 0; gives the sum."""
        return int(self._change(key, lambda old: str(int(old or b"0") + int(amount)).encode()))

    def append(self, key: str, value: Any) -> None:
        """Puts a value behind what is at a key."""
        self._change(key, lambda old: (old or b"") + _bytes(value))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Puts `desired_value` at a key that holds `expected_value` (or is not there, where "" is expected); gives what is there then."""
        expected, desired = _bytes(expected_value), _bytes(desired_value)
        return self._change(key, lambda old: desired if (old or b"") == expected else old if old is not None else expected)

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        """Waits until all keys are there.  Raises DistStoreError when they do not come in time."""
        limit = seconds(self._timeout if timeout is None else timeout)
        end, pause = time.monotonic() + limit, 0.0005
        while not self.check(keys):
            if time.monotonic() > end:
                missing = [k for k in keys if not self.check([k])]
                raise DistStoreError(f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(missing)}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return all(self._read(k) is not None for k in keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values at keys, once they are there."""
        return [self.get(k) for k in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Puts values at keys."""
        for k, v in zip(keys, values, strict=True):
            self.set(k, v)

    def delete_key(self, key: str) -> bool:
        """Takes a key away; whether it was there."""
        raise NotImplementedError

    def num_keys(self) -> int:
        """How many keys there are."""
        raise NotImplementedError

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are there."""
        return True

    def _read(self, key: str) -> bytes | None:
        raise NotImplementedError

    def _change(self, key: str, how: Callable[[bytes | None], bytes]) -> bytes:
        raise NotImplementedError


class HashStore(Store):
    """A store in this process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._came = threading.Condition()

    def _read(self, key: str) -> bytes | None:
        return self._values.get(key)

    def _change(self, key: str, how: Callable[[bytes | None], bytes]) -> bytes:
        with self._came:
            found = self._values[key] = how(self._values.get(key))
            self._came.notify_all()
        return found

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        limit = seconds(self._timeout if timeout is None else timeout)
        with self._came:
            if not self._came.wait_for(lambda: all(k in self._values for k in keys), limit):
                missing = [k for k in keys if k not in self._values]
                raise DistStoreError(f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(missing)}")

    def delete_key(self, key: str) -> bool:
        with self._came:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)


class FileStore(Store):
    """A store in a file that all processes reach; it is a log of changes, written under a lock of the file.

    file_name: the file, made where it is not there.  world_size: how many use it; the last of them to let go removes it.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path, self._world = file_name, world_size
        self._values: dict[str, bytes] = {}
        self._at = 0
        self._lock = threading.Lock()
        self._open = True
        if world_size > 0:
            self.add("\0users", 1)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file; the last of `world_size` removes it."""
        if getattr(self, "_open", False):
            self._open = False
            try:
                if self._world > 0 and self.add("\0gone", 1) == self._world:
                    os.unlink(self.path)
            except (OSError, ValueError):
                pass

    def _catch_up(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        if size < self._at:  # another job's file in its place
            self._values.clear()
            self._at = 0
        data = os.pread(fd, size - self._at, self._at)
        at = 0
        while at + 16 <= len(data):
            key, value = struct.unpack_from("<qq", data, at)
            if at + 16 + key + max(value, 0) > len(data):
                break
            name = data[at + 16:at + 16 + key].decode()
            if value < 0:
                self._values.pop(name, None)
            else:
                self._values[name] = data[at + 16 + key:at + 16 + key + value]
            at += 16 + key + max(value, 0)
        self._at += at

    def _locked(self, act: Callable[[int], Any]) -> Any:
        with self._lock:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                self._catch_up(fd)
                return act(fd)
            finally:
                os.close(fd)

    def _write(self, fd: int, key: str, value: bytes | None) -> None:
        name = key.encode()
        record = struct.pack("<qq", len(name), -1 if value is None else len(value)) + name + (value or b"")
        os.pwrite(fd, record, self._at)
        self._catch_up(fd)

    def _read(self, key: str) -> bytes | None:
        found: bytes | None = self._locked(lambda fd: self._values.get(key))
        return found

    def _change(self, key: str, how: Callable[[bytes | None], bytes]) -> bytes:
        def act(fd: int) -> bytes:
            found = how(self._values.get(key))
            self._write(fd, key, found)
            return found
        made: bytes = self._locked(act)
        return made

    def delete_key(self, key: str) -> bool:
        def act(fd: int) -> bool:
            if key not in self._values:
                return False
            self._write(fd, key, None)
            return True
        return bool(self._locked(act))

    def num_keys(self) -> int:
        return int(self._locked(lambda fd: len([k for k in self._values if not k.startswith("\0")])))


class PrefixStore(Store):
    """Another store whose keys all begin with `prefix/`."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    @property
    def timeout(self) -> datetime.timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.underlying_store.set_timeout(timeout)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: Any) -> None:
        self.underlying_store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        return self.underlying_store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._key(key), amount)

    def append(self, key: str, value: Any) -> None:
        self.underlying_store.append(self._key(key), value)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self.underlying_store.compare_set(self._key(key), expected_value, desired_value)

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        self.underlying_store.wait([self._key(k) for k in keys], timeout)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._key(k) for k in keys])

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()


# ------------------------------------------------------------------------------------------------ over TCP
_SET, _GET, _ADD, _APPEND, _COMPARE, _WAIT, _CHECK, _DELETE, _COUNT = range(1, 10)
_DONE, _LATE, _WRONG = range(3)


def _put(made: socket.socket, code: int, parts: Sequence[bytes]) -> None:
    made.sendall(b"".join([struct.pack("<BI", code, len(parts)), *[struct.pack("<Q", len(p)) + p for p in parts]]))


def _take(made: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = made.recv(min(count - len(found), 1 << 20))
        if not more:
            raise ConnectionError("the connection was closed")
        found += more
    return bytes(found)


def _receive(made: socket.socket) -> tuple[int, list[bytes]]:
    code, count = struct.unpack("<BI", _take(made, 5))
    if count > 1 << 20:
        raise ConnectionError("a message of too many parts")
    parts = []
    for _ in range(count):
        length, = struct.unpack("<Q", _take(made, 8))
        if length > _LONGEST:
            raise ConnectionError("a message that is too long")
        parts.append(_take(made, length))
    return int(code), parts


class _Server:
    """Serves a `HashStore` to connections, each by a thread."""

    def __init__(self, host: str, port: int, listener: socket.socket | None = None) -> None:
        self.store = HashStore()
        if listener is None:
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                listener.close()
                raise DistNetworkError(f"The server socket has failed to listen on {host}:{port}: {error.strerror}") from None
            listener.listen(1024)
        self.listener = listener
        self.port = int(listener.getsockname()[1])
        self.open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True, name="store").start()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self.listener.accept()
            except OSError:
                return
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(made)
            self.open.add(made)
            threading.Thread(target=self._serve, args=(made,), daemon=True, name="store").start()

    def _serve(self, made: socket.socket) -> None:
        try:
            while True:
                code, parts = _receive(made)
                try:
                    status, answer = self._answer(code, parts)
                except DistStoreError as error:
                    status, answer = _LATE, [str(error).encode()]
                except (ValueError, IndexError, struct.error) as error:
                    status, answer = _WRONG, [str(error).encode()]
                _put(made, status, answer)
        except OSError:
            pass
        finally:
            self.open.discard(made)
            made.close()

    def _answer(self, code: int, parts: list[bytes]) -> tuple[int, list[bytes]]:
        key = parts[0].decode() if parts else ""
        if code == _SET:
            self.store.set(key, parts[1])
            return _DONE, []
        if code in (_GET, _WAIT):
            names = [p.decode() for p in (parts[:1] if code == _GET else parts[:-1])]
            self.store.wait(names, struct.unpack("<d", parts[-1])[0])
            return _DONE, [self.store.get(names[0])] if code == _GET else []
        if code == _ADD:
            return _DONE, [str(self.store.add(key, int(parts[1]))).encode()]
        if code == _APPEND:
            self.store.append(key, parts[1])
            return _DONE, []
        if code == _COMPARE:
            return _DONE, [self.store.compare_set(key, parts[1], parts[2])]
        if code == _CHECK:
            return _DONE, [b"1" if self.store.check([p.decode() for p in parts]) else b"0"]
        if code == _DELETE:
            return _DONE, [b"1" if self.store.delete_key(key) else b"0"]
        if code == _COUNT:
            return _DONE, [str(self.store.num_keys()).encode()]
        raise ValueError(f"no such request: {code}")

    def close(self) -> None:
        self.listener.close()
        for each in list(self.open):
            each.close()


class TCPStore(Store):
    """A store that one process, the master, serves to all others.

    host_name, port: where the master listens; port 0 there takes a free one, which `port` says.  world_size: how many will come; with
    `wait_for_workers` the constructor returns when they have.  timeout: for connecting, and of `get` and `wait`.  master_listen_fd: a socket
    that listens already.  Raises DistNetworkError when the master is not reached in time.
    """

    def __init__(self, host_name: str, port: int = 0, world_size: int | None = None, is_master: bool = False,
                 timeout: datetime.timedelta = DEFAULT_TIMEOUT, wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: int | None = None, use_libuv: bool = True) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self.host, self._server = host_name, None
        if is_master:
            listener = socket.socket(fileno=master_listen_fd) if master_listen_fd is not None else None
            self._server = _Server(host_name, port, listener)
            port = self._server.port
        self.port = port
        self._lock = threading.Lock()
        self._made = self._connect(seconds(timeout))
        if wait_for_workers and world_size is not None and world_size > 0:
            if self.add("\0workers", 1) == world_size:
                self.set("\0all workers", b"1")
            self.wait(["\0all workers"])

    @property
    def is_master(self) -> bool:
        """Whether this process serves the store."""
        return self._server is not None

    def clone(self) -> TCPStore:
        """Another connection to the same store."""
        return TCPStore(self.host, self.port, timeout=self.timeout)

    def _connect(self, limit: float) -> socket.socket:
        end, pause = time.monotonic() + limit, 0.01
        while True:
            try:
                made = socket.create_connection((self.host, self.port), max(min(limit, 5.0), 0.01))
                made.settimeout(None)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                keep_alive(made)
                return made
            except OSError as error:
                if time.monotonic() > end:
                    raise DistNetworkError(f"The client socket has timed out after {limit * 1000:.0f}ms while trying to connect to "
                                           f"({self.host}, {self.port}): {error}") from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.2)

    def _ask(self, code: int, *parts: bytes) -> list[bytes]:
        with self._lock:
            try:
                _put(self._made, code, parts)
                status, answer = _receive(self._made)
            except OSError as error:
                raise DistNetworkError(f"the store at {self.host}:{self.port} does not answer: {error}") from None
        if status != _DONE:
            raise DistStoreError(answer[0].decode())
        return answer

    def set(self, key: str, value: Any) -> None:
        self._ask(_SET, key.encode(), _bytes(value))

    def get(self, key: str) -> bytes:
        return self._ask(_GET, key.encode(), struct.pack("<d", seconds(self._timeout)))[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(_ADD, key.encode(), str(int(amount)).encode())[0])

    def append(self, key: str, value: Any) -> None:
        self._ask(_APPEND, key.encode(), _bytes(value))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self._ask(_COMPARE, key.encode(), _bytes(expected_value), _bytes(desired_value))[0]

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        limit = seconds(self._timeout if timeout is None else timeout)
        self._ask(_WAIT, *[k.encode() for k in keys], struct.pack("<d", limit))

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask(_CHECK, *[k.encode() for k in keys])[0] == b"1"

    def delete_key(self, key: str) -> bool:
        return self._ask(_DELETE, key.encode())[0] == b"1"

    def num_keys(self) -> int:
        return int(self._ask(_COUNT)[0])

    def __repr__(self) -> str:
        return f"TCPStore({self.host}, {self.port}{', master' if self.is_master else ''})"
