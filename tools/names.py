"""docs/names.md: for each public name of PyTorch, where it is here, or why it is not.

    python tools/names.py            writes the page: state and place of each name, found by looking it up in this package
    python tools/names.py --check    exits 1 when the page is not what the package says

The names are those of the page itself, with what an installed torch and a list of names in use add (``--torch``;
``--used ../shared/api_frequency.tsv``, whose tiers 1 and 2, and what five projects use, are marked as common).
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import flambeau  # noqa: E402
from flambeau.interop import stand_ins  # noqa: E402

INSTEAD: dict[str, str] = importlib.import_module("flambeau.left_out").INSTEAD

PAGE = ROOT / "docs" / "names.md"
# modules of torch whose public names are listed
MODULES = """torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn torch.nn.utils.parametrizations
 torch.optim torch.optim.lr_scheduler torch.autograd torch.autograd.functional torch.autograd.forward_ad torch.autograd.profiler torch.func torch.linalg
 torch.fft torch.special torch.distributions torch.sparse torch.utils.data torch.utils.checkpoint torch.utils.dlpack torch.utils.tensorboard torch.cuda
 torch.cuda.amp torch.amp torch.accelerator torch.cpu torch.backends torch.backends.cuda torch.backends.cudnn torch.backends.mps torch.random
 torch.multiprocessing torch.profiler torch.hub torch.overrides torch.signal.windows torch.masked torch.testing torch.distributed
 torch.serialization torch.types torch.storage torch.version torch.jit torch.compiler torch.library torch.onnx torch.fx torch.export
 torch.ao.quantization""".split()
# families left out on purpose: by the start of the name, with the reason
REASONS = {
    "torch.onnx": INSTEAD["onnx"], "torch.ao": INSTEAD["ao"], "torch.export": INSTEAD["export"],
    "torch.quantization": INSTEAD["quantization"], "torch.package": INSTEAD["package"],
    "torch.jit": "a script's decorators return the function unchanged; nothing is compiled ahead",
    "torch.library": "custom_op makes operations; there is no dispatcher or compiler to tell of them",
    "torch.distributed": "collectives, stores, DistributedDataParallel, DTensor, fully_shard, checkpoints are here; calls between processes (rpc) are not",
    "torch.xpu": "no such device", "torch.mps": "no such device", "torch.mtia": "no such device",
}
PATTERNS = {
    r"quantize|dequantize|q_scale|q_zero|q_per|qscheme|qint|quint|QInt|QUInt|fbgemm|fake_quant|int_repr|qparam|Quantized"
    r"|per_(tensor|channel)_(affine|symmetric)": INSTEAD["quantization"],
    r"mkldnn|miopen|cudnn_(?!sdp)|_xpu|xpu|_ipu|ipu|vulkan|hpu|hip|mtia|maia|_mps|mps_": "a device or library that is not here",
    r"float8|float4|uint[1-7]\b|int[1-7]\b|bits\d|complex32|ComplexHalf": "a type that is not here",
    r"jiterator|ScriptModule|ScriptFunction|jit|Jit|JIT": "a CUDA-only or scripted way to write kernels; flambeau.pointwise is ours",
    r"named|rename|align_to|align_as|refine_names|unflatten_names": "named axes, which PyTorch keeps as a prototype",
    r"^torch\.Tensor\.(to_sparse_bs|to_sparse_csc|bsr|ccol|row_indices)|sparse_bs|sparse_csc": "a sparse layout that is not here",
    r"nested|to_padded_tensor": "nested tensors are left out",
}
HEAD = """# Names

Every public name of PyTorch {version}, and where it is here. A name is **here** when it can be used under the same name after
`import flambeau as torch`; **left out** names say why, and fail with an error that says the same; **missing** ones are not there yet.
Names in bold are common: those most used in scripts and libraries on GitHub. Made by `make names`.

