"""Training steps through the NVIDIA driver on a fake libcuda: what they launch, and that it is right."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cases
from cases import array


def launches(work: Any) -> Counter[str]:
    """What `work` launches, by name; kinds of copies too."""
    from flambeau._core.runtime import dispatch
    found: Counter[str] = Counter()
    work()
    work()
    with dispatch.observe(lambda dev, stream, prepared, args: found.update([prepared.name]), lambda c: found.update([c.direction])):
        work()  # an observer makes launches anew
        found.clear()
        work()
    return found


def _parameters(torch: Any, device: str, dtype: Any, count: int = 130) -> list[Any]:
    torch.manual_seed(0)
    shapes = [(3,), (64, 128), (200, 50), (7, 5), (), (1000,), (9000,)]
    made = [torch.nn.Parameter((torch.randn(shapes[k % len(shapes)]) * (k + 1)).to(dtype).to(device)) for k in range(count)]
    return [*made, torch.nn.Parameter(torch.randn(40, 30).to(dtype).to(device).t())]


def _gradients(torch: Any, parameters: list[Any], seed: int) -> None:
    torch.manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape).to(p.dtype).to(p.device)


def case_optimizers() -> None:
    """Every parameter by one launch or a few, to the bit what the CPU makes of each."""
    import flambeau as torch
    for dtype in (torch.float32, torch.bfloat16):
        for make in (lambda ps: torch.optim.AdamW(ps), lambda ps: torch.optim.Adam(ps, amsgrad=True), lambda ps: torch.optim.SGD(ps, lr=0.1),
                     lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)):
            results, seen = [], Counter()  # type: ignore[var-annotated]
            for device in ("cpu", "cuda"):
                parameters = _parameters(torch, device, dtype)
                optimizer = make(parameters)
                versions = [p._version for p in parameters]
                for k in range(3):
                    _gradients(torch, parameters, k)
                    if device == "cuda" and k == 2:
                        seen = _counted(optimizer.step)
                    else:
                        optimizer.step()
                results.append([array(p.float()) for p in parameters])
                assert [p._version for p in parameters] == [v + 3 for v in versions]
            for a, b in zip(*results, strict=True):
                assert (a == b).all()
            assert sum(seen.values()) <= 4, seen


def _counted(work: Any) -> Counter[str]:
    from flambeau._core.runtime import dispatch
    found: Counter[str] = Counter()
    with dispatch.observe(lambda dev, stream, prepared, args: found.update([prepared.name])):
        work()
    return found


def case_clipping() -> None:
    import numpy as np

    import flambeau as torch
    for dtype in (torch.float32, torch.bfloat16):
        for p in (2.0, 1.0, float("inf")):
            totals, results = [], []
            for device in ("cpu", "cuda"):
                parameters = _parameters(torch, device, dtype)
                _gradients(torch, parameters, 1)
                totals.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0, p)))
                results.append([array(x.grad.float()) for x in parameters])
            np.testing.assert_allclose(totals[1], totals[0], rtol=1e-5 if dtype is torch.float32 else 2e-2)
            for a, b in zip(*results, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-5 if dtype is torch.float32 else 4e-2)
    parameters = _parameters(torch, "cuda", torch.float32)
    _gradients(torch, parameters, 1)
    seen = launches(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
    assert sum(seen.values()) <= 8 and not {"cat", "d2h", "d2d"} & set(seen), seen


def case_grad_scaler() -> None:
    """Gradients are divided and looked at by one launch; one value crosses."""
    import flambeau as torch
    parameters = _parameters(torch, "cuda", torch.float32, 40)
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for broken in (None, (3, float("inf")), (39, float("nan")), (0, float("-inf")), None):
        scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
        _gradients(torch, parameters, 2)
        if broken is not None:
            parameters[broken[0]].grad.view(-1)[-1] = broken[1]
        given = [array(p.grad) for p in parameters]
        before = [array(p) for p in parameters]
        seen = _counted(lambda: scaler.unscale_(optimizer))  # noqa: B023
        assert sum(seen.values()) <= 2, seen
        for p, g in zip(parameters, given, strict=True):
            assert (array(p.grad) == g / 4).all() or broken is not None
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (4.0 if broken is None else 2.0)
        for p, b, g in zip(parameters, before, given, strict=True):
            assert (array(p) == (b - g / 4 if broken is None else b)).all()


def case_what_is_not_alike() -> None:
    """Views of one memory, other types and other devices are updated all the same."""
    import flambeau as torch
    base = torch.ones(8, device="cuda")
    odd = [torch.nn.Parameter(base[:4]), torch.nn.Parameter(base[4:])]
    places = ("cpu", "cuda:0", f"cuda:{torch.cuda.device_count() - 1}")
    mixed = [torch.nn.Parameter(torch.ones(3, device=d).to(t)) for d in places for t in (torch.float32, torch.float64, torch.bfloat16)]
    mixed += [torch.nn.Parameter(torch.ones(2, 3, device="cuda")[:, ::2]), torch.nn.Parameter(torch.ones(2, dtype=torch.complex64, device="cuda"))]
    for parameters in (odd, mixed):
        optimizer = torch.optim.SGD(parameters, lr=0.5)
        for _ in range(2):
            for p in parameters:
                p.grad = torch.ones_like(p)
            optimizer.step()
        for p in parameters:
            assert (array(p.float() if p.dtype is torch.bfloat16 else p) == 0).all()


def _calls(work: Any) -> int:
    """How many of the package's functions `work` calls."""
    import sys
    from pathlib import Path

    import flambeau
    home, count = str(Path(flambeau.__file__).parent), 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += (event == "call" and frame.f_code.co_filename.startswith(home) and frame.f_code.co_name != "<listcomp>"
                  and not frame.f_back.f_code.co_filename.endswith("strict.py"))  # what the fake asks
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def case_recurrent_layers() -> None:
    """A step of time costs two launches forward and two back, and the host little more than calling them, in any type, inside regions of autocast
    that lower, and inside those that do not."""
    import flambeau as torch
    for kind in ("LSTM", "GRU", "RNN"):
        for d, region in ((torch.float32, None), (torch.bfloat16, None), (torch.float32, False), (torch.float32, True)):
            net = getattr(torch.nn, kind)(8, 8, bidirectional=True).to("cuda").to(d)
            each = []
            for length in (20, 60):
                x = torch.randn(length, 2, 8, device="cuda").to(d)

                def step(x: Any = x, net: Any = net, region: Any = region) -> None:
                    with torch.autocast("cuda", torch.bfloat16, enabled=bool(region)):
                        out = net(x)[0]
                    out.float().square().sum().backward()
                number = sum(launches(step).values())
                step()
                each.append((number, min([_calls(step) for _ in range(3)])))  # some of them learn
            (n0, c0), (n1, c1) = each
            steps = 2 * 40  # of both directions
            assert n1 - n0 <= 4 * steps, (kind, d, region, each)
            assert c1 - c0 <= 5 * steps, (kind, d, region, each)


