"""Optimizers: groups, state, hooks, errors, and updates against their formulas in NumPy."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau
from flambeau import nn, optim


def _parameter(value=1.0, grad=0.5, shape=(3,), dtype=None):
    p = nn.Parameter(flambeau.full(shape, value, dtype=dtype))
    p.grad = flambeau.full(shape, grad, dtype=dtype)
    return p


def test_adam_against_its_formula_in_double_precision():
    rng = np.random.default_rng(0)
    x, m, v = rng.standard_normal(7), np.zeros(7), np.zeros(7)
    p = nn.Parameter(flambeau.from_numpy(x.copy()))
    optimizer = optim.Adam([p], lr=0.1, betas=(0.8, 0.95), eps=1e-6)
    for t in range(1, 6):
        g = rng.standard_normal(7)
        p.grad = flambeau.from_numpy(g.copy())
        optimizer.step()
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        x = x - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6)
    np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-12)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg_sq"].numpy(), v, rtol=1e-12)


def test_sgd_with_momentum_against_its_formula():
    p = _parameter(1.0, 0.5)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01)
    x, buf = 1.0, None
    for _ in range(4):
        g = 0.5 + 0.01 * x
        buf = g if buf is None else 0.9 * buf + g
        x -= 0.1 * buf
        optimizer.step()
    np.testing.assert_allclose(p.tolist(), [x] * 3, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 7), (33,)])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"])
def test_every_shape_moves_against_its_gradient(name, shape):
    p = _parameter(1.0, 1.0, shape)
    getattr(optim, name)([p], lr=0.1).step()
    assert (p.detach().numpy() < 1.0).all() and p.shape == shape and p.requires_grad and p.is_leaf


def test_strided_parameters_and_gradients():
    base = flambeau.zeros(4, 3)
    p = nn.Parameter(base.t())
    p.grad = flambeau.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
    optim.SGD([p], lr=1.0, momentum=0.5).step()
    np.testing.assert_array_equal(base.numpy(), -np.arange(12, dtype=np.float32).reshape(3, 4).T)


def test_steps_count_as_writes_and_are_not_recorded():
    p = _parameter()
    before = p._version
    optim.Adam([p]).step()
    assert p._version > before and p.grad_fn is None


def test_groups_and_their_options():
    a, b = _parameter(), _parameter()
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 1.0] and optimizer.param_groups[1]["params"] == [b]
    optimizer.step()
    assert a.tolist() == [0.75] * 3 and b.tolist() == [0.5] * 3
    optimizer.add_param_group({"params": [_parameter()], "momentum": 0.9})
    assert optimizer.param_groups[2]["momentum"] == 0.9


def test_bad_parameters():
    p = _parameter()
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        optim.SGD([])
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(p)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([3])
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}])
    with pytest.raises(TypeError, match="sets will change between runs"):
        optim.SGD([{"params": {p}}])


@pytest.mark.parametrize("name,options,text", [
    ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
    ("SGD", {"momentum": -1}, "Invalid momentum value: -1"),
    ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
    ("Adam", {"eps": -1}, "Invalid epsilon value: -1"),
    ("RMSprop", {"alpha": -1}, "Invalid alpha value: -1"),
    ("Adadelta", {"rho": 2}, "Invalid rho value: 2"),
    ("Adagrad", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
])
def test_bad_options(name, options, text):
    with pytest.raises(ValueError, match=text):
        getattr(optim, name)([_parameter()], **options)


def test_zero_grad():
    p = _parameter()
    optimizer = optim.SGD([p])
    grad = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is grad and grad.tolist() == [0.0] * 3
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()
    assert p.tolist() == [1.0] * 3


def test_closure_runs_with_gradients_on():
    p = _parameter()
    optimizer = optim.SGD([p], lr=1.0)

    def closure():
        optimizer.zero_grad()
        assert flambeau.is_grad_enabled()
        loss = p * p
        loss.backward(flambeau.ones(3))
        return loss

    with flambeau.no_grad():
        assert optimizer.step(closure).tolist() == [1.0] * 3
    assert p.tolist() == [-1.0] * 3


def test_state_dict_round_trip():
    p, q = _parameter(), _parameter()
    one, two = optim.Adam([p], lr=0.3), optim.Adam([q])
    one.step()
    state = one.state_dict()
    assert state["param_groups"][0]["params"] == [0] and state["state"][0]["step"].item() == 1.0
    two.load_state_dict(copy.deepcopy(state))
    q.data = p.data.clone()
    one.step()
    two.step()
    assert two.param_groups[0]["lr"] == 0.3 and p.tolist() == q.tolist()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        two.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        two.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})


def test_loaded_state_is_a_copy_of_the_parameters_type():
    p = _parameter(dtype=flambeau.float64)
    optimizer = optim.Adam([p])
    other = optim.Adam([_parameter()])
    other.step()
    state = other.state_dict()
    optimizer.load_state_dict(state)
    optimizer.step()
    assert optimizer.state[p]["exp_avg"].dtype is flambeau.float64
    assert state["state"][0]["step"].item() == 1.0


def test_plain_sgd_has_no_state():
    optimizer = optim.SGD([_parameter()])
    optimizer.step()
    assert optimizer.state_dict()["state"] == {}


def test_hooks():
    optimizer, order = optim.SGD([_parameter()]), []
    pre = optimizer.register_step_pre_hook(lambda o, args, kwargs: order.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: order.append("post"))
    optimizer.step()
    pre.remove()
    optimizer.step()
    assert order == ["pre", "post", "post"]
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 1})
    assert optimizer.state_dict()["note"] == 1


def test_an_optimizer_of_ones_own():
    class Sign(optim.Optimizer):
        def __init__(self, params, lr=optim.optimizer.required):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            with flambeau.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.add_(p.grad.sign(), alpha=-group["lr"])

    with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
        Sign([_parameter()])
    p = _parameter()
    optimizer = Sign([p], lr=0.25)
    optimizer.register_step_post_hook(lambda *a: None)
    optimizer.step()
    assert p.tolist() == [0.75] * 3


def test_a_model_cast_after_its_optimizer_was_built():
    net = nn.Linear(2, 1)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    for dtype in (flambeau.float32, flambeau.float64):
        net.to(dtype)
        for p in net.parameters():
            p.grad = flambeau.ones(p.shape, dtype=dtype)
        optimizer.step()
    assert net.weight.dtype is flambeau.float64 and optimizer.param_groups[0]["params"][0] is net.weight


def test_repr():
    assert repr(optim.SGD([_parameter()], lr=0.5)).startswith("SGD (\nParameter Group 0\n    dampening: 0\n")


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor"])
@pytest.mark.parametrize("queue", ["eager", "lazy"])
def test_state_on_another_device_than_its_parameter_is_refused(name, queue):
    with flambeau.simulate(gpus=1, queue=queue):
        layer = flambeau.nn.Linear(2, 3)
        optimizer = getattr(flambeau.optim, name)(layer.parameters(), lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))

        def gradients(device):
            optimizer.zero_grad()
            layer(flambeau.ones(1, 2, device=device)).sum().backward()
        gradients("cpu")
        optimizer.step()
        layer.cuda()
        gradients("cuda")
        before = layer.weight.tolist()
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            optimizer.step()
        assert layer.weight.tolist() == before
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        assert layer.weight.tolist() != before
        assert all(v.device.type == "cuda" for v in optimizer.state[layer.weight].values() if isinstance(v, flambeau.Tensor) and v.ndim)


@pytest.mark.parametrize("make,state", [
    (lambda p, **k: optim.SGD(p, 0.9, momentum=0.5, **k), {"momentum_buffer"}),
    (lambda p, **k: optim.SGD(p, 0.9, **k), set()),
    (lambda p, **k: optim.Adam(p, 0.9, amsgrad=True, **k), {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    (lambda p, **k: optim.RMSprop(p, 0.9, momentum=0.5, centered=True, **k), {"square_avg", "momentum_buffer", "grad_avg"}),
    (lambda p, **k: optim.Adadelta(p, 0.9, **k), {"square_avg", "acc_delta"}),
    (lambda p, **k: optim.Adagrad(p, 0.9, **k), {"sum"}),
    (lambda p, **k: optim.Adamax(p, 0.9, **k), {"step", "exp_avg", "exp_inf"}),
    (lambda p, **k: optim.NAdam(p, 0.9, **k), {"step", "exp_avg", "exp_avg_sq", "mu_product"}),
    (lambda p, **k: optim.ASGD(p, 0.9, **k), {"ax"}),
])
def test_a_differentiable_step_is_a_step_of_the_tape(make, state):
    names = sorted(state - {"step", "mu_product"})

    def stepped(p, grad, *held):
        p = p.clone()
        p.grad = grad
        opt = make([p], differentiable=True)
        numbers = {"step": 3.0, "mu_product": 0.8, "eta": 0.9, "mu": 0.5}
        opt.state[p].update({**dict(zip(names, (h.clone() for h in held), strict=True)), **numbers})
        opt.step()
        return (p, *(opt.state[p][n] for n in names))

    flambeau.manual_seed(0)
    given = [flambeau.rand(5, dtype=flambeau.float64).mul(0.1).add(0.5).requires_grad_() for _ in range(2 + len(names))]
    assert flambeau.autograd.gradcheck(stepped, given)
    with flambeau.no_grad():
        p = given[0].detach().clone()
        p.grad = given[1].detach()
        plain = make([p])
        plain.step()
    q = given[0].clone()  # no leaf
    q.grad = given[1].detach()
    make([q], differentiable=True).step()
    assert flambeau.equal(p, q.detach()) and q.grad_fn is not None


def test_a_parameter_is_a_leaf_or_retains_its_gradient():
    x = flambeau.ones(2, requires_grad=True) * 1
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([x])
    x.retain_grad()
    optim.SGD([x])


def test_lbfgs_stays_where_nothing_slopes():
    p = nn.Parameter(flambeau.ones(2))
    loss = optim.LBFGS([p], tolerance_grad=-1.0).step(lambda: flambeau.tensor(3.0))
    assert float(loss) == 3.0 and p.tolist() == [1, 1]


def test_wrappers_give_their_step_hooks_by_pytorchs_name():
    class Wrapper(optim.Optimizer):
        def __init__(self):
            self.calls = 0

        def step(self):
            self.calls += 1

    def late(self):
        self.calls += 10
    made = Wrapper()
    made._patch_step_function()
    Wrapper.step = late
    made._patch_step_function()
    made._make_hooks()
    made.register_step_post_hook(lambda *args: setattr(made, "calls", made.calls + 100))
    made.step()
    assert made.calls == 110 and Wrapper.step.hooked
