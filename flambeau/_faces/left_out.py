"""Parts of PyTorch that Flambeau leaves out on purpose: importable, so that scripts which only name them run; any use says
what to do instead."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from flambeau.interop.stand_ins import LeftOut

INSTEAD = {
    "onnx": "save the state dict with flambeau.save and export it with PyTorch, which loads the same file",
    "quantization": "use flambeau.autocast or .to(flambeau.bfloat16) for a smaller type",
    "ao": "use flambeau.autocast or .to(flambeau.bfloat16) for a smaller type",
    "export": "save the state dict and keep the module's Python code",
    "package": "save the state dict and keep the module's Python code",
}


# questions that programs ask of what is left out, and the answers
_ANSWERS: dict[str, Any] = {"onnx.is_in_onnx_export": lambda: False}


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        answer = _ANSWERS.get(f"{self.__name__.partition('.')[2]}.{name}")
        if answer is not None:
            return answer
        raise LeftOut(f"torch.{self.__name__.partition('.')[2]}.{name}: Flambeau leaves torch.{self.__name__.partition('.')[2]} out; "
                      f"{INSTEAD[self.__name__.split('.')[1]]}")


def module(name: str) -> ModuleType:
    """The stand-in for `flambeau.<name>`."""
    made = _Module(f"flambeau.{name}", f"Left out: {INSTEAD[name]}.")
    made.__path__ = []
    return made