def _layers(torch: Any) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to("cuda")


def _step(torch: Any, net: Any, x: Any, region: Any = None) -> Any:
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        if region is None:
            loss = net(x).float().square().mean()
        else:
            with torch.autocast("cuda", region):
                loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
    return step


def case_blocks_copy_nothing() -> None:
    """A step of two transformer blocks: products, norms, attention, and nothing is laid out anew."""
    import flambeau as torch
    for d in (torch.float32, torch.bfloat16):
        net = _layers(torch).to(d)
        seen = launches(_step(torch, net, torch.randn(2, 8, 32, device="cuda").to(d)))
        assert not {"contiguous", "clone", "copy", "cat", "h2d", "d2h", "d2d"} & set(seen), seen
        assert seen["adam"] == 1 and not seen["put"], seen  # attention's gradients are written where the projection's is
        other = "matmul_float32" if d is torch.bfloat16 else "matmul_bfloat16"
        assert not seen[other], seen
        assert seen["fill"] <= 1, seen


def case_gradients_of_blocks() -> None:
    """They are those of the CPU, however heads are cut out of one projection."""
    import numpy as np

    import flambeau as torch
    f = torch.nn.functional

    def one(qkv: Any) -> Any:
        q, k, v = qkv.view(2, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        return f.scaled_dot_product_attention(q, k, v, is_causal=True)

    def two(qkv: Any) -> Any:
        x = qkv.view(2, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        return f.scaled_dot_product_attention(x[1], x[0], x[2])

    def three(qkv: Any) -> Any:
        q, k, v = (x.unflatten(-1, (2, 16)).transpose(1, 2) for x in qkv.chunk(3, -1))
        return f.scaled_dot_product_attention(q, k, v) + q

    def four(qkv: Any) -> Any:
        q, k, v = (qkv[..., i * 32:i * 32 + 32].unflatten(-1, (2, 16)).transpose(1, 2) for i in (0, 1, 1))
        return f.scaled_dot_product_attention(q, k, v)
    for cut in (one, two, three, four):
        found = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(3)
            x, w = torch.randn(2, 8, 24).to(device).requires_grad_(), (torch.randn(96, 24) * 0.3).to(device).requires_grad_()
            out = cut(f.linear(x, w))
            (out * out).sum().backward()
            found.append([array(t) for t in (out, x.grad, w.grad)])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-3)
    found = []
    for device in ("cpu", "cuda"):
        net = _layers(torch).to(device)
        torch.manual_seed(1)
        net(torch.randn(2, 8, 32).to(device)).square().mean().backward()
        found.append([array(p.grad) for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5)


def case_a_small_network() -> None:
    """Two layers and a cross-entropy: a launch for each part of them, and one for the optimizer."""
    import numpy as np

    import flambeau as torch
    f = torch.nn.functional
    for reduction in ("mean", "sum", "none"):
        grads = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).to(device)
            x, y = torch.randn(48, 32).to(device), torch.arange(48) % 10
            y[::5] = -100
            y = y.to(device)
            loss = f.cross_entropy(net(x), y, reduction=reduction)
            loss.sum().backward()
            grads.append([array(loss), *[array(p.grad) for p in net.parameters()]])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
    logits = torch.randn(6, 5, device="cuda", dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 1, -100, 4, 2, 0], device="cuda")
    assert torch.autograd.gradcheck(lambda t: f.cross_entropy(t, targets), (logits,))
    assert torch.autograd.gradgradcheck(lambda t: f.cross_entropy(t, targets), (logits,))
    assert np.isnan(array(f.cross_entropy(logits, torch.full((6,), -100, device="cuda"))))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        f.cross_entropy(net(x), y).backward()
        optimizer.step()
    seen = launches(step)
    assert sum(seen.values()) <= 11 and not {"fill", "ne", "div", "clone"} & set(seen), seen


