"""Runs guard/fuzz.py of the instruments: the public API with hostile arguments while each block of memory ends at a page nobody may touch.

    python -m tools.fuzz.guard_process INSTRUMENT_DIR TREE MODE FIRST COUNT STATE_FILE

The memory is that of tests/_core/runtime/guard_pages.py, on the CPU and on simulated GPUs.  MODE is one of the instrument's, or "learned": the CPU,
with every call learned before it is made (tests/_core/engine/learned_at_once.py) and held against the body's (repeated.py).
"""

from __future__ import annotations

import faulthandler
import importlib.util
import resource
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .repeated import Repeated

MEMORY = 6 << 30  # address space that a call may take: hostile sizes get an error, and other processes keep their memory


CALL = "res = f(*args, **kw)"  # the instrument's line that makes a call


def connect(learned: bool) -> Any:
    """Puts the package's own guard pages in the place of the instrument's, which know an older allocator, and on simulated GPUs too.  learned: and
    learns calls at once."""
    pages = sys.modules["guard"] = of_tests("_core/runtime/guard_pages.py")
    pages.install(lists=learned)
    if learned:
        of_tests("_core/engine/learned_at_once.py").install()
    return pages


def of_tests(path: str) -> Any:
    """A module of this checkout's tests; the package is that of TREE."""
    place = Path(__file__).parents[2] / "tests" / path
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(path: Path, call: Any) -> dict[str, Any]:
    """Runs the instrument with another function for its calls; its names."""
    text = path.read_text()
    if text.count(CALL) != 1:
        raise SystemExit(f"guard: {path} has not one line {CALL!r}")
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), make_call=call)
    exec(compile(text.replace(CALL, "res = make_call(f, args, kw)"), str(path), "exec"), module.__dict__)
    return module.__dict__


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
    learned = mode == "learned"
    sys.argv = ["fuzz.py", "cpu" if learned else mode, first, count, state]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit = lambda *limits: None  # the instrument wants more on the CPU and no limit elsewhere
    pages = connect(learned)
    tell_where()
    call: Any = lambda f, args, kw: f(*args, **kw)  # noqa: E731
    if learned:
        import flambeau
        call = Repeated(flambeau, pages.sweep).call
    ran = run(Path(folder) / "fuzz.py", call)
    if count == "0":  # no calls: the names of the functions that could be called
        print("NAMES", ",".join(dict.fromkeys(name for name, *_ in ran["funs"])))


if __name__ == "__main__":
    main()
