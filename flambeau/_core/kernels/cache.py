"""Compiled kernels on disk, so that a process that meets a known kernel need not compile it, nor even import LLVM.

An entry's name is the hash of everything its code depends on.  Its first bytes hold a checksum of the rest, so that a
truncated or damaged file is seen and built anew, never run.  Files appear whole (written aside, then renamed), which
makes any number of processes safe at once.  The folder is FLAMBEAU_CACHE_DIR, or flambeau under the user's cache
folder; where it cannot be written, or belongs to someone else, kernels are simply compiled again.

What is loaded is run, so it must be this user's own: the way to the folder is gone step by step, each folder opened and then looked at
(root's or the user's, and nobody else may rename what lies there), and entries are opened in the folder that was looked at, not by its
name, and are looked at once they are open.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import threading
import time
from typing import TYPE_CHECKING

from .. import hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMAT = b"flambeau-kernel-1\n"
MAX_BYTES = 128 << 20
_DIGEST = 32
_CHECK_EVERY = 64  # stores between two looks at the folder's size
_TOUCH_AFTER = 86400.0  # a day: how stale an entry's time of last use may be
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# not blocking: a pipe in the place of an entry would keep its reader waiting
_ENTRY = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_LOCK = ".lock"
_BESIDE = ".beside"  # files that are no entries: never removed here
_PATIENCE = 20.0  # seconds
_SHORT = 0.05  # with a process of the lowest priority, which may get no time at all: about what a kernel takes
_AHEAD, _BEHIND = b"a", b"b"  # what is in a lock: whose it is, another process or one of those
behind = False  # whether this process is one of those
MANY = 5  # of kernels: a program that makes as many is the first of its kind here (`hooks.many_made`)

_stores = 0
_many = False
made, seconds = 0, 0.0  # how many entries this process has compiled itself, and how long that took
SLOW = 1.0
on_slow: Callable[[int, float], None] | None = None  # called once with both, when it has taken longer than `SLOW`


class _Thread(threading.local):
    making = 0.0
    inside = False


_thread = _Thread()
_open: dict[str, tuple[int, int, int]] = {}  # folders that are open: descriptor, device and inode, by path


def folder() -> str:
    """Where entries are kept."""
    base = os.environ.get("FLAMBEAU_CACHE_DIR")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "flambeau")
    return os.path.join(base, "kernels-1")


def key(*parts: str) -> str:
    """The name of the entry for these parts, in their order."""
    h = hashlib.blake2b(digest_size=20)
    for p in parts:
        data = p.encode()
        h.update(b"%d:" % len(data) + data)
    return h.hexdigest()


def get(name: str, make: Callable[[], bytes]) -> bytes:
    """An entry; or what `make` gives, which is kept from then on."""
    global made, seconds, on_slow, _many
    found = load(name)
    if found is None:
        with _alone(name) as waited:
            found = load(name) if waited else None
            if found is not None:
                return found
            since = time.perf_counter()
            with preparing():
                found = make()
                store(name, found)
            made, seconds = made + 1, seconds + time.perf_counter() - since
        if made >= MANY and not _many:
            _many = True
            hooks.many_made()
        if seconds > SLOW and on_slow is not None:
            tell, on_slow = on_slow, None
            tell(made, seconds)
    return found


def making() -> float:
    """The seconds that this thread has taken to make entries, to load them, and for all else that it does once for a call that it repeats."""
    return _thread.making


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """Counts its block as `making`: what the first call costs, and no other."""
    if _thread.inside:
        yield
        return
    _thread.inside, since = True, time.perf_counter()
    try:
        yield
    finally:
        _thread.inside = False
        _thread.making += time.perf_counter() - since


@contextlib.contextmanager
def _alone(name: str) -> Iterator[bool]:
    """While one process makes an entry, others wait, and then find it; gives whether it waited.

    A lock is a file beside the entry, held by `flock`, which ends with its process.  Where it cannot be had, or is held for longer than any
    kernel takes, the entry is made all the same: it comes in whole, whoever is last.  Who holds it says in the file whether it gets time: one
    that has said nothing is waited for as shortly as one of the lowest priority, which may stand just before saying so for as long as others work.
    """
    lock, waited = -1, False
    try:
        lock = os.open(name + _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600, dir_fd=_opened())
        since, pause = time.monotonic(), 0.001
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.pwrite(lock, _BEHIND if behind else _AHEAD, 0)
                break
            except BlockingIOError:
                if time.monotonic() - since > (_PATIENCE if behind or os.pread(lock, 1, 0) == _AHEAD else _SHORT):
                    break
                waited = True
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
    except OSError:
        pass
    try:
        yield waited
    finally:
        if lock >= 0:
            try:
                _remove(name + _LOCK, _opened())
                fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile holds it too
            except OSError:
                pass
            os.close(lock)


def load(name: str) -> bytes | None:
    """The bytes stored under `name`, or None if there are none, they are damaged or they are not this user's."""
    try:
        where = _opened()
        entry = os.open(name, _ENTRY, dir_fd=where)
    except OSError:
        return None
    try:
        s = os.fstat(entry)
        if not stat.S_ISREG(s.st_mode) or _whose(s):
            _remove(name, where)
            return None
        with open(entry, "rb", closefd=False) as f:
            data = f.read()
        start = len(FORMAT) + _DIGEST
        body = data[start:]
        if not body or data[:len(FORMAT)] != FORMAT or data[len(FORMAT):start] != _digest(name, body):
            _remove(name, where)
            return None
        if time.time() - s.st_mtime > _TOUCH_AFTER:
            os.utime(entry)
    except OSError:
        return None
    finally:
        os.close(entry)
    return body


