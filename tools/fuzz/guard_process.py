"""Runs guard/fuzz.py of the instruments: the public API with hostile arguments while each block of memory ends at a page nobody may touch.

    python -m tools.fuzz.guard_process INSTRUMENT_DIR TREE MODE FIRST COUNT STATE_FILE

The memory is that of tests/_core/runtime/guard_pages.py, on the CPU and on simulated GPUs.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import resource
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

MEMORY = 6 << 30  # address space that a call may take: hostile sizes get an error, and other processes keep their memory


def connect() -> None:
    """Puts the package's own guard pages in the place of the instrument's, which know an older allocator, and on simulated GPUs too."""
    place = Path(__file__).parents[2] / "tests" / "_core" / "runtime" / "guard_pages.py"
    spec = importlib.util.spec_from_file_location("guard_pages", place)
    assert spec is not None and spec.loader is not None
    pages: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    pages.install()
    sys.modules["guard"] = pages


def tell_where() -> None:
    """Has the instrument's alarm, which ends a call that hangs, say first where all threads are."""
    own: Any = signal.signal

    def registered(number: int, handler: Any) -> Any:
        def alarm(*given: Any) -> None:
            faulthandler.dump_traceback(sys.stdout)
            handler(*given)
        return own(number, alarm if number == signal.SIGALRM and callable(handler) else handler)
    signal.signal = registered  # type: ignore[assignment]


def main() -> None:
    folder, tree, mode, first, count, state = sys.argv[1:]
    sys.path.insert(0, tree)
    sys.argv = ["fuzz.py", mode, first, count, state]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit = lambda *limits: None  # the instrument wants more on the CPU and no limit elsewhere
    connect()
    tell_where()
    ran = runpy.run_path(str(Path(folder) / "fuzz.py"), run_name="__main__")
    if count == "0":  # no calls: the names of the functions that could be called
        print("NAMES", ",".join(dict.fromkeys(name for name, *_ in ran["funs"])))


if __name__ == "__main__":
    main()
