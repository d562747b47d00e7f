"""What the warps of a kernel ask of memory, counted while its blocks are carried out on the CPU: `traffic.h` says how.

    count(kernel, arguments, blocks=4)["rows_…"].loads.efficiency

Blocks are independent and alike, so a few of them tell of a launch of any size, as long as every address that they touch can be.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import build, host

if TYPE_CHECKING:
    from flambeau._core.kernels.cuda_c import Kernel

_KINDS = ("loads", "stores", "changes", "shared loads", "shared stores", "shared changes")
_ROOM = 4096  # places in a kernel's code that touch memory


class Asked(NamedTuple):
    """Requests of warps.  asked: the different bytes of each request; moved: those of its sectors, or, of shared memory, 128 for each turn;
    turns: sectors, or turns of the banks."""

    requests: int = 0
    asked: int = 0
    moved: int = 0
    turns: int = 0

    @property
    def efficiency(self) -> float:
        """Bytes asked over bytes moved."""
        return self.asked / self.moved if self.moved else 1.0

    def __add__(self, other: Any) -> Asked:
        return Asked(*(a + b for a, b in zip(self, other, strict=True)))


class Traffic(NamedTuple):
    """Of one launch.  blocks: how many were counted, of how many; kinds: all requests by kind; lines: (line of the text, kind, its requests);
    sectors: those of global memory that one of the counted blocks touched, and those that several did; longest: reads of it by the thread that has most."""

    blocks: tuple[int, int]
    kinds: dict[str, Asked]
    lines: list[tuple[int, str, Asked]]
    sectors: tuple[int, int] = (0, 0)
    longest: int = 0

    def over(self, *kinds: str) -> Asked:
        return sum((self.kinds.get(k, Asked()) for k in kinds), Asked())

    @property
    def memory(self) -> Asked:
        """Global memory."""
        return self.over(*_KINDS[:3])

    @property
    def shared(self) -> Asked:
        return self.over(*_KINDS[3:])

    @property
    def scale(self) -> float:
        """What times the counted requests is the whole launch's."""
        return self.blocks[1] / max(1, self.blocks[0])

    @property
    def touched(self) -> float:
        """Bytes of memory that the whole launch touches."""
        return 32 * (self.sectors[0] * self.scale + self.sectors[1])

    def worst(self) -> tuple[int, str, Asked]:
        """The line that moves most in vain."""
        return max(self.lines, key=lambda line: line[2].moved - line[2].asked, default=(0, "loads", Asked()))


def library(kernel: Kernel) -> tuple[ctypes.CDLL, str]:
    """The kernel built so that it tells of each access, and the library's path."""
    text = f'#include "host.h"\n#line 1 "kernel.cu"\n{build.adapted(kernel.source)}'
    # vectors stay whole, and each access has the line it stands in
    flags = [*host.flags(), "-g1", "-fno-tree-sra"]
    path = build.build("", flags, ".so", (build.build(text, [*flags, "-fsanitize=thread"]), build.runtime()))
    made = ctypes.CDLL(str(path))
    made.host_launch.restype = ctypes.c_char_p
    return made, str(path)


def count(kernel: Kernel, arguments: list[Any], blocks: int = 4, all_below: int = 0) -> dict[str, Traffic]:
    """Carries out at most `blocks` of each launch's blocks, all of those with fewer than `all_below` threads, and gives by function what
    they asked; arguments: those of the kernel, the workspace's address among them.  Raises LaunchError for a kernel that fails."""
    made, path = library(kernel)
    words = np.frombuffer(kernel.pack(*arguments), np.uint64)
    start = _start(made, path)
    found: dict[str, Traffic] = {}
    for name, grid, block, dynamic in kernel.launches:
        number, threads = int(np.prod(grid)), int(np.prod(block))
        some = number if number * threads <= all_below else min(blocks, number)
        made.host_count(some)
        error = made.host_launch(getattr(made, "host_" + name), words.ctypes.data_as(ctypes.c_void_p), (ctypes.c_uint * 3)(*grid),
                                 (ctypes.c_uint * 3)(*block), None, 0, 0, 0, dynamic, 0)
        if error:
            raise host.LaunchError(f"{name}: {error.decode()}")
        rows = np.zeros((_ROOM, 6), np.uint64)
        sectors = (ctypes.c_uint64 * 3)()
        rows = rows[:made.host_counted(rows.ctypes.data_as(ctypes.c_void_p), _ROOM, sectors)]
        made.host_count(0)
        lines = _lines(path, [int(r[0]) - start for r in rows])
        kinds: dict[str, Asked] = {}
        each: list[tuple[int, str, Asked]] = []
        for line, row in zip(lines, rows.tolist(), strict=True):
            kind, asked = _KINDS[row[1]], Asked(*row[2:])
            kinds[kind] = kinds.get(kind, Asked()) + asked
            each.append((line, kind, asked))
        found[name] = Traffic((some, number), kinds, each, (sectors[0], sectors[1]), sectors[2])
    return found


def _start(made: ctypes.CDLL, path: str) -> int:
    """Where the library lies in memory."""
    with open("/proc/self/maps") as maps:
        return min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(path))


def _lines(path: str, places: list[int]) -> list[int]:
    """The line of the kernel's text for each place in the library; 0 where it is none."""
    if not places or shutil.which("addr2line") is None:
        return [0] * len(places)
    # the place is where a call returns to, so the call stands before it; functions of headers are inlined into lines of the text
    done = subprocess.run(["addr2line", "-a", "-i", "-e", path, *(hex(p - 1) for p in places)], capture_output=True, text=True, check=False)
    found = [int(m[1]) if (m := re.search(r"kernel\.cu:(\d+)", part)) else 0 for part in re.split(r"^0x", done.stdout, flags=re.M)[1:]]
    return found if len(found) == len(places) else [0] * len(places)
