"""Meshes: groups along each axis, slices, flattened axes, and what is refused."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import distributed as dist
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh

from .ranks import checked, needs_mpi


@needs_mpi
def test_groups_and_slices_of_a_square(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
rank = dist.get_rank()
assert mesh.shape == (2, 2) and mesh.ndim == 2 and mesh.size() == 4 and mesh.size(1) == 2 and mesh.get_coordinate() == (rank // 2, rank % 2)
assert mesh.mesh.tolist() == [[0, 1], [2, 3]] and mesh.mesh_dim_names == ("dp", "tp") and mesh.device_type == "cpu"
assert dist.get_process_group_ranks(mesh.get_group("tp")) == [rank // 2 * 2, rank // 2 * 2 + 1]
assert dist.get_process_group_ranks(mesh["dp"].get_group()) == [rank % 2, rank % 2 + 2]
assert mesh["tp"].mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1] and mesh["tp"].get_local_rank() == rank % 2 == mesh.get_local_rank("tp")
assert mesh["dp", "tp"] == mesh and mesh["tp"] == mesh["tp"] != mesh["dp"] and len(mesh.get_all_groups()) == 2
t = torch.tensor([rank + 1.0]); dist.all_reduce(t, group=mesh.get_group("dp"))
assert t.item() == [4.0, 6.0, 4.0, 6.0][rank]
whole = mesh["dp", "tp"]._flatten("all")
assert whole.shape == (4,) and mesh["all"] is whole
cube = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
flat = cube["dp", "tp"]._flatten()
assert cube["dp_tp"].mesh.tolist() == [0, 1, 2, 3] and dist.get_world_size(flat.get_group()) == 4
part = DeviceMesh("cpu", [3, 1])
assert part.get_coordinate() == {3: (0,), 1: (1,)}.get(rank)
assert DeviceMesh.from_group(mesh.get_group("tp"), "cpu").mesh.tolist() == mesh["tp"].mesh.tolist()
for wrong, kind in ((lambda: mesh["pp"], KeyError), (lambda: mesh["tp", "dp"], KeyError), (lambda: mesh.get_group(), RuntimeError),
                    (lambda: mesh.get_local_rank(), RuntimeError), (lambda: DeviceMesh("cpu", range(8)), RuntimeError)):
    try:
        wrong()
    except kind:
        continue
    raise AssertionError(kind)
print("meshed", rank)
""", 4)
    assert out.count("meshed") == 4


@needs_mpi
def test_an_axis_is_cut_and_meshes_are_joined(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
world = init_device_mesh("cpu", (4,), mesh_dim_names=("world",))
rank = dist.get_rank()
data = world._unflatten(0, (1, 2, 2), ("pp", "batch", "tp"), backend_override={"pp": "fake"})
assert data.shape == (1, 2, 2) and data.mesh_dim_names == ("pp", "batch", "tp") and data.mesh.tolist() == [[[0, 1], [2, 3]]]
assert data["tp"].mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1] and data["batch"].mesh.tolist() == [rank % 2, rank % 2 + 2]
assert data.get_local_rank("batch") == rank // 2 and data["pp"].size() == 1 and dist.get_world_size(data["pp"].get_group()) == 1
dense = world._unflatten("world", (2, 2), ("fsdp", "shard"))
assert dense["fsdp"].get_group() is data["batch"].get_group()                  # the same ranks are one group
both = DeviceMesh._concatenate([dense["fsdp"], data["tp"]])
assert both.mesh.tolist() == [[0, 1], [2, 3]] and both.mesh_dim_names == ("fsdp", "tp") and both.get_coordinate() == (rank // 2, rank % 2)
turned = DeviceMesh._concatenate([data["tp"], dense["fsdp"]])
assert turned.mesh.tolist() == [[0, 2], [1, 3]]
flat = turned._flatten("turned")
assert flat.mesh.tolist() == [0, 2, 1, 3] and dist.get_process_group_ranks(flat.get_group()) == [0, 2, 1, 3]
loss = data["batch", "tp"]._flatten("loss")
assert loss.mesh.tolist() == [0, 1, 2, 3] and loss.get_group() is world.get_group()
again = loss._unflatten(0, (2, 2), ("a", "b"))
assert again["b"].get_group() is data["tp"].get_group()
t = torch.tensor([rank + 1.0]); dist.all_reduce(t, group=both["fsdp"].get_group())
assert t.item() == [4.0, 6.0, 4.0, 6.0][rank]
other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
for wrong, kind in ((lambda: world._unflatten(0, (3, 2), ("a", "b")), ValueError), (lambda: world._unflatten(0, (2, 2), ("a",)), ValueError),
                    (lambda: flat._unflatten(0, (2, 2), ("a", "b")), ValueError), (lambda: DeviceMesh._concatenate([data["tp"], dense["shard"]]), RuntimeError),
                    (lambda: DeviceMesh._concatenate([data["tp"], other["x"]]), RuntimeError)):
    try:
        wrong()
    except kind:
        continue
    raise AssertionError(kind)
print("cut", rank)
""", 4)
    assert out.count("cut") == 4


@pytest.fixture
def alone():
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_mesh_of_one_begins_the_default_group(alone) -> None:
    mesh = init_device_mesh("cpu", (1,))
    assert dist.is_initialized() and mesh.get_coordinate() == (0,) and repr(mesh) == "DeviceMesh((1,), 'cpu')"
    with mesh:
        d = dist.tensor.distribute_tensor(torch.arange(3.0), placements=[dist.tensor.Shard(0)])
    assert d.full_tensor().tolist() == [0.0, 1.0, 2.0] and (d + 1).sum().item() == 6.0
    with pytest.raises(RuntimeError, match="Cannot slice a DeviceMesh without"):
        mesh["tp"]


def test_what_is_refused() -> None:
    for wrong in (("cuda:0", (1,)), ("cpu", (1,), ("a", "b")), ("cpu", (1, 1), ("a", "a"))):
        with pytest.raises(RuntimeError):
            init_device_mesh(*wrong[:2], mesh_dim_names=wrong[2] if len(wrong) > 2 else None)
    assert not dist.is_initialized()
    assert DeviceMesh("cpu", [0, 1], _init_backend=False).shape == (2,)
