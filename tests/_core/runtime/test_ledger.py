"""The ledger: what each line moved, and the pitfalls every GPU tutorial names, each found on its line with its cure."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

import flambeau as torch
from tests import processes


@pytest.fixture(params=["eager", "lazy"])
def gpus(request):
    with torch.simulate(gpus=2, model="H200", queue=request.param):
        yield


def here(offset: int = 0) -> str:
    return f"{__file__}:{sys._getframe(1).f_lineno + offset}"


def kinds(t) -> dict[str, str]:
    return {f.kind: f.line for f in t.findings}


def test_rows_count_bytes_paths_and_lines(gpus) -> None:
    a = torch.ones(1000)
    with torch.transfers(show=False) as t:
        b = a.to("cuda:0"); up = here()  # noqa: E702
        c = b.to("cuda:1"); over = here()  # noqa: E702
        for _ in range(3):
            c.add(1).cpu(); down = here()  # noqa: E702
    rows = {r["line"]: r for r in t.rows}
    assert set(rows) == {up, over, down}
    assert (rows[up]["count"], rows[up]["nbytes"], rows[up]["direction"]) == (1, 4000, "h2d")
    assert (rows[over]["direction"], rows[over]["source"], rows[over]["target"]) == ("peer", "cuda:0", "cuda:1")
    assert (rows[down]["count"], rows[down]["nbytes"], rows[down]["blocking"]) == (3, 12000, 3)
    assert rows[down]["seconds"] > 0 and rows[up]["path"] in ("pageable", "staged")


def test_pinned_copies_are_told_apart(gpus) -> None:
    a = torch.ones(1 << 18).pin_memory()
    with torch.transfers(show=False) as t:
        a.to("cuda", non_blocking=True)
    (row,) = t.rows
    assert row["path"] == "pinned" and row["blocking"] == 0 and not t.findings


def test_ping_pong(gpus) -> None:
    x = torch.ones(256)
    with torch.transfers(show=False) as t:
        y = x.to("cuda")
        for _ in range(2):
            y.to("cpu"); line = here()  # noqa: E702
    (f,) = [f for f in t.findings if f.kind == "ping-pong"]
    assert f.line == line and f.count == 2 and "keep the tensor you had" in f.cure
    with torch.transfers(show=False) as t:
        y = x.to("cuda")
        y.add_(1)
        y.to("cpu")
    assert "ping-pong" not in kinds(t)


def test_moving_inside_a_tight_loop(gpus) -> None:
    w = torch.ones(100, 100)
    with torch.transfers(show=False) as t:
        total = torch.zeros((), device="cuda")
        for _ in range(4):
            total = total + w.to("cuda").sum(); line = here()  # noqa: E702
    assert kinds(t)["hoist"] == line
    assert "out of the loop" in next(f for f in t.findings if f.kind == "hoist").cure


def test_batch_there_and_back_each_step(gpus) -> None:
    net = torch.nn.Linear(8, 8).to("cuda")
    with torch.transfers(show=False) as t:
        for _ in range(3):
            batch = torch.randn(4, 8)
            batch = batch.to("cuda")
            out = batch.to("cpu"); back = here()  # noqa: E702
            net(batch)
    assert kinds(t)["ping-pong"] == back and out.shape == (4, 8)


def test_the_same_tensor_from_two_lines(gpus) -> None:
    x = torch.ones(64)
    with torch.transfers(show=False) as t:
        a = x.cuda()
        b = x.cuda(); line = here()  # noqa: E702
    assert kinds(t)["sent again"] == line and torch.equal(a, b)
    with torch.transfers(show=False) as t:
        x.cuda()
        x.add_(1)
        x.cuda()
    assert not t.findings


def test_parts_of_a_tensor_are_told_apart(gpus) -> None:
    data, other = torch.randn(8, 4), torch.randn(4, 8)
    with torch.transfers(show=False) as t:
        for i in range(0, 8, 2):
            data[i:i + 2].to("cuda")
        other[:, :4].to("cuda"), other[:, 4:].to("cuda")  # from one address on, and of as many bytes
        other[::2].to("cuda"), other[:2].to("cuda")
        there = torch.randn(8, 8, device="cuda")
        for i in range(8):
            there[:, i].cpu()
    assert not [f for f in t.findings if f.kind in ("hoist", "sent again")]
    with torch.transfers(show=False) as t:
        for _ in range(3):
            for i in range(0, 8, 2):
                data[i:i + 2].to("cuda"); line = here()  # noqa: E702
    (f,) = [f for f in t.findings if f.kind == "hoist"]
    assert (f.line, f.count, f.nbytes) == (line, 8, 8 * 32)
    assert f.text == "8 of 12 copies to cuda:0 from this line send what was sent before and is unchanged: 256 B."
    with torch.transfers(show=False) as t:
        for _ in range(3):
            for i in range(0, 8, 2):
                data[i:i + 2].to("cuda")
            data.add_(1)
    assert not [f for f in t.findings if f.kind in ("hoist", "sent again")]
    with torch.transfers(show=False) as t:
        parts = [data[i:i + 2].to("cuda") for i in range(0, 8, 2)]
        for i in range(0, 8, 2):
            parts.append(data[i:i + 2].to("cuda"))
    (f,) = [f for f in t.findings if f.kind == "sent again"]
    assert f.text == "128 B in 4 copies are sent to cuda:0 again, unchanged."


def test_lines_are_the_programs_and_not_those_of_pythons_library(gpus) -> None:
    layer = torch.nn.Linear(3, 2)
    with torch.transfers(show=False) as t, ThreadPoolExecutor(1) as pool:
        pool.submit(layer.to, "cuda").result()
        copy.deepcopy(layer).cpu(); line = here()  # noqa: E702
    assert {r["line"] for r in t.rows} == {"(a thread of flambeau)", line}


def test_replicas_and_pinned_batches_have_the_line_of_the_program(gpus) -> None:
    model = torch.nn.DataParallel(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())).to("cuda")
    with torch.trace() as t:
        model(torch.randn(4, 3)); called = here()  # noqa: E702
        for _ in range(2):
            model(torch.randn(4, 3))
    assert {s.line for s in t.stages if s.name == "linear"} == {called, f"{__file__}:{int(called.rpartition(':')[2]) + 2}"}
    assert {s.thread for s in t.stages} <= {0, 1, 2}  # a thread that has ended leaves its lane to the next
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    with torch.trace() as t:
        for _ in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True):
            line = here(-1)
    assert {s.line for s in t.stages if s.name == "pin_memory"} == {line}


def test_many_small_copies(gpus) -> None:
    with torch.transfers(show=False) as t:
        for i in range(25):
            torch.tensor([float(i)]).to("cuda"); line = here()  # noqa: E702
    assert kinds(t)["small copies"] == line


@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: bool(x[0] > 0), lambda x: repr(x), lambda x: x.nonzero(),
                                  lambda x: float(x[0])], ids=["item", "tolist", "bool", "print", "nonzero", "float"])
def test_hidden_synchronisation(gpus, read) -> None:
    x = torch.ones(5, device="cuda")
    with torch.transfers(show=False) as t:
        for _ in range(3):
            x = x + 1
            read(x)
    found = [f for f in t.findings if f.kind == "hidden synchronisation"]
    assert found and all(f.line.startswith(__file__) and f.count == 3 for f in found)


def test_pageable_copies_worth_pinning(gpus) -> None:
    with torch.transfers(show=False) as t:
        for _ in range(3):
            torch.ones(1 << 18).to("cuda", non_blocking=True); line = here()  # noqa: E702
    f = next(f for f in t.findings if f.kind == "pin")
    assert f.line == line and "pin_memory" in f.cure and f.nbytes == 3 << 20


def test_work_not_worth_the_way(gpus) -> None:
    with torch.transfers(show=False) as t:
        for i in range(3):
            x = torch.full((4,), float(i)).to("cuda"); line = here()  # noqa: E702
            (x + 1).cpu()
    assert kinds(t)["not worth the way"] == line
    with torch.transfers(show=False) as t:
        a = torch.randn(700, 700).to("cuda")
        for _ in range(20):
            a = (a @ a) / 700
        a.cpu()
    assert "not worth the way" not in kinds(t)


def test_the_table_prints_at_any_width_and_as_a_decorator(gpus, capsys) -> None:
    x = torch.ones(64)

    @torch.transfers()
    def f():
        x.cuda()
        return x.cuda()

    f()
    out = capsys.readouterr().out
    assert "transfers of f" in out and "sent again" in out and "Cure" in out
    with torch.transfers(show=False) as t:
        x.cuda()
    for width in (50, 80, 140):
        stream = io.StringIO()
        t.print(Console(file=stream, width=width))
        assert all(len(line) <= width for line in stream.getvalue().splitlines()) and "256 B" in stream.getvalue()
    with torch.transfers() as t:
        pass
    assert "nothing was moved" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_names_with_brackets_and_signs_are_shown_by_any_terminal(gpus, tmp_path, encoding) -> None:
    """Folders are called [bold] and [/b], and a terminal may lack what they are called by, and the arrows."""
    name = str(tmp_path / "[bold]a[ /red][/x] é漢.py")
    with torch.transfers(show=False, title="[red]t[/b] é") as t:
        exec(compile("for _ in range(3): x.cuda()", name, "exec"), {"x": torch.ones(1 << 17)})
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    t.print(Console(file=out, width=400))
    shown = raw.getvalue().decode(encoding)
    signs = {"utf-8": "é漢", "latin-1": "é?", "ascii": "??"}[encoding]
    assert f"[red]t[/b] {signs[0]}" in shown and shown.count(f"[bold]a[ /red][/x] {signs}.py:1") >= 2
    assert ("cpu → cuda:0" if encoding == "utf-8" else "cpu -> cuda:0") in shown and "hoist at " in shown and "Cure: " in shown


def test_the_process_ledger_is_always_kept(gpus) -> None:
    before = sum(r["count"] for r in torch.transfers.so_far().table())
    torch.ones(3).cuda()
    assert sum(r["count"] for r in torch.transfers.so_far().table()) == before + 1


def test_the_environment_prints_it_at_the_end() -> None:
    code = "import flambeau as t\nx = t.ones(10)\nx.cuda()\nx.cuda()\n"
    made = subprocess.run([sys.executable, "-c", code], env={**os.environ, "FLAMBEAU_LEDGER": "1", "FLAMBEAU_SIM_GPUS": "1"}, capture_output=True,
                          text=True, check=True)
    assert "sent again" in made.stderr and "<string>:4" in made.stderr and made.stdout == ""


def test_storages_are_not_kept_alive(gpus) -> None:
    import gc
    with torch.transfers(show=False) as t:
        for _ in range(10):
            torch.ones(100).cuda()
        gc.collect()
        assert len(t.ledger._travels) <= 2


def test_a_storage_may_go_while_the_journal_is_entered(gpus) -> None:
    import threading
    ledger = torch.transfers.so_far()
    kept = [torch.ones(10).cuda() for _ in range(200)]
    ledger.settle()
    stop = threading.Event()
    failed: list[Exception] = []

    def enter() -> None:
        try:
            while not stop.is_set():
                ledger.settle()
        except RuntimeError as e:
            failed.append(e)
    threads = [threading.Thread(target=enter) for _ in range(2)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for _ in range(100):
            kept = [torch.ones(10).cuda() for _ in range(20)]
            kept.clear()  # the storages go, and with them their entries, while others are being looked through
    finally:
        stop.set()
        for t in threads:
            t.join()
        sys.setswitchinterval(switch)
    assert not failed, failed[0]


def test_a_finalizer_that_copies_while_the_ledger_is_at_work() -> None:
    """It comes to the lock that its own thread holds: nothing waits, and its copies are entered."""
    processes.says("""
import gc
class Copies:
    def __del__(self):
        torch.ones(3).to("cuda").sum().item()
def made():
    x = Copies()
    x.itself = x
with torch.simulate(gpus=1), torch.transfers(show=False) as moved:
    for k in range(1, 40):
        x = torch.arange(7)
        made()
        gc.set_threshold(k)
        x.to("cuda").cpu()
        gc.set_threshold(0)
        gc.collect()
    assert sum(row["count"] for row in moved.rows) == 39 * 4, moved.rows
""", memory=1 << 40)
