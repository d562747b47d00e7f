"""`torch` and its submodules as other names of Flambeau's, for one process.

A finder in front of all others answers for `torch`, `torch.*` and, where there is none, `torchvision`.  `torch` itself
is a module of its own in front of `flambeau`, so that it can have PyTorch's version; submodules are Flambeau's very own.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import packages
from .places import MOVED, OWN, WHOLE, called, elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# what scripts that ask for a version are told: that of the API
VERSION: str = importlib.import_module("flambeau.torch_version").TorchVersion(packages.VERSIONS["torch"])
_ALIAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alias")
_PLACES = {"torch": "flambeau", "torchvision": "flambeau.vision", "functorch": "flambeau.functorch"}


def target(name: str) -> str:
    """The name of the module that a module's name stands for: Flambeau's own for PyTorch's."""
    return _target(name) if name.partition(".")[0] in _PLACES else name


def _target(name: str) -> str:
    moved = MOVED.get(name)
    if moved is not None:
        return moved
    top, _, rest = name.partition(".")
    return _PLACES[top] + ("." + rest if rest else "")


class _Loader:
    """Gives the module of another name."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.kept: dict[str, Any] = {}

    def create_module(self, spec: Any) -> ModuleType:
        if spec.name == "torch":
            return _front()
        if spec.name == "torch.version":
            return _versions()
        found = sys.modules.get(self.target) or importlib.import_module(self.target)
        # the import system writes these on a module it loads; they are put back below
        self.kept = {k: getattr(found, k, None) for k in ("__spec__", "__loader__", "__package__", "__path__")}
        return found

    def exec_module(self, module: ModuleType) -> None:
        for k, v in self.kept.items():
            if v is not None:
                setattr(module, k, v)
        teach(module)
        _keep_shadowed(module)
        if module.__name__ in WHOLE:
            whole(module)


class Finder:
    """The entry of `sys.meta_path`."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top not in _PLACES or (top == "torchvision" and _real_torchvision()):
            return None
        to = _target(name)
        package, _, last = to.rpartition(".")
        if name != "torch" and ((name not in MOVED and last in OWN.get(package, ()) and top == "torch") or not _exists(to)):
            from .missing import no_module
            raise no_module(name)
        spec = importlib.machinery.ModuleSpec(name, _Loader(to), origin="flambeau", is_package=True)  # type: ignore[arg-type]
        return spec

    def find_distributions(self, context: Any = None) -> Iterator[packages.Package]:
        """What `importlib.metadata` finds here, before any folder: the packages that mean Flambeau."""
        tops = [top for top in ("torch", "torchvision") if top == "torch" or not _real_torchvision()]
        return packages.found(getattr(context, "name", None), tops)

    def invalidate_caches(self) -> None:
        """Part of the protocol of finders; nothing is kept."""


_finder = Finder()
_looking = False


def _real_torchvision() -> bool:
    global _looking
    if _looking:
        return True
    _looking = True
    try:
        # one made for the real torch cannot work on this one; an installed one is used only if it is told to
        return os.environ.get("FLAMBEAU_TORCHVISION") == "installed" and importlib.util.find_spec("torchvision") is not None
    finally:
        _looking = False


def _exists(module: str) -> bool:
    flambeau: Any = importlib.import_module("flambeau")
    first = module.split(".")[1] if "." in module else ""
    if first in flambeau._LEFT_OUT:
        return _left_out(module, getattr(flambeau, first))
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _left_out(module: str, top: ModuleType) -> bool:
    """Whether it is a module below one that is left out; then it is made, in sys.modules from now on."""
    left_out = importlib.import_module("flambeau.left_out")
    parts, at = module.split(".")[1:], top
    if len(parts) > 1 and ".".join(parts) not in left_out.BELOW:
        return False
    for end in range(2, len(parts) + 1):
        name = "flambeau." + ".".join(parts[:end])
        if name not in sys.modules:
            sys.modules[name] = vars(at)[parts[end - 1]] = left_out.module(name.partition(".")[2])
        at = sys.modules[name]
    return True


def whole(module: ModuleType) -> None:
    """Loads what a module loads at first use: libraries go through ``vars(torch.distributions)``."""
    for name in getattr(module, "__all__", ()):
        if name not in vars(module):
            vars(module)[name] = getattr(module, name)


def _keep_shadowed(module: ModuleType) -> None:
    """A function and a module of PyTorch's may have one name (`nn.parallel.replicate`): importing the module must leave the attribute the
    function, so such a module is put where `import` looks first."""
    known = called(module.__name__)
    for name in MOVED:
        parent, _, last = name.rpartition(".")
        if parent == known and callable(vars(module).get(last) or _lazily(module, last)):
            sys.modules.setdefault(name, importlib.import_module(MOVED[name]))


def _lazily(module: ModuleType, name: str) -> Any:
    """What a module loads at first use, asked of itself alone; None where it has no such name."""
    own = vars(module).get("_untaught", vars(module).get("__getattr__"))
    try:
        return own and own(name)
    except AttributeError:
        return None


