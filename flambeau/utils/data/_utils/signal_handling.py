"""Which processes are workers of a loader, and whether one died (torch.utils.data._utils.signal_handling).

PyTorch learns of a death by a signal. Here whoever waits for a batch asks, so no handler is set: Flambeau's loaders watch their workers' channels,
and libraries' loaders look every `MP_STATUS_CHECK_INTERVAL` seconds.
"""

from __future__ import annotations

import os

_pids: dict[int, tuple[int, ...]] = {}


def _set_worker_pids(loader_id: int, pids: tuple[int, ...]) -> None:
    """Says which processes are the workers of a loader's iterator.  Raises ValueError where that was said already."""
    if loader_id in _pids:
        raise ValueError("_set_worker_pids should be called only once for each _BaseDataLoaderIter.")
    _pids[loader_id] = tuple(pids)


def _remove_worker_pids(loader_id: int) -> None:
    """Forgets them.  Raises ValueError where nothing was said."""
    if _pids.pop(loader_id, None) is None:
        raise ValueError(f"Cannot find worker information for _BaseDataLoaderIter with id {loader_id}")


def _error_if_any_worker_fails() -> None:
    """Raises RuntimeError where one of those processes ended otherwise than well."""
    for pids in _pids.values():
        for pid in pids:
            try:
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # somebody has asked already
                continue
            if ended is not None and ended.si_status != 0:
                how = f"exited unexpectedly with exit code {ended.si_status}" if ended.si_code == os.CLD_EXITED else f"is killed by signal: {ended.si_status}"
                raise RuntimeError(f"DataLoader worker (pid {pid}) {how}. ")


def _set_worker_signal_handlers(*_: object) -> None:
    """Nothing: a worker that dies of a signal tells by its end."""


def _set_SIGCHLD_handler() -> None:
    """Nothing: see the module's text."""


__all__ = ["_error_if_any_worker_fails", "_remove_worker_pids", "_set_SIGCHLD_handler", "_set_worker_pids", "_set_worker_signal_handlers"]
