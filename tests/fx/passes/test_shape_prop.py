"""Shapes of a graph's values, by one run or by none."""

from __future__ import annotations

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.passes.shape_prop import ShapeProp


def test_shapes_on_any_device(device: str) -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))).to(device)
    ShapeProp(gm).propagate(torch.zeros(5, 3, 4, 4, device=device))
    assert [tuple(n.meta["tensor_meta"].shape) for n in gm.graph.nodes] == [(5, 3, 4, 4), (5, 4, 2, 2), (5, 16), (5, 2), (5, 2)]
    assert gm.graph.output_node().meta["type"] is torch.Tensor


def test_shapes_of_what_is_not_computed() -> None:
    with torch.device("meta"):
        gm = fx.symbolic_trace(nn.Linear(10**6, 10**5))
        ShapeProp(gm).propagate(torch.empty(7, 10**6))
    assert tuple(gm.graph.output_node().meta["tensor_meta"].shape) == (7, 10**5)


def test_parts_of_results() -> None:
    gm = fx.symbolic_trace(lambda x: (x.chunk(2), x.shape))
    ShapeProp(gm).propagate(torch.zeros(4, 3, dtype=torch.int64))
    told = {n.name: n.meta for n in gm.graph.nodes}
    assert [m.dtype for m in told["chunk"]["tensor_meta"]] == [torch.int64] * 2 and "tensor_meta" not in told["getattr_1"]
