"""The error for tensors on different devices in one operation: which argument lies where, where it came from, the cure.

Nothing here runs until an operation fails, so the arguments' names are read off the call stack rather than passed along.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from .. import hooks
from ..engine.operation import Operation
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_PACKAGE = __name__.split(".", 1)[0]
_MOST = 12  # arguments listed: a `cat` of thousands must stay readable


def mismatch(name: str, tensors: Sequence[Tensor], outs: Sequence[Tensor] = (), operands: Sequence[Any] = (),
             begins: str | None = None, labels: Sequence[str] = ()) -> RuntimeError:
    """The error, which names the operation, each argument with its device, shape and source line, and the cure.

    name: the operation, where the call stack does not show a better one.  tensors: those found to disagree.  outs: those
    of them that are written to, and so cannot be moved.  operands: all operands in their order, to name them by.  begins:
    the first sentence where PyTorch has another for this operation.  labels: names of `tensors` where the stack has none.
    """
    if labels:
        called, labelled = name, list(zip(labels, tensors, strict=True))
    else:
        called, labelled = _from_stack() or _from_table(name, operands or tensors) or (
            name, [(f"argument {i + 1}", t) for i, t in enumerate(tensors)])
    known = {id(t) for _, t in labelled}
    labelled = [("out", t) for t in outs if id(t) not in known] + labelled
    anchors = list(outs) or [t for _, t in labelled if t.meta.shape or t.meta.device.type != "cpu"] or [t for _, t in labelled]
    wanted = next((t.meta.device for t in anchors if t.meta.device.type != "cpu"), anchors[0].meta.device) if not outs else anchors[0].meta.device
    odd = [(label, t) for label, t in labelled if t.meta.device is not wanted and (t.meta.shape or t.meta.device.type != "cpu")]
    odd = odd or [(label, t) for label, t in labelled if t.meta.device is not wanted]
    other = odd[0][1].meta.device if odd else wanted
    text = begins or f"Expected all tensors to be on the same device, but found at least two devices, {wanted} and {other}!"
    text += f" (when checking argument for argument {odd[0][0] if odd else labelled[0][0]} in method {called})"
    error: Any = RuntimeError("\n".join([text, *_lines(labelled), _cure(odd, str(wanted))]))
    error.mixed_devices = True  # for who looks for such errors among others: the type is PyTorch's
    return error  # type: ignore[no-any-return]


def _lines(labelled: list[tuple[str, Tensor]]) -> list[str]:
    from ..runtime import provenance
    lines = []
    for label, t in labelled[:_MOST]:
        came = provenance.of(t)
        lines.append(f"  {label}: {t.meta.dtype} {list(t.meta.shape)} on {t.meta.device}" + (f", from {came}" if came else ""))
    if len(labelled) > _MOST:
        lines.append(f"  and {len(labelled) - _MOST} more")
    return lines


def _cure(odd: list[tuple[str, Tensor]], wanted: str) -> str:
    from ..runtime import provenance
    names = list(dict.fromkeys(label for label, _ in odd))
    cure = ", ".join(f"{n}.to('{wanted}')" for n in names[:4]) + (", ..." if len(names) > 4 else "")
    if odd and all(hasattr(type(t), "__deepcopy__") and type(t).__name__ in ("Parameter", "Buffer") for _, t in odd):
        cure += f"; being a module's, the whole module moves with module.to('{wanted}')"
    hint = "" if provenance.enabled() else " flambeau.provenance(True) makes tensors remember the line they came from."
    return f"To mend it: {cure}.{hint}"


# -------------------------------------------------------------------------------------------------- names of arguments
def _from_stack() -> tuple[str, list[tuple[str, Tensor]]] | None:
    """The operation the user called and its tensor arguments: the outermost operation whose arguments disagree."""
    best = strict = None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _inside(frame):
        name = _operation(frame)
        if name is not None:
            found = _arguments(frame)
            if len({t.meta.device for _, t in found if t.meta.shape or t.meta.device.type != "cpu"}) > 1:
                best = name, found
            elif len({t.meta.device for _, t in found}) > 1:
                strict = name, found  # an operation in which zero-dim tensors are no exception
        frame = frame.f_back
    return best or strict


def _inside(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return bool(module == _PACKAGE or module.startswith(_PACKAGE + "."))


def _operation(frame: FrameType) -> str | None:
    """The name of the operation whose public function a frame runs."""
    owner = getattr(frame.f_globals.get("enter"), "__self__", None)
    if not isinstance(owner, Operation) or not owner.runs(frame.f_code):
        return None
    return owner.name


def _arguments(frame: FrameType) -> list[tuple[str, Tensor]]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    found = []
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        if isinstance(value, Tensor):
            found.append((name, value))
        elif isinstance(value, (list, tuple)):
            found += [(f"{name}[{i}]", x) for i, x in enumerate(value) if isinstance(x, Tensor)]
    return found


def _from_table(name: str, operands: Sequence[Any]) -> tuple[str, list[tuple[str, Tensor]]] | None:
    """The names that the table's signature gives the operands, in their order."""
    rows = hooks.operations()
    row = rows.get(name) or rows.get(name.rstrip("_"))
    if row is None:
        return None
    names = [n.partition("=")[0].partition(":")[0].strip() for n in row.signature.strip("()").split(", ")]
    names = names[:names.index("*")] if "*" in names else names
    if len(names) < len(operands):
        return None
    return name, [(n, x) for n, x in zip(names, operands, strict=False) if isinstance(x, Tensor)]


hooks.provide(mismatch=mismatch)
