"""Checkpoints: what comes back over other meshes, what an interrupted save leaves, what is refused; state by plain names."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.distributed import checkpoint as dcp
from flambeau.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

from ..ranks import checked, needs_mpi


def state() -> dict[str, object]:
    return {"a": torch.arange(6.0).view(2, 3), "deep": {"b": torch.ones(2, dtype=torch.bfloat16), "list": [torch.zeros(0), torch.tensor(True)]},
            "step": 7, "name": "x", "numbers": [1, 2]}


def test_one_process_alone(tmp_path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path)
    into = {"a": torch.zeros(2, 3), "deep": {"b": torch.zeros(2, dtype=torch.bfloat16), "list": [torch.ones(0), torch.tensor(False)]}, "step": 0,
            "name": "", "numbers": []}
    kept = into["a"]
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["a"] is kept and kept.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] and into["deep"]["b"].tolist() == [1.0, 1.0]
    assert bool(into["deep"]["list"][1]) and (into["step"], into["name"], into["numbers"]) == (7, "x", [1, 2])
    dcp_to_torch_save(tmp_path, tmp_path / "one.pt")
    assert torch.load(tmp_path / "one.pt", weights_only=False)["a"].equal(kept)
    torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "again")
    one = {"a": torch.zeros(2, 3)}
    dcp.load(one, storage_reader=dcp.FileSystemReader(tmp_path / "again"))
    assert one["a"].equal(kept)


def test_what_is_missing_or_of_another_size_is_told(tmp_path) -> None:
    dcp.save({"a": torch.zeros(2)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: b"):
        dcp.load({"b": torch.zeros(2)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="Size mismatch"):
        dcp.load({"a": torch.zeros(3)}, checkpoint_id=tmp_path)
    with pytest.raises(dcp.CheckpointException, match="FileNotFoundError"):
        dcp.load({"a": torch.zeros(2)}, checkpoint_id=tmp_path / "nowhere")
    dcp.load({"b": torch.zeros(2)}, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))


def test_a_save_that_is_cut_off_leaves_the_former(tmp_path, monkeypatch) -> None:
    from flambeau.distributed.checkpoint import files
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    for cut in range(2):  # before the pieces are there, before the metadata is
        count = [0]
        whole = files.put

        def put(path, parts, cut=cut, count=count, whole=whole) -> None:
            count[0] += 1
            if count[0] > cut:
                path.with_name(path.name + ".tmp").write_bytes(b"half")
                raise OSError("no room")
            whole(path, parts)
        monkeypatch.setattr(dcp, "put", put)
        with pytest.raises(dcp.CheckpointException, match="no room"):
            dcp.save({"a": torch.zeros(2)}, checkpoint_id=tmp_path)
        monkeypatch.setattr(dcp, "put", whole)
        into = {"a": torch.zeros(2)}
        dcp.load(into, checkpoint_id=tmp_path)
        assert into["a"].tolist() == [1.0, 1.0]
    dcp.save({"a": torch.full((2,), 3.0)}, checkpoint_id=tmp_path)
    assert len(list(tmp_path.glob("*.distcp*"))) == 1


def test_async_save_copies_first(tmp_path) -> None:
    t = torch.ones(3)
    done = dcp.async_save({"t": t}, checkpoint_id=tmp_path)
    t.zero_()
    done.result(60)
    into = {"t": torch.zeros(3)}
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["t"].tolist() == [1.0, 1.0, 1.0]


def test_state_by_plain_names_of_one_process() -> None:
    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        return model, torch.optim.AdamW(model.parameters(), 0.1 * (seed + 1))
    model, opt = made(0)
    model(torch.ones(1, 2)).sum().backward()
    opt.step()
    opt.zero_grad()
    for flat in (False, True):
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        m, o = get_state_dict(model, opt, options=options)
        assert ("state.0.weight.exp_avg" in o) == flat
        other, other_opt = made(1)
        set_state_dict(other, other_opt, model_state_dict=m, optim_state_dict=o, options=options)
        assert other[0].weight.equal(model[0].weight) and other_opt.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
        assert other_opt.state[other[0].weight]["exp_avg"].equal(opt.state[model[0].weight]["exp_avg"])


@needs_mpi
def test_pieces_of_four_are_read_otherwise(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate, distribute_tensor
square, line = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), init_device_mesh("cpu", (4,))
whole = torch.arange(35.0).view(5, 7)
layouts = [(square, (Shard(0), Shard(1))), (square, (Shard(0), Shard(0))), (square, (Replicate(), Shard(1))), (line, (Shard(1),)), (line, (Replicate(),))]
for k, (mesh, placed) in enumerate(layouts):
    save = dcp.save if k % 2 else lambda *a, **b: dcp.async_save(*a, **b).result(60)
    save({"x": distribute_tensor(whole, mesh, placed), "y": whole + dist.get_rank()}, checkpoint_id="kept")
    dist.barrier()
    for other, wanted in layouts:
        into = {"x": distribute_tensor(torch.zeros(5, 7), other, wanted), "y": torch.zeros(5, 7)}
        dcp.load(into, checkpoint_id="kept")
        assert into["x"].full_tensor().equal(whole) and into["y"].equal(whole), (placed, wanted)
    dist.barrier()
try:
    dcp.save({"x": (lambda: 1) if dist.get_rank() == 0 else 1}, checkpoint_id="kept")
except dcp.CheckpointException as error:
    assert list(error.failures) == [0]
else:
    raise AssertionError
print("read", dist.get_rank())
""", 4)
    assert out.count("read") == 4


