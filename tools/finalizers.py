"""The part `finalizers` of tools/races.py: at any allocation something dies, a tensor, a view, a stream, a pool, or an object whose finalizer computes.

Python's collector runs where an object is made that may be part of a circle.  Here it is told to run at each, and each time something that was kept is
let go of, or not, as the seed has it.  So what a weak reference's callback changes while it is iterated shows as an error, a lock that a finalizer
needs and this thread holds as a round that hangs, and memory that is given out twice as other values than the same program has without all that.
"""

from __future__ import annotations

import contextvars
import gc
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import flambeau as torch


class Computes:
    """Computes something when it dies, in a context of its own: Python 3.11 loses what is set in a context while it makes another of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def __del__(self) -> None:
        contextvars.copy_context().run(self._work)


class Dying:
    """A block in which what is in `kept` dies, one by one.  errors: what finalizers raised."""

    def __init__(self, rng: random.Random) -> None:
        self.kept: list[Any] = []
        self.errors: list[str] = []
        self.died = 0
        self._rng = rng

    def _collects(self, phase: str, told: Any) -> None:
        if phase == "start" and self.kept and self._rng.random() < 0.3:
            self.died += 1
            self.kept.pop(self._rng.randrange(len(self.kept)))

    def _raised(self, told: Any) -> None:
        self.errors.append("".join(traceback.format_exception(told.exc_value)))

    def __enter__(self) -> Dying:
        self._before, self._hook = gc.get_threshold(), sys.unraisablehook
        sys.unraisablehook = self._raised
        gc.callbacks.append(self._collects)
        gc.set_threshold(1, 1000, 1000)
        return self

    def __exit__(self, *exc: object) -> None:
        gc.set_threshold(*self._before)
        gc.callbacks.remove(self._collects)
        sys.unraisablehook = self._hook

    def fill(self, count: int) -> None:
        """Keeps so many more."""
        for i in range(count):
            self.kept.append(self._rng.choice(_KINDS)(i))


def _views(i: int) -> Any:
    base = torch.ones(300 + i, requires_grad=True).clone()
    return base, base[i:]


def _gradient(i: int) -> Any:
    x = torch.ones(4, 4, requires_grad=True)
    (x * 2).sum().backward()
    return x.grad


def _moved(i: int) -> Any:
    pinned = torch.ones(1000 + i).pin_memory()
    return pinned, pinned.to("cuda", non_blocking=True)


def _pool(i: int) -> Any:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        return pool, torch.ones(1000 + i, device="cuda")


_KINDS: tuple[Callable[[int], Any], ...] = (
    _views, _gradient, _moved, _pool, lambda i: torch.ones(10 + i).to("cuda"), lambda i: torch.ones(5, device="cuda").cpu(),
    lambda i: torch.ones(200000 + i * 1000), lambda i: Computes(lambda: torch.ones(3 + i).sum().item()),
    lambda i: Computes(lambda: torch.ones(7 + i, device="cuda").mul(2).sum().item()), lambda i: Computes(lambda: torch.arange(5 + i).to("cuda").cpu()),
    lambda i: Computes(lambda: torch.ones(100000 + i * 512).mul_(2)))


# ---------------------------------------------------------------------------------------------------------------- programs
def _trained(d: Dying, dev: str) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(dev)
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    for i in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4 + i, 8).to(dev)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _copied(d: Dying, dev: str) -> Any:
    found = []
    with torch.transfers(show=False) as ledger:
        for i in range(8):
            x = torch.arange(10 + i).to("cuda")
            d.kept.append(x)
            found.append(x.cpu().tolist())
            d.kept.append(torch.ones(7, device="cuda"))
    return found, sum(row["count"] for row in ledger.rows) >= 16, len(ledger.findings) >= 0


def _journal(d: Dying, dev: str) -> Any:
    for i in range(40):
        d.kept.append(torch.arange(3 + i % 5).to("cuda"))
    return len(torch.transfers.so_far().table()) > 0


def _traced(d: Dying, dev: str) -> Any:
    with torch.trace() as trace:
        x = torch.ones(5, 4, device=dev)
        total = (x @ x.t()).sum()
        d.kept += [x, total, x.cpu()]
        found = total.item()
    return found, len(trace.stages) > 0, [now for _, now, _ in trace.sources.living("cuda:0") if now < 0]


def _memory(d: Dying, dev: str) -> Any:
    torch.cuda.memory._record_memory_history()
    d.kept.append(torch.ones(100, device="cuda"))
    found = [torch.cuda.memory_stats(), torch.cuda.memory_snapshot(), torch.cuda.memory._snapshot()]
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(enabled=None)
    return len(found)


def _written(d: Dying, dev: str) -> Any:
    leaf = torch.ones(20, device=dev, requires_grad=True)
    base = leaf.clone()
    d.kept.extend([base[i:] for i in range(18)])
    base.mul_(2)
    base[3:].add_(1)
    return base.tolist(), torch.autograd.grad(base.sum(), leaf)[0].tolist()


def _derived(d: Dying, dev: str) -> Any:
    x = torch.arange(3.0, device=dev)
    value, slope = torch.func.jvp(lambda a: (a.sin() * a).sum(), (x,), (x,))
    each = torch.func.vmap(torch.func.grad(lambda a: (a * a).sum()))(x[:, None])
    return value.item(), slope.item(), each.tolist(), torch.func.hessian(lambda a: a.exp().sum())(x).tolist()


def _compiled(d: Dying, dev: str) -> Any:
    f = torch.compile(lambda a: (a.sin() + a).sum())
    return [f(torch.arange(4.0 + i, device=dev)).item() for i in range(3)]


def _again(d: Dying, dev: str) -> Any:
    from flambeau.utils.checkpoint import checkpoint
    x = torch.eye(4, device=dev, requires_grad=True)
    checkpoint(lambda a: (a @ a).relu(), x, use_reentrant=False).sum().backward()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.sin()
        y.add_(1)
        z.sum().backward()
    grad = x.grad
    assert grad is not None
    return grad.tolist()


def _streams(d: Dying, dev: str) -> Any:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.arange(50, device="cuda").to("cpu", non_blocking=True)
    stream.synchronize()
    d.kept += [stream, x]
    return x.tolist()


def _loaded(d: Dying, dev: str) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(16.0).reshape(8, 2))
    return [batch.to("cuda", non_blocking=True).tolist() for batch, in torch.utils.data.DataLoader(data, 2, pin_memory=True)]


def _various(d: Dying, dev: str) -> Any:
    x = torch.randn(30, device=dev)
    generator = torch.Generator()
    d.kept.append(generator)
    return (x.sort()[0].tolist(), x[x > 0].sum().item(), torch.stack([x, x]).std(0).tolist(), str(torch.fft.fft(x)), torch.randperm(9).tolist(),
            torch.randn(3, generator=generator).tolist(), torch.linalg.det(torch.eye(3, device=dev)).item())


PROGRAMS: tuple[Callable[[Dying, str], Any], ...] = (
    _trained, _copied, _journal, _traced, _memory, _written, _derived, _compiled, _again, _streams, _loaded, _various)


def programs(rng: random.Random, count: int = 30) -> int:
    """Carries out so many programs; gives how much died.  Raises SystemExit where one has other values than without that, or something raises."""
    with torch.simulate(gpus=1, queue=rng.choice(("eager", "lazy", "random"))):
        for k in range(count):
            program, dev, seed = rng.choice(PROGRAMS), rng.choice(("cpu", "cuda")), rng.randrange(1000)
            torch.manual_seed(seed)
            want = program(Dying(rng), dev)
            dying = Dying(rng)
            dying.fill(40)
            torch.manual_seed(seed)
            with dying:
                found = program(dying, dev)
            dying.kept.clear()
            if dying.errors:
                raise SystemExit(f"program {k}, {program.__name__} on {dev}: a finalizer raised\n{dying.errors[0]}")
            if found != want:
                raise SystemExit(f"program {k}, {program.__name__} on {dev}: {found} instead of {want}")
    return dying.died
