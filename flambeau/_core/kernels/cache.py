"""Compiled kernels on disk, so that a process that meets a known kernel need not compile it, nor even import LLVM.

An entry's name is the hash of everything its code depends on.  Its first bytes hold a checksum of the rest, so that a
truncated or damaged file is seen and built anew, never run.  Files appear whole (written aside, then renamed), which
makes any number of processes safe at once.  The folder is FLAMBEAU_CACHE_DIR, or flambeau under the user's cache
folder; where it cannot be written, or belongs to someone else, kernels are simply compiled again.
"""

from __future__ import annotations

import hashlib
import os
import time

FORMAT = b"flambeau-kernel-1\n"
MAX_BYTES = 128 << 20
_DIGEST = 32
_CHECK_EVERY = 64  # stores between two looks at the folder's size
_TOUCH_AFTER = 86400.0  # a day: how stale an entry's time of last use may be

_stores = 0
_usable: dict[str, bool] = {}  # folders looked at, and whether they may be used


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


def load(name: str) -> bytes | None:
    """The bytes stored under `name`, or None if there are none or they are damaged."""
    where = folder()
    if not _may_use(where):
        return None
    path = os.path.join(where, name)
    try:
        with open(path, "rb") as f:
            data = f.read()
            stale = time.time() - os.fstat(f.fileno()).st_mtime > _TOUCH_AFTER
    except OSError:
        return None
    start = len(FORMAT) + _DIGEST
    body = data[start:]
    if not body or data[:len(FORMAT)] != FORMAT or data[len(FORMAT):start] != _digest(name, body):
        _remove(path)
        return None
    if stale:
        try:
            os.utime(path)
        except OSError:
            pass
    return body


def store(name: str, body: bytes) -> bool:
    """Keeps `body` under `name`; False where the folder cannot be used."""
    global _stores
    where = folder()
    if not _may_use(where):
        return False
    aside = os.path.join(where, f"{name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        with open(aside, "wb") as f:
            f.write(FORMAT + _digest(name, body) + body)
        os.replace(aside, os.path.join(where, name))
    except OSError:
        _remove(aside)
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
        with os.scandir(folder()) as found:
            for e in found:
                try:
                    s = e.stat(follow_symlinks=False)
                except OSError:
                    continue
                if e.name.endswith(".tmp") and time.time() - s.st_mtime > 3600:
                    _remove(e.path)  # left by a process that died while writing
                else:
                    entries.append((s.st_mtime, s.st_size, e.path))
    except OSError:
        return 0
    total = sum(size for _, size, _ in entries)
    if total > limit:
        for _, size, path in sorted(entries):
            if total <= limit * 3 // 4:
                break
            _remove(path)
            total -= size
    return total


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.blake2b(name.encode() + b"\n" + body, digest_size=_DIGEST).digest()


def _may_use(where: str) -> bool:
    """Whether the folder is there (it is made if need be) and nobody else can put code into it."""
    known = _usable.get(where)
    if known is None:
        try:
            os.makedirs(where, mode=0o700, exist_ok=True)
            s = os.stat(where)
            known = not hasattr(os, "geteuid") or (s.st_uid == os.geteuid() and not s.st_mode & 0o022)
        except OSError:
            known = False
        _usable[where] = known
    return known


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
