"""Kernels in two steps: code that is made at once, and better code from processes beside this one.

Most of what a kernel costs is LLVM's care for good code.  Code without that care is made in a quarter of the time.  In the first program of a
machine, which meets some fifty kernels within a second, the caller gets such code, behind a jump; a process on another core makes the good code,
which it keeps on disk for all programs, and a thread here turns the jump to it.  Both are made of the same text, whose arithmetic says each
rounding, so they give the same bits.

Who starts those processes, and whether anybody may, is for `hooks.compiler` to say.  Without them each kernel is made in one step.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from ... import forks, hooks
from .. import cache, lasting
from . import elf, scratch

if TYPE_CHECKING:
    from collections.abc import Callable

HELD = "  ; written with the interpreter's lock held"  # behind a variable of one word in a text: it can be copied to the better code

# What has other state of its own cannot be there twice, and the machine that compiles quickly does not know the instructions of some CPUs.
# Borrowed memory is taken and given back within a call, so two copies of a function may each keep their own.
_ALONE = re.compile(rf"^@(?!{scratch.NAMES})\S+ = (?:internal |private )?(?:thread_local\S* )?global(?!.*{HELD}$)|^module asm| asm |"
                    r"@llvm\.x86\.(?!sse)", re.MULTILINE)

FEW = 1  # kernels that are made before processes are asked for
_SETTLED = 0.5  # seconds

_VARIABLES = re.compile(rf"^@(\S+) = .*{HELD}$", re.MULTILINE)

_lock = forks.lock()
_compilers: list[_Compiler] | None = None
quick = 0  # how many kernels were made in two steps
turned = 0  # how many of them have their good code


class _Compiler:
    """A process that makes good code: datagrams of names and texts go to it, names of what it has kept come back."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self.which = line, _which(line)
        self.waiting: dict[str, tuple[dict[str, int], dict[str, int]]] = {}  # words of the jumps, and variables, by the entry's name
        self.thread: threading.Thread | None = None

    def ask(self, name: str, ir: str, words: dict[str, int], variables: dict[str, int]) -> bool:
        """False where it does not listen, or has too much to do."""
        with _lock:
            self.waiting[name] = words, variables
            try:
                self._look()
                self.line.send(zlib.compress(f"{name}\n{ir}".encode(), 1), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                del self.waiting[name]
                return False
            if self.thread is None:
                self.thread = threading.Thread(target=self._listen, name="flambeau-compiler", daemon=True)
                self.thread.start()
        return True

    def _look(self) -> None:
        """Raises OSError where the program closed all descriptors that it did not know: the number may be another file's by now."""
        if self.which != _which(self.line):
            self.line.detach()
            raise OSError("the line to the compiler was closed")

    def _listen(self) -> None:
        """Until nothing is waited for; whatever a process that died did not make stays as it is."""
        while True:
            try:
                self._look()
                name = self.line.recv(256).decode()
            except OSError:
                name = ""
            with _lock:
                if not name:
                    self.waiting.clear()
                wanted = self.waiting.pop(name, None)
            if wanted is not None:
                _turn(name, *wanted)
            with _lock:
                if not self.waiting:
                    self.thread = None
                    return


def _which(line: socket.socket) -> tuple[int, int]:
    s = os.fstat(line.fileno())
    return s.st_dev, s.st_ino


def functions(ir: str, names: tuple[str, ...], name: str, compile_quickly: Callable[[str], bytes]) -> dict[str, int] | None:
    """Addresses of the functions `names` of a text, which are to be turned to better code; None where it must be made in one step."""
    global quick
    if _ALONE.search(ir):
        return None
    compiler = _free()
    if compiler is None:
        return None
    try:
        found, variables, memory = elf.load(compile_quickly(ir), _address_of)
        addresses, words, jumps = elf.jumps({n: found[n] for n in names})
    except elf.Unsupported:
        return None
    if not compiler.ask(name, ir, words, {n: variables[n] for n in _VARIABLES.findall(ir)}):
        return None
    lasting.keep(memory)
    lasting.keep(jumps)
    quick += 1
    return addresses


def possible() -> bool:
    """Whether there are processes to ask, which are started now if need be: a few kernels are not worth a process."""
    global _compilers
    if _compilers is None:
        if cache.made < FEW:
            return False
        with _lock:
            if _compilers is None:
                _compilers = [_Compiler(line) for line in hooks.compilers()]
    return bool(_compilers)


def wait(seconds: float = 60.0) -> bool:
    """Waits until all kernels of this process have their good code, for tests and measurements; False where that took too long."""
    for compiler in _compilers or ():
        thread = compiler.thread
        if thread is not None:
            thread.join(seconds)
            if thread.is_alive():
                return False
    return True


def _free() -> _Compiler | None:
    return min(_compilers, key=lambda c: len(c.waiting)) if _compilers else None


def _turn(name: str, words: dict[str, int], variables: dict[str, int]) -> None:
    global turned
    data = cache.load(name)
    if data is None:
        return
    try:
        found, others, memory = elf.load(data, _address_of)
    except elf.Unsupported:
        return
    lasting.keep(memory)
    old, new = ({n: ctypes.c_uint64.from_address(at) for n, at in places.items() if n in variables} for places in (variables, others))
    if old.keys() != new.keys():
        return
    since = time.monotonic()
    while not all(word.value for word in old.values()) and time.monotonic() - since < _SETTLED:
        time.sleep(0.01)  # what the code must know is told to it right after it is made
    for n, word in old.items():
        new[n].value = word.value
    for n, at in words.items():
        # one aligned store: who calls meanwhile takes either way
        ctypes.c_uint64.from_address(at).value = found[n]
    turned += 1


def _address_of(name: str) -> int:
    from . import compile as compiler
    return compiler.address_of(name)


def _after_fork() -> None:
    """A child has not the threads: its kernels stay as they are, and new ones are made in one step."""
    global _compilers
    for compiler in _compilers or ():
        compiler.line.close()
    _compilers = []


os.register_at_fork(after_in_child=_after_fork)


def serve(line: Any) -> None:
    """What such a process does: keeps the good code of each text that comes, until whoever sends them is gone and all is done."""
    import queue

    from . import compile as compiler
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                asked = line.recv(1 << 22)
            except OSError:
                asked = b""
            waiting.put(asked)
            if not asked:
                return

    threading.Thread(target=listen, daemon=True).start()  # so that nobody waits who sends
    while asked := waiting.get():
        name, _, ir = zlib.decompress(asked).decode().partition("\n")
        cache.get(name, lambda ir=ir: compiler.to_object(ir))  # type: ignore[misc]
        try:
            line.send(name.encode(), socket.MSG_NOSIGNAL)
        except OSError:
            pass  # the program has ended; others will read what is kept
