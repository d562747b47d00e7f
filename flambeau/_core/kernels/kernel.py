"""What rendering gives: the text of one launch's kernels and how they are launched.

Every function of a kernel takes one parameter by value, an array of 64-bit words: the addresses of outputs, inputs and
workspace, then the numbers (floats as the bits of a double, ints and bools as an int64), then the sizes and strides of
this launch, which are fixed when it is prepared.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .programs import Program

    Launch = tuple[str, tuple[int, int, int], tuple[int, int, int], int]

WORD = 1 << 64


class Kernel:
    """A launch's CUDA C and its plan.

    source: CUDA C that needs no header; `key` is the hash of it.  Launches of the same kind of layout share it.
    entry: the name of the first launch's function.
    launches: (function, grid, block, bytes of dynamic shared memory), in the order they must run on one stream; none
        where there is nothing to do.
    workspace: bytes that the extra address must point to, aligned to 256 (0: the argument is absent).  Their contents
        before the launch do not matter.
    arguments: a letter for each argument of the prepared launch (outputs, inputs, [workspace], numbers): "P" an address,
        "d" a float, "q" an int or bool, "c" a complex number.
    block: the words that follow the arguments' in the parameter.
    program: what it carries out; None for a kernel that no loop program describes.
    """

    __slots__ = ("source", "entry", "launches", "workspace", "arguments", "block", "key", "nbytes", "flops", "program", "_tail", "_plain")

    def __init__(self, source: str, launches: tuple[Launch, ...], arguments: str, block: tuple[int, ...], workspace: int, nbytes: int,
                 flops: int, program: Program | None = None) -> None:
        self.source, self.launches, self.arguments, self.block, self.workspace = source, launches, arguments, block, workspace
        self.entry = launches[0][0] if launches else ""
        self.key = hashlib.blake2b(source.encode(), digest_size=20).hexdigest()
        self.nbytes, self.flops, self.program = nbytes, flops, program
        self._tail = struct.pack(f"<{len(block)}Q", *(w % WORD for w in block))
        self._plain = "<" + arguments.replace("P", "Q") if "c" not in arguments and "q" not in arguments else ""

    @property
    def words(self) -> int:
        """How many 64-bit words the parameter has."""
        return len(self.arguments) + self.arguments.count("c") + len(self.block)

    def pack(self, *args: Any) -> bytes:
        """The parameter of every function of this kernel, for these arguments.  Raises TypeError for a wrong number of them."""
        if len(args) != len(self.arguments):
            raise TypeError(f"{self.entry or 'a launch of nothing'} takes {len(self.arguments)} arguments, got {len(args)}")
        if self._plain:
            return struct.pack(self._plain, *args) + self._tail
        parts = []
        for code, v in zip(self.arguments, args):
            if code == "d":
                parts.append(struct.pack("<d", v))
            elif code == "c":
                parts.append(struct.pack("<dd", v.real, v.imag))
            else:
                parts.append((int(v) % WORD).to_bytes(8, "little"))
        return b"".join(parts) + self._tail
