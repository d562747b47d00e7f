"""Module: tables, walks, state, moves, hooks, printing."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict

import numpy as np
import pytest

import flambeau
from flambeau import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.tied = nn.Linear(4, 3)
        self.scale = nn.Parameter(flambeau.ones(2))
        self.register_buffer("kept", flambeau.zeros(2))
        self.register_buffer("gone", flambeau.zeros(3), persistent=False)

    def forward(self, x):
        return self.first(x)


def test_parameters_come_in_order_and_once():
    net = Net()
    net.again = net.first
    names = [n for n, _ in net.named_parameters()]
    assert names == ["scale", "first.weight", "first.bias", "tied.weight", "tied.bias"]
    assert len(list(net.parameters())) == 5
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)][-2:] == ["again.weight", "again.bias"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "tied"]
    twice = nn.Sequential(net, net)
    assert [*twice.modules()] == [twice, net, net.first, net.tied] and [*twice.modules(remove_duplicate=False)][5:] == [net, net.first, net.tied, net.first]
    assert [n for n, _ in net.named_buffers()] == ["kept", "gone"]
    assert [n for n, _ in net.named_parameters(prefix="p", recurse=False)] == ["p.scale"]


def test_setattr_rules():
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'torch.FloatTensor' as parameter 'scale'"):
        net.scale = flambeau.ones(2)
    with pytest.raises(TypeError, match="cannot assign 'int' as child module 'first'"):
        net.first = 3
    with pytest.raises(TypeError, match="as buffer 'kept'"):
        net.kept = "text"
    net.kept = flambeau.ones(5)
    assert net.state_dict()["kept"].shape == (5,)
    net.scale = None
    assert "scale" not in net.state_dict() and net.scale is None
    net.plain = 4
    net.plain = nn.ReLU()
    assert "plain" not in net.__dict__ and isinstance(net.plain, nn.ReLU)
    net.plain = nn.Parameter(flambeau.ones(1))
    assert "plain" in dict(net.named_parameters()) and "plain" not in dict(net.named_children())
    del net.plain
    assert not hasattr(net, "plain")


def test_nothing_before_init():
    class Early(nn.Module):
        def __init__(self):
            self.x = nn.Parameter(flambeau.ones(1))

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Early()


@pytest.mark.parametrize("name,error", [("a.b", KeyError), ("", KeyError), ("first", KeyError), (3, TypeError)])
def test_bad_names(name, error):
    with pytest.raises(error):
        Net().register_buffer(name, flambeau.ones(1))
    with pytest.raises(error):
        Net().register_parameter(name, nn.Parameter(flambeau.ones(1)))


def test_missing_attribute_is_named():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = Net().nothing


def test_operations_kept_by_a_class_are_no_methods():
    class Net(nn.Module):
        act, conv, product = flambeau.tanh, flambeau.conv2d, staticmethod(flambeau.matmul)

        def forward(self, x, weight):
            return self.act(self.conv(x, weight=weight, padding=1)), self.product(x, x)

    x, weight = flambeau.randn(1, 1, 4, 4), flambeau.randn(2, 1, 3, 3)
    made, squared = Net()(x, weight)
    assert made.equal(flambeau.tanh(flambeau.conv2d(x, weight, padding=1))) and squared.equal(x @ x) and Net.act is flambeau.tanh

    class Own(Net):
        @functools.wraps(flambeau.tanh)
        def act(self, x):
            return x, self

    own = Own()
    assert own.act(x) == (x, own)


def test_state_dict_round_trip_and_metadata():
    net, other = Net(), Net()
    with flambeau.no_grad():
        net.scale.fill_(7.0)
    state = net.state_dict()
    assert list(state) == ["scale", "kept", "first.weight", "first.bias", "tied.weight", "tied.bias"]
    assert not any(v.requires_grad for v in state.values())
    assert list(state._metadata) == ["", "first", "tied"]
    assert repr(other.load_state_dict(state)) == "<All keys matched successfully>"
    np.testing.assert_array_equal(other.scale.detach().numpy(), [7.0, 7.0])
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.state_dict(prefix="m."))[0] == "m.scale"


def test_load_reports_every_mismatch():
    net = Net()
    state = net.state_dict()
    del state["tied.bias"]
    state["odd"] = flambeau.ones(1)
    state["first.bias"] = flambeau.ones(9)
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: \"tied.bias\". ")
    assert "\n\tUnexpected key(s) in state_dict: \"odd\". " in text
    assert ("\n\tsize mismatch for first.bias: copying a param with shape torch.Size([9]) from checkpoint, the shape "
            "in current model is torch.Size([4]).") in text
    state["first.bias"] = flambeau.ones(4)
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["tied.bias"] and result.unexpected_keys == ["odd"]
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        net.load_state_dict([1])


def test_load_with_assign_takes_the_tensors_themselves():
    net = Net()
    given = {k: v.clone().double() for k, v in net.state_dict().items()}
    net.load_state_dict(given, assign=True)
    assert net.scale.dtype is flambeau.float64 and isinstance(net.scale, nn.Parameter) and net.scale.requires_grad
    assert net.kept is given["kept"]


def test_overridden_loading_sees_prefix_and_version():
    class Old(nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(flambeau.zeros(2))

        def _load_from_state_dict(self, state, prefix, local, *rest):
            assert local.get("version") == 3
            state[prefix + "weight"] = state.pop(prefix + "w")
            super()._load_from_state_dict(state, prefix, local, *rest)

    net = nn.Sequential(Old())
    state = net.state_dict()
    state["0.w"] = flambeau.full((2,), 5.0)
    del state["0.weight"]
    net.load_state_dict(state)
    assert net[0].weight.tolist() == [5.0, 5.0] and "0.w" in state


def test_extra_state():
    class Counter(nn.Module):
        count = 0

        def get_extra_state(self):
            return self.count

        def set_extra_state(self, state):
            self.count = state

    one, two = Counter(), Counter()
    one.count = 4
    assert one.state_dict() == {"_extra_state": 4}
    two.load_state_dict(one.state_dict())
    assert two.count == 4
    with pytest.raises(RuntimeError, match="_extra_state"):
        two.load_state_dict({})


def test_casting_keeps_identity_ties_and_gradients():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    ids = [id(p) for p in net.parameters()]
    weight = net[0].weight
    weight.grad = flambeau.ones(2, 2)
    assert net.double() is net
    assert [id(p) for p in net.parameters()] == ids and net[1].weight is net[0].weight is weight
    assert weight.dtype is weight.grad.dtype is flambeau.float64 and weight.requires_grad and weight.is_leaf
    net.to(flambeau.float32)
    assert weight.dtype is weight.grad.dtype is flambeau.float32
    assert net.half()[0].bias.dtype is flambeau.float16 and net.bfloat16()[0].bias.dtype is flambeau.bfloat16
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        net.to(flambeau.int64)


def test_casting_leaves_integer_buffers():
    norm = nn.BatchNorm1d(3).half()
    assert norm.running_mean.dtype is flambeau.float16 and norm.num_batches_tracked.dtype is flambeau.int64


def test_device_of_a_module():
    net = Net()
    assert net.device == flambeau.device("cpu")
    assert not hasattr(nn.ReLU(), "device")

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.device = "mine"

    assert Own().device == "mine"


def test_train_eval_apply_and_requires_grad():
    net = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    assert net.eval() is net and not net.training and not net[0].training
    assert net.train()[0].training
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Dropout", "Linear", "Sequential"]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad():
    net = nn.Linear(2, 1)
    net.weight.grad = flambeau.ones(1, 2)
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0.0, 0.0]]
    net.zero_grad()
    assert net.weight.grad is None


def test_lookups_by_path():
    net = nn.Sequential(OrderedDict(a=Net()))
    assert net.get_submodule("a.first") is net.a.first and net.get_submodule("") is net
    assert net.get_parameter("a.first.weight") is net.a.first.weight
    assert net.get_buffer("a.kept") is net.a.kept
    for call, path in ((net.get_submodule, "a.none"), (net.get_submodule, "a.scale"), (net.get_parameter, "a.kept"),
                       (net.get_buffer, "a.scale")):
        with pytest.raises(AttributeError):
            call(path)
    net.set_submodule("a.first", nn.ReLU())
    assert isinstance(net.a.first, nn.ReLU)


def test_forward_hooks():
    net = nn.Identity()
    calls = []
    a = net.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    b = net.register_forward_hook(lambda m, args, out: calls.append((args[0], out)))
    c = net.register_forward_hook(lambda m, args, out: out * 10)
    assert net(1) == 20 and calls == [(2, 2)]
    a.remove()
    c.remove()
    assert net(1) == 1
    with b:
        pass
    calls.clear()
    assert net(3) == 3 and calls == []


def test_forward_hooks_with_keywords_and_on_failure():
    class Add(nn.Module):
        def forward(self, x, *, y=0):
            if y < 0:
                raise ValueError("negative")
            return x + y

    net, seen = Add(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"y": kwargs["y"] * 2}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: seen.append((kwargs, out)), with_kwargs=True,
                              always_call=True)
    assert net(1, y=2) == 5 and seen == [({"y": 4}, 5)]
    with pytest.raises(ValueError, match="negative"):
        net(1, y=-2)
    assert seen[-1][1] is None


def test_prepended_hook_runs_first():
    net, order = nn.Identity(), []
    net.register_forward_hook(lambda *a: order.append("second"))
    net.register_forward_hook(lambda *a: order.append("first"), prepend=True)
    net(0)
    assert order == ["first", "second"]


def test_full_backward_hooks_see_and_replace_gradients():
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    net, seen = Double(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())) or (gi[0] * 10,))
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    x = flambeau.ones(2, requires_grad=True)
    net(x).backward(flambeau.tensor([1.0, 2.0]))
    assert seen == [([6.0, 12.0], [3.0, 6.0])]
    assert x.grad.tolist() == [60.0, 120.0]


def test_backward_hook_without_input_gradient():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = nn.Parameter(flambeau.ones(2))

        def forward(self, x):
            return x * self.by

    net, seen = Scale(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    net(flambeau.ones(2)).backward(flambeau.ones(2))
    assert seen == [((None,), [1.0, 1.0])] and net.by.grad.tolist() == [1.0, 1.0]


def test_global_hooks():
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    try:
        nn.Sequential(nn.Identity())(1)
    finally:
        handle.remove()
    nn.Identity()(1)
    assert seen == ["Identity", "Sequential"]


def test_state_dict_hooks():
    net, seen = nn.Linear(1, 1), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("pre"))
    net.register_state_dict_post_hook(lambda m, state, prefix, local: state.update(extra=1))
    net.register_load_state_dict_pre_hook(lambda m, state, *rest: state.pop("extra"))
    net.register_load_state_dict_post_hook(lambda m, keys: seen.append(tuple(keys)))
    state = net.state_dict()
    assert state["extra"] == 1
    net.load_state_dict(state)
    assert seen == ["pre", ([], [])]


def test_repr():
    net = nn.Sequential(nn.Linear(3, 4), nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()]))
    assert repr(net) == ("Sequential(\n  (0): Linear(in_features=3, out_features=4, bias=True)\n  (1): ModuleList(\n"
                         "    (0-1): 2 x ReLU()\n    (2): Tanh()\n  )\n)")
    assert repr(nn.Module()) == "Module()"


def test_deepcopy_is_apart():
    net = Net()
    twin = copy.deepcopy(net)
    with flambeau.no_grad():
        twin.scale.fill_(3.0)
    assert net.scale.tolist() == [1.0, 1.0] and isinstance(twin.scale, nn.Parameter) and twin.scale.requires_grad


def test_forward_missing_and_bad_init():
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        nn.Module(3)


def test_lazy_layers_learn_their_sizes():
    for made, shape, plain in ((nn.LazyLinear(3), (2, 5), "Linear(in_features=5, out_features=3, bias=True)"),
                               (nn.LazyBatchNorm1d(), (2, 4), None)):
        assert made.has_uninitialized_params()
        made(flambeau.ones(*shape))
        assert type(made) in (nn.Linear, nn.BatchNorm1d)
        if plain:
            assert repr(made) == plain


def test_a_lazy_module_of_ones_own():
    class Doubled(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, x):
            self.weight.materialize(x.shape)

        def reset_parameters(self):
            pass

        def forward(self, x):
            return x * 2

    net = Doubled()
    net.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
    assert net(flambeau.zeros(2)).tolist() == [2, 2] and type(net) is Doubled and net.weight.shape == (2,)
    Doubled.cls_to_become = nn.Identity
    assert type(net) is Doubled and net(flambeau.ones(2)).tolist() == [2, 2] and type(net) is nn.Identity


def test_parameter_is_a_tensor_on_its_datas_storage():
    data = flambeau.zeros(3)
    p = nn.Parameter(data)
    assert isinstance(p, flambeau.Tensor) and p.is_leaf and p.requires_grad and p.data_ptr() == data.data_ptr()
    assert not nn.Parameter(flambeau.zeros(3, dtype=flambeau.int64), requires_grad=False).requires_grad
    assert repr(p).startswith("Parameter containing:\ntensor([0., 0., 0.]")
    with pytest.raises(TypeError, match="Parameter: data must be a Tensor or None, got list"):
        nn.Parameter([1.0])


def test_hooks_of_all_modules_on_what_they_register():
    from flambeau.nn.modules import module as M
    seen = []
    handles = [M.register_module_parameter_registration_hook(lambda m, n, p: seen.append(("p", n))),
               M.register_module_buffer_registration_hook(lambda m, n, b: seen.append(("b", n))),
               M.register_module_module_registration_hook(lambda m, n, c: nn.Tanh() if isinstance(c, nn.ReLU) else seen.append(("m", n)))]
    try:
        nn.BatchNorm1d(2)
        assert seen == [("p", "weight"), ("p", "bias"), ("b", "running_mean"), ("b", "running_var"), ("b", "num_batches_tracked")]
        model = nn.Sequential(nn.ReLU(), nn.Identity())
        assert isinstance(model[0], nn.Tanh) and seen[5:] == [("m", "1")]
    finally:
        for handle in handles:
            handle.remove()
    assert isinstance(nn.Sequential(nn.ReLU())[0], nn.ReLU) and len(seen) == 6


def test_a_hook_of_all_modules_with_keywords_and_after_failures():
    from flambeau.nn.modules import module as M

    class Fails(nn.Module):
        def forward(self, x, fail=False):
            if fail:
                raise ValueError("no")
            return x
    seen = []
    with M.register_module_forward_hook(lambda m, a, k, o: seen.append((k, o)), with_kwargs=True, always_call=True):
        assert Fails()(1, fail=False) == 1
        with pytest.raises(ValueError, match="no"):
            Fails()(1, fail=True)
    assert seen == [({"fail": False}, 1), ({"fail": True}, None)]


def test_the_prefix_of_a_wrapped_modules_names_goes():
    net = nn.Sequential(nn.BatchNorm1d(2))
    state = nn.Sequential()
    state.add_module("module", net)
    wrapped = state.state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(wrapped, "module.")
    assert list(wrapped) == list(net.state_dict()) and wrapped._metadata["0"] == net.state_dict()._metadata["0"]
    net.load_state_dict(wrapped)


def test_to_refuses_what_is_no_place_or_type():
    net, cpu = nn.Linear(3, 3), flambeau.device("cpu")
    for args in ((cpu, True), (None, True), (cpu, flambeau.int64, True), ([],), (flambeau.float32, "now")):
        with pytest.raises(TypeError):
            net.to(*args)
    with pytest.raises(RuntimeError, match="does not accept copy argument"):
        net.to(cpu, copy=True)
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        net.to(flambeau.complex64)
    assert net.weight.dtype is flambeau.complex64


def test_shared_memory_is_told_by_storages():
    net = nn.Linear(2, 2)
    assert not any(p.untyped_storage().is_shared() for p in net.parameters())
    net.share_memory()
    assert all(p.untyped_storage().is_shared() for p in net.parameters())


def test_members_by_a_function_of_the_callers():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.table = {"a": 1, "b": None}

    def members(module):
        return [(name, (name, i)) for i, name in enumerate(getattr(module, "table", {"x": 0}))]
    got = dict(Tables()._named_members(members, prefix="p"))
    assert got == {"p.a": ("a", 0), "p.b": ("b", 1), "p.inner.x": ("x", 0)}
    tied = nn.ModuleList([nn.Linear(1, 1)] * 2)
    assert len(dict(tied._named_members(lambda m: m._parameters.items()))) == 2
    assert len(dict(tied._named_members(lambda m: m._parameters.items(), remove_duplicate=False))) == 4
    assert flambeau.equal(tied[0]._wrapped_call_impl(flambeau.ones(1, 1)), tied[0](flambeau.ones(1, 1)))


def test_keywords_for_what_a_module_makes() -> None:
    assert nn.factory_kwargs(None) == {} and nn.factory_kwargs({"dtype": 1, "factory_kwargs": {"device": 2}}) == {"dtype": 1, "device": 2}
    with pytest.raises(TypeError, match="unexpected kwargs {'x'}"):
        nn.factory_kwargs({"x": 1})
    with pytest.raises(TypeError, match="dtype specified twice"):
        nn.factory_kwargs({"dtype": 1, "factory_kwargs": {"dtype": 1}})
