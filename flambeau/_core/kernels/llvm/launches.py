"""A launch of generated code.

Code depends only on classes (is an inner stride 0, one element, or something else?); sizes and strides themselves are
parameters.  So a kernel once compiled serves every shape of its kind.
"""

from __future__ import annotations

from typing import Any


class Plan:
    """One launch of generated code.

    key: everything the code depends on besides the program; names: the code's functions; stages: (name, total, chunk);
    params: the parameter block; workspace: bytes the launch needs; parallel: whether to use the threads.
    """

    __slots__ = ("key", "names", "stages", "params", "workspace", "parallel")

    def __init__(self, key: tuple[Any, ...], names: tuple[str, ...], stages: list[tuple[str, int, int]],
                 params: list[int], workspace: int = 0, parallel: bool = False) -> None:
        self.key, self.names, self.stages, self.params = key, names, stages, params
        self.workspace, self.parallel = workspace, parallel
