"""Templates of kernels written by hand in CUDA C, and the layout of their rows.

In a template `$name` is a constant of the kernel or a number of the launch.  Numbers of the launch are read from the parameter, so that
launches of all sizes share one kernel.
"""

from __future__ import annotations

import hashlib
from string import Template
from typing import TYPE_CHECKING

from ...kernel import Kernel
from ...loops.operands import NARROW
from ...loops.walk import walk_axes
from ..writer import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...kernel import Launch
    from ..writer import Writer


class Written:
    """A kernel whose template is being filled.

    arguments: a letter for each argument, as `Kernel` has them; the workspace's "P" among them.
    """

    def __init__(self, arguments: str) -> None:
        self.arguments = arguments
        self.names: dict[str, str] = {}
        self.block: list[int] = []
        self.parts: list[str] = []
        self.launches: list[tuple[str, int, int]] = []
        self.stems: list[str] = []

    def word(self, value: int, kind: str = "int") -> str:
        """A number of the launch as an expression of this C type; `a` is the parameter."""
        self.block.append(value)
        return f"(({kind})a.w[{len(self.arguments) + len(self.block) - 1}])"

    def words(self, kind: str = "int", **values: int) -> None:
        """Numbers of the launch by name."""
        for name, value in values.items():
            self.names[name] = self.word(value, kind)

    def constants(self, **values: object) -> None:
        """What the text itself is made for, by name; pieces of text that have names in them too."""
        for name, value in values.items():
            self.names[name] = str(value)

    def add(self, text: str) -> None:
        """Types and functions of the device."""
        self.parts.append(self._filled(text))

    def _filled(self, text: str) -> str:
        while "$" in text:  # what stands for a name may have names in it
            text = Template(text).substitute(self.names)
        return text.strip("\n")

    def function(self, stem: str, threads: int, text: str, together: int = 1) -> None:
        """A kernel of the name `stem`; together: blocks of it that a multiprocessor must have registers for at once."""
        body = self._filled(text)
        bounds = f"{threads}, {together}" if together > 1 else f"{threads}"
        self.parts.append(f'extern "C" __global__ void __launch_bounds__({bounds}) {stem}_{PLACEHOLDER}(const Args a) {{\n{body}\n}}')
        self.stems.append(stem)

    def launch(self, stem: str, blocks: int, threads: int) -> None:
        """The next launch."""
        if not 0 < blocks < NARROW:
            raise NotImplementedError(f"a launch of {blocks} blocks")
        self.launches.append((stem, blocks, threads))

    def kernel(self, workspace: int = 0, nbytes: int = 0) -> Kernel:
        """What has been written."""
        text = f"struct Args {{ unsigned long long w[{len(self.arguments) + len(self.block)}]; }};\n" + "\n".join(self.parts) + "\n"
        tag = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        launches: tuple[Launch, ...] = tuple((f"{stem}_{tag}", (blocks, 1, 1), (threads, 1, 1), 0) for stem, blocks, threads in self.launches)
        return Kernel(text.replace(PLACEHOLDER, tag), launches, self.arguments, tuple(self.block), workspace, nbytes, 0)


def rows(w: Written, name: str, domain: Sequence[int], strides: Sequence[Sequence[int]], itemsizes: Sequence[int]) -> None:
    """Adds the function ``name(a, row, k)``: the byte offset of the row in operand k.  `strides` are in elements, over the domain."""
    axes = walk_axes(domain, strides, itemsizes, reorder=False)
    lines = ["int left = row;"]
    lines += [f"long long o{k} = 0;" for k in range(len(strides))]
    for at in range(len(axes) - 1, -1, -1):
        axis = axes[at]
        if at:
            lines += [f"const int rest{at} = left / {w.word(axis.size)};", f"const int c{at} = left - rest{at} * {w.word(axis.size)};", f"left = rest{at};"]
        else:
            lines.append("const int c0 = left;")
        lines += [f"o{k} += c{at} * {w.word(axis.strides[k], 'long long')};" for k in range(len(strides)) if axis.strides[k]]
    chosen = "".join(f"k == {k} ? o{k} : " for k in range(len(strides) - 1)) + f"o{len(strides) - 1}"
    w.add(f"__device__ __forceinline__ long long {name}(const Args& a, int row, int k) {{\n  " + "\n  ".join([*lines, f"return {chosen};"]) + "\n}")


class Within(Written):
    """Text by hand among a loop program's: the numbers of the launch are the program's too."""

    def __init__(self, w: Writer) -> None:
        super().__init__("")
        self.w = w

    def word(self, value: int, kind: str = "int") -> str:
        text = self.w.word(value)
        return f"(({kind}){text})" if kind != "long long" else f"({text})"


class Room:
    """Arrays one after another in the workspace, each aligned to 256 bytes."""

    def __init__(self, size: int = 0) -> None:
        self.size = size

    def array(self, nbytes: int) -> int:
        """Where an array of so many bytes begins."""
        at = self.size
        self.size += -(-nbytes // 256) * 256
        return at
