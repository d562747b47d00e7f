"""prefetch: batches on the device before they are asked for."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import flambeau
from flambeau.data import DataLoader, Dataset, prefetch
from flambeau.nn.utils.rnn import pack_padded_sequence

Pair = namedtuple("Pair", "image name")


class Items(Dataset):
    def __init__(self, fail=None):
        self.fail, self.made = fail, []

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == self.fail:
            raise ValueError(f"item {i} is bad")
        self.made.append(i)
        return {"pair": Pair(flambeau.full((500,), float(i)), f"name{i}"), "more": [i, (float(i), np.float32(i))]}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_batches_arrive_whole_and_in_order(device, workers, pin):
    if device == "cpu" and pin:
        pytest.skip("nothing to pin for")
    loader = prefetch(DataLoader(Items(), batch_size=2, num_workers=workers, pin_memory=pin), device)
    assert len(loader) == 4
    for _ in range(2):
        seen = []
        for batch in loader:
            pair, (whole, parts) = batch["pair"], batch["more"]
            assert isinstance(pair, Pair) and pair.name == [f"name{i}" for i in whole.tolist()]
            assert {str(t.device) for t in (pair.image, whole, *parts)} == {device}
            seen.append((pair.image * 2).sum(1).tolist())  # a kernel on the current stream: it must wait for the copy
            assert parts[0].tolist() == whole.tolist() == parts[1].tolist()
        assert seen == [[1000.0 * i, 1000.0 * (i + 1)] for i in (0, 2, 4, 6)]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_how_far_it_reads_ahead(sim_gpus, depth):
    data = Items()
    batches = iter(prefetch(DataLoader(data), "cuda:1", depth=depth))
    for n in range(3):
        assert next(batches)["more"][0].tolist() == [n]
        assert data.made == list(range(n + depth))


def test_memory_is_not_reused_under_a_kernel_of_another_stream(monkeypatch):
    with flambeau.simulate(gpus=1, queue="lazy"):
        data = [flambeau.full((1000,), float(i)).pin_memory() for i in range(20)]
        sums, other, made = [], flambeau.cuda.Stream(), []
        real = flambeau.cuda.Stream
        monkeypatch.setattr(flambeau.cuda, "Stream", lambda *a: made.append(real(*a)) or made[-1])
        with flambeau.cuda.stream(other):
            for x in prefetch(data, "cuda", depth=2):
                made[0].synchronize()  # the copies hurry ahead of the kernels, which nothing has asked for yet
                sums.append(x.sum())
                del x
        other.synchronize()
        assert [s.item() for s in sums] == [1000.0 * i for i in range(20)]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_an_error_comes_in_its_place(sim_gpus, where):
    seen = []
    with pytest.raises(ValueError, match="item 3 is bad"):
        for batch in prefetch(DataLoader(Items(fail=3)), where, depth=3):
            seen.append(batch["more"][0].item())
    assert seen == [0, 1, 2]


def test_objects_that_can_be_moved(sim_gpus):
    packed = pack_padded_sequence(flambeau.arange(12.0).reshape(3, 4, 1), [3, 2, 2, 1])
    moved = next(iter(prefetch([packed], "cuda")))
    assert str(moved.data.device) == "cuda:0" and moved.data.flatten().tolist() == packed.data.flatten().tolist()
    assert next(iter(prefetch([["text", None, 3]], "cuda"))) == ["text", None, 3]


def test_bad_arguments():
    with pytest.raises(ValueError, match="depth is how many batches are kept ahead"):
        prefetch([], "cpu", depth=0)
    with pytest.raises(RuntimeError, match="device"):
        prefetch([], "nonsense")
    with pytest.raises(RuntimeError, match="no CUDA GPU is available"):
        list(prefetch([flambeau.ones(1)], "cuda"))