def test_async_save_tells_of_the_copy_where_the_stager_is_asked_to(tmp_path) -> None:
    from flambeau.distributed.checkpoint.staging import DefaultStager, StagingOptions
    state = {"w": torch.ones(3)}
    told = dcp.async_save(state, checkpoint_id=tmp_path / "a", async_stager=DefaultStager(StagingOptions(True, True, True, True)))
    assert isinstance(told, dcp.AsyncSaveResponse) and told.staging_completion.result(10) is None
    state["w"].zero_()
    told.upload_completion.result(10)
    read = {"w": torch.zeros(3)}
    dcp.load(read, checkpoint_id=tmp_path / "a")
    assert read["w"].tolist() == [1.0, 1.0, 1.0]
    assert not isinstance(dcp.async_save(state, checkpoint_id=tmp_path / "b", async_stager=DefaultStager(StagingOptions(use_async_staging=False))),
                          dcp.AsyncSaveResponse)


def test_all_that_is_there_is_read_without_being_asked_for_by_shape(tmp_path) -> None:
    from flambeau.distributed.checkpoint import _load_state_dict_from_keys
    from flambeau.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
    dcp.save({"model": {"a.b": torch.arange(3.0), "c": torch.ones(2, dtype=torch.bool)}, "step": 7, "of": {"model": torch.zeros(1)}}, checkpoint_id=tmp_path)
    everything: dict = {}
    dcp.load(everything, storage_reader=dcp.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    assert everything["model"]["a.b"].tolist() == [0.0, 1.0, 2.0] and everything["model"]["c"].dtype == torch.bool
    assert everything["step"] == 7 and set(everything) == {"model", "step", "of"}
    assert set(_load_state_dict_from_keys("model", checkpoint_id=tmp_path)) == {"model"}
    some = _load_state_dict_from_keys({"model.c", "step"}, checkpoint_id=tmp_path)
    assert set(some) == {"model", "step"} and set(some["model"]) == {"c"}


@needs_mpi
def test_what_only_some_processes_have_is_saved(tmp_path) -> None:
    out = checked(tmp_path, """
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cpu", (3, 1), mesh_dim_names=("pp", "dp"))
rank = dist.get_rank()
def state(value):
    return {f"layers.{rank}.weight": torch.full((2, 3), float(value)),
            f"sharded.{rank}": distribute_tensor(torch.full((2,), value + 0.5), mesh["dp"], [Shard(0)]),
            "data": {f"rank_{rank}": {"at": int(value)}}, "same": value if rank else 10, "both": torch.tensor([value if rank else 10.0])}
dcp.save(state(rank + 1), checkpoint_id="kept")
read = state(0)
dcp.load(read, checkpoint_id="kept")
assert read[f"layers.{rank}.weight"].tolist() == [[rank + 1.0] * 3] * 2 and read[f"sharded.{rank}"].full_tensor().tolist() == [rank + 1.5] * 2
assert read["data"] == {f"rank_{rank}": {"at": rank + 1}} and read["same"] == 10 and read["both"].tolist() == [10.0]
every = {f"layers.{k}.weight": torch.zeros(2, 3) for k in range(3)}
dcp.load(every, checkpoint_id="kept")
assert [every[f"layers.{k}.weight"][0, 0].item() for k in range(3)] == [1.0, 2.0, 3.0]
dcp.async_save(state(rank + 5), checkpoint_id="later").result(30)
dcp.load(read, checkpoint_id="later")
assert read["data"] == {f"rank_{rank}": {"at": rank + 5}}
print("kept", rank)
""", 3)
    assert out.count("kept") == 3
