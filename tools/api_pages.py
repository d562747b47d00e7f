"""docs/api/*.md: every public name with its signature and docstring, a page a namespace.

    python tools/api_pages.py        writes the pages (`make docs` does; they are not kept)

A name without a docstring is counted and listed at the end of the run, so that it can be given one.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import flambeau  # noqa: E402
from flambeau._core.ops.table import TABLE  # noqa: E402

FOLDER = ROOT / "docs" / "api"
EXAMPLES = ROOT / "docs" / "examples.md"
# file, namespace, what stands above it
PAGES = (
    ("torch", "", "Functions, types and settings of the top namespace."), ("tensor", "Tensor", "Methods and attributes of `Tensor`."),
    ("nn", "nn", "Modules, parameters and containers."), ("nn-functional", "nn.functional", "What modules do, as functions."),
    ("nn-init", "nn.init", "Starting values."), ("nn-utils", "nn.utils", "Clipping, parametrizations, packed sequences."),
    ("optim", "optim", "Optimizers."), ("lr-scheduler", "optim.lr_scheduler", "Learning rates over time."),
    ("autograd", "autograd", "Gradients."), ("func", "func", "Function transforms."), ("linalg", "linalg", "Linear algebra."),
    ("fft", "fft", "Fourier transforms."), ("special", "special", "Special functions."), ("distributions", "distributions", "Probability."),
    ("sparse", "sparse", "Sparse tensors."), ("data", "utils.data", "Data sets and loaders."), ("checkpoint", "utils.checkpoint", "Memory for time."),
    ("cuda", "cuda", "GPUs: devices, streams, memory."), ("accelerator", "accelerator", "The current accelerator."), ("amp", "amp", "Mixed precision."),
    ("distributed", "distributed", "Several processes."), ("multiprocessing", "multiprocessing", "Shared tensors."),
    ("simulated", "simulated", "Simulated GPUs."), ("vision", "vision", "Pictures."), ("io", "io", "Files."), ("trace", "trace", "Timelines and pages."),
    ("prune", "nn.utils.prune", "Pruning."), ("attention", "nn.attention", "Attention's choices."),
    ("flex-attention", "nn.attention.flex_attention", "Attention by functions."), ("library", "library", "Operations of one's own."),
    ("overrides", "overrides", "Classes that answer for operations."), ("array-api", "interop.array_api", "The array API standard."),
    ("dlpack", "interop.dlpack", "Sharing memory by DLPack."), ("testing", "testing", "Comparing tensors."),
    ("rnn", "nn.utils.rnn", "Sequences of several lengths."), ("parametrizations", "nn.utils.parametrizations", "Weights that follow from others."),
    ("parametrize", "nn.utils.parametrize", "Parametrizations of one's own."), ("stateless", "nn.utils.stateless", "Modules with other parameters."),
    ("swa-utils", "optim.swa_utils", "Averages of weights."), ("autograd-functional", "autograd.functional", "Jacobians and Hessians."),
    ("profiler", "profiler", "What a stretch of program called, and how long it took."), ("fx", "fx", "Programs as graphs."),
    ("compiler", "compiler", "Settings of `compile`."), ("jit", "jit", "Names of TorchScript."), ("hub", "hub", "Models of a folder."),
    ("masked", "masked", "Reductions under a mask."), ("windows", "signal.windows", "Windows of signals."), ("random", "random", "Random numbers."),
    ("serialization", "serialization", "How files are read and written."), ("backends-cuda", "backends.cuda", "Settings of GPUs."),
    ("cuda-memory", "cuda.memory", "Memory of GPUs."), ("nvtx", "cuda.nvtx", "Ranges for NVIDIA's profilers."), ("cpu", "cpu", "The CPU as a device."),
    ("dtensor", "distributed.tensor", "Tensors in parts."), ("fsdp", "distributed.fsdp", "Parameters in parts."),
    ("distributed-checkpoint", "distributed.checkpoint", "Files of many processes."), ("pipelining", "distributed.pipelining", "Layers on several processes."),
    ("benchmark", "utils.benchmark", "Timing programs."), ("tensorboard", "utils.tensorboard", "Curves for TensorBoard."),
    ("flop-counter", "utils.flop_counter", "Counting operations on numbers."),
)


class Example(NamedTuple):
    """A text that shows some names; `line`: how many lines of `EXAMPLES` stand above it."""

    names: tuple[str, ...]
    code: str
    line: int


def examples() -> dict[str, Example]:
    """What docs/examples.md has for each name."""
    text = EXAMPLES.read_text(encoding="utf-8")
    found: dict[str, Example] = {}
    for match in re.finditer(r"^## ([^\n]+)\n\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        names = tuple(match[1].split(", "))
        found |= dict.fromkeys(names, Example(names, match[2], text.count("\n", 0, match.start(2))))
    return found


class _Text:
    """An annotation that is kept as its text: shown without quotes, which a string's `repr` has."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("typing.", "")

    def __repr__(self) -> str:
        return self._text