def case_launches_are_builtins() -> None:
    """On the default stream and on others; in a thread that has not used the device the driver refuses at first."""
    import threading

    import flambeau as torch
    from flambeau._core.kernels import expr as E
    from flambeau._core.kernels.programs import Map
    from flambeau._core.kernels.specs import Loop
    from flambeau._core.runtime import gpus
    x = torch.arange(5.0, device="cuda")
    program = Map((E.input(0, torch.float32) * E.scalar(0, torch.float32),), (torch.float32,), (torch.float32,))
    prepared = gpus.gpu().driver.prepare(0, Loop(program, (5,), ((1,), (1,))))
    launch, asked = gpus.launcher(x.device, prepared), "_launcher.<locals>.enqueue"
    assert launch.__qualname__ != asked, launch  # no line of Python asks for the stream
    y = torch.zeros(5, device="cuda")
    found: list[Any] = []

    def work() -> None:
        launch(y.data_ptr(), x.data_ptr(), 3.0)
        found.append(array(y).tolist())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[0.0, 3.0, 6.0, 9.0, 12.0]], found
    try:
        launch(y.data_ptr(), x.data_ptr(), "3")
    except TypeError:
        pass
    else:
        raise AssertionError("a number that is none")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        z = x * 2
    side.synchronize()
    assert array(z).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert gpus.launcher(x.device, prepared).__qualname__ != asked  # a word of the thread says which stream is current
    assert array(x * 2 + z).tolist() == [0.0, 4.0, 8.0, 12.0, 16.0]


def end_a_launch_fails(fake: Any) -> None:
    """The device is dead, and says so with its first words."""
    import flambeau as torch
    x = torch.ones(4, device="cuda")
    y = x + x
    fake.fake_fail(b"cuLaunchKernel", 0, 719)
    for _ in range(2):
        try:
            x + x
        except RuntimeError as error:
            assert "launching 'add'" in str(error) and "CUDA_ERROR_LAUNCH_FAILED" in str(error), error
        else:
            raise AssertionError("no error")
    del y


if __name__ == "__main__":
    cases.main(globals())
