"""Compiled functions on NVIDIA GPUs: a replay gives the driver launches by machine code that eager calls use, or that fused loops make."""

from __future__ import annotations

import os
from typing import Any

from cases import array


def _normalized(a: Any, b: Any) -> Any:
    import flambeau as torch
    return torch.nn.functional.layer_norm(a + b, a.shape[-1:])


def _wide(a: Any, b: Any) -> Any:
    import flambeau as torch
    return torch.nn.functional.layer_norm(a.float() * 2, a.shape[-1:]).to(a.dtype)


def _share(a: Any, b: Any) -> Any:
    return (a * b).softmax(-1)


def _logarithm(a: Any, b: Any) -> Any:
    return (a.float() + 1).log_softmax(-1)


def _total(a: Any, b: Any) -> Any:
    return (a.float() * 3).sum(-1)


def _columns(a: Any, b: Any) -> Any:
    return (a + b).sum(0)


def _distance(a: Any, b: Any) -> Any:
    return (a - b).square().mean()


def _product_and_sum(a: Any, b: Any) -> Any:
    return (a * b).sum(-1)


def _product_and_rest(a: Any, b: Any) -> Any:
    return a * b + a


def _power_and_rest(a: Any, b: Any) -> Any:
    return a.exp() + b


def _normalized_and_rest(a: Any, b: Any) -> Any:
    import flambeau as torch
    return torch.nn.functional.layer_norm(a, a.shape[-1:]) + b


def _normalized_product(a: Any, b: Any) -> Any:
    import flambeau as torch
    return torch.nn.functional.layer_norm(a * b, a.shape[-1:]) * b + a


def _smooth(a: Any, b: Any) -> Any:
    import flambeau as torch
    return (torch.nn.functional.gelu(a) - b).softmax(-1)


def _turned(a: Any, b: Any) -> Any:
    return b - (-(a * a)) - (a.sigmoid() * b)


_PRODUCTS = (_product_and_sum, _product_and_rest, _power_and_rest, _normalized_and_rest, _normalized_product, _smooth, _turned)
_SUMS = (_normalized, _wide, _share, _logarithm, _total, _columns, _distance)


def _kept_always() -> Any:
    from flambeau._core.compile import compiled
    compiled.pays, compiled._TIMED, compiled.AFTER = (lambda *times: True), 1, 1  # type: ignore[assignment]
    return compiled


def _held(make: Any, calls: int = 12) -> int:
    """Runs what `make` gives, a step and the tensors that it leaves, as it is and compiled, and holds one against the other; gives the launches of a replay."""
    import flambeau as torch
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        step, batch, left = make()
        f: Any = torch.compile(step) if compiles else step
        torch.manual_seed(1)
        given = [f(*batch(k)).detach() for k in range(calls)]
        found.append([array(t.float()).tolist() for t in [*given, *left()]])
    assert found[0] == found[1]
    assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]
    record = f.__compiled__.records[0]
    assert record.plan.device.type == "cuda"
    return len(record.plan.launches())


def case_a_training_step() -> None:
    _kept_always()
    import flambeau as torch
    from flambeau import nn
    from flambeau.nn import functional as F

    def make() -> Any:
        net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return step, lambda k: (torch.randn(16, 20, device="cuda"), torch.randint(0, 5, (16,), device="cuda")), lambda: list(net.parameters())
    assert _held(make) > 15


def case_a_step_that_keeps_its_losses() -> None:
    _kept_always()
    import flambeau as torch
    from flambeau import nn
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        net, losses = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).cuda(), list[float]()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer, losses: Any = losses) -> None:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        f: Any = torch.compile(step) if compiles else step
        for k in range(12):
            f(torch.full((4, 6), 0.1 * k, device="cuda"))
        found.append((losses, [array(p).tolist() for p in net.parameters()]))
    assert found[0] == found[1]
    assert f.__compiled__.records, [k.why for k in f.__compiled__.kinds.values()]


