"""Runs guard/fuzz.py of the instruments: the public API with hostile arguments while each block of CPU memory ends at a page nobody may touch.

    python -m tools.fuzz.guard_process INSTRUMENT_DIR TREE MODE FIRST COUNT STATE_FILE

The instrument's guard.py replaces the CPU allocator's `block` and clears what was prepared with the old one.  It says
`flambeau.runtime.cpu_memory` and `flambeau.tensor`; `connect` makes these names lead to where those things are now.
"""

from __future__ import annotations

import importlib
import resource
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MEMORY = 6 << 30  # address space that a call may take: hostile sizes get an error, and other processes keep their memory


def connect() -> None:
    """Makes the names that guard.py says lead to the allocator, its callers and the caches of this tree."""
    import flambeau

    # by folder, not by trying: an editable install elsewhere answers for names that this tree does not have
    engine = "flambeau._core" if (Path(flambeau.__file__).parent / "_core").is_dir() else "flambeau"
    runtime, memory, allocator, tensor = (importlib.import_module(f"{engine}.{name}") for name in ("runtime", "runtime.memory", "runtime.cpu_memory", "tensor"))
    if not hasattr(allocator, "block") or not hasattr(allocator, "SMALL"):
        raise SystemExit(f"fuzz: {allocator.__name__} has no `block` and `SMALL` for the guard to replace")
    for name, module in {"flambeau.runtime": runtime, "flambeau.runtime.memory": memory, "flambeau.runtime.cpu_memory": allocator}.items():
        sys.modules[name] = module
    sys.modules["flambeau.tensor"] = _Prepared("flambeau.tensor", tensor)


class _Prepared(ModuleType):
    """What was prepared with the old allocator, as guard.py clears it: `_metas`, then all that `_forget` lists."""

    def __init__(self, name: str, tensor: ModuleType) -> None:
        super().__init__(name)
        self._tensor = tensor
        self._metas: Any = getattr(tensor, "_metas", {})
        self._forget: list[Callable[[], None]] = list(getattr(tensor, "_forget", ()))
        caches = sys.modules.get(f"{tensor.__name__.rpartition('.')[0]}.runtime.caches")
        if caches is not None:
            self._forget.append(caches.forget)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def main() -> None:
    folder, tree, mode, first, count, state = sys.argv[1:]
    sys.path.insert(0, folder)  # for `import guard`
    sys.path.insert(0, tree)
    sys.argv = ["fuzz.py", mode, first, count, state]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit = lambda *limits: None  # the instrument wants more on the CPU and no limit elsewhere
    if mode == "cpu":
        connect()
    ran = runpy.run_path(str(Path(folder) / "fuzz.py"), run_name="__main__")
    if count == "0":  # no calls: the names of the functions that could be called
        print("NAMES", ",".join(dict.fromkeys(name for name, *_ in ran["funs"])))


if __name__ == "__main__":
    main()
