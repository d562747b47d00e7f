"""What programs allow files to hold, and whole modules and optimizers."""

from __future__ import annotations

import io
import pickle
import sys
import types

import pytest

import flambeau
from flambeau import nn, optim
from flambeau.io import names
from flambeau.serialization import (
    UnsafeFileError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)


class Net(nn.Module):
    """A model as programs write them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())])
        self.attend = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 1)
        self.rnn = nn.LSTM(4, 4)
        self.activate = flambeau.nn.functional.relu
        self.final = flambeau.tanh
        self.register_buffer("mask", flambeau.ones(4))
        self.shape = flambeau.Size([2, 3])

    def forward(self, x):
        x = self.embed(x) * self.mask
        for layer in self.layers:
            x = self.activate(layer(x))
        return self.final(self.rnn(self.attend(x.unsqueeze(0)))[0])


class Marked(flambeau.Tensor):
    """A tensor of a program's own class."""


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, 2


class Stateful:
    def __init__(self):
        self.a = 1

    def __getstate__(self):
        return {"a": self.a}

    def __setstate__(self, state):
        self.a, self.restored = state["a"], True


class Angry:
    def __init__(self, *args):
        raise KeyError("no")


def helper(x):
    return x + 1


ALL = [Net, nn.Embedding, nn.ModuleList, nn.Linear, nn.Sequential, nn.BatchNorm1d, nn.ReLU, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.LSTM,
       nn.modules.activation.MultiheadAttention, nn.modules.linear.NonDynamicallyQuantizableLinear, nn.Dropout, nn.LayerNorm,
       flambeau.nn.functional.relu, flambeau.tanh]


@pytest.fixture(autouse=True)
def nothing_allowed():
    clear_safe_globals()
    yield
    clear_safe_globals()


def _saved(value, **options):
    stream = io.BytesIO()
    flambeau.save(value, stream, **options)
    stream.seek(0)
    return stream


def _same(one, two):
    one.eval()
    two.eval()
    x = flambeau.tensor([1, 2, 6])
    assert one(x).tolist() == two(x).tolist()
    assert type(two.activate) is type(one.activate) and two.activate is one.activate and two.shape == (2, 3) and type(two.shape) is flambeau.Size
    assert list(two.state_dict()) == list(one.state_dict())


@pytest.mark.parametrize("protocol", [2, 5])
def test_whole_modules(protocol):
    net = Net()
    stream = _saved(net, pickle_protocol=protocol)
    missing = get_unsafe_globals_in_checkpoint(stream)
    assert f"{__name__}.Net" in missing and "torch.nn.modules.linear.Linear" in missing and "torch.nn.functional.relu" in missing
    stream.seek(0)
    with pytest.raises(UnsafeFileError, match="Net was not an allowed global by default.*add_safe_globals"):
        flambeau.load(stream)
    stream.seek(0)
    with safe_globals(ALL):
        assert get_unsafe_globals_in_checkpoint(stream) == []
        stream.seek(0)
        _same(net, flambeau.load(stream))
    assert get_safe_globals() == []
    stream.seek(0)
    _same(net, flambeau.load(stream, weights_only=False))


def test_module_and_optimizer_stay_together():
    net = Net()
    trainer = optim.Adam(net.parameters(), lr=0.1)
    net(flambeau.tensor([1, 2])).sum().backward()
    trainer.step()
    stream = _saved({"net": net, "trainer": trainer, "schedule": optim.lr_scheduler.StepLR(trainer, 3)})
    back = flambeau.load(stream, weights_only=False)
    assert back["trainer"].param_groups[0]["params"][0] is next(back["net"].parameters())
    assert back["schedule"].optimizer is back["trainer"]
    first = next(iter(trainer.state.values()))
    assert next(iter(back["trainer"].state.values()))["exp_avg"].tolist() == first["exp_avg"].tolist()
    back["net"](flambeau.tensor([1, 3])).sum().backward()
    back["trainer"].step()


def test_every_layer_has_a_name_in_files_that_finds_it_again():
    found = 0
    for space in (nn, optim, optim.lr_scheduler):
        for name, kind in vars(space).items():
            if isinstance(kind, type) and kind.__module__.startswith("flambeau.") and issubclass(kind, (nn.Module, optim.Optimizer)):
                written = names.torch_name(kind)
                assert written is not None and written[0].startswith("torch."), name
                assert names.find(*written) is kind and names.canonical(*written) in names.names_of(kind)
                found += 1
    assert found > 120


