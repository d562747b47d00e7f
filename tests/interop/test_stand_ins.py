"""Names that are never instances of anything, and say so."""

from __future__ import annotations

import abc
import sys

import pytest

import flambeau as torch
from flambeau import distributed
from flambeau.distributed.stand_ins import MODULES, OWN
from flambeau.interop import stand_ins


def test_a_class_is_never_made() -> None:
    from flambeau.distributed import rpc
    kind = rpc.RRef
    assert isinstance(kind, type) and not isinstance(torch.ones(1), kind) and not issubclass(torch.Tensor, kind)
    assert (kind | None) is not None and kind[int] is kind
    with pytest.raises(NotImplementedError, match="torch.distributed.rpc.RRef: this kind of work over several processes"):
        kind(1)
    with pytest.raises(NotImplementedError, match="RRef.to_here"):
        kind.to_here(torch.ones(1))
    assert not hasattr(kind, "to_here")  # a probe is answered

    class Mine(kind, abc.ABC):
        pass
    with pytest.raises(NotImplementedError, match="several processes"):
        Mine()


def test_functions_and_enumerations() -> None:
    with pytest.raises(NotImplementedError, match="torch.distributed.rpc.init_rpc"):
        distributed.rpc.init_rpc("worker")
    kinds = distributed.elastic.multiprocessing.Std
    assert kinds.NONE is not kinds.ALL


def test_every_row_is_there_once() -> None:
    for below, row in MODULES.items():
        module = sys.modules[f"flambeau.distributed.{below}"]
        for word in row.split():
            assert hasattr(module, word.partition("[")[0].removesuffix("()")), (below, word)
    for word in OWN.split():
        assert hasattr(distributed, word.removesuffix("()"))
    from flambeau.distributed.tensor import parallel
    assert parallel.style.ColwiseParallel is parallel.ColwiseParallel
    assert distributed._composable.fsdp.FSDPModule is distributed.fsdp.FSDPModule and distributed._tensor.DTensor is distributed.tensor.DTensor


def test_what_is_only_a_value_is_real() -> None:
    from flambeau.distributed.tensor import Partial, Replicate, Shard
    from flambeau.distributed.tensor.placement_types import Placement, _StridedShard
    assert Shard(1) == Shard(1) != Shard(0) and Replicate() == Replicate() and isinstance(Partial(), Placement)
    assert Shard(1).is_shard(1) and not Shard(1).is_shard(0) and Replicate().is_replicate() and Partial("max").is_partial("max")
    assert _StridedShard(0, split_factor=2).is_shard()
    sizes = [len(piece) for piece in torch.arange(10).chunk(4)]
    assert [Shard.local_shard_size_and_offset(10, 4, r) for r in range(5)] == [(3, 0), (3, 3), (3, 6), (1, 9), (0, 10)] and sizes == [3, 3, 3, 1]
    assert distributed.ReduceOp.SUM is distributed.ReduceOp.RedOpType.SUM and isinstance(distributed.ReduceOp.MAX, distributed.ReduceOp.RedOpType)
    assert distributed.constants.default_pg_timeout.total_seconds() == 1800 and not distributed.rpc.is_available()
    assert distributed.elastic.multiprocessing.errors.record(len) is len


def test_a_row_makes_what_its_words_say() -> None:
    made = stand_ins.names("flambeau.place", "One two() Three[A,B]", "it is far away")
    assert list(made) == ["One", "two", "Three"] and [m.name for m in made["Three"]] == ["A", "B"]
    with pytest.raises(stand_ins.NotHere, match="torch.place.two: it is far away"):
        made["two"](1, b=2)


def test_inner_names_that_trainers_and_checkpoints_import() -> None:
    """Composer's, litgpt's, hivemind's, spikingjelly's."""
    from flambeau.distributed.checkpoint.planner import LoadPlan
    from flambeau.distributed.checkpoint.storage import StorageReader
    from flambeau.distributed.checkpoint.utils import CheckpointException
    from flambeau.distributed.fsdp._flat_param import FlatParamHandle
    assert CheckpointException is torch.distributed.checkpoint.CheckpointException
    for kind in (LoadPlan, StorageReader, FlatParamHandle):
        assert not isinstance(1, kind)
        with pytest.raises(NotImplementedError, match="is not here"):
            kind()
    from flambeau._subclasses.fake_tensor import unset_fake_temporarily
    from flambeau.serialization import normalize_storage_type
    with unset_fake_temporarily():
        assert normalize_storage_type(torch.LongStorage) is torch.LongStorage
