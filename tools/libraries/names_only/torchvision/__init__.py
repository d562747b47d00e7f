"""Names of torchvision that timm and open_clip import, for a real torch that no torchvision fits: each is an empty class, and the programs
run none of them."""

import importlib.abc
import importlib.machinery
import sys
import types


class _Names(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("torchvision.") else None

    def create_module(self, spec):
        made = types.ModuleType(spec.name)

        def __getattr__(name):
            if name.startswith("__"):
                raise AttributeError(name)
            value = type(name, (), {"BILINEAR": 2, "BICUBIC": 3, "NEAREST": 0, "LANCZOS": 1, "BOX": 4, "HAMMING": 5, "__init__": lambda self, *a, **k: None})
            setattr(made, name, value)
            return value
        made.__getattr__ = __getattr__
        return made

    def exec_module(self, module):
        pass


sys.meta_path.append(_Names())