def test_allowed_functions_and_classes():
    add_safe_globals([Slotted, Stateful, helper])
    assert get_safe_globals() == [Slotted, Stateful, helper]
    add_safe_globals([helper])
    assert len(get_safe_globals()) == 3
    value = Stateful()
    value.a = 5
    back = flambeau.load(_saved([Slotted(), value, helper]))
    assert (back[0].a, back[0].b) == (1, 2) and back[1].restored and back[1].a == 5 and back[2] is helper
    with safe_globals([(Slotted, "old.place.Thing")]):
        old = pickle.dumps(Slotted(), 2).replace(f"{__name__}\nSlotted\n".encode(), b"old.place\nThing\n")
        from flambeau.io import safe
        from flambeau.io.unpickler import Unpickler
        assert type(Unpickler(old, None, safe.allowed_now()).load()) is Slotted
    with pytest.raises(TypeError, match="expected classes and functions"):
        add_safe_globals(["os.system"])
    with pytest.raises(TypeError, match="a pair must be"):
        add_safe_globals([(helper, 3)])


def test_tensors_of_a_class_of_their_own():
    t = flambeau.arange(3.0)
    t.__class__ = Marked
    t.note = [1]
    data = _saved([t]).getvalue()
    with pytest.raises(UnsafeFileError, match="Marked"):
        flambeau.load(io.BytesIO(data))
    with safe_globals([Marked]):
        for weights_only in (True, False):
            back = flambeau.load(io.BytesIO(data), weights_only=weights_only)
            assert type(back[0]) is Marked and back[0].note == [1] and back[0].tolist() == [0, 1, 2]
    assert type(pickle.loads(pickle.dumps(t))) is Marked


def test_a_class_that_is_allowed_allows_no_other():
    with safe_globals([Net]), pytest.raises(UnsafeFileError, match="torch.nn.modules"):
        flambeau.load(_saved(Net()))


def test_what_an_allowed_class_raises_is_told():
    class Call:
        def __reduce__(self):
            return Angry, ()

    with safe_globals([Angry]), pytest.raises(flambeau.errors.FileFormatError, match="Angry cannot be made"):
        flambeau.load(_saved(Call()))


def test_threads_see_what_was_allowed_when_they_load():
    from concurrent.futures import ThreadPoolExecutor
    data = _saved(Net()).getvalue()
    with safe_globals(ALL), ThreadPoolExecutor(4) as pool:
        for net in pool.map(lambda _: flambeau.load(io.BytesIO(data)), range(8)):
            assert isinstance(net, Net)


def test_names_of_torch_that_are_not_here():
    data = _saved(types.SimpleNamespace(a=1)).getvalue()
    assert flambeau.load(io.BytesIO(data), weights_only=False).a == 1
    with pytest.raises(flambeau.errors.FileFormatError, match="torch.nowhere.Thing, which Flambeau does not have"):
        names.find("torch.nowhere", "Thing")
    assert "torch.nowhere" not in sys.modules


def test_pickles_copies_and_storages_keep_what_is_shared():
    import copy
    base = flambeau.arange(6.0)
    for again in (lambda v: pickle.loads(pickle.dumps(v)), copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v, 0))):
        whole, part, turned, data = again([base, base[2:4], base.reshape(2, 3).t(), base.data])
        whole[2] = 9
        assert part.tolist() == [9, 3] and turned[2, 0] == 9 and turned.stride() == (1, 3) and data[2] == 9 and base[2] == 2
    storage, t = copy.deepcopy([base.untyped_storage(), base])
    t.fill_(0)
    assert storage.tolist() == [0] * 24
    assert pickle.loads(pickle.dumps(base.storage())).tolist() == base.tolist()
    with flambeau.simulate(gpus=2):
        far = flambeau.arange(3.0, device="cuda:1")
        whole, part = pickle.loads(pickle.dumps([far, far[1:]]))
        whole.fill_(5)
        assert part.tolist() == [5, 5] and part.device == far.device
        assert copy.deepcopy(nn.Linear(1, 1).cuda(1)).weight.device.index == 1
