"""`spawn`: one function in several processes, whose first failure ends them all and is raised here."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from .._core.errors import text_of, warn


class ProcessException(Exception):
    """A process did not end well: `error_index` and `error_pid` say which."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised in a process; the message holds the traceback."""


class ProcessExitedException(ProcessException):
    """A process exited or was killed."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _follow_parent() -> None:
    """Interrupts this process when the one that started it dies."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGINT)


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], errors: Any) -> None:
    threading.Thread(target=_follow_parent, daemon=True, name="flambeau-parent").start()
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too, or is gone
    except Exception as error:
        with contextlib.suppress(OSError):
            errors.send(text_of(error))
        sys.exit(1)


class ProcessContext:
    """The processes of `start_processes`."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes = processes
        self.error_queues = errors
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes: True when all have ended well, False when `timeout` seconds have passed or some are left.

        When one fails the others are terminated (after `grace_period` seconds, if given), and ProcessRaisedException, with its
        traceback, or ProcessExitedException is raised.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(list(self.sentinels), timeout=timeout):
            i = self.sentinels.pop(sentinel)
            process = self.processes[i]
            process.join()
            if process.exitcode != 0:
                failed = i
                break
        if failed is None:
            return not self.sentinels
        self._end(grace_period)
        process, errors = self.processes[failed], self.error_queues[failed]
        text = None
        with contextlib.suppress(EOFError, OSError):
            if errors.poll(0):
                text = errors.recv()
        if text is not None:
            raise ProcessRaisedException(f"\n\n-- Process {failed} terminated with the following error:\n{text}", failed, process.pid)
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(f"process {failed} terminated with signal {name}", failed, process.pid, code, name)
        raise ProcessExitedException(f"process {failed} terminated with exit code {code}", failed, process.pid, code)

    def _end(self, grace: float | None) -> None:
        end = time.monotonic() + (grace or 0)
        for process in self.processes:
            process.join(max(end - time.monotonic(), 0))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + 30
        for process in self.processes:
            process.join(max(end - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()


class SpawnContext(ProcessContext):
    """`ProcessContext` under its name from before there were other start methods."""


def start_processes(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
                    start_method: str = "spawn") -> ProcessContext | None:
    """Runs ``fn(i, *args)`` for i in 0 .. nprocs - 1, each in a process of its own.

    join: wait until all have ended (and give None), raising what `ProcessContext.join` raises; else give the context.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for i in range(nprocs):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, i, args, there), daemon=daemon)
        process.start()
        there.close()
        processes.append(process)
        errors.append(here)
    made = SpawnContext(processes, errors)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
          start_method: str = "spawn") -> ProcessContext | None:
    """`start_processes` by the spawn method: fresh interpreters, in which `fn` must be importable. Warns of another method."""
    if start_method != "spawn":

        warn(f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
             " torch.multiprocessing.start_processes(...)", FutureWarning)
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