def teach(module: ModuleType) -> None:
    """Has a module of Flambeau, and those it holds, say what is near when a name is not there."""
    if not module.__name__.startswith("flambeau.") or "_taught" in vars(module):
        return
    own = vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if own is not None:
            try:
                found = own(name)
            except AttributeError as error:
                if name.startswith("__") or type(error) is not AttributeError:
                    raise
            else:
                if isinstance(found, ModuleType):
                    teach(found)
                return found
        known = called(module.__name__)
        if name.startswith("__"):
            raise AttributeError(f"module '{known}' has no attribute '{name}'")
        if f"{known}.{name}" in MOVED:
            return importlib.import_module(f"{known}.{name}")
        for other in elsewhere(module.__name__, name):
            found = getattr(importlib.import_module(other), name, None)
            if found is not None:
                return found
        from .missing import no_attribute
        raise no_attribute(known, name, lambda: dir(module))

    held: Any = vars(module)
    held["_taught"], held["_untaught"] = True, own
    held["__getattr__"] = __getattr__
    for v in list(held.values()):
        if isinstance(v, ModuleType):
            teach(v)


def _front() -> ModuleType:
    """`torch`: what is set on it stays its own, all else is Flambeau's; what was found once is kept here."""
    import flambeau
    from flambeau._core.ops.memory_format import layout
    made = ModuleType("torch", flambeau.__doc__)

    def __getattr__(name: str) -> Any:
        try:
            if name in OWN["flambeau"]:
                raise AttributeError(name)
            found = getattr(flambeau, name)
        except AttributeError as error:
            if name.startswith("__") or type(error) is not AttributeError:
                raise
        else:
            if isinstance(found, ModuleType):
                teach(found)
                if found.__name__ in WHOLE:
                    whole(found)
            if name in vars(flambeau):
                setattr(made, name, found)
            return found
        if f"torch.{name}" in MOVED:
            return importlib.import_module(f"torch.{name}")
        from .missing import no_attribute
        raise no_attribute("torch", name, lambda: dir(flambeau))

    own: dict[str, Any] = {
        "__path__": list(flambeau.__path__), "__file__": flambeau.__file__, "__version__": VERSION,
        "__all__": [name for name in vars(flambeau)["__all__"] if name not in OWN["flambeau"]],
        "__getattr__": __getattr__, "__dir__": lambda: sorted({*vars(made), *dir(flambeau)} - OWN["flambeau"]), "_flambeau": True,
        "layout": layout,  # flambeau.layout is a module
        "version": _versions()}
    vars(made).update(own)
    return made


def _versions() -> ModuleType:
    """`torch.version`, of the API's version."""
    from flambeau import version
    made = sys.modules.get("torch.version")
    if made is None:
        made = ModuleType("torch.version", version.__doc__)
        vars(made).update({k: v for k, v in vars(version).items() if k not in ("__spec__", "__loader__", "__name__")})
        vars(made)["__version__"] = str(VERSION)
        sys.modules["torch.version"] = made
    return made


def find(name: str) -> ModuleType:
    """The module a script gets for a name."""
    return importlib.import_module(name)


def _say_tensors_are(package: str) -> None:
    """Names the package of tensors' classes: einsum's and arrays' libraries (opt_einsum, autoray) choose what computes by its first word."""
    from .._core.tensor import Tensor
    Tensor.__module__ = package
    if (loaded := sys.modules.get("flambeau.nn.parameter")) is not None:  # else it asks when it is loaded
        loaded.Parameter.__module__ = f"{package}.nn.parameter"


def install() -> None:
    """Makes `import torch` mean Flambeau from now on, in this process and in those it starts.

    Raises RuntimeError when the real torch was imported already.
    """
    if _finder in sys.meta_path:
        return
    there = sys.modules.get("torch")
    if there is not None and "_flambeau" not in vars(there):
        raise RuntimeError("torch was imported before: Flambeau cannot take its name any more")
    sys.meta_path.insert(0, _finder)
    _say_tensors_are("torch")
    sys.path.insert(1, _ALIAS)  # spawned children are given this path
    before = os.environ.get("PYTHONPATH")
    if _ALIAS not in (before or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = _ALIAS + (os.pathsep + before if before else "")


def uninstall() -> None:
    """Gives the names back; modules already imported stay with those who hold them."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        _say_tensors_are("flambeau")
    sys.path[:] = [p for p in sys.path if p != _ALIAS]
    for name in [n for n in sys.modules if n.partition(".")[0] in _PLACES]:
        del sys.modules[name]
    parts = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != _ALIAS]
    if parts:
        os.environ["PYTHONPATH"] = os.pathsep.join(parts)
    else:
        os.environ.pop("PYTHONPATH", None)


def installed() -> bool:
    """Whether `torch` means Flambeau in this process."""
    return _finder in sys.meta_path
