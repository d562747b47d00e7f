"""torch.fx: the same nodes, the same printed code and the same refusals as PyTorch's, and what graphs compute."""

import copy
import operator
import re
from typing import Any

import numpy as np
import pytest
import torch as theirs

import flambeau as ours
import flambeau.fx
import flambeau.vision.models

LIBRARIES = {"flambeau": ours, "torch": theirs}


def mlp(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)), (2, 4)


def cnn(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.head = nn.Linear(4 * 4 * 4, 5)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
            x = F.dropout(x, 0.25, self.training)
            x = torch.flatten(x, 1)
            return F.log_softmax(self.head(x), dim=1)
    return Net(), (2, 1, 8, 8)


def residual(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.Conv2d(n, n, 3, padding=1, bias=False)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None

        def forward(self, x):
            identity = x
            out = self.conv2(self.relu(self.conv1(x)))
            if self.downsample is not None:
                identity = self.downsample(x)
            out += identity
            return self.relu(out)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(Block(3), Block(3))
            self.pool = nn.AdaptiveAvgPool2d(1)

        def forward(self, x):
            return self.pool(self.layers(x)).flatten(1)
    return Net(), (1, 3, 6, 6)


def attention(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
            q, k, v = [y.view(b, t, 2, c // 2).transpose(1, 2) for y in (q, k, v)]
            w = torch.softmax(q @ k.transpose(-2, -1) / (c // 2) ** 0.5, dim=-1)
            x = x + self.out((w @ v).transpose(1, 2).reshape(b, t, c)) * self.scale
            return x + self.down(F.gelu(self.up(self.norm2(x))))
    return Block(), (2, 5, 8)


def sdpa(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x):
        y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return F.layer_norm(y, (4,)), F.normalize(y, dim=-1), F.pad(y, (1, 1)), F.softmax(y, dim=-1)
    return f, (2, 3, 4)


def slices(torch: Any) -> Any:
    def f(x):
        y = x[:, None, ..., ::2]
        z = x[0, -1]
        return y.squeeze(1), z, x.T.shape[0], x.size(-1), x.shape[-2:]
    return f, (3, 4)


def operators(torch: Any) -> Any:
    def f(x):
        y = -x + 1 - 2 * x / 3 ** (x * 0 + 2) + abs(x) // 2
        z = (x > 0) & ~(x == 1) | (x <= -1)
        return 1 - y, z, x @ x.t(), 2 > x, y % 3
    return f, (3, 3)


def buffers(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))
            self.register_buffer("shift", torch.arange(4.0))
            self.plain = torch.full((4,), 2.0)

        def forward(self, x, k=3, *, flag: bool = True):
            y = F.linear(x, self.weight, self.shift) + self.plain
            y = self.shift * y + torch.ones(4)
            return y + k if flag is not None else y
    return Net(), (2, 4)


def in_place(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x):
        y = x.clone()
        y += 1
        y = y.mul_(2).add_(x, alpha=3)
        return F.relu(y, inplace=True), torch.relu(x), F.elu(x), F.leaky_relu(x, 0.2)
    return f, (3,)


def containers(torch: Any) -> Any:
    def f(x):
        parts = {"a": x + 1, "b": [x * 2, (x, 3, None)]}
        joined = torch.cat([parts["a"], parts["b"][0]], dim=0)
        return {"joined": torch.stack((joined, joined)), "parts": parts, "first": x.split(1)[0]}
    return f, (2, 3)


def methods(torch: Any) -> Any:
    def f(x):
        y = x.float().to(torch.float64).contiguous().view(x.size(0), -1)
        y = y.masked_fill(y > 1, 0.0).clamp(min=-1.0, max=1.0).sum(dim=1, keepdim=True)
        return y.mean(), y.dtype, getattr(y, "ndim"), torch.zeros(x.shape, dtype=x.dtype)  # noqa: B009
    return f, (3, 4)


def losses(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x):
        target = torch.argmax(x, dim=1)
        hot = F.one_hot(target, 4).float()
        return F.cross_entropy(x, target), F.mse_loss(x, hot), F.smooth_l1_loss(x, hot), F.binary_cross_entropy_with_logits(x, hot)
    return f, (3, 4)


def images(torch: Any) -> Any:
    F = torch.nn.functional

    def f(x):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3)
        return F.batch_norm(x, torch.zeros(2), torch.ones(2)), F.group_norm(x, 1), F.instance_norm(x), F.hardtanh(x), F.silu(x), F.glu(x, 1)
    return f, (1, 2, 3, 3)


MODELS = [mlp, cnn, residual, attention, sdpa, slices, operators, buffers, in_place, containers, methods, losses, images]
WHERE = {"torch.nn.functional.": "", "torch._C._nn.": "", "torch.functional.": "", "torch.fx.": "", "torch.": ""}


def named(target: Any) -> str:
    name = getattr(target, "__name__", None) or str(target)
    return {"fn": "max_pool2d", "boolean_dispatch.<locals>.fn": "max_pool2d"}.get(name, name)


def nodes(graph: Any) -> list[Any]:
    return [(n.op, n.name, named(n.target), plain(n.args), plain(n.kwargs), sorted(map(str, n.users))) for n in graph.nodes]


def plain(a: Any) -> str:
    return re.sub(r"<(built-in )?(method|function) [^>]*?(\w+)( at 0x\w+| of type object at 0x\w+)?>", r"\3", str(a))


def code(text: str) -> str:
    for long, short in WHERE.items():
        text = text.replace(long, short)
    return text


def same_values(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_values(x, y)
    elif hasattr(a, "detach"):
        assert str(a.dtype) == str(b.dtype)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5)
    else:
        assert str(a) == str(b)


def alike(build: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """The model in both libraries, with the same numbers."""
    (a, shape), (b, _) = build(ours), build(theirs)
    if hasattr(a, "state_dict"):
        rng = np.random.default_rng(0)
        state = {k: rng.standard_normal(tuple(v.shape)).astype("float32") * 0.3 + 0.5 for k, v in b.state_dict().items() if v.dim()}
        a.load_state_dict({k: ours.tensor(v) for k, v in state.items()}, strict=False)
        b.load_state_dict({k: theirs.tensor(v) for k, v in state.items()}, strict=False)
        a.eval(), b.eval()
    return a, b, shape


@pytest.mark.parametrize("build", MODELS, ids=lambda f: f.__name__)
def test_the_same_nodes_and_code(build: Any) -> None:
    a, b, shape = alike(build)
    traced, reference = ours.fx.symbolic_trace(a), theirs.fx.symbolic_trace(b)
    assert nodes(traced.graph) == nodes(reference.graph)
    assert code(traced.code) == code(reference.code)
    assert code(str(traced.graph)) == code(str(reference.graph))
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    expected = reference(theirs.tensor(x))
    same_values(traced(ours.tensor(x)), expected)
    same_values(ours.fx.Interpreter(traced).run(ours.tensor(x)), expected)
    traced.graph.lint()
    for other in (copy.deepcopy(traced), ours.fx.Transformer(traced).transform(), ours.fx.symbolic_trace(traced)):
        same_values(other(ours.tensor(x)), expected)


@pytest.mark.parametrize("build", MODELS, ids=lambda f: f.__name__)
def test_dead_code(build: Any) -> None:
    a, b, _ = alike(build)
    traced, reference = ours.fx.symbolic_trace(a), theirs.fx.symbolic_trace(b)
    assert traced.graph.eliminate_dead_code() == reference.graph.eliminate_dead_code()
    assert nodes(traced.graph) == nodes(reference.graph)


@pytest.mark.parametrize("f, error", [
    (lambda torch: lambda x: x.relu() if x.sum() > 0 else x, "TraceError"),
    (lambda torch: lambda x: [y + 1 for y in x], "TraceError"),
    (lambda torch: lambda x: {**x}, "TraceError"),
    (lambda torch: lambda x: 1 in x, "TraceError"),
    (lambda torch: lambda x: torch.cat(*x), "TraceError"),
    (lambda torch: lambda x: len(x), "RuntimeError"),
    (lambda torch: lambda x: int(x), "TypeError"),
    (lambda torch: lambda x: range(x.size(0)), "TypeError"),
    (lambda torch: lambda x: [1, 2][x], "TypeError"),
    (lambda torch: lambda x: {x: 1}, "RuntimeError"),
    (lambda torch: lambda x: (x, object()), "NotImplementedError"),
    (lambda torch: 3, "AssertionError"),
], ids=lambda v: v if isinstance(v, str) else "program")
def test_the_same_refusals(f: Any, error: str) -> None:
    for torch in LIBRARIES.values():
        with pytest.raises(Exception) as found:
            torch.fx.symbolic_trace(f(torch))
        assert type(found.value).__name__ == error


def test_control_flow_says_the_same() -> None:
    said = []
    for torch in LIBRARIES.values():
        with pytest.raises(torch.fx.proxy.TraceError) as found:
            torch.fx.symbolic_trace(lambda x: x if x > 0 else -x)
        said.append(str(found.value))
    assert said[0] == said[1]


def test_concrete_arguments() -> None:
    def f(x, y, z=None):
        return (x + 1 if y else x) if z is None else z
    made = [torch.fx.symbolic_trace(f, concrete_args={"y": True, "z": None}) for torch in LIBRARIES.values()]
    assert nodes(made[0].graph) == nodes(made[1].graph)
    assert made[0](ours.ones(2), True, None).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="y has been specialized"):
        made[0](ours.ones(2), False, None)


def test_a_tracer_of_ones_own() -> None:
    made = []
    for torch in LIBRARIES.values():
        class Own(torch.fx.Tracer):
            def is_leaf_module(self, m, name):
                return name == "layers.0" or super().is_leaf_module(m, name)

            def create_proxy(self, kind, target, args, kwargs, *rest, **more):
                made = super().create_proxy(kind, target, args, kwargs, *rest, **more)
                made.node.meta["seen"] = kind
                return made
        model, _ = residual(torch)
        graph = Own().trace(model)
        made.append((nodes(graph), [n.meta.get("seen") for n in graph.nodes]))
    assert made[0] == made[1]


def test_graphs_by_hand() -> None:
    made = []
    for torch in LIBRARIES.values():
        g = torch.fx.Graph()
        a = g.placeholder("a", type_expr=torch.Tensor, default_value=None)
        b = g.call_function(torch.relu, (a,))
        with g.inserting_before(b):
            c = g.call_method("neg", (a,))
        with g.inserting_after(a):
            d = g.call_function(operator.add, (a, 2))
        with g.inserting_after(d):
            e = g.call_function(operator.iadd, (d, d))
        b.args = (e,)
        s = g.call_function(operator.setitem, (b, 0, c))
        g.output((b, {"x": [s]}))
        c.replace_all_uses_with(d)
        g.erase_node(c)
        g.lint()
        s.name = "renamed"
        copied = copy.deepcopy(g)
        made.append((nodes(g), code(g.python_code("self").src), code(str(g)), nodes(copied)))
        with pytest.raises(RuntimeError, match="users"):
            g.erase_node(a)
        with pytest.raises(TypeError):
            b.args[0] = 1
        with pytest.raises(AssertionError):
            g.create_node("nothing", "x")
    assert made[0] == made[1]


@pytest.mark.parametrize("ends", [1, 2])
def test_patterns(ends: int) -> None:
    made = []
    for torch in LIBRARIES.values():
        def f(x, w, torch=torch):
            y = torch.add(torch.mul(x, w), 1)
            z = torch.add(torch.mul(y, w), x)
            return torch.add(torch.mul(z, 2), w) - y

        def pattern(a, b, c, torch=torch):
            return torch.add(torch.mul(a, b), c)

        def replacement(a, b, c, torch=torch):
            return torch.addcmul(c, a, b) if ends == 2 else torch.sub(a, b)
        gm = torch.fx.symbolic_trace(lambda x, w: f(x, w))  # noqa: B023
        found = torch.fx.replace_pattern(gm, lambda a, b, c: pattern(a, b, c), lambda a, b, c: replacement(a, b, c))  # noqa: B023
        made.append((len(found), [(n.op, named(n.target), len(n.all_input_nodes)) for n in gm.graph.nodes]))
    assert made[0] == made[1]


def test_shapes() -> None:
    made = []
    for torch in LIBRARIES.values():
        from importlib import import_module
        prop = import_module(f"{torch.__name__}.fx.passes.shape_prop").ShapeProp
        model, shape = cnn(torch)
        gm = torch.fx.symbolic_trace(model)
        prop(gm).propagate(torch.zeros(shape))
        made.append([(n.name, str(n.meta["tensor_meta"].shape), str(n.meta["tensor_meta"].dtype), n.meta["tensor_meta"].stride,
                      n.meta["tensor_meta"].requires_grad, str(n.meta["tensor_meta"].memory_format)) for n in gm.graph.nodes])
    assert made[0] == made[1]


def test_functions_of_nn_functional_have_the_same_arguments() -> None:
    """Those that PyTorch has in Python are recorded with all their arguments by name: the names and defaults are the same."""
    import inspect

    from flambeau.fx import names
    known = {n: f for n, f in vars(theirs.nn.functional).items() if inspect.isfunction(f) and n[0] != "_"}
    seen = 0
    for name, function in known.items():
        mine = getattr(ours.nn.functional, name, None)
        if mine is None or not hasattr(mine, "__operation__") or not names.filled(mine) or name.endswith("_") or name in ("fn",):
            continue
        if name.startswith(("max_pool", "adaptive_max_pool", "fractional_max_pool")) and not name.endswith("indices"):
            continue  # one of two functions, chosen by an argument
        theirs_ = {n: p.default for n, p in inspect.signature(function).parameters.items() if p.default is not p.empty}
        own = inspect.signature(mine).parameters
        assert {n: own[n].default for n in names.defaults(mine)} == theirs_, name
        seen += 1
    assert seen > 40
