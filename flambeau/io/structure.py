"""Nested containers as JSON, with their tensors taken out, and back.

None, booleans, strings, integers and finite floats stand for themselves. Everything else is ``{"k": kind, ...}``;
`_KINDS` lists what can be read, and reading builds those types and no others.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..layout import Size
from ..runtime.device import device as Device
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "size": Size, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, Any] = {"dict": dict, "odict": OrderedDict, "counter": Counter, "namespace": None}
DEEPEST = 200


class Describer:
    """Describes one object; `tensors` collects what is to be stored, by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[Any, str] = {}
        self._kept: list[Any] = []
        self._inside: set[int] = set()

    def describe(self, value: Any, path: str) -> Any:
        """The JSON of `value`. Raises TypeError, naming the path, for a type that cannot be saved."""
        if value is None or type(value) in (bool, str, int):
            return value
        if isinstance(value, float) and type(value) is float:
            return value if math.isfinite(value) else {"k": "float", "v": repr(value)}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if id(value) in self._inside:
            raise ValueError(f"save: {path or 'the object'} contains itself")
        if len(self._inside) > DEEPEST:
            raise ValueError(f"save: {path!r:.80} is nested deeper than {DEEPEST} levels")
        self._inside.add(id(value))
        try:
            return self._other(value, path)
        finally:
            self._inside.discard(id(value))

    def _tensor(self, t: Tensor, path: str) -> dict[str, Any]:
        whole: Any = t
        key = (whole.data_ptr(), tuple(whole.shape), whole.stride(), whole.dtype, whole.device)
        name = self._names.get(key) if whole.numel() else None
        if name is None:
            name = path or "tensor"
            while name in self.tensors or name == "__metadata__":
                name += "'"
            self.tensors[name] = t
            self._names[key] = name
        made: dict[str, Any] = {"k": "tensor", "t": name}
        if whole.device.type != "cpu":
            made["device"] = str(whole.device)
        if whole.requires_grad:
            made["grad"] = True
        if type(t).__name__ == "Parameter":
            made["parameter"] = True
        return made

    def _other(self, value: Any, path: str) -> Any:
        def below(name: Any) -> str:
            return f"{path}.{name}" if path else str(name)

        kind = type(value)
        for name, made in _SEQUENCES.items():
            if kind is made:
                return {"k": name, "v": [self.describe(v, below(i)) for i, v in enumerate(value)]}
        if kind in (dict, OrderedDict, Counter, defaultdict):
            # A default factory is code, so a defaultdict comes back as a plain dictionary.
            name = "odict" if kind is OrderedDict else "counter" if kind is Counter else "dict"
            out = {"k": name, "v": [[self.describe(k, below("key")), self.describe(v, below(k))] for k,
                                    v in value.items()]}
            extra = getattr(value, "_metadata", None)
            if extra is not None:
                out["m"] = self.describe(extra, below("_metadata"))
            return out
        if kind.__module__ == "argparse" and kind.__qualname__ == "Namespace":
            return {"k": "namespace", "v": [[k, self.describe(v, below(k))] for k, v in vars(value).items()]}
        if isinstance(value, dtypes.dtype):
            return {"k": "dtype", "v": str(value).split(".")[-1]}
        if isinstance(value, Device):
            return {"k": "device", "v": str(value)}
        if kind is complex:
            return {"k": "complex", "v": [repr(value.real), repr(value.imag)]}
        if kind in (bytes, bytearray):
            return {"k": kind.__name__, "v": base64.b64encode(bytes(value)).decode()}
        if kind is slice or kind is range:
            return {"k": kind.__name__, "v": [self.describe(v, path) for v in (value.start, value.stop, value.step)]}
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"k": "number", "dtype": value.dtype.name, "v": base64.b64encode(value.tobytes()).decode()}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            packed = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
            return {"k": "array", "dtype": value.dtype.name, "shape": list(value.shape), "v": packed}
        if isinstance(value, bool | int | float | str):  # subclasses: enumerations, NumPy's floats
            return self.describe(next(t for t in (bool, int, float, str) if isinstance(value, t))(value), path)
        hint = "; save its state_dict() instead" if hasattr(value, "state_dict") else ""
        raise TypeError(f"save: {path or 'the object'} is of type {kind.__module__}.{kind.__qualname__}, which cannot "
                        f"be saved{hint}. Tensors, numbers, strings, None, bytes, dtypes, devices, NumPy arrays and "
                        "dicts, lists, tuples and sets of them can")


class Builder:
    """Builds an object from its JSON; `tensor(name, description)` supplies the tensors."""

    def __init__(self, tensor: Callable[[str, dict[str, Any]], Any], where: str) -> None:
        self.tensor = tensor
        self.where = where

    def fail(self, what: str) -> RuntimeError:
        """The error for a description that does not fit."""
        return RuntimeError(f"load: {self.where} is corrupt: {what}")

    def build(self, j: Any, depth: int = 0) -> Any:
        """The object. Raises RuntimeError for anything but what `Describer` writes."""
        if j is None or isinstance(j, bool | str | int | float):
            return j
        if depth > DEEPEST + 2:
            raise self.fail(f"its objects are nested deeper than {DEEPEST} levels")
        if not isinstance(j, dict) or not isinstance(j.get("k"), str):
            raise self.fail(f"{j!r:.100} describes no object")
        kind = j["k"]
        try:
            if kind == "tensor":
                if not isinstance(j.get("t"), str):
                    raise self.fail("a tensor has no name")
                return self.tensor(j["t"], j)
            if kind in _SEQUENCES:
                return _SEQUENCES[kind]([self.build(v, depth + 1) for v in j["v"]])
            if kind in _MAPPINGS:
                return self._mapping(kind, j, depth)
            return self._leaf(kind, j["v"], j)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.fail(f"a {kind!r:.30} cannot be built ({error})") from None

    def _mapping(self, kind: str, j: dict[str, Any], depth: int) -> Any:
        pairs = []
        for pair in j["v"]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise self.fail(f"{pair!r:.100} is no pair of key and value")
            pairs.append((self.build(pair[0], depth + 1), self.build(pair[1], depth + 1)))
        if kind == "namespace":
            import argparse

            return argparse.Namespace(**dict(pairs))
        made = _MAPPINGS[kind](dict(pairs)) if kind == "counter" else _MAPPINGS[kind](pairs)
        if "m" in j and kind == "odict":
            made._metadata = self.build(j["m"], depth + 1)
        return made

    def _leaf(self, kind: str, v: Any, j: dict[str, Any]) -> Any:
        if kind == "float":
            return float(v)
        if kind == "complex":
            return complex(float(v[0]), float(v[1]))
        if kind == "dtype":
            found = getattr(dtypes, "bool_" if v == "bool" else v, None)
            if not isinstance(found, dtypes.dtype):
                raise self.fail(f"{v!r:.50} is no dtype")
            return found
        if kind == "device":
            return Device(v)
        if kind in ("bytes", "bytearray"):
            raw = base64.b64decode(v, validate=True)
            return raw if kind == "bytes" else bytearray(raw)
        if kind in ("slice", "range"):
            parts = [self.build(p) for p in v]
            return slice(*parts) if kind == "slice" else range(*parts)
        if kind in ("number", "array"):
            dtype = np.dtype(j["dtype"])
            if dtype.kind not in "biufc":
                raise self.fail(f"{j['dtype']!r:.50} is no type of number")
            flat = np.frombuffer(base64.b64decode(v, validate=True), dtype)
            return flat[0] if kind == "number" else flat.reshape([int(n) for n in j["shape"]]).copy()
        raise self.fail(f"{kind!r:.30} is no kind of object")
