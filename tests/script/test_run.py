"""`flambeau run`: scripts that say `import torch`, as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_SIM")}
    return {**kept, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])}


def run(tmp_path, code: str, *options: str, arguments: tuple[str, ...] = (), check: bool = True) -> subprocess.CompletedProcess:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.run([sys.executable, "-m", "flambeau", "run", *options, str(script), *arguments], env=environment(), capture_output=True,
                          text=True, check=check, timeout=120)


def test_imports_arguments_and_version(tmp_path) -> None:
    (tmp_path / "helper.py").write_text("import torch\nx = torch.ones(2)\n")
    made = run(tmp_path, """
        import sys
        import torch, torch.nn as nn, torch.nn.functional as F, torch.optim as optim
        import torch.backends.cudnn as cudnn
        import torch.utils.data
        from torch.optim.lr_scheduler import StepLR
        from torch.utils.data.sampler import Sampler
        from torch.nn.parameter import Parameter
        from torch.nn.modules.module import Module
        from torch import Tensor
        import helper
        assert __name__ == "__main__" and sys.argv[1:] == ["--lr", "0.1", "--ledger"], sys.argv
        assert isinstance(helper.x, torch.Tensor) and isinstance(nn.Linear(1, 1), Module)
        assert int(torch.__version__.split(".")[0]) >= 2 and torch.__name__ == "torch"
        assert not hasattr(torch, "no_such_name") and not torch.cuda.is_available()
        assert nn.Linear is torch.nn.Linear and torch.nn.functional is F and optim.SGD
        torch.own = 3
        print(torch.own, torch.float32, torch.device("cpu"))
    """, arguments=("--lr", "0.1", "--ledger"))
    assert made.stdout.split() == ["3", "torch.float32", "cpu"]


def test_missing_names_say_what_is_near_and_where(tmp_path) -> None:
    made = run(tmp_path, "import torch\n\ntorch.zeroes(3)\n", check=False)
    assert made.returncode == 1
    assert "Flambeau does not have torch.zeroes" in made.stderr and "zeros" in made.stderr and "script.py:3" in made.stderr
    made = run(tmp_path, "from torch import onse\n", check=False)
    assert made.returncode == 1 and "ones" in made.stderr.splitlines()[-1]
    made = run(tmp_path, "import torch.optm\n", check=False)
    assert "No module named 'torch.optm'" in made.stderr and "optim" in made.stderr
    made = run(tmp_path, "import torch.onnx\nprint('named')\ntorch.onnx.export()\n", check=False)
    assert made.stdout == "named\n" and "leaves torch.onnx out" in made.stderr


def test_exit_status_and_a_missing_file(tmp_path) -> None:
    assert run(tmp_path, "import sys; sys.exit(7)", check=False).returncode == 7
    made = subprocess.run([sys.executable, "-m", "flambeau", "run", str(tmp_path / "none.py")], env=environment(), capture_output=True, text=True, check=False)
    assert made.returncode == 2 and "none.py" in made.stderr


def test_simulated_gpus_and_the_ledger(tmp_path) -> None:
    code = """
        import torch
        print(torch.cuda.device_count(), torch.accelerator.is_available())
        if torch.cuda.is_available():
            x = torch.ones(4)
            for _ in range(3):
                x.to("cuda")
    """
    assert run(tmp_path, code).stdout.split()[:2] == ["0", "False"]
    made = run(tmp_path, code, "--sim-gpus", "3", "--ledger")
    assert made.stdout.startswith("3 True") and "transfers of script.py" in made.stdout and "hoist" in made.stdout
    assert run(tmp_path, code, "--sim-gpus", "x", check=False).returncode == 2


def test_a_module_by_its_name(tmp_path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "main.py").write_text("import sys, torch\nfrom . import __name__ as n\nprint(n, torch.ones(2).sum().item(), sys.argv[1])\n")
    command = [sys.executable, "-m", "flambeau", "run", "-m", "pack.main", "arg"]
    made = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["pack", "2.0", "arg"]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_children_find_the_same_torch(tmp_path, method: str) -> None:
    made = run(tmp_path, f"""
        import multiprocessing
        import torch

        def work(q):
            q.put((torch.__version__, torch.arange(3).sum().item()))

        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            q = context.Queue()
            p = context.Process(target=work, args=(q,))
            p.start()
            print(*q.get(timeout=60))
            p.join()
    """)
    assert made.stdout.split() == ["2.13.0+flambeau", "3"]


def test_names_are_given_back() -> None:
    code = ("from flambeau import script\nscript.install()\nimport torch, torch.nn\nassert script.installed()\nscript.uninstall()\n"
            "import sys\nassert 'torch' not in sys.modules and 'torch.nn' not in sys.modules\nimport flambeau.nn\n"
            "assert flambeau.nn.__spec__.name == 'flambeau.nn'\nprint('ok')")
    assert subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True).stdout == "ok\n"


def test_tracebacks_begin_with_the_script(tmp_path) -> None:
    """Neither how the script was started nor how an operation looked for its plan is of use to anybody."""
    script = tmp_path / "wrong.py"
    for source, told in (("import torch\n\ndef f(x):\n    return torch.mm(x, x)\nf(torch.ones(2, 3))\n", "cannot be multiplied (2x3 and 2x3)"),
                         ("import torch\ntorch.nn.functional.softmax(torch.ones(2), 5)\n", "Dimension out of range"), ("def (\n", "invalid syntax")):
        script.write_text(source)
        done = subprocess.run([sys.executable, "-m", "flambeau", "run", str(script)], capture_output=True, text=True, timeout=60)
        lines = done.stderr.rstrip().splitlines()
        assert done.returncode == 1 and told in lines[-1] and "During handling" not in done.stderr and "runpy" not in done.stderr, done.stderr
        first = next(line for line in lines if line.startswith("  File"))
        assert "wrong.py" in first


def test_the_page_holds_the_findings_that_the_ledger_prints(tmp_path) -> None:
    made = run(tmp_path, """
        import torch
        x = torch.randn(256, 256)
        for _ in range(3):
            y = x.to("cuda")
            (y @ y).sum().item()
    """, "--sim-gpus", "1", "--ledger", "--report", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text("utf-8")
    findings = page[page.index('<section id="findings">'):page.index('<section id="lanes">')]
    for kind in ("hoist", "pin", "hidden synchronisation"):
        assert kind in made.stdout and f"<b>{kind}</b>" in findings
    assert 'data-line="script.py:5"' in findings


def _start(tmp_path, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "flambeau", "run", *arguments], env={**environment(), **env}, input=stdin, cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)


def test_frames_inside_flambeau_are_left_out(tmp_path) -> None:
    code = """
        import torch

        class Inner(torch.nn.Module):
            def forward(self, x):
                return torch.mm(x, x)

        model = torch.nn.Sequential(Inner())
        try:
            model(torch.ones(2, 3))
        except RuntimeError as error:
            raise ValueError("the model failed") from error
    """
    made = run(tmp_path, code, check=False)
    files = [line.split('"')[1] for line in made.stderr.splitlines() if line.startswith("  File")]
    assert made.returncode == 1 and files == [str(tmp_path / "script.py")] * 3, made.stderr
    assert "return torch.mm(x, x)" in made.stderr and made.stderr.endswith("ValueError: the model failed\n")
    count = made.stderr.splitlines()[0]
    assert count.startswith("flambeau run: ") and count.endswith("frames inside Flambeau left out; FLAMBEAU_TRACEBACK=full shows all")
    full = _start(tmp_path, "script.py", FLAMBEAU_TRACEBACK="full").stderr
    assert "nn/module.py" in full and "matmul.py" in full and "left out" not in full
    in_thread = run(tmp_path, """
        import threading, torch
        t = threading.Thread(target=lambda: torch.ones(2).reshape(3))
        t.start()
        t.join()
    """).stderr
    assert "shape '[3]' is invalid for input of size 2" in in_thread and "views.py" not in in_thread and "script.py" in in_thread
    plain = run(tmp_path, "raise KeyError('own')\n", check=False).stderr
    assert "left out" not in plain and plain.count("  File") == 1
    # the file that pip writes and the shell finds
    (tmp_path / "flambeau").write_text("import sys\nfrom flambeau.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    found = subprocess.run([sys.executable, str(tmp_path / "flambeau"), "run", "script.py"], env=environment(), cwd=tmp_path, capture_output=True,
                           text=True, timeout=120, check=False).stderr
    assert [line.split('"')[1] for line in found.splitlines() if line.startswith("  File")] == ["script.py"], found


@pytest.mark.parametrize("how", ["fork", "spawn", "processes"])
def test_frames_inside_flambeau_are_left_out_of_what_workers_tell(tmp_path, how) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(f"""
        import torch
        import torch.multiprocessing as mp

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, i):
                return torch.ones(2)[i + 5]

        def one(i):
            torch.ones(2)[5]

        if __name__ == "__main__":
            if {how!r} == "processes":
                mp.spawn(one)
            for batch in torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context={how!r}):
                pass
    """))
    for full in ("", "full"):
        made = _start(tmp_path, "script.py", FLAMBEAU_TRACEBACK=full)
        files = {os.path.basename(line.split('"')[1]) for line in made.stderr.splitlines() if line.startswith('  File "')}
        assert made.returncode == 1 and "index 5 is out of bounds for dimension 0 with size 2" in made.stderr, made.stderr
        assert (files == {"script.py"}) == (full == "") and "script.py" in files, made.stderr


def test_an_error_of_a_gpu_shows_no_frame_of_the_driver(tmp_path) -> None:
    """Its cause was raised inside Flambeau alone, and its message tells what the cause says."""
    made = run(tmp_path, """
        import torch
        a = torch.ones(3, device="cuda")
        b = a[torch.tensor([5], device="cuda")]
        print(b.tolist())
    """, "--sim-gpus", "1", "--queue", "lazy", check=False)
    files = [line.split('"')[1] for line in made.stderr.splitlines() if line.startswith("  File")]
    assert files == [str(tmp_path / "script.py")], made.stderr
    assert made.stderr.count("Traceback") == 1 and "index 5 is out of bounds" in made.stderr and "script.py:4" in made.stderr


def test_a_text_is_run(tmp_path) -> None:
    (tmp_path / "beside.py").write_text("import torch\nx = torch.ones(3)\n")
    code = "import sys, torch, beside\nprint(__name__, sys.argv, beside.x.sum().item())"
    assert _start(tmp_path, "-c", code, "--lr", "1").stdout == "__main__ ['-c', '--lr', '1'] 3.0\n"
    assert _start(tmp_path, "-c", code).stdout == "__main__ ['-c'] 3.0\n"
    assert _start(tmp_path, "-", "a", stdin=code).stdout == "__main__ ['-', 'a'] 3.0\n"
    wrong = _start(tmp_path, "-c", "import torch\ntorch.ones(2).reshape(3)")
    assert wrong.returncode == 1 and 'File "<string>", line 2' in wrong.stderr and "torch.ones(2).reshape(3)" in wrong.stderr
    wrong = _start(tmp_path, "-", stdin="def (\n")
    assert wrong.returncode == 1 and "SyntaxError" in wrong.stderr and "flambeau" not in wrong.stderr
    assert _start(tmp_path, "-c", "raise SystemExit(3)").returncode == 3
    none = _start(tmp_path, "-c")
    assert none.returncode == 2 and "-c needs the text to run" in none.stderr
    none = _start(tmp_path)
    assert none.returncode == 2 and "name a script, or give its text by -c" in none.stderr


def test_annotations_of_a_text_are_its_own(tmp_path) -> None:
    code = "def f(x: int, y: list[int]) -> None: pass\nprint(f.__annotations__)"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert _start(tmp_path, "-c", code).stdout == plain == _start(tmp_path, "-", stdin=code).stdout != ""


def test_a_page_that_cannot_be_written_is_told_before_the_script_works(tmp_path) -> None:
    for page, told in (("gone/page.html", f"there is no folder '{tmp_path / 'gone'}'"), ("page.pdf", "ends in '.pdf'; a page ends in '.html'"),
                       ("page", "ends in 'nothing'")):
        for more in ((), ("--nproc", "2")):
            made = _start(tmp_path, "--report", page, *more, "-c", "print('worked')")
            assert made.returncode == 2 and made.stdout == "" and made.stderr.startswith("flambeau run: --report: ") and told in made.stderr, made.stderr
            assert len(made.stderr.splitlines()) == 1 and os.listdir(tmp_path) == []


def test_a_page_that_cannot_be_written_at_the_end_hides_no_error(tmp_path) -> None:
    code = "import os, torch\nos.rmdir('there')\n"
    for more, status in (("", 1), ("raise SystemExit(7)", 7), ("torch.ones(2)[5]", 1)):
        (tmp_path / "there").mkdir()
        made = _start(tmp_path, "--report", "there/page.html", "-c", code + more)
        path = tmp_path / "there" / "page.html"
        assert made.returncode == status and f"the page is not written: [Errno 2] No such file or directory: '{path}'" in made.stderr, made.stderr
        assert ("IndexError: index 5" in made.stderr) == ("ones" in more) and "During handling" not in made.stderr


def test_the_page_lies_where_the_command_was_given(tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    made = _start(tmp_path, "--report", "page.html", "-c", "import os, torch\nos.chdir('elsewhere')\ntorch.ones(3)")
    assert f"the page is {tmp_path / 'page.html'}" in made.stderr and (tmp_path / "page.html").exists() and not os.listdir(tmp_path / "elsewhere")


def test_the_simulated_gpus_are_chosen(tmp_path) -> None:
    code = "import torch\nfor i in range(torch.cuda.device_count()): print(torch.cuda.get_device_name(i), torch.cuda.mem_get_info(i)[1] >> 20)"
    made = _start(tmp_path, "--sim-gpus", "2", "--sim-model", "a100", "--sim-memory", "64MiB", "--queue", "lazy", "-c", code)
    assert made.stdout == "NVIDIA A100-SXM4-80GB 64\n" * 2, made.stderr
    assert _start(tmp_path, "--sim-model", "T4", "-c", code).stdout == "Tesla T4 15360\n"
    assert _start(tmp_path, "--sim-gpus", "0", "-c", code, FLAMBEAU_SIM_GPUS="2").stdout == ""
    for option, value, told in (("--sim-model", "H9", "'H9' cannot be simulated; choose one of T4, A100"), ("--sim-memory", "much", "got 'much'"),
                                ("--queue", "slow", "--queue: expected one of 'eager', 'lazy', 'random', got 'slow'")):
        made = _start(tmp_path, option, value, "-c", code)
        assert made.returncode == 2 and told in made.stderr and option in made.stderr and made.stdout == "", made.stderr


def test_many_processes_run_a_text_on_chosen_gpus(tmp_path) -> None:
    pytest.importorskip("mpi4py")
    code = "import os, torch\nprint('rank', os.environ['RANK'], torch.cuda.get_device_name(0), flush=True)"
    for arguments, stdin in ((("-c", code), ""), (("-",), code)):
        made = _start(tmp_path, "--nproc", "2", "--sim-model", "A100", *arguments, stdin=stdin)
        told = sorted(line[line.rindex("rank"):] for line in made.stdout.splitlines() if "A100" in line)
        assert told == ["rank 0 NVIDIA A100-SXM4-80GB", "rank 1 NVIDIA A100-SXM4-80GB"], made.stdout + made.stderr


def test_a_slow_first_compilation_is_told(tmp_path) -> None:
    code = ("import torch\nfrom flambeau._core.kernels import cache\ncache.SLOW = 1e-9\n"
            "x = torch.ones(3) + 1\nx = x * 2.5\nprint(x.tolist())")
    first = _start(tmp_path, "-c", code, FLAMBEAU_CACHE_DIR=str(tmp_path / "kept"))
    told = [line for line in first.stderr.splitlines() if "compiling kernels" in line]
    assert first.stdout == "[5.0, 5.0, 5.0]\n" and len(told) == 1, first.stderr
    assert told[0].startswith("flambeau run: compiling kernels, 1 in ") and f"they are kept in {tmp_path / 'kept'}" in told[0]
    assert _start(tmp_path, "-c", code, FLAMBEAU_CACHE_DIR=str(tmp_path / "kept")).stderr == ""
