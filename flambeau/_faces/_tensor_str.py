"""How tensors print (torch._tensor_str): the options, for programs that read or change them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau._core.ops import printing
from flambeau._core.ops.printing import set_printoptions

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]


class _Options:
    """The options as attributes: `precision`, `threshold`, `edgeitems`, `linewidth`, `sci_mode`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return printing._options[name]
        except KeyError:
            raise AttributeError(f"PRINT_OPTS has no option {name!r}; it has {', '.join(printing._options)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self, name)  # raises for what is no option
        printing._options[name] = value


PRINT_OPTS = _Options()


def get_printoptions() -> dict[str, Any]:
    """The options that are set."""
    return dict(printing._options)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """A block in which `set_printoptions` has been called with `options`."""
    before = dict(printing._options)
    set_printoptions(**options)
    try:
        yield
    finally:
        printing._options.update(before)


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor, lines after the first indented."""
    return printing.body(self, indent)


def _str_intern(inp: Any, *, tensor_contents: str | None = None) -> str:
    """A tensor's text; tensor_contents: in the place of its numbers."""
    if tensor_contents is None:
        return printing.show(inp)
    return f"tensor({tensor_contents})"


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """`tensor_str` and its suffixes, on further lines where one is full."""
    lines = [tensor_str]
    used = len(tensor_str) - tensor_str.rfind("\n")
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > printing._options["linewidth"]:
            lines.append(",\n" + " " * indent + suffix)
            used, force_newline = indent + len(suffix), False
        else:
            lines.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(lines) + ")"