def store(name: str, body: bytes) -> bool:
    """Keeps `body` under `name`; False where the folder cannot be used."""
    global _stores
    try:
        where = _opened()
    except OSError:
        return False
    aside = f"{name}.{os.getpid()}.{time.monotonic_ns()}.tmp"
    try:
        with open(os.open(aside, _NEW, 0o600, dir_fd=where), "wb") as f:
            f.write(FORMAT + _digest(name, body) + body)
        os.replace(aside, name, src_dir_fd=where, dst_dir_fd=where)
    except OSError:
        _remove(aside, where)
        return False
    if _stores % _CHECK_EVERY == 0:
        trim()
    _stores += 1
    return True


def trim(limit: int | None = None) -> int:
    """Removes the entries used longest ago until 3/4 of `limit` (MAX_BYTES) are left; gives the bytes left."""
    limit = MAX_BYTES if limit is None else limit
    entries = []
    try:
        where = _opened()
        listing = os.open(".", _FOLDER, dir_fd=where)  # how far it is read is its own, and no forked process's
    except OSError:
        return 0
    try:
        with os.scandir(listing) as found:
            for e in found:
                try:
                    s = e.stat(follow_symlinks=False)
                except OSError:
                    continue
                if e.name.endswith(_BESIDE):
                    continue
                if e.name.endswith((".tmp", _LOCK)) and time.time() - s.st_mtime > 3600:
                    _remove(e.name, where)  # left by a process that died while writing
                else:
                    entries.append((s.st_mtime, s.st_size, e.name))
    except OSError:
        return 0
    finally:
        os.close(listing)
    total = sum(size for _, size, _ in entries)
    if total > limit:
        for _, size, name in sorted(entries):
            if total <= limit * 3 // 4:
                break
            _remove(name, where)
            total -= size
    return total


def beside(name: str) -> int:
    """A descriptor of a small file in the folder that is no entry, made if need be; for whoever locks it.  Raises OSError where it cannot be had."""
    return os.open(name + _BESIDE, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600, dir_fd=_opened())


def held() -> tuple[int, int]:
    """How many entries are kept, and their bytes."""
    try:
        with os.scandir(folder()) as those:
            sizes = [e.stat().st_size for e in those if e.is_file() and not e.name.endswith((".tmp", _LOCK, _BESIDE))]
    except OSError:
        sizes = []
    return len(sizes), sum(sizes)


def why_not() -> str:
    """Why the folder is not used; empty where it is."""
    try:
        _opened()
    except OSError as error:
        return str(error)
    return ""


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\n" + body, digest_size=_DIGEST).digest()


def _opened() -> int:
    """A descriptor of the folder, which is made if need be.  Raises OSError where it cannot be had or somebody else can put code into it."""
    path = folder()
    known = _open.get(path)
    if known is not None:
        descriptor, *which = known
        try:
            s = os.fstat(descriptor)
        except OSError:  # closed by the program, which closed all that it did not know
            s = None
        if s is not None and [s.st_dev, s.st_ino] == which and s.st_nlink:
            if reason := _whose(s):
                raise PermissionError(f"{path} {reason}")
            return descriptor
        # the number may mean another file by now: it is not ours to close, unless the folder was removed
        del _open[path]
        if s is not None and [s.st_dev, s.st_ino] == which:
            os.close(descriptor)
    descriptor = _walked(os.path.realpath(path))
    s = os.fstat(descriptor)
    _open[path] = descriptor, s.st_dev, s.st_ino
    return descriptor


def _walked(path: str) -> int:
    """A descriptor of the folder at an absolute path, each folder on the way opened from the one before and looked at."""
    at = os.open(os.sep, _FOLDER)
    so_far = ""
    parts = [p for p in path.split(os.sep) if p]
    for k, part in enumerate(parts):
        last = k == len(parts) - 1
        so_far += os.sep + part
        # a parent need not be readable
        how = _FOLDER if last else _FOLDER | getattr(os, "O_PATH", 0)
        try:
            try:
                inner = os.open(part, how, dir_fd=at)
            except FileNotFoundError:
                try:
                    os.mkdir(part, 0o700, dir_fd=at)
                except FileExistsError:  # another process was quicker
                    pass
                inner = os.open(part, how, dir_fd=at)
        finally:
            os.close(at)
        at = inner
        if reason := _whose(os.fstat(at), parent=not last):
            os.close(at)
            raise PermissionError(f"{so_far} {reason}")
    return at


def _whose(s: os.stat_result, parent: bool = False) -> str:
    """Why a file or folder may hold what somebody else put there; empty where it cannot.

    parent: of a folder above the cache's, which root may own too, where a sticky bit keeps others from renaming what is not theirs, and
    where members of the user's own group are trusted, as systems do that give each user a group.
    """
    if not hasattr(os, "geteuid"):
        return ""
    me = os.geteuid()
    if s.st_uid != me and not (parent and s.st_uid == 0):
        return f"belongs to user {s.st_uid}, and this process runs as user {me}"
    shared = s.st_mode & 0o022
    if parent and (s.st_mode & stat.S_ISVTX or (s.st_uid == me and s.st_gid == os.getegid())):
        shared &= 0 if s.st_mode & stat.S_ISVTX else 0o002
    return "can be written to by others" if shared else ""


def _remove(name: str, where: int) -> None:
    try:
        os.unlink(name, dir_fd=where)
    except OSError:
        pass