"""


def resolve(name: str) -> tuple[bool, Any]:
    """(whether a dotted name of torch is here, what it is)."""
    parts = name.split(".")[1:]
    found: Any = flambeau
    path = "flambeau"
    for part in parts:
        path += "." + part
        try:
            found = getattr(found, part)
        except (AttributeError, NotImplementedError, ImportError):
            if isinstance(found, type) and part in getattr(found, "__annotations__", {}):
                return True, None
            try:
                found = importlib.import_module(path)
            except ImportError:
                return False, None
    return type(found).__name__ != "_Module", found


def reason(name: str) -> str | None:
    """Why a name is left out on purpose; None when it is only missing."""
    for start, why in REASONS.items():
        if name == start or name.startswith(start + "."):
            return why
    for pattern, why in PATTERNS.items():
        if re.search(pattern, name):
            return why
    return None


def place(found: Any) -> str:
    """The module of ours in which a thing is defined."""
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, types.ModuleType):
        return found.__name__
    module = getattr(inspect.unwrap(found) if callable(found) and not isinstance(found, type) else found, "__module__", None)
    return module if isinstance(module, str) and module.startswith("flambeau") else ""


def of_torch() -> set[str]:
    """The public names of the torch that is installed."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    names = set()
    for module in MODULES:
        try:
            owner = torch.Tensor if module == "torch.Tensor" else importlib.import_module(module)
        except ImportError:
            continue
        listed = getattr(owner, "__all__", None)
        for n in dir(owner) if listed is None or module in ("torch", "torch.Tensor", "torch.nn.functional") else listed:
            value = getattr(owner, n, None)
            if n.startswith("_") or isinstance(value, types.ModuleType) or (listed is None and not _belongs(value, owner)):
                continue
            names.add(f"{module}.{n}")
    return names


def _belongs(value: Any, owner: Any) -> bool:
    if isinstance(owner, type) or isinstance(value, types.BuiltinFunctionType):
        return True
    module = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
    return str(module).startswith("torch") and not str(module).startswith(("torch._C._", "torch.utils._"))


def used(path: Path) -> dict[str, bool]:
    """Names in use from a table of them that are common: of tiers 1 and 2, or in five projects."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        _, tier, kind, name, projects, *_ = line.split("\t")
        name = f"torch.{name}" if name.startswith("Tensor.") else name
        if re.fullmatch(r"torch(\.[A-Za-z]\w*)+", name) and "absent" not in kind and (tier in ("1", "2") or int(projects) >= 5):
            found[name] = True
    return found


def of_page() -> tuple[dict[str, bool], str]:
    """The names the page has now, with whether they are common, and the version of PyTorch they are of."""
    if not PAGE.exists():
        return {}, "2.13.0"
    text = PAGE.read_text(encoding="utf-8")
    version = re.search(r"public name of PyTorch ([\d.]+\d)", text)
    rows = re.findall(r"^\| (\*\*)?`(torch\.[\w.]+)`", text, re.M)
    return {name: bool(bold) for bold, name in rows}, version.group(1) if version else "2.13.0"


def section(name: str) -> str:
    """The longest listed module that a name is in."""
    owner = name.rpartition(".")[0]
    while owner not in MODULES:
        owner = owner.rpartition(".")[0]
    return owner


def page(names: dict[str, bool], version: str) -> str:
    rows: dict[str, list[tuple[str, str, str]]] = {}
    counts: dict[str, list[int]] = {}
    for name in sorted(names):
        here, found = resolve(name)
        why = None if here else reason(name)
        if here and stand_ins.is_one(found):
            here, why = False, reason(name) or "there by its name only: never an instance of anything, and says so when it is called"
        state = "here" if here else "left out" if why else "missing"
        where = place(found) if here else why or ""
        rows.setdefault(section(name), []).append((f"**`{name}`**" if names[name] else f"`{name}`", state, f"`{where}`" if here and where else where))
        for key in (section(name), "common" if names[name] else "", "all"):
            if key:
                counts.setdefault(key, [0, 0, 0])[("here", "left out", "missing").index(state)] += 1
    out = [HEAD.format(version=version), "| family | here | left out | missing |\n|---|---|---|---|\n"]
    out.append("".join(f"| {k if k in ('all', 'common') else f'`{k}`'} | {a} | {b} | {c} |\n" for k, (a, b, c) in
                       ((k, counts[k]) for k in ("all", "common", *(m for m in MODULES if m in counts)) if k in counts)))
    for module in MODULES:
        if module in rows:
            out.append(f"\n## {module}\n\n| PyTorch | state | here in, or why not |\n|---|---|---|\n")
            out.append("".join(f"| {name} | {state} | {where} |\n" for name, state, where in rows[module]))
    return "".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--torch", action="store_true", help="take the names of the installed torch too")
    parser.add_argument("--used", type=Path, help="a table of names in use")
    options = parser.parse_args()
    names, version = of_page()
    if options.torch:
        import torch
        version = torch.__version__.partition("+")[0]
        for name in of_torch():
            names.setdefault(name, False)
    if options.used:
        names |= used(options.used)
    text = page(names, version)
    if options.check:
        stale = PAGE.read_text(encoding="utf-8") != text
        if stale:
            print("docs/names.md is not what the package says: run python tools/names.py")
        return 1 if stale else 0
    PAGE.write_text(text, encoding="utf-8")
    print(text.partition("## ")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