def _unquoted(found: inspect.Signature) -> str:
    """A signature whose defaults stand as Python has them and whose annotations have no quotes."""
    def text(annotation: Any) -> Any:
        return _Text(annotation) if isinstance(annotation, str) else annotation
    parts = [p.replace(annotation=text(p.annotation)) for p in found.parameters.values()]
    return str(found.replace(parameters=parts, return_annotation=text(found.return_annotation))).replace("typing.", "")


def resolve(space: str) -> Any:
    if space == "Tensor":
        return flambeau.Tensor
    return importlib.import_module(f"flambeau.{space}" if space else "flambeau")


def members(owner: Any, space: str) -> list[tuple[str, Any]]:
    """The public names of a namespace and what they are, in order."""
    names = owner.__dict__ if isinstance(owner, type) else getattr(owner, "__all__", None) or [
        n for n in dir(owner) if not n.startswith("_")]
    found = []
    for name in sorted(set(names)):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(owner, name, None) if isinstance(owner, type) else getattr(owner, name, None)
        if value is None or inspect.ismodule(value) or (space and not isinstance(owner, type) and not _own(value, owner)):
            continue
        found.append((name, value))
    return found


def _own(value: Any, owner: Any) -> bool:
    return bool(str(getattr(value, "__module__", "")).startswith("flambeau"))


def signature(name: str, value: Any) -> str:
    """How a thing is called; its name alone for what is not."""
    row = next((r for r in TABLE.values() if r.pointwise is not None and value in (r.function, r.inplace)), None)
    if row is not None:
        text = row.signature if value is row.function else row.signature.replace(", *, out=None", "")
        return f"{name}{text}"
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if not callable(value):
        return name
    try:
        text = _unquoted(inspect.signature(value))
    except (TypeError, ValueError):
        return f"{name}(...)"
    return f"{name}{text}"


def text_of(value: Any) -> str:
    """A thing's docstring as Markdown: parts such as `Args:` as lists."""
    target = value
    if isinstance(value, property):
        doc: str | None = inspect.cleandoc(value.__doc__ or "")
    else:
        doc = inspect.getdoc(target) if callable(target) or isinstance(target, (staticmethod, classmethod)) or isinstance(target, type) else None
    if not doc or (not isinstance(target, type) and doc == inspect.getdoc(type(target)) and not type(target).__module__.startswith("flambeau")):
        return ""
    lines = []
    inside = False
    for line in doc.splitlines():
        head = re.fullmatch(r"(Args|Arguments|Returns|Raises|Shapes?|Note):", line.strip())
        if head:
            inside = True
            lines += ["", f"**{head.group(1)}**", ""]
        elif inside and re.match(r"    \S", line):
            lines.append(re.sub(r"^    (\*{0,2}\w[\w, ]*):", r"- `\1`:", line) if re.match(r"    \*{0,2}\w[\w, ]*:", line) else "- " + line.strip())
        else:
            inside = inside and (not line.strip() or line.startswith("     "))
            lines.append(line)
    return re.sub(r"``([^`]+)``", r"`\1`", "\n".join(lines)).replace("<", "&lt;") if "```" not in doc else doc


def page(title: str, space: str, about: str) -> tuple[str, int, list[str]]:
    """(the page, how many names, those without a docstring)."""
    owner = resolve(space)
    shown = "torch" + (f".{space}" if space else "")
    out = [f"# {shown}\n\n{about}\n"]
    bare = []
    found, shows = members(owner, space), examples()
    for name, value in found:
        text = text_of(value)
        if not text and (callable(value) or isinstance(value, property)):
            bare.append(f"{shown}.{name}")
        if not text and not callable(value) and not isinstance(value, property):
            text = f"`{value!r}`" if len(repr(value)) < 80 else ""
        example = shows.get(f"Tensor.{name}" if space == "Tensor" else f"{shown}.{name}")
        more = f"\n\n**Example**\n\n```python\n{example.code}```" if example is not None else ""
        out.append(f"\n## {name}\n\n```python\n{signature(name, value)}\n```\n\n{text}{more}\n")
    return "".join(out), len(found), bare


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    index = ["# API\n\nEvery public name, by namespace; `torch` stands for `flambeau`, as in `import flambeau as torch`.\n\n"]
    total, bare = 0, []
    for title, space, about in PAGES:
        text, count, without = page(title, space, about)
        (FOLDER / f"{title}.md").write_text(text, encoding="utf-8")
        index.append(f"- [torch{'.' + space if space else ''}]({title}.md): {about} {count} names.\n")
        total += count
        bare += without
    (FOLDER / "index.md").write_text("".join(index), encoding="utf-8")
    print(f"{total} names on {len(PAGES)} pages in docs/api; {len(bare)} have no docstring")
    if "--bare" in sys.argv:
        print("\n".join(bare))
    return 0


if __name__ == "__main__":
    sys.exit(main())