def case_half_precision_with_attention() -> None:
    _kept_always()
    import flambeau as torch
    from flambeau import nn
    from flambeau.nn import functional as F

    def make() -> Any:
        tokens, mixed, out = nn.Embedding(50, 32).cuda(), nn.Linear(32, 96).cuda(), nn.Linear(32, 50).cuda()
        parts = [*tokens.parameters(), *mixed.parameters(), *out.parameters()]
        optimizer = torch.optim.SGD(parts, lr=0.1, momentum=0.9)

        def step(ids: Any) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                x = tokens(ids)
                q, k, v = mixed(x).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
                x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 16, 32)
                loss = F.cross_entropy(out(F.layer_norm(x, (32,))).view(-1, 50), ids.view(-1))
            loss.backward()
            optimizer.step()
            return loss
        return step, lambda k: (torch.randint(0, 50, (2, 16), device="cuda"),), lambda: parts
    assert _held(make) > 20


def _bits_stay(works: Any, shapes: Any, dtypes: Any) -> list[str]:
    """Holds each function compiled against itself, to the bit; gives what was joined."""
    import flambeau as torch
    from flambeau._core.compile import kept
    joined: list[str] = []
    shortened = kept.shortened

    def shown(plan: Any) -> Any:
        steps = shortened(plan)
        joined.extend(s.prepared.name for s in steps if hasattr(s, "prepared") and "+" in s.prepared.name)
        return steps
    kept.shortened = shown  # type: ignore[assignment]
    for k, work in enumerate(works):
        for d in dtypes:
            for shape in shapes:
                torch.manual_seed(k)
                a, b = (torch.randn(shape, device="cuda").to(d) for _ in range(2))
                f: Any = torch.compile(work)
                for _ in range(5):
                    found = f(a, b)
                assert array(found.float()).tobytes() == array(work(a, b).float()).tobytes(), (work.__name__, d, shape)
    return joined


def case_sums_keep_their_order() -> None:
    """Loops are joined with sums only where a thread adds up the same elements in the same order, which the types that it reads decide."""
    _kept_always()
    import flambeau as torch
    joined = _bits_stay(_SUMS, ((3, 40), (5, 520), (2, 4096), (2, 30000), (700, 24)), (torch.float32, torch.bfloat16, torch.float16))
    assert len(joined) > 20, joined


def case_products_are_rounded_as_before() -> None:
    """NVIDIA's compiler makes one of a product and an addition where it may: a loop that is joined leaves none to it that was apart."""
    os.environ["FAKE_CONTRACT"] = "1"
    _kept_always()
    import flambeau as torch
    joined = _bits_stay((*_SUMS, *_PRODUCTS), ((3, 40), (5, 520), (2, 4096)), (torch.float32, torch.bfloat16))
    assert len(joined) > 20, joined


def case_convolutions() -> None:
    _kept_always()
    import flambeau as torch
    from flambeau import nn

    def make() -> Any:
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.Flatten(),
                            nn.Linear(36, 3)).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)

        def step(x: Any) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        return step, lambda k: (torch.randn(2, 3, 10, 10, device="cuda"),), lambda: [*net.parameters(), *net.buffers()]
    assert _held(make) > 15


def case_elements_and_branches() -> None:
    compiled = _kept_always()
    import flambeau as torch
    seen = []

    def f(x: Any) -> Any:
        total = x.sum()
        seen.append(total.item())
        return x * 2 if total > 0 else x - 1
    g: Any = torch.compile(f)
    for k in range(16):
        x = torch.full((7,), float(k if k % 3 else -k), device="cuda")
        assert (array(g(x)) == (2 * k if k % 3 else -k - 1)).all() and seen[-1] == 7 * (k if k % 3 else -k)
    assert any(record.call((x,), {}) is not compiled.MISS for record in g.__compiled__.records)


def case_a_position_out_of_range_is_told() -> None:
    _kept_always()
    import flambeau as torch
    table = torch.arange(5.0, device="cuda")
    g: Any = torch.compile(lambda i: table[i] + 1)
    good = torch.tensor([0, 4, 2], device="cuda")
    for _ in range(8):
        assert (array(g(good)) == array(table)[[0, 4, 2]] + 1).all()
    assert g.__compiled__.records
    g(torch.tensor([0, 9, 2], device="cuda"))
    try:
        torch.cuda.synchronize()
    except torch.AcceleratorError as error:
        assert "9" in str(error)
    else:
        raise AssertionError("not told")
    assert (array(g(good)) == array(table)[[0, 4, 2]] + 1).all()


if __name__ == "__main__":
    import cases
    cases.main(globals())
