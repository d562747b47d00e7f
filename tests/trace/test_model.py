"""A model followed layer by layer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import flambeau as torch
from flambeau import nn


class TwoDevices(nn.Module):
    """A part on each device, one layer used twice, a view between."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4).to(first)
        self.b = nn.Linear(4, 2).to(second)
        self.second = second

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        x = self.a(self.a(x)) * scale
        return self.b(x.to(self.second))


def test_layers_with_device_shape_parameters_values_and_time(device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(5, 2, bias=False))).to(device)
    x = torch.ones(2, 3, device=device)
    found = torch.trace_model(model, x)
    assert [(layer.name, layer.type, layer.depth, layer.leaf) for layer in found.layers] == [
        ("", "Sequential", 0, False), ("0", "Linear", 1, True), ("1", "ReLU", 1, True), ("2", "Sequential", 1, False),
        ("2.0", "Flatten", 2, True), ("2.1", "Linear", 2, True)]
    assert [layer.parameters for layer in found.layers] == [30, 20, 0, 10, 0, 10]
    assert [layer.outputs[0][0] for layer in found.layers] == [(2, 2), (2, 5), (2, 5), (2, 2), (2, 5), (2, 2)]
    assert {layer.device for layer in found.layers} == {device}
    with torch.no_grad():
        want = model(x)
    assert found.layers[0].sample is not None and found.layers[0].sample.values == want.reshape(-1).tolist()
    assert found.output.tolist() == want.tolist() and not found.output.requires_grad
    assert (found.parameters, found.trainable, found.nbytes) == (30, 30, 120)
    assert found.layers[0].seconds >= found.layers[1].seconds > 0 == found.layers[4].seconds
    assert found.layers[0].predicted is (device != "cpu" and torch.cuda.get_device_properties(device).simulated)  # a real one's are measured
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_two_devices_a_layer_used_twice_and_keywords() -> None:
    with torch.simulate(gpus=2):
        found = torch.trace_model(TwoDevices("cuda:0", "cuda:1"), torch.ones(1, 4, device="cuda:0"), scale=2.0)
        assert [layer.name for layer in found.layers] == ["", "a", "a", "b"]
        assert [layer.device for layer in found.layers] == ["cuda:0 + cuda:1", "cuda:0", "cuda:0", "cuda:1"]
        assert found.parameters == 30 and len(found.trace.transfers()) == 1


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_shows_values_at_every_width(width: int) -> None:
    with torch.simulate(gpus=1):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to("cuda:0")
        model[0].weight.requires_grad_(False)
        with torch.no_grad():
            model[0].weight.copy_(torch.eye(2))
            model[0].bias.zero_()
        found = torch.trace_model(model, torch.tensor([[0.25, -1.5]], device="cuda:0"))
        shown = io.StringIO()
        found.print(Console(file=shown, width=width, highlight=False))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for part in ("0: Linear", "1: ReLU", "cuda:0", "0.25, -1.5", "0.25, 0", "6 parameters, 4 of them frozen; 24 B.", "predicted for NVIDIA H200"):
        assert part in shown.getvalue()


def test_the_page_and_errors(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    found = torch.trace_model(model, torch.ones(1, 3), title="One layer")
    page = Path(found.save(tmp_path / "model.html")).read_text("utf-8")
    assert "One layer" in page and "<b>Linear</b>" in page and "predicted" not in page.split("<style>")[0] + page.split("</style>")[1].split("<script")[0]
    with pytest.raises(TypeError, match="argument 'model' must be a Module, not str"):
        torch.trace_model("x")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        torch.trace_model(model, torch.ones(1, 4))
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert model.training
