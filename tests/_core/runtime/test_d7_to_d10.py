"""Rows D7 to D10: results stay put, the current device, visibility, autograd through transfers; a class for each row."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import cuda, nn
from flambeau._core.runtime import dispatch

F: Any = nn.functional
D = torch.device
CPU, GPU0, GPU1 = D("cpu"), D("cuda:0"), D("cuda:1")


@pytest.fixture(params=["eager", "lazy"])
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.simulate(gpus=2, memory="64MiB", queue=request.param):
        yield


def _ops(x: torch.Tensor) -> list[Any]:
    """Results of every family from one (4, 4) tensor."""
    i = torch.arange(4, device=x.device)
    net = nn.Linear(4, 4, device=x.device)
    found = [x + x, x + 1, 1 - x, x.exp(), x > 0, x.sum(), x.mean(0), x.argmax(), x.cumsum(0), x.sort(), x.topk(2), x.max(0), x @ x, x.t(),
             x[0], x[i], x[x > 0], x.nonzero(), x.float(), x.double(), x.clone(), x.softmax(0), torch.cat([x, x]), torch.stack([x, x]),
             torch.where(x > 0, x, 0.0), x.gather(0, i.reshape(1, 4)), torch.zeros_like(x), torch.rand_like(x), x.new_zeros(2), x.new_tensor([1.0]), F.relu(x),
             F.dropout(x, 0.5), F.linear(x, x), F.layer_norm(x, (4,)), F.conv2d(x.reshape(1, 1, 4, 4), x[:2, :2].reshape(1, 1, 2, 2)), F.mse_loss(x, x),
             F.cross_entropy(x, i), F.embedding(i, x),
             net(x), torch.einsum("ij,jk", x, x), x.unique(), torch.bincount(i), x.quantile(0.5), x.histc(4),
             torch.multinomial(x.abs() + 1, 2), torch.bernoulli(x.sigmoid()), x.normal_(), torch.randint_like(i, 5), x.split(2), x.unbind(),
             x.expand(2, 4, 4), x.var(), x.norm(), F.one_hot(i), x.tril(), x.diag(),
             F.scaled_dot_product_attention(x[None], x[None], x[None]), F.max_pool2d(x.reshape(1, 1, 4, 4), 2), F.batch_norm(x, None, None, training=True),
             F.pad(x, (1, 1)), x.isnan(), x.all(), x.logsumexp(0), torch.pow(2.0, x)]
    out = []
    for r in found:
        out += list(r) if isinstance(r, (tuple, list)) else [r]
    return out


class TestD7ResultsStayPut:
    @pytest.mark.parametrize("where", ["cpu", "cuda:0", "cuda:1"])
    def test_whatever_the_current_and_the_default_device(self, gpus: None, where: str) -> None:
        for current in (0, 1):
            for default in ("cpu", "cuda:0", "cuda:1"):
                with cuda.device(current), D(default):
                    x = torch.randn(4, 4, device=where)
                    devices = [t.device for t in _ops(x)]
                    assert set(devices) == {D(where)}, [i for i, d in enumerate(devices) if d != D(where)]

    def test_nothing_crosses(self, gpus: None) -> None:
        x = torch.randn(4, 4, device="cuda:1")
        copies: list[Any] = []
        with dispatch.observe(copies=copies.append):
            for call in (lambda: x @ x + 1, lambda: F.softmax(x.exp(), 0).sum(), lambda: torch.cat([x, x])[:3].t().contiguous(), lambda: F.gelu(F.linear(x, x)),
                         lambda: x.clone().add_(x).mul_(2), lambda: torch.where(x > 0, x, 0.0)):
                call()
        assert not copies

    def test_work_goes_to_the_tensors_gpu_not_the_current_one(self, gpus: None) -> None:
        x = torch.ones(3, device="cuda:1")
        launched: list[Any] = []
        with dispatch.observe(launches=lambda dev, stream, prepared, args: launched.append((dev, stream.device))), cuda.device(0):
            x.exp_()
        assert launched and {d for pair in launched for d in pair} == {GPU1}

    def test_in_place_and_out_forms(self, gpus: None) -> None:
        with cuda.device(0):
            x, out = torch.ones(3, device="cuda:1"), torch.empty(0, device="cuda:1")
            assert x.add_(1) is x and x.device == GPU1 and torch.add(x, x, out=out) is out and out.device == GPU1 and out.tolist() == [4.0] * 3


class TestD8CurrentDevice:
    def test_queries(self, gpus: None) -> None:
        assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
        assert cuda.get_device_name() == cuda.get_device_name(1) == cuda.get_device_name("cuda:1") == cuda.get_device_properties(GPU1).name == "NVIDIA H200"
        p = cuda.get_device_properties(0)
        assert p.total_memory == 64 << 20 and (p.major, p.minor) == cuda.get_device_capability(0) == (9, 0) and p.multi_processor_count > 0
        assert cuda.is_initialized()

    def test_set_device_and_blocks(self, gpus: None) -> None:
        cuda.set_device(1)
        assert cuda.current_device() == 1 and torch.ones(1).cuda().device == GPU1 == torch.ones(1, device="cuda").device == cuda.FloatTensor(1).device
        with cuda.device(0):
            assert cuda.current_device() == 0 and torch.empty(1, device="cuda").device == GPU0
            with cuda.device("cuda:1"), cuda.device(None), cuda.device(-1):
                assert cuda.current_device() == 1
            assert cuda.current_device() == 0
        assert cuda.current_device() == 1
        with pytest.raises(ZeroDivisionError), cuda.device(0):
            raise ZeroDivisionError
        assert cuda.current_device() == 1
        with cuda.device_of(torch.ones(1, device="cuda:0")):
            assert cuda.current_device() == 0
        cuda.set_device(GPU0)

    def test_each_thread_has_its_own(self, gpus: None) -> None:
        seen: list[int] = []
        cuda.set_device(1)

        def work() -> None:
            seen.append(cuda.current_device())
            with cuda.device(1):
                seen.append(cuda.current_device())
            seen.append(cuda.current_device())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [0, 1, 0] and cuda.current_device() == 1

    def test_memory(self, gpus: None) -> None:
        free, total = cuda.mem_get_info()
        assert total == 64 << 20 and free == total
        assert cuda.memory_allocated() == cuda.memory_reserved() == 0
        x = torch.zeros(1 << 20, device="cuda:1")  # 4 MiB
        assert cuda.memory_allocated(1) == 4 << 20 and cuda.memory_allocated(0) == 0 and cuda.memory_reserved(1) >= 4 << 20
        assert cuda.max_memory_allocated("cuda:1") == 4 << 20 and cuda.max_memory_reserved(1) == cuda.memory_reserved(1)
        assert cuda.mem_get_info(1)[0] <= total - (4 << 20)
        del x
        cuda.synchronize(1)
        assert cuda.memory_allocated(1) == 0 and cuda.max_memory_allocated(1) == 4 << 20 and cuda.memory_reserved(1) > 0
        cuda.reset_peak_memory_stats(1)
        assert cuda.max_memory_allocated(1) == 0
        cuda.empty_cache()
        assert cuda.memory_reserved(1) == 0 and cuda.mem_get_info(1)[0] == total
        assert "cuda:1" in cuda.memory_summary(1) and cuda.memory_stats(1)["allocated_bytes.all.peak"] == 0

    def test_synchronize_waits(self, gpus: None) -> None:
        x = torch.zeros(1 << 16, device="cuda:1")
        for _ in range(20):
            x += 1
        cuda.synchronize(1)
        assert cuda.current_stream(1).query() and x[0].item() == 20
        cuda.synchronize()
        cuda.synchronize(GPU1)

    @pytest.mark.parametrize("call", [
        lambda: cuda.set_device(2), lambda: cuda.device(2), lambda: cuda.get_device_name(9), lambda: cuda.get_device_properties("cuda:2"),
        lambda: cuda.mem_get_info(2), lambda: cuda.synchronize(2), lambda: cuda.memory_allocated(2), lambda: cuda.reset_peak_memory_stats(2),
        lambda: cuda.Stream(2), lambda: cuda.get_device_capability(3),
    ])
    def test_a_gpu_that_is_not_there(self, gpus: None, call: Callable[[], Any]) -> None:
        torch.ones(1, device="cuda")
        with pytest.raises(RuntimeError, match="is not there; the devices here are cpu and cuda:0 to cuda:1"):
            call()

    def test_without_a_gpu(self) -> None:
        with torch.simulate(gpus=0):
            assert not cuda.is_available() and cuda.device_count() == 0 and cuda.memory_allocated() == 0
            cuda.empty_cache()
            for call in (cuda.current_device, cuda.get_device_name, cuda.mem_get_info, cuda.synchronize, lambda: cuda.set_device(0), cuda.Stream, cuda.init):
                with pytest.raises(RuntimeError, match="no CUDA GPU is available.*devices here are: cpu.*simulate"):
                    call()


def run(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "FLAMBEAU_SIM_GPUS", "FLAMBEAU_SIM_MODEL")}
    return subprocess.run([sys.executable, "-c", script], env=clean | env, capture_output=True, text=True, timeout=100)


class TestD9Visibility:
    MODELS = ("H200", "A100", "T4", "L4")

    def seen(self) -> list[str]:
        short = {"NVIDIA H200": "H200", "NVIDIA A100-SXM4-80GB": "A100", "Tesla T4": "T4", "NVIDIA L4": "L4"}
        return [short.get(cuda.get_device_name(i), cuda.get_device_name(i)) for i in range(cuda.device_count())]

    @pytest.mark.parametrize(("text", "expected"), [
        ("0,1,2,3", "H200 A100 T4 L4"), ("3,1", "L4 A100"), ("2", "T4"), ("", ""), ("-1", ""), ("0,-1,2", "H200"), ("1,9,2", "A100"), ("1,x,2", "A100"),
        ("1,1", ""), ("0,2,0", ""), (" 2 , 0 ", "T4 H200"), ("9", ""), ("x", ""),
    ])
    def test_lists_order_and_bad_entries(self, monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        with torch.simulate(gpus=4, model=self.MODELS, memory="16MiB"):
            assert self.seen() == expected.split() and cuda.is_available() is bool(expected)
            for i in range(cuda.device_count()):
                assert torch.ones(1, device=i).device == D("cuda", i)
            with pytest.raises(RuntimeError, match=r"is not there" if expected else r"hidden by CUDA_VISIBLE_DEVICES"):
                torch.ones(1, device=f"cuda:{cuda.device_count()}")

    def test_uuids_and_their_beginnings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with torch.simulate(gpus=4, model=self.MODELS, memory="16MiB"):
            ids = [cuda.get_device_properties(i).uuid for i in range(4)]
        assert len(set(ids)) == 4
        start = [next(n for n in range(1, 37) if sum(other.startswith(u[:n]) for other in ids) == 1) for u in ids]
        for text, expected in ((f"GPU-{ids[2]}", "T4"), (f"GPU-{ids[3]},GPU-{ids[0]}", "L4 H200"), (f"GPU-{ids[1][:start[1]]}", "A100"),
                               (f"GPU-{ids[1]},GPU-{ids[1]}", ""),
                               (f"GPU-{ids[1]},GPU-none,GPU-{ids[0]}", "A100"), ("GPU-", ""), (f"GPU-{ids[2]},0", "T4")):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
            with torch.simulate(gpus=4, model=self.MODELS, memory="16MiB"):
                assert self.seen() == expected.split(), text

    def test_the_environment_of_a_process(self) -> None:
        show = "import flambeau as t; c = t.cuda; print(c.device_count(), [c.get_device_properties(i).uuid[:6] for i in range(c.device_count())])"
        everything = run(show, FLAMBEAU_SIM_GPUS="3").stdout
        assert everything.startswith("3 ")
        ids = eval(everything.split(" ", 1)[1])
        assert run(show, FLAMBEAU_SIM_GPUS="3", CUDA_VISIBLE_DEVICES="2,0").stdout.strip() == f"2 {[ids[2], ids[0]]}"
        assert run(show, FLAMBEAU_SIM_GPUS="3", CUDA_VISIBLE_DEVICES="").stdout.strip() == "0 []"
        hidden = run("import flambeau as t; t.ones(1, device='cuda')", FLAMBEAU_SIM_GPUS="2", CUDA_VISIBLE_DEVICES="-1")
        assert hidden.returncode and "2 GPUs are hidden by CUDA_VISIBLE_DEVICES='-1'" in hidden.stderr

    def test_in_the_program_before_the_first_look_it_counts(self) -> None:
        out = run("import flambeau as t, os\nt.ones(3)\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
                  "print(t.cuda.device_count(), t.ones(1).cuda().device)", FLAMBEAU_SIM_GPUS="4")
        assert out.stdout.strip() == "1 cuda:0" and not out.stderr

    def test_set_too_late_warns_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with torch.simulate(gpus=2, memory="16MiB"):
            assert cuda.device_count() == 2
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
            with pytest.warns(UserWarning, match="CUDA_VISIBLE_DEVICES was None when the GPUs were first looked for and is '0' now: too late"):
                torch.ones(1, device="cuda:1")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert cuda.device_count() == 2
            torch.ones(1, device="cuda:1")


class TestD10AutogradThroughTransfers:
    @pytest.mark.parametrize("move", [
        lambda t: t.to("cuda"), lambda t: t.cuda(1), lambda t: t.to("cuda:1", torch.float64),
        lambda t: t.to("cuda").to("cuda:1").cpu(), lambda t: t.cuda().double().cpu(),
        lambda t: t.type("torch.cuda.DoubleTensor"), lambda t: t.to(torch.ones(1, device="cuda:1")), lambda t: t.t().cuda(),
        lambda t: t.pin_memory().to("cuda", non_blocking=True), lambda t: t[1:].cuda(1), lambda t: t.to("cuda", copy=True), lambda t: t.half().cuda(),
        lambda t: t.expand(2, 3, 4).cuda(),
    ])
    def test_gradients_land_on_the_leaf(self, gpus: None, move: Callable[[Any], Any]) -> None:
        for start in ("cpu", "cuda:0"):
            if start == "cuda:0" and "pin" in str(move.__code__.co_names):
                continue
            x = torch.arange(12.0).reshape(3, 4).to(start).requires_grad_()
            y = move(x)
            if y is x:  # it was there
                continue
            assert y.requires_grad and not y.is_leaf and y.grad_fn is not None and x.is_leaf
            (y * 3).sum().backward()
            z = torch.arange(12.0).reshape(3, 4).requires_grad_()
            (move(z.clone()).cpu() * 3).sum().backward()
            assert x.grad.device == x.device and x.grad.dtype == x.dtype and x.grad.tolist() == z.grad.tolist()

    def test_through_two_gpus_and_back(self, gpus: None) -> None:
        w0 = torch.full((3,), 2.0, device="cuda:0", requires_grad=True)
        w1 = torch.full((3,), 3.0, device="cuda:1", requires_grad=True)
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        loss = ((x.cuda(0) * w0).cuda(1) * w1).sum().cpu()
        loss.backward()
        assert (x.grad.device, w0.grad.device, w1.grad.device) == (CPU, GPU0, GPU1)
        assert (x.grad.tolist(), w0.grad.tolist(), w1.grad.tolist()) == ([6.0] * 3, [3.0, 6.0, 9.0], [2.0, 4.0, 6.0])

    def test_second_derivatives(self, gpus: None) -> None:
        x = torch.tensor([2.0, 3.0], requires_grad=True)
        (g,) = torch.autograd.grad((x.cuda(1) ** 3).sum(), x, create_graph=True)
        assert g.device == CPU and g.tolist() == [12.0, 27.0]
        g.cuda(0).sum().backward()
        assert x.grad.device == CPU and x.grad.tolist() == [12.0, 18.0]
        assert torch.autograd.gradcheck(lambda t: (t.cuda(1) * t.cuda(1).sin()).cpu(), torch.rand(3, dtype=torch.float64, requires_grad=True))

    def test_leaf_rules(self, gpus: None) -> None:
        moved = torch.ones(2, requires_grad=True).cuda()
        assert not moved.is_leaf and moved.requires_grad
        (moved * 2).sum().backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert moved.grad is None
        assert caught and "not a leaf" in str(caught[0].message)
        leaf = torch.ones(2).cuda().requires_grad_()
        assert leaf.is_leaf
        (leaf * 2).sum().backward()
        assert leaf.grad.device == GPU0
        made = torch.ones(2, device="cuda:1", requires_grad=True)
        assert made.is_leaf and made.to("cuda:1") is made
        with torch.no_grad():
            assert not torch.ones(2, requires_grad=True).cuda().requires_grad
        assert torch.ones(2).cuda().is_leaf and not torch.ones(2, requires_grad=True).detach().cuda().requires_grad
        kept = torch.ones(2, requires_grad=True).cuda()
        kept.retain_grad()
        kept.sum().backward()
        assert kept.grad.device == GPU0
        assert not torch.ones(2, requires_grad=True).cuda().long().requires_grad

    def test_accumulation_and_hooks(self, gpus: None) -> None:
        x = torch.ones(2, requires_grad=True)
        seen: list[Any] = []
        y = x.cuda(1)
        y.register_hook(lambda g: seen.append(g.device))
        x.register_hook(lambda g: seen.append(g.device))
        y.sum().backward()
        x.cuda(0).sum().backward()
        assert seen == [GPU1, CPU, CPU] and x.grad.tolist() == [2.0, 2.0] and x.grad.device == CPU


def _child(queue: Any, what: str) -> None:
    try:
        if what == "use":
            queue.put(("made", torch.ones(2, device="cuda").tolist()))
        elif what == "look":
            queue.put(("count", cuda.device_count(), cuda.is_available()))
        else:
            queue.put(("cpu", (torch.ones(2) + 1).tolist()))
    except RuntimeError as error:
        queue.put(("error", str(error)))


class TestForks:
    """A GPU's state does not survive a fork; looking whether there is one must not spoil it."""

    def fork(self, what: str) -> Any:
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads live in this process
            child = context.Process(target=_child, args=(queue, what))
            child.start()
        child.join(60)
        if child.exitcode is None:
            child.kill()
        assert child.exitcode == 0
        return queue.get()

    def test_looking_does_not_spoil_it(self) -> None:
        with torch.simulate(gpus=2, memory="16MiB"):
            assert cuda.is_available() and cuda.device_count() == 2
            cuda.manual_seed_all(3)
            assert self.fork("use") == ("made", [1.0, 1.0])
            assert self.fork("look") == ("count", 2, True)

    def test_after_use_the_child_is_told(self) -> None:
        with torch.simulate(gpus=2, memory="16MiB"):
            torch.ones(1, device="cuda")
            kind, text = self.fork("use")
            assert kind == "error" and text.startswith("Cannot re-initialize CUDA in forked subprocess") and "spawn" in text
            assert self.fork("cpu") == ("cpu", [2.0, 2.0])  # the CPU works on
            assert torch.ones(2, device="cuda").tolist() == [1.0, 1.0]  # and so does the parent
