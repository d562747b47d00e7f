"""One input followed through a model, layer by layer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._core.autograd.mode import no_grad
from .._core.tensor import Tensor
from ..nn.module import Module
from . import text
from .record import Trace, _described, _tensors
from .values import Sample

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from .stages import Described


class Layer:
    """One call of one module.

    name: its path in the model, "" for the model itself.  type: its class.  depth: how deep it lies.  inputs and outputs:
    (shape, type, device) of tensors.  parameters: how many numbers it learns, those of its children included, each
    counted once in the whole model; own: only its own.  device: where its parameters lie, else where it answered.
    sample: first values of its output.  seconds: time of its stages, those of its children included; `predicted` on
    simulated GPUs.
    """

    __slots__ = ("name", "type", "depth", "leaf", "inputs", "outputs", "parameters", "own", "frozen", "device", "sample", "seconds",
                 "predicted", "_from")

    def __init__(self, name: str, module: Module, at: int) -> None:
        self.name, self.type = name, type(module).__name__
        self.depth = name.count(".") + 1 if name else 0
        self.leaf = not any(True for _ in module.children())
        self.inputs: list[Described] = []
        self.outputs: list[Described] = []
        everything = list(module.parameters())
        self.parameters = sum(p.numel() for p in everything)
        self.own = sum(p.numel() for p in module.parameters(recurse=False))
        self.frozen = sum(p.numel() for p in everything if not p.requires_grad)
        self.device = " + ".join(sorted({str(p.device) for p in everything}))
        self.sample: Sample | None = None
        self.seconds = 0.0
        self.predicted = False
        self._from = at

    @property
    def time(self) -> str:
        """Its time for people; empty where it had nothing to do, as with views."""
        return text.seconds(self.seconds, self.predicted) if self.seconds else ""

    def __repr__(self) -> str:
        return f"Layer({self.name or '(model)'}: {self.type} on {self.device}, {text.shapes(self.inputs)} -> {text.shapes(self.outputs)})"


class ModelTrace:
    """What `trace_model` found: `layers` in the order they were called, `output` of the model, `trace` of its stages."""

    def __init__(self, title: str, trace: Trace) -> None:
        self.title, self.trace = title, trace
        self.layers: list[Layer] = []
        self.output: Any = None
        self.parameters = self.trainable = self.nbytes = 0
        trace.models.append(self)

    def print(self, console: Console | None = None) -> None:
        """Prints the table of layers."""
        from rich.console import Console

        console = console or Console(highlight=False)
        fancy = (console.encoding or "").lower().startswith("utf")
        console.print(self.table(console.width, fancy))
        for line in self.remarks():
            console.print(line, style="dim", markup=False)

    def remarks(self) -> list[str]:
        """Totals, and which times are predicted."""
        frozen = self.parameters - self.trainable
        said = f"{self.parameters:,} parameters" + (f", {frozen:,} of them frozen" if frozen else "") + f"; {text.size(self.nbytes)}."
        used = {w.lane[0] for s in self.trace.stages for w in s.works}
        measured = any(not s.predicted for s in self.trace.stages)
        times = text.sentence(self.trace.devices, used, self.trace.predicted, measured)
        return [said, times] if times else [said]

    def table(self, width: int, fancy: bool = True) -> Table:
        """The layers as a rich table for a terminal `width` characters wide."""
        from rich.table import Table
        from rich.text import Text

        from .show import MIDDLE, WIDE, _glyphs
        made = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
        columns = ["layer", "device", "in -> out", "parameters", "values", "time"]
        if width < WIDE:
            columns.remove("values")
        if width < MIDDLE:
            columns.remove("device")
        for name in columns:
            right = name in ("parameters", "time")
            made.add_column(_glyphs(name, fancy), justify="right" if right else "left", no_wrap=right, overflow="fold")
        for layer in self.layers:
            cells = {
                "layer": "  " * layer.depth + (f"{layer.name.rpartition('.')[2]}: " if layer.name else "") + layer.type,
                "device": layer.device,
                "in -> out": f"{text.shapes(layer.inputs)} -> {text.shapes(layer.outputs)}",
                "parameters": f"{layer.parameters:,}" if layer.parameters else "",
                "values": text.values(layer.sample) if layer.sample is not None and layer.leaf else "",
                "time": layer.time,
            }
            if width < WIDE and cells["values"]:
                cells["in -> out"] += "\n" + cells["values"]
            if width < MIDDLE and layer.device:
                cells["layer"] += f"\n{'  ' * layer.depth}{layer.device}"
            made.add_row(*[Text(_glyphs(cells[c], fancy), style="" if layer.leaf else "bold") for c in columns])
        return made

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the page, or trace events; see `Trace.save`."""
        return self.trace.save(path)

    def _repr_html_(self) -> str:
        """In a notebook: the page, in a frame of its own."""
        return self.trace._repr_html_()

    def __repr__(self) -> str:
        return f"<flambeau.trace_model: {len(self.layers)} layers, {self.parameters:,} parameters>"


def trace_model(model: Module, *inputs: Any, title: str = "", **keywords: Any) -> ModelTrace:
    """Runs `model` once on `inputs`, without recording gradients, and tells of each layer: device, shapes, parameters, values,
    time.

    inputs, keywords: what the model is called with.  The model's mode (train or eval) is left as it is.  A layer called
    twice is listed twice.  Print the result, or save it as a page.  Raises TypeError for what is no module, and whatever
    the model raises.
    """
    if not isinstance(model, Module):
        raise TypeError(f"trace_model: argument 'model' must be a Module, not {type(model).__name__}")
    trace = Trace(title or f"{type(model).__name__}, layer by layer")
    found = ModelTrace(trace.title, trace)
    parameters = list(model.parameters())
    found.parameters = sum(p.numel() for p in parameters)
    found.trainable = sum(p.numel() for p in parameters if p.requires_grad)
    found.nbytes = sum(p.numel() * p.element_size() for p in parameters)
    names = {id(m): name for name, m in model.named_modules()}
    stack: list[Layer] = []

    def before(module: Any, args: Any, kwargs: Any) -> None:
        layer = Layer(names[id(module)], module, len(trace.stages))
        layer.inputs = [_described(t) for t in _tensors((*args, *kwargs.values()))]
        found.layers.append(layer)
        stack.append(layer)

    def after(module: Any, args: Any, output: Any) -> None:
        layer = stack.pop()
        outs = list(_tensors((output,) if not isinstance(output, dict) else output.values()))
        layer.outputs = [_described(t) for t in outs]
        layer.device = layer.device or (str(outs[0].device) if outs else "")
        if outs:
            layer.sample = _quiet_sample(trace, outs[0])
        stages = trace.stages[layer._from:]
        layer.seconds = sum(s.seconds or 0.0 for s in stages)
        layer.predicted = any(s.predicted for s in stages)

    handles = []
    try:
        for module in model.modules():
            handles += [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
        with trace, no_grad():
            found.output = model(*inputs, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _quiet_sample(trace: Trace, t: Tensor) -> Sample:
    trace._local.quiet += 1
    try:
        return Sample(t)
    finally:
        trace._local.quiet -= 1
