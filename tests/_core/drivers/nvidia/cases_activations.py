"""A layer and its activation as one product, run through the driver on a fake cuBLASLt, in a process of its own.
``python cases_activations.py ORDER SEED [NAME...]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import cases  # noqa: E402
from cases_libraries import fake  # noqa: E402

array = cases.array
RELU, RELU_SIGNS, GELU, GELU_INPUT, RELU_GRADIENT, GELU_GRADIENT = 6, 134, 36, 164, 136, 192  # NVIDIA's numbers
_CODES = (RELU, RELU_SIGNS, GELU, GELU_INPUT, RELU_GRADIENT, GELU_GRADIENT)


def on_hardware() -> bool:
    import flambeau as torch
    return torch.cuda.get_device_name(0) != "Fake H200"


def close(found: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    """NVIDIA's own library rounds between its sums as it likes, and its GELU has a coarse tanh."""
    import numpy as np
    least = 4e-3 if on_hardware() else 0.0
    np.testing.assert_allclose(found, expected, rtol=max(rtol, least), atol=max(atol, least))


class allowed:
    """A block with the switch at `value`; afterwards `counts` tells how often each epilogue was asked for."""

    def __init__(self, value: str) -> None:
        self.value, self.counts = value, {}

    def __enter__(self) -> allowed:
        import flambeau as torch
        self.lib, self.matmul = fake("libcublasLt.so.13"), torch.backends.cuda.matmul
        self.before, self.matmul.fused_activations = self.matmul.fused_activations, self.value
        self.since = {code: self.lib.fake_epilogues(code) for code in _CODES}
        return self

    def __exit__(self, *exc: object) -> None:
        import flambeau as torch
        torch.cuda.synchronize()
        self.matmul.fused_activations = self.before
        self.counts = {code: n for code, since in self.since.items() if (n := self.lib.fake_epilogues(code) - since)}


def network(kind: str, d: Any, *sizes: int) -> Any:
    import flambeau as torch
    nn = torch.nn
    torch.manual_seed(1)
    modules: list[Any] = []
    for i, o in zip(sizes, sizes[1:], strict=False):
        modules += [nn.Linear(i, o), nn.ReLU() if kind == "relu" else nn.GELU("tanh")]
    return nn.Sequential(*modules[:-1]).to(device="cuda", dtype=d)


