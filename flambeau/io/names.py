"""The names that classes and functions go by in PyTorch's files, and what they mean here.

`torch_name` says under which name an object is written; `find` gives what a name means, for files that are trusted.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .._core import dtypes
from .._core.dtypes import dtype
from .._core.errors import FileFormatError
from .._core.layout import Size
from .._core.ops.memory_format import memory_format
from .._core.runtime.device import device
from .._core.tensor import Tensor

# element types that have a storage type; the others are written as bytes
STORAGES = {"FloatStorage": dtypes.float32, "DoubleStorage": dtypes.float64, "HalfStorage": dtypes.float16, "BFloat16Storage": dtypes.bfloat16,
            "LongStorage": dtypes.int64, "IntStorage": dtypes.int32, "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8,
            "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool_, "ComplexFloatStorage": dtypes.complex64,
            "ComplexDoubleStorage": dtypes.complex128}
STORAGE_OF = {d: name for name, d in STORAGES.items()}

_FILES = {"containers": "container", "attention": "activation", "state": "module"}
_FILE_OF = {"Flatten": "flatten", "Unflatten": "flatten", "Fold": "fold", "Unfold": "fold", "PixelShuffle": "pixelshuffle",
            "PixelUnshuffle": "pixelshuffle", "ChannelShuffle": "channelshuffle"}
_HERE = __name__.partition(".")[0]


class Named:
    """Stands in a pickle for a name that needs no object here."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is a name in a file")  # pickle asks that it can be called


def _layer_file(name: str, own: str) -> str:
    if own == "norm":
        return "batchnorm" if "BatchNorm" in name else "instancenorm" if "InstanceNorm" in name else "normalization"
    return _FILE_OF.get(name) or _FILES.get(own, own)


def _public(module: str) -> dict[str, Any]:
    """A module's contents, if it is loaded: what is not loaded has made no object."""
    found = sys.modules.get(f"{_HERE}.{module}")
    return vars(found) if found is not None else {}


def torch_name(obj: Any) -> tuple[str, str] | None:
    """(module, name) under which PyTorch has what `obj` is, or None for what only Flambeau or the program has."""
    if isinstance(obj, dtype | memory_format):
        return "torch", obj.name
    name = getattr(obj, "__name__", None)
    module = getattr(obj, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or module.partition(".")[0] != _HERE:
        return None
    if obj in (Tensor, Size, device, dtype):
        return "torch", name
    if _public("nn.parameter").get(name) is obj:
        return "torch.nn.parameter", name
    if isinstance(obj, type):
        if _public("nn").get(name) is obj or (module.startswith(f"{_HERE}.nn.") and _public(module.partition(".")[2]).get(name) is obj):
            return "torch.nn.modules." + _layer_file(name, module.rpartition(".")[2]), name
        if _public("optim.lr_scheduler").get(name) is obj:
            return "torch.optim.lr_scheduler", name
        if _public("optim").get(name) is obj:
            return f"torch.optim.{name.lower()}", name
        return None
    if _public("nn.functional").get(name) is obj:
        return "torch.nn.functional", name
    if getattr(sys.modules[_HERE], name, None) is obj:
        return "torch", name
    return None


def canonical(module: str, name: str) -> tuple[str, str]:
    """One spelling of a name for all the modules that PyTorch and Flambeau have a class in."""
    first, _, rest = module.partition(".")
    if first not in ("torch", _HERE):
        return {"__builtin__": "builtins"}.get(module, module), name
    if rest.startswith("nn.") and not rest.startswith(("nn.functional", "nn.init", "nn.utils")):
        rest = "nn"
    elif rest.startswith("optim."):
        rest = "optim.lr_scheduler" if rest == "optim.lr_scheduler" else "optim"
    return f"torch.{rest}" if rest else "torch", name


def names_of(obj: Any) -> set[tuple[str, str]]:
    """The names, in their one spelling, by which a file may ask for an object that was allowed."""
    given = torch_name(obj)
    names = {canonical(*given)} if given else set()
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if isinstance(name, str) and isinstance(getattr(obj, "__module__", None), str):
        names.add(canonical(obj.__module__, name))
    return names


def find(module: str, name: str) -> Any:
    """What a name of PyTorch's means here: for files that are trusted, since modules may be imported.

    Raises FileFormatError for what Flambeau does not have.
    """
    from . import rebuild
    if (module, name) in rebuild.TRUSTED:
        return rebuild.TRUSTED[module, name]
    if name in STORAGES:
        return Named("torch", name)
    place, _ = canonical(module, name)
    for path in (place, module):
        parts = path.split(".")
        while parts:
            try:
                found: Any = importlib.import_module(".".join([_HERE, *parts[1:]]))
                for part in name.split("."):
                    found = getattr(found, part)
                return found
            except (ImportError, AttributeError):
                parts.pop()
    raise FileFormatError(f"load: the file needs {module}.{name}, which Flambeau does not have")