def gradients(model: Any, x: Any, g: Any) -> list[Any]:
    """What a step gives: the result, and the gradients of the input and of each parameter."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    y = model(x)
    y.backward(g)
    return [array(t.double()) for t in (y, x.grad, *[p.grad for p in model.parameters()])]


def case_networks() -> None:
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(0)
    for kind in ("relu", "gelu"):
        for d, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 4e-2), (torch.float16, 6e-3)):
            for shape in ((6,), (2, 3)):
                model = network(kind, d, 8, 24, 16, 4)
                x, g = (torch.tensor(rng.standard_normal((*shape, n)), dtype=d, device="cuda") for n in (8, 4))
                with allowed("none") as plain:
                    expected = gradients(model, x, g)
                with allowed("all") as fused:
                    found = gradients(model, x, g)
                assert plain.counts == {} and fused.counts == (
                    {RELU_SIGNS: 2, RELU_GRADIENT: 2} if kind == "relu" else {GELU_INPUT: 2, GELU_GRADIENT: 2}), (kind, d, fused.counts)
                for a, b in zip(found, expected, strict=True):
                    if kind == "relu" and d is torch.float32 and not on_hardware():
                        np.testing.assert_array_equal(a, b)  # the same sums, and no rounding in between
                    close(a, b, rtol=tolerance, atol=tolerance * 4)
                with allowed("all") as seen, torch.no_grad():
                    y = model(x)
                assert seen.counts == ({RELU: 2} if kind == "relu" else {GELU: 2})
                close(array(y.double()), expected[0], rtol=tolerance, atol=tolerance * 4)


def case_unasked() -> None:
    """What is done where nobody has set a switch: GELU of 16 bits; results that the two operations give."""
    import flambeau as torch
    for kind, d, expected in (("relu", torch.bfloat16, {}), ("gelu", torch.float32, {}), ("gelu", torch.float64, {}),
                              ("gelu", torch.float16, {GELU_INPUT: 1, GELU_GRADIENT: 1})):
        with allowed("exact") as seen:
            gradients(network(kind, d, 8, 16, 8), torch.ones(2, 8, dtype=d, device="cuda"), torch.ones(2, 8, dtype=d, device="cuda"))
        assert seen.counts == expected, (kind, d, seen.counts)
    model = network("relu", torch.float32, 4, 8, 4)
    x = torch.full((2, 4), float("nan"), device="cuda")
    assert model[:2](x).isnan().all().item()
    if on_hardware():
        return
    with allowed("all"):
        assert not model[:2](x).isnan().any().item()  # cuBLASLt's max(x, 0)


def case_against_differences() -> None:
    """Gradients beside finite differences of the network itself, and beside the same network on the CPU."""
    import numpy as np

    import flambeau as torch
    rng = np.random.default_rng(2)
    for kind in ("relu", "gelu"):
        model = network(kind, torch.float32, 4, 8, 3)
        x = torch.tensor(rng.standard_normal((5, 4)), dtype=torch.float32, device="cuda", requires_grad=True)
        way = torch.tensor(rng.standard_normal((5, 4)), dtype=torch.float32, device="cuda")
        with allowed("all") as seen:
            model(x).square().sum().backward()
            step = 1e-2
            with torch.no_grad():
                up, down = (model(x + s * way).square().sum().item() for s in (step, -step))
            assert abs((up - down) / (2 * step) - (x.grad * way).sum().item()) < 2e-2 * abs((x.grad * way).sum().item()) + 1e-2
        assert seen.counts
        there = network(kind, torch.float32, 4, 8, 3).cpu()
        y = x.detach().cpu().requires_grad_()
        there(y).square().sum().backward()
        close(array(x.grad), array(y.grad), rtol=1e-4, atol=1e-5)


def case_which_gradients() -> None:
    """Any of input, weight and bias may want none; nothing is kept for a gradient nobody asked for."""
    import itertools

    import flambeau as torch
    for kind in ("relu", "gelu"):
        model = network(kind, torch.float32, 4, 8, 4)
        x = torch.randn(3, 4, device="cuda")
        for wants in itertools.product((False, True), repeat=3):
            found = []
            for switch in ("all", "none"):
                model.zero_grad()
                for p, want in zip(model[0].parameters(), wants[1:], strict=True):
                    p.requires_grad_(want)
                y = x.clone().requires_grad_(wants[0])
                with allowed(switch) as seen:
                    model(y).square().sum().backward()
                assert bool(seen.counts) == (switch == "all")
                found.append([t.grad for t in (y, *model.parameters())])
            for a, b in zip(*found, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    close(array(a), array(b), rtol=1e-5, atol=1e-5)


def case_graph_around() -> None:
    """Hooks, retained gradients, gradients of the middle, several readers, second passes and gradients of gradients see what the two
    operations would show."""
    for kind in ("relu", "gelu"):
        _graph_around(kind)


def _graph_around(kind: str) -> None:
    import flambeau as torch
    from flambeau.nn import linear_activation
    F = torch.nn.functional
    model = network(kind, torch.float32, 4, 8, 4)
    first, act, second = model
    x = torch.randn(3, 4, device="cuda", requires_grad=True)

    def middle(x: Any) -> Any:
        return linear_activation.fed_forward(first, act, x, True)

    def each(program: Any) -> None:
        """`program`, fused and not, gives the same tensors."""
        found = []
        for switch in ("all", "none"):
            model.zero_grad()
            x.grad = None
            with allowed(switch):
                found.append([array(t) for t in program()])
        for a, b in zip(*found, strict=True):
            close(a, b, rtol=1e-4, atol=1e-5)
    name = "ReluBackward0" if kind == "relu" else "GeluBackward0"
    with allowed("all"):
        y = middle(x)
        assert y.grad_fn.name() == name and y.grad_fn.next_functions[0][0].name() == "AddmmBackward0"
        assert len(second(y).grad_fn.next_functions) == 3

    def hooks() -> Any:
        seen: list[Any] = []
        y = middle(x)
        y.register_hook(lambda g: seen.append(g) or g * 2)
        y.retain_grad()
        second(y).sum().backward()
        return [seen[0], y.grad, x.grad, first.weight.grad, first.bias.grad]
    each(hooks)

    def inner() -> Any:
        y = middle(x)
        z = second(y).sum()
        return [*torch.autograd.grad(z, [y, x], retain_graph=True), *torch.autograd.grad(z, [y], retain_graph=True),
                *torch.autograd.grad(z, [first.weight, second.weight])]
    each(inner)

    def readers() -> Any:
        y = middle(x)
        (second(y).sum() + (y * y).sum() + F.linear(y, second.weight).square().sum()).backward()
        return [x.grad, first.weight.grad, first.bias.grad, second.weight.grad]
    each(readers)

    def again() -> Any:
        z = model(x).square().sum()
        z.backward(retain_graph=True)
        z.backward()
        return [x.grad, first.weight.grad]
    each(again)

    def twice() -> Any:
        g, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return [x.grad, first.weight.grad, second.weight.grad]
    each(twice)

    def checkpointed() -> Any:
        from flambeau.utils.checkpoint import checkpoint
        checkpoint(model, x, use_reentrant=False).sum().backward()
        return [x.grad, first.weight.grad]
    each(checkpointed)
    with allowed("all"):
        y = middle(x)
        a, b = second(y).sum(), (y * y).sum()
        b.backward()
        try:
            a.backward()
            raise AssertionError("a freed graph was run")
        except RuntimeError as error:
            assert "second time" in str(error)
        if kind == "relu":
            y = middle(x)
            z = second(y).sum()
            with torch.no_grad():
                y.mul_(2)
            try:
                z.backward()
                raise AssertionError("a changed result was used")
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)

    def written() -> Any:
        y = middle(x)
        if kind == "gelu":
            y.add_(1)  # recorded: the next layer reads another result
        else:
            y = y + 1
        second(y).sum().backward()
        return [x.grad, first.weight.grad]
    each(written)


def case_unusual_operands() -> None:
    """Gaps, odd addresses, odd sizes, nothing at all, other types, no bias: the two operations, or the same numbers."""
    import flambeau as torch
    nn = torch.nn
    for kind in ("relu", "gelu"):
        act = nn.ReLU() if kind == "relu" else nn.GELU("tanh")
        whole = torch.randn(9, 17, device="cuda")
        for x, layer, fused in ((whole[:, :8], nn.Linear(8, 8), True), (whole[:, 1:9], nn.Linear(8, 8), False),
                                (torch.randn(8, 9, device="cuda").t(), nn.Linear(8, 8), True), (torch.randn(0, 8, device="cuda"), nn.Linear(8, 8), False),
                                (torch.randn(2, 8, device="cuda"), nn.Linear(8, 5), kind == "relu"), (torch.randn(8, device="cuda"), nn.Linear(8, 8), False),
                                (torch.randn(2, 8, device="cuda"), nn.Linear(8, 8, bias=False), False),
                                (torch.randn(2, 3, 16, device="cuda")[..., ::2], nn.Linear(8, 8), False),
                                (torch.randn(2, 0, device="cuda"), nn.Linear(0, 8), False),
                                (torch.randn(4, 8, device="cuda").expand(3, 4, 8), nn.Linear(8, 8), False),
                                (torch.randn(2, 8, device="cuda", dtype=torch.float64), nn.Linear(8, 8, dtype=torch.float64), False)):
            model = nn.Sequential(layer.cuda(), act)
            with allowed("all") as seen:
                x = x.detach().requires_grad_()
                y = model(x)
                y.sum().backward()
            code = RELU if kind == "relu" else GELU_INPUT
            assert seen.counts == ({code: 1} if fused else {}), (kind, x.shape, x.stride(), seen.counts)
            found, grad = array(y), array(x.grad)
            x.grad = None
            z = act(layer(x))
            z.sum().backward()
            close(found, array(z), rtol=1e-5, atol=1e-6)
            close(grad, array(x.grad), rtol=1e-5, atol=1e-6)
        with allowed("all"):
            inplace = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8)).cuda()
            x = torch.randn(4, 8, device="cuda", requires_grad=True)
            inplace(x).sum().backward()
            assert x.grad.shape == (4, 8)


def case_modules_change() -> None:
    """Hooks, own forwards, other modules and an onlooker are noticed on the next call."""
    import flambeau as torch
    from flambeau._core.engine import interpreters
    nn, F = torch.nn, torch.nn.functional
    x = torch.randn(2, 8, device="cuda")

    def fused(model: Any) -> bool:
        with allowed("all") as seen, torch.no_grad():
            model(x)
        return bool(seen.counts)
    model = network("gelu", torch.float32, 8, 8, 8)
    assert fused(model)
    for module in model[:2]:
        for register in (module.register_forward_hook, module.register_forward_pre_hook, module.register_full_backward_hook,
                         module.register_full_backward_pre_hook):
            handle = register(lambda *a: None)
            assert not fused(model)
            handle.remove()
            assert fused(model)
        module.forward = type(module).forward.__get__(module)
        assert not fused(model)
        del module.forward
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    assert not fused(model)
    handle.remove()
    told: list[str] = []

    def look(name: str, function: Any, args: Any, kwargs: Any) -> Any:
        told.append(name)
        return function(*args, **kwargs)
    with interpreters.watch(look):
        assert not fused(model)
    assert told.count("linear") == 2 and told.count("gelu") == 1
    assert fused(model)
    model[1].approximate = "none"
    assert not fused(model)
    model[1] = nn.ReLU()
    assert fused(model)
    model[1] = nn.SiLU()
    assert not fused(model)

    class Own(nn.Linear):
        pass
    model[1], model[0] = nn.ReLU(), Own(8, 8).cuda()
    assert not fused(model)
    model[0] = nn.Linear(8, 8).cuda()
    assert fused(model)
    before = torch.func.functional_call(model, {"0.weight": torch.zeros(8, 8, device="cuda"), "0.bias": torch.ones(8, device="cuda")}, (x,))
    assert torch.equal(before, model[2](torch.ones(2, 8, device="cuda")))
    assert torch.func.vmap(model)(torch.stack([x, x])).shape == (2, 2, 8)
    kept = F.linear
    try:
        F.linear = lambda *a: kept(*a)
        assert not fused(model)
    finally:
        F.linear = kept
    with torch.provenance(True):
        assert not fused(model)
    with torch.autograd.detect_anomaly(check_nan=False):
        assert not fused(model)


def case_autocast() -> None:
    import flambeau as torch
    model = network("gelu", torch.float32, 8, 16, 8)
    x = torch.randn(4, 8, device="cuda")
    with allowed("exact") as seen, torch.autocast("cuda", dtype=torch.bfloat16):
        y = model(x)
        y.float().sum().backward()
    assert y.dtype is torch.bfloat16 and seen.counts == {GELU_INPUT: 1, GELU_GRADIENT: 1}, seen.counts
    grads = [array(p.grad) for p in model.parameters()]
    model.zero_grad()
    with allowed("none"), torch.autocast("cuda", dtype=torch.bfloat16):
        z = model(x)
        z.float().sum().backward()
    close(array(y.float()), array(z.float()), rtol=4e-2, atol=4e-2)
    for p, g in zip(model.parameters(), grads, strict=True):
        assert p.grad.dtype is torch.float32
        close(g, array(p.grad), rtol=5e-2, atol=5e-2)
    with allowed("exact") as seen, torch.autocast("cuda", dtype=torch.bfloat16):
        network("gelu", torch.float32, 8, 9, 8)(x)
    assert seen.counts == {}


def case_transformer_layers() -> None:
    import flambeau as torch
    nn = torch.nn
    for activation, code, gradient in (("relu", RELU_SIGNS, RELU_GRADIENT), (nn.GELU("tanh"), GELU_INPUT, GELU_GRADIENT),
                                       (nn.ReLU(), RELU_SIGNS, RELU_GRADIENT)):
        for make, args in ((nn.TransformerEncoderLayer, 1), (nn.TransformerDecoderLayer, 2)):
            for dropout in (0.0, 0.5):
                torch.manual_seed(3)
                layer = make(8, 2, dim_feedforward=16, dropout=dropout, activation=activation, batch_first=True).cuda()
                x = torch.randn(2, 3, 8, device="cuda", requires_grad=True)
                found = []
                for switch in ("all", "none"):
                    x.grad = None
                    layer.zero_grad()
                    torch.manual_seed(4)
                    with allowed(switch) as seen:
                        y = layer(*[x] * args)
                        y.square().sum().backward()
                    forward = code if not dropout or code == GELU_INPUT else RELU
                    assert seen.counts == ({} if switch == "none" else {forward: 1} if dropout else {forward: 1, gradient: 1}), seen.counts
                    found.append([array(t) for t in (y, x.grad, layer.linear1.weight.grad, layer.linear1.bias.grad)])
                for a, b in zip(*found, strict=True):
                    close(a, b, rtol=2e-4, atol=2e-4)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, activation="gelu").cuda()
    with allowed("all") as seen:
        layer(torch.randn(2, 3, 8, device="cuda"))
    assert seen.counts == {}  # the exact GELU is not the library's


def case_addmm_activation() -> None:
    import flambeau as torch
    F = torch.nn.functional
    base, a, b = (torch.randn(*s, device="cuda", requires_grad=True) for s in ((8,), (3, 4), (4, 8)))
    for gelu in (False, True):
        after = (lambda t: F.gelu(t, approximate="tanh")) if gelu else F.relu
        for more, fused in (({}, True), ({"beta": 0.5}, False), ({"alpha": 2}, False)):
            with allowed("none") as seen:
                y = torch._addmm_activation(base, a, b, use_gelu=gelu, **more)
                found = torch.autograd.grad(y.square().sum(), (base, a, b))
            assert seen.counts == ({(GELU_INPUT if gelu else RELU): 1} if fused else {}), seen.counts
            z = after(torch.addmm(base, a, b, **more))
            close(array(y), array(z), rtol=1e-5, atol=1e-6)
            for p, q in zip(found, torch.autograd.grad(z.square().sum(), (base, a, b)), strict=True):
                close(array(p), array(q), rtol=1e-4, atol=1e-5)
        out = torch.empty(3, 8, device="cuda")
        with torch.no_grad():
            assert torch._addmm_activation(base, a, b, use_gelu=gelu, out=out) is out
        close(array(out), array(after(torch.addmm(base, a, b))), rtol=1e-5, atol=1e-6)
        with allowed("none") as seen, torch.no_grad():
            torch._addmm_activation(base[None], a, b, use_gelu=gelu)
            torch._addmm_activation(torch.ones(3, 8, device="cuda"), a, b, use_gelu=gelu)
        assert seen.counts == {}


def case_refusals() -> None:
    """Where the library has no kernel for an epilogue, other ones and the two operations do."""
    import flambeau as torch
    lib = fake("libcublasLt.so.13")
    for kind, bits, expected in (("relu", 2, {}), ("relu", 8, {RELU_SIGNS: 1}), ("relu", 128, {RELU: 1}), ("gelu", 32, {}),
                                 ("gelu", 64, {GELU_INPUT: 1}), ("gelu", 128, {}), ("relu", 4, {}), ("gelu", 4, {})):
        width = 8 + 8 * ["relu", "gelu"].index(kind) + 16 * bits.bit_length()  # a shape of its own: what is chosen is kept
        model = network(kind, torch.float32, 8, width, 8)
        x, g = torch.randn(3, 8, device="cuda"), torch.randn(3, 8, device="cuda")
        lib.fake_refuse_epilogues(bits)
        try:
            with allowed("all") as seen:
                found = gradients(model, x, g)
        finally:
            lib.fake_refuse_epilogues(0)
        assert seen.counts == expected, (kind, bits, seen.counts)
        with allowed("none"):
            plain = gradients(model, x, g)
        for a, b in zip(found, plain, strict=True):
            close(a, b, rtol=1e-5, atol=1e-5)
    with allowed("all"):
        model = network("gelu", torch.float32, 8, 8, 8)
        x = torch.randn(3, 8, device="cuda")
        model(x)
        lib.fake_fail_product(13)
        try:
            model(x)
            raise AssertionError("the failure was not told")
        except RuntimeError as error:
            assert "its kernel failed (status 13)" in str(error), error


def case_streams_share_a_description() -> None:
    """Layers of one shape share the library's description of it: each call's addresses are its own."""
    import threading

    import flambeau as torch
    models = [network("gelu", torch.float32, 8, 8, 8, 8) for _ in range(3)]
    for i, model in enumerate(models):
        for p in model.parameters():
            p.data.mul_(1 + i)
    x = torch.randn(4, 8, device="cuda")
    with allowed("none"), torch.no_grad():
        expected = [array(m(x)) for m in models]
    torch.cuda.synchronize()
    wrong: list[Any] = []

    def work(i: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            for _ in range(10):
                found = array(models[i](x))
                if abs(found - expected[i]).max() > (4e-3 if on_hardware() else 1e-4) * abs(expected[i]).max():
                    wrong.append(i)
    with allowed("all") as seen:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong and seen.counts == {GELU: 60}, (wrong, seen.counts)


if __name__ == "__main__":
    cases.main(globals())
